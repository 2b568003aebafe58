// What a page of `mae analyze` must show.
"use strict";
const { section, rows, same, options } = require("./common.js");

async function checkAnalysis(page, data, fault) {
  const found = data.analysis;
  if (found.attentions.length === 0) {
    if (!/has no gates/.test(await page.locator("main").innerText())) fault("does not say that there are no gates");
  } else {
    await checkEntropy(page, found, fault);
    await checkHeat(page, found, fault);
    await checkHeads(page, found, fault);
    await checkHues(page, found, fault);
    await checkWords(page, found, fault);
    await checkBrowser(page, found, fault);
  }
  if (data.one_expert) await checkOneExpert(page, data.one_expert, fault);
}

/** Numbers, bars as long as they say, and a mark for each untrained gate. */
async function checkEntropy(page, found, fault) {
  const place = section(page, "Gate entropy");
  const means = ["encoder", "decoder", "cross", "all"].filter((key) => found.entropy[key] !== null && (!found.text || key === "all"));
  const wanted = found.attentions.map((a) => [a.label, a.entropy]).concat(means.map((key) => ["mean, " + key, found.entropy[key]]));
  same(fault, "entropy", (await rows(place)).map((row) => row.slice(0, 2)), wanted.map(([label, entropy]) => [label, entropy.toFixed(3)]));
  const distance = (entropy) => Math.max(0, found.uniform_entropy - entropy);
  const untrained = found.attentions.filter((a) => a.untrained).map((a) => a.untrained.entropy);
  const farthest = Math.max(1e-9, ...found.attentions.map((a) => a.entropy).concat(untrained).map(distance));
  const bars = await place.locator(".bar").evaluateAll((all) =>
    all.map((bar) => bar.getBoundingClientRect().width / bar.parentElement.clientWidth));
  same(fault, "entropy bars", bars.length, wanted.length);
  wanted.forEach(([label, entropy], i) => {
    if (!(Math.abs(bars[i] - distance(entropy) / farthest) < 0.02)) fault(`the entropy bar of ${label} fills ${bars[i]} of its track`);
  });
  const marks = await place.locator("tbody .mark").count();
  const means_untrained = means.filter((key) => typeof found.untrained_entropy[key] === "number").length;
  same(fault, "marks of untrained gates", marks, untrained.length + means_untrained);
}

/** Above 1 in one hue, below it in another. */
async function checkHues(page, found, fault) {
  const cells = await section(page, "Head weights").locator("td").evaluateAll((all) => all.map((cell) => cell.style.background));
  found.attentions.flatMap((a) => a.head_weights).forEach((w, i) => {
    if (Math.abs(w.mean - 1) > 0.005 && cells[i].includes("cold") !== w.mean < 1) fault(`the weight ${w.mean} has the hue ${cells[i]}`);
  });
}

/** Both heat maps; the largest share is the darkest cell. */
async function checkHeat(page, found, fault) {
  const place = section(page, "Experts by layer");
  for (const key of ["leads", "mean_gate"]) {
    await place.locator("select").selectOption(key);
    const shown = await rows(place);
    same(fault, `heat map of ${key}`, shown.map((row) => [row[0], row.length - 1]), found.attentions.map((a) => [a.label, found.experts]));
    found.attentions.forEach((a, i) => a[key].forEach((share, e) => {
      if (!(Math.abs(parseFloat(shown[i]?.[e + 1]) - 100 * share) < 0.51)) fault(`${key} of ${a.label}, expert ${e}: ${shown[i]?.[e + 1]} for ${share}`);
    }));
    const dark = await place.locator("td").evaluateAll((all) => all.map((cell) => parseFloat(getComputedStyle(cell).backgroundColor.split(",")[3] ?? "1")));
    const shares = found.attentions.flatMap((a) => a[key]);
    const largest = shares.indexOf(Math.max(...shares));
    if (!(dark[largest] > 0 && dark[largest] >= Math.max(...dark))) fault(`heat map of ${key}: the largest share is not the darkest`);
  }
}

async function checkHeads(page, found, fault) {
  const cell = (w) => `${w.mean.toFixed(2)} ± ${w.deviation.toFixed(2)}`;
  same(fault, "head weights", await rows(section(page, "Head weights")), found.attentions.map((a) => [a.label].concat(a.head_weights.map(cell))));
}

/** The words of every attention: a list for each expert, and the list of the untrained gate after it. */
async function checkWords(page, found, fault) {
  const place = section(page, "Words and experts");
  for (const [i, attention] of found.attentions.entries()) {
    await place.locator("select").selectOption(String(i));
    const shown = await place.locator(".columns > div").evaluateAll((all) => all.map((list) =>
      [list.querySelector("h3").textContent, ...[...list.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent))]));
    const word = (w) => [w.word, w.llr.toFixed(1), w.pmi.toFixed(2), `${w.together} of ${w.count}`];
    const before = (e) => (attention.untrained ? attention.untrained.words[e] : []);
    same(fault, `words of ${attention.label}`, shown,
      attention.words.map((words, e) => ["Expert " + e, ...words.concat(before(e)).map(word)]));
  }
}

/** Sentences, or passages of a text, are listed; picking one shows its gates; the filter leaves those that match. */
async function checkBrowser(page, found, fault) {
  const place = section(page, found.text ? "Passages" : "Sentences");
  const buttons = place.locator(".list button");
  const listed = (await buttons.allTextContents()).map((words) => words.split(" ")[0]);
  same(fault, "sentences listed", listed, found.examples.map((example) => String(example.number)));
  const shown = place.locator(".browser > div:last-child");
  for (const i of [found.examples.length - 1, 1, 0].filter((i, at, all) => found.examples[i] && all.indexOf(i) === at)) {
    await buttons.nth(i).click();
    await checkSentence(shown, found, found.examples[i], fault);
  }
  if (found.examples.length > 0) {
    await place.locator("input[type=search]").fill("no such words anywhere");
    if (await buttons.count() !== 0) fault("the filter leaves sentences that do not match");
  }
}

/** The mean gate of each attention, and the gates position by position where there is one for each. */
async function checkSentence(shown, found, example, fault) {
  const what = `gates of number ${example.number}`;
  const number = await shown.locator("b").first().textContent();
  same(fault, what, number.trim(), String(example.number));
  const tables = shown.locator("table");
  const means = await rows(tables.nth(0));
  same(fault, what, means.map((row) => row[0].replace(" (mean)", "")), found.attentions.map((a) => a.label));
  example.gates.forEach((gates, i) => Array.from({ length: found.experts }, (_, e) => {
    const mean = gates.reduce((sum, gate) => sum + gate[e], 0) / gates.length;
    if (!(Math.abs(parseFloat(means[i]?.[e + 1]) - mean) < 0.0051)) fault(`${what}: ${found.attentions[i].label} shows ${means[i]?.[e + 1]} for ${mean}`);
  }));
  const perPosition = found.attentions.map((a, i) => [a, i]).filter(([a]) => a.rows === "positions");
  if (perPosition.length === 0) return;
  const skip = example.log_probs ? 2 : 1;
  for (const choice of await options(shown.locator("select"))) {
    await shown.locator("select").selectOption(choice);
    const leader = (gate) => "E" + gate.indexOf(Math.max(...gate));
    const cells = (t) => (choice === "all" ? perPosition.map(([, i]) => leader(example.gates[i][t])) : example.gates[choice][t].map((g) => g.toFixed(2)));
    same(fault, `${what} by position, ${choice}`, (await rows(tables.nth(1))).map((row) => [row[0], ...row.slice(skip)]),
      example.target.map((piece, t) => [piece, ...cells(t)]));
  }
}

async function checkOneExpert(page, scores, fault) {
  const shown = await rows(section(page, "One expert instead of the mixture"));
  const argmax = scores.argmax === null ? [] : [scores.argmax.toFixed(2)];
  const mean = scores.random.reduce((sum, score) => sum + score, 0) / scores.random.length;
  const random = scores.random.length === 0 ? [] : [mean.toFixed(2)];
  same(fault, "one expert", shown.map((row) => row[1].split(" ")[0]), [scores.mixture.toFixed(2), ...argmax, ...random]);
}

module.exports = { checkAnalysis };
