// Where in the page we are, keys, and how figures arrive: a stream; where it breaks, asking, and trying again.
const RETRY = 500, PATIENCE = 15000, POLL = 5000, SAY = 15000, DAYS = 60000;  // ms
const TRIES = 50;  // of four processes, one is missed by all of these once in a million times

// --- where we are --------------------------------------------------------------------------------------------------

const VIEWS = {
  "": { depth: 0, id: "overview", show: overview },
  c: { depth: 1, id: "conversation", path: "conversation", what: "conversation", show: conversationView,
    mark: conversationMark },
  e: { depth: 2, id: "exchange", path: "exchange", show: exchangeView, what: "request", mark: exchangeMark },
};
const tops = new Map();  // how far each place was scrolled
let here = null, unfinished = false, loaded = "", busy = false;

function parse(hash) {
  const [, kind, id] = /^#\/([ce])\/(.+)$/.exec(hash) ?? [];
  try {
    return kind ? { hash, kind, id: decodeURIComponent(id) } : { hash: "#/", kind: "", id: "" };
  } catch {
    return { hash: "#/", kind: "", id: "" };  // not an address of ours
  }
}
const section = () => byId(VIEWS[here.kind].id);
function parentOf(id) {
  const from = parse(history.state?.from ?? "");
  return seen.get(id)?.conversation.id ?? (from.kind === "c" && here.id === id ? from.id : undefined);
}
const parentHash = () => (here.kind === "e" && parentOf(here.id) ? toConversation(parentOf(here.id)) : "#/");

function arrive() {
  const left = here, back = history.state?.from !== undefined;
  here = parse(location.hash);
  if (!back) history.replaceState({ from: left?.hash ?? "" }, "");
  if (left) tops.set(left.hash, scrollY);
  for (const { id } of Object.values(VIEWS)) byId(id).hidden = id !== VIEWS[here.kind].id;
  if (state) refresh();
  if (!left) return;
  const up = back || VIEWS[here.kind].depth < VIEWS[left.kind].depth;
  const link = up && [...section().querySelectorAll("a")].find((each) => each.getAttribute("href") === left.hash);
  (link || section().querySelector("h2")).focus({ preventScroll: true });
  scrollTo(0, up ? tops.get(here.hash) ?? 0 : 0);
}
function goUp() {
  if (!here.kind) return;
  if (history.state?.from === parentHash()) history.back();
  else location.hash = parentHash();
}

// --- what a place needs --------------------------------------------------------------------------------------------

// Several processes may share the port (--reuse-port). Each has its own conversations, and any of them may get the request.
async function call(path, options) {
  for (let tries = state?.process ? TRIES : 1; ; tries -= 1) {
    const answer = await fetch(address(path), { cache: "no-store", ...options });
    if (answer.status !== 404 || tries <= 1) return answer;
  }
}
async function ask(path) {
  const answer = await call(path, { headers: { accept: "application/json" } });
  if (!answer.ok) throw Object.assign(new Error(`status ${answer.status}`), { status: answer.status });
  return answer.json();
}
// Changes when the place has to be asked for again.
function conversationMark(id) {
  return JSON.stringify([state.conversations.find((each) => each.id === id) ?? state.totals.requests, isOff(id)]);
}
function exchangeMark() {
  return unfinished ? JSON.stringify(state.totals) : "";
}
function loading(now) {
  busy = now;
  attribute(document.querySelector("main"), "aria-busy", String(now));
}
async function refresh() {
  const view = VIEWS[here.kind], { hash, id } = here;
  document.title = `${pageTitle()} – ibidem proxy`;
  if (!view.path) {
    overview();
    return void refreshDays();
  }
  if (hash !== loaded.hash) unfinished = false;
  const mark = view.mark(id);
  if (busy || (loaded.hash === hash && loaded.mark === mark)) return;
  loading(true);
  try {
    const found = await ask(`${view.path}/${encodeURIComponent(id)}`);
    if (here.kind === "e") await neighbours(found.exchange);
    if (here.hash === hash) {
      if (here.kind === "e") unfinished = coming(found.exchange);
      if (here.kind === "c" && loaded.conversation !== id) requestsTable.reset();
      loaded = { hash, mark: view.mark(id), conversation: here.kind === "c" ? id : loaded.conversation };
      tell("");
      view.show(found);
    }
  } catch (error) {
    if (here.hash === hash && (loaded.hash !== hash || error.status)) tell(trouble(error, view.what));
  } finally {
    loading(false);
  }
  if (here.hash !== hash) refresh();
}
let daysAsked = null;
// What is kept on disk is asked for now and then, and only where it shows.
function refreshDays() {
  const now = Date.now();
  if (!state.ledger?.kept || document.hidden || (daysAsked !== null && now - daysAsked < DAYS)) return;
  daysAsked = now;
  ask("days").then(days, () => { daysAsked = null; });
}
async function neighbours(exchange) {
  const id = exchange.conversation || parentOf(exchange.id), info = seen.get(exchange.id);
  if (!id || (info && info.next)) return;
  try {
    remember(await ask(`conversation/${encodeURIComponent(id)}`));
  } catch {
    // its conversation is gone: the request is shown without what stood around it
  }
}
function trouble(error, what) {
  if (error.status === 404) return `This ${what} is no longer in memory.`;
  if (withheld() && (error.status === 401 || error.status === 403)) return `Texts of clients ${withheld()}.`;
  if (error.status) return `The proxy could not return this ${what}: ${error.message}.`;
  return `This ${what} could not be loaded yet: the connection is lost.`;
}
function tell(text) {
  const place = section();
  put(place.querySelector(".missing"), text);
  place.querySelector(".missing").hidden = !text;
  place.querySelector(".whole").hidden = Boolean(text);
  if (!text) return;
  put(place.querySelector(".title"), `${place.id === "exchange" ? "Request" : "Conversation"} ${line(here.id)}`);
  put(place.querySelector(".facts"), "");
}

// --- what is always there ------------------------------------------------------------------------------------------

let spoken = 0;
function pageTitle() {
  const found = bill(state.totals);
  if (!found.known) return plural(state.totals.requests, "request");
  return `${dollars(Math.abs(found.saved))} ${found.saved < 0 ? "more" : observing() ? "to save" : "saved"}`;
}
function header() {
  const up = Math.max(0, state.now - state.started);
  put(byId("facts"), [`profile ${line(state.profile)}`, caching(), observing() ? "observing" : state.all_off ? "off" : "rewriting",
    `since ${clock(state.started)} (${duration(up)})`, state.process && `process ${state.process}`].filter(Boolean).join(" · "));
  byId("observing").hidden = !observing();
  put(byId("hidden-texts"), withheld() && `Texts of clients ${withheld()}.`);
  byId("hidden-texts").hidden = !withheld();
  banner(byId("shared-port"), state.process ? `This page shows only process ${state.process}. Others may share its port: `
    + "ibidem gain has the totals of all." : "");
  byId("all-off").hidden = !state.all_off;
  put(byId("profile"), line(state.profile));
  put(document.querySelector("footer"), `ibidem ${line(state.version)} · dollars for input, at list prices · `
    + "this page connects only to this proxy");
  if (Date.now() - spoken < SAY) return;  // a reader that speaks is told now and then
  spoken = Date.now();
  const found = bill(state.totals);
  const saved = found.known && `${found.saved < 0 ? words().more : words().less} ${dollars(Math.abs(found.saved))}.`;
  put(byId("said"), [`${plural(state.totals.requests, "request")}.`, found.known ? `${words().paid} ${dollars(found.paid)}.`
    : billNote(state.totals), saved || ""].join(" ").trim());
}
function take(found) {
  if (state && found.started === state.started && found.now < state.now) return;  // overtaken on its way
  if (state && found.started !== state.started) [loaded, shownFor] = ["", null];  // another proxy: nothing is as it was
  state = found;
  header();
  refresh();
}

// --- how figures arrive --------------------------------------------------------------------------------------------

let source = null, timer = 0, wait = RETRY, polled = false;
const LINKS = {
  wait: () => "connecting",
  live: () => "live",
  poll: () => `no live stream: updated every ${POLL / 1000} s`,
  lost: () => "connection lost, reconnecting" + (state ? `: numbers of ${clock(state.now)}` : ""),
};
function link(look) {
  put(byId("link"), LINKS[look](), look);
}
function connect() {
  source?.close();
  const mine = source = new EventSource(address("live"));
  let opened = false;
  mine.addEventListener("open", () => {
    opened = true;
    wait = RETRY;
    link("live");
    ask("state").then(take, () => {});  // what happened between the last answer and now
  });
  mine.addEventListener("state", (event) => take(JSON.parse(event.data)));
  mine.addEventListener("error", () => {
    mine.close();
    if (source !== mine) return;
    source = null;
    const only = !opened && polled;
    link(only ? "poll" : "lost");
    timer = setTimeout(again, only ? POLL : wait);
  });
}
async function again() {
  try {
    take(await ask("state"));
    polled = true;
  } catch {
    polled = false;
    link("lost");
    wait = Math.min(wait * 2, PATIENCE);
    timer = setTimeout(again, wait);
    return;
  }
  if (!document.hidden) connect();
}
// A page that nobody sees asks for nothing: browsers allow few connections to one place.
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  source?.close();
  source = null;
  if (!document.hidden) again();
});

// --- keys ----------------------------------------------------------------------------------------------------------

function step(by) {
  if (here.kind === "e") return stepEdit(by);
  const links = [...section().querySelectorAll("tbody .name a")], place = links.indexOf(document.activeElement);
  return links[stepped(place, by, links.length)]?.focus();
}
function neighbour(way) {
  const found = here.kind === "e" && seen.get(here.id)?.[way];
  if (found) location.hash = toRequest(found);
}
const help = byId("help");
const KEYS = {
  n: () => step(1), j: () => step(1), p: () => step(-1), k: () => step(-1), Escape: goUp,
  "[": () => neighbour("prev"), "]": () => neighbour("next"), "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});
byId("keys").addEventListener("click", () => help.showModal());
help.querySelector("button").addEventListener("click", () => help.close());

// --- start ---------------------------------------------------------------------------------------------------------

history.scrollRestoration = "manual";
put(byId("bases"), [["ANTHROPIC_BASE_URL", ""], ["OPENAI_BASE_URL", "/v1"], ["GOOGLE_GEMINI_BASE_URL", ""]]
  .map(([name, path]) => `export ${name}=${location.origin}${path}`).join("\n"));
byId("token").hidden = !token;
addEventListener("hashchange", arrive);
arrive();
again();
