// One run as rows: what has come in so far, and which of it is to be seen.

import { ANSWERED, INTERRUPTED } from "./words.js";

const LIVE = new Set(["waiting", "running", "paused"]);

export class Tree {
  rows = new Map();
  seq = 0;
  collapsed = new Set();
  texts = new Map(); // what models have said of responses that are still coming in
  #children = new Map();
  #waiting = null; // the ids of the questions that nobody has answered, once they are known
  #stopped = null; // when its last event was, if its process has ended before it

  constructor(id) {
    this.id = id;
  }

  get top() {
    return this.rows.get(this.id);
  }

  get isOpen() {
    return this.top !== undefined && LIVE.has(this.top.state);
  }

  /** Take rows that are new or have changed; they come with parents first. */
  merge({ rows, seq }) {
    for (const row of rows) {
      if (!this.rows.has(row.id)) this.#place(row);
      this.rows.set(row.id, this.#seen(row));
      if (!LIVE.has(row.state)) this.texts.delete(row.id);
    }
    this.seq = Math.max(this.seq, seq);
  }

  /** Take which questions wait, by their ids: an answer may lie there until a program takes it. */
  ask(waiting) {
    this.#waiting = waiting;
    this.#look();
  }

  /** Take how the run is listed: if it is interrupted, so are its open calls. */
  list(run) {
    const stopped = run?.state === "interrupted" ? run.ended : null;
    if (stopped === this.#stopped) return;
    this.#stopped = stopped;
    this.#look();
  }

  #look() {
    for (const [id, row] of this.rows) {
      const sent = row.sent ?? row;
      if (LIVE.has(sent.state)) this.rows.set(id, this.#seen(sent));
    }
  }

  /** A row as it is to be shown; what the server has sent is kept in it.

      Of its questions only those wait that nobody has answered; one that has none left says so. */
  #seen(sent) {
    if (sent.questions.length) {
      const questions = sent.questions.filter((id) => this.#waiting?.has(id) ?? true);
      return { ...sent, sent, questions, status: questions.length ? sent.status : ANSWERED };
    }
    // In a file the questions that are answered have been left out already.
    if (this.#stopped === null || !LIVE.has(sent.state) || sent.status === ANSWERED) return sent;
    return { ...sent, sent, state: "interrupted", ended: this.#stopped, status: INTERRUPTED };
  }

  #place(row) {
    const siblings = this.#children.get(row.parent) ?? [];
    let at = siblings.length;
    const place = placeOf(row);
    while (at > 0 && placeOf(this.rows.get(siblings[at - 1])) > place) at -= 1;
    siblings.splice(at, 0, row.id);
    this.#children.set(row.parent, siblings);
  }

  /** Take live text: it replaces everything from a character on. False if some of it is missing. */
  write({ node, text, from }) {
    const known = this.texts.get(node) ?? "";
    if (from > known.length) return false;
    const now = known.slice(0, from) + text;
    if (now) this.texts.set(node, now);
    else this.texts.delete(node);
    return true;
  }

  children(id) {
    return this.#children.get(id) ?? [];
  }

  /** Rows from the top of the tree down to one. */
  way(id) {
    const found = [];
    for (let row = this.rows.get(id); row; row = this.rows.get(row.parent)) found.unshift(row);
    return found;
  }

  /** How many rows are in each state, and how many wait for a person. */
  counts() {
    const counts = { all: this.rows.size, asking: 0 };
    for (const row of this.rows.values()) {
      counts[row.state] = (counts[row.state] ?? 0) + 1;
      if (row.questions.length) counts.asking += 1;
    }
    return counts;
  }

  /** Collapse everything below the top, or nothing. */
  collapseAll() {
    this.collapsed = new Set(
      [...this.#children.keys()].filter((id) => id !== null && id !== this.id && this.rows.has(id))
    );
  }

  expandAll() {
    this.collapsed.clear();
  }

  /** Make a row visible. */
  reveal(id) {
    for (const row of this.way(id).slice(0, -1)) this.collapsed.delete(row.id);
  }

  /**
   * The rows to be seen, in order: {row, level, position, size, expanded, matches}.
   *
   * With a filter (a function of a row) there are those that match and those above them, and
   * what is collapsed is shown all the same.
   */
  visible(filter = null) {
    const wanted = filter && this.#withParents(filter);
    const shown = [];
    const stack = [];
    const push = (ids, level) => {
      const kept = wanted ? ids.filter((id) => wanted.has(id)) : ids;
      for (let at = kept.length - 1; at >= 0; at -= 1) stack.push([kept[at], level, at + 1, kept.length]);
    };
    push(this.rows.has(this.id) ? [this.id] : [], 1);
    while (stack.length) {
      const [id, level, position, size] = stack.pop();
      const below = this.children(id);
      const open = wanted ? below.some((child) => wanted.has(child)) : !this.collapsed.has(id);
      const expanded = below.length ? open : null;
      const row = this.rows.get(id);
      shown.push({ row, level, position, size, expanded, matches: !wanted || wanted.get(id) });
      if (expanded) push(below, level + 1);
    }
    return shown;
  }

  /** Those that match, and (as false) those above them. */
  #withParents(filter) {
    const wanted = new Map();
    for (const row of this.rows.values()) {
      if (!filter(row)) continue;
      wanted.set(row.id, true);
      let above = this.rows.get(row.parent);
      while (above && !wanted.has(above.id)) {
        wanted.set(above.id, false);
        above = this.rows.get(above.parent);
      }
    }
    return wanted;
  }
}

function placeOf(row) {
  return Number(row.path.slice(row.path.lastIndexOf(".") + 1));
}
