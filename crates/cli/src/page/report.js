/* What `mae report` found: `data.runs` (name, summary), `data.changes`, `data.charts` (see charts.js). */

page.append(make("h1", {}, data.runs.length === 1 ? "Training run " + data.runs[0].name : `${data.runs.length} training runs`));

section("Summary", make("p", { class: "faint" }, data.note), table(data.summary.headings, data.summary.rows));
drawCharts("Curves");
drawChanges();

function drawChanges() {
  const names = data.runs.map((run) => run.name);
  const rows = data.changes.map((change) => [change.key].concat(change.values.map((value) => value ?? "–")));
  section("What differs in the configurations", data.runs.length < 2 ? make("p", { class: "faint" }, "One run alone differs from nothing; give several.")
    : rows.length === 0 ? make("p", { class: "faint" }, "Nothing: the runs' configurations are equal, as far as they are known.")
      : table(["key"].concat(names), rows),
    ...data.runs.filter((run) => run.note).map((run) => make("p", { class: "faint" }, `${run.name}: ${run.note}`)));
}
