// The transcript of a call. Existing parts are not redrawn when more arrive.

import { icon, make, replaceContent, stateIcon } from "./dom.js";
import { copyButton } from "./copy.js";
import { markdown } from "./markdown.js";
import { copyable, fill, longText, oneLine, shownValue } from "./text.js";
import { many } from "./format.js";
import { isReturn } from "./tree.js";

const WHO = { system: "system", user: "user", text: "model", thinking: "thinking", call: "call", result: "result", returned: "returned" };
const FOLDED = 400; // characters; a longer system prompt is collapsed

/** Whether a part is from the model: consecutive ones are one response. */
export function isFromModel({ kind }) {
  return kind === "text" || kind === "thinking" || kind === "call";
}

export class TranscriptView {
  #drawn = [];
  #links = [];
  #live = null;

  /**
   * id is that of the call; link(node, path) gives a URL, row(node) a row; fork(k) forks after response k.
   * isFormatted: whether texts of the model are shown as Markdown.
   */
  constructor({ id, source, link, row, fork, isFormatted = true }) {
    Object.assign(this, { id, source, link, row, fork, isFormatted });
    this.element = make("ol.transcript", { "aria-label": "Transcript" });
  }

  show(parts) {
    let response = 0;
    let inside = false;
    parts.forEach((part, index) => {
      const begins = isFromModel(part) && !inside;
      if (begins) response += 1;
      inside = isFromModel(part);
      const returns = this.#returns(part);
      const sign = `${part.kind} ${part.length} ${part.node} ${returns} ${this.isFormatted} ${part.text}`;
      if (this.#drawn[index]?.sign === sign) return;
      const kind = returns && part.kind === "call" ? "returned" : WHO[part.kind] ? part.kind : "text";
      const element = this.#draw(part, kind, index, begins ? response : 0);
      element.hidden = returns && part.kind === "result"; // it only says that the agent has ended
      if (this.#drawn[index]) this.#drawn[index].element.replaceWith(element);
      else this.element.insertBefore(element, this.#live);
      this.#drawn[index] = { sign, element };
    });
    for (const { element } of this.#drawn.splice(parts.length)) element.remove();
  }

  /** Show the partial text of a response. */
  showLive(text) {
    if (!text) {
      this.#live?.remove();
      this.#live = null;
      return;
    }
    if (!this.#live) {
      this.#live = make(
        "li.part.text.live",
        { "aria-busy": "true" },
        make("div.who", {}, "model"),
        make("div.what", {}, make("pre.text", { dir: "auto" })),
      );
      this.element.append(this.#live);
    }
    const cut = text.length > 20_000 ? `… ${text.slice(-20_000)}` : text;
    fill(this.#live.querySelector("pre"), cut);
  }

  /** Update the states of linked calls. */
  tick() {
    for (const link of this.#links) {
      const row = this.row(link.node);
      if (!row || link.drawn === row.state) continue;
      link.drawn = row.state;
      replaceContent(link.element, stateIcon(row.state), make("span", {}, row.path));
    }
  }

  /** Scroll to the tool call of a node. */
  reveal(node) {
    const found = this.element.querySelector(`[data-node="${CSS.escape(String(node))}"]`);
    found?.scrollIntoView({ block: "center" });
    found?.classList.add("pointed-at");
    return Boolean(found);
  }

  /** Whether a part belongs to the call that returned the result of the agent. */
  #returns(part) {
    const row = part.node === null || part.node === undefined ? null : this.row(part.node);
    return Boolean(row && isReturn(row, this.row(this.id)));
  }

  #draw(part, kind, index, response) {
    const element = make(`li.part.${kind}`, { "data-node": kind === "call" ? part.node : null });
    const who = make("div.who", {}, WHO[kind]);
    if (response && this.fork) {
      const text = `Fork before response ${response}`;
      who.append(
        make(
          "button.quiet.fork-here",
          { type: "button", title: text, "aria-label": text, click: () => this.fork(response - 1) },
          icon("fork"),
        ),
      );
    }
    const whole = () => (part.text.length < part.length ? this.source.part(this.id, index) : part.text);
    const copy = copyButton(
      `Copy this ${kind === "returned" ? "result" : WHO[kind]}`,
      kind === "returned" ? () => copyable(returnedValue(part)) : whole,
    );
    element.append(who, make("div.what", {}, this.#content(part, kind, index), part.length ? copy : null));
    return element;
  }

  #content(part, kind, index) {
    const text = () => longText(
      part.text,
      {
        length: part.length,
        whole: () => this.source.part(this.id, index),
        format: this.isFormatted && kind === "text" ? markdown : null,
      },
    );
    switch (kind) {
      case "system": return part.length > FOLDED ? this.#folded(part, text) : text();
      case "thinking": return this.#thinking(part, text);
      case "call": return this.#call(part);
      case "returned": return shownValue(returnedValue(part), "Result");
      case "result": return [
        make(
          "div.call-line",
          {},
          part.error ? make("span.failed", {}, "failed") : null,
          this.#callLink(part),
        ),
        text(),
      ];
      default: return text();
    }
  }

  #thinking(part, text) {
    if (part.redacted && !part.text) return make("p.hint", {}, "Redacted thinking, which only the provider can read.");
    return this.#folded(part, text);
  }

  #folded(part, text) {
    const details = make("details", {}, make("summary", {}, many(part.length, "character")));
    details.addEventListener("toggle", () => details.append(text()), { once: true });
    return details;
  }

  #call(part) {
    return [
      make("div.call-line", {}, make("bdi.fn", {}, oneLine(part.name)), this.#callLink(part)),
      part.fault ? make("p.failed", {}, make("bdi", {}, oneLine(part.fault))) : null,
      Object.keys(part.args ?? {}).length ? shownValue(part.args, "Arguments") : null,
    ];
  }

  #callLink({ node, path }) {
    if (node === null || node === undefined) return null;
    const row = this.row(node);
    const element = make("a.node-link", {
      href: this.link(node, path),
      "aria-label": `Go to the call ${path}`,
    },
      row ? stateIcon(row.state) : null, make("span", {}, path));
    this.#links.push({ node, element, drawn: row?.state });
    return element;
  }
}

/** The result that a call of return_result has: its only argument, or all of them. */
function returnedValue({ args }) {
  const names = Object.keys(args ?? {});
  return names.length === 1 && names[0] === "result" ? args.result : args;
}
