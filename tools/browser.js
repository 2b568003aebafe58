// The browser that opens pages for the checkers of this folder, and their end.
"use strict";

async function launch() {
  const { chromium } = require("playwright-core");
  return chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
  });
}

function end(words, code) {
  (code === 0 ? console.log : console.error)(words);
  process.exit(code);
}

module.exports = { launch, end };
