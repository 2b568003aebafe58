/* Curves to choose from: `data.charts` (curve, against, svg drawn by the program, frame, series). */

function drawCharts(title) {
  if (data.charts.length === 0) return;
  const chosen = { curve: data.charts[0].curve, against: "updates" };
  const figure = make("figure", { class: "curves" }), readout = make("p", { class: "readout faint" }), place = make("div", { class: "controls" });
  const unique = (key) => [...new Set(data.charts.map((chart) => chart[key]))];
  let shown = null;

  function draw() {
    shown = data.charts.find((chart) => chart.curve === chosen.curve && chart.against === chosen.against);
    const parsed = shown ? new DOMParser().parseFromString(shown.svg, "image/svg+xml").documentElement : null;
    figure.replaceChildren(parsed ? document.importNode(parsed, true) : make("p", { class: "faint" }, "no run has this curve"));
    readout.textContent = "Point at the chart to read values.";
  }

  /** The values of every run nearest to where the pointer is. */
  function read(event) {
    const svg = figure.querySelector("svg");
    if (!svg || !shown) return;
    const box = svg.getBoundingClientRect(), frame = shown.frame;
    const across = ((event.clientX - box.left) / box.width * frame.width - frame.left) / (frame.right - frame.left);
    const x = frame.x[0] + across * (frame.x[1] - frame.x[0]);
    const near = (points) => points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));
    readout.textContent = shown.series.filter((s) => s.points.length > 0).map((s) => {
      const [at, value] = near(s.points);
      return `${s.name}: ${Number(value.toPrecision(5))} at ${Number(at.toPrecision(6))} ${shown.against}`;
    }).join("; ");
  }

  const drawing = () => URL.createObjectURL(new Blob([shown.svg], { type: "image/svg+xml" }));
  const save = (href, ending) => make("a", { href, download: `${shown.curve} ${shown.against}`.replaceAll(/[^A-Za-z]+/g, "-") + ending }).click();

  /** The drawing on white, three times as fine as it is shown. */
  function savePng() {
    const picture = new Image(), canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    picture.addEventListener("load", () => {
      [canvas.width, canvas.height] = [3 * picture.width, 3 * picture.height];
      pen.fillStyle = "white";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
      save(canvas.toDataURL("image/png"), ".png");
    });
    picture.src = drawing();
  }

  figure.addEventListener("pointermove", read);
  figure.addEventListener("pointerdown", read);
  place.append(choice("curve", unique("curve").map((c) => [c, c]), chosen.curve, (c) => { chosen.curve = c; draw(); }),
    choice("against", unique("against").map((a) => [a, a]), chosen.against, (a) => { chosen.against = a; draw(); }),
    make("button", { onclick: () => shown && save(drawing(), ".svg") }, "Save as SVG"), make("button", { onclick: () => shown && savePng() }, "Save as PNG"));
  section(title, place, figure, readout);
  draw();
}

