// Questions to a person, and the controls to answer them.

import { icon, make, replaceContent } from "./dom.js";
import { CANCEL_WARNING, openForm, readJson } from "./dialogs.js";
import { attempt, showToast } from "./notices.js";
import { formControls } from "./form.js";
import { when } from "./format.js";
import { editable, longText, oneLine } from "./text.js";

const TITLES = { human: "asks", approval: "asks for approval", in_doubt: "in doubt", paused: "paused", budget: "asks for more" };
const WORDS = {
  allow: "Allow",
  deny: "Deny",
  resume: "Resume",
  cancel: "Cancel the call",
  report: "Report to the model",
  retry: "Run it again",
  use: "Use a result",
  empty: "Use an empty text",
  fail: "Let it fail",
};
const AGAIN = 2000; // milliseconds
const NO_RESULT = "Enter the result that it had, unless it was an empty text. ";

/**
 * One question with the controls to answer it. who is a link to the call; context has source,
 * detail(id) and pendingNote() (added to the confirmation while the program is stopped).
 */
export function questionCard(question, who, context) {
  const card = make("article.question", {
    "data-question": question.id,
    "aria-label": `${TITLES[question.kind] ?? "asks"}: ${oneLine(question.text).slice(0, 200)}`,
  },
    make("header", {}, icon("ask"), who, make("span.kind-word", {}, TITLES[question.kind] ?? question.kind)),
    longText(question.text, { first: 600 }),
    terms(question));
  if (!context.source.live) return card;
  const send = async (text, args = null) => {
    card.inert = true;
    context.answering(question.id, true);
    const done = await attempt(() => context.source.answer(question.id, text, args));
    if (done) {
      card.classList.add("answered");
      if (context.pendingNote()) showToast(`Answered.${context.pendingNote()}`);
    } else card.inert = false;
    // An answer that was refused: the question is there again in a moment.
    if (done) context.answering(question.id, false);
    else setTimeout(() => context.answering(question.id, false), AGAIN);
  };
  card.append(...controls(question, send, context));
  return card;
}

function controls(question, send, context) {
  switch (question.kind) {
    case "approval": return approval(question, send, context);
    case "in_doubt": return inDoubt(send);
    case "paused": return paused(question, send);
    default:
      if (question.form) return formControls(question, send);
      return question.choices.length ? choices(question, send) : freeText(question, send);
  }
}

function button(text, click, kind = "") {
  return make(`button${kind}`, { type: "button", click }, text);
}

function choices(question, send) {
  return [
    make(
      "div.buttons",
      {},
      question.choices.map((choice) => button(make("bdi", {}, oneLine(choice)), () => send(choice))),
    ),
  ];
}

/** Who is asked, until when, and what happens then. */
function terms({ to, expires, default: fallback, escalations, form }) {
  const said = to ? [`for ${oneLine(to)}`] : [];
  if (escalations?.length) said.push(`for ${oneLine(escalations[0].to)} from ${when(escalations[0].at)}`);
  if (expires !== null && expires !== undefined) {
    const known = form?.properties ? "as the form begins" : oneLine(fallback ?? "") || "an empty text";
    said.push(`until ${when(expires)}, otherwise ${fallback === null ? "it fails" : known}`);
  }
  return said.length ? make("p.hint.terms", {}, said.join("; ")) : null;
}

function freeText(question, send) {
  const text = make("textarea", { rows: "2", placeholder: "Your answer", "aria-label": "Your answer" });
  text.value = question.default ?? "";
  const form = make(
    "form",
    {},
    text,
    make(
      "div.buttons",
      {},
      make("button.primary", { type: "submit" }, "Answer"),
      make("span.hint", {}, "Ctrl+Enter sends it"),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(text.value);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return [form];
}

function approval(question, send, context) {
  const why = make(
    "input", { type: "text", placeholder: "Reason, sent to the model", "aria-label": "Reason to deny it" }
  );
  const args = make("textarea.code", { rows: "6", spellcheck: "false", "aria-label": "Arguments as JSON" });
  const fault = make("p.fault", { role: "alert" });
  const allowEdited = () => {
    let edited;
    try {
      edited = readJson(args.value, "This");
      if (edited === null || typeof edited !== "object" || Array.isArray(edited)) throw new Error(
        "Arguments must be an object: {\"name\": value}"
      );
    } catch (error) {
      fault.textContent = error.message;
      return;
    }
    fault.textContent = "";
    send("allow", edited);
  };
  const edit = make("details", {}, make("summary", {}, "Edit the arguments"), args, fault,
    make("div.buttons", {}, button("Allow with these arguments", allowEdited)));
  edit.addEventListener("toggle", async () => {
    if (!edit.open || args.value) return;
    await attempt(
      async () => { args.value = editable((await context.detail(question.node)).inputs); }
    );
  });
  return [
    make("div.buttons", {},
      button("Allow", () => send("allow"), ".primary"),
      button("Deny", () => send(why.value.trim() ? `deny: ${why.value.trim()}` : "deny")),
      why),
    edit,
  ];
}

function inDoubt(send) {
  const use = make(
    "textarea.code",
    { rows: "2", spellcheck: "false", placeholder: "The result it had", "aria-label": "The result it had" },
  );
  const why = make("input", { type: "text", placeholder: "Why", "aria-label": "Why it fails" });
  const fault = make("p.fault", { role: "alert" });
  const sendResult = () => {
    const given = use.value.trim() !== "";
    replaceContent(fault, given ? null : [NO_RESULT, button(WORDS.empty, () => send("use:"))]);
    if (given) send(`use: ${use.value}`);
    else use.focus();
  };
  use.addEventListener("input", () => replaceContent(fault));
  return [
    make("div.buttons", {}, button(WORDS.retry, () => send("retry"), ".primary")),
    make("div.buttons", {}, button(WORDS.use, sendResult), use),
    fault,
    make(
      "div.buttons",
      {},
      button(WORDS.fail, () => send(why.value.trim() ? `fail: ${why.value.trim()}` : "fail")),
      why,
    ),
  ];
}

function paused(question, send) {
  return [make("div.buttons", {}, question.choices.map((choice) => {
    const text = WORDS[choice] ?? oneLine(choice);
    if (choice !== "cancel") return button(text, () => send(choice), choice === "resume" ? ".primary" : "");
    return button(text, () => openForm({
      title: "Cancel this call?",
      fields: [
        make("p", {}, CANCEL_WARNING),
      ],
      action: "Cancel the call",
      danger: true,
      submit: () => send(choice),
    }), ".danger");
  }))];
}

