// Folds long tables, and writes the table of all sessions: rows come as data, and are text, never markup.
"use strict";
const FIRST = 12, PAGE = 100, GROWTH = 5;

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

// Numbers are written as in numbers.py.
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
  path: ([path, name]) => path + (name && ` (${name})`),
  text: String,
  folder: String,
  count: (number) => fixed(number, 0),
  dollars,
  tokens,
  error: (share) => percent(share, true),
  saved: (share) => percent(share, false),
  worst: (share) => percent(share, true),
};

function cell(kind, value) {
  if (kind === "path") return pathCell(value);
  if (value === null) return element("td", "–", "zero");
  const made = element("td", KINDS[kind](value));
  if (typeof value === "string") {
    made.className = "text";
    made.title = value;
    if (kind === "folder") made.replaceChildren(endOf("span", value));
  } else if (value === 0) made.className = "zero";
  else if (value < 0 && kind === "saved") made.className = "neg";
  return made;
}

// A line whose beginning is cut off where there is no room: the end of a path says most.
function endOf(name, text) {
  const made = element(name);
  made.append(element("bdi", text));
  return made;
}

function pathCell(value) {
  const [path, name] = value;
  const cut = Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1;
  const made = element("th", "", "path");
  made.scope = "row";
  made.title = KINDS.path(value);
  made.append(endOf("span", path.slice(cut) + (name && ` (${name})`)), endOf("small", path.slice(0, cut)));
  return made;
}

function sessions(frame, { columns, rows }) {
  const [search, select, count, body, more] = ["input", "select", "output", "tbody", ".more"].map((each) =>
    frame.querySelector(each));
  const heads = [...frame.querySelectorAll("th[scope=col]")];
  const places = (label) => columns.flatMap((column, place) => (column[0] === label ? [place] : []));
  const texts = columns.flatMap(([, kind], place) => (["path", "text", "folder"].includes(kind) ? [place] : []));
  const haystacks = new Map(rows.map((row) => [row, texts.map((place) => KINDS[columns[place][1]](row[place]))
    .join("\n").toLowerCase()]));
  const wanted = {
    "": () => true,
    saved: (row) => places("saved").some((place) => row[place] < 0),
    recorded: (row) => places("recorded").some((place) => row[place] !== null),
    broken: (row) => places("broken").some((place) => row[place] > 0),
    laws: (row) => places("laws").some((place) => row[place] > 0),
  };
  let sorted = places("cost")[0], down = true;

  function key(row) {
    const value = row[sorted];
    return columns[sorted][1] === "path" ? KINDS.path(value) : value;
  }
  function compare(one, other) {
    const [left, right] = [key(one), key(other)];
    if (left === right) return 0;
    if (left === null || left === "") return 1;  // what is not known comes last, whichever way
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
      line.append(...row.map((value, place) => cell(columns[place][1], value)));
      return line;
    }));
  }
  heads.forEach((head, place) => head.firstElementChild.addEventListener("click", () => {
    down = place === sorted ? !down : !texts.includes(place);
    sorted = place;
    show(PAGE);
  }));
  search.addEventListener("input", () => show(PAGE));
  select.addEventListener("change", () => show(PAGE));
  more.addEventListener("click", () => show(body.rows.length * GROWTH));  // thousands take seconds to lay out
  show(PAGE);
  frame.hidden = false;
}

const data = document.getElementById("data");
if (data) sessions(document.getElementById("all"), JSON.parse(data.textContent));
