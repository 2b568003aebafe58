//! Curves as SVG: for papers as they are, and for the page, which sets the colour of text and lines by its own.

use std::fmt::Write;

use super::axes::{Axes, height, legend_place};
use super::curves::Series;
use super::svg::{colour, escape, opening};

/// Draws lines with axes named `x_label` and `y_label`, x from `begin` on; `None` if there is no point.
pub fn draw(series: &[Series], x_label: &str, y_label: &str, begin: f64) -> Option<String> {
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
        let colour = colour(line.run);
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
                add(mark(axes.across(*x), axes.down(*y), line.run, colour));
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
    Some(svg)
}

/// A hollow mark, of another shape for each run, so that points of equal values can be told apart.
fn mark(x: f64, y: f64, run: usize, colour: &str) -> String {
    let style = format!("fill=\"{colour}\" fill-opacity=\"0.2\" stroke=\"{colour}\" stroke-width=\"1.5\"");
    let corners = |corners: &[(f64, f64)]| {
        let corners: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon points=\"{}\" {style}/>", corners.join(" "))
    };
    match run % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" {style}/>"),
        1 => corners(&[(-5.5, -5.5), (5.5, -5.5), (5.5, 5.5), (-5.5, 5.5)]),
        2 => corners(&[(0.0, -8.0), (7.0, 4.5), (-7.0, 4.5)]),
        _ => corners(&[(0.0, -9.0), (9.0, 0.0), (0.0, 9.0), (-9.0, 0.0)]),
    }
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
        assert!(chart.contains("points=\"64.0,12.0 704.0,352.0\""), "{chart}");
        assert!(chart.contains("a &lt;b&gt; &amp; c") && !chart.contains("<b>"));
        assert!(chart.starts_with("<svg xmlns=") && chart.ends_with("</svg>\n"));
        assert!(draw(&[], "x", "y", 0.0).is_none() && draw(&[series(&[])], "x", "y", 0.0).is_none());
        let late = draw(&[series(&[(6.0, 9.0), (10.0, 4.0)])], "updates", "loss", 5.0).unwrap();
        assert!(late.contains("points=\"192.0,12.0 704.0,352.0\""), "{late}");
        let band = Series { band: vec![[8.0, 9.0], [4.0, 5.0]], ..series(&[(0.0, 8.5), (10.0, 4.5)]) };
        let banded = draw(&[band], "updates", "loss", 0.0).unwrap();
        assert!(
            banded.contains("<polygon points=\"64.0,80.0 704.0,352.0 704.0,284.0 64.0,12.0\""),
            "{banded}"
        );
        let single = draw(&[series(&[(5.0, 0.0)])], "x", "y", 0.0).unwrap();
        assert!(!single.contains("NaN") && !single.contains("inf"), "{single}");
        let twins = [series(&[(0.0, 1.0)]), Series { legend: None, ..series(&[(0.0, 2.0)]) }];
        let twins = draw(&twins, "x", "y", 0.0).unwrap();
        assert_eq!((twins.matches("a &lt;b&gt;").count(), twins.matches("<polyline").count()), (1, 2));
    }
}
