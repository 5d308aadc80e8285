// What can be asked of whoever drives the journal: pause, resume, cancel, fork, compare.

import { make } from "./dom.js";
import { ENDS_HERE, field, openForm, readJson } from "./dialogs.js";
import { attempt, tell } from "./notices.js";
import { editable, oneLine } from "./text.js";
import { when } from "./words.js";

const LIVE = new Set(["waiting", "running", "paused", "interrupted"]);
const NOT_YET = "The new run is not there yet. If its program could not begin it, its log says why.";
const WAIT = 150; // milliseconds between looks for a fork
const PATIENCE = 60; // looks, before it is said that it takes long

/** Buttons for one call. desk has source, note(), detail(id), open(tree), trees(), isHeld(row). */
export function actionButtons(row, desk, { isTop = row.parent === null } = {}) {
  if (!desk.source.live) return [];
  const name = `${row.path} ${oneLine(row.fn)}`;
  const buttons = [];
  const put = (text, click, kind = "") => buttons.push(
    make(`button${kind}`, { type: "button", click, "aria-label": `${text} ${name}` }, text)
  );
  if (LIVE.has(row.state)) {
    if (desk.isHeld(row)) put("Resume", () => resume(row, desk));
    else put("Pause", () => pause(row, desk, name));
    put("Cancel", () => cancel(row, desk, name));
  } else if (isTop && row.state !== "success") put("Resume", () => resume(row, desk));
  put("Fork…", () => fork(row, desk));
  return buttons;
}

function pause(row, desk, name) {
  return attempt(
    () => desk.source.pause(row.id), `${name} is to make no further request or call.${desk.note()}`
  );
}

async function resume(row, desk) {
  const before = new Set(desk.trees().map((tree) => tree.id));
  const ended = !LIVE.has(row.state);
  const done = await attempt(() => desk.source.resume(row.id));
  if (!done) return;
  if (!ended) {
    tell(`${row.path} ${oneLine(row.fn)} is to go on.${desk.note()}`);
    return;
  }
  tell(`It goes on as a new run that shares all that was done.${desk.note()}`);
  await come(() => desk.trees().find((tree) => !before.has(tree.id) && tree.source === row.id)?.id, desk);
}

function cancel(row, desk, name) {
  const reason = make("input", { type: "text", autocomplete: "off" });
  return openForm({
    title: `Cancel ${name}?`,
    fields: [
      make("p", {}, ENDS_HERE),
      field("Reason", reason, "Its caller is told. May be left out."),
    ],
    action: "Cancel the call",
    danger: true,
    submit: async () => {
      await desk.source.cancel(row.id, reason.value.trim());
      tell(`${name} is to be cancelled.${desk.note()}`);
    },
  });
}

/** How many responses an agent has had: each is a stretch of what its model said. */
export function responsesIn(transcript) {
  let count = 0;
  let inside = false;
  for (const { kind } of transcript) {
    const said = kind === "text" || kind === "thinking" || kind === "call";
    if (said && !inside) count += 1;
    inside = said;
  }
  return count;
}

/** Ask for a fork of a call; at is the number of responses that it is to keep. */
export async function fork(row, desk, at = 0) {
  let detail;
  if (!await attempt(async () => { detail = await desk.detail(row.id); })) return;
  const form = row.agent ? await agentFields(detail, desk, at) : codeFields();
  const args = make("textarea.code", { rows: "6", spellcheck: "false" });
  args.value = editable(detail.inputs);
  const result = make(
    "textarea.code", { rows: "3", spellcheck: "false", placeholder: "JSON, for example \"a text\"" }
  );
  const ways = [
    ...form.ways,
    {
      name: "args",
      label: "With other arguments",
      fields: [field("Arguments", args, "A JSON object.")],
      change: () => ({ args: readJson(args.value, "What stands for the arguments") }),
    },
    {
      name: "result",
      label: "As if it had returned something",
      fields: [field("Result", result, "JSON: a text stands in quotes.")],
      change: () => ({ result: readJson(result.value, "What stands for the result") }),
    },
  ];
  const { element, chosen } = choice(ways);
  await openForm({
    title: `Fork at ${row.path} ${oneLine(row.fn)}`,
    wide: true,
    fields: [
      make(
        "p.hint",
        {},
        "A new run that shares all that happened before, and runs what follows. This one stays as it is.",
      ),
      element,
      form.extra,
    ],
    action: "Fork",
    submit: async () => {
      const key = await desk.source.fork(row.id, { ...chosen().change(), ...form.more() });
      tell(`The fork is asked for.${desk.note()}`);
      come(() => desk.source.forked(key), desk);
    },
  });
}

function codeFields() {
  return {
    ways: [{ name: "again", label: "Run it again from its start", fields: [], change: () => ({}) }],
    extra: null,
    more: () => ({}),
  };
}

async function agentFields(detail, desk, at) {
  const first = detail.transcript.findIndex((part) => part.kind === "user");
  const prompt = make("textarea", { rows: "8" });
  const told = detail.transcript[first];
  if (told) prompt.value = await desk.source.part(detail.id, first);
  const had = responsesIn(detail.transcript);
  const step = make(
    "select",
    {},
    Array.from(
      { length: had + 1 },
      (_, k) => make(
        "option",
        { value: k, selected: k === at },
        k === 0 ? "before its first response" : `after response ${k} of ${had}`,
      ),
    ),
  );
  const model = make("input", { type: "text", autocomplete: "off", placeholder: detail.model ?? "" });
  const original = prompt.value;
  const told_ = {
    name: "prompt",
    label: "Told something else",
    fields: [field("Prompt", prompt)],
    change: () => (prompt.value === original ? { at: 0 } : { prompt: prompt.value }),
  };
  const step_ = {
    name: "step",
    label: "From one of its steps",
    fields: [field("Step", step)],
    change: () => ({ at: Number(step.value) }),
  };
  return {
    ways: at > 0 ? [step_, told_] : [told_, step_],
    extra: make(
      "details",
      {},
      make("summary", {}, "Another model"),
      field("Model", model, "By the name that the program knows it by. Only for the first two."),
    ),
    more: () => (model.value.trim() ? { model: model.value.trim() } : {}),
  };
}

/** One of several ways, each with fields of its own. */
function choice(ways) {
  const name = `way-${Math.random().toString(36).slice(2)}`;
  const parts = ways.map((way, at) => {
    const radio = make(
      "input", { type: "radio", name, value: way.name, checked: at === 0, change: () => show(at) }
    );
    const inside = make("div.way-fields", { hidden: at !== 0 }, way.fields);
    return { radio, inside, element: make("div.way", {}, make("label", {}, radio, way.label), inside) };
  });
  const show = (chosen) => parts.forEach(({ inside }, at) => { inside.hidden = at !== chosen; });
  return {
    element: make(
      "fieldset", {}, make("legend.unseen", {}, "What is to be different"), parts.map((part) => part.element)
    ),
    chosen: () => ways[parts.findIndex(({ radio }) => radio.checked)],
  };
}

/** Go to a run once it is there. */
async function come(look, desk) {
  for (let tries = 0; tries < PATIENCE; tries += 1) {
    await new Promise((resolve) => { setTimeout(resolve, WAIT); });
    let id = null;
    try {
      id = await look();
    } catch (error) {
      tell(error.message, { wrong: true });
      return;
    }
    if (id) {
      desk.open(id);
      return;
    }
  }
  tell(desk.note() ? `It will be in the list of runs.${desk.note()}` : NOT_YET);
}

/** Choose a run to compare with. */
export function chooseOther(id, desk, compare) {
  const others = desk.trees().filter((tree) => tree.id !== id).reverse();
  if (!others.length) {
    tell("There is no other run to compare with.");
    return;
  }
  const select = make("select", {
    size: String(Math.min(10, Math.max(2, others.length))),
  }, others.map((tree, at) =>
    make(
      "option",
      { value: tree.id, selected: at === 0 },
      [tree.number, oneLine(tree.function), tree.key && `“${oneLine(tree.key)}”`, tree.state, when(tree.started)]
        .filter(Boolean).join("  "),
    )));
  openForm(
    {
      title: `Compare run ${desk.trees().find((tree) => tree.id === id)?.number ?? ""} with`,
      fields: [field("Run", select)],
      action: "Compare",
      submit: async () => compare(Number(select.value)),
    },
  );
}

