// One request: what was rewritten, beside the original.
const OPEN = 12, OPEN_TEXT = 400000;  // edits that stand unfolded at first, and how much text they may have together
const MANY = 50;  // edits in the page at first
const CONTEXT = 3, SHOWN = 14, SLACK = 4;  // lines around a change, of a change, and that are not worth a fold
const WIDE = 600;  // characters of a line

// --- which lines are the same --------------------------------------------------------------------------------------

// Blocks that are the same and blocks that are not, in turns. Lines that stand once on both sides, in the same order,
// hold the two texts together (patience); what is the same next to them is taken along. Nearly linear.
function blocks(was, is) {
  const found = [];
  function add(same, w0, w1, i0, i1) {
    if (w0 === w1 && i0 === i1) return;
    const last = found.at(-1);
    if (last?.same === same) [last.w1, last.i1] = [w1, i1];
    else found.push({ same, w0, w1, i0, i1 });
  }
  function walk(w0, w1, i0, i1) {
    const [start, other] = [w0, i0];
    while (w0 < w1 && i0 < i1 && was[w0] === is[i0]) { w0 += 1; i0 += 1; }
    add(true, start, w0, other, i0);
    const [end, otherEnd] = [w1, i1];
    while (w0 < w1 && i0 < i1 && was[w1 - 1] === is[i1 - 1]) { w1 -= 1; i1 -= 1; }
    for (const [w, i] of anchors(was.slice(w0, w1), is.slice(i0, i1), w0, i0)) {
      if (w < w0 || i < i0) continue;  // taken along with the one before
      walk(w0, w, i0, i);
      [w0, i0] = [w, i];
      while (w0 < w1 && i0 < i1 && was[w0] === is[i0]) { w0 += 1; i0 += 1; }
      add(true, w, w0, i, i0);
    }
    add(false, w0, w1, i0, i1);
    add(true, w1, end, i1, otherEnd);
  }
  walk(0, was.length, 0, is.length);
  return found;
}
function once(lines) {
  const places = new Map();
  lines.forEach((text, place) => places.set(text, places.has(text) ? -1 : place));
  return places;
}
// Pairs of places, rising on both sides: the longest rising run of the places on the other side.
function anchors(was, is, w0, i0) {
  if (!was.length || !is.length) return [];
  const others = once(is), tops = [], below = [];
  const pairs = [...once(was)].filter(([text, place]) => place >= 0 && (others.get(text) ?? -1) >= 0)
    .map(([text, place]) => [place, others.get(text)]);
  pairs.forEach(([, i], place) => {
    let low = 0, high = tops.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[tops[middle]][1] < i) low = middle + 1;
      else high = middle;
    }
    below[place] = low ? tops[low - 1] : -1;
    tops[low] = place;
  });
  const run = [];
  for (let place = tops.at(-1) ?? -1; place >= 0; place = below[place]) run.push(pairs[place]);
  return run.reverse().map(([w, i]) => [w + w0, i + i0]);
}

// --- two columns ---------------------------------------------------------------------------------------------------

function lineOf(text, number) {
  const made = element("span", spelt(text.slice(0, WIDE)), "line");
  made.dataset.number = number;
  if (text.length > WIDE) {
    const button = element("button", `show all ${fixed(text.length, 0)} characters`, "whole-line");
    button.type = "button";
    button.addEventListener("click", () => { made.textContent = spelt(text); });
    made.append("… ", button);
  }
  return made;
}
function side(name, look, lines, from, to) {
  return made(name, look, ...lines.slice(from, to).map((text, place) => lineOf(text, from + place + 1)));
}
function block(texts, { same, w0, w1, i0, i1 }) {
  return made("div", same ? "block same" : "block changed",
    side(same ? "div" : "del", "was", texts.was, w0, w1), side(same ? "div" : "ins", "is", texts.is, i0, i1));
}
// A long one shows how it begins, and, where nothing changed, how it ends.
function folded(texts, each) {
  const { same, w0, w1, i0, i1 } = each, long = Math.max(w1 - w0, i1 - i0), keep = same ? CONTEXT : SHOWN;
  if (long <= (same ? 2 * CONTEXT : SHOWN) + SLACK) return [block(texts, each)];
  const parts = [block(texts, { same, w0, w1: Math.min(w1, w0 + keep), i0, i1: Math.min(i1, i0 + keep) })];
  const hidden = long - (same ? 2 : 1) * keep;
  const says = same ? `show ${fixed(hidden, 0)} unchanged lines` : `show all ${fixed(long, 0)} lines`;
  const button = element("button", says, "fold");
  button.type = "button";
  parts.push(button);
  if (same) parts.push(block(texts, { same, w0: w1 - keep, w1, i0: i1 - keep, i1 }));
  button.addEventListener("click", () => {
    const whole = block(texts, each);
    whole.tabIndex = -1;
    parts[0].before(whole);
    parts.forEach((part) => part.remove());
    whole.focus({ preventScroll: true });
  });
  return parts;
}
function beside({ before: was, after: is }) {
  const texts = { was: was.split("\n"), is: is.split("\n") };
  const heads = [`original, ${plural(texts.was.length, "line")}`,
    `${observing() ? "as it would be sent" : "as it was sent"}, ${plural(texts.is.length, "line")}`];
  const frame = made("div", "beside", made("div", "block heads", ...heads.map((text) => element("b", text))));
  frame.append(...blocks(texts.was, texts.is).flatMap((each) => folded(texts, each)));
  return frame;
}

// --- the request ---------------------------------------------------------------------------------------------------

let edits = [], shownFor = null, current = null;
const exchangeAt = inside("exchange");

function editOf(each) {
  const summary = made("summary", "", element("b", line(each.label) || "(no name)"),
    element("span", `message ${fixed(each.message, 0)}`), element("span", line(each.strategy)),
    element("span", `${bytes(Math.max(0, each.bytes_saved))} less`));
  if (each.new) summary.append(element("span", "new here", "fresh"));
  const node = made("details", "edit", summary);
  node.addEventListener("toggle", () => {
    if (node.open && !node.querySelector(".beside")) node.append(beside(each));
  });
  return node;
}
function editsView(limit) {
  const which = exchangeAt("input[name=which]:checked")?.value ?? "all";
  const shown = edits.filter((each) => which === "all" || each.new);
  const [frame, rest] = [".edits", ".rest"].map(exchangeAt);
  let room = OPEN_TEXT;
  frame.replaceChildren(...shown.slice(0, limit).map((each, place) => {
    const node = editOf(each);
    room -= each.before.length + each.after.length;
    if (place < OPEN && (room > 0 || !place)) {
      node.append(beside(each));
      node.open = true;
    }
    return node;
  }));
  rest.hidden = shown.length <= limit;
  put(rest, `Show all ${fixed(shown.length, 0)} edits`);
  current = null;
}
const NOTHING = {
  unchanged: "No text in this request was sent before, so it was forwarded unchanged.",
  passed: "This request was forwarded unchanged.",
  "failed open": "This request was sent without new edits, because rewriting failed.",
};
const REFUSED = "The provider rejected the rewritten request. It was sent again without new edits.";
function exchangeView({ exchange: each, kept, edits: found }) {
  const info = seen.get(each.id), at = exchangeAt;
  crumbs(each, info);
  put(at(".title"), info ? `Request ${info.number}` : `Request ${line(each.id)}`);
  const status = each.status ? `status ${each.status}` : coming(each) ? "no response yet" : "no response";
  const facts = [clock(each.at), line(each.path), status, line(each.outcome), line(each.reason),
    each.revision && `cache rewritten: ${line(each.revision)}`,
    each.miss && `cache miss: ${line(each.miss)}${each.missed ? `, ${dollars(each.missed)}` : ""}`];
  put(at(".facts"), facts.filter(Boolean).join(" · "));
  costs(at(".costs"), each);
  put(at(".priced"), billNote(each));
  tiles(at(".tiles"), [
    each.input ? inputTile(each) : ["Input tokens", "–", `${tokens(each.removed)} ${words().removed}`],
    each.input ? cacheTile(each) : ["Read from cache", "–"],
    ["Output tokens", each.output ? tokens(each.output) : "–"],
    ["Request", maybe(bytes)(each.bytes_out), `${bytes(each.bytes_in)} received · ${plural(each.messages, "message")}`],
    ["Our time", maybe(milliseconds)(each.took_ms), "before it was sent"],
    ["First byte", maybe(milliseconds)(each.first_byte_ms), `whole response ${maybe(milliseconds)(each.total_ms)}`],
  ]);
  if (shownFor !== each.id) editsOf(each, kept, found);  // they never change: who reads them is not disturbed
}
function editsOf(each, kept, found) {
  const at = exchangeAt;
  [edits, shownFor] = [found, each.id];
  const fresh = found.filter((edit) => edit.new).length, some = fresh > 0 && fresh < found.length;
  at(".which").hidden = !some;
  [fresh, found.length].forEach((count, place) => put(at(".which").querySelectorAll("span")[place],
    `${place ? "all" : "new here"} (${fixed(count, 0)})`));
  at(`input[value=${some ? "new" : "all"}]`).checked = true;
  const none = !kept ? "The edits are no longer in memory, only the numbers." : found.length ? ""
    : each.resent ? REFUSED : NOTHING[each.outcome] ?? "No edits.";
  put(at(".none"), none);
  for (const button of at(".whole").querySelectorAll(".steps button")) button.hidden = found.length < 2;
  editsView(MANY);
}
function crumbs(each, info) {
  const parent = exchangeAt(".parent"), id = parentOf(each.id);
  parent.hidden = !id;
  if (id) {
    attribute(parent, "href", toConversation(id));
    const known = info?.conversation ?? state.conversations.find((other) => other.id === id);
    put(parent, line(known?.title) || "the conversation");
  }
  for (const way of ["prev", "next"]) {
    const link = exchangeAt(`a[rel=${way}]`);
    link.hidden = !info?.[way];
    if (info?.[way]) attribute(link, "href", toRequest(info[way]));
  }
}
function stepped(place, by, length) {
  if (place < 0) return by > 0 ? 0 : length - 1;
  return Math.max(0, Math.min(length - 1, place + by));
}
function stepEdit(by) {
  if (by > 0 && !exchangeAt(".rest").hidden && current === exchangeAt(".edits").lastElementChild) showRest();
  const nodes = [...exchangeAt(".edits").children];
  const focused = document.activeElement.closest?.(".edit") ?? current;
  const place = nodes.indexOf(focused);
  current = nodes[stepped(place, by, nodes.length)] ?? null;
  current?.firstChild.focus({ preventScroll: true });
  current?.scrollIntoView({ block: "start" });
}
function showRest() {
  const place = exchangeAt(".edits").children.length - 1;
  editsView(Infinity);
  current = exchangeAt(".edits").children[place];
}
for (const button of exchangeAt(".whole").querySelectorAll(".steps button"))
  button.addEventListener("click", () => stepEdit(Number(button.value)));
for (const input of exchangeAt(".which").querySelectorAll("input"))
  input.addEventListener("change", () => editsView(MANY));
exchangeAt(".rest").addEventListener("click", () => {
  showRest();
  current.nextElementSibling.firstChild.focus();
});
