// A row of tabs and their panels. The arrow keys, Home and End move between the tabs.

import { make } from "./dom.js";

let made = 0;

export class Tabs {
  /** panels are [name, title, panel]; chosen(name) is called when the user chooses another tab. */
  constructor(label, panels, chosen) {
    this.chosen = chosen;
    const prefix = `tabs${made += 1}`;
    this.tabs = panels.map(([name, title, panel]) => {
      const tab = make(
        "button",
        {
          type: "button",
          role: "tab",
          id: `${prefix}-${name}`,
          "aria-controls": `${prefix}-${name}-panel`,
          click: () => this.#choose(name),
        },
        title,
      );
      panel.id = `${prefix}-${name}-panel`;
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("tabindex", "0");
      panel.setAttribute("aria-labelledby", tab.id);
      return { name, tab, panel };
    });
    this.element = make(
      "div.tabs",
      { role: "tablist", "aria-label": label, keydown: (event) => this.#pressed(event) },
      this.tabs.map(({ tab }) => tab),
    );
  }

  /** Show the panel of a tab, without calling chosen. */
  show(name) {
    this.current = name;
    for (const { name: one, tab, panel } of this.tabs) {
      tab.setAttribute("aria-selected", String(one === name));
      tab.tabIndex = one === name ? 0 : -1;
      panel.hidden = one !== name;
    }
  }

  /** Show or hide a tab; the current one stays shown. */
  offer(name, isOffered) {
    this.tabs.find((one) => one.name === name).tab.hidden = !isOffered;
  }

  offers(name) {
    return this.tabs.some((one) => one.name === name && !one.tab.hidden);
  }

  #choose(name) {
    if (name === this.current) return;
    this.show(name);
    this.chosen(name);
  }

  #pressed(event) {
    const shown = this.tabs.filter(({ tab }) => !tab.hidden);
    const now = shown.findIndex(({ name }) => name === this.current);
    const to = {
      ArrowRight: (now + 1) % shown.length,
      ArrowLeft: (now + shown.length - 1) % shown.length,
      Home: 0,
      End: shown.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choose(shown[to].name);
    shown[to].tab.focus();
  }
}
