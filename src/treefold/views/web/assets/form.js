// Forms made from the JSON Schema of a question.

import { make } from "./dom.js";

const NUMBERS = new Set(["integer", "number"]);
const INPUTS = { date: "date", "date-time": "datetime-local", time: "time", email: "email", uri: "url" };

/** The schema with the definition that it refers to; whole is the one with all definitions. */
function resolved(schema, whole) {
  const reference = schema.$ref ?? schema.allOf?.find((one) => one.$ref)?.$ref;
  if (!reference) return schema;
  const { $ref, allOf, ...kept } = schema;
  return { ...whole.$defs?.[reference.split("/").at(-1)], ...kept };
}

/** The one schema that is not null, if a value may be left out: int | None. */
function withoutNull(schema, whole) {
  const choices = schema.anyOf?.filter((one) => one.type !== "null") ?? [];
  if (choices.length !== 1) return { schema, nullable: false };
  const { anyOf, ...kept } = schema;
  return { schema: { ...resolved(choices[0], whole), ...kept }, nullable: true };
}

/**
 * A control for one value: its element, and read(), which returns the value, undefined if it is left
 * out, and throws an Error with the reason if it cannot be read.
 */
function controlOf(given, whole, { label, required, value }) {
  const { schema, nullable } = withoutNull(resolved(given, whole), whole);
  const initial = value ?? schema.default;
  const common = { "aria-label": label, required: required && !nullable };
  if (schema.enum) return selectOf(schema.enum, common, initial);
  if (schema.type === "boolean") return checkboxOf(common, initial, required);
  if (NUMBERS.has(schema.type)) return numberOf(schema, common, initial);
  if (schema.type === "string") return textOf(schema, common, initial);
  return jsonOf(common, initial, label);
}

function selectOf(values, common, initial) {
  const options = values.map((one, place) => make(
    "option", { value: String(place), selected: one === initial }, typeof one === "string" ? one : JSON.stringify(one),
  ));
  const empty = make("option", { value: "", selected: initial === undefined }, "choose…");
  const element = make("select", common, initial === undefined ? [empty, ...options] : options);
  return { element, read: () => element.value === "" ? undefined : values[Number(element.value)] };
}

function checkboxOf(common, initial, required) {
  const element = make("input", { type: "checkbox", "aria-label": common["aria-label"], checked: initial === true });
  let touched = required || initial !== undefined;
  element.addEventListener("change", () => { touched = true; });
  return { element, read: () => touched ? element.checked : undefined, inline: true };
}

function numberOf(schema, common, initial) {
  const element = make("input", {
    type: "number",
    step: schema.type === "integer" ? "1" : "any",
    min: schema.minimum,
    max: schema.maximum,
    value: initial ?? "",
    ...common,
  });
  return { element, read: () => element.value === "" ? undefined : Number(element.value) };
}

function textOf(schema, common, initial) {
  const type = INPUTS[schema.format];
  if (!type) {
    const { required, ...rest } = common;
    const element = make("textarea", { rows: "1", ...rest });
    element.value = initial ?? "";
    // An empty text is an answer, where the form requires a text.
    return { element, read: () => element.value === "" && !required ? undefined : element.value };
  }
  const value = type === "datetime-local" ? withoutZone(initial) : initial ?? "";
  const element = make("input", { type, step: type === "date" ? undefined : "1", value, ...common });
  return { element, read: () => element.value === "" ? undefined : withZone(element.value, type) };
}

/** A time in JSON as a control has it, which is local. */
function withoutZone(time) {
  if (!time) return "";
  const date = new Date(time);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The time of a control as JSON has it. */
function withZone(value, type) {
  return type === "datetime-local" ? new Date(value).toISOString() : value;
}

function jsonOf(common, initial, label) {
  const element = make("textarea.code", { rows: "3", spellcheck: "false", placeholder: "JSON", ...common });
  element.value = initial === undefined || initial === null ? "" : JSON.stringify(initial, null, 2);
  const read = () => {
    if (element.value.trim() === "") return undefined;
    try {
      return JSON.parse(element.value);
    } catch (error) {
      throw new Error(`${label || "This"} is not JSON: ${error.message}`);
    }
  };
  return { element, read };
}

function defaultOf(question) {
  try {
    return question.default === null ? undefined : JSON.parse(question.default);
  } catch {
    return undefined; // it was redacted
  }
}

/** The controls of a question with a form; send(text) answers with JSON. */
export function formControls(question, send) {
  const whole = question.form;
  const schema = resolved(whole, whole);
  const initial = defaultOf(question);
  const fields = Object.entries(schema.properties ?? {}).map(([name, given]) => ({
    name,
    title: given.title ?? name.replaceAll("_", " "),
    hint: resolved(given, whole).description,
    control: controlOf(given, whole, {
      label: name, required: schema.required?.includes(name) ?? false, value: initial?.[name],
    }),
  }));
  const only = fields.length
    ? null
    : controlOf(whole, whole, { label: "Your answer", required: true, value: initial });
  const fault = make("p.fault", { role: "alert" });
  const rows = fields.map(({ name, title, hint, control }) => make(
    control.inline ? "label.form-row.inline" : "label.form-row", { "data-field": name },
    make("span.form-name", {}, title), control.element, hint ? make("span.hint", {}, hint) : null,
  ));
  const form = make("form.typed", {}, only ? only.element : rows, fault,
    make("div.buttons", {}, make("button.primary", { type: "submit" }, "Answer")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    fault.textContent = "";
    try {
      const value = only ? only.read() ?? null : Object.fromEntries(
        fields.map(({ name, control }) => [name, control.read()]).filter(([, one]) => one !== undefined),
      );
      send(JSON.stringify(value));
    } catch (error) {
      fault.textContent = error.message;
    }
  });
  return [form];
}
