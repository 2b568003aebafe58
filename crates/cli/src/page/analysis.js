/* What `mae analyze` found: `data.model`, `data.data`, `data.split`, `data.one_expert` and `data.analysis`; of a language
   model, `data.analysis.text` says how the text was read. */

const found = data.analysis;
/* Gates hold probabilities of experts, or weights of heads: then there are no experts, and entropy is not defined. */
const weights = found.gates === "weights";
const [letter, noun] = weights ? ["H", "head"] : ["E", "expert"];
const columnCount = weights ? found.heads : found.experts;
const experts = Array.from({ length: columnCount }, (_, e) => e);
const attentionChoices = found.attentions.map((a, i) => [String(i), a.label]);
const heat = { class: columnCount > 12 ? "heat many" : "heat" };
const text = found.text;
const positionsWord = text ? "positions" : "target positions";
const rowsWord = (attention) => (attention.rows === "sentences" ? "sentences" : attention.kind === "encoder" ? "source positions" : positionsWord);
const without = (e) => (weights ? "one of " + found.heads : "all heads but " + found.left_out[e].join(" and "));

page.append(
  make("h1", {}, (weights ? "Gates of " : "Experts of ") + data.model),
  make("p", { class: "faint" }, `${data.data}${data.split ? ", " + data.split : ""}: ` +
    (text ? `${text.tokens} tokens` : `${found.sentences} sentence pairs`) + `; ${found.heads} heads` + (weights ? " with a weight each" : `, ${found.experts} experts`) + " per attention." + (found.skipped ? ` ${found.skipped} pairs are longer than the model's positions and were left out.` : "")));

if (text) {
  page.append(make("p", { class: "faint" }, `Read in blocks of ${text.tokens_per_sample} with ${text.context_window} tokens of context; each token counts once, ` +
    `ends of ${text.lines} lines counted. ${text.unknown} tokens are <unk>. With the mixture, perplexity per token is ${text.ppl_per_token.toFixed(2)}, ` +
    `per word ${text.ppl_per_word.toFixed(2)} (${text.words} words).`));
}
if (found.attentions.length === 0) {
  page.append(make("p", {}, `This system has no gates: all experts weigh alike, and the entropy is ln ${found.experts} = ` +
    `${found.uniform_entropy.toFixed(3)} nats everywhere.`));
} else if (weights) {
  page.append(make("p", {}, "Gates are weights of heads and no probabilities: entropy and experts in use are not defined."));
  drawHeads();
  drawHeat();
} else {
  /* Green only where every attention's gates tell inputs apart and share them out. */
  const shares = found.attentions.map((a) => a.sharing);
  const verdict = found.collapse.collapsed ? "bad" : shares.every((s) => s === "balanced") ? "good" : null;
  page.append(make("p", { class: verdict }, found.collapse.words),
    make("details", {}, make("summary", { class: "faint" }, "How that was judged"), make("p", { class: "faint" }, found.collapse.rule)));
  drawEntropy();
  if (found.tags) drawTags();
  drawHeat();
  drawHeads();
}
if (data.one_expert) drawOneExpert();
if (found.attentions.length > 0) {
  drawWords();
  if (found.examples.length > 0) drawBrowser();
}

function drawEntropy() {
  /* Gates are near uniform at first: the distance from it tells more than the entropy. */
  const distance = (entropy) => Math.max(0, found.uniform_entropy - entropy);
  const all = found.attentions.flatMap((a) => [a.entropy].concat(a.untrained ? [a.untrained.entropy] : []));
  const farthest = Math.max(1e-9, ...all.map(distance));
  const bar = (entropy, before) => {
    const fill = make("span", { class: "bar" }), track = make("span", { class: "track" }, fill);
    const share = (value) => (100 * distance(value) / farthest).toFixed(1) + "%";
    fill.style.width = share(entropy);
    if (before !== null && before !== undefined) {
      const mark = make("span", { class: "mark", title: `untrained: ${before.toFixed(3)}` });
      mark.style.left = share(before);
      track.append(mark);
    }
    return make("td", { class: "text" }, track);
  };
  const of = (value, digits) => (value === null || value === undefined ? "" : value.toFixed(digits));
  const untrained = (a, key, digits) => make("td", { class: "faint" }, a.untrained ? of(a.untrained[key], digits) : "");
  const rows = found.attentions.map((a) => [a.label, a.entropy.toFixed(3), bar(a.entropy, a.untrained?.entropy), untrained(a, "entropy", 3),
    a.information.toFixed(4), untrained(a, "information", 4), a.experts_in_use.toFixed(2), make("td", { class: a.sharing === "collapsed" ? "bad" : null }, a.sharing), `${a.count} ${rowsWord(a)}`]);
  const means = [["encoder", "mean, encoder"], ["decoder", "mean, decoder"], ["cross", "mean, cross"], ["all", "mean, all"]]
    .filter(([key]) => found.entropy[key] !== null && (!text || key === "all"))
    .map(([key, words]) => [words, found.entropy[key].toFixed(3), bar(found.entropy[key], found.untrained_entropy[key]), of(found.untrained_entropy[key], 3),
      of(found.information[key], 4), of(found.untrained_information[key], 4), "", "", ""]);
  section("Gate entropy",
    make("p", { class: "faint" }, `In nats. Bars show how far a gate is below ln ${found.experts} = ${found.uniform_entropy.toFixed(3)}, a gate without favourites; a full bar is ${farthest.toFixed(3)} below it, and the mark is the untrained gate. ` +
      "Information is what an input tells about its expert: the entropy of the mean gate less the mean entropy. Experts in use: e to the entropy of the mean gate. Untrained: the gates before their training, on the same inputs."),
    table(["attention", "entropy", make("th", { scope: "col", class: "text" }, "below uniform"), "untrained", "information", "untrained", "experts in use", "sharing", "rows"], rows.concat(means)));
}

function drawTags() {
  const place = make("div", {});
  const told = found.attentions.map((a, i) => [i, a.tags]).filter(([, tags]) => tags);
  const most = told.reduce((best, one) => (one[1].information > best[1].information ? one : best), told[0]);
  const draw = (number) => {
    const a = found.attentions[Number(number)], before = a.untrained && a.untrained.tags;
    const rows = found.tags.map((tag, t) => make("tr", {}, make("th", { scope: "row" }, tag), make("td", {}, a.tags.rows[t]),
      a.tags.mean_gates[t].map((g) => heatCell(percent(g), g / Math.max(...a.tags.mean_gates.flat()), {}))));
    place.replaceChildren(
      make("p", {}, `I(tag; expert) = ${a.tags.information.toFixed(4)} nats` + (before ? `, untrained ${before.information.toFixed(4)}.` : ".")),
      table(["tag", "rows"].concat(experts.map((e) => letter + e)), rows, heat));
  };
  draw(String(most[0]));
  section("Gates by tag", make("p", { class: "faint" }, "The mean gate of the rows with each tag. Information is the entropy of the mean gate less the mean entropy of the tags' mean gates."),
    make("div", { class: "controls" }, choice("attention", attentionChoices, String(most[0]), draw)), place);
}

function drawHeat() {
  const place = make("div", {});
  const kinds = weights ? { leads: "share of rows led" } : { leads: "share of rows led", mean_gate: "mean gate" };
  const draw = (key) => {
    const most = Math.max(...found.attentions.flatMap((a) => a[key]), 2 / columnCount);
    const rows = found.attentions.map((a) => make("tr", {}, make("th", { scope: "row" }, a.label),
      a[key].map((share, e) => heatCell(percent(share), share / most, { title: `${a.label}, ${noun} ${e} (${without(e)}): ${percent(share)}` }))));
    place.replaceChildren(table([kinds[key]].concat(experts.map((e) => letter + e)), rows, heat));
  };
  draw("leads");
  section(weights ? "Heads by layer" : "Experts by layer",
    make("p", { class: "faint" }, `Who leads: the share of ${text ? "positions" : "sentences (of positions, where gates are per position)"} whose gate is largest for ${weights ? "a head" : "an expert"}; ` +
      `the fair share is ${(100 / columnCount).toFixed(1)} %.` + (weights ? "" : ` The mean gate is the share of draws that train an expert. Expert 0 is ${without(0)}.`)),
    make("div", { class: "controls" }, choice("show", Object.entries(kinds), "leads", draw)), place);
}

function drawHeads() {
  const heads = Array.from({ length: found.heads }, (_, h) => "H" + h);
  const farthest = Math.max(0.1, ...found.attentions.flatMap((a) => a.head_weights.map((w) => Math.abs(w.mean - 1))));
  const rows = found.attentions.map((a) => make("tr", {}, make("th", { scope: "row" }, a.label),
    a.head_weights.map((w) => heatCell(`${w.mean.toFixed(2)} ± ${w.deviation.toFixed(2)}`, (w.mean - 1) / farthest, {}))));
  section("Head weights",
    make("p", { class: "faint" }, (weights ? "w" : "w = g·M") + ": mean and standard deviation over rows. 1 is plain attention; above it in blue, below it in orange, the darker the farther."),
    table(["attention"].concat(heads), rows, { class: "heat" }));
}

function drawOneExpert() {
  const scores = data.one_expert, signed = (d) => (d > 0 ? "+" : "") + d.toFixed(2);
  const rows = [["mixture", scores.mixture.toFixed(2), ""]];
  if (scores.argmax !== null) rows.push(["one expert: the gates' favourite", scores.argmax.toFixed(2), signed(scores.argmax - scores.mixture)]);
  if (scores.random.length > 0) {
    const mean = scores.random.reduce((a, b) => a + b) / scores.random.length;
    const squares = scores.random.reduce((sum, b) => sum + (b - mean) ** 2, 0);
    const deviation = scores.random.length > 1 ? Math.sqrt(squares / (scores.random.length - 1)) : 0;
    rows.push([`one expert: random, ${scores.random.length} draws`, `${mean.toFixed(2)} ± ${deviation.toFixed(2)}`, signed(mean - scores.mixture)]);
  }
  const [unit, meaning] = scores.metric === "bleu" ? ["BLEU", `BLEU (fairseq's, whitespace tokens, pieces joined), beam ${scores.beam}.`]
    : ["perplexity", "Perplexity per word, pieces joined, ends of lines counted; lower is better. Random experts are drawn for each block and attention."];
  section("One expert instead of the mixture", make("p", { class: "faint" }, meaning), table(["experts", unit, "difference"], rows));
}

function drawWords() {
  const place = make("div", { class: "columns" });
  const draw = (number) => {
    const attention = found.attentions[Number(number)], before = attention.untrained;
    const lines = (words) => (words.length === 0 ? make("p", { class: "faint" }, "none") : make("table", {}, make("tbody", {}, words.map((w) =>
      make("tr", {}, make("td", { class: "text", title: w.word }, w.word), make("td", {}, w.llr.toFixed(1)), make("td", {}, w.pmi.toFixed(2)), make("td", { class: "faint" }, `${w.together} of ${w.count}`))))));
    const list = (words, e) => make("div", {}, make("h3", { title: without(e) }, (weights ? "Head " : "Expert ") + e), lines(words),
      before ? make("details", {}, make("summary", { class: "faint" }, "before training"), lines(before.words[e])) : "");
    place.replaceChildren(...attention.words.map(list));
  };
  draw("0");
  section(weights ? "Words and heads" : "Words and experts",
    make("p", { class: "faint" }, `Words with the largest log-likelihood ratio G² of those that come at least ${found.min_count} times; then their PMI, ` +
      `ln p(word, ${noun})/(p(word)·p(${noun})), in nats, and how often they come with the ${noun}, and at all. A word counts for the ${noun} that leads ` +
      (text ? "where its first piece is predicted." : "its sentence, or where gates are per position, where its first piece is predicted.")),
    make("div", { class: "controls" }, choice("attention", attentionChoices, "0", draw)), place);
}

function drawBrowser() {
  const joined = (pieces) => pieces.filter((p) => p !== "</s>").join(" ").replaceAll("@@ ", "");
  const written = (example) => joined(text ? example.target : example.source);
  const list = make("div", { class: "list" }), place = make("div", {});
  /* Source positions are shown by their mean. */
  const perPosition = attentionChoices.filter(([i]) => found.attentions[i].rows === "positions" && found.attentions[i].kind !== "encoder");
  /* Of the attentions with a gate per position, all of them or the number of one. */
  const all = "all";
  let chosen = 0, open = perPosition.length > 1 ? all : perPosition.length === 1 ? perPosition[0][0] : null;
  const leaderOf = (gate) => gate.indexOf(Math.max(...gate));
  /* Gates near 1/E are many; the darkest cell is that of the largest gate there is, or of 3/E. */
  const largest = found.examples.reduce((most, s) => s.gates.flat(2).reduce((a, b) => Math.max(a, b), most), 0);
  const darkest = weights ? largest : Math.max(Math.min(1, 3 / found.experts), largest);
  const gateCells = (gate) => gate.map((g, e) => heatCell(g.toFixed(2), g / darkest, { class: e === leaderOf(gate) ? "leads" : null }));
  /* A hue for each expert, so that runs of one are seen at once. */
  const leaderCell = (gate, label) => {
    const e = leaderOf(gate), hue = Math.round(360 * e / columnCount), strength = (0.15 + 0.4 * gate[e] / darkest).toFixed(3);
    const cell = make("td", { title: `${label}: ${noun} ${e} (${without(e)}) has ${gate[e].toFixed(3)}` }, letter + e);
    cell.style.background = `hsla(${hue}, 75%, 50%, ${strength})`;
    return cell;
  };
  const columns = experts.map((e) => letter + e);

  /** One row per piece: its gate of one attention, or who leads it in each of them. */
  function byPosition(example) {
    const likely = (t) => (example.log_probs ? [make("td", {}, example.log_probs[t].toFixed(2))] : []);
    const cells = (t) => (open === all ? perPosition.map(([i, label]) => leaderCell(example.gates[i][t], label)) : gateCells(example.gates[open][t]));
    const rows = example.target.map((piece, t) => make("tr", {}, make("th", { scope: "row" }, piece), likely(t), cells(t)));
    const headings = ["piece predicted"].concat(example.log_probs ? ["ln p"] : [], open === all ? perPosition.map(([, label]) => label) : columns);
    const choices = (perPosition.length > 1 ? [[all, "who leads, all layers"]] : []).concat(perPosition);
    return [make("div", { class: "controls" }, choice("position by position", choices, open, (which) => { open = which; show(); })), table(headings, rows, heat)];
  }

  function show() {
    const example = found.examples[chosen];
    const parts = [make("p", { class: "pieces" }, make("b", {}, `${example.number}  `), written(example))];
    if (!text) parts.push(make("p", { class: "pieces faint" }, joined(example.target)));
    const meanOf = (rows) => rows[0].map((_, e) => rows.reduce((sum, row) => sum + row[e], 0) / rows.length);
    const rows = found.attentions.map((a, i) => {
      const name = a.rows === "positions" && a.kind === "encoder" ? a.label + " (mean)" : a.rows === "positions" ? make("button", { class: "plain", onclick: () => { open = String(i); show(); } }, a.label + " (mean)") : a.label;
      return make("tr", { class: String(i) === open ? "open" : null }, make("th", { scope: "row" }, name), gateCells(meanOf(example.gates[i])));
    });
    parts.push(table(["attention"].concat(columns), rows, heat));
    if (open !== null) parts.push(...byPosition(example));
    place.replaceChildren(...parts);
    for (const button of list.children) button.setAttribute("aria-pressed", String(Number(button.dataset.i) === chosen));
  }

  function fill(filter) {
    const matches = found.examples.map((s, i) => [i, s]).filter(([, s]) =>
      (joined(s.source) + " " + joined(s.target)).toLowerCase().includes(filter.toLowerCase()));
    list.replaceChildren(...matches.map(([i, s]) =>
      make("button", { "data-i": i, onclick: () => { chosen = i; show(); } }, `${s.number}  ${written(s)}`)));
  }

  const [title, what] = text ? ["Passages", "passage"] : ["Sentences", "sentence"];
  const search = make("input", { type: "search", placeholder: "words", "aria-label": `${what}s with these words`, oninput: () => { fill(search.value); show(); } });
  section(title,
    make("p", { class: "faint" }, `Pick a ${what} to see each layer's gates for it; the largest is outlined. ` +
      (text ? "First the mean over its positions, below it position by position; the number is that of its first token in the text."
        : "Of attentions with a gate per target position, the mean, and below it position by position.")),
    make("div", { class: "browser" }, make("div", {}, make("div", { class: "controls" }, search), list), place));
  fill("");
  show();
}
