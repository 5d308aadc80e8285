// The rows of one run that have been received, and which of them are visible.

import { ANSWERED, HELD_BACK, INTERRUPTED } from "./format.js";

const LIVE = new Set(["waiting", "running", "paused"]);
const RETURN = "return_result"; // the function with which a model returns the result of its agent

/** Whether a call returned the result of the agent that made it: the agent has the same outcome. */
export function isReturn(row, above) {
  return row.fn === RETURN && row.state === "success" && above?.agent === true && above.state === "success";
}

export class Tree {
  rows = new Map();
  seq = 0;
  collapsed = new Set();
  texts = new Map(); // partial texts of responses, by node
  shared = new Map(); // the nodes of shared calls in the run that was forked, by node
  #children = new Map();
  #ids = new Map(); // by path
  #together = new Map(); // the calls that a call requested in parallel, by caller and sequence
  #openQuestions = null; // the ids of the open questions, once they are known
  #interruptedAt = null; // the time of the last event, if the process has ended before the run

  /** id is that of the top-level call, number that of the run. */
  constructor(id, number) {
    Object.assign(this, { id, number });
  }

  get top() {
    return this.rows.get(this.id);
  }

  get isOpen() {
    return this.top !== undefined && LIVE.has(this.top.state);
  }

  /** Merge rows that are new or have changed; parents come first. */
  merge({ rows, seq }) {
    for (const row of rows) {
      if (!this.rows.has(row.id)) this.#place(row);
      this.rows.set(row.id, this.#marked(this.#shown(row)));
      if (!LIVE.has(row.state)) this.texts.delete(row.id);
    }
    this.seq = Math.max(this.seq, seq);
  }

  /** Set the ids of the open questions: an answer may wait until a program picks it up. */
  setQuestions(ids) {
    this.#openQuestions = ids;
    this.#adjust();
  }

  /** Set the entry of the list of runs: if the run is interrupted, so are its open calls. */
  setRun(run) {
    const interruptedAt = run?.state === "interrupted" ? run.ended : null;
    if (interruptedAt === this.#interruptedAt) return;
    this.#interruptedAt = interruptedAt;
    this.#adjust();
  }

  #adjust() {
    for (const [id, row] of this.rows) {
      const sent = row.sent ?? row;
      if (LIVE.has(sent.state)) this.rows.set(id, this.#marked(this.#shown(sent)));
    }
  }

  /** Set the calls that this run, a fork, shares with its source. */
  setShared(nodes) {
    this.shared = new Map(Object.entries(nodes).map(([id, node]) => [Number(id), node]));
    for (const [id, row] of this.rows) if (this.shared.has(id)) this.rows.set(id, this.#marked(row));
  }

  #marked(row) {
    return this.shared.has(row.id) ? { ...row, sent: row.sent ?? row, shared: this.shared.get(row.id) } : row;
  }

  /**
   * A row as it is shown, like views/liveness.py; the row that the server sent is kept in it.
   *
   * It has only open questions; if none is left, the status says so.
   */
  #shown(sent) {
    if (sent.questions.length) {
      const questions = sent.questions.filter((id) => this.#openQuestions?.has(id) ?? true);
      return { ...sent, sent, questions, status: questions.length ? sent.status : ANSWERED };
    }
    // In an exported file, answered questions are already removed.
    if (this.#interruptedAt === null || !LIVE.has(sent.state) || sent.status === ANSWERED) return sent;
    const status = sent.status.startsWith(HELD_BACK) ? sent.status : INTERRUPTED;
    return { ...sent, sent, state: "interrupted", ended: this.#interruptedAt, status };
  }

  #place(row) {
    const siblings = this.#children.get(row.parent) ?? [];
    let at = siblings.length;
    const index = indexOf(row);
    while (at > 0 && indexOf(this.rows.get(siblings[at - 1])) > index) at -= 1;
    siblings.splice(at, 0, row.id);
    this.#children.set(row.parent, siblings);
    this.#ids.set(row.path, row.id);
    const group = `${row.parent} ${row.sequence}`;
    const together = this.#together.get(group) ?? [];
    this.#together.set(group, together);
    at = together.length;
    while (at > 0 && indexOf(this.rows.get(together[at - 1])) > index) at -= 1;
    together.splice(at, 0, row.id);
  }

  /** The id of the call at a path; null until it is known. */
  idOf(path) {
    return this.#ids.get(path) ?? null;
  }

  /** Where a call is among those that were requested in parallel with it: [2, 4]; null if it was alone. */
  place(row) {
    const together = this.#together.get(`${row.parent} ${row.sequence}`) ?? [];
    return together.length > 1 ? [together.indexOf(row.id) + 1, together.length] : null;
  }

  /** Apply partial text, which replaces everything from a character on. False if a part is missing. */
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

  /** Whether a row is not shown, because the row of its agent says the same. */
  isFolded(row) {
    return isReturn(row, this.rows.get(row.parent)) && !this.#children.has(row.id);
  }

  /** How many calls are shown. */
  get size() {
    let count = 0;
    for (const row of this.rows.values()) count += !this.isFolded(row);
    return count;
  }

  /** The rows from the top of the tree down to one. */
  pathTo(id) {
    const found = [];
    for (let row = this.rows.get(id); row; row = this.rows.get(row.parent)) found.unshift(row);
    return found;
  }

  /** How many rows are in each state, and how many wait for a person. */
  counts() {
    const counts = { all: this.rows.size, asking: 0 };
    for (const row of this.rows.values()) {
      if (this.isFolded(row)) continue;
      counts[row.state] = (counts[row.state] ?? 0) + 1;
      if (row.questions.length) counts.asking += 1;
    }
    return counts;
  }

  /** Collapse everything below the top. */
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
    for (const row of this.pathTo(id).slice(0, -1)) this.collapsed.delete(row.id);
  }

  /**
   * The visible rows, in order: {row, level, position, size, expanded, matches}.
   *
   * With a filter (a predicate of a row), these are the matching rows and their ancestors, even
   * below collapsed rows.
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
      const below = this.children(id).filter((child) => !this.isFolded(this.rows.get(child)));
      const open = wanted ? below.some((child) => wanted.has(child)) : !this.collapsed.has(id);
      const expanded = below.length ? open : null;
      const row = this.rows.get(id);
      shown.push({ row, level, position, size, expanded, matches: !wanted || wanted.get(id) });
      if (expanded) push(below, level + 1);
    }
    return shown;
  }

  /** The matching rows (true) and their ancestors (false). */
  #withParents(filter) {
    const wanted = new Map();
    for (const row of this.rows.values()) {
      if (!filter(row)) continue;
      // What is found in a folded call is found in its agent.
      const found = this.isFolded(row) ? this.rows.get(row.parent) : row;
      wanted.set(found.id, true);
      let above = this.rows.get(found.parent);
      while (above && !wanted.has(above.id)) {
        wanted.set(above.id, false);
        above = this.rows.get(above.parent);
      }
    }
    return wanted;
  }
}

function indexOf(row) {
  return Number(row.path.slice(row.path.lastIndexOf(".") + 1));
}
