// What the checks of all kinds of pages need.
"use strict";

/** The section with this heading. */
function section(page, title) {
  return page.locator("section").filter({ has: page.locator("h2", { hasText: new RegExp("^" + title + "$") }) });
}

/** Texts of the cells of every row below the headings. */
function rows(place) {
  return place.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
}

function headings(place) {
  return place.locator("thead th").allTextContents();
}

/** A fault where what is shown is not what the data has. */
function same(fault, what, shown, wanted) {
  const [a, b] = [shown, wanted].map((value) => JSON.stringify(value));
  if (a !== b) fault(`${what}: shows ${a.slice(0, 300)} for ${b.slice(0, 300)}`);
}

/** Values of a choice. */
function options(select) {
  return select.locator("option").evaluateAll((all) => all.map((option) => option.value));
}

module.exports = { section, rows, headings, same, options };
