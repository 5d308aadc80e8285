// A table or tree that is navigated with the keyboard. One row is active: the grid itself has the
// focus and refers to that row, so the row stays active when it is scrolled out of view.

import { make, setAttribute } from "./dom.js";
import { Rows } from "./rows.js";

let made = 0;

export class Grid {
  active = null; // the key of a row

  /**
   * name is the class of the element; columns are [class, title], and header is the index of the
   * row header; key(item) identifies an item; cells() creates the content of the cells of a row, and
   * redraw(cells, item, row) updates it for an item. In a tree, items have level, position, size and
   * expanded. Callbacks: moved(item) after a move with the keyboard, opened(item) for Enter or a
   * click, toggled(item, open) for Left and Right.
   */
  constructor(
    {
      name,
      role = "treegrid",
      label,
      columns,
      header = 0,
      key,
      cells,
      redraw,
      moved,
      opened,
      toggled,
      parent,
    },
  ) {
    Object.assign(this, { role, header, key, cells, redraw, moved, opened, toggled, parent });
    this.prefix = `grid${made += 1}`;
    this.head = make(
      "div.grid-head",
      { role: "row" },
      columns.map(([kind, title]) => make(`div.cell.${kind}`, { role: "columnheader" }, title)),
    );
    this.body = make("div.grid-body", { role: "rowgroup" });
    this.columns = columns;
    this.element = make(`div.grid.${name}`, {
      role,
      "aria-label": label,
      tabindex: "0",
      keydown: (event) => this.#pressed(event),
    },
      make("div.grid-top", { role: "rowgroup" }, this.head), this.body);
    this.rows = new Rows({
      viewport: this.element,
      canvas: this.body,
      key,
      draw: () => this.#draw(),
      redraw: (element, item, index) => this.#redraw(element, item, index),
      keep: () => this.index,
    });
  }

  close() {
    this.rows.close();
  }

  get items() {
    return this.rows.items;
  }

  get index() {
    return this.active === null ? -1 : this.items.findIndex((item) => this.key(item) === this.active);
  }

  show(items) {
    this.element.setAttribute("aria-rowcount", String(items.length + 1));
    this.element.classList.toggle("empty", items.length === 0);
    this.rows.show(items);
    this.#point();
  }

  /** Make a row active, without calling a callback. */
  activate(key, { reveal = true } = {}) {
    this.active = key;
    const index = this.index;
    if (index >= 0 && reveal) this.rows.reveal(index);
    this.rows.paint();
    this.#point();
  }

  #point() {
    const element = this.active === null ? null : this.rows.element(this.active);
    if (element) this.element.setAttribute("aria-activedescendant", element.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #draw() {
    const cells = this.cells().map((content, at) => {
      const kind = this.columns[at][0];
      return make(`div.cell.${kind}`, { role: at === this.header ? "rowheader" : "gridcell" }, content);
    });
    const row = make("div.row", { role: "row", click: (event) => this.#clicked(event, row.key) }, cells);
    row.cells = cells;
    return row;
  }

  #redraw(element, item, index) {
    const key = this.key(item);
    if (element.key !== key) {
      element.key = key;
      element.id = `${this.prefix}-${key}`;
      element.drawn = null;
    }
    setAttribute(element, "aria-rowindex", index + 2);
    const active = key === this.active;
    element.classList.toggle("active", active);
    setAttribute(element, "aria-selected", active);
    if (item.level !== undefined) {
      setAttribute(element, "aria-level", item.level);
      setAttribute(element, "aria-posinset", item.position);
      setAttribute(element, "aria-setsize", item.size);
      setAttribute(element, "aria-expanded", item.expanded);
      element.style.setProperty("--level", String(Math.min(item.level - 1, 24)));
    }
    this.redraw(element.cells, item, element);
  }

  #clicked(event, key) {
    const item = this.items.find((one) => this.key(one) === key);
    if (!item || event.target.closest("a, button:not(.toggle)")) return;
    if (event.target.closest(".toggle") && item.expanded !== null) {
      this.toggled(item, !item.expanded);
      return;
    }
    if (getSelection()?.type === "Range") return; // the user selects text
    this.activate(key, { reveal: false });
    this.opened?.(item);
  }

  #pressed(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = this.#step(event.key);
    if (step === null) return;
    event.preventDefault();
    step();
  }

  #step(key) {
    const { items, index } = this;
    if (!items.length) return null;
    const go = (to) => () => this.#go(Math.max(0, Math.min(items.length - 1, to)));
    const item = items[index];
    switch (key) {
      case "ArrowDown": case "j": return go(index + 1);
      case "ArrowUp": case "k": return go(index < 0 ? 0 : index - 1);
      case "Home": return go(0);
      case "End": return go(items.length - 1);
      case "PageDown": return go(index + this.rows.page);
      case "PageUp": return go(index - this.rows.page);
      case "ArrowRight": return item && this.#inwards(item, index, go);
      case "ArrowLeft": return item && this.#outwards(item, go);
      case "Enter": case " ": return item ? () => this.opened?.(item, { byKey: true }) : null;
      default: return null;
    }
  }

  #inwards(item, index, go) {
    if (item.expanded === false) return () => this.toggled(item, true);
    return item.expanded ? go(index + 1) : () => {};
  }

  #outwards(item, go) {
    if (item.expanded && !this.parent?.locked) return () => this.toggled(item, false);
    const above = this.items.slice(0, this.index).findLastIndex((one) => one.level === item.level - 1);
    return above >= 0 ? go(above) : () => {};
  }

  #go(index) {
    const item = this.items[index];
    this.activate(this.key(item));
    this.moved?.(item);
  }
}
