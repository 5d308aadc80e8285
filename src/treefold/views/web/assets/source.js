// Where the page has its data from: a server that looks on at a journal, or this very file.
// Nothing else in the page asks for data, or knows which of the two it is.

import { EmbeddedSource } from "./embedded.js";
import { LiveSource } from "./live.js";

const TOKEN = "treefold.token";

/** The source of this page; a token in the address is kept for this tab, and leaves the address. */
export function openSource() {
  const data = document.getElementById("treefold-data");
  if (data) return new EmbeddedSource(JSON.parse(data.textContent));
  takeToken();
  addEventListener("hashchange", () => { if (takeToken()) location.reload(); });
  return new LiveSource(sessionStorage.getItem(TOKEN) ?? "");
}

/** Keep a token that is in the address, which tokens have no need to be encoded for; whether there was one. */
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
