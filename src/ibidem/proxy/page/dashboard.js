// What the page of the proxy is made of: texts, money, tables. Runs after the report's script and uses its `element`,
// `fixed`, `dollars`, `tokens` and `percent`, so that numbers read the same in both.
// What the API sends is text, never markup. An update changes only what is different: focus, selection and scroll stay.
const LONG = 300, ROWS = 100, NOISE = 1e-9;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
const inside = (id) => (query) => byId(id).querySelector(query);
const [token, pageToken] = ["token", "page-token"].map((name) =>
  document.querySelector(`meta[name=ibidem-${name}]`).content);
const query = [["token", token], ["page_token", pageToken]].filter(([, value]) => value)
  .map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
const address = (path) => `/ibidem/api/${path}` + (query && `?${query}`);

const toConversation = (id) => `#/c/${encodeURIComponent(id)}`;
const toRequest = (id) => `#/e/${encodeURIComponent(id)}`;

// --- texts ---------------------------------------------------------------------------------------------------------

// What cannot be seen, or turns the direction of what can, is spelt out, as in the report.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
function spell(char) {
  const code = char.codePointAt(0), digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  return NAMED[char] ?? `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${code.toString(16).padStart(digits, "0")}`;
}
const spelt = (text) => text.replace(UNSEEN, (char) => (char === "\t" ? char : spell(char)));
function line(text) {
  const found = String(text ?? "");
  return found.slice(0, LONG).replace(UNSEEN, spell) + (found.length > LONG ? "…" : "");
}
const plural = (count, noun) => `${fixed(count, 0)} ${noun}${count === 1 ? "" : "s"}`;
const missCount = (each) => `${fixed(each.misses, 0)} ${each.misses === 1 ? "miss" : "misses"}`;
const counts = (pairs) => pairs.map(([what, count]) => `${line(what)} ${fixed(count, 0)}`).join(" · ");
const known = (number) => typeof number === "number" && Number.isFinite(number);
const maybe = (write) => (number) => (known(number) ? write(number) : "–");
const digits = (number) => String(number).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
// Of another day, the minute is enough.
function clock(moment) {
  const date = new Date(moment * 1000), now = new Date();
  const time = `${digits(date.getHours())}:${digits(date.getMinutes())}`;
  if (date.toDateString() === now.toDateString()) return `${time}:${digits(date.getSeconds())}`;
  const year = date.getFullYear() === now.getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year} ${time}`;
}
function duration(seconds) {
  if (seconds < 1) return `${fixed(seconds * 1000, seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${fixed(seconds, seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}
const milliseconds = (ms) => duration(ms / 1000);
function bytes(count) {
  if (count < 1000) return `${fixed(count, 0)} B`;
  return count < 1e6 ? `${fixed(count / 1e3, 1)} kB` : `${fixed(count / 1e6, 1)} MB`;
}

// --- changing only what is different -------------------------------------------------------------------------------

function put(node, text, look) {
  if (node.textContent !== text) node.textContent = text;
  if (look !== undefined && node.className !== look) node.className = look;
  return node;
}
function attribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
function drawn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
// One child for each item, in their order. What was there stays the same node, and moves only where it must.
function keyed(parent, items, key, make, fill) {
  const names = items.map((item, place) => String(key(item, place)));
  const wanted = new Set(names), old = new Map();
  for (const node of [...parent.children]) {
    if (wanted.has(node.dataset.key)) old.set(node.dataset.key, node);
    else node.remove();
  }
  let next = parent.firstElementChild;
  items.forEach((item, place) => {
    const node = old.get(names[place]) ?? make(item);
    old.delete(names[place]);
    node.dataset.key = names[place];
    fill(node, item);
    if (node === next) next = node.nextElementSibling;
    else parent.insertBefore(node, next);
  });
}
function made(name, look, ...children) {
  const node = element(name, undefined, look);
  node.append(...children);
  return node;
}

// --- what it says of money -----------------------------------------------------------------------------------------

let state = null;
// Why texts and titles are not there, if they are not.
const WITHHELD = {
  token: `are shown only with the page token: open /ibidem?${token && "token=…&"}page_token=… instead`,
  none: "are not shown: this proxy was started without a page token, or with --no-texts",
};
const withheld = () => WITHHELD[state?.texts] ?? "";
const titled = (each) => line(each.title) || (withheld() ? `Conversation ${line(each.id)}` : "(no title)");
const caching = () => ((state.cache ?? "off") === "off" ? "" : `cache ${line(state.cache)}`);
const observing = () => Boolean(state?.observe);
// `paid` is what was paid. `would_have_paid` is the other way: without ibidem; when observing, with it.
const WORDS = {
  false: { paid: "Paid", other: "Would have paid", less: "Saved", more: "Cost more by", removed: "removed" },
  true: { paid: "Paid", other: "Would pay", less: "Would save", more: "Would cost more by", removed: "would be removed" },
};
// With the login of a subscription nobody pays by use: what is shown is the value at list prices.
const PLAN_WORDS = {
  false: { paid: "Worth at list prices", other: "Would have been worth", more: "Worth more by" },
  true: { paid: "Worth at list prices", other: "Would be worth", more: "Would be worth more by" },
};
const onPlan = (entry) => entry?.plan === true || (entry?.plan?.requests > 0 && entry.plan.input >= entry.input);
const isMixed = (entry) => entry?.plan?.requests > 0 && !onPlan(entry);
const words = (entry = state?.totals) => ({ ...WORDS[observing()], ...(onPlan(entry) ? PLAN_WORDS[observing()] : {}) });
// The part of the totals that is paid by use. A note has the other part.
function byUse(totals) {
  if (!isMixed(totals)) return totals;
  const names = ["paid", "would_have_paid", "input", "removed"];
  return { ...totals, ...Object.fromEntries(names.map((name) => [name, totals[name] - totals.plan[name]])) };
}
function planNote(totals) {
  if (!isMixed(totals)) return "";
  const { plan } = totals;
  const share = observing() || !plan.removed ? "" : `, ${percent(plan.removed / before(plan))} of input tokens saved`;
  const other = PLAN_WORDS[observing()].other.toLowerCase();
  return `On a subscription: input worth ${dollars(plan.paid)} at list prices, ${other} ${
    dollars(plan.would_have_paid)}${share}.`;
}
// Why there is no sum of money: nothing was billed yet, or what was is not known. Otherwise nothing.
function unbilled(entry) {
  const { paid, would_have_paid: other, input, requests, unpriced } = entry, sum = requests !== undefined;
  const billed = known(paid) && known(other) && (input > 0 || paid > 0);
  if (billed && !(unpriced && unpriced >= requests)) return "";
  return (sum ? !unpriced && known(paid) : coming(entry)) ? "–" : "unknown";
}
const coming = (request) => !request.status && !known(request.total_ms);  // its answer
const NONE = { known: false, saved: null, share: null };
function bill(entry) {
  if (unbilled(entry)) return NONE;
  const { paid, would_have_paid: other } = entry;
  const [before, after] = observing() ? [paid, other] : [other, paid];
  const share = before ? (before - after) / before : 0;
  const same = Math.abs(share) < NOISE && Math.abs(before - after) < NOISE;
  return { known: true, paid, other, saved: same ? 0 : before - after, share: same ? 0 : share, before, after };
}
// Input as it was sent, and as the provider would have got it otherwise.
const before = (each) => each.input + (observing() ? 0 : each.removed);

function costs(frame, entry) {
  const found = bill(entry), word = words(entry), more = found.saved < 0;
  const ours = `with ${[line(state.profile), caching()].filter(Boolean).join(", ")}`;
  const rows = observing()
    ? [["paid", word.paid, found.paid, "nothing", "unchanged"], ["other", word.other, found.other, "p0", ours]]
    : [["other", word.other, found.other, "nothing", "without ibidem"], ["paid", word.paid, found.paid, "p0", ours]];
  const note = found.saved ? `${percent(Math.abs(found.share))} ${more ? "more" : "less"}` : "the same";
  rows.push(["saved", more ? word.more : word.less, found.known ? Math.abs(found.saved) : undefined,
    more ? "neg" : "p0", note]);
  const high = Math.max(found.paid, found.other) || 1;
  keyed(frame, rows, (row) => row[0], costRow, (node, [name, what, amount, look, note]) => {
    const [label, number, bar, soft] = node.children;
    attribute(node, "class", `cost ${name} ${look}`);
    put(label, what);
    put(number, amount === undefined ? unbilled(entry) : dollars(amount));
    attribute(bar, "class", `bar ${look}`);
    const from = name === "saved" && found.known ? Math.min(found.before, found.after) : 0;  // beside what was paid
    attribute(bar.firstChild, "x", `${((from / high) * 100).toFixed(2)}%`);
    attribute(bar.firstChild, "width", `${(((amount ?? 0) / high) * 100).toFixed(2)}%`);
    put(soft, amount === undefined ? "" : note, name === "saved" && found.saved ? (more ? "neg" : "good") : "soft");
  });
}
function costRow() {
  const bar = drawn("svg", { "aria-hidden": "true" }, drawn("rect", { class: "v", height: "100%" }));
  return made("div", "cost", element("span", "", "what"), element("b"), bar, element("span"));
}
const billNote = (entry) => [priceNote(entry), savedBy(entry)].filter(Boolean).join(" ");
function priceNote(entry) {
  const { requests, unpriced } = entry, why = unbilled(entry);
  if (why === "unknown") return "Cost unknown: no usage was reported, or the model has no known price.";
  if (why) return "No cost yet: no response has reported its usage.";
  if (!unpriced) return "";
  return `The cost of ${fixed(unpriced, 0)} of ${plural(requests, "request")} is unknown and not in the totals.`;
}
function tiles(frame, found) {
  const make = () => made("div", "", element("dt"), element("dd"), element("dd", "", "note"));
  keyed(frame, found, (tile) => tile[0], make, (node, [what, number, note, look]) => {
    attribute(node, "class", look ?? "");
    [what, number, note ?? ""].forEach((text, place) => put(node.children[place], text));
  });
}
const ofInput = (part, each) => (each.input ? percent(part / each.input) : "–");
function inputTile(each) {
  const share = before(each) ? ` (${percent(each.removed / before(each))})` : "";
  return ["Input tokens", tokens(each.input), `${tokens(each.removed)} ${words().removed}${share}`];
}
function cacheTile(each) {
  const plain = Math.max(0, each.input - each.read - each.written), long = each.written_1h ?? 0;
  const parts = [["written for 5 min", each.written - long], ["for 1 h", long], ["not cached", plain]];
  return ["Read from cache", ofInput(each.read, each),
    parts.filter(([, count]) => count).map(([what, count]) => `${ofInput(count, each)} ${what}`).join(" · ")];
}
// Misses by their cause, with what each cost above reading what had been sent before.
function hitsTile(each) {
  const causes = Object.entries(each.missed ?? {}).sort((one, other) => other[1] - one[1]);
  const notes = causes.map(([cause, cost]) => `${line(cause)} ${dollars(cost)}`);
  return ["Cache hits", fixed(each.hits, 0), [missCount(each), ...notes].join(" · ")];
}
// Conversations without prompt caching, and what cache breakpoints would save.
function unmarked(entry) {
  const count = Number(entry.unmarked ?? 0), less = entry.marks_would_save;
  if (!count || !(less > 0) || state.cache === "auto") return "";
  const who = entry.id ? "This client uses" : `${plural(count, "conversation")} ${count === 1 ? "uses" : "use"}`;
  return `${who} no prompt caching: --cache auto would save about ${dollars(less)}.`;
}
// Of what was saved, what marks and lifetimes did and what texts did.
function savedBy(entry) {
  const found = bill(entry), marks = entry.by_marks ?? 0;
  if (!found.known || observing() || Math.abs(marks) < NOISE) return "";
  const texts = Math.abs(found.saved - marks) < NOISE ? 0 : found.saved - marks;
  const part = (amount, what) => `${what} ${amount < 0 ? "cost" : "saved"} ${dollars(Math.abs(amount))}`;
  return `${part(marks, "Cache breakpoints and TTLs")}, ${part(texts, "texts")}.`;
}

// --- tables that sort ----------------------------------------------------------------------------------------------

// A column: its label, the value it sorts by, how that is written, and the look of its cell.
const plainly = (label, value, write, look) => ({ label, value, write, look });
const number = (name, label, write = tokens) => plainly(label, (each) => each[name], maybe(write));
const money = [
  plainly(() => (isMixed(state.totals) ? "paid or worth" : words().paid.toLowerCase()), (each) => bill(each).paid,
    maybe(dollars)),
  plainly(() => words().other.toLowerCase(), (each) => bill(each).other, maybe(dollars)),
  plainly(() => words().less.toLowerCase(), (each) => bill(each).saved, maybe(dollars), signLook),
  plainly("share", (each) => bill(each).share, maybe(percent), signLook),
];
const plainLook = (amount) => (amount ? "" : "zero");
function signLook(amount) {
  return !known(amount) || amount === 0 ? "zero" : amount < 0 ? "neg" : "good";
}

function grid(frame, { columns, key, link, name, label }) {
  const table = made("table", "", made("thead", "", element("tr")), element("tbody"));
  const more = element("button", "", "more");
  more.type = "button";
  more.hidden = true;
  frame.append(table, more);
  const body = table.tBodies[0], head = table.tHead.rows[0];
  let [sorted, down, limit, items, order] = [1, true, ROWS, [], new Map()];

  const cells = [{ label, value: name, text: true }, ...columns];
  head.append(...cells.map((column, place) => {
    const button = element("button");
    button.type = "button";
    button.addEventListener("click", () => {
      [down, sorted] = [place === sorted ? !down : !column.text, place];
      draw(false);
    });
    const cell = made("th", "", button);
    cell.scope = "col";
    return cell;
  }));
  function compare(one, other) {
    const [left, right] = [one, other].map((each) => cells[sorted].value(each) ?? null);
    if (left === right) return 0;
    if (left === null) return 1;  // what is not known comes last, whichever way
    if (right === null) return -1;
    const found = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right;
    return down ? -found : found;
  }
  // Rows do not move away from under a pointer, or from a reader who is in them; new ones come first.
  const held = () => body.matches(":hover") || body.contains(document.activeElement);
  function draw(keep) {
    const shown = keep && order.size
      ? [...items].sort((one, other) => (order.get(key(one)) ?? -1) - (order.get(key(other)) ?? -1))
      : [...items].sort(compare);
    order = new Map(shown.map((each, place) => [key(each), place]));
    cells.forEach((column, place) => {
      const cell = head.cells[place];
      cell.hidden = Boolean(column.hidden?.());
      put(cell.firstChild, typeof column.label === "function" ? column.label() : column.label);
      if (place === sorted) attribute(cell, "aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    keyed(body, shown.slice(0, limit), key, row, fill);
    more.hidden = shown.length <= limit;
    put(more, `Show ${fixed(Math.min(shown.length, limit * 5), 0)} of ${fixed(shown.length, 0)}`);
  }
  function row() {
    const first = made("th", "name", made("a", "", element("bdi")), element("small"));
    first.scope = "row";
    return made("tr", "", first, ...columns.map(() => element("td")));
  }
  function fill(node, each) {
    link(node.cells[0], each);
    columns.forEach((column, place) => {
      const cell = node.cells[place + 1], value = column.value(each);
      cell.hidden = Boolean(column.hidden?.());
      if (column.draw) column.draw(cell, each);
      else put(cell, column.write(value), (column.look ?? plainLook)(value));
      attribute(cell, "data-label", head.cells[place + 1].textContent);
    });
  }
  more.addEventListener("click", () => { limit *= 5; draw(true); });
  body.addEventListener("click", (event) => {  // anywhere in a row, but for who selects text
    const found = event.target.closest("tr")?.querySelector("a");
    if (found && !event.target.closest("a, button") && getSelection().isCollapsed) found.click();
  });
  return {
    show(found) { items = found; draw(held()); },
    reset() { [limit, order] = [ROWS, new Map()]; body.replaceChildren(); },
  };
}

function named(cell, href, text, note, look) {
  const [link, small] = cell.children;
  attribute(link, "href", href);
  put(link.firstChild, text);
  attribute(cell, "title", text);
  put(small, note);
  attribute(cell, "class", `name ${look}`);
}
