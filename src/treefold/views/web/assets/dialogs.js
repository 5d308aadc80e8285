// Modal dialogs. Esc closes them.

import { icon, make } from "./dom.js";
import { sentence } from "./notices.js";

/** The warning before a call is cancelled. */
export const CANCEL_WARNING = "This ends the call and every call it has made. Completed work is "
  + "kept: a cancelled run can be resumed later, in a fork.";

/**
 * Open a dialog with a form. fields are elements; submit(form) carries out the action, and the
 * dialog stays open with an error message if that fails. Resolves to whether it succeeded.
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
    const dialog = openDialog(title, form, wide);
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

/** Open a dialog without a form. */
export function openNote(title, ...content) {
  return openDialog(title, make("div", {}, content), false);
}

function openDialog(title, content, wide) {
  const heading = make("h2", { id: "dialog-title" }, title);
  const dialog = make(`dialog${wide ? ".wide" : ""}`, { "aria-labelledby": "dialog-title" },
    make(
      "header",
      {},
      heading,
      make(
        "button.quiet.round",
        { type: "button", "aria-label": "Close this dialog", click: () => dialog.close() },
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

/** Parse JSON that the user typed; the error names the field (what). */
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
  ["1 2 3 4", "tree, timeline, flame graph, time and cost"],
  ["n", "the next call that waits for you"],
  ["s", "a shared call in the run that it comes from"],
  ["e c", "expand all, collapse all"],
  ["Esc", "close, or clear the search"],
  ["?", "this list"],
];

export function openHelp() {
  openNote("Keys", make("dl.keys", {}, KEYS.map(([keys, does]) => [
    make("dt", {}, keys.split(" ").map((key) => make("kbd", {}, key))), make("dd", {}, does),
  ])));
}
