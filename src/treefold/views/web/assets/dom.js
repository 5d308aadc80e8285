// Create elements; text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element. An attribute that is a function is an event listener; other children are text. */
export function make(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false) setAttribute(element, key, value ?? null);
  }
  add(element, children);
  return element;
}

/** Append children: elements, texts, nested lists of both; null and false are skipped. */
export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Replace all children. */
export function replaceContent(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** An icon of index.html; without a label it is decorative, and hidden from screen readers. */
export function icon(name, label = "") {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", `icon icon-${name}`);
  use.setAttribute("href", `#icon-${name}`);
  if (label) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
  } else svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export const STATES = ["waiting", "running", "paused", "success", "error", "canceled", "interrupted"];

/** The icon of a state: a shape, a colour and a label. */
export function stateIcon(state) {
  const known = STATES.includes(state) ? state : "waiting";
  const svg = icon(known, state);
  svg.classList.add("state", `is-${known}`);
  return svg;
}

/** Fill an element with the icon of a state, or of "asking"; null for none. */
export function setState(slot, state) {
  if (slot.shown === state) return;
  slot.shown = state;
  replaceContent(slot, state === "asking" ? askIcon() : state && stateIcon(state));
}

/** The icon of a call that waits for a person. */
export function askIcon() {
  const svg = icon("ask", "waits for you");
  svg.classList.add("state", "is-asking");
  return svg;
}

/** Set an attribute only if it differs; null removes it. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Set the text of an element only if it differs, so as not to disturb selections and screen readers. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Whether a key pressed here is text input. */
export function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

/** A setting stored in this browser; storage may be disabled. */
export function remembered(name, otherwise) {
  try {
    return localStorage.getItem(`treefold.${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`treefold.${name}`, value);
  } catch { /* the setting applies to this page only */ }
}
