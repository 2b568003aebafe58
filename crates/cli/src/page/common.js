"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");

/** An element with attributes and children; words among the children become text, never markup. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table with a row of headings; the first cell of each row is its heading. */
function table(headings, rows, attributes) {
  const cell = (value, i) => (value instanceof Node ? value : make(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, String(value)));
  const heading = (words, i) => (words instanceof Node ? words : make("th", { scope: "col", class: i === 0 ? "text" : null }, words));
  return make("div", { class: "scroll" }, make("table", attributes || {},
    make("thead", {}, make("tr", {}, headings.map(heading))),
    make("tbody", {}, rows.map((row) => (row instanceof Node ? row : make("tr", {}, row.map(cell)))))));
}

/** A choice of one of several, with its name. */
function choice(name, options, chosen, change) {
  const select = make("select", { onchange: () => change(select.value) },
    options.map(([value, words]) => make("option", { value, selected: value === chosen ? "" : null }, words)));
  return make("label", {}, name + " ", select);
}

/** A heading with what belongs to it. */
function section(title, ...children) {
  page.append(make("section", {}, make("h2", {}, title), ...children));
}

/** A cell whose ground is the darker the nearer `share` (0 to 1) is to 1; below 0 in another hue, to -1. */
function heatCell(words, share, attributes) {
  const strength = Math.min(1, Math.abs(share)) * 0.75;
  const cell = make("td", attributes || {}, words);
  cell.style.background = `rgba(var(--${share < 0 ? "cold" : "heat"}), ${strength.toFixed(3)})`;
  return cell;
}

const percent = (share) => (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + " %";
page.replaceChildren();
