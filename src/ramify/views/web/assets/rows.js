// A long list of which only what is in sight is in the document. All rows are equally high.

const BEYOND = 10; // rows above and below what is in sight, so that scrolling shows no gaps

export class Rows {
  items = [];
  #elements = new Map();
  #pending = false;

  /**
   * viewport scrolls and holds canvas; key(item) names an item; draw(item) makes its element;
   * redraw(element, item, index) brings it up to date. keep() is the index of a row that stays in
   * the document when it is out of sight: the one that is active.
   */
  constructor({ viewport, canvas, key, draw, redraw, keep = () => -1 }) {
    Object.assign(this, { viewport, canvas, key, draw, redraw, keep });
    viewport.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.resized = new ResizeObserver(() => this.#soon());
    this.resized.observe(viewport);
  }

  close() {
    this.resized.disconnect();
  }

  get height() {
    return parseFloat(getComputedStyle(this.canvas).getPropertyValue("--row-height")) || 28;
  }

  show(items) {
    this.items = items;
    this.paint();
  }

  #soon() {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.paint();
    });
  }

  /** Bring what is in sight up to date. */
  paint() {
    const { viewport, canvas, items } = this;
    const height = this.height;
    canvas.style.height = `${items.length * height}px`;
    const above = Math.max(0, viewport.scrollTop - canvas.offsetTop);
    const first = Math.max(0, Math.floor(above / height) - BEYOND);
    const last = Math.min(items.length, Math.ceil((above + viewport.clientHeight) / height) + BEYOND);
    const indexes = [];
    for (let index = first; index < last; index += 1) indexes.push(index);
    const kept = this.keep();
    if (kept >= 0 && kept < items.length && (kept < first || kept >= last)) indexes.push(kept);
    const gone = new Set(this.#elements.keys());
    for (const index of indexes) {
      const item = items[index];
      const key = this.key(item);
      gone.delete(key);
      let element = this.#elements.get(key);
      if (!element) {
        element = this.draw(item);
        this.#elements.set(key, element);
        canvas.append(element);
      }
      element.style.transform = `translateY(${index * height}px)`;
      this.redraw(element, item, index);
    }
    for (const key of gone) {
      this.#elements.get(key).remove();
      this.#elements.delete(key);
    }
  }

  element(key) {
    return this.#elements.get(key);
  }

  /** Scroll just so far that a row is in sight, below whatever sticks to the top. */
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
