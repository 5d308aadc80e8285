// The calls of a run as a tree: a table with cost, or a timeline.

import { icon, make, replaceContent, setState, setText } from "./dom.js";
import { Grid } from "./grid.js";
import { oneLine } from "./text.js";
import { drawSpans } from "./timing.js";
import { brief, duration, elapsed, exactly, grouped, money, now } from "./format.js";

const TREE = [
  ["call", "Call"],
  ["outcome", "Outcome"],
  ["number.tokens", "Tokens"],
  ["number.cost", "Cost"],
  ["number.time", "Time"],
];
const TIMELINE = [["call", "Call"], ["span", ""], ["number.time", "Time"]];
const LIVE = new Set(["waiting", "running", "paused"]);

/** A grid of a tree's rows. kind is "tree" or "timeline"; options are those of a Grid. */
export function callGrid(kind, options) {
  const timeline = kind === "timeline";
  return new Grid({
    name: timeline ? "timeline" : "calls",
    label: timeline ? "Timeline of calls" : "Calls of this run",
    columns: timeline ? TIMELINE : TREE,
    key: (item) => item.row.id,
    cells: () => (timeline ? [drawCall(), drawSpan(), []] : [drawCall(), [], [], [], []]),
    redraw: timeline ? redrawTimeline(options) : redrawTree(options),
    ...options,
  });
}

function drawCall() {
  return [
    make("span.toggle", { "aria-hidden": "true" }, icon("chevron")),
    make("span.state-slot"),
    make("span.path"),
    make("span.tie"),
    make("span.kind"),
    make("bdi.fn"),
    make("bdi.args"),
    make("span.shared-slot"),
  ];
}

/** A mark of a call that a fork shares; leads to it in the run that was forked, unless this is a file. */
function sharedMark(row, source) {
  const label = `shared with ${source.name}`;
  if (!source.live) return make("span.shared", { title: label }, icon("fork", label));
  return make(
    "a.shared",
    { href: sharedAddress(row, source), title: `${label}: show it there`, tabindex: "-1" },
    icon("fork", label),
  );
}

/** The address of a call that a fork shares, in the run that was forked: its path differs in the number. */
export function sharedAddress(row, source) {
  return `#/run/${source.number}?call=${row.path.replace(/^\d+/, source.number)}`;
}

function redrawCall(cell, item, { sourceOf, placeOf }) {
  const { row } = item;
  const place = placeOf(row);
  const [toggle, state, path, tie, kind, fn, args, shared] = cell.children;
  const source = row.shared === undefined ? null : sourceOf();
  replaceContent(shared, source && sharedMark(row, source));
  cell.parentElement.classList.toggle("is-shared", source !== null);
  toggle.classList.toggle("none", item.expanded === null);
  toggle.classList.toggle("open", item.expanded === true);
  setState(state, row.questions.length ? "asking" : row.state);
  setText(path, row.path);
  setText(tie, place ? `∥${place.join("/")}` : "");
  tie.title = place ? `${place[0]} of ${place[1]} calls that were requested in parallel` : "";
  if (row.agent !== (kind.childElementCount > 0)) replaceContent(kind, row.agent ? icon("agent", "agent") : null);
  setText(fn, oneLine(row.fn));
  setText(args, `(${oneLine(row.args)})`);
}

function redrawTree({ textOf, askedOf, sourceOf, placeOf }) {
  return (cells, item, element) => {
    const { row } = item;
    const [call, outcome, tokens, cost, time] = cells;
    const text = !LIVE.has(row.state) ? "" : row.questions.length ? askedOf(row) : textOf(row.id);
    const place = String(placeOf(row));
    const isDrawn = element.drawn === row && element.place === place;
    if (!isDrawn || element.text !== text || element.open !== item.expanded) {
      element.drawn = row;
      element.place = place;
      element.text = text;
      element.open = item.expanded;
      redrawCall(call, item, { sourceOf, placeOf });
      redrawOutcome(outcome, row, text);
      setText(tokens, row.total_tokens ? brief(row.total_tokens) : "");
      tokens.title = row.total_tokens ? spent(row) : "";
      setText(cost, row.total_tokens || Number(row.total_cost) ? money(row.total_cost) : "");
      cost.title = row.total_cost === null ? "the price of a model is unknown" : "";
      time.title = row.started === null ? "" : `from ${exactly(row.started)}`;
      mark(element, row);
    }
    element.classList.toggle("beside", !item.matches);
    setText(time, elapsed(row));
  };
}

function spent(row) {
  return `${grouped(row.total_tokens)} tokens with all calls below, ${grouped(row.tokens)} of its own`;
}

function mark(element, row) {
  element.dataset.state = row.state;
  element.classList.toggle("asking", row.questions.length > 0);
}

function redrawOutcome(cell, row, text) {
  const outcome = outcomeOf(row, text);
  cell.title = outcome.text;
  const old = cell.firstElementChild;
  if (old?.dataset.kind === outcome.kind) setText(old, outcome.text);
  else replaceContent(
    cell, outcome.text ? make(`bdi.${outcome.kind}`, { "data-kind": outcome.kind }, outcome.text) : null
  );
}

/** The outcome of a call: its result or error, its question or partial answer (text), or its status. */
export function outcomeOf(row, text = "") {
  if (row.error) return { kind: "failed", text: oneLine(row.error) };
  if (row.state === "success") return row.result === null
    ? { kind: "does", text: "done" }
    : { kind: "result", text: oneLine(row.result) };
  if (row.questions.length) return { kind: "asks", text: oneLine(text || row.status) };
  return text ? {
    kind: "says",
    text: `… ${oneLine(text.slice(-160)).trimStart()}`,
  } : { kind: "does", text: oneLine(row.status) };
}

/** The start and length of a run; an open run lasts up to now. */
export function extent(top) {
  const start = top?.started ?? 0;
  const end = top?.ended ?? Math.max(now(), start + 0.001);
  return { start, length: Math.max(end - start, 0.001) };
}

function drawSpan() {
  return [make("div.bar")];
}

function redrawTimeline({ extentOf, timingOf, sourceOf, placeOf }) {
  return (cells, item, element) => {
    const { row } = item;
    const [call, span, time] = cells;
    const { start, length } = extentOf();
    const place = String(placeOf(row));
    if (element.drawn !== row || element.place !== place || element.open !== item.expanded) {
      element.drawn = row;
      element.place = place;
      element.open = item.expanded;
      redrawCall(call, item, { sourceOf, placeOf });
      mark(element, row);
    }
    element.classList.toggle("beside", !item.matches);
    const [bar] = span.children;
    const timing = timingOf?.();
    const isSplit = Boolean(timing?.spans(row.id).length);
    bar.classList.toggle("parted", isSplit);
    bar.hidden = row.started === null && !isSplit;
    if (isSplit) drawSpans(bar, row, timing, { start, length });
    else if (row.started !== null) {
      if (bar.drawnFor) {
        bar.replaceChildren();
        bar.drawnFor = null;
      }
      // A fork shows calls of the run that was forked, which ended before the fork started.
      const from = Math.max(0, (row.started - start) / length);
      const to = Math.max(from, ((row.ended ?? now()) - start) / length);
      bar.style.left = `${Math.max(0, from) * 100}%`;
      bar.style.width = `${Math.max(0, to - from) * 100}%`;
      bar.classList.toggle("agent", row.agent);
      bar.title = `started ${duration(row.started - start)} after the run, took ${elapsed(row)}`;
    }
    setText(time, elapsed(row));
  };
}

/** The scale of a timeline: a few round times. */
export function drawScale(head, length) {
  const cell = head.children[1];
  if (cell.dataset.length === length.toFixed(1)) return;
  cell.dataset.length = length.toFixed(1);
  const step = roundStep(length / 5);
  const marks = [];
  for (let at = 0; at < length * 0.96; at += step) {
    const mark = make("span.tick", {}, at === 0 ? "0" : duration(at));
    mark.style.left = `${(at / length) * 100}%`;
    marks.push(mark);
  }
  replaceContent(cell, make("span.unseen", {}, "Time scale"), marks);
}

function roundStep(rough) {
  const steps = [
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21600,
    43200,
  ];
  return steps.find((step) => step >= rough) ?? Math.ceil(rough / 86400) * 86400;
}
