//! Curves as SVG: for papers as they are, and for the page, which sets the colour of text and lines by its own.

use std::fmt::Write;

use serde::Serialize;

use super::curves::Series;
use super::svg::{COLOURS, TOP, WIDTH, bounds, escape, number, opening, ticks};

const PLOT_HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 704.0;
/// Height of a row of the legend.
const ROW: f64 = 20.0;

/// A drawn chart.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// The drawing.
    pub svg: String,
    /// Position of the plot in it.
    pub frame: Frame,
}

/// Position of the plot, and the values at its left and right ends.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Frame {
    width: f64,
    left: f64,
    right: f64,
    x: [f64; 2],
}

/// Draws lines with axes named `x_label` and `y_label`, x from `begin` on; `None` if there is no point.
pub fn draw(series: &[Series], x_label: &str, y_label: &str, begin: f64) -> Option<Chart> {
    let xs = bounds(series.iter().flat_map(|line| &line.points).map(|point| point.0))?;
    let ys = bounds(series.iter().flat_map(|line| &line.points).map(|point| point.1))?;
    let y_ticks = ticks(ys);
    let range = |ticks: &[f64], [low, high]: [f64; 2]| {
        [ticks.first().map_or(low, |tick| tick.min(low)), ticks.last().map_or(high, |tick| tick.max(high))]
    };
    let (xs, ys) = ([xs[0].min(begin), xs[1]], range(&y_ticks, ys));
    let bottom = TOP + PLOT_HEIGHT;
    let across = |x: f64| LEFT + (x - xs[0]) / (xs[1] - xs[0]) * (RIGHT - LEFT);
    let down = |y: f64| bottom - (y - ys[0]) / (ys[1] - ys[0]) * PLOT_HEIGHT;
    let legend_top = bottom + 56.0;
    let in_legend = series.iter().filter(|line| line.legend.is_some()).count();
    let height = legend_top + ROW * in_legend.div_ceil(2) as f64;
    let mut svg = opening(height, &format!("{y_label} against {x_label}"));
    // Writing to a string cannot fail.
    let mut add = |text: String| svg.write_str(&text).expect("a string grows");
    for tick in &y_ticks {
        let y = down(*tick);
        add(format!(
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"currentColor\">{}</text>\n",
            LEFT - 6.0,
            y + 4.0,
            number(*tick)
        ));
    }
    for tick in ticks(xs).iter().filter(|tick| (xs[0]..=xs[1]).contains(*tick)) {
        let x = across(*tick);
        add(format!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\" stroke=\"currentColor\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n",
            bottom + 5.0,
            bottom + 20.0,
            number(*tick)
        ));
    }
    add(format!(
        "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"currentColor\"/>\n\
         <text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n",
        (LEFT + RIGHT) / 2.0,
        bottom + 40.0,
        escape(x_label),
        TOP + PLOT_HEIGHT / 2.0,
        escape(y_label)
    ));
    let mut legends = 0;
    for line in series {
        let colour = COLOURS[line.run % COLOURS.len()];
        let dash = if line.dashed { " stroke-dasharray=\"5 3\" stroke-opacity=\"0.8\"" } else { "" };
        let style =
            format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}");
        let places: Vec<String> =
            line.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", across(x), down(y))).collect();
        add(format!("<polyline points=\"{}\" {style}/>\n", places.join(" ")));
        // A short curve is its points.
        if line.points.len() <= 12 {
            for (x, y) in &line.points {
                let (x, y) = (across(*x), down(*y));
                add(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
            }
        }
        let Some(legend) = &line.legend else { continue };
        let (x, y) = (LEFT + (legends % 2) as f64 * 330.0, legend_top + (legends / 2) as f64 * ROW);
        legends += 1;
        add(format!(
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {style}/>\
             <text x=\"{}\" y=\"{}\" fill=\"currentColor\">{}</text>\n",
            x + 26.0,
            x + 32.0,
            y + 4.0,
            escape(legend)
        ));
    }
    svg += "</svg>\n";
    Some(Chart { svg, frame: Frame { width: WIDTH, left: LEFT, right: RIGHT, x: xs } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(f64, f64)]) -> Series {
        let name = "a <b> & c".to_owned();
        Series { legend: Some(name.clone()), name, run: 7, dashed: true, points: points.to_vec() }
    }

    #[test]
    fn points_lie_in_the_plot_and_names_are_escaped() {
        let chart = draw(&[series(&[(0.0, 9.0), (10.0, 4.0)])], "updates", "loss", 0.0).unwrap();
        // 9 and 4 are themselves ticks: the first point is at the top, the last at the bottom right.
        assert!(chart.svg.contains("points=\"64.0,12.0 704.0,352.0\""), "{}", chart.svg);
        assert!(chart.svg.contains("a &lt;b&gt; &amp; c") && !chart.svg.contains("<b>"));
        assert!(chart.svg.starts_with("<svg xmlns=") && chart.svg.ends_with("</svg>\n"));
        assert!(draw(&[], "x", "y", 0.0).is_none() && draw(&[series(&[])], "x", "y", 0.0).is_none());
        let late = draw(&[series(&[(6.0, 9.0), (10.0, 4.0)])], "updates", "loss", 5.0).unwrap();
        assert!(late.svg.contains("points=\"192.0,12.0 704.0,352.0\""), "{}", late.svg);
        let single = draw(&[series(&[(5.0, 0.0)])], "x", "y", 0.0).unwrap();
        assert!(!single.svg.contains("NaN") && !single.svg.contains("inf"), "{}", single.svg);
        let twins = [series(&[(0.0, 1.0)]), Series { legend: None, ..series(&[(0.0, 2.0)]) }];
        let twins = draw(&twins, "x", "y", 0.0).unwrap().svg;
        assert_eq!((twins.matches("a &lt;b&gt;").count(), twins.matches("<polyline").count()), (1, 2));
    }
}
