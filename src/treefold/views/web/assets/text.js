// Show text of functions and models: never as markup, and unprintable characters as escape sequences.

import { make, replaceContent } from "./dom.js";
import { grouped } from "./format.js";

// Control and format characters (including changes of direction), unassigned and ignorable ones.
// Joiners and the emoji variation selector stay: some scripts need them.
const UNSEEN = /(?![\n\t\u200c\u200d\ufe0f])[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const MARKED = 300; // escape sequences of one text that get an element each
const FIRST = 1_600; // characters of a long text that are shown at first
const WHOLE = 60_000; // characters; a shorter text is one element
const BLOCK = 16_000; // characters of a block of a longer text, filled when it is scrolled near
const BLOCK_LINES = 400; // the estimated height of a block, at most
const NAMED = 60; // fields of an object that are listed by name; larger objects are shown as JSON

/** The escape sequence of an unprintable character. */
export function code(character) {
  const point = character.codePointAt(0);
  if (character === "\r") return "\\r";
  if (point < 0x100) return `\\x${point.toString(16).padStart(2, "0")}`;
  if (point < 0x10000) return `\\u${point.toString(16).padStart(4, "0")}`;
  return `\\U${point.toString(16).padStart(8, "0")}`;
}

/** The text with its line breaks, and escape sequences for unprintable characters. */
export function readable(text) {
  return String(text).replaceAll("\r\n", "\n").replace(UNSEEN, code);
}

/** The same on one line. */
export function oneLine(text) {
  return readable(text).replaceAll("\n", "⏎ ").replaceAll("\t", " ");
}

/** Fill an element with text; escape sequences are highlighted, to distinguish them from text. */
export function fill(element, text) {
  return replaceContent(element, ...pieces(text));
}

/** The same text as a list of strings, and elements for escape sequences. */
export function pieces(text) {
  const whole = String(text).replaceAll("\r\n", "\n");
  const found = [...whole.matchAll(UNSEEN)];
  if (!whole) return [];
  if (found.length === 0) return [whole];
  if (found.length > MARKED) return [whole.replace(UNSEEN, code)];
  const all = [];
  let from = 0;
  for (const match of found) {
    all.push(
      whole.slice(from, match.index),
      make("span.code-point", { title: "unprintable character" }, code(match[0])),
    );
    from = match.index + match[0].length;
  }
  all.push(whole.slice(from));
  return all;
}

/**
 * A text of any length, cut until the user expands it.
 *
 * length is that of the whole text, of which text may be the beginning; whole() then resolves to it.
 * format(text) returns the elements of a text that is not shown as it is, unless it is very long.
 */
export function longText(
  text, { length = text.length, whole = null, first = FIRST, label = "", format = null } = {}
) {
  const box = make("div.long-text");
  const show = (shown) => {
    const isFormatted = format !== null && shown.length <= WHOLE;
    const body = isFormatted
      ? make("div.md", {}, format(shown))
      : make("pre.text", { dir: "auto", "aria-label": label || null });
    if (!isFormatted) showWhole(body, shown);
    if (box.firstElementChild) box.firstElementChild.replaceWith(body);
    else box.append(body);
  };
  const isAll = hasAll(text, length);
  if (length <= first * 1.25 && isAll) {
    show(text);
    return box;
  }
  show(beginning(text, first));
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
      show(isAll || !whole ? text : await whole());
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

/** Whether a text has that many characters; JavaScript counts some of them as two. */
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

/** An end that does not split a surrogate pair. */
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

/** A value as JSON; texts in an object are shown as text, and format is that of a text alone. */
export function shownValue(value, label = "", format = null) {
  if (typeof value === "string") return longText(value, { label, format });
  if (isPlainObject(value) && typeof value.$repr === "string") return longText(value.$repr, { label });
  if (isPlainObject(value) && typeof value.$text === "string") return longText(
    value.$text, { label, length: value.length, format }
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

/** A value as text to copy: a text as it is, anything else as JSON. */
export function copyable(value) {
  if (isPlainObject(value) && isText(value)) return value.$text ?? value.$repr;
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
}

/** Values as JSON for editing; empty if some of them are cut or have no JSON form. */
export function editable(values) {
  const text = JSON.stringify(values, null, 2);
  return /"\$(text|repr|more)": /.test(text) ? "" : text;
}
