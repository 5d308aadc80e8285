// Where the time of a run went, as views/timing.py computes it: spans of calls, and the critical path.

import { make, replaceContent } from "./dom.js";
import { duration, now, percent } from "./format.js";

/** The kinds of time, as they are shown. */
export const KINDS = [
  ["model", "model", "a request to a model was under way"],
  ["tool", "own code", "the code of the function ran"],
  ["queued", "queued", "it slept, or waited to be started, for a slot, a rate or the next attempt"],
  ["person", "person", "it was paused, or waited for an answer"],
  ["down", "no process", "no process ran it"],
  ["calls", "calls below", "a call that it made was open"],
];
const WORDS = new Map(KINDS.map(([kind, word]) => [kind, word]));
const LEAST = 0.0004; // of the run; a shorter span is not drawn
const MOST = 150; // spans of one bar

export class Timing {
  #onPath = new Map();

  /** data is what the server sends; see data.timing. */
  constructor(data) {
    this.data = data;
    for (const [id, kind, start, end] of data.path) {
      const steps = this.#onPath.get(id) ?? [];
      steps.push([kind, start, end]);
      this.#onPath.set(id, steps);
    }
  }

  /** The spans of a call: [kind, start, end], in seconds since the start of the run. */
  spans(id) {
    return this.data.spans[id] ?? [];
  }

  /** The stretches of a call on the critical path. */
  steps(id) {
    return this.#onPath.get(id) ?? [];
  }

  /** The seconds of a call on the critical path; 0 if they are too few to be seen. */
  delay(id) {
    const seconds = this.steps(id).reduce((sum, [, start, end]) => sum + end - start, 0);
    return seconds >= this.data.seconds * LEAST ? seconds : 0;
  }

  /** The calls on the critical path and their kinds, the longest first: {id, kind, seconds}. */
  longest(most) {
    const sums = new Map();
    for (const [id, kind, start, end] of this.data.path) {
      const key = `${id} ${kind}`;
      const sum = sums.get(key) ?? { id, kind, seconds: 0 };
      sum.seconds += end - start;
      sums.set(key, sum);
    }
    return [...sums.values()].sort((a, b) => b.seconds - a.seconds).slice(0, most);
  }
}

/** The seconds of each kind of the spans of one call. */
export function splitOf(spans) {
  const split = {};
  for (const [kind, start, end] of spans) split[kind] = (split[kind] ?? 0) + end - start;
  return split;
}

/** A split in words: "model 3.2 s, queued 1.0 s". */
export function splitWords(split) {
  return KINDS.filter(([kind]) => split[kind] > 0)
    .map(([kind, word]) => `${word} ${duration(split[kind])}`).join(", ");
}

export function kindWord(kind) {
  return WORDS.get(kind) ?? kind;
}

/** A coloured square that stands for a kind of time. */
export function swatch(kind) {
  return make(`span.swatch.kind-${kind}`, { "aria-hidden": "true" });
}

/** A bar that is split into kinds; its numbers are beside it, in words. */
export function splitBar(split, whole) {
  const bar = make("div.split-bar", { "aria-hidden": "true" });
  for (const [kind, word] of KINDS) {
    const seconds = split[kind] ?? 0;
    if (!(seconds > 0) || !(whole > 0)) continue;
    const part = make(`span.kind-${kind}`, { title: `${word} ${duration(seconds)}` });
    part.style.width = `${(seconds / whole) * 100}%`;
    bar.append(part);
  }
  return bar;
}

/** The kinds of a split with their seconds and shares. */
export function splitList(split, whole) {
  const shown = KINDS.filter(([kind]) => (split[kind] ?? 0) > 0);
  return make("ul.split-list", {}, shown.map(([kind, word, meaning]) => make(
    "li",
    { title: meaning },
    swatch(kind),
    make("span", {}, word),
    make("strong", {}, duration(split[kind])),
    make("span.hint", {}, percent(whole > 0 ? split[kind] / whole : 0)),
  )));
}

/** Draw the spans of a call into its bar, at its place in a run of that length. */
export function drawSpans(bar, row, timing, { start, length }) {
  const offset = timing.data.started - start;
  const spans = timing.spans(row.id);
  const isOpen = row.ended === null && row.started !== null;
  const from = spans[0][1] + offset;
  const to = isOpen ? Math.max(now() - start, spans.at(-1)[2] + offset) : spans.at(-1)[2] + offset;
  place(bar, from / length, (to - from) / length);
  const sign = `${spans.length} ${timing.data.seconds} ${isOpen ? (to - from).toFixed(2) : ""}`;
  if (bar.sign === sign && bar.drawnFor === row.id) return;
  bar.sign = sign;
  bar.drawnFor = row.id;
  const whole = Math.max(to - from, 1e-9);
  const part = (tag, low, high) => {
    const element = make(tag);
    place(element, (low + offset - from) / whole, (high - low) / whole);
    return element;
  };
  const isSeen = ([, low, high]) => high - low >= length * LEAST;
  const seen = spans.length > 1 ? spans.filter(isSeen).slice(0, MOST) : spans;
  const last = seen.at(-1);
  replaceContent(
    bar,
    seen.map((span) => {
      const [kind, low, high] = span;
      return part(`i.kind-${kind}`, low, span === last && isOpen ? Math.max(high, to - offset) : high);
    }),
    timing.steps(row.id).filter(isSeen).slice(0, MOST).map(([, low, high]) => part(
      "b.on-path", low, isOpen && high === spans.at(-1)[2] ? Math.max(high, to - offset) : high
    )),
  );
  bar.title = [splitWords(splitOf(spans)), timing.delay(row.id) ? "on the critical path" : ""]
    .filter(Boolean).join("; ");
}

function place(element, left, width) {
  element.style.left = `${Math.max(0, left) * 100}%`;
  element.style.width = `${Math.max(0, width) * 100}%`;
}
