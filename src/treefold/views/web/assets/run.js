// The view of one run: its calls as a tree, timeline or flame graph, beside the details of one call.

import { icon, isTyping, make, replaceContent, setText, stateIcon } from "./dom.js";
import { actionButtons, chooseOther } from "./actions.js";
import { callGrid, drawScale, extent, sharedAddress } from "./calls.js";
import { DetailView } from "./detail.js";
import { Finder } from "./finder.js";
import { FlameView } from "./flame.js";
import { SpentView } from "./spent.js";
import { KINDS, Timing, swatch } from "./timing.js";
import { forkOf, stateOf } from "./runs.js";
import { Splitter } from "./splitter.js";
import { oneLine } from "./text.js";
import { brief, elapsed, exactly, many, money } from "./format.js";

const TABS = [["tree", "Tree"], ["timeline", "Timeline"], ["flame", "Flame graph"], ["time", "Time and cost"]];
const FLAME_INTERVAL = 1_500; // milliseconds between two flame graphs, or timings, of an open run

export class RunView {
  #pending = false;
  #flameDue = 0;
  #timing = null; // a Timing, once it is loaded
  #timingAt = { seq: -1, time: 0 }; // of the run and the clock, when it was last requested
  #onlyPath = false;
  #detail = null;
  #drawn = new Map();

  /** context is the one of app.js. */
  constructor(tree, context) {
    this.tree = tree;
    this.context = {
      ...context,
      tree,
      link: (node, from) => this.#address(node, from),
      close: () => this.#closeDetail(),
      timing: () => this.#loadTiming(),
    };
    this.title = make("h1", { tabindex: "-1" });
    this.facts = make("p.facts");
    this.buttons = make("div.actions", { role: "group", "aria-label": "Actions on this run" });
    this.strip = make("div.strip", { hidden: true });
    this.finder = new Finder({
      search: (text) => context.source.search(tree.id, text),
      changed: () => this.update(),
    });
    this.tabs = TABS.map(
      ([name, title]) => make(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "run-panel",
          click: () => this.#turnTo(name),
        },
        title,
      ),
    );
    const tabs = make(
      "div.tabs",
      { role: "tablist", "aria-label": "Views of this run", keydown: (event) => this.#tabKey(event) },
      this.tabs,
    );
    this.folds = make(
      "div.folds",
      {},
      make("button.quiet", { type: "button", click: () => this.#fold(false) }, "Expand all"),
      make("button.quiet", { type: "button", click: () => this.#fold(true) }, "Collapse all"),
    );
    this.panel = make("div.panel", { role: "tabpanel", id: "run-panel" });
    this.pane = make(
      "div.pane", {}, make("div.pane-head", {}, tabs, this.folds), this.finder.element, this.panel
    );
    this.split = make("div.split", {}, this.pane);
    this.split.append(new Splitter(this.split, "Width of the call details").element);
    this.element = make("section.run", { "aria-labelledby": "run-title" },
      make(
        "div.run-head",
        {},
        make("a.back", { href: "#/", "aria-label": "All runs" }, icon("back")),
        make("div.run-name", {}, this.title, this.facts),
        this.buttons,
      ),
      this.strip, this.split);
    this.title.id = "run-title";
  }

  // Navigation

  /** Show a tab and a call of this run; call and from are paths. */
  show({ tab = "tree", call = null, from = null }) {
    if (this.tab !== tab) this.#use(tab);
    this.wanted = { call, from };
    this.#chooseWanted();
    this.update();
  }

  /** Choose the call at the path in the address, once it is known. */
  #chooseWanted() {
    const { call, from } = this.wanted;
    const node = call === null ? null : this.tree.idOf(call);
    this.awaited = call !== null && node === null;
    if (!this.awaited) this.#choose(node, from === null ? null : this.tree.idOf(from));
  }

  #use(tab) {
    this.tab = tab;
    this.view?.close();
    this.tabs.forEach((button, at) => {
      const chosen = TABS[at][0] === tab;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    });
    this.panel.setAttribute("aria-labelledby", `tab-${tab}`);
    this.finder.element.hidden = this.folds.hidden = !this.#hasRows;
    this.flameSeq = this.tree.isOpen ? -1 : this.tree.seq;
    this.view = { flame: () => this.#flame(), time: () => this.#spent() }[tab]?.() ?? this.#grid(tab);
    replaceContent(this.panel, tab === "timeline" ? this.#legend() : null, this.view.element);
    if (tab === "timeline") this.#drawTiming();
  }

  get #hasRows() {
    return this.tab === "tree" || this.tab === "timeline";
  }

  #grid(tab) {
    return callGrid(tab, {
      textOf: (id) => this.tree.texts.get(id) ?? "",
      askedOf: (row) => this.#asked(row),
      extentOf: () => this.#extent(),
      sourceOf: () => this.#source(),
      placeOf: (row) => this.tree.place(row),
      timingOf: () => this.#timing,
      moved: (item) => this.#isWide() && this.#select(item.row.id),
      opened: (item, { byKey = false } = {}) => {
        this.#select(item.row.id, { push: !this.#isWide() });
        if (byKey) this.#detail?.title.focus();
      },
      toggled: (item, open) => {
        if (open) this.tree.collapsed.delete(item.row.id);
        else this.tree.collapsed.add(item.row.id);
        this.update();
      },
    });
  }

  #flame() {
    return new FlameView({
      load: (by) => this.context.source.flame(this.tree.id, by),
      open: (id) => this.#select(id, { push: !this.#isWide() }),
    });
  }

  // Where the time went

  #spent() {
    return new SpentView({
      load: () => this.#loadTiming(),
      row: (id) => this.tree.rows.get(id),
      link: (id) => this.#address(id),
    });
  }

  /** Load the timing, unless the one that is loaded is of the same state, or new enough. */
  async #loadTiming() {
    const { seq, time } = this.#timingAt;
    const isNew = seq === this.tree.seq && !this.tree.isOpen;
    if (this.#timing && (isNew || performance.now() - time < FLAME_INTERVAL)) return this.#timing;
    this.#timingAt = { seq: this.tree.seq, time: performance.now() };
    this.#timing = new Timing(await this.context.source.timing(this.tree.id));
    return this.#timing;
  }

  /** The time that the timeline shows: from when the run was requested, if that is known. */
  #extent() {
    const whole = extent(this.tree.top);
    const before = this.#timing ? Math.max(0, whole.start - this.#timing.data.started) : 0;
    return { start: whole.start - before, length: whole.length + before };
  }

  #legend() {
    const only = make(
      "button.chip",
      {
        type: "button",
        "aria-pressed": String(this.#onlyPath),
        click: () => {
          this.#onlyPath = !this.#onlyPath;
          only.setAttribute("aria-pressed", String(this.#onlyPath));
          this.update();
        },
      },
      make("span.path-sample", { "aria-hidden": "true" }),
      "critical path only",
    );
    return make(
      "div.time-legend",
      {},
      make("ul", { "aria-label": "Kinds of time" }, KINDS.map(
        ([kind, word, meaning]) => make("li", { title: meaning }, swatch(kind), word)
      )),
      only,
    );
  }

  #isWide() {
    return matchMedia("(min-width: 900px)").matches;
  }

  #address(node, from = null, tab = this.tab) {
    const place = tab === "tree" ? "" : `/${tab}`;
    const query = new URLSearchParams();
    const path = (id) => this.tree.rows.get(id)?.path;
    if (path(node)) query.set("call", path(node));
    if (path(from)) query.set("from", path(from));
    return `#/run/${this.tree.number}${place}${query.size ? `?${query}` : ""}`;
  }

  #turnTo(tab) {
    this.context.go(this.#address(this.#wantedNode, null, tab));
  }

  get #wantedNode() {
    return this.tree.idOf(this.wanted.call);
  }

  #select(id, { push = false } = {}) {
    if (push) this.context.go(this.#address(id));
    else {
      history.replaceState(null, "", this.#address(id));
      this.show({ tab: this.tab, call: this.tree.rows.get(id)?.path ?? null });
    }
  }

  #choose(node, from) {
    const chosen = node ?? (this.#isWide() ? this.#firstOfInterest() : null);
    this.element.classList.toggle("has-call", node !== null);
    if (chosen === null) this.#dropDetail();
    else if (this.#detail?.id !== chosen || from !== null) {
      this.#dropDetail();
      this.#detail = new DetailView(chosen, this.context, from);
      this.split.append(this.#detail.element);
    }
    if (chosen !== null && this.view?.activate) {
      this.tree.reveal(chosen);
      this.view.show(this.#items());
      this.view.activate(chosen);
    }
    this.element.classList.toggle("beside", this.#detail !== null);
  }

  #firstOfInterest() {
    for (const row of this.tree.rows.values()) if (row.questions.length) return row.id;
    return this.tree.top ? this.tree.id : null;
  }

  #dropDetail() {
    this.#detail?.close();
    this.#detail?.element.remove();
    this.#detail = null;
  }

  #closeDetail() {
    this.#dropDetail();
    this.element.classList.remove("has-call", "beside");
    this.wanted = { call: null, from: null };
    history.replaceState(null, "", this.#address(null));
    this.view?.element.focus?.();
  }

  close() {
    clearTimeout(this.#flameDue);
    this.finder.close();
    this.view?.close();
    this.#dropDetail();
  }

  // Updates

  /** Redraw once before the next animation frame. */
  update() {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.#draw();
    });
  }

  #draw() {
    if (!this.drawn && this.tree.top) {
      this.drawn = true;
      if (!this.#detail && this.wanted.call === null) this.#choose(null, null);
    }
    if (this.awaited) this.#chooseWanted();
    this.#drawHead();
    this.#loadShared();
    this.finder.show(this.tree.counts());
    this.#drawStrip();
    if (this.#hasRows) {
      const items = this.#items();
      this.view.show(items);
      if (this.tab === "timeline") drawScale(this.view.head, this.#extent().length);
      this.finder.showCount(items);
    }
    if (this.tab !== "tree") this.#drawFlame();
    this.#detail?.changed();
  }

  /** Redraw the flame graph or the timing, but not often; the last state is always drawn. */
  #drawFlame() {
    if (this.#flameDue || (!this.tree.isOpen && this.flameSeq === this.tree.seq)) return;
    this.#flameDue = setTimeout(() => {
      this.#flameDue = 0;
      if (this.tab === "tree") return;
      this.flameSeq = this.tree.isOpen ? -1 : this.tree.seq;
      if (this.tab === "timeline") this.#drawTiming();
      else this.view.refresh();
    }, FLAME_INTERVAL);
  }

  /** Redraw elapsed times. */
  tick() {
    if (!this.tree.isOpen) return;
    this.#drawHead();
    if (this.tab !== "tree") this.#drawFlame();
    if (this.#hasRows) {
      this.view.rows.paint();
      if (this.tab === "timeline") drawScale(this.view.head, this.#extent().length);
    }
    this.#detail?.tick();
  }

  /** Partial text of a call has changed. */
  wrote(node) {
    if (this.#detail?.id === node) this.#detail.write();
    this.update();
  }

  missed(node) {
    if (this.#detail?.id === node) this.#detail.refresh();
  }

  #drawIfChanged(name, data, draw) {
    const sign = JSON.stringify(data) ?? "";
    if (this.#drawn.get(name) === sign) return;
    this.#drawn.set(name, sign);
    draw();
  }

  #drawHead() {
    const { top, id } = this.tree;
    const listed = this.context.trees().find((tree) => tree.id === id);
    if (!top && !listed) return;
    const state = listed && top && listed.state === top.state ? stateOf(listed) : top?.state ?? listed.state;
    const name = oneLine(top?.fn ?? listed.function);
    this.#drawIfChanged("title", [name, state, listed?.key, listed?.source], () => {
      const key = listed?.key ? make("bdi.key-word", {}, oneLine(listed.key)) : null;
      const forked = listed?.source ? make(
        "a.fork-of", { href: `#/run/${listed.source_number}` }, icon("fork"), forkOf(listed)
      ) : null;
      replaceContent(
        this.title,
        stateIcon(top?.state ?? listed.state),
        make("bdi", {}, name),
        make("span.state-name", { "data-state": top?.state ?? listed.state }, state),
        key,
        forked,
      );
      document.title = `${name} · run ${top?.path ?? listed.number} · treefold`;
    });
    if (!top) return;
    setText(
      this.facts,
      [
        `run ${top.path}`,
        many(this.tree.size, "call"),
        elapsed(top),
        top.total_tokens ? `${brief(top.total_tokens)} tokens` : "",
        top.total_tokens ? (top.total_cost === null ? "price unknown" : money(top.total_cost)) : "",
        this.#sharedFact(),
      ].filter(Boolean).join(" · "),
    );
    this.facts.title = exactly(top.started);
    const others = this.context.source.live && this.context.otherRuns();
    this.#drawIfChanged("buttons", [top.state, this.context.isPaused(top), others], () => {
      const compare = make(
        "button",
        {
          type: "button",
          click: () => chooseOther(
            this.tree.number,
            this.context,
            (a, b) => this.context.compare(Math.min(a, b), Math.max(a, b)),
          ),
        },
        "Compare…",
      );
      replaceContent(this.buttons, actionButtons(top, this.context, { isTop: true }), others ? compare : null);
    });
  }

  /** The run that this one was forked from. */
  #source() {
    const listed = this.context.trees().find((tree) => tree.id === this.tree.id);
    if (!listed?.source) return null;
    const number = listed.source_number;
    return { id: listed.source, number, name: `run ${number}`, live: this.context.source.live };
  }

  /** Mark the calls that a fork shares with its source; those that it shares never change. */
  async #loadShared() {
    const source = this.#source();
    if (this.sharedLoaded || !source || !this.tree.top) return;
    this.sharedLoaded = true;
    try {
      this.tree.setShared(await this.context.source.shared(this.tree.id, source.id));
    } catch {
      return; // the source may have been deleted
    }
    this.update();
  }

  /** Show the chosen call, if it is shared, in the run that it comes from. */
  #goToSource() {
    const row = this.tree.rows.get(this.#detail?.id);
    const source = this.#source();
    if (!this.tree.shared.has(row?.id) || !source?.live) return false;
    this.context.go(sharedAddress(row, source));
    return true;
  }

  #sharedFact() {
    const { shared } = this.tree;
    return shared.size ? `${many(shared.size, "call")} shared with ${this.#source()?.name ?? "its source"}` : "";
  }

  #drawStrip() {
    const asking = [...this.tree.rows.values()].filter((row) => row.questions.length);
    this.#drawIfChanged("strip", asking.map((row) => [row.id, this.#asked(row)]), () => {
      this.strip.hidden = asking.length === 0;
      if (!asking.length) return;
      const [first] = asking;
      replaceContent(this.strip, icon("ask"), make(
        "strong", {}, `${many(asking.length, "call")} ${asking.length === 1 ? "waits" : "wait"} for you`
      ),
        make("bdi.asks", {}, oneLine(this.#asked(first))),
        make(
          "button.primary",
          { type: "button", click: () => this.nextAsking() },
          "Go to it",
        ));
    });
  }

  #asked(row) {
    return this.context.questionOf(row.id)?.text.slice(0, 300) ?? row.status;
  }

  /** Go to the next call that waits for a person. */
  nextAsking() {
    const asking = this.tree.visible().filter((item) => item.row.questions.length).map((item) => item.row.id);
    const hidden = [...this.tree.rows.values()].filter((row) => row.questions.length).map((row) => row.id);
    const all = asking.length === hidden.length ? asking : hidden;
    if (!all.length) return;
    const next = all[(all.indexOf(this.#detail?.id) + 1) % all.length];
    this.#select(next, { push: !this.#isWide() });
    requestAnimationFrame(() => this.#detail?.body.scrollTo({ top: 0 }));
  }

  // Items

  #items() {
    const { filter } = this.finder;
    if (this.tab !== "timeline" || !this.#onlyPath || !this.#timing) return this.tree.visible(filter);
    return this.tree.visible(
      (row) => this.#timing.delay(row.id) > 0 && (filter?.(row) ?? true)
    );
  }

  async #drawTiming() {
    try {
      await this.#loadTiming();
      this.update();
    } catch { /* the bars are drawn without it */ }
  }

  #fold(closed) {
    if (closed) this.tree.collapseAll();
    else this.tree.expandAll();
    this.update();
  }

  // Keys

  /** Handle a key that no element has handled; returns whether it has a meaning here. */
  pressed(event) {
    switch (event.key) {
      case "/": this.#lookFor(); return true;
      case "1": case "2": case "3": case "4": this.#turnTo(TABS[Number(event.key) - 1][0]); return true;
      case "n": this.nextAsking(); return true;
      case "s": return this.#goToSource();
      case "e": this.#fold(false); return true;
      case "c": this.#fold(true); return true;
      case "Escape": return this.#escaped(event);
      default: return false;
    }
  }

  #lookFor() {
    if (!this.#hasRows) {
      this.#use("tree");
      history.replaceState(null, "", this.#address(this.#wantedNode));
      this.update();
    }
    this.finder.input.focus();
  }

  #escaped({ target }) {
    const { input } = this.finder;
    const inDetail = this.#detail?.element.contains(target);
    if (target === input || (input.value && !isTyping(target) && !inDetail)) {
      this.finder.clear();
      this.view.element.focus();
      return true;
    }
    if (!this.#detail) return false;
    if (inDetail && this.#isWide()) this.view.element.focus();
    else this.#closeDetail();
    return true;
  }

  #tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const now = TABS.findIndex(([name]) => name === this.tab);
    const next = (now + step + TABS.length) % TABS.length;
    event.preventDefault();
    this.#turnTo(TABS[next][0]);
    this.tabs[next].focus();
  }
}
