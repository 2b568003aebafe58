//! Curves as SVG: for papers as they are, and for the page, which sets the colour of text and lines by its own.

use std::fmt::Write;

use serde::Serialize;

use super::axes::{Axes, LEFT, RIGHT, height, legend_place};
use super::curves::Series;
use super::svg::{COLOURS, WIDTH, escape, opening};

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
    let edges = |line: &Series| {
        let ends = line.points.iter().zip(&line.band);
        ends.flat_map(|(point, band)| band.map(|edge| (point.0, edge))).collect::<Vec<_>>()
    };
    let edges: Vec<(f64, f64)> = series.iter().flat_map(edges).collect();
    let points = series.iter().flat_map(|line| &line.points).chain(&edges).copied();
    let axes = Axes::around(points, begin)?;
    let in_legend = series.iter().filter(|line| line.legend.is_some()).count();
    let mut svg = opening(height(in_legend), &format!("{y_label} against {x_label}"));
    svg += &axes.draw(x_label, y_label);
    // Writing to a string cannot fail.
    let mut add = |text: String| svg.write_str(&text).expect("a string grows");
    let mut legends = 0;
    for line in series {
        let colour = COLOURS[line.run % COLOURS.len()];
        let dash = if line.dashed { " stroke-dasharray=\"5 3\" stroke-opacity=\"0.8\"" } else { "" };
        let style =
            format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}");
        if !line.band.is_empty() {
            let edge =
                |which: usize| line.points.iter().zip(&line.band).map(move |(at, band)| (at.0, band[which]));
            let around: Vec<String> = edge(0).chain(edge(1).rev()).map(|point| axes.place(point)).collect();
            let around = around.join(" ");
            add(format!("<polygon points=\"{around}\" fill=\"{colour}\" fill-opacity=\"0.18\"/>\n"));
        }
        let places: Vec<String> = line.points.iter().map(|&point| axes.place(point)).collect();
        add(format!("<polyline points=\"{}\" {style}/>\n", places.join(" ")));
        // A short curve is its points.
        if line.points.len() <= 12 {
            for (x, y) in &line.points {
                let (x, y) = (axes.across(*x), axes.down(*y));
                add(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
            }
        }
        let Some(legend) = &line.legend else { continue };
        let (x, y) = legend_place(legends);
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
    Some(Chart { svg, frame: Frame { width: WIDTH, left: LEFT, right: RIGHT, x: axes.xs } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(f64, f64)]) -> Series {
        let name = "a <b> & c".to_owned();
        let (points, band) = (points.to_vec(), Vec::new());
        Series { legend: Some(name.clone()), name, run: 7, dashed: true, points, band }
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
        let band = Series { band: vec![[8.0, 9.0], [4.0, 5.0]], ..series(&[(0.0, 8.5), (10.0, 4.5)]) };
        let banded = draw(&[band], "updates", "loss", 0.0).unwrap().svg;
        assert!(
            banded.contains("<polygon points=\"64.0,80.0 704.0,352.0 704.0,284.0 64.0,12.0\""),
            "{banded}"
        );
        let single = draw(&[series(&[(5.0, 0.0)])], "x", "y", 0.0).unwrap();
        assert!(!single.svg.contains("NaN") && !single.svg.contains("inf"), "{}", single.svg);
        let twins = [series(&[(0.0, 1.0)]), Series { legend: None, ..series(&[(0.0, 2.0)]) }];
        let twins = draw(&twins, "x", "y", 0.0).unwrap().svg;
        assert_eq!((twins.matches("a &lt;b&gt;").count(), twins.matches("<polyline").count()), (1, 2));
    }
}
