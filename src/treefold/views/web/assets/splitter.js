// The splitter between two panes, moved with a pointer or the arrow keys.

import { make, remember, remembered } from "./dom.js";

const LEAST = 20; // percent of the whole
const MOST = 75;
const USUAL = 42;
const STEP = 2;

export class Splitter {
  /** whole is the element that contains both panes; its --beside is the width of the second. */
  constructor(whole, label) {
    this.whole = whole;
    this.element = make("div.splitter", {
      role: "separator",
      tabindex: "0",
      "aria-orientation": "vertical",
      "aria-label": label,
      "aria-valuemin": LEAST,
      "aria-valuemax": MOST,
      keydown: (event) => this.#pressed(event),
      pointerdown: (event) => this.#drag(event),
    });
    this.#use(Number(remembered("split", USUAL)));
  }

  #use(percent) {
    this.percent = Math.min(MOST, Math.max(LEAST, Number.isFinite(percent) ? percent : USUAL));
    this.whole.style.setProperty("--beside", `${this.percent}%`);
    this.element.setAttribute("aria-valuenow", String(Math.round(this.percent)));
    remember("split", String(this.percent));
  }

  #pressed(event) {
    const step = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
    if (!step) return;
    event.preventDefault();
    this.#use(this.percent + step);
  }

  #drag(event) {
    event.preventDefault();
    const { element } = this;
    element.setPointerCapture(event.pointerId);
    const move = ({ clientX }) => {
      const { left, width } = this.whole.getBoundingClientRect();
      this.#use(((left + width - clientX) / width) * 100);
    };
    const end = () => element.removeEventListener("pointermove", move);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", end, { once: true });
    element.addEventListener("pointercancel", end, { once: true });
  }
}
