// Notices to the user: toasts on the screen, and announcements for screen readers.

import { icon, make } from "./dom.js";

const SHOWN = 6_000; // milliseconds; an error stays until it is closed

const place = make("div.toasts", { role: "status", "aria-live": "polite" });
const alarms = make("div.toasts", { role: "alert" });
const spoken = make("div.unseen", { role: "status", "aria-live": "assertive" });

export function noticePlaces() {
  return [make("div.toast-corner", {}, place, alarms), spoken];
}

/** Show a toast. */
export function showToast(text, { wrong = false } = {}) {
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

/** Announce something to screen readers. */
export function announce(text) {
  spoken.textContent = text;
}

/** Run an action, and show an error if it fails. Resolves to whether it succeeded. */
export async function attempt(action, done = "") {
  try {
    await action();
  } catch (error) {
    showToast(sentence(error.message), { wrong: true });
    return false;
  }
  if (done) showToast(done);
  return true;
}

/** A message as a sentence. */
export function sentence(text) {
  const trimmed = String(text).trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
