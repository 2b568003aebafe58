// What pages with tables and charts must show: those of `mae report`, `mae reproduce` and `mae transfer`.
"use strict";
const { section, rows, headings, same, options } = require("./common.js");

/** Stands in a table where there is nothing. */
const NONE = "–";

async function checkTable(place, what, wanted, fault) {
  same(fault, `headings of ${what}`, await headings(place), wanted.headings);
  same(fault, what, await rows(place), wanted.rows);
}

/** Curves as many as the data has, each with all its points; pointing at a chart reads values, and buttons save it. */
async function checkCharts(page, title, charts, fault) {
  const place = section(page, title), figure = place.locator("figure.curves");
  const [curve, against] = [place.locator("select").nth(0), place.locator("select").nth(1)];
  same(fault, "curves to choose", await options(curve), [...new Set(charts.map((chart) => chart.curve))]);
  for (const chart of charts) {
    const what = `${chart.curve} against ${chart.against}`;
    await curve.selectOption(chart.curve);
    await against.selectOption(chart.against);
    const drawn = await figure.locator("polyline").evaluateAll((all) => all.map((line) => line.points.numberOfItems));
    same(fault, `points of ${what}`, drawn, chart.series.map((series) => series.points.length));
    same(fault, `title of ${what}`, await figure.locator("> svg > title").allTextContents(), [what]);
  }
  await checkViews(place, figure, fault);
  await figure.locator("> svg").hover({ position: { x: 200, y: 100 } });
  const read = await place.locator(".readout").innerText();
  same(fault, "values read", read.split("; ").map((words) => words.split(": ")[0]), charts.at(-1).series.map((series) => series.name));
  for (const ending of ["SVG", "PNG"]) {
    const saved = page.waitForEvent("download");
    await page.getByText("Save as " + ending).click();
    const name = (await saved).suggestedFilename();
    if (!name.endsWith("." + ending.toLowerCase())) fault(`saves ${name} as ${ending}`);
  }
}

/** Dragging enlarges a part and a button goes back; smoothing and the logarithmic axis draw other lines. */
async function checkViews(place, figure, fault) {
  const drawn = () => figure.locator("polyline").evaluateAll((all) => all.map((line) => line.getAttribute("points")).join(";"));
  const whole = await drawn(), back = place.getByText("Whole chart");
  await figure.locator("> svg").scrollIntoViewIfNeeded();
  const box = await figure.locator("> svg").boundingBox(), mouse = place.page().mouse;
  const at = (share) => [box.x + box.width * share, box.y + box.height * 0.3];
  await mouse.move(...at(0.3));
  await mouse.down();
  await mouse.move(...at(0.6));
  await mouse.up();
  if (await drawn() === whole) fault("dragging enlarges nothing");
  await back.click();
  if (await drawn() !== whole) fault("the whole chart does not come back");
  const log = place.locator("input[type=checkbox]"), smoothing = place.locator("select").nth(2);
  await smoothing.selectOption("2");
  await smoothing.selectOption("0");
  if (await drawn() !== whole) fault("smoothing does not go away");
  await log.check();
  await log.uncheck();
  if (await drawn() !== whole) fault("the logarithmic axis does not go away");
}

async function checkReport(page, data, fault) {
  same(fault, "runs in the summary", data.summary.rows.map((row) => row[0]), data.runs.map((run) => run.name));
  await checkTable(section(page, "Summary"), "the summary", data.summary, fault);
  if (data.charts.length === 0) fault("holds no curve");
  else await checkCharts(page, "Curves", data.charts, fault);
  const place = section(page, "What differs in the configurations");
  const wanted = data.runs.length > 1 ? data.changes.map((change) => [change.key, ...change.values.map((value) => value ?? NONE)]) : [];
  same(fault, "what differs", await rows(place), wanted);
  const notes = (await place.locator("p").allTextContents()).join("\n");
  for (const run of data.runs) if (run.note && !notes.includes(run.note)) fault(`the note on ${run.name} is not shown`);
}

/** Tables; a figure with a dot for each run of a study, or a curve for each method of a transfer study; learning curves. */
async function checkStudy(page, data, fault) {
  same(fault, "title", await page.locator("h1").innerText(), data.title);
  for (const table of data.tables) {
    if (table.rows.length === 0) fault(`the table ${table.name} is empty`);
    await checkTable(section(page, table.name), table.name, table, fault);
  }
  const figure = section(page, "Figure"), [main] = data.tables;
  if (main.headings[0] === "method") {
    const scored = main.rows.filter((row) => row.slice(1, -1).some((cell) => cell !== NONE));
    same(fault, "curves of the figure", await figure.locator("polyline").count(), scored.length);
  } else {
    const seeds = main.rows.reduce((sum, row) => sum + Number(row[1]), 0);
    const dots = await figure.locator("circle title").allTextContents();
    same(fault, "dots of the figure", dots.filter((title) => title !== "one seed").length, seeds);
  }
  if (data.charts.length > 0) await checkCharts(page, "Learning curves", data.charts, fault);
  same(fault, "notes", await section(page, "Notes").locator("p").allTextContents(), data.notes);
}

module.exports = { checkReport, checkStudy };
