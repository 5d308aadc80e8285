// The details of one call.

import { askIcon, icon, make, remember, remembered, replaceContent, setText, stateIcon } from "./dom.js";
import { actionButtons, fork } from "./actions.js";
import { copyButton } from "./copy.js";
import { markdown } from "./markdown.js";
import { sentence } from "./notices.js";
import { questionCard } from "./questions.js";
import { Tabs } from "./tabs.js";
import { splitBar, splitList, splitOf } from "./timing.js";
import { copyable, longText, oneLine, shownValue } from "./text.js";
import { TranscriptView } from "./transcript.js";
import { ANSWERED, HELD_BACK, duration, elapsed, exactly, grouped, many, money, when } from "./format.js";

const REFRESH_INTERVAL = 300; // milliseconds, at least, between two requests for a call that changes
const NEAR_END = 60; // pixels from the end, within which new text scrolls the pane along

let preferred = null; // the tab that the user chose last; the next call is shown with it, too

export class DetailView {
  #detail = null;
  #drawn = new Map();
  #asked = -1;
  #busy = false;
  #closed = false;
  #pointAt = null;

  /** context is that of actions.js, with link(node), tree (rows) and close(); from is a child to reveal. */
  constructor(id, context, from = null) {
    Object.assign(this, { id, context });
    this.#pointAt = from;
    this.crumbs = make("nav.crumbs", { "aria-label": "Called by" });
    this.title = make("h2", { tabindex: "-1" });
    this.facts = make("p.facts");
    this.buttons = make("div.actions", { role: "group", "aria-label": "Actions on this call" });
    const places = (...names) => names.map((name) => [name, make(`div.place.${name}`)]);
    const parts = {
      above: places("questions", "fault", "exception", "notices"),
      conversation: places("transcript"),
      values: places("outputs", "values", "inputs", "stack"),
      raw: places("raw"),
      usage: places("usage", "time"),
    };
    this.places = Object.fromEntries(Object.values(parts).flat());
    const panel = (name) => make(`div.tab-panel.${name}-panel`, {}, parts[name].map(([, place]) => place));
    const panels = [
      ["conversation", "Conversation", panel("conversation")],
      ["values", "Input and output", panel("values")],
      ["raw", "Raw", panel("raw")],
      ["usage", "Usage", panel("usage")],
    ];
    this.tabs = new Tabs("About this call", panels, (name) => {
      preferred = name;
      this.formatButton.hidden = !this.#hasFormats();
      this.#drawRaw();
      this.#drawTime();
    });
    this.isFormatted = remembered("formatted", "yes") === "yes";
    this.formatButton = this.#drawFormatButton();
    this.body = make(
      "div.detail-body", { tabindex: "-1" }, parts.above.map(([, place]) => place), panels.map(([, , one]) => one)
    );
    this.element = make("aside.detail", { "aria-label": "Call" },
      make("header", {},
        make(
          "div.detail-top",
          {},
          this.crumbs,
          make(
            "button.quiet.round",
            { type: "button", "aria-label": "Close this call", click: () => context.close() },
            icon("close"),
          ),
        ),
        make("div.title-line", {}, this.title, this.buttons),
        this.facts,
        this.tabs.element,
        this.formatButton),
      this.body);
    this.#offerTabs(this.row);
    this.tick();
    this.refresh();
  }

  /** Offer the conversation only if there is one, and show the tab that the user chose last. */
  #offerTabs(call) {
    const talks = Boolean(call?.agent || call?.transcript?.length);
    this.tabs.offer("conversation", talks);
    const usual = talks ? "conversation" : "values";
    const wanted = preferred !== null && this.tabs.offers(preferred) ? preferred : usual;
    if (this.tabs.current !== wanted) this.tabs.show(wanted);
    this.formatButton.hidden = !this.#hasFormats();
  }

  get row() {
    return this.context.tree.rows.get(this.id);
  }

  close() {
    this.#closed = true;
  }

  /** Load the call again if it has changed. */
  changed() {
    this.tick();
    if (this.#detail) this.#drawQuestions(this.#detail);
    if (this.row && this.row.seq !== this.#asked) this.refresh();
  }

  async refresh() {
    if (this.#busy || this.#closed) return;
    this.#busy = true;
    this.#asked = this.row?.seq ?? this.#asked;
    try {
      this.#show(await this.context.detail(this.id));
      replaceContent(this.places.fault);
    } catch (error) {
      // Keep what is shown; the header already says that there is no connection.
      if (!this.#detail) replaceContent(this.places.fault, make("p.failed", { role: "alert" }, error.message));
      this.#asked = -1;
    }
    setTimeout(() => {
      this.#busy = false;
      if (!this.#closed && this.row && this.row.seq !== this.#asked) this.refresh();
    }, REFRESH_INTERVAL);
  }

  /** Show partial text, and keep the end in view if it was. */
  write() {
    if (!this.transcript) return;
    const { body } = this;
    const atEnd = body.scrollHeight - body.scrollTop - body.clientHeight < NEAR_END;
    const text = this.context.tree.texts.get(this.id) ?? "";
    if (text) this.transcript.showLive(text);
    else this.refresh(); // the partial text stays until the transcript has it
    if (atEnd) body.scrollTop = body.scrollHeight;
  }

  tick() {
    const row = this.row ?? this.#detail;
    if (!row) return;
    this.#drawIfChanged(
      "head",
      [row.path, row.fn, row.agent, row.state, row.questions.length, this.context.isPaused(row)],
      () => this.#head(row),
    );
    // From the same source as the usage table, which may be older than the row, so that both agree.
    const { total_tokens: tokens, total_cost: cost } = this.#detail ?? row;
    const spent = tokens ? [`${grouped(tokens)} tokens`, cost === null ? "price unknown" : money(cost)] : [];
    setText(
      this.facts,
      [
        row.model && oneLine(row.model),
        row.started !== null && elapsed(row),
        ...spent,
        row.started !== null && `since ${when(row.started)}`,
      ].filter(Boolean).join(" · "),
    );
    this.facts.title = exactly(row.started);
    this.transcript?.tick();
  }

  #head(row) {
    const path = this.context.tree.pathTo(row.id).slice(0, -1);
    const shown = path.length > 4 ? [path[0], null, ...path.slice(-2)] : path;
    replaceContent(this.crumbs, shown.length ? make("ol", {}, shown.map((above) => make("li", {}, above
      ? make(
        "a", { href: this.context.link(above.id, row.id) }, make("bdi", {}, oneLine(above.fn))
      ) : "…"))) : make("span.hint", {}, "Top-level call"));
    replaceContent(
      this.title,
      row.questions.length ? askIcon() : stateIcon(row.state),
      make("span.path", {}, row.path),
      make("bdi", {}, oneLine(row.fn)),
      row.agent ? icon("agent", "agent") : null,
    );
    this.element.setAttribute("aria-label", `Call ${row.path} ${oneLine(row.fn)}`);
    replaceContent(this.buttons, actionButtons(row, this.context));
  }

  /** Draw only if the data has changed. */
  #drawIfChanged(name, data, draw) {
    const sign = JSON.stringify(data) ?? "";
    if (this.#drawn.get(name) === sign) return;
    this.#drawn.set(name, sign);
    draw();
  }

  #show(detail) {
    if (this.#closed) return;
    this.#detail = detail;
    const { places } = this;
    const put = (name, data, ...content) => this.#drawIfChanged(
      name, data, () => replaceContent(places[name], ...content.map((one) => one?.()))
    );
    this.#offerTabs(detail);
    this.#drawQuestions(detail);
    put(
      "exception",
      detail.exception,
      () => detail.exception && section(
        "Exception",
        make("p.failed.exception-type", {}, make("bdi", {}, oneLine(detail.exception.type))),
        longText(detail.exception.message),
        copyButton("Copy the exception", () => `${detail.exception.type}: ${detail.exception.message}`),
      ),
    );
    const hasOutput = detail.state === "success";
    put(
      "outputs",
      [hasOutput, detail.outputs, this.isFormatted],
      () => hasOutput && section(
        "Output",
        shownValue(detail.outputs, "Output", detail.agent && this.isFormatted ? markdown : null),
        copyButton("Copy the output", () => copyable(detail.outputs)),
      ),
    );
    put(
      "values",
      detail.values,
      () => detail.values.length > 0 && section(
        `Yielded values (${detail.values.length})`,
        detail.values.slice(-50).map((value) => shownValue(value)),
      ),
    );
    put(
      "notices",
      detail.notices,
      () => detail.notices.length > 0 && section(
        "Notices",
        make(
          "ul.notices", {}, detail.notices.map((notice) => make("li", {}, make("bdi", {}, oneLine(notice))))
        ),
      ),
    );
    put(
      "inputs",
      detail.inputs,
      () => section(
        "Inputs",
        ...(Object.keys(detail.inputs).length ? [
          shownValue(detail.inputs, "Inputs"),
          copyButton("Copy the inputs", () => copyable(detail.inputs)),
        ] : [make("p.hint", {}, "none")]),
      ),
    );
    this.#transcript(detail);
    put(
      "usage",
      [detail.usage, detail.total_usage, detail.cost, detail.total_cost],
      () => detail.total_usage.total > 0
        ? section("Tokens and cost", usageTable(detail))
        : section("Tokens and cost", make("p.hint", {}, "No model was used.")),
    );
    this.#drawRaw();
    this.#drawTime();
    this.#drawIfChanged("stack", true, () => replaceContent(places.stack, this.#stack()));
    this.tick();
  }

  /** Draw the open questions of a call, that they are answered, or why no process runs it. */
  #drawQuestions({ questions, held_back: heldBack }) {
    const waiting = questions.filter(({ id }) => this.context.isOpenQuestion(id));
    const answered = this.row?.status === ANSWERED;
    this.#drawIfChanged("questions", [waiting, answered, heldBack], () => replaceContent(
      this.places.questions,
      waiting.map((question) => questionCard(question, make("span", {}, "This call"), this.context)),
      answered ? make("p.hint", {}, sentence(ANSWERED)) : null,
      heldBack ? make("p.hint", {}, sentence(HELD_BACK + heldBack)) : null,
    ));
  }

  #transcript(detail) {
    if (!detail.agent && !detail.transcript.length) return;
    if (!this.transcript) {
      this.transcript = new TranscriptView({
        id: this.id,
        source: this.context.source,
        link: (node) => this.context.link(node),
        row: (node) => this.context.tree.rows.get(node),
        fork: this.context.source.live ? (at) => fork(this.row ?? detail, this.context, at) : null,
        isFormatted: this.isFormatted,
      });
      replaceContent(this.places.transcript, this.transcript.element);
    }
    this.transcript.show(detail.transcript);
    const { texts } = this.context.tree;
    if (detail.partial && !this.context.source.live) texts.set(this.id, detail.partial);
    this.transcript.showLive(texts.get(this.id) ?? "");
    if (this.#pointAt !== null && this.transcript.reveal(this.#pointAt)) this.#pointAt = null;
  }

  /** A button that shows texts of the model as Markdown, or as they are. */
  #drawFormatButton() {
    const button = make(
      "button.format",
      { type: "button", "aria-pressed": String(this.isFormatted), title: "Show the model's texts as Markdown" },
      "Markdown",
    );
    button.addEventListener("click", () => {
      this.isFormatted = !this.isFormatted;
      remember("formatted", this.isFormatted ? "yes" : "no");
      button.setAttribute("aria-pressed", String(this.isFormatted));
      if (this.transcript) this.transcript.isFormatted = this.isFormatted;
      if (this.#detail) this.#show(this.#detail);
    });
    return button;
  }

  /** Whether the current tab may have a text of a model. */
  #hasFormats() {
    return this.tabs.offers("conversation") && ["conversation", "values"].includes(this.tabs.current);
  }

  /** All that is known about the call, as JSON; it may be large, so it is drawn only to be seen. */
  #drawRaw() {
    if (this.tabs.current !== "raw" || !this.#detail) return;
    this.#drawIfChanged("raw", this.#detail, () => {
      const text = JSON.stringify(this.#detail, null, 2);
      const shown = longText(text, { label: "The call as JSON", first: 6_000 });
      shown.classList.add("json");
      replaceContent(this.places.raw, section("JSON", shown, copyButton("Copy the JSON", () => text)));
    });
  }

  /** Where the time of the call went. */
  async #drawTime() {
    if (this.tabs.current !== "usage") return;
    let timing;
    try {
      timing = await this.context.timing();
    } catch {
      return; // an error is shown where the run is timed
    }
    const split = splitOf(timing.spans(this.id));
    const whole = Object.values(split).reduce((sum, seconds) => sum + seconds, 0);
    const onPath = timing.delay(this.id);
    this.#drawIfChanged("time", [split, onPath], () => replaceContent(
      this.places.time,
      whole > 0 ? section(
        "Time",
        splitBar(split, whole),
        splitList(split, whole),
        make("p.hint", {}, onPath > 0
          ? `${duration(onPath)} of its own time are on the critical path of the run`
          : "Not on the critical path of the run: it delayed nothing"),
      ) : null,
    ));
  }

  #stack() {
    const list = make("ol.stack");
    const details = make("details", {}, make("summary", {}, "Call stack"), list);
    details.addEventListener("toggle", async () => {
      if (!details.open) return;
      try {
        replaceContent(list, (await this.context.source.stack(this.id)).map((frame) => this.#frame(frame)));
      } catch (error) {
        replaceContent(list, make("li.failed", {}, error.message));
      }
    });
    return section("", details);
  }

  #frame(frame) {
    const id = frame.node_id ?? frame.id;
    const row = this.context.tree.rows.get(id);
    const name = frame.function ?? frame.fn;
    const facts = [
      frame.model,
      frame.responses ? many(frame.responses, "response") : "",
    ].filter(Boolean).join(", ");
    return make("li", { "aria-current": id === this.id ? "true" : null },
      row ? stateIcon(row.state) : null, make(
        "a",
        { href: this.context.link(id) },
        make("span.path", {}, frame.path),
        make("bdi.fn", {}, oneLine(name)),
      ),
      make(
        "bdi.args", {}, oneLine(frame.arguments ?? frame.args ?? "")
      ), facts ? make("span.hint", {}, oneLine(facts)) : null);
  }
}

function section(title, ...content) {
  return make("section", {}, title && make("h3", {}, title), content);
}

const KINDS = ["input", "cache_read", "cache_write", "reasoning", "output", "total"];

function usageTable(detail) {
  const rows = KINDS.filter(
    (kind) => detail.total_usage[kind]
  ).map((kind) => make("tr", { class: kind === "total" ? "total" : null },
    make("th", { scope: "row" }, kind.replace("_", " ")), make("td", {}, grouped(detail.usage[kind] ?? 0)), make(
      "td", {}, grouped(detail.total_usage[kind])
    )));
  return make("table.usage", {},
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        make("th", { scope: "col" }, "Tokens"),
        make("th", { scope: "col" }, "this call"),
        make("th", { scope: "col" }, "with calls below"),
      ),
    ),
    make(
      "tbody",
      {},
      rows,
      make(
        "tr",
        {},
        make("th", { scope: "row" }, "cost"),
        make("td", {}, money(detail.cost)),
        make("td", {}, money(detail.total_cost)),
      ),
    ));
}

