// A journal behind a server: requests, and one event stream that reconnects.

import { readEvents } from "./events.js";

const FIRST_WAIT = 250; // milliseconds before the first reconnection; doubles each time
const LONGEST_WAIT = 8_000;
const BEGIN = { event: "begin" };
const SILENCE = 40_000; // milliseconds; the server sends a keep-alive every 15 seconds

/** An error response of the server, with its message and status. */
export class ResponseError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export class LiveSource {
  live = true;

  constructor(token) {
    this.token = token;
  }

  journal() {
    return this.#get("/api/journal");
  }

  /** A page of the runs that match a query: {state, function, q, page, newest}. */
  runs(query = {}) {
    return this.#get(`/api/trees?${new URLSearchParams(query)}`);
  }

  /** The id of the top-level call of a run. */
  async find(number) {
    return (await this.#get(`/api/runs/${number}`)).id;
  }

  /** What the list shows of some runs beyond their rows, by id. */
  async summaries(ids) {
    return (await this.#get(`/api/summaries?ids=${ids.join(",")}`)).summaries;
  }

  async questions() {
    return (await this.#get("/api/questions")).questions;
  }

  detail(id) {
    return this.#get(`/api/nodes/${id}`);
  }

  async part(id, index) {
    return (await this.#get(`/api/nodes/${id}/parts/${index}`)).text;
  }

  async stack(id) {
    return (await this.#get(`/api/nodes/${id}/stack`)).frames;
  }

  flame(tree, by) {
    return this.#get(`/api/trees/${tree}/flame?by=${by}`);
  }

  timing(tree) {
    return this.#get(`/api/trees/${tree}/timing`);
  }

  totals(runs) {
    return this.#get(`/api/totals?runs=${runs}`);
  }

  difference(a, b) {
    return this.#get(`/api/difference?a=${a}&b=${b}`);
  }

  async search(tree, text) {
    return (await this.#get(`/api/search?tree=${tree}&q=${encodeURIComponent(text)}`)).nodes;
  }

  answer(question, text, args = null) {
    return this.#post(`/api/questions/${encodeURIComponent(question)}`, { text, args });
  }

  pause(id, reason) {
    return this.#post(`/api/nodes/${id}/pause`, reason ? { reason } : {});
  }

  resume(id) {
    return this.#post(`/api/nodes/${id}/resume`, {});
  }

  cancel(id, reason) {
    return this.#post(`/api/nodes/${id}/cancel`, reason ? { reason } : {});
  }

  async fork(id, change) {
    return (await this.#post(`/api/nodes/${id}/fork`, change)).key;
  }

  /** What a fork would do again: at is the number of responses that it keeps. */
  forkPlan(id, { at, change }) {
    return this.#get(`/api/nodes/${id}/fork-plan?${new URLSearchParams({ at, change })}`);
  }

  /** The calls that a fork shares with its source: their nodes there, by their ids. */
  async shared(tree, source) {
    return (await this.#get(`/api/trees/${tree}/shared?source=${source}`)).nodes;
  }

  /** The number of a fork; null until it is made. */
  async forked(key) {
    return (await this.#get(`/api/forks/${encodeURIComponent(key)}`)).number;
  }

  /**
   * Follow the list of runs and, unless it is null, a tree from a sequence number on.
   *
   * query selects the runs, as for runs(); with a tree, or the id of one as "about", they are the
   * tree, its source and its forks.
   * listener has rows, text, trees, questions (each called with the data of such an event) and
   * connection ("connected", "live", "reconnecting" or "refused", and why). Returns a function that
   * stops it.
   */
  follow(tree, seq, listener, query = {}) {
    const stop = new AbortController();
    this.#keepFollowing(tree, seq, listener, stop.signal, query);
    return () => stop.abort();
  }

  async #keepFollowing(tree, seq, listener, stopped, query) {
    let wait = FIRST_WAIT;
    while (!stopped.aborted) {
      try {
        for await (const event of this.#stream(tree, seq, stopped, query)) {
          if (stopped.aborted) return;
          if (event === null || event === BEGIN) listener.connection(event ? "connected" : "live", "");
          else {
            const data = JSON.parse(event.data);
            listener[event.event]?.(data);
            if (event.event === "rows") seq = data.seq;
          }
          wait = FIRST_WAIT;
        }
      } catch (error) {
        if (stopped.aborted) return;
        if (error instanceof ResponseError && error.status < 500) {
          listener.connection("refused", error.message, error.status);
          return;
        }
      }
      listener.connection("reconnecting", "");
      await sleep(wait * (0.75 + Math.random() / 2), stopped);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  async *#stream(tree, seq, stopped, query) {
    const silent = new AbortController();
    const given = AbortSignal.any([stopped, silent.signal]);
    const about = new URLSearchParams(tree === null ? query : { tree, seq });
    let timer = setTimeout(() => silent.abort(), SILENCE);
    try {
      const response = await this.#send(`/api/stream?${about}`, { signal: given });
      yield BEGIN;
      for await (const event of readEvents(response.body)) {
        clearTimeout(timer);
        timer = setTimeout(() => silent.abort(), SILENCE);
        yield event;
      }
    } finally {
      clearTimeout(timer);
      silent.abort();
    }
  }

  async #get(path) {
    return (await this.#send(path)).json();
  }

  async #post(path, body) {
    const headers = { "Content-Type": "application/json" };
    return (await this.#send(path, { method: "POST", body: JSON.stringify(body), headers })).json();
  }

  async #send(path, { headers = {}, ...options } = {}) {
    const given = { ...headers, Authorization: `Bearer ${this.token}` };
    let response;
    try {
      response = await fetch(path, { ...options, headers: given, cache: "no-store", redirect: "error" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Error("The viewer's server does not answer. Is `treefold view` still running?");
    }
    if (!response.ok) throw new ResponseError(await reason(response), response.status);
    return response;
  }
}

async function reason(response) {
  try {
    const { error } = await response.json();
    if (error) return String(error);
  } catch { /* not a response of the viewer */ }
  return `The server responded with ${response.status} ${response.statusText}`.trim();
}

/** Sleep; ends early when the page becomes visible or online, or the signal is aborted. */
function sleep(milliseconds, stopped) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      for (const [target, name] of wakers) target.removeEventListener(name, done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    const wakers = [[window, "online"], [document, "visibilitychange"], [stopped, "abort"]];
    for (const [target, name] of wakers) target.addEventListener(name, done);
  });
}
