// The page: the URL decides which view is shown, and one stream keeps it up to date.

import { icon, isTyping, make, remember, remembered, replaceContent, setText } from "./dom.js";
import { openHelp } from "./dialogs.js";
import { DifferenceView } from "./difference.js";
import { announce, noticePlaces, sentence, showToast } from "./notices.js";
import { questionCard } from "./questions.js";
import { RunView } from "./run.js";
import { RunsView, runsAddress } from "./runs.js";
import { TotalsView } from "./spent.js";
import { openSource, useToken } from "./source.js";
import { oneLine } from "./text.js";
import { Tree } from "./tree.js";
import { many } from "./format.js";

const KEPT = 6; // runs that were shown last, and are not loaded again
const LATER = "The program is stopped; it will be done when it runs again.";
const MOST = 40; // questions in the list of them
const TICK = 250; // milliseconds
const SECOND_TRY = 250; // milliseconds before a run is tried again that is listed and was not found; doubles
const LATEST_TRY = 8_000;
const THEMES = [["system", "as the system"], ["light", "light"], ["dark", "dark"]];

class App {
  runs = null; // those that the server has sent, until then null
  questions = [];
  driven = true;
  #runs = new Map(); // by number
  #ids = new Map(); // of top-level calls, by the number of their run
  #received = []; // the questions that the server has sent
  #answering = new Set(); // the ids of those whose answer is on its way: it may be refused
  #openQuestions = null; // the ids of the questions, once they are known
  #view = null;
  #stop = () => {};
  #announced = new Set();
  #state = ""; // of the connection
  #missing = null; // the run that was not found last: {number, wait}, in milliseconds
  #retry = 0; // the timer that tries it again

  constructor(source) {
    this.source = source;
    this.context = {
      source,
      trees: () => this.runs?.trees ?? [],
      otherRuns: () => (this.runs?.total ?? 0) > 1,
      detail: (id) => source.detail(id),
      pendingNote: () => (this.driven ? "" : ` ${LATER}`),
      open: (number) => this.go(`#/run/${number}`),
      compare: (a, b) => this.go(`#/compare/${a}/${b}`),
      go: (address) => this.go(address),
      isOpenQuestion: (id) => this.#openQuestions?.has(id) ?? true,
      answering: (id, isOnItsWay) => this.#noteAnswering(id, isOnItsWay),
      questionOf: (id) => this.questions.find(({ node }) => node === id),
      isPaused: (row) => this.questions.some(
        (one) => one.kind === "paused" && `${one.path}.`.startsWith(`${row.path}.`),
      ),
    };
    this.#build();
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.#pressed(event));
    setInterval(() => document.visibilityState === "visible" && this.#view?.tick?.(), TICK);
  }

  // Header and panels

  #build() {
    this.journal = make("bdi.journal");
    this.connection = make("span.connection", { role: "status" });
    this.questionsButton = make(
      "button.asked",
      {
        type: "button",
        hidden: true,
        "aria-expanded": "false",
        "aria-controls": "asked-panel",
        click: () => this.#toggleQuestions(),
      },
    );
    this.questionsPanel = make(
      "section.asked-panel", { id: "asked-panel", hidden: true, "aria-label": "Open questions" }
    );
    this.theme = make("button.quiet.round", { type: "button", click: () => this.#nextTheme() });
    this.main = make("main", { id: "main", tabindex: "-1" });
    this.noProgramBanner = make(
      "p.alone",
      { hidden: true, role: "status" },
      "The program of this journal is stopped. Actions are carried out when it runs again.",
    );
    const skip = make(
      "a.skip",
      { href: "#main", click: (event) => { event.preventDefault(); this.main.focus(); } },
      "Skip to the content",
    );
    document.body.append(skip,
      make("header.top", {},
        make(
          "a.brand",
          { href: "#/", "aria-label": "treefold: all runs" },
          icon("mark"),
          make("span", {}, "treefold"),
        ),
        this.journal, this.connection, make("span.gap"), this.questionsButton,
        this.source.live ? make(
          "a.round-link",
          { href: "#/totals", "aria-label": "Time and cost of many runs", title: "Time and cost of many runs" },
          icon("clock"),
        ) : null,
        this.theme,
        make(
          "button.quiet.round",
          { type: "button", "aria-label": "Keys", title: "Keys (?)", click: openHelp },
          make("span.key-sign", { "aria-hidden": "true" }, "?"),
        )),
      this.questionsPanel, this.noProgramBanner, this.main, ...noticePlaces());
    this.#useTheme(remembered("theme", "system"));
  }

  #useTheme(name) {
    const [theme, title] = THEMES.find(([one]) => one === name) ?? THEMES[0];
    this.themeName = theme;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    replaceContent(this.theme, icon({ system: "system", light: "sun", dark: "moon" }[theme]));
    this.theme.setAttribute("aria-label", `Colours: ${title}. Change them`);
    this.theme.title = `Colours: ${title}`;
  }

  #nextTheme() {
    const at = THEMES.findIndex(([name]) => name === this.themeName);
    const [next] = THEMES[(at + 1) % THEMES.length];
    remember("theme", next);
    this.#useTheme(next);
  }

  // Start

  async start() {
    const journal = this.source.journal();
    if (this.source.live) this.route(); // the stream sends everything first
    try {
      setText(this.journal, oneLine((await journal).name));
    } catch { /* the stream reports the error */ }
    if (this.source.live) return;
    this.#updateTrees(await this.source.runs());
    this.#updateQuestions({ questions: await this.source.questions() });
    const { trees } = this.runs;
    if (trees.length === 1 && !location.hash.startsWith("#/run/")) history.replaceState(
      null, "", `#/run/${trees[0].number}`
    );
    this.route();
  }

  #askForToken() {
    const input = make("input", { type: "text", autocomplete: "off", "aria-label": "Token" });
    const form = make("form.plain", {}, make("h1", {}, "This page needs its token"),
      make(
        "p",
        {},
        "Open the address that ",
        make("code", {}, "treefold view"),
        " printed; it ends in #token=… Or paste what follows the equals sign:",
      ),
      make("div.buttons", {}, input, make("button.primary", { type: "submit" }, "Open")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      useToken(this.source, input.value.trim().replace(/^.*#token=/, ""));
      this.#view = null;
      this.start();
    });
    replaceContent(this.main, form);
  }

  /** Say that there is no such run, until it is listed. */
  #showNotFound(number, why) {
    this.#view?.close?.();
    this.#view = null;
    this.#runs.delete(number);
    const { number: last, wait } = this.#missing ?? {};
    this.#missing = { number, wait: last === number ? Math.min(wait * 2 || SECOND_TRY, LATEST_TRY) : 0 };
    const id = this.#ids.get(number);
    this.#follow(null, id ? { about: id } : {});
    replaceContent(
      this.main,
      make(
        "div.plain",
        {},
        make("h1", { tabindex: "-1" }, "There is no such run"),
        make("p", {}, sentence(why)),
        make("p", {}, make("a", { href: "#/" }, "All runs")),
      ),
    );
  }

  // Routing

  go(address) {
    if (location.hash === address) this.route();
    else location.hash = address;
  }

  route() {
    const [place, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [page, ...rest] = place.split("/");
    const given = new URLSearchParams(query);
    const number = (text) => (/^\d+$/.test(text ?? "") ? Number(text) : null);
    this.#closeQuestions();
    if (page === "run" && number(rest[0])) {
      const tab = ["timeline", "flame", "time"].includes(rest[1]) ? rest[1] : "tree";
      const where = { tab, call: given.get("call"), from: given.get("from") };
      this.#found([number(rest[0])], ([id]) => this.#showRun(number(rest[0]), id, where));
    } else if (page === "compare" && number(rest[0]) && number(rest[1])) {
      const runs = [number(rest[0]), number(rest[1])];
      this.#found(runs, (ids) => this.#showCompare(runs, ids));
    }
    else if (page === "totals") this.#showTotals();
    else this.#showRuns(Object.fromEntries(given));
  }

  /** Call show with the ids of runs, at once if they are known. */
  async #found(numbers, show) {
    const wanted = location.hash;
    clearTimeout(this.#retry);
    for (const number of numbers) {
      if (this.#ids.has(number)) continue;
      try {
        this.#ids.set(number, await this.source.find(number));
      } catch (error) {
        if (location.hash !== wanted) return;
        if (error.status === 401) this.#askForToken();
        else if (error.status < 500) this.#showNotFound(number, error.message);
        else {
          this.#connected("reconnecting");
          this.#retry = setTimeout(() => this.route(), SECOND_TRY);
        }
        return;
      }
      if (location.hash !== wanted) return;
    }
    show(numbers.map((number) => this.#ids.get(number)));
  }

  #swap(view) {
    this.#view?.close?.();
    this.#view = view;
    replaceContent(this.main, view.element);
    (view.element.querySelector("h1") ?? this.main).focus({ preventScroll: true });
  }

  #showRuns(query) {
    if (this.#view instanceof RunsView) this.#view.setQuery(query);
    else {
      this.#swap(new RunsView({
        source: this.source,
        query,
        open: (number) => this.go(`#/run/${number}`),
        change: (changed) => {
          history.replaceState(null, "", runsAddress(changed));
          this.route();
        },
      }));
      document.title = "Runs · treefold";
      if (!this.source.live) this.#view.show(this.runs);
    }
    this.#follow(null, query);
  }

  #showRun(number, id, where) {
    if (!(this.#view instanceof RunView) || this.#view.tree.number !== number) {
      const tree = this.#runs.get(number) ?? new Tree(id, number);
      if (this.#openQuestions) tree.setQuestions(this.#openQuestions);
      this.#setRun(tree);
      this.#runs.delete(number);
      this.#runs.set(number, tree);
      if (this.#runs.size > KEPT) this.#runs.delete(this.#runs.keys().next().value);
      this.#swap(new RunView(tree, this.context));
      this.#follow(tree);
    }
    this.#view.show(where);
  }

  #showTotals() {
    if (this.#view instanceof TotalsView) return;
    this.#swap(new TotalsView({ load: (runs) => this.source.totals(runs) }));
    document.title = "Time and cost · treefold";
    this.#follow(null);
  }

  #showCompare(runs, ids) {
    const [a, b] = runs;
    if (this.#view instanceof DifferenceView && this.#view.a === a && this.#view.b === b) return;
    this.#swap(new DifferenceView(runs, ids, this.context));
    this.#follow(null);
  }

  // Updates

  #follow(tree, query = {}) {
    this.#stop();
    const view = this.#view;
    this.#stop = this.source.follow(tree?.id ?? null, tree?.seq ?? 0, {
      rows: (data) => {
        if (tree?.id !== data.tree) return;
        this.#missing = null;
        tree.merge(data);
        view.update();
      },
      text: (data) => {
        if (!tree) return;
        if (tree.write(data)) view.wrote(data.node);
        else view.missed(data.node);
      },
      trees: (data) => this.#updateTrees(data),
      questions: (data) => this.#updateQuestions(data),
      connection: (state, why, status) => {
        if (state === "connected") tree?.texts.clear(); // the server sends partial texts again
        this.#connected(state, why, status, tree);
      },
    }, query);
  }

  #connected(state, why, status, tree) {
    this.#state = state === "connected" ? "live" : state;
    this.#drawConnection();
    if (state !== "refused") return;
    if (status === 401) this.#askForToken();
    else if (status === 404 && tree) this.#showNotFound(tree.number, why);
    else showToast(sentence(why), { wrong: true });
  }

  /** Show the state of the connection, and whether a program has the journal open. */
  #drawConnection() {
    const words = {
      live: "program running",
      stopped: "program stopped",
      reconnecting: "reconnecting…",
      refused: "not connected",
      file: "saved run",
    };
    const state = this.#state === "live" && !this.driven ? "stopped" : this.#state;
    // Until the runs are known, so is not whether a program runs.
    setText(this.connection, state === "live" && !this.runs ? "" : words[state] ?? "");
    this.connection.dataset.state = state;
    document.body.classList.toggle("stopped", !this.noProgramBanner.hidden);
  }

  #updateTrees(runs) {
    this.runs = runs;
    for (const tree of runs.trees) this.#ids.set(tree.number, tree.id);
    this.driven = runs.driven ?? this.driven;
    this.noProgramBanner.hidden = this.driven || !this.source.live || !runs.open;
    for (const tree of this.#runs.values()) this.#setRun(tree);
    this.#drawConnection();
    if (this.#view instanceof RunsView) this.#view.show(runs);
    else if (this.#view) this.#view.update?.();
    else this.#retryMissing();
  }

  /** Show a run that was not found once it is listed; not at once if it is not found although it is. */
  #retryMissing() {
    const { number, wait } = this.#missing ?? {};
    if (!this.runs.trees.some((tree) => tree.number === number)) return;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#view ?? this.route(), wait);
  }

  #setRun(tree) {
    const run = this.runs?.trees.find((one) => one.id === tree.id);
    if (run) tree.setRun(run);
  }

  #noteAnswering(id, isOnItsWay) {
    if (isOnItsWay) this.#answering.add(id);
    else {
      this.#answering.delete(id);
      this.#updateQuestions({ questions: this.#received });
    }
  }

  #updateQuestions({ questions: received }) {
    this.#received = received;
    const ids = new Set(received.map(({ id }) => id));
    const kept = this.questions.filter(({ id }) => this.#answering.has(id) && !ids.has(id));
    const questions = [...received, ...kept];
    this.questions = questions;
    this.#openQuestions = new Set(questions.map(({ id }) => id));
    for (const tree of this.#runs.values()) tree.setQuestions(this.#openQuestions);
    this.questionsButton.hidden = questions.length === 0;
    replaceContent(
      this.questionsButton,
      icon("ask"),
      make("span", {}, String(questions.length)),
      make("span.word", {}, questions.length === 1 ? "question" : "questions"),
    );
    this.questionsButton.setAttribute("aria-label", `${many(questions.length, "question")} for you`);
    for (const question of questions) {
      if (this.#announced.has(question.id)) continue;
      this.#announced.add(question.id);
      announce(`${oneLine(question.fn ?? "A call")} asks: ${oneLine(question.text).slice(0, 300)}`);
    }
    if (this.#view instanceof RunView) this.#view.update();
    if (!this.questionsPanel.hidden) this.#fillQuestions();
    if (!questions.length) this.#closeQuestions();
  }

  // Open questions

  #toggleQuestions() {
    if (!this.questionsPanel.hidden) {
      this.#closeQuestions();
      return;
    }
    this.#fillQuestions();
    this.questionsPanel.hidden = false;
    this.questionsButton.setAttribute("aria-expanded", "true");
    this.questionsPanel.querySelector("a, button, textarea")?.focus();
  }

  /** Existing cards are kept, with what the user has typed into them. */
  #fillQuestions() {
    const there = new Map([...this.questionsPanel.children].map((card) => [card.dataset.question, card]));
    for (const question of this.questions.slice(0, MOST)) {
      if (there.delete(question.id)) continue;
      const { path, fn } = question;
      const link = make(
        "a",
        { href: `#/run/${path.replace(/\..*/, "")}?call=${path}` },
        make("span.path", {}, path),
        make("bdi", {}, oneLine(fn)),
      );
      this.questionsPanel.append(questionCard(question, link, this.context));
    }
    for (const card of there.values()) card.remove();
    const more = this.questions.length - MOST;
    if (more > 0) this.questionsPanel.append(
      make("p.hint", {}, `and ${more} more after these`)
    );
  }

  #closeQuestions() {
    if (this.questionsPanel.hidden) return;
    this.questionsPanel.hidden = true;
    this.questionsPanel.replaceChildren();
    this.questionsButton.setAttribute("aria-expanded", "false");
  }

  // Keys

  #pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && !this.questionsPanel.hidden) {
      this.#closeQuestions();
      this.questionsButton.focus();
      return;
    }
    if (isTyping(event.target) && event.key !== "Escape") return;
    if (event.key === "?") openHelp();
    else if (event.key === "/" && this.#view?.search && !this.#view.pressed) this.#view.search.focus();
    else if (!this.#view?.pressed?.(event)) return;
    event.preventDefault();
  }
}

new App(openSource()).start();
