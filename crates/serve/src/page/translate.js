// The page: asks the server for translations as one types, and shows them in a panel for each model.

import { Panel } from "./experts.js";

/** Milliseconds without a key before the server is asked. */
const PAUSE = 250;

/** Characters up to which gates are asked for: their answers are large. */
const LONGEST_MAP = 1000;

const element = (id) => document.getElementById(id);
const source = element("source");
const panels = [];
let models = [];
let timer = null;

/** Sends JSON; the answer, or an error with the server's words. */
async function ask(path, body, signal) {
  const key = element("key").value;
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(key ? { ...body, api_key: key } : body),
  };
  const response = await fetch(path, { ...options, signal });
  const answer = await response.json();
  signal?.throwIfAborted();
  if (!response.ok) throw new Error(answer.error ?? `the server answered ${response.status}`);
  return answer;
}

/** The translation of a text by a panel's model, some experts and heads off; with gates unless the text is long. */
async function translate(panel, q, off, signal) {
  if (q.length <= LONGEST_MAP) {
    return ask("v1/gates", { q, model: panel.model.id, off, alternatives: 3 }, signal);
  }
  const [from, to] = panel.model.languages;
  const answer = await ask("translate", { q, source: from, target: to, model: panel.model.id, alternatives: 0 }, signal);
  const { cutTokens = 0, unknownTokens = 0 } = answer.warnings ?? {};
  const whole = { cut_tokens: cutTokens, unknown_tokens: unknownTokens, alternatives: [], attentions: [] };
  return { translation: answer.translatedText, sentences: [whole], long: true };
}

/** Asks for a panel's translation, and forgets what was asked before. Where something is off, the translation with everything
 * on is asked for first, unless it is known: the panel shows the difference. */
async function update(panel) {
  panel.request?.abort();
  panel.request = new AbortController();
  const { signal } = panel.request;
  const text = source.value;
  const off = panel.off();
  panel.wait(true);
  try {
    if (text.trim() === "") {
      panel.clear();
    } else {
      if (off.length > 0 && !panel.knows(text)) panel.keep(text, await translate(panel, text, [], signal));
      const answer = await translate(panel, text, off, signal);
      if (off.length === 0) panel.keep(text, answer);
      panel.show(answer);
    }
    element("status").textContent = "";
  } catch (error) {
    if (error.name !== "AbortError") element("status").textContent = error.message;
  }
  // Whoever broke the request off waits for its own.
  if (!signal.aborted) panel.wait(false);
}

function updateAll() {
  const length = source.value.length;
  const beyond = length > LONGEST_MAP ? `; experts are shown up to ${LONGEST_MAP}` : "";
  element("count").textContent = length === 0 ? "" : `${length} characters${beyond}`;
  panels.forEach(update);
}

/** A panel for each model that is chosen. */
function choose() {
  const names = [element("model").value, element("other").value].filter((name) => name !== "");
  const chosen = names.map((name) => models.find((model) => model.id === name));
  panels.splice(0).forEach((panel) => panel.request?.abort());
  element("panels").replaceChildren();
  for (const model of chosen) {
    const panel = new Panel(model, () => update(panel));
    panels.push(panel);
    element("panels").append(panel.root);
  }
  element("sides").classList.toggle("comparing", panels.length > 1);
  element("source-language").textContent = chosen[0]?.languages[0] ?? "";
  updateAll();
}

async function start() {
  const [list, settings] = await Promise.all([ask("v1/models"), ask("frontend/settings")]);
  models = list.data.filter((model) => model.task === "translation");
  for (const model of models) {
    const label = `${model.id} (${model.languages.join(" to ")})`;
    element("model").append(new Option(label, model.id));
    element("other").append(new Option(label, model.id));
  }
  if (settings.charLimit >= 0) source.maxLength = settings.charLimit;
  element("key-field").hidden = !settings.keyRequired;
  if (models.length === 0) element("status").textContent = "This server has no translation model.";
  choose();
}

source.addEventListener("input", () => {
  panels.forEach((panel) => panel.wait(true));
  clearTimeout(timer);
  timer = setTimeout(updateAll, PAUSE);
});
element("controls").addEventListener("submit", (event) => event.preventDefault());
element("model").addEventListener("change", choose);
element("other").addEventListener("change", choose);
element("key").addEventListener("change", updateAll);
start().catch((error) => { element("status").textContent = error.message; });
