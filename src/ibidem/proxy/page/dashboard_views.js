// The three levels but for the texts of a request: all conversations, one conversation with its chart.
const BARS = 600;

// --- off, and on again ---------------------------------------------------------------------------------------------

const isOff = (id) => (state.off ?? []).includes(id);
// A button that switches a conversation, or all of them, to what they are not.
function switcher(button, off, what, wanted) {
  put(button, `Switch ${wanted.all ? "all " : ""}${off ? "on" : "off"}`);
  attribute(button, "aria-label", `${button.textContent}${what && `: ${what}`}`);
  button.hidden = observing();
  button.onclick = async () => {
    const answer = await call(off ? "on" : "off", { method: "POST",
      headers: { "content-type": "application/json" }, body: JSON.stringify(wanted) }).catch(() => null);
    const told = await answer?.json().catch(() => null);
    const why = answer?.ok ? "" : told?.error ?? "the proxy did not respond";
    banner(byId("unswitched"), why && `Not switched: ${line(why)}.`);
    if (answer?.ok) ask("state").then(take, () => {});
  };
}
const switched = {
  label: "rewriting", text: true, hidden: observing, value: (each) => (isOff(each.id) ? "off" : "on"),
  draw(cell, each) {
    const button = cell.firstChild ?? cell.appendChild(element("button", "", "more switch"));
    button.type = "button";
    switcher(button, isOff(each.id), titled(each), { conversation: each.id });
  },
};
const conversationsTable = grid(byId("conversations"), {
  label: "conversation",
  key: (each) => each.id,
  name: (each) => line(each.title),
  link(cell, each) {
    const notes = [isOff(each.id) && "off", each.arm === "measure" && "only measured", each.active && "active", each.unmarked && "no prompt caching",
      each.plan && "subscription",
      each.stopped && "revisions stopped", line(each.client), line(each.model)];
    named(cell, toConversation(each.id), titled(each), notes.filter(Boolean).join(" · "),
      (each.active ? "active" : "") + (each.stopped ? " stopped" : ""));
  },
  columns: [
    number("last", "last", clock),
    number("requests", "requests", (count) => fixed(count, 0)),
    ...money,
    number("removed", () => words().removed),
    plainly("from cache", (each) => (each.input ? each.read / each.input : null), maybe(percent)),
    number("misses", "misses", (count) => fixed(count, 0)),
    number("breaks", "rewrites", (count) => fixed(count, 0)),
    switched,
  ],
});

// --- all conversations ---------------------------------------------------------------------------------------------

function events(frame, found) {
  const titles = new Map(state.conversations.map((each) => [each.id, line(each.title)]));
  keyed(frame, found, (each) => [each.at, each.kind, each.conversation, each.text].join("\n"),
    () => made("li", "banner", element("time"), element("b"), element("span"), element("a")),
    (node, each) => {
      const [time, kind, text, link] = node.children;
      put(time, clock(each.at));
      attribute(time, "datetime", new Date(each.at * 1000).toISOString());
      put(kind, line(each.kind));
      put(text, line(each.text));
      link.hidden = !titles.has(each.conversation) || frame.closest("#conversation");
      attribute(link, "href", toConversation(each.conversation ?? ""));
      put(link, titles.get(each.conversation) || "the conversation");
    });
}
function strategies(found) {
  const high = Math.max(1, ...found.map((each) => each.tokens));
  const sorted = [...found].sort((one, other) => other.tokens - one.tokens);
  byId("by-strategy").hidden = !found.length;
  put(byId("gone"), observing() ? "tokens it would remove" : "tokens removed");
  keyed(byId("strategies").tBodies[0], sorted, (each) => each.name, () => {
    const bar = drawn("svg", { class: "bar p0", "aria-hidden": "true" }, drawn("rect", { class: "v", height: "100%" }));
    const head = element("th");
    head.scope = "row";
    return made("tr", "", head, made("td", "chart", bar), element("td"), element("td"));
  }, (node, each) => {
    put(node.cells[0], line(each.name));
    attribute(node.querySelector("rect"), "width", `${((Math.max(0, each.tokens) / high) * 100).toFixed(2)}%`);
    put(node.cells[2], tokens(each.tokens));
    put(node.cells[3], fixed(each.edits, 0));
  });
}
// Days of this proxy and of those before it, as they were kept, and all there is.
function days({ days: found, all, trouble }) {
  const rows = all ? [...found, { day: "all time", ...all }] : [];
  const high = Math.max(1e-9, ...found.map((each) => each.would_have_paid));
  byId("kept").hidden = !rows.length && !trouble;
  byId("days").hidden = !rows.length;
  banner(byId("not-kept"), trouble && `Usage is not stored: ${line(trouble)}`);
  const plan = all?.plan_requests ?? 0;
  put(byId("days-paid"), !plan ? "paid" : plan < all.requests ? "paid or worth" : "worth at list prices");
  const covered = plan && plan < all.requests ? `${plural(plan, "request")} on a subscription, worth ${
    dollars(all.plan_paid)} at list prices. ` : "";
  put(byId("kept-note"), covered + (all?.observed ? `${plural(all.observed, "request")} only observed: ${
    dollars(Math.max(0, all.could_save))} could have been saved.` : ""));
  keyed(byId("days").tBodies[0], rows, (each) => each.day, () => {
    const bar = drawn("svg", { class: "bar p0", "aria-hidden": "true" }, drawn("rect", { class: "v", height: "100%" }));
    const head = element("th");
    head.scope = "row";
    return made("tr", "", head, made("td", "chart", bar), element("td"), element("td"), element("td"));
  }, (node, each) => {
    put(node.cells[0], line(each.day));
    const part = each.day === "all time" ? 0 : Math.max(0, each.paid) / high;
    attribute(node.querySelector("rect"), "width", `${(part * 100).toFixed(2)}%`);
    put(node.cells[2], dollars(each.paid));
    put(node.cells[3], dollars(each.saved), signLook(Math.abs(each.saved) < NOISE ? 0 : each.saved));
    put(node.cells[4], fixed(each.requests, 0));
  });
}
function banner(node, text) {
  put(node, text);
  node.hidden = !text;
}
function overview() {
  const { totals } = state;
  byId("empty").hidden = totals.requests > 0;
  byId("filled").hidden = !totals.requests;
  if (!totals.requests) return;
  banner(byId("unmarked"), unmarked(totals));
  costs(byId("costs"), byUse(totals));
  put(byId("priced"), [billNote(totals), planNote(totals)].filter(Boolean).join(" "));
  const broken = Object.entries(totals.breaks ?? {});
  const went = observing() ? "all unchanged"
    : `${fixed(totals.rewritten, 0)} rewritten · ${fixed(totals.passed, 0)} unchanged`;
  tiles(byId("tiles"), [
    ["Requests", fixed(totals.requests, 0), went],
    inputTile(totals),
    cacheTile(totals),
    hitsTile(totals),
    ["Cache rewritten", fixed(broken.reduce((sum, [, count]) => sum + count, 0), 0), counts(broken)],
    ["Failed open", fixed(totals.failed_open, 0), counts(state.failures.map((each) => [each.reason, each.count])),
      totals.failed_open ? "bad" : ""],
    ...(totals.refused ? [["Rejected", fixed(totals.refused, 0), `${fixed(totals.resent, 0)} accepted when sent again`,
      totals.refused > totals.resent ? "bad" : ""]] : []),
    ...(totals.compacted?.requests ? [["Returned", fixed(totals.compacted.requests, 0),
      `sent by their clients · about ${fixed(totals.compacted.removed, 0)} tokens removed`]] : []),
  ]);
  byId("happened").hidden = !state.events.length;
  events(byId("events"), state.events);
  strategies(state.strategies);
  switcher(byId("switch-all"), Boolean(state.all_off), "", { all: true });
  conversationsTable.show(state.conversations);
}

// --- one conversation ----------------------------------------------------------------------------------------------

const seen = new Map();  // of a request: its number, its conversation, and the requests before and after it
function remember({ conversation, exchanges }) {
  const first = conversation.requests - exchanges.length + 1;  // the oldest may have been forgotten
  exchanges.forEach((each, place) => {
    each.number = Math.max(1, first) + place;
    const [prev, next] = [exchanges[place - 1]?.id, exchanges[place + 1]?.id];
    seen.set(each.id, { number: each.number, conversation, prev, next });
  });
}
const BAD = { "failed open": "neg" };
const requestsTable = grid(inside("conversation")(".list"), {
  label: "request",
  key: (each) => each.id,
  name: (each) => each.number,
  link(cell, each) {
    const notes = [each.revision && `cache rewritten: ${line(each.revision)}`, each.miss && `miss: ${line(each.miss)}`,
      line(each.outcome), line(each.reason)];
    named(cell, toRequest(each.id), `Request ${each.number}`, notes.filter(Boolean).join(" · "),
      BAD[each.outcome] ?? (each.revision ? "broken" : ""));
  },
  columns: [
    number("at", "time", clock),
    number("edits", "edits", (count) => fixed(count, 0)),
    number("input", "input"),
    number("removed", () => words().removed),
    number("read", "from cache"),
    number("output", "output"),
    ...money,
    number("took_ms", "our time", milliseconds),
  ],
});

function conversationView(found) {
  const { conversation, exchanges } = found, at = inside("conversation");
  remember(found);
  put(at(".title"), titled(conversation));
  const facts = [line(conversation.client), line(conversation.model), line(conversation.format),
    `${clock(conversation.first)} to ${clock(conversation.last)}`, conversation.active && "active",
    conversation.stopped && "revisions stopped", isOff(conversation.id) && "off: new texts are not rewritten",
    conversation.arm && `trial: ${conversation.arm === "measure" ? "only measured" : "rewritten"}`];
  put(at(".facts"), facts.filter(Boolean).join(" · "));
  switcher(at(".switch"), isOff(conversation.id), titled(conversation), { conversation: conversation.id });
  banner(at(".unmarked"), unmarked(conversation));
  costs(at(".costs"), conversation);
  put(at(".priced"), billNote(conversation));
  tiles(at(".tiles"), [
    ["Requests", fixed(conversation.requests, 0), exchanges.length < conversation.requests
      ? `the last ${fixed(exchanges.length, 0)} are in memory` : ""],
    inputTile(conversation),
    cacheTile(conversation),
    hitsTile(conversation),
    ["Cache rewritten", fixed(conversation.breaks, 0), conversation.stopped ? "revisions stopped here" : ""],
  ]);
  events(at(".events"), state.events.filter((each) => each.conversation === conversation.id));
  chart(at("svg.chart-of-requests"), exchanges);
  requestsTable.show(exchanges);
}

// Read from the cache, new, and what was left out: one column for each request, or for several where there are many.
let columnsShown = [];
function chart(svg, exchanges) {
  const each = Math.ceil(exchanges.length / BARS) || 1, groups = [];
  for (let start = 0; start < exchanges.length; start += each) {
    const group = exchanges.slice(start, start + each);
    groups.push({ ...group.reduce((one, other) => (before(other) > before(one) ? other : one)),
      revision: group.map((found) => found.revision).find(Boolean) });
  }
  columnsShown = groups;
  const high = Math.max(1, ...groups.map(before)) * 1.06;
  const step = Math.min(100 / (groups.length || 1), 4), width = groups.length <= 150 ? step * 0.8 : step + 0.1;
  const column = (place, look, from, to) => drawn("rect", { class: look, x: `${place * step}%`, width: `${width}%`,
    y: `${100 - (to / high) * 100}%`, height: `${(Math.max(0, to - from) / high) * 100}%` });
  const parts = groups.flatMap((found, place) => {
    if (!found.input) return [];  // its provider has not said
    const kept = before(found) - found.removed;
    const read = observing() ? 0 : Math.min(found.read ?? 0, kept);  // of what was not sent nobody knows
    const middle = `${place * step + width / 2}%`;
    return [column(place, "read", 0, read), column(place, "v", read, kept), column(place, "gone", kept, before(found)),
      ...(found.revision ? [drawn("line", { class: "break", x1: middle, x2: middle, y1: "0", y2: "100%" }),
        drawn("circle", { class: "break", cx: middle, cy: "4", r: "4" })] : [])];
  });
  svg.replaceChildren(...ticks(high).flatMap((tick) => {
    const top = `${100 - (tick / high) * 100}%`, label = drawn("text", { x: "0", y: top, dy: "-4" }, round(tick));
    return [drawn("line", { class: "grid", x1: "0", x2: "100%", y1: top, y2: top }), label];
  }), ...parts, drawn("line", { class: "axis", x1: "0", x2: "100%", y1: "100%", y2: "100%" }));
  svg.dataset.step = step;
  const broken = groups.filter((found) => found.revision).length;
  attribute(svg, "aria-label", `Input tokens by request: ${plural(exchanges.length, "request")}, at most `
    + `${tokens(Math.max(0, ...groups.map(before)))} without ibidem and ${tokens(Math.max(0, ...groups.map((found) =>
      before(found) - found.removed)))} with it, cache rewritten by ${plural(broken, "request")}. The table below has each.`);
  keyed(inside("conversation")(".legend"), [
    ...(observing() ? [["v", "would be sent"]] : [["read", "read from cache"], ["v", "not from cache"]]),
    ["gone", words().removed], ...(broken ? [["break", "cache rewritten"]] : []),
    ...(each > 1 ? [["", `each column shows the largest of ${each} requests`]] : [])], (key) => key[1], () => element("span"),
  (node, [look, what]) => put(node, what, `key ${look}`));
}
const round = (count) => (count < 1e3 ? String(count) : count < 1e6 ? `${count / 1e3}k` : `${count / 1e6}M`);
function ticks(high) {
  const power = 10 ** Math.floor(Math.log10(high));
  const tick = [0.2, 0.5, 1, 2].find((each) => high / (each * power) <= 5) * power;
  return Array.from({ length: Math.floor(high / tick) }, (_, place) => (place + 1) * tick);
}
{
  const svg = inside("conversation")("svg.chart-of-requests"), readout = inside("conversation")(".readout");
  const pointed = (event) => {
    const box = svg.getBoundingClientRect();
    return columnsShown[Math.floor(((event.clientX - box.left) / box.width) * 100 / svg.dataset.step)];
  };
  svg.addEventListener("pointermove", (event) => {
    const found = pointed(event);
    put(readout, found ? [`Request ${found.number}`, clock(found.at), `${tokens(found.input)} sent`,
      `${tokens(found.removed)} ${words().removed}`, `${tokens(found.read ?? 0)} from cache`,
      found.revision && `cache rewritten: ${line(found.revision)}`].filter(Boolean).join(" · ") : "");
  });
  svg.addEventListener("pointerleave", () => put(readout, ""));
  svg.addEventListener("click", (event) => {
    const found = pointed(event);
    if (found) location.hash = toRequest(found.id);
  });
}
