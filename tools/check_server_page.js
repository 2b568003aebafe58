// Uses the page of a running `mae serve` in headless Chromium, light and dark, wide and narrow: types, reads the translation,
// hovers a word, switches an expert and a head off, compares two models; everything also by keyboard. No error, no request to
// another server, nothing wider than the window.
//
//   npm install playwright-core && node tools/check_server_page.js http://127.0.0.1:5000 'a text' [--shots DIR]
//   node tools/check_server_page.js --ready
//
// CHROMIUM names the browser (/usr/bin/chromium). The server needs a model of a mixture first, and a second model of the same
// languages. The test `serve` of crates/cli starts a server and runs this.
"use strict";
const path = require("path");
const { launch, end } = require("./browser.js");

/** Milliseconds after which the page has failed: many times what a machine with other work takes. */
const PATIENCE = 60000;

const LOOKS = [["light", 1280], ["light", 390], ["dark", 1280], ["dark", 390]];

async function use(page, text, fault) {
  const content = (selector) => page.locator(selector).first().textContent();
  // A panel says that it waits from the first key or click on until its answer is shown.
  const settled = async (what, holds) => {
    for (const end = Date.now() + PATIENCE; Date.now() < end; await page.waitForTimeout(50)) {
      if (await page.locator('.panel[aria-busy="true"]').count() === 0 && await holds()) return true;
    }
    fault("waits in vain for " + what);
    return false;
  };
  await page.locator("#source").pressSequentially(text, { delay: 2 });
  if (!await settled("a translation", async () => (await content(".translation")) !== "")) return;
  if (await page.locator(".alternatives li").count() === 0) fault("shows no alternatives");
  const cells = page.locator(".map tbody button");
  if (await cells.count() === 0) return fault("shows no experts");
  const shares = async () => (await cells.allTextContents()).map(Number);
  const means = await shares();
  if (means.some((share) => !(share >= 0 && share <= 100))) fault("shows shares that are not percents");
  const rows = await page.locator(".map tbody tr").count();
  const sums = Array.from({ length: rows }, (_, row) => {
    const columns = means.length / rows;
    return means.slice(row * columns, (row + 1) * columns).reduce((sum, share) => sum + share, 0);
  });
  if (sums.some((sum) => Math.abs(sum - 100) > means.length / rows)) fault("shares do not sum to 100 percent: " + sums);
  await page.locator(".target-words button").nth(1).hover();
  if (!/weights at “/.test(await content(".shown"))) fault("a hovered word is not shown");
  const hovered = await shares();
  if (means.join() === hovered.join()) fault("a hovered word shows the means");
  await page.locator("#source").focus();
  const before = await content(".translation");
  const scores = () => content(".effect");
  // By keyboard: the expert with the greatest share in the last attention.
  const last = hovered.length - means.length / rows;
  await cells.nth(last + means.slice(last).indexOf(Math.max(...means.slice(last)))).focus();
  await page.keyboard.press("Enter");
  await settled("the effect of an expert that is off", async () => /score/.test(await scores()));
  if (await page.locator('.map button[aria-pressed="true"]').count() !== 1) fault("no expert is shown as off");
  const one = await scores();
  for (const head of [0, 1, 2]) await page.locator(".heads tbody tr").last().locator("button").nth(head).click();
  await settled("the effect of heads that are off", async () => (await scores()) !== one);
  await page.locator("#source").press("Backspace");
  await settled("the effect on another text", async () => /score/.test(await scores()));
  await page.locator("#source").fill(text);
  await settled("the effect on the text again", async () => /score/.test(await scores()));
  await page.locator(".reset").click();
  await settled("everything on", async () => (await scores()) === "" && (await content(".translation")) === before);
  await page.locator("#other").selectOption({ index: 2 });
  await settled("a second translation", async () => {
    const texts = await page.locator(".translation").allTextContents();
    return texts.length === 2 && texts.every((text) => text !== "");
  });
  await page.locator("#other").selectOption({ index: 0 });
  await page.locator("#source").fill("");
  await settled("an empty page", async () => (await content(".translation")) === "");
  await page.locator("#source").fill(text);
  await settled("the translation again", async () => (await content(".translation")) === before);
}

async function check(browser, url, text, shots, [scheme, width], faults) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: scheme });
  const fault = (what) => faults.push(`${scheme}, ${width} px: ${what}`);
  page.setDefaultTimeout(PATIENCE);
  page.on("pageerror", (error) => fault(error.message));
  page.on("console", (message) => message.type() === "error" && fault(message.text()));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) fault("asks for " + request.url());
  });
  await page.goto(url);
  const wider = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  await use(page, text, fault);
  if (await wider() > 0) fault("is wider than the window");
  const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, select, input, textarea")]
    .filter((node) => node.offsetParent && !(node.labels?.length || node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.textContent.trim()))
    .length);
  if (unnamed > 0) fault(`has ${unnamed} controls without a name`);
  if (shots) {
    await page.locator(".map tbody button").nth(3).click();
    await page.waitForTimeout(500);
    await page.screenshot({ path: path.join(shots, `serve-${scheme}-${width}.png`), fullPage: true });
    if (scheme === "light" && width > 1000) {
      await page.locator("#other").selectOption({ index: 2 });
      await page.waitForTimeout(1000);
      await page.screenshot({ path: path.join(shots, "serve-compare.png"), fullPage: true });
    }
  }
  await page.close();
}

(async () => {
  const words = process.argv.slice(2);
  const at = words.indexOf("--shots");
  const shots = at >= 0 ? words.splice(at, 2)[1] : null;
  if (words.length === 0) end("no server is named: node tools/check_server_page.js URL TEXT", 2);
  const browser = await launch().catch((error) => end("the browser does not start: " + error.message.split("\n")[0], 2));
  if (words[0] === "--ready") end("Chromium " + browser.version(), 0);
  const [url, text] = words;
  const faults = [];
  for (const look of LOOKS) {
    await check(browser, url, text, shots, look, faults).catch((error) =>
      faults.push(`${look.join(", ")} px: ${error.message.split("\n")[0]}`));
  }
  await browser.close();
  end(faults.concat(faults.length === 0 ? "the page is in order" : `${faults.length} faults`).join("\n"), faults.length === 0 ? 0 : 1);
})();
