/* What a study has found: `data.title`, `data.lead` and `data.notes` (sentences), `data.tables` (name, headings, rows), `data.svg` (drawn by the program, or
   null), `data.charts` (see charts.js). */

page.append(make("h1", {}, data.title), ...data.lead.map((words) => make("p", {}, words)));
for (const { name, headings, rows } of data.tables) section(name, table(headings, rows));
if (data.svg) {
  const drawn = new DOMParser().parseFromString(data.svg, "image/svg+xml").documentElement;
  section("Figure", make("figure", {}, document.importNode(drawn, true)));
}
drawCharts("Learning curves");
section("Notes", ...data.notes.map((note) => make("p", { class: "faint" }, note)));
