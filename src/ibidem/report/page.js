// Collapses long tables, and makes the table of all sessions. Its rows are data: their texts are never parsed as markup.
"use strict";
const FIRST = 12, PAGE = 25, GROWTH = 5;

function element(name, text, look) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (look) made.className = look;
  return made;
}

for (const frame of document.querySelectorAll(".folding")) {
  const rest = [...frame.querySelectorAll("tbody tr")].slice(FIRST);
  if (rest.length < 3) continue;
  const button = element("button", `Show all ${(rest.length + FIRST).toLocaleString("en")}`, "more");
  button.type = "button";
  rest.forEach((row) => { row.hidden = true; });
  button.addEventListener("click", () => {
    rest.forEach((row) => { row.hidden = false; });
    button.remove();
    frame.focus();
  });
  frame.after(button);
}

// The formats of number_format.py.
const FORMATS = [0, 1, 2, 3, 4].map((digits) =>
  new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const fixed = (number, digits) => FORMATS[digits].format(number);
const sign = (number) => (number < 0 ? "−" : "");
function dollars(amount) {
  const size = Math.abs(amount);
  if (size > 0 && size < 0.00005) return sign(amount) + "under $0.0001";
  return sign(amount) + "$" + fixed(size, size > 0 && size < 0.1 ? 4 : 2);
}
function tokens(count) {
  const size = Math.abs(count);
  if (size < 1e4) return sign(count) + fixed(size, 0);
  return sign(count) + (size < 1e6 ? fixed(size / 1e3, 1) + "k" : fixed(size / 1e6, 2) + "M");
}
function percent(share, signed) {
  const size = Math.abs(share);
  if (size < 1e-9) return "0.0%";
  if (size < 0.0005 && share > 0 && !signed) return "<0.1%";
  return (signed && share > 0 ? "+" : sign(share)) + fixed(size * 100, 1) + "%";
}
const KINDS = {
  text: String,
  when: String,
  log: String,
  count: (number) => fixed(number, 0),
  dollars,
  tokens,
  error: (share) => percent(share, true),
  share: (share) => percent(share, false),
};
const TEXTS = ["session", "text", "when", "log"];

function cell([, kind, extra, label], value, first) {
  if (kind === "session") return sessionCell(value);
  const made = element("td");
  made.setAttribute("role", "cell");
  made.dataset.label = label;  // shown on narrow screens, where a row is a card
  if (extra) made.dataset.extra = "1";
  made.className = first ? `${kind} money` : kind;
  if (value === null || value === "") {
    made.textContent = "–";
    made.classList.add("zero");
  } else if (kind === "saving") {
    made.append(element("span", dollars(value[0])), element("small", percent(value[1], false)));
    if (value[1] < 0) made.classList.add("neg");
  } else {
    made.textContent = KINDS[kind](value);
    if (TEXTS.includes(kind)) made.title = value;
    else if (value === 0) made.classList.add("zero");
    else if (value < 0 && kind === "share") made.classList.add("neg");
  }
  return made;
}

// A title is text, never markup. Python has checked that links lead only to files next to this page.
function sessionCell([title, below, id, project, path, name, href, folder]) {
  const made = element("th", "", "session");
  made.scope = "row";
  made.setAttribute("role", "rowheader");
  const shown = element(href ? "a" : "cite", title);
  if (href) shown.href = href;
  made.title = [title, id, project, folder + path + (name && ` (${name})`)].filter(Boolean).join("\n");
  made.append(shown, element("small", below));
  return made;
}

function sessions(frame, { columns, rows, folder, sorted }) {
  const [search, wide, select, count, body, more] =
    ["input[type=search]", "input[type=checkbox]", "select", "output", "tbody", ".more"].map((each) =>
      frame.querySelector(each));
  const heads = [...frame.querySelectorAll("th[scope=col]")];
  const of = (label, test) => (row) => columns.some((column, place) =>
    column[0] === label && row[place] !== null && test(row[place]));
  const log = columns.findIndex(([, kind]) => kind === "log");
  for (const row of rows) {
    const [, , , , path, name] = row[0];
    row[0].push(folder);
    row[log] = folder + path + (name && ` (${name})`);
  }
  const haystacks = new Map(rows.map((row) => [row, columns.flatMap(([, kind], place) =>
    (kind === "session" ? row[place].slice(0, 6) : TEXTS.includes(kind) ? row[place] : [])).join("\n").toLowerCase()]));
  const savings = columns.flatMap(([, kind], place) => (kind === "saving" ? [place] : []));
  const wanted = {
    "": () => true,
    more: (row) => savings.some((place) => row[place] !== null && row[place][1] < 0),
    recorded: (row) => of("recorded", () => true)(row) || of("paid", () => true)(row),
    broken: of("broken", (number) => number > 0),
    laws: of("laws", (number) => number > 0),
  };
  const money = sorted;  // the column by which the table is sorted first
  let down = true;

  const key = (row) => (Array.isArray(row[sorted]) ? row[sorted][0] : row[sorted]);
  function compare(one, other) {
    const [left, right] = [key(one), key(other)];
    if (left === right) return 0;
    if (left === null || left === "") return 1;  // unknown values are last in both directions
    if (right === null || right === "") return -1;
    const order = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right;
    return down ? -order : order;
  }
  function show(limit) {
    const words = search.value.toLowerCase().split(/\s+/);
    const shown = rows.filter((row) => wanted[select.value](row) && words.every((word) =>
      haystacks.get(row).includes(word))).sort(compare);
    heads.forEach((head, place) => {
      if (place === sorted) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    count.textContent = `${fixed(shown.length, 0)} of ${fixed(rows.length, 0)}`;
    more.hidden = shown.length <= limit;
    more.textContent = `Show ${fixed(Math.min(shown.length, limit * GROWTH), 0)} of ${fixed(shown.length, 0)}`;
    body.replaceChildren(...shown.slice(0, limit).map((row) => {
      const line = element("tr");
      line.setAttribute("role", "row");
      line.append(...row.flatMap((value, place) =>
        (wide.checked || !columns[place][2] ? [cell(columns[place], value, place === money)] : [])));
      return line;
    }));
  }
  heads.forEach((head, place) => head.firstElementChild.addEventListener("click", () => {
    down = place === sorted ? !down : columns[place][1] === "when" || !TEXTS.includes(columns[place][1]);
    sorted = place;
    show(PAGE);
  }));
  wide.addEventListener("change", () => {
    frame.classList.toggle("wide", wide.checked);
    frame.querySelectorAll("[data-extra]").forEach((head) => { head.hidden = !wide.checked; });
    show(body.rows.length);
  });
  search.addEventListener("input", () => show(PAGE));
  select.addEventListener("change", () => show(PAGE));
  more.addEventListener("click", () => show(body.rows.length * GROWTH));  // thousands take seconds to lay out
  wide.checked = false;  // browsers restore the checkbox after a reload
  show(PAGE);
  frame.hidden = false;
}

const data = document.getElementById("data");
if (data) sessions(document.getElementById("all"), JSON.parse(data.textContent));
