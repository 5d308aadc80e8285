// Text of functions and models. Nothing in it is markup, and what does not print is shown as a code.

import { fillWith, make } from "./dom.js";
import { grouped } from "./words.js";

// Controls, format characters (those that turn the direction of writing among them), what is not
// assigned, and what fonts leave out. Joiners and the emoji sign stay: scripts are written with them.
const UNSEEN = /(?![\n\t\u200c\u200d\ufe0f])[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const MARKED = 300; // codes in one stretch of text that are elements of their own
const FIRST = 1_600; // characters that are shown of a long text
const WHOLE = 60_000; // a text up to here is shown in one piece
const NAMED = 60; // values of an object that are listed by their names; more are shown as JSON
const BLOCK = 16_000; // and a longer one in blocks, each filled when it comes near
const BLOCK_LINES = 400; // a guess at how high a block is, in lines

/** How a character that does not print is written. */
export function code(character) {
  const point = character.codePointAt(0);
  if (character === "\r") return "\\r";
  if (point < 0x100) return `\\x${point.toString(16).padStart(2, "0")}`;
  if (point < 0x10000) return `\\u${point.toString(16).padStart(4, "0")}`;
  return `\\U${point.toString(16).padStart(8, "0")}`;
}

/** The text with its lines, and codes for what does not print. */
export function readable(text) {
  return String(text).replaceAll("\r\n", "\n").replace(UNSEEN, code);
}

/** The same on one line. */
export function oneLine(text) {
  return readable(text).replaceAll("\n", "⏎ ").replaceAll("\t", " ");
}

/** Fill an element with text; each code stands out, so that it cannot be mistaken for text. */
export function fill(element, text) {
  const whole = String(text).replaceAll("\r\n", "\n");
  const found = [...whole.matchAll(UNSEEN)];
  if (found.length === 0 || found.length > MARKED) {
    element.textContent = found.length ? whole.replace(UNSEEN, code) : whole;
    return element;
  }
  const pieces = [];
  let from = 0;
  for (const match of found) {
    pieces.push(
      whole.slice(from, match.index),
      make("span.code-point", { title: "a character that does not print" }, code(match[0])),
    );
    from = match.index + match[0].length;
  }
  return fillWith(element, ...pieces, whole.slice(from));
}

/**
 * A text of any length, cut at first.
 *
 * length is that of the whole, of which text may be the beginning; whole() then gives a promise of it.
 */
export function longText(text, { length = text.length, whole = null, first = FIRST, label = "" } = {}) {
  const body = make("pre.text", { dir: "auto", "aria-label": label || null });
  const box = make("div.long-text", {}, body);
  const isAll = hasAll(text, length);
  if (length <= first * 1.25 && isAll) {
    fill(body, text);
    return box;
  }
  fill(body, beginning(text, first));
  const button = make(
    "button.quiet",
    { type: "button" },
    isAll || whole
      ? `Show all ${grouped(length)} characters`
      : `Show the first ${grouped(text.length)} of ${grouped(length)} characters`,
  );
  const showAll = async () => {
    button.disabled = true;
    try {
      showWhole(body, isAll || !whole ? text : await whole());
      button.remove();
    } catch (error) {
      button.disabled = false;
      button.textContent = `${error.message} Try again`;
    }
  };
  button.addEventListener("click", showAll);
  box.append(button);
  return box;
}

/** Whether a text has so many characters, of which some count as two here. */
function hasAll(text, length) {
  if (text.length === length) return true;
  let count = 0;
  for (const _ of text) count += 1;
  return count >= length;
}

function beginning(text, length) {
  if (text.length <= length) return text;
  const cut = text.lastIndexOf("\n", length);
  const end = cut > length / 2 ? cut : length;
  return `${text.slice(0, whole(text, end))} …`;
}

/** An end that does not part a pair of surrogates. */
function whole(text, end) {
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last < 0xdc00 ? end - 1 : end;
}

function showWhole(body, text) {
  if (text.length <= WHOLE) {
    fill(body, text);
    return;
  }
  body.replaceChildren();
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      fill(target, text.slice(Number(target.dataset.from), Number(target.dataset.to)));
      target.classList.remove("unfilled");
    }
  }, { rootMargin: "600px" });
  for (let from = 0; from < text.length;) {
    let to = Math.min(from + BLOCK, text.length);
    const line = to < text.length ? text.lastIndexOf("\n", to) : -1;
    to = line > from + BLOCK / 2 ? line + 1 : whole(text, to);
    const block = make("span.block.unfilled", { "data-from": from, "data-to": to });
    block.style.setProperty("--lines", String(Math.min(BLOCK_LINES, Math.ceil((to - from) / 60))));
    body.append(block);
    seen.observe(block);
    from = to;
  }
}

/** A value as it stands in JSON; the texts of an object are texts. */
export function shownValue(value, label = "") {
  if (typeof value === "string") return longText(value, { label });
  if (isPlainObject(value) && typeof value.$repr === "string") return longText(value.$repr, { label });
  if (isPlainObject(value) && typeof value.$text === "string") return longText(
    value.$text, { label, length: value.length }
  );
  const size = isPlainObject(value) ? Object.keys(value).length : 0;
  if (size === 0 || size > NAMED) return json(value, label);
  const list = make("dl.values");
  for (const [name, one] of Object.entries(value)) {
    list.append(
      make("dt", {}, make("bdi", {}, oneLine(name))),
      make(
        "dd",
        {},
        name === "$more" ? `${grouped(one)} more` : isText(one) ? shownValue(one, name) : json(one, name),
      ),
    );
  }
  return list;
}

function json(value, label) {
  const flat = JSON.stringify(value) ?? "null";
  const text = flat.length <= 72 ? flat : JSON.stringify(value, null, 2);
  const shown = longText(text, { label });
  shown.classList.add("json");
  return shown;
}

function isText(value) {
  return typeof value === "string" || (isPlainObject(value) && typeof (value.$text ?? value.$repr) === "string");
}

function isPlainObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Values as JSON to be edited; nothing if some of them are only shown, and not given whole. */
export function editable(values) {
  const text = JSON.stringify(values, null, 2);
  return /"\$(text|repr|more)": /.test(text) ? "" : text;
}
