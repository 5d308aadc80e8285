// The list of runs: the front page.

import { icon, make, replaceContent, setState, setText } from "./dom.js";
import { Grid } from "./grid.js";
import { oneLine } from "./text.js";
import { elapsed, exactly, many, when } from "./format.js";

const COLUMNS = [
  ["number.id", "Run"],
  ["function", "Function"],
  ["key", "Key"],
  ["state-word", "State"],
  ["started", "Started"],
  ["number.time", "Time"],
  ["asked", "Questions"],
];

export class RunsView {
  #trees = null;
  #numbers = new Map(); // of the runs, by their ids

  constructor({ open, live }) {
    this.grid = new Grid({
      name: "runs",
      role: "grid",
      label: "Runs, the newest first",
      columns: COLUMNS,
      header: 1,
      key: (tree) => tree.id,
      cells: () => [[], [make("span.state-slot"), make("bdi.fn")], [], [], [], [], []],
      redraw: (cells, tree, element) => redrawRun(cells, tree, element, this.#numbers),
      opened: (tree) => open(tree.id),
    });
    this.search = make(
      "input.search",
      {
        type: "search",
        placeholder: "Find a run",
        "aria-label": "Find a run by function, key, state or number",
        input: () => this.#filtered(),
      },
    );
    this.count = make("p.count", { role: "status" });
    this.nothing = make("div.nothing", { hidden: true },
      make("p", {}, "No runs yet."),
      live && make("p.hint", {}, "They appear here as soon as a program starts one with this journal."));
    this.element = make("section.home", { "aria-labelledby": "runs-title" },
      make(
        "div.bar-line",
        {},
        make("h1", { id: "runs-title", tabindex: "-1" }, "Runs"),
        this.count,
        make("label.search-box", {}, icon("search"), this.search),
      ),
      this.nothing,
      this.grid.element);
  }

  show(trees) {
    this.#trees = trees && [...trees].reverse();
    this.#numbers = new Map(trees?.map((tree) => [tree.id, tree.number]));
    this.#filtered();
  }

  #filtered() {
    if (this.#trees === null) return;
    const wanted = this.search.value.trim().toLowerCase();
    const all = this.#trees.length ? many(this.#trees.length, "run") : "";
    const kept = this.#trees.filter(
      (tree) => [tree.number, `node ${tree.id}`, tree.function, tree.key, stateOf(tree)].join(" ")
        .toLowerCase().includes(wanted)
    );
    this.nothing.hidden = this.#trees.length > 0;
    setText(this.count, wanted ? `${kept.length} of ${all || "no runs"}` : all);
    this.grid.show(kept);
  }

  tick() {
    this.grid.rows.paint();
  }

  close() {
    this.grid.close();
  }
}

/** The state of a run; a parked one waits for an answer, or for its program to pick that up. */
export function stateOf(tree) {
  if (!tree.open || !tree.parked) return tree.state;
  return tree.questions ? "waits for you" : "answered";
}

/** What a run was forked from; the number is undefined if that run was deleted. */
export function forkOf(tree, number) {
  return number === undefined ? `fork of node ${tree.source}` : `fork of run ${number}`;
}

function redrawRun(cells, tree, element, numbers) {
  const [id, fn, key, state, started, time, asked] = cells;
  if (element.drawn !== tree) {
    element.drawn = tree;
    setText(id, String(tree.number));
    id.title = `node ${tree.id}`;
    const waiting = tree.open && tree.questions > 0;
    setState(fn.children[0], waiting ? "asking" : tree.state);
    setText(fn.children[1], oneLine(tree.function));
    replaceContent(
      key,
      make("bdi", {}, oneLine(tree.key)),
      tree.source ? make("span.fork-of", {}, icon("fork"), forkOf(tree, numbers.get(tree.source))) : null,
    );
    setText(state, stateOf(tree));
    setText(started, when(tree.started));
    started.title = exactly(tree.started);
    replaceContent(asked, tree.questions ? make("span.badge", {}, many(tree.questions, "question")) : null);
    element.dataset.state = tree.state;
    element.classList.toggle("asking", waiting);
  }
  setText(time, elapsed(tree));
}
