// A virtual list: only rows in view are in the document. All rows have the same height.

const SETTLED = 120; // milliseconds without scrolling, after which rows are put into document order
const OVERSCAN = 10; // rows above and below the view, so that scrolling shows no gaps

export class Rows {
  items = [];
  painted = () => {}; // called after each change of what is in view
  #shown = [];
  #elements = new Map();
  #pending = false;
  #moving = false;
  #settling = 0;

  /**
   * viewport scrolls and contains canvas; key(item) identifies an item; draw() creates an element,
   * and redraw(element, item, index) updates it for an item. keep() is the index of a row that stays
   * in the document when it is out of view: the active one.
   */
  constructor({ viewport, canvas, key, draw, redraw, keep = () => -1 }) {
    Object.assign(this, { viewport, canvas, key, draw, redraw, keep });
    viewport.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.resized = new ResizeObserver(() => this.#requestPaint());
    this.resized.observe(viewport);
  }

  close() {
    this.resized.disconnect();
    clearTimeout(this.#settling);
  }

  get height() {
    return parseFloat(getComputedStyle(this.canvas).getPropertyValue("--row-height")) || 28;
  }

  show(items) {
    this.items = items;
    this.paint();
  }

  /** Reordering elements is slow: while scrolling, they are positioned, but not reordered. */
  #scrolled() {
    this.#moving = true;
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => {
      this.#moving = false;
      this.paint();
    }, SETTLED);
    this.#requestPaint();
  }

  #requestPaint() {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.paint();
    });
  }

  /** Update the rows in view. */
  paint() {
    const { viewport, canvas, items } = this;
    const height = this.height;
    canvas.style.height = `${items.length * height}px`;
    const above = Math.max(0, viewport.scrollTop - canvas.offsetTop);
    const first = Math.max(0, Math.floor(above / height) - OVERSCAN);
    const last = Math.min(items.length, Math.ceil((above + viewport.clientHeight) / height) + OVERSCAN);
    const indexes = [];
    const kept = this.keep();
    if (kept >= 0 && kept < first) indexes.push(kept);
    for (let index = first; index < last; index += 1) indexes.push(index);
    if (kept >= last && kept < items.length) indexes.push(kept);
    this.#place(indexes, height);
    this.#shown = indexes;
    this.painted();
  }

  /** The items in view, and a few around it. */
  visible() {
    return this.#shown.map((index) => this.items[index]).filter((item) => item !== undefined);
  }

  /** Put rows into the document, in order; elements of removed rows are reused. */
  #place(indexes, height) {
    const { canvas, items } = this;
    const wanted = new Set(indexes.map((index) => this.key(items[index])));
    const spare = [];
    for (const [key, element] of this.#elements) {
      if (wanted.has(key)) continue;
      this.#elements.delete(key);
      spare.push(element);
    }
    let next = canvas.firstElementChild;
    for (const index of indexes) {
      const item = items[index];
      const key = this.key(item);
      let element = this.#elements.get(key);
      if (!element) {
        element = spare.pop() ?? this.draw();
        this.#elements.set(key, element);
      }
      if (!element.isConnected || (!this.#moving && element !== next)) canvas.insertBefore(element, next);
      else if (element === next) next = next.nextElementSibling;
      element.style.transform = `translateY(${index * height}px)`;
      this.redraw(element, item, index);
    }
    for (const element of spare) element.remove();
  }

  element(key) {
    return this.#elements.get(key);
  }

  /** Scroll just far enough that a row is in view, below the sticky header. */
  reveal(index) {
    const { viewport, canvas } = this;
    const top = index * this.height;
    const room = viewport.clientHeight - canvas.offsetTop;
    if (top < viewport.scrollTop) viewport.scrollTop = top;
    else if (top + this.height > viewport.scrollTop + room) viewport.scrollTop = top + this.height - room;
  }

  get page() {
    return Math.max(1, Math.floor((this.viewport.clientHeight - this.canvas.offsetTop) / this.height) - 1);
  }
}
