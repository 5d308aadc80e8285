// Buttons that copy a text to the clipboard.

import { icon, make, replaceContent } from "./dom.js";
import { announce, showToast } from "./notices.js";

const SHOWN = 1_600; // milliseconds

/** A button that copies what text() returns, or resolves to. */
export function copyButton(label, text) {
  const button = make("button.quiet.copy", { type: "button", title: label, "aria-label": label }, icon("copy"));
  button.addEventListener("click", async () => {
    try {
      await write(String(await text()));
    } catch (error) {
      showToast(`It could not be copied: ${error.message}`, { wrong: true });
      return;
    }
    announce("Copied");
    button.classList.add("copied");
    replaceContent(button, icon("success"));
    setTimeout(() => {
      button.classList.remove("copied");
      replaceContent(button, icon("copy"));
    }, SHOWN);
  });
  return button;
}

async function write(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // A page that came over plain HTTP from another machine has no clipboard object.
  const area = make("textarea.unseen", { "aria-hidden": "true", tabindex: "-1" });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!done) throw new Error("the browser does not allow it.");
}
