// A journal embedded in the page: the same interface as LiveSource, without actions.

import { stopClock } from "./format.js";

export class EmbeddedSource {
  live = false;

  constructor(data) {
    this.data = data;
    stopClock(data.at);
    this.rows = new Map(data.rows.map((row) => [row.id, row]));
  }

  async journal() {
    return this.data.journal;
  }

  async runs() {
    const { trees } = this.data;
    return { trees, total: trees.length, driven: false };
  }

  /** The id of the top-level call of a run. */
  async find(number) {
    const found = this.data.trees.find((tree) => tree.number === number);
    if (!found) throw Object.assign(new Error(`Run ${number} is not in this file.`), { status: 404 });
    return found.id;
  }

  async summaries(ids) {
    return Object.fromEntries(ids.map((id) => [id, this.data.summary]));
  }

  async questions() {
    return Object.values(this.data.details).flatMap(
      ({ path, fn, questions }) => questions.map((question) => ({ ...question, path, fn }))
    );
  }

  async detail(id) {
    const detail = this.data.details[id];
    if (!detail) throw new Error("This call is not part of this file.");
    return detail;
  }

  async part(id, index) {
    return this.data.details[id].transcript[index].text;
  }

  async stack(id) {
    const frames = [];
    for (let row = this.rows.get(id); row; row = this.rows.get(row.parent)) frames.unshift(row);
    return frames;
  }

  async flame(tree, by) {
    const found = this.data.flame[by] ?? (this.data.flame.by === by ? this.data.flame : null);
    if (!found) throw new Error(`This file has no flame graph by ${by}.`);
    return found;
  }

  async shared() {
    return this.data.shared ?? {};
  }

  async timing() {
    if (!this.data.timing) throw new Error("This file does not say where the time went.");
    return this.data.timing;
  }

  async totals() {
    throw new Error("A file holds one run: sum over runs with `treefold view`.");
  }

  async difference() {
    throw new Error("A file holds one run: compare runs with `treefold view` or `treefold diff`.");
  }

  async search(tree, text) {
    const wanted = text.toLowerCase();
    const holds = (detail) => JSON.stringify(
      [
        detail.inputs,
        detail.outputs,
        detail.exception,
        detail.transcript.map((part) => [part.text, part.args]),
      ],
    )
      .toLowerCase().includes(JSON.stringify(wanted).slice(1, -1));
    return Object.values(this.data.details).filter(holds).map((detail) => detail.id);
  }

  follow(tree, seq, listener) {
    let over = false;
    queueMicrotask(() => {
      if (over) return;
      const rows = this.data.rows.filter((row) => row.seq > seq);
      const newest = rows.reduce((most, row) => Math.max(most, row.seq), seq);
      if (tree !== null) listener.rows({ tree, seq: newest, rows });
      listener.connection("file", "");
    });
    return () => { over = true; };
  }
}
