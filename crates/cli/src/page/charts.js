/* Curves to choose from: `data.charts` (curve, against, series with name, colour, dashed and points). They are drawn here, so
   that a part can be enlarged, the axis be logarithmic and lines be smoothed. */

const SVG = "http://www.w3.org/2000/svg";
/* Size of the drawing, and its plot; `fit` makes it as wide as the page, with letters of the same size. */
const PLOT = { width: 720, left: 64, right: 704, top: 12, bottom: 352 };

function fit(width) {
  PLOT.width = Math.max(720, width);
  PLOT.right = PLOT.width - 16;
  PLOT.bottom = Math.round(Math.min(Math.max(352, 0.3 * PLOT.width), 560));
}

/* Room around the plot for points at its edges. */
const EDGE = 5;

/** An element of a drawing. */
function draw(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Round numbers from low to high, about five of them. */
function roundTicks([low, high]) {
  const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= raw * 0.999);
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, i) => (Math.ceil(low / step) + i) * step);
}

/** Powers of ten, and their multiples by 2 and 5 where there are few. */
function logTicks([low, high]) {
  const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, i) => Math.floor(low) + i);
  const within = (ticks) => ticks.filter((tick) => tick >= low - 1e-9 && tick <= high + 1e-9);
  const some = within(powers), more = within(powers.flatMap((p) => [1, 2, 5].map((factor) => p + Math.log10(factor))));
  return some.length > 3 ? some : more.length > 1 ? more : roundTicks([low, high]);
}

/** Means of the points within `reach` before and after each. */
function smoothed(points, reach) {
  if (reach === 0) return points;
  return points.map(([x], i) => {
    const near = points.slice(Math.max(0, i - reach), i + reach + 1);
    return [x, near.reduce((sum, p) => sum + p[1], 0) / near.length];
  });
}

const written = (value) => String(Number(value.toPrecision(4)));

/** The drawing of a chart in a view: `range` of x or null, `log`, `reach` of smoothing. */
function plot(chart, view) {
  const height = (y) => (view.log ? Math.log10(y) : y);
  const lines = chart.series.map((series) => ({ ...series, points: smoothed(series.points, view.reach).filter((p) => !view.log || p[1] > 0) }));
  const xs = lines.flatMap((line) => line.points.map((p) => p[0]));
  const [low, high] = view.range ?? [Math.min(0, ...xs), Math.max(...xs)];
  const range = { x: [low, high > low ? high : low + 1] };
  const inside = lines.flatMap((line) => line.points.filter((p) => p[0] >= low && p[0] <= high).map((p) => height(p[1])));
  const ends = inside.length > 0 ? [Math.min(...inside), Math.max(...inside)] : [0, 1];
  const spread = ends[1] > ends[0] ? [ends[0], ends[1]] : [ends[0] - 0.5, ends[1] + 0.5];
  const yTicks = (view.log ? logTicks : roundTicks)(spread);
  const margin = 0.03 * (spread[1] - spread[0]), ys = [spread[0] - margin, spread[1] + margin];
  const across = (x) => PLOT.left + (x - range.x[0]) / (range.x[1] - range.x[0]) * (PLOT.right - PLOT.left);
  const down = (y) => PLOT.bottom - (y - ys[0]) / (ys[1] - ys[0]) * (PLOT.bottom - PLOT.top);
  const words = (x, y, anchor, text) => draw("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, fill: "currentColor" }, text);
  const legends = chart.series.filter((series) => series.legend);
  const tall = PLOT.bottom + 56 + 20 * Math.ceil(legends.length / 2);
  const svg = draw("svg", { xmlns: SVG, viewBox: `0 0 ${PLOT.width} ${tall}`, width: PLOT.width, height: tall, color: "#1b1f24", role: "img", "font-family": "sans-serif", "font-size": 13 },
    draw("title", {}, `${chart.curve} against ${chart.against}`));
  for (const tick of yTicks) {
    const y = down(tick);
    svg.append(draw("line", { x1: PLOT.left, x2: PLOT.right, y1: y.toFixed(1), y2: y.toFixed(1), stroke: "currentColor", "stroke-opacity": 0.15 }),
      words(PLOT.left - 6, y + 4, "end", written(view.log ? 10 ** tick : tick)));
  }
  for (const tick of roundTicks(range.x)) {
    const x = across(tick).toFixed(1);
    svg.append(draw("line", { x1: x, x2: x, y1: PLOT.bottom, y2: PLOT.bottom + 5, stroke: "currentColor" }), words(across(tick), PLOT.bottom + 20, "middle", written(tick)));
  }
  svg.append(draw("line", { x1: PLOT.left, x2: PLOT.right, y1: PLOT.bottom, y2: PLOT.bottom, stroke: "currentColor" }),
    words((PLOT.left + PLOT.right) / 2, PLOT.bottom + 40, "middle", chart.against),
    draw("text", { transform: `translate(14 ${(PLOT.top + PLOT.bottom) / 2}) rotate(-90)`, "text-anchor": "middle", fill: "currentColor" }, chart.curve));
  const style = (line) => ({ fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": line.dashed ? "5 3" : null });
  /* A drawing of its own cuts off what lies outside. */
  const plotBox = { x: PLOT.left - EDGE, y: PLOT.top - EDGE, width: PLOT.right - PLOT.left + 2 * EDGE, height: PLOT.bottom - PLOT.top + 2 * EDGE };
  const curves = draw("svg", { ...plotBox, viewBox: Object.values(plotBox).join(" ") });
  for (const line of lines) {
    curves.append(draw("polyline", { points: line.points.map(([x, y]) => across(x).toFixed(1) + "," + down(height(y)).toFixed(1)).join(" "), ...style(line) }));
    /* A short curve is its points. */
    if (line.points.length <= 12) for (const [x, y] of line.points) curves.append(draw("circle", { cx: across(x).toFixed(1), cy: down(height(y)).toFixed(1), r: 3, fill: line.colour }));
  }
  svg.append(curves);
  legends.forEach((line, i) => {
    const x = PLOT.left + (i % 2) * 330, y = PLOT.bottom + 56 + Math.floor(i / 2) * 20;
    svg.append(draw("line", { x1: x, x2: x + 26, y1: y, y2: y, ...style(line) }), words(x + 32, y + 4, "start", line.legend));
  });
  return { svg, range, lines };
}

function drawCharts(title) {
  if (data.charts.length === 0) return;
  const chosen = { curve: data.charts[0].curve, against: "updates" }, view = { range: null, log: false, reach: 0 };
  const figure = make("figure", { class: "curves" }), readout = make("p", { class: "readout faint" }), place = make("div", { class: "controls" });
  const whole = make("button", { onclick: () => { view.range = null; show(); } }, "Whole chart");
  const unique = (key) => [...new Set(data.charts.map((chart) => chart[key]))];
  let shown = null, drawn = null, from = null;

  function show() {
    shown = data.charts.find((chart) => chart.curve === chosen.curve && chart.against === chosen.against);
    fit(figure.clientWidth);
    drawn = shown ? plot(shown, view) : null;
    figure.replaceChildren(drawn ? drawn.svg : make("p", { class: "faint" }, "no run has this curve"));
    whole.disabled = view.range === null;
    readout.textContent = "Point at the chart to read values; drag across a part to enlarge it.";
  }

  /** The x value where the pointer is. */
  function at(event) {
    const box = drawn.svg.getBoundingClientRect(), [low, high] = drawn.range.x;
    const across = ((event.clientX - box.left) / box.width * PLOT.width - PLOT.left) / (PLOT.right - PLOT.left);
    return low + Math.max(0, Math.min(1, across)) * (high - low);
  }

  /** The values of every run nearest to where the pointer is, and the part that is being marked. */
  function read(event) {
    if (!drawn) return;
    const x = at(event);
    const near = (points) => points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));
    readout.textContent = drawn.lines.filter((line) => line.points.length > 0).map((line) => {
      const [where, value] = near(line.points);
      return `${line.name}: ${Number(value.toPrecision(5))} at ${Number(where.toPrecision(6))} ${shown.against}`;
    }).join("; ");
    if (from === null) return;
    drawn.svg.querySelector(".marked")?.remove();
    const [low, high] = drawn.range.x, place = (x) => PLOT.left + (x - low) / (high - low) * (PLOT.right - PLOT.left);
    drawn.svg.append(draw("rect", { class: "marked", x: place(Math.min(from, x)), width: Math.abs(place(x) - place(from)), y: PLOT.top, height: PLOT.bottom - PLOT.top, fill: "currentColor", "fill-opacity": 0.12 }));
  }

  function end(event) {
    if (from === null || !drawn) return;
    const marked = [from, at(event)].sort((a, b) => a - b), [low, high] = drawn.range.x;
    from = null;
    /* A short drag is a slip of the hand. */
    if (marked[1] - marked[0] > (high - low) / 50) view.range = marked;
    show();
  }

  const drawing = () => URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawn.svg)], { type: "image/svg+xml" }));
  const save = (href, ending) => make("a", { href, download: `${shown.curve} ${shown.against}`.replaceAll(/[^A-Za-z]+/g, "-") + ending }).click();

  /** The drawing on white, three times as fine as it is shown. */
  function savePng() {
    const picture = new Image(), canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    const [, , width, height] = drawn.svg.getAttribute("viewBox").split(" ").map(Number);
    picture.addEventListener("load", () => {
      [canvas.width, canvas.height] = [3 * width, 3 * height];
      pen.fillStyle = "white";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
      save(canvas.toDataURL("image/png"), ".png");
    });
    picture.src = drawing();
  }

  figure.addEventListener("pointermove", read);
  figure.addEventListener("pointerdown", (event) => { if (drawn && event.button === 0) { from = at(event); event.preventDefault(); } read(event); });
  window.addEventListener("pointerup", end);
  window.addEventListener("resize", show);
  figure.addEventListener("dblclick", () => { view.range = null; show(); });
  const log = make("input", { type: "checkbox", onchange: () => { view.log = log.checked; show(); } });
  place.append(choice("curve", unique("curve").map((c) => [c, c]), chosen.curve, (c) => { chosen.curve = c; show(); }),
    choice("against", unique("against").map((a) => [a, a]), chosen.against, (a) => { chosen.against = a; view.range = null; show(); }),
    choice("smoothing", [["0", "none"], ["2", "5 points"], ["10", "21 points"]], "0", (reach) => { view.reach = Number(reach); show(); }),
    make("label", {}, log, " logarithmic"), whole,
    make("button", { onclick: () => drawn && save(drawing(), ".svg") }, "Save as SVG"), make("button", { onclick: () => drawn && savePng() }, "Save as PNG"));
  section(title, place, figure, readout);
  show();
}

