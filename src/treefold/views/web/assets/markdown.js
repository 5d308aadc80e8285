// Show Markdown of models as elements. Models are not trusted: HTML stays text, nothing is loaded,
// and a link is shown with its host. Headings of a text are not headings of the page.

import { make } from "./dom.js";
import { copyButton } from "./copy.js";
import { pieces } from "./text.js";

const DEEPEST = 6; // levels of lists, quotations and emphasis; deeper ones are shown as text
const AHEAD = 3_000; // characters in which a mark must be closed; it bounds the time for hostile texts
const MOST_CELLS = 2_000; // of a table; a larger one is shown as text

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const ROW = /^ {0,3}\|.*\|[ \t]*$/;
const DASHES = /^ {0,3}\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*$/;
const TASK = /^\[([ xX])\] /;
const SAFE = /^(?:https?:\/\/|mailto:)[^\s<>]+$/i;
const ADDRESS = /^https?:\/\/[^\s<>"'`\\]+/i;
const MARKS = /[`*_~[!<\\h]/gi;

/** The elements of a text in Markdown. */
export function markdown(text) {
  const lines = String(text).replaceAll("\r\n", "\n").split("\n");
  return blocks(lines, 0);
}

// Blocks

function blocks(lines, depth) {
  const found = [];
  let paragraph = [];
  const end = () => {
    while (paragraph.length && !paragraph.at(-1).trim()) paragraph.pop();
    if (paragraph.length) found.push(make("p", { dir: "auto" }, inline(paragraph.join("\n"), 0)));
    paragraph = [];
  };
  for (let at = 0; at < lines.length;) {
    const block = depth > DEEPEST ? null : blockAt(lines, at, depth);
    if (block) {
      end();
      found.push(block.element);
      at = block.next;
    } else {
      if (lines[at].trim()) paragraph.push(lines[at]);
      else end();
      at += 1;
    }
  }
  end();
  return found;
}

/** The block that begins at a line, and the line after it; null if the line is part of a paragraph. */
function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return codeBlock(lines, at, fence[1], fence[2]);
  const heading = HEADING.exec(line);
  if (heading) return {
    element: make(`p.md-heading.md-${heading[1].length}`, { dir: "auto" }, inline(withoutMarks(heading[2]), 0)),
    next: at + 1,
  };
  if (RULE.test(line)) return { element: make("hr"), next: at + 1 };
  if (QUOTE.test(line)) return quotation(lines, at, depth);
  if (ITEM.test(line)) return list(lines, at, depth);
  if (ROW.test(line) && DASHES.test(lines[at + 1] ?? "")) return table(lines, at);
  return null;
}

/** The text of a heading without the marks that may close it. */
function withoutMarks(text) {
  let end = text.trimEnd().length;
  while (text[end - 1] === "#") end -= 1;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text.trimEnd();
}

function codeBlock(lines, at, fence, language) {
  let next = at + 1;
  const isEnd = (line) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "");
  while (next < lines.length && !isEnd(lines[next])) next += 1;
  const text = lines.slice(at + 1, next).join("\n");
  const word = language.trim().split(/\s/)[0].slice(0, 30);
  return {
    element: make(
      "div.md-code",
      {},
      make("div.md-code-head", {}, make("bdi", {}, pieces(word)), copyButton("Copy this code", () => text)),
      make("pre", { dir: "ltr", tabindex: "0", role: "region", "aria-label": "Code" }, make("code", {}, pieces(text))),
    ),
    next: next + 1,
  };
}

function quotation(lines, at, depth) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next += 1;
  const inside = lines.slice(at, next).map((line) => line.replace(QUOTE, ""));
  return { element: make("blockquote", {}, blocks(inside, depth + 1)), next };
}

/** A list: consecutive items, and lines below an item that are indented at least as its text. */
function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(first[2]);
  const items = [];
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || item[1].length > first[1].length + 1 || /\d/.test(item[2]) !== isOrdered || RULE.test(lines[next])) break;
    const inside = [lines[next].slice(item[0].length)];
    next += 1;
    while (next < lines.length && belongs(lines, next, item[1].length + 2)) {
      inside.push(lines[next].slice(Math.min(indent(lines[next]), item[0].length)));
      next += 1;
    }
    items.push(inside);
    // A blank line between two items does not end the list.
    if (next + 1 < lines.length && !lines[next].trim() && ITEM.test(lines[next + 1])) next += 1;
  }
  const start = isOrdered ? Number.parseInt(first[2], 10) : 1;
  const element = make(isOrdered ? "ol" : "ul", { start: start === 1 ? null : start });
  for (const inside of items) element.append(listItem(inside, depth));
  return { element, next };
}

function listItem(lines, depth) {
  const task = TASK.exec(lines[0]);
  if (task) lines[0] = `${task[1] === " " ? "☐" : "☑"} ${lines[0].slice(task[0].length)}`;
  const content = blocks(lines, depth + 1);
  return make("li", { dir: "auto" }, content);
}

function belongs(lines, at, least) {
  if (lines[at].trim()) return indent(lines[at]) >= least;
  return at + 1 < lines.length && Boolean(lines[at + 1].trim()) && indent(lines[at + 1]) >= least;
}

function indent(line) {
  return line.length - line.trimStart().length;
}

function table(lines, at) {
  let next = at + 2;
  while (next < lines.length && ROW.test(lines[next])) next += 1;
  const rows = [lines[at], ...lines.slice(at + 2, next)].map(cellsOf);
  const columns = rows[0].length;
  if (columns * rows.length > MOST_CELLS) return {
    element: make("pre", {}, pieces(lines.slice(at, next).join("\n"))),
    next,
  };
  const row = (cells, tag) => make(
    "tr", {}, rows[0].map((_, column) => make(tag, { dir: "auto" }, inline(cells[column] ?? "", 0)))
  );
  return {
    element: make(
      "div.md-table",
      { tabindex: "0", role: "region", "aria-label": "Table" },
      make("table", {}, make("thead", {}, row(rows[0], "th")), make(
        "tbody", {}, rows.slice(1).map((cells) => row(cells, "td"))
      )),
    ),
    next,
  };
}

function cellsOf(line) {
  return line.trim().slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

// Inside a line

/** The text and elements of a piece of a paragraph. */
function inline(text, depth, { links = true } = {}) {
  const found = [];
  let from = 0; // the text before it is in found
  const put = (start, element, end) => {
    found.push(...pieces(text.slice(from, start)), element);
    from = end;
  };
  const marks = new RegExp(MARKS); // with a position of its own
  for (let match = marks.exec(text); match; match = marks.exec(text)) {
    const at = match.index;
    const mark = depth > DEEPEST ? null : markAt(text, at, depth, links);
    if (!mark) continue;
    put(at, mark.element, mark.end);
    marks.lastIndex = mark.end;
  }
  found.push(...pieces(text.slice(from)));
  return found;
}

/** The element that begins at a character, and where it ends; null if it is only a character. */
function markAt(text, at, depth, links) {
  switch (text[at]) {
    case "\\": return escaped(text, at);
    case "`": return codeSpan(text, at);
    case "*": case "_": case "~": return emphasis(text, at, depth, links);
    case "[": return links ? link(text, at, at, depth) : null;
    case "!": return links && text[at + 1] === "[" ? link(text, at, at + 1, depth) : null;
    case "<": return links ? autolink(text, at) : null;
    default: return links ? bareAddress(text, at) : null;
  }
}

function escaped(text, at) {
  const next = text[at + 1] ?? "";
  return /[!-/:-@[-`{-~]/.test(next) ? { element: next, end: at + 2 } : null;
}

function codeSpan(text, at) {
  let length = 1;
  while (text[at + length] === "`") length += 1;
  const inside = text.slice(at + length, at + length + AHEAD);
  const ticks = "`".repeat(length);
  let end = inside.indexOf(ticks);
  while (end >= 0 && inside[end + length] === "`") {
    while (inside[end] === "`") end += 1;
    end = inside.indexOf(ticks, end);
  }
  if (end <= 0) return { element: ticks, end: at + length };
  const shown = inside.slice(0, end).replaceAll("\n", " ");
  const isPadded = shown.startsWith(" ") && shown.endsWith(" ") && shown.trim() !== "";
  const bare = isPadded ? shown.slice(1, -1) : shown;
  return { element: make("code", {}, pieces(bare)), end: at + end + 2 * length };
}

function emphasis(text, at, depth, links) {
  const mark = text[at];
  let length = 1;
  while (text[at + length] === mark && length < 3) length += 1;
  if (mark === "~" && length !== 2) return { element: mark.repeat(length), end: at + length };
  const isWord = (character) => /[\p{L}\p{N}_]/u.test(character ?? "");
  if (!/\S/.test(text[at + length] ?? "") || (mark === "_" && isWord(text[at - 1]))) return {
    element: mark.repeat(length),
    end: at + length,
  };
  const marks = mark.repeat(length);
  const last = Math.min(text.length, at + AHEAD);
  for (let end = text.indexOf(marks, at + length); end >= 0 && end < last; end = text.indexOf(marks, end + 1)) {
    const isClosed = /\S/.test(text[end - 1]) && text[end - 1] !== "\\" && text[end + length] !== mark;
    if (!isClosed || (mark === "_" && isWord(text[end + length]))) continue;
    const inside = inline(text.slice(at + length, end), depth + 1, { links });
    return { element: emphasized(mark, length, inside), end: end + length };
  }
  return { element: marks, end: at + length };
}

function emphasized(mark, length, inside) {
  if (mark === "~") return make("del", {}, inside);
  if (length === 1) return make("em", {}, inside);
  return make("strong", {}, length === 3 ? make("em", {}, inside) : inside);
}

/** A link, or an image, which is shown as a link: [text](address "title"). */
function link(text, at, open, depth) {
  const near = text.slice(open, open + AHEAD);
  const middle = near.indexOf("](");
  const close = middle < 0 ? -1 : near.indexOf(")", middle);
  if (close < 0) return null;
  const [address] = near.slice(middle + 2, close).trim().split(/\s/);
  const bare = address.replace(/^<(.*)>$/, "$1");
  const url = safe(bare);
  if (!url) return null;
  const label = near.slice(1, middle);
  const shown = inline(label || bare, depth + 1, { links: false });
  return { element: anchor(url, shown, label), end: open + close + 1 };
}

function autolink(text, at) {
  const end = text.indexOf(">", at);
  if (end < 0 || end - at > AHEAD) return null;
  const url = safe(text.slice(at + 1, end));
  return url ? { element: anchor(url, pieces(text.slice(at + 1, end)), url.href), end: end + 1 } : null;
}

function bareAddress(text, at) {
  if (!/^https?:/i.test(text.slice(at, at + 6)) || /[\p{L}\p{N}:]/u.test(text[at - 1] ?? "")) return null;
  const found = ADDRESS.exec(text.slice(at, at + AHEAD))?.[0].replace(/[.,;:!?)\]*_~]+$/, "");
  const url = found ? safe(found) : null;
  return url ? { element: anchor(url, pieces(found), url.href), end: at + found.length } : null;
}

/** The URL of an absolute address with a scheme that is safe to follow; null for all others. */
function safe(address) {
  if (!SAFE.test(address)) return null;
  try {
    return new URL(address);
  } catch {
    return null;
  }
}

/** A link; where it leads is shown, unless its text is an address there, letter by letter. */
function anchor(url, shown, label) {
  const place = url.host || url.pathname;
  const link = make(
    "a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank", title: url.href }, shown
  );
  const start = url.host ? `${url.protocol}//${place}` : place;
  const said = label.toLowerCase().replace(/^mailto:/, "");
  const rest = said.slice(start.length);
  const says = said.startsWith(start) && (!rest || (url.host && /^[/?#]\S*$/.test(rest)));
  return says ? link : make("span.md-link", {}, link, make("bdi.md-place", {}, ` (${place.slice(0, 80)})`));
}
