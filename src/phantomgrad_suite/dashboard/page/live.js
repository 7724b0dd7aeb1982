// Asks for live.json every three seconds and shows it. What comes from files is set as text alone.
"use strict";

const EVERY = 3000, PATIENCE = 8000, LATE = 15;
const STATES = ["done", "running", "failed", "stopped", "missing"];
const NONE = {
  "running-runs": "Nothing is running. Runs started on this machine appear here by themselves.",
  "failed-runs": "Nothing has failed or stopped.",
  "done-runs": "No run has been finished in this folder yet.",
};
const shown = new Map();
let latest = null, heardOf = 0, skew = 0, gone = false, asking = false;

const at = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const space = ["svg", "path", "line"].includes(tag) && "http://www.w3.org/2000/svg";
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function span(seconds) {
  for (const [unit, length] of [["days", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

function number(value) {
  if (value === null || value === undefined) return "—";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : value.toPrecision(4);
}

// The name of a row, which may be broken where its words end.
function named(row) {
  return row.split(/(?<=[/_])/).flatMap(word => [word, make("wbr")]).slice(0, -1);
}

function ago(heard) {
  return make("time", { "data-heard": heard, datetime: new Date(heard * 1000).toISOString() });
}

function age() {
  const now = Date.now() / 1000 + skew;
  for (const element of document.querySelectorAll("time[data-heard]")) {
    element.textContent = `${span(now - element.dataset.heard)} ago`;
  }
}

function drawing({ name, values }) {
  const known = values.filter(value => value !== null);
  const low = Math.min(...known), high = Math.max(...known), height = high - low || 1;
  const last = known[known.length - 1];
  const across = values.length > 1 ? 100 / (values.length - 1) : 0;
  let path = "", pen = "M";
  values.forEach((value, place) => {
    if (value === null) { return; }
    const y = high === low ? 15 : 28 - 26 * (value - low) / height;
    path += `${pen}${(place * across).toFixed(2)} ${y.toFixed(2)}`;
    pen = "L";
  });
  const dot = known.length === 1 ? { class: "dot" } : {};
  if (known.length === 1) path += "h0";
  const words = `${name} by epoch: ${number(known[0])} at first, ${number(last)} at last, between ${number(low)} and ${number(high)}`;
  const picture = make("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": words },
    make("line", { x1: 0, y1: 29.5, x2: 100, y2: 29.5 }), make("path", { d: path, ...dot }));
  const range = make("span", {}, known.length > 1 ? `${number(low)} to ${number(high)}` : "");
  return make("figure", {}, make("figcaption", {}, name, range, make("b", {}, number(last))), picture);
}

function numbers(run) {
  const entries = Object.entries(run.latest);
  if (!entries.length) return [];
  const list = make("dl", {}, ...entries.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, number(value)))));
  return [make("details", { class: "numbers", "data-key": `numbers ${run.row} ${run.instance}` },
    make("summary", {}, "All numbers of the last epoch"), list)];
}

function progress(run) {
  const words = `epochs of ${run.row} ${run.instance}`;
  const known = run.epochs ? { max: run.epochs, value: Math.min(run.done_epochs, run.epochs) } : {};
  return make("progress", { "aria-label": words, ...known });
}

function standing(run) {
  const facts = make("p", { class: "facts" });
  const state = make("span", { class: `status ${run.state}` }, run.state);
  const epoch = run.epoch === null ? "no epoch yet" : `epoch ${run.epoch}`;
  const of = run.epochs ? ` of ${run.epochs}` : "";
  if (run.state === "done") {
    const { metric, best, best_epoch, last } = run.result;
    facts.append(state, ` ${metric} best ${number(best)} (epoch ${best_epoch}), last ${number(last)}; `, ago(run.heard));
  } else {
    facts.append(state, ` ${epoch}${run.epoch === null ? "" : of}, heard of `, ago(run.heard));
    if (run.state === "running") facts.append(`, on ${run.where}`);
  }
  return facts;
}

function entry(run) {
  const item = make("li", {},
    make("h3", {}, ...named(run.row), " ", make("span", {}, run.instance)), standing(run));
  if (run.detail) item.append(make("p", { class: "why" }, run.detail));
  if (run.state === "stopped") item.append(make("p", {}, "Killed or broken off: the same command goes on with it."));
  if (run.state === "running") item.append(progress(run));
  if (run.curves.length) item.append(make("div", { class: "drawings" }, ...run.curves.map(drawing)));
  item.append(...numbers(run));
  return item;
}

function counts(states) {
  const total = STATES.reduce((sum, state) => sum + states[state], 0);
  const rest = STATES.slice(1).filter(state => states[state]).map(state => `${states[state]} ${state}`);
  return [`${states.done} of ${total} done`, ...rest].join(", ");
}

function share(states) {
  const bar = make("span", { class: "share", "aria-hidden": "true" });
  for (const state of STATES.slice(0, 4)) {
    const part = make("i", { class: `in-${state}` });
    part.style.flexGrow = states[state];
    bar.append(part);
  }
  const left = make("i");
  left.style.flexGrow = states.missing;
  bar.append(left);
  return bar;
}

function line({ row, states, heard }) {
  const cells = STATES.map(state => make("td", { class: "number" }, states[state] ? String(states[state]) : "·"));
  return make("tr", {}, make("th", { scope: "row", class: "stub long" }, ...named(row)), ...cells,
    make("td", { class: "number" }, heard ? ago(heard) : "—"));
}

function table({ table: name, states, rows }) {
  const heads = ["Row", ...STATES, "heard of"].map((title, place) => make("th",
    { scope: "col", class: place ? "number brief" : "stub long" }, title));
  const sheet = make("table", {}, make("caption", {}, make("span", { class: "unseen" }, name)),
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(line)));
  const box = make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Rows of ${name}` }, sheet);
  const summary = make("summary", {}, make("b", {}, name),
    make("span", { class: "facts" }, counts(states)), share(states));
  const details = make("details", { class: "table", "data-key": `table ${name}` }, summary, box);
  details.open = states.running > 0;
  return details;
}

// A part of the page is made anew only where it has changed; what was opened in it stays open.
function put(id, content, build) {
  const text = JSON.stringify(content);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const place = at(id), open = new Map();
  const focused = place.contains(document.activeElement) && document.activeElement.closest("[data-key]")?.dataset.key;
  for (const details of place.querySelectorAll("details")) open.set(details.dataset.key, details.open);
  place.replaceChildren(...build(content));
  for (const details of place.querySelectorAll("details")) {
    if (open.has(details.dataset.key)) details.open = open.get(details.dataset.key);
    if (details.dataset.key === focused) details.querySelector("summary").focus({ preventScroll: true });
  }
}

function list(id, runs) {
  put(id, runs, found => found.length ? found.map(entry) : [make("li", { class: "none" }, NONE[id])]);
}

function show(state) {
  put("tally", state.states, states => STATES.map(name =>
    make("li", {}, make("b", {}, String(states[name])), name)));
  list("running-runs", state.runs.filter(run => run.state === "running"));
  list("failed-runs", state.runs.filter(run => run.state === "failed" || run.state === "stopped"));
  list("done-runs", state.runs.filter(run => run.state === "done"));
  put("table-list", state.tables, found => found.map(table));
  at("report").hidden = !state.report;
  at("folder").textContent = state.folder;
  document.title = `${state.states.running} running – phantomgrad`;
}

// The time stands apart from the words: a screen reader says these, and only when they change.
function say() {
  const seconds = (Date.now() - heardOf) / 1000;
  let kind = "", words = `Live, looking again every ${EVERY / 1000} s.`;
  if (gone) {
    kind = "gone";
    words = "The server is gone. Start it again: make dashboard.";
  } else if (!latest) {
    words = "Looking at the run folders …";
  } else if (seconds > LATE) {
    kind = "late";
    words = "The server is slow to answer.";
  }
  if (at("words").textContent !== words) at("words").textContent = words;
  const then = latest && new Date(latest.at * 1000).toLocaleTimeString();
  at("then").textContent = then ? `${kind ? "This is how it stood at" : "Seen at"} ${then}.` : "";
  at("news").className = kind;
  document.body.classList.toggle("old", kind !== "");
}

async function ask() {
  try {
    const answer = await fetch("live.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    return await answer.json();
  } catch (error) {
    gone = error.name !== "TimeoutError";
    return null;
  }
}

async function look() {
  setTimeout(look, EVERY);
  if (asking) return;
  asking = true;
  const state = await ask();
  asking = false;
  if (state !== null) {
    latest = state;
    heardOf = Date.now();
    skew = latest.at - heardOf / 1000;
    gone = false;
    show(latest);
  }
  age();
  say();
}

setInterval(() => { age(); say(); }, 1000);
look();
