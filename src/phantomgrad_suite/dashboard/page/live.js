// Polls live.json and shows it. What comes from files is inserted as text only, never as HTML.
"use strict";

const INTERVAL = 3000, TIMEOUT = 8000, LATE = 15000; // ms
const STATES = ["done", "running", "failed", "stopped", "missing"];
const EMPTY = {
  running: "Nothing is running. Runs started on this machine appear here by themselves.",
  failed: "Nothing has failed or stopped.",
  done: "No run has finished in this folder yet.",
};
const shown = new Map();
let latest = null, received = 0, gone = false;

const byId = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The name of a row, which may wrap after "/" and "_".
function rowName(row) {
  return row.split(/(?<=[/_])/).flatMap(part => [part, make("wbr")]).slice(0, -1);
}

function drawing(run, { name, range, values }) {
  const known = values.filter(value => value !== null);
  const low = Math.min(...known), height = Math.max(...known) - low;
  const points = values.flatMap((value, i) => value === null ? [] :
    [`${100 * i / Math.max(values.length - 1, 1)} ${height ? 28 - 26 * (value - low) / height : 15}`]);
  const path = make("path", { d: `M${points.join("L")}${points.length === 1 ? "h0" : ""}` });
  const caption = make("figcaption", {}, name, make("span", {}, range), make("b", {}, run.latest[name]));
  const label = `${name} by epoch: ${run.latest[name]} now, ${range} so far`;
  return make("figure", {}, caption,
    make("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label }, path));
}

function metrics(run) {
  const list = make("dl", {}, ...Object.entries(run.latest).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  return make("details", { class: "numbers", "data-key": `${run.row} ${run.instance}` },
    make("summary", {}, "All metrics of the last epoch"), list);
}

function runItem(run) {
  const state = make("span", { class: `status ${run.state}` }, run.state);
  const item = make("li", {}, make("h3", {}, ...rowName(run.row), " ", make("span", {}, run.instance)),
    make("p", { class: "facts" }, state, " ", run.text));
  if (run.error) item.append(make("p", { class: "error" }, run.error));
  if (run.state === "stopped") item.append(make("p", {}, "Killed or interrupted: the same command resumes it."));
  if (run.state === "running") {
    const progress = run.epochs ? { max: run.epochs, value: Math.min(run.epoch, run.epochs) } : {};
    item.append(make("progress", { "aria-label": `epochs of ${run.row} ${run.instance}`, ...progress }));
  }
  if (run.curves.length) item.append(make("div", { class: "drawings" }, ...run.curves.map(curve => drawing(run, curve))));
  if (Object.keys(run.latest).length) item.append(metrics(run));
  return item;
}

function counts(states) {
  const total = STATES.reduce((sum, state) => sum + states[state], 0);
  const rest = STATES.slice(1).filter(state => states[state]).map(state => `${states[state]} ${state}`);
  return [`${states.done} of ${total} done`, ...rest].join(", ");
}

function bar(states) {
  const parts = STATES.map(state => make("i", { class: `in-${state}`, style: `flex-grow: ${states[state]}` }));
  return make("span", { class: "share", "aria-hidden": "true" }, ...parts);
}

function tableRow({ name, states, updated }) {
  const cells = [...STATES.map(state => states[state] || "·"), updated];
  return make("tr", {}, make("th", { scope: "row", class: "stub long" }, ...rowName(name)),
    ...cells.map(cell => make("td", { class: "number" }, String(cell))));
}

function tableItem({ name, states, rows }) {
  const heads = ["Row", ...STATES, "last update"].map((title, i) =>
    make("th", { scope: "col", class: i ? "number brief" : "stub long" }, title));
  const table = make("table", {}, make("caption", {}, make("span", { class: "unseen" }, name)),
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(tableRow)));
  const details = make("details", { class: "table", "data-key": name },
    make("summary", {}, make("b", {}, name), make("span", { class: "facts" }, counts(states)), bar(states)),
    make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Rows of ${name}` }, table));
  details.open = states.running > 0;
  return details;
}

// Rebuilds a part of the page if its content has changed; opened details and focus are kept.
function update(id, content, build) {
  const text = JSON.stringify(content);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const place = byId(id), open = new Map();
  const focused = place.contains(document.activeElement) && document.activeElement.closest("[data-key]")?.dataset.key;
  for (const details of place.querySelectorAll("details")) open.set(details.dataset.key, details.open);
  place.replaceChildren(...build(content));
  for (const details of place.querySelectorAll("details")) {
    details.open = open.get(details.dataset.key) ?? details.open;
    if (details.dataset.key === focused) details.querySelector("summary").focus({ preventScroll: true });
  }
}

function show(state) {
  update("tally", state.states, states => STATES.map(name => make("li", {}, make("b", {}, String(states[name])), name)));
  for (const [section, states] of [["running", ["running"]], ["failed", ["failed", "stopped"]], ["done", ["done"]]]) {
    update(`${section}-runs`, state.runs.filter(run => states.includes(run.state)),
      runs => runs.length ? runs.map(runItem) : [make("li", { class: "none" }, EMPTY[section])]);
  }
  update("table-list", state.tables, tables => tables.map(tableItem));
  byId("report").hidden = !state.report;
  byId("folder").textContent = state.folder;
  document.title = `${state.states.running} running – phantomgrad`;
}

// The connection, in a live region: a screen reader reads it only when the words change.
function showConnection() {
  const late = latest && Date.now() - received > LATE;
  let words = latest ? `Live, updated every ${INTERVAL / 1000} s.` : "Reading the run folders …";
  if (late) words = "The server is slow to answer.";
  if (gone) words = "The server has stopped. Start it again: make dashboard.";
  if (byId("words").textContent !== words) byId("words").textContent = words;
  const time = latest && new Date(latest.at * 1000).toLocaleTimeString();
  byId("time").textContent = time ? `${gone || late ? "Last state, of" : "As of"} ${time}.` : "";
  byId("connection").className = gone ? "gone" : late ? "late" : "";
  document.body.classList.toggle("old", Boolean(gone || late));
}

async function poll() {
  try {
    const answer = await fetch("live.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    latest = await answer.json();
    received = Date.now();
    gone = false;
    show(latest);
  } catch (error) {
    gone = error.name !== "TimeoutError";
  }
  showConnection();
  setTimeout(poll, INTERVAL);
}

setInterval(showConnection, 1000);
poll();
