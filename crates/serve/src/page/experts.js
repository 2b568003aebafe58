// A panel: the translation of one model, its alternatives, and the experts that were at work.

/** Experts that are shown; of more, those with the greatest shares. */
const MOST_EXPERTS = 64;

const KINDS = { encoder: "encoder", decoder: "decoder", cross: "decoder to source" };

/** An element with attributes and children. */
function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** The mean of rows of numbers. */
function mean(rows) {
  return rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
}

/** Pieces joined to words, each with the places of its pieces; the end mark is a word. */
function words(pieces) {
  const found = [];
  let open = false;
  pieces.forEach((piece, place) => {
    const begins = /^[▁Ġ]/.test(piece) || !pieces.some((other) => /^[▁Ġ]/.test(other)) && !open;
    const text = piece.replace(/@@$/, "").replace(/^[▁Ġ]/, "");
    if (begins || found.length === 0 || piece === "</s>") found.push({ text, places: [place] });
    else {
      const last = found[found.length - 1];
      last.text += text;
      last.places.push(place);
    }
    open = piece.endsWith("@@");
  });
  return found;
}

/** Words of `now` that differ from those of `before`, by the longest common sequence. */
function difference(before, now) {
  const [a, b] = [before.split(/(\s+)/), now.split(/(\s+)/)];
  const common = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const parts = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      parts.push(a[i]);
      i++;
      j++;
    } else if (j < b.length && (i === a.length || common[i][j + 1] >= common[i + 1][j])) {
      parts.push(b[j].trim() === "" ? b[j] : make("ins", {}, b[j]));
      j++;
    } else {
      parts.push(a[i].trim() === "" ? "" : make("del", {}, a[i] + " "));
      i++;
    }
  }
  return parts;
}

export class Panel {
  /** `changed` is called when something was switched on or off. */
  constructor(model, changed) {
    this.model = model;
    this.changed = changed;
    /** Attention to sets of experts and heads that are off. */
    this.switched = new Map();
    this.root = document.getElementById("panel").content.cloneNode(true).firstElementChild;
    this.find(".name").textContent = model.id;
    this.find(".language").textContent = model.languages[1];
    this.find(".reset").addEventListener("click", () => {
      this.switched.clear();
      this.changed();
    });
    this.find(".sentence select").addEventListener("change", (event) => {
      this.sentence = Number(event.target.value);
      this.showSentence();
    });
    this.clear();
  }

  find(selector) {
    return this.root.querySelector(selector);
  }

  /** What is off, as the server reads it. */
  off() {
    const sets = [...this.switched].filter(([, { experts, heads }]) => experts.size + heads.size > 0);
    return sets.map(([attention, { experts, heads }]) => ({ attention, experts: [...experts], heads: [...heads] }));
  }

  /** Says whether what is shown is about to change. */
  wait(waits) {
    this.root.setAttribute("aria-busy", String(waits));
  }

  /** Keeps the translation of a text with everything on. */
  keep(text, answer) {
    this.whole = { text, answer };
  }

  knows(text) {
    return this.whole?.text === text;
  }

  clear() {
    this.answer = null;
    this.whole = null;
    this.sentence = 0;
    for (const part of [".translation", ".effect", ".warnings"]) this.find(part).textContent = "";
    for (const part of [".alternatives", ".experts"]) this.find(part).hidden = true;
  }

  /** Shows an answer; where something is off, beside the answer that was kept. */
  show(answer) {
    const off = this.off();
    this.answer = answer;
    this.sentence = Math.min(this.sentence, answer.sentences.length - 1);
    const before = off.length > 0 ? this.whole.answer : null;
    const translation = this.find(".translation");
    translation.replaceChildren(...before ? difference(before.translation, answer.translation) : [answer.translation]);
    this.find(".effect").textContent = before ? this.effect(before, answer) : "";
    const sum = (name) => answer.sentences.reduce((total, sentence) => total + sentence[name], 0);
    const notes = [[sum("cut_tokens"), "tokens were cut off"], [sum("unknown_tokens"), "tokens are unknown to the model"]];
    this.find(".warnings").textContent = notes.filter(([n]) => n > 0).map(([n, what]) => `${n} ${what}`).join("; ");
    this.find(".reset").hidden = off.length === 0;
    const select = this.find(".sentence select");
    select.replaceChildren(...answer.sentences.map((sentence, i) => new Option(`${i + 1}: ${sentence.source ?? ""}`, i)));
    select.value = this.sentence;
    this.find(".sentence").hidden = answer.sentences.length < 2;
    this.showSentence();
  }

  /** What switching off has changed, in words. */
  effect(before, now) {
    const score = ({ sentences }) => sentences.reduce((sum, { score }) => sum + score, 0) / sentences.length;
    const scores = `score ${score(before).toFixed(3)} before, ${score(now).toFixed(3)} now`;
    return (before.translation === now.translation ? "No word has changed; " : "Words have changed; ") + scores;
  }

  showSentence() {
    const sentence = this.answer.sentences[this.sentence];
    const others = sentence?.alternatives ?? [];
    this.find(".alternatives").hidden = others.length === 0;
    this.find(".alternatives ol").replaceChildren(...others.map((text) => make("li", {}, text)));
    const hasGates = (sentence?.attentions ?? []).length > 0;
    this.find(".experts").hidden = !hasGates;
    if (!hasGates) return;
    this.showWords(".source-words", sentence.source_tokens, "source");
    this.showWords(".target-words", sentence.tokens, "target");
    this.drawMap(sentence);
    this.drawHeads(sentence);
    this.highlight(null);
  }

  showWords(selector, pieces, side) {
    const buttons = words(pieces).map(({ text, places }) => {
      const button = make("button", { type: "button" }, text === "</s>" ? "⏎" : text);
      if (text === "</s>") button.setAttribute("aria-label", "end of the sentence");
      const on = () => this.highlight({ side, places, text });
      const out = () => this.highlight(null);
      for (const event of ["mouseenter", "focus"]) button.addEventListener(event, on);
      for (const event of ["mouseleave", "blur"]) button.addEventListener(event, out);
      return button;
    });
    this.find(selector).replaceChildren(...buttons);
  }

  /** Experts that are shown, by number. */
  columns(sentence) {
    const count = sentence.attentions[0].values[0].length;
    const all = Array.from({ length: count }, (_, i) => i);
    if (count <= MOST_EXPERTS) return all;
    const shares = mean(sentence.attentions.map((attention) => mean(attention.values)));
    return all.sort((a, b) => shares[b] - shares[a]).slice(0, MOST_EXPERTS).sort((a, b) => a - b);
  }

  drawMap(sentence) {
    const experts = this.answer.experts;
    const unit = experts ? "expert" : "head";
    const columns = this.columns(sentence);
    const title = (i) => experts ? `expert ${i} leaves out head ${experts[i].join(", ")}` : `head ${i}`;
    const table = this.find(".map");
    const head = columns.map((i) => make("th", { scope: "col", title: title(i) }, String(i)));
    this.cells = [];
    const rows = sentence.attentions.map((attention) => {
      const cells = columns.map((i) => {
        const cell = experts
          ? this.toggle(attention.name, "experts", i, `${KINDS[attention.kind]} ${attention.layer}, ${title(i)}`)
          : make("span");
        this.cells.push({ cell, attention, column: i });
        return make("td", {}, cell);
      });
      return make("tr", {}, make("th", { scope: "row" }, `${KINDS[attention.kind]} ${attention.layer}`), ...cells);
    });
    const what = experts ? "Shares of experts, in percent" : "Weights of heads; 100 is plain attention";
    table.replaceChildren(
      make("caption", {}, `${what}, by attention and ${unit}`),
      make("thead", {}, make("tr", {}, make("th", {}, unit), ...head)),
      make("tbody", {}, ...rows),
    );
  }

  drawHeads(sentence) {
    const table = this.find(".heads");
    table.hidden = !this.answer.experts;
    if (table.hidden) return;
    const heads = Array.from({ length: this.answer.heads }, (_, i) => i);
    const rows = sentence.attentions.map((attention) => {
      const label = `${KINDS[attention.kind]} ${attention.layer}`;
      const cells = heads.map((i) => {
        const button = this.toggle(attention.name, "heads", i, `${label}, head ${i}`);
        button.textContent = String(i);
        return make("td", {}, button);
      });
      return make("tr", {}, make("th", { scope: "row" }, label), ...cells);
    });
    table.replaceChildren(make("caption", {}, "Heads, by attention"), make("tbody", {}, ...rows));
  }

  /** A button that switches an expert or a head. */
  toggle(attention, kind, number, label) {
    const isOff = this.switched.get(attention)?.[kind].has(number) ?? false;
    const button = make("button", { type: "button", "aria-pressed": String(isOff), title: label });
    button.dataset.label = `${label}${isOff ? ", off" : ""}`;
    button.setAttribute("aria-label", button.dataset.label);
    button.addEventListener("click", () => {
      const sets = this.switched.get(attention) ?? { experts: new Set(), heads: new Set() };
      this.switched.set(attention, sets);
      if (!sets[kind].delete(number)) sets[kind].add(number);
      this.changed();
    });
    return button;
  }

  /** Shows the weights at some places of a side, or the means over all. */
  highlight(word) {
    for (const { cell, attention, column } of this.cells) {
      const own = word && attention.rows === word.side ? word.places.map((place) => attention.values[place]) : attention.values;
      const rows = own.filter((row) => row !== undefined);
      const value = mean(rows.length > 0 ? rows : attention.values)[column];
      // The whole colour at three times an even share, or at a weight of 2.
      const strength = Math.min(1, attention.unit === "experts" ? value * attention.values[0].length / 3 : value / 2);
      cell.style.setProperty("--share", strength.toFixed(3));
      cell.classList.toggle("strong", strength > 0.55);
      cell.textContent = String(Math.round(100 * value));
      if (cell.dataset.label) cell.setAttribute("aria-label", `${cell.dataset.label}: ${cell.textContent} percent`);
    }
    this.find(".shown").textContent = word
      ? `Shown: the weights at “${word.text}” in the ${word.side === "source" ? "encoder" : "decoder"}, means elsewhere`
      : "Shown: means over all positions of the sentence";
  }
}
