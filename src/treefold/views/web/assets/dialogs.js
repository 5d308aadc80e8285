// Windows that ask before something is done. Esc closes each of them.

import { icon, make } from "./dom.js";
import { sentence } from "./notices.js";

/** What is said before a call is cancelled. */
export const ENDS_HERE = "It ends here, and so does every call it has made. What was done "
  + "until then is kept: a run that was cancelled can be resumed later, in a fork.";

/**
 * Open a window with a form. fields are elements; submit(form) does what was asked for, and the
 * window stays open and says why if it fails. The promise tells whether it was done.
 */
export function openForm({ title, fields, action, danger = false, submit, wide = false }) {
  return new Promise((resolve) => {
    let done = false;
    const fault = make("p.fault", { role: "alert" });
    const send = make(danger ? "button.danger" : "button.primary", { type: "submit" }, action);
    const form = make("form", { method: "dialog" }, fields, fault,
      make(
        "div.buttons", {}, make("button", { type: "button", click: () => dialog.close() }, "Close"), send
      ));
    const dialog = window_(title, form, wide);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      send.disabled = true;
      fault.textContent = "";
      try {
        await submit(form);
        done = true;
        dialog.close();
      } catch (error) {
        fault.textContent = sentence(error.message);
      }
      send.disabled = false;
    });
    dialog.addEventListener("close", () => resolve(done));
  });
}

/** Open a window that only shows something. */
export function openNote(title, ...content) {
  return window_(title, make("div", {}, content), false);
}

function window_(title, content, wide) {
  const heading = make("h2", { id: "dialog-title" }, title);
  const dialog = make(`dialog${wide ? ".wide" : ""}`, { "aria-labelledby": "dialog-title" },
    make(
      "header",
      {},
      heading,
      make(
        "button.quiet.round",
        { type: "button", "aria-label": "Close this window", click: () => dialog.close() },
        icon("close"),
      ),
    ),
    content);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  (dialog.querySelector("textarea, input, form button[type=submit]") ?? heading).focus();
  return dialog;
}

let fields = 0;

/** A field with its label, and a hint below it. */
export function field(label, input, hint = "") {
  const id = `field-${fields += 1}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return make(
    "div.field",
    {},
    make("label", { for: id }, label),
    input,
    hint && make("p.hint", { id: `${id}-hint` }, hint),
  );
}

/** What somebody wrote as JSON; wrong JSON is said to be that, in words. */
export function readJson(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error.message}`);
  }
}

const KEYS = [
  ["↑ ↓", "the call above or below"],
  ["→ ←", "open or close a call; go in or out"],
  ["Home End", "first and last call"],
  ["Enter", "show the call"],
  ["/", "search"],
  ["1 2 3", "tree, timeline, flame graph"],
  ["n", "the next call that waits for you"],
  ["e c", "expand all, collapse all"],
  ["Esc", "close, or clear the search"],
  ["?", "this list"],
];

export function openHelp() {
  openNote("Keys", make("dl.keys", {}, KEYS.map(([keys, does]) => [
    make("dt", {}, keys.split(" ").map((key) => make("kbd", {}, key))), make("dd", {}, does),
  ])));
}
