// Elements, made without ever reading text as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. A function among the attributes listens; a child that is no element is text. */
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

/** Add children: elements, texts, lists of both; null and false are nothing. */
export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Put other children in place of those that are there. */
export function fillWith(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** One of the drawings of index.html; without a label it only repeats what words say. */
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

/** The state of a call: a shape, a colour and a word. */
export function stateIcon(state) {
  const known = STATES.includes(state) ? state : "waiting";
  const svg = icon(known, state);
  svg.classList.add("state", `is-${known}`);
  return svg;
}

/** Have an element hold the sign of a state, or that somebody is asked; null for none. */
export function setState(slot, state) {
  if (slot.shown === state) return;
  slot.shown = state;
  fillWith(slot, state === "asking" ? askIcon() : state && stateIcon(state));
}

/** The sign of what waits for a person. */
export function askIcon() {
  const svg = icon("ask", "waits for you");
  svg.classList.add("state", "is-asking");
  return svg;
}

/** Set an attribute only if it differs; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Change the text of an element only if it differs: selections and screen readers stay calm. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Whether a key pressed here writes something. */
export function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

/** What was kept in this browser under a name; some browsers keep nothing. */
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
  } catch { /* then it holds for this page only */ }
}
