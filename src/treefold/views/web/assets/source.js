// The source of all data: a server that reads a journal, or the file itself.
// No other module requests data, or knows which of the two it is.

import { EmbeddedSource } from "./embedded.js";
import { LiveSource } from "./live.js";

const TOKEN = "treefold.token";

/** The source of this page; a token in the URL is stored for this tab, and removed from the URL. */
export function openSource() {
  const data = document.getElementById("treefold-data");
  if (data) return new EmbeddedSource(JSON.parse(data.textContent));
  takeToken();
  addEventListener("hashchange", () => { if (takeToken()) location.reload(); });
  return new LiveSource(sessionStorage.getItem(TOKEN) ?? "");
}

/** Store a token that is in the URL, where tokens need no encoding; returns whether there was one. */
function takeToken() {
  const given = /^#token=([\w.~-]+)/.exec(location.hash);
  if (!given) return false;
  sessionStorage.setItem(TOKEN, given[1]);
  history.replaceState(null, "", `${location.pathname}#/`);
  return true;
}

/** Use another token from now on. */
export function useToken(source, token) {
  sessionStorage.setItem(TOKEN, token);
  source.token = token;
}
