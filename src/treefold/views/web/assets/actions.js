// Actions on calls: pause, resume, cancel and fork, which the journal's process carries out, and compare.

import { make, replaceContent } from "./dom.js";
import { CANCEL_WARNING, field, openForm, readJson } from "./dialogs.js";
import { attempt, showToast } from "./notices.js";
import { editable, oneLine } from "./text.js";
import { ForkPlan } from "./plan.js";
import { isFromModel } from "./transcript.js";
import { when } from "./format.js";

const LIVE = new Set(["waiting", "running", "paused", "interrupted"]);
const NOT_YET = "The new run has not appeared yet. If its program could not start it, its log says why.";
const POLL_INTERVAL = 150; // milliseconds between two requests for a fork
const MOST_POLLS = 60;

/** Buttons for one call. context has source, pendingNote(), detail(id), open(tree), trees(), isPaused(row). */
export function actionButtons(row, context, { isTop = row.parent === null } = {}) {
  if (!context.source.live) return [];
  const name = `${row.path} ${oneLine(row.fn)}`;
  const buttons = [];
  const put = (text, click, kind = "") => buttons.push(
    make(`button${kind}`, { type: "button", click, "aria-label": `${text} ${name}` }, text)
  );
  if (LIVE.has(row.state)) {
    if (context.isPaused(row)) put("Resume", () => resume(row, context));
    else put("Pause", () => pause(row, context, name));
    put("Cancel", () => cancel(row, context, name));
  } else if (isTop && row.state !== "success") put("Resume", () => resume(row, context));
  put("Fork…", () => fork(row, context));
  return buttons;
}

function pause(row, context, name) {
  return attempt(
    () => context.source.pause(row.id),
    `${name} will pause before its next request or call.${context.pendingNote()}`,
  );
}

async function resume(row, context) {
  const before = new Set(context.trees().map((tree) => tree.id));
  const ended = !LIVE.has(row.state);
  const done = await attempt(() => context.source.resume(row.id));
  if (!done) return;
  if (!ended) {
    showToast(`${row.path} ${oneLine(row.fn)} will resume.${context.pendingNote()}`);
    return;
  }
  showToast(`It resumes as a new run, which shares everything done so far.${context.pendingNote()}`);
  const isNew = (tree) => !before.has(tree.id) && tree.source === row.id;
  await openWhenFound(() => context.trees().find(isNew)?.number, context);
}

function cancel(row, context, name) {
  const reason = make("input", { type: "text", autocomplete: "off" });
  return openForm({
    title: `Cancel ${name}?`,
    fields: [
      make("p", {}, CANCEL_WARNING),
      field("Reason", reason, "Optional; sent to the caller."),
    ],
    action: "Cancel the call",
    danger: true,
    submit: async () => {
      await context.source.cancel(row.id, reason.value.trim());
      showToast(`${name} will be cancelled.${context.pendingNote()}`);
    },
  });
}

/** How many responses an agent has received: each is a run of consecutive parts of the model. */
export function responsesIn(transcript) {
  return transcript.filter((part, at) => isFromModel(part) && !(at && isFromModel(transcript[at - 1]))).length;
}

/** Open the form for a fork of a call; at is the number of responses that the fork keeps. */
export async function fork(row, context, at = 0) {
  let detail;
  if (!await attempt(async () => { detail = await context.detail(row.id); })) return;
  const form = row.agent ? await agentFields(detail, context, at) : codeFields();
  const args = make("textarea.code", { rows: "6", spellcheck: "false" });
  args.value = editable(detail.inputs);
  const result = make(
    "textarea.code", { rows: "3", spellcheck: "false", placeholder: "JSON, for example \"a text\"" }
  );
  const ways = [
    ...form.ways,
    {
      name: "args",
      label: "Edit arguments",
      fields: [field("Arguments", args, "A JSON object.")],
      change: () => ({ args: readJson(args.value, "The field for the arguments") }),
    },
    {
      name: "result",
      label: "Set the result",
      fields: [field("Result", result, "JSON; put a text in quotes.")],
      change: () => ({ result: readJson(result.value, "The field for the result") }),
    },
  ];
  const plan = new ForkPlan(row, context);
  const { element, chosen } = choice(ways, (way) => plan.show(way));
  form.step?.addEventListener("change", () => plan.show(chosen()));
  await plan.show(ways[0]);
  await openForm({
    title: `Fork at ${row.path} ${oneLine(row.fn)}`,
    wide: true,
    fields: [
      make(
        "p.hint",
        {},
        "A new run that shares everything before this call, and runs the rest. This run is not changed.",
      ),
      element,
      form.extra,
      plan.element,
    ],
    action: "Fork",
    submit: async () => {
      const key = await context.source.fork(row.id, { ...chosen().change(), ...form.more() });
      showToast(context.pendingNote() ? `Fork requested.${context.pendingNote()}` : "Fork started.");
      openWhenFound(() => context.source.forked(key), context);
    },
  });
}

function codeFields() {
  return {
    ways: [{ name: "again", label: "Run it again", fields: [], change: () => ({}) }],
    extra: null,
    more: () => ({}),
  };
}

async function agentFields(detail, context, at) {
  const first = detail.transcript.findIndex((part) => part.kind === "user");
  const prompt = make("textarea", { rows: "8" });
  if (detail.transcript[first]) prompt.value = await context.source.part(detail.id, first);
  const responses = responsesIn(detail.transcript);
  const step = make(
    "select",
    {},
    Array.from(
      { length: responses + 1 },
      (_, k) => make(
        "option",
        { value: k, selected: k === at },
        k === 0 ? "before the first response" : `after response ${k} of ${responses}`,
      ),
    ),
  );
  const model = make("input", { type: "text", autocomplete: "off", placeholder: detail.model ?? "" });
  const original = prompt.value;
  const byPrompt = {
    name: "prompt",
    label: "Edit prompt",
    fields: [field("Prompt", prompt)],
    change: () => (prompt.value === original ? { at: 0 } : { prompt: prompt.value }),
  };
  const byStep = {
    name: "step",
    label: "Continue from a step",
    fields: [field("Step", step)],
    change: () => ({ at: Number(step.value) }),
    at: () => Number(step.value),
  };
  return {
    ways: at > 0 ? [byStep, byPrompt] : [byPrompt, byStep],
    step,
    extra: make(
      "details",
      {},
      make("summary", {}, "Use another model"),
      field("Model", model, "A model name that the program knows. Applies to the first two options."),
    ),
    more: () => (model.value.trim() ? { model: model.value.trim() } : {}),
  };
}

/** Radio buttons, each with its own fields; changed(way) is called when another one is chosen. */
function choice(ways, changed) {
  const name = `way-${Math.random().toString(36).slice(2)}`;
  const parts = ways.map((way, at) => {
    const radio = make(
      "input", { type: "radio", name, value: way.name, checked: at === 0, change: () => show(at) }
    );
    const inside = make("div.way-fields", { hidden: at !== 0 }, way.fields);
    return { radio, inside, element: make("div.way", {}, make("label", {}, radio, way.label), inside) };
  });
  const show = (chosen) => {
    parts.forEach(({ inside }, at) => { inside.hidden = at !== chosen; });
    changed(ways[chosen]);
  };
  return {
    element: make(
      "fieldset", {}, make("legend.unseen", {}, "What to change"), parts.map((part) => part.element)
    ),
    chosen: () => ways[parts.findIndex(({ radio }) => radio.checked)],
  };
}

/** Open a run as soon as find() gives its number. */
async function openWhenFound(find, context) {
  for (let polls = 0; polls < MOST_POLLS; polls += 1) {
    await new Promise((resolve) => { setTimeout(resolve, POLL_INTERVAL); });
    let number = null;
    try {
      number = await find();
    } catch (error) {
      showToast(error.message, { wrong: true });
      return;
    }
    if (number) {
      context.open(number);
      return;
    }
  }
  showToast(context.pendingNote() ? `It will appear in the list of runs.${context.pendingNote()}` : NOT_YET);
}

/** Choose a run to compare with: its source and its forks first, then the newest; or one that is searched. */
export async function chooseOther(run, context, compare) {
  const related = context.trees().filter((tree) => tree.number !== run).reverse();
  const select = make("select", { size: "9" });
  const search = make("input", { type: "search", autocomplete: "off" });
  let asked = 0;
  const list = async () => {
    const number = asked += 1;
    const q = search.value.trim();
    const { trees } = await context.source.runs({ q });
    if (number !== asked) return;
    const first = q ? [] : related;
    const known = new Set([run, ...first.map((tree) => tree.number)]);
    const found = [...first, ...trees.reverse().filter((tree) => !known.has(tree.number))];
    replaceContent(select, found.map((tree, at) => make(
      "option",
      { value: tree.number, selected: at === 0 },
      [tree.number, oneLine(tree.function), tree.key && `“${oneLine(tree.key)}”`, tree.state, when(tree.started)]
        .filter(Boolean).join("  "),
    )));
  };
  search.addEventListener("input", () => attempt(list));
  if (!await attempt(list)) return;
  await openForm(
    {
      title: `Compare run ${run} with`,
      fields: [
        field("Find a run", search, "By its number, function, key or state."),
        field("Run", select),
      ],
      action: "Compare",
      submit: async () => {
        if (!select.value) throw new Error("Choose a run.");
        compare(run, Number(select.value));
      },
    },
  );
}

