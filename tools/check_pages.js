// Opens pages of `mae analyze`, `mae report`, `mae reproduce` and `mae transfer` in headless Chromium, light and dark, wide and
// narrow: no error, no request beyond the file, nothing wider than the window. Every table and chart shows the numbers of the
// page's data, and the controls do what they say.
//
//   npm install playwright-core && node tools/check_pages.js page.html … [--shots DIR]
//   node tools/check_pages.js --ready
//
// CHROMIUM names the browser (/usr/bin/chromium). With --shots, pictures of the whole pages are left in DIR. --ready only says
// whether the browser starts. The test `pages` of crates/cli makes pages of every kind and runs this on them.
"use strict";
const fs = require("fs");
const path = require("path");
const { pathToFileURL } = require("url");
const { launch, end } = require("./browser.js");
const { checkAnalysis } = require("./check_pages/analysis.js");
const { checkReport, checkStudy } = require("./check_pages/charts.js");

/** What tells a kind of page by its data, and what it must show. */
const KINDS = [[(data) => data.analysis, checkAnalysis], [(data) => data.summary, checkReport], [(data) => data.tables, checkStudy]];

const LOOKS = [["light", 1280], ["light", 390], ["dark", 1280], ["dark", 390], ["light", 2200]];

async function check(browser, file, shots, [scheme, width], faults) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: scheme });
  const fault = (what) => faults.push(`${file} (${scheme}, ${width} px): ${what}`);
  page.setDefaultTimeout(30000);
  page.on("pageerror", (error) => fault(error.message));
  page.on("request", (request) => {
    if (!/^(file|blob|data):/.test(request.url())) fault("asks for " + request.url());
  });
  await page.goto(pathToFileURL(path.resolve(file)).href);
  if (shots) await page.screenshot({ path: path.join(shots, `${path.basename(file, ".html")}-${scheme}-${width}.png`), fullPage: true });
  const wider = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (await wider() > 0) fault("is wider than the window");
  const text = await page.evaluate(() => document.getElementById("data")?.textContent ?? null);
  const data = text === null ? null : JSON.parse(text);
  const kind = data && KINDS.find(([is]) => is(data));
  if (kind) await kind[1](page, data, fault);
  else fault("is no page of mae: it holds no data of analyses, runs or studies");
  if (await wider() > 0) fault("is wider than the window after use");
  await page.close();
}

(async () => {
  const files = process.argv.slice(2);
  const at = files.indexOf("--shots");
  const shots = at >= 0 ? files.splice(at, 2)[1] : null;
  const ready = files[0] === "--ready";
  if (files.length === 0) end("no page is named: node tools/check_pages.js page.html …", 2);
  const missing = ready ? [] : files.filter((file) => !fs.statSync(file, { throwIfNoEntry: false })?.isFile());
  if (missing.length > 0) end(missing.map((file) => `${file}: there is no such file`).join("\n"), 2);
  const browser = await launch().catch((error) => end("the browser does not start: " + error.message.split("\n")[0], 2));
  if (ready) end("Chromium " + browser.version(), 0);
  const faults = [];
  for (const file of files) {
    for (const [scheme, width] of LOOKS) {
      await check(browser, file, shots, [scheme, width], faults).catch((error) =>
        faults.push(`${file} (${scheme}, ${width} px): ${error.message.split("\n")[0]}`));
    }
  }
  await browser.close();
  end(faults.concat(faults.length === 0 ? `${files.length} pages are in order` : `${faults.length} faults`).join("\n"), faults.length === 0 ? 0 : 1);
})();
