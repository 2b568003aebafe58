// Opens pages of `mae analyze --html`, `mae report --html`, `mae reproduce` and `mae transfer` in headless Chromium, light and
// dark, wide and narrow: no error, no request beyond the file, nothing wider than the window; then uses their controls.
//
//   npm install playwright-core && node tools/check_pages.js page.html … [--shots DIR]
//
// CHROMIUM names the browser (/usr/bin/chromium). With --shots, pictures of the whole pages are left in DIR.
"use strict";
const path = require("path");
const { pathToFileURL } = require("url");
const { chromium } = require("playwright-core");

const args = process.argv.slice(2);
const at = args.indexOf("--shots");
const shots = at >= 0 ? args.splice(at, 2)[1] : null;
const faults = [];

async function check(browser, file, scheme, width) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: scheme });
  const where = `${file} (${scheme}, ${width} px)`;
  const fault = (what) => faults.push(`${where}: ${what}`);
  page.on("pageerror", (error) => fault(error.message));
  page.on("request", (request) => {
    if (!/^(file|blob|data):/.test(request.url())) fault("asks for " + request.url());
  });
  await page.goto(pathToFileURL(path.resolve(file)).href);
  if (shots) await page.screenshot({ path: path.join(shots, `${path.basename(file, ".html")}-${scheme}-${width}.png`), fullPage: true });
  const wider = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (await wider() > 0) fault("is wider than the window");

  // Every choice of every control can be shown.
  const selects = await page.locator("select").count();
  for (let i = 0; i < selects; i++) {
    for (const value of await page.locator("select").nth(i).locator("option").evaluateAll((all) => all.map((o) => o.value))) {
      await page.locator("select").nth(i).selectOption(value);
    }
  }
  const sentences = page.locator(".list button");
  if (await sentences.count() > 1) {
    const shown = () => page.locator(".browser > div:last-child").innerText();
    const before = await shown();
    await sentences.nth(1).click();
    if (await shown() === before) fault("another sentence shows the same gates");
    await page.locator("input[type=search]").fill("no such words anywhere");
    if (await sentences.count() !== 0) fault("the filter leaves sentences that do not match");
  }
  const chart = page.locator("figure.curves svg");
  if (await chart.count() > 0) {
    await chart.hover({ position: { x: 200, y: 100 } });
    if (!/ at /.test(await page.locator(".readout").innerText())) fault("pointing at the chart reads no value");
  }
  for (const ending of await chart.count() > 0 ? ["SVG", "PNG"] : []) {
    const saved = page.waitForEvent("download", { timeout: 5000 });
    await page.getByText("Save as " + ending).click();
    await saved.then((download) => {
      if (!download.suggestedFilename().endsWith(ending.toLowerCase())) fault("saves " + download.suggestedFilename());
    }, () => fault(`does not save as ${ending}`));
  }
  if (await wider() > 0) fault("is wider than the window after use");
  await page.close();
}

(async () => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
  });
  for (const file of args) {
    for (const scheme of ["light", "dark"]) for (const width of [1280, 390]) await check(browser, file, scheme, width);
  }
  await browser.close();
  faults.forEach((fault) => console.error(fault));
  console.log(faults.length === 0 ? `${args.length} pages are in order` : `${faults.length} faults`);
  process.exit(faults.length === 0 && args.length > 0 ? 0 : 1);
})();
