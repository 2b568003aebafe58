/* What a study has found: `data.title`, `data.tables` (name, headings, rows), `data.svg` (drawn by the program, or null), `data.notes`. */

page.append(make("h1", {}, data.title));
for (const { name, headings, rows } of data.tables) section(name, table(headings, rows));
if (data.svg) {
  const drawn = new DOMParser().parseFromString(data.svg, "image/svg+xml").documentElement;
  section("Figure", make("figure", {}, document.importNode(drawn, true)));
}
section("Notes", ...data.notes.map((note) => make("p", { class: "faint" }, note)));
