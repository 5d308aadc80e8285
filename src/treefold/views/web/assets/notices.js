// What is said to the person at the page: that something was asked for, or why it was not.

import { icon, make } from "./dom.js";

const SHOWN = 6_000; // milliseconds; what went wrong stays until it is closed

const place = make("div.toasts", { role: "status", "aria-live": "polite" });
const alarms = make("div.toasts", { role: "alert" });
const spoken = make("div.unseen", { role: "status", "aria-live": "assertive" });

export function noticePlaces() {
  return [make("div.toast-corner", {}, place, alarms), spoken];
}

/** Say something on the screen. */
export function tell(text, { wrong = false } = {}) {
  const close = make(
    "button.quiet.round",
    { type: "button", "aria-label": "Close", click: () => toast.remove() },
    icon("close"),
  );
  const toast = make(`div.toast${wrong ? ".wrong" : ""}`, {}, make("p", {}, text), close);
  if (wrong) alarms.append(toast);
  else {
    place.replaceChildren(toast);
    setTimeout(() => toast.remove(), SHOWN);
  }
}

/** Say something to those who do not see the screen. */
export function speak(text) {
  spoken.textContent = text;
}

/** Do something that may fail, and say so if it does. Gives whether it was done. */
export async function attempt(action, done = "") {
  try {
    await action();
  } catch (error) {
    tell(sentence(error.message), { wrong: true });
    return false;
  }
  if (done) tell(done);
  return true;
}

/** A message as a sentence. */
export function sentence(text) {
  const trimmed = String(text).trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
