// Format numbers and times for people, and texts that several modules share.

/** The status of a call whose question is answered; views/liveness.py has the same text. */
export const ANSWERED = "answered; it resumes when its program runs";

/** The beginning of the status of a run that no process could run; core/snapshot.py has the same text. */
export const HELD_BACK = "held back: ";

/** The status of an open call whose process has ended; views/liveness.py has the same text. */
export const INTERRUPTED = "interrupted; it resumes when its program is started again";

const GROUPED = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const DAY_OF_YEAR = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "long" });

const UNITS = [[1e3, "k"], [1e6, "M"], [1e9, "G"]];

/** A count with its noun: "1 call", "2,000 calls". */
export function many(count, noun, plural = `${noun}s`) {
  return `${GROUPED.format(count)} ${count === 1 ? noun : plural}`;
}

export function grouped(count) {
  return GROUPED.format(count);
}

/** A count in a few characters: 812, 2.4k, 31k, 1.2M. */
export function brief(count) {
  if (count < 1000) return String(count);
  const [unit, letter] = UNITS.find(([one]) => count < one * 1000) ?? UNITS.at(-1);
  const size = count / unit;
  return `${size < 9.95 ? size.toFixed(1) : Math.round(size)}${letter}`;
}

/** Dollars, with four decimals below one dollar and two above. */
export function money(text) {
  if (text === null || text === undefined) return "?";
  const amount = Number(text);
  if (!Number.isFinite(amount)) return String(text);
  if (amount === 0) return "$0";
  if (amount < 0.0001) return "<$0.0001";
  return `$${amount.toFixed(amount < 1 ? 4 : 2)}`;
}

/** How long something took: 340 ms, 4.2 s, 3 min 05 s, 2 h 10 min. */
export function duration(seconds) {
  if (!(seconds > 0)) return "0 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

let stopped = null;

/** The current time, in seconds; in an exported file, the time of the export. */
export function now() {
  return stopped ?? Date.now() / 1000;
}

export function stopClock(at) {
  stopped = at;
}

/** How long a call has been running, or ran; empty if it has not started. */
export function elapsed(row) {
  if (row.started === null || row.started === undefined) return "";
  return duration((row.ended ?? now()) - row.started);
}

/** A point in time: the time of day, with the date if that is not today. */
export function when(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  const current = new Date();
  if (current.toDateString() === date.toDateString()) return CLOCK.format(date);
  const day = current.getFullYear() === date.getFullYear() ? DAY : DAY_OF_YEAR;
  return `${day.format(date)}, ${CLOCK.format(date)}`;
}

export function exactly(seconds) {
  return seconds === null || seconds === undefined ? "" : FULL.format(new Date(seconds * 1000));
}

export function percent(part) {
  if (part > 0 && part < 0.001) return "<0.1%";
  return part >= 0.0995 || part === 0 ? `${Math.round(part * 100)}%` : `${(part * 100).toFixed(1)}%`;
}

function two(number) {
  return String(number).padStart(2, "0");
}
