// What a fork would do again, and what that cost the last time.

import { make, replaceContent } from "./dom.js";
import { oneLine } from "./text.js";
import { grouped, many, money } from "./format.js";

export class ForkPlan {
  #asked = 0;

  constructor(row, context) {
    Object.assign(this, { row, context });
    this.element = make("section.plan", { "aria-live": "polite", "aria-label": "What will be asked again" });
  }

  /** Show the plan for one way to fork: {name, at()}. */
  async show(way) {
    const asked = this.#asked += 1;
    try {
      const plan = await this.context.source.forkPlan(
        this.row.id, { at: way.at?.() ?? 0, change: way.name }
      );
      if (asked === this.#asked) replaceContent(this.element, describe(plan));
    } catch (error) {
      if (asked === this.#asked) replaceContent(this.element, make("p.hint", {}, error.message));
    }
  }
}

function describe({ shared, again }) {
  const asked = again.filter((one) => one.responses);
  const run = again.filter((one) => !one.responses);
  const total = asked.reduce((sum, one) => ({
    responses: sum.responses + one.responses,
    tokens: sum.tokens + one.tokens,
    cost: sum.cost === null || one.cost === null ? null : sum.cost + Number(one.cost),
  }), { responses: 0, tokens: 0, cost: 0 });
  return [
    make("h3", {}, "What will be asked again"),
    asked.length
      ? make("p", {}, make("strong", {}, many(total.responses, "response")), " of the model; last time ",
        make("strong", {}, `${grouped(total.tokens)} tokens, ${price(total.cost)}`), ".")
      : make("p", {}, "No model is asked again, as far as is known now."),
    asked.length > 0 && make("table.usage", {},
      make("thead", {}, make("tr", {}, ["Function", "Model", "Responses", "Tokens", "Cost"].map(
        (title) => make("th", { scope: "col" }, title)
      ))),
      make("tbody", {}, asked.map((one) => make("tr", {},
        make("th", { scope: "row" }, make("bdi", {}, oneLine(one.function))),
        make("td", {}, make("bdi", {}, oneLine(one.model ?? ""))),
        make("td", {}, grouped(one.responses)),
        make("td", {}, grouped(one.tokens)),
        make("td", {}, price(one.cost)))))),
    run.length > 0 && make("p", {}, "Run again: ", run.map((one, at) => [
      at ? ", " : "",
      make("bdi", {}, oneLine(one.function)),
      one.calls > 1 ? ` × ${grouped(one.calls)}` : "",
    ]), "."),
    make("p.hint", {}, shared
      ? `${many(shared, "call")} ${shared === 1 ? "is" : "are"} shared with this run, at no cost.`
      : "Nothing is shared with this run."),
  ];
}

function price(cost) {
  return cost === null ? "price unknown" : money(cost);
}
