// Mark the words in which two texts differ. Works on text that is shown, whatever elements it is in.

import { make } from "./dom.js";

const WORD = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;
const MOST = 3_000; // words of a differing part; of a larger one everything is marked
const SKIPPED = "button, .unseen, svg, .who";

/** Mark the words of two elements that the other one does not have, in the order that they have there. */
export function highlight(a, b) {
  const [left, right] = [textOf(a), textOf(b)];
  if (left.text === right.text) return;
  const [ofLeft, ofRight] = differing(left.text, right.text);
  mark(left.nodes, ofLeft, "del");
  mark(right.nodes, ofRight, "ins");
}

/** The ranges [from, to] of each text that are not in the other one. */
export function differing(a, b) {
  const [left, right] = [words(a), words(b)];
  let start = 0;
  while (start < left.length && start < right.length && left[start].text === right[start].text) start += 1;
  let end = 0;
  const most = Math.min(left.length, right.length) - start;
  while (end < most && left.at(-1 - end).text === right.at(-1 - end).text) end += 1;
  const [one, other] = [left.slice(start, left.length - end), right.slice(start, right.length - end)];
  const [keptOne, keptOther] = common(one, other);
  return [ranges(one, keptOne), ranges(other, keptOther)];
}

function words(text) {
  return [...text.matchAll(WORD)].map((match) => ({ text: match[0], from: match.index }));
}

/** Which words of both are part of their longest common subsequence. */
function common(a, b) {
  const kept = [new Uint8Array(a.length), new Uint8Array(b.length)];
  if (!a.length || !b.length || a.length > MOST || b.length > MOST) return kept;
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i].text === b[j].text
        ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i].text === b[j].text) {
      kept[0][i] = kept[1][j] = 1;
      i += 1;
      j += 1;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return kept;
}

/** The ranges of the words that are not kept; spaces between two such words belong to them. */
function ranges(all, kept) {
  const found = [];
  const isSpace = (word) => word !== undefined && !word.text.trim();
  all.forEach((word, at) => {
    const joins = kept[at] && isSpace(word) && at > 0 && at + 1 < all.length && !kept[at - 1] && !kept[at + 1];
    if (kept[at] && !joins) return;
    const to = word.from + word.text.length;
    if (found.length && found.at(-1)[1] === word.from) found.at(-1)[1] = to;
    else found.push([word.from, to]);
  });
  return found;
}

function textOf(element) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const nodes = [];
  let text = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest(SKIPPED)) continue;
    nodes.push({ node, from: text.length });
    text += node.data;
  }
  return { text, nodes };
}

function mark(nodes, found, kind) {
  for (const { node, from } of nodes) {
    const inside = found
      .map(([start, end]) => [Math.max(start - from, 0), Math.min(end - from, node.data.length)])
      .filter(([start, end]) => start < end);
    if (!inside.length) continue;
    const pieces = [];
    let done = 0;
    for (const [start, end] of inside) {
      pieces.push(node.data.slice(done, start), make(`${kind}.word`, {}, node.data.slice(start, end)));
      done = end;
    }
    node.replaceWith(...pieces, node.data.slice(done));
  }
}
