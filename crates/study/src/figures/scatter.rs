//! Two values of every run as SVG, one colour for each system.

use std::fmt::Write;

use super::axes::{Axes, height, legend_place};
use super::svg::{COLOURS, escape, opening};

/// The runs of a system.
pub struct Cloud {
    /// Name of the system.
    pub name: String,
    /// Name of each run, and its two values.
    pub runs: Vec<(String, (f64, f64))>,
}

/// Draws a dot for every run over axes named `x_label` and `y_label`; `None` if there is no run.
pub fn draw(clouds: &[Cloud], x_label: &str, y_label: &str) -> Option<String> {
    let axes = Axes::around(clouds.iter().flat_map(|cloud| &cloud.runs).map(|run| run.1), 0.0)?;
    let mut svg = opening(height(clouds.len()), &format!("{y_label} against {x_label}"));
    svg += &axes.draw(x_label, y_label);
    for (number, cloud) in clouds.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let dot = |(x, y): (f64, f64), title: &str| {
            let title = escape(title);
            format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\" fill-opacity=\"0.85\"><title>{title}</title></circle>\n"
            )
        };
        // Writing to a string cannot fail.
        let mut add = |text: String| svg.write_str(&text).expect("a string grows");
        for (run, (x, y)) in &cloud.runs {
            add(dot((axes.across(*x), axes.down(*y)), &format!("{} {run}: {x:.3}, {y:.2}", cloud.name)));
        }
        let (x, y) = legend_place(number);
        add(dot((x + 6.0, y), &cloud.name));
        add(format!(
            "<text x=\"{}\" y=\"{}\" fill=\"currentColor\">{}</text>\n",
            x + 18.0,
            y + 4.0,
            escape(&cloud.name)
        ));
    }
    svg += "</svg>\n";
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_dot_at_its_place() {
        let runs = vec![("seed 1".to_owned(), (0.0, 20.0)), ("seed 2".to_owned(), (0.2, 25.0))];
        let clouds = [Cloud { name: "a<b".into(), runs }, Cloud { name: "c".into(), runs: Vec::new() }];
        let svg = draw(&clouds, "nats", "BLEU").unwrap();
        assert!(
            svg.contains("cx=\"64.0\" cy=\"352.0\"") && svg.contains("cx=\"704.0\" cy=\"12.0\""),
            "{svg}"
        );
        assert!(svg.contains("a&lt;b seed 2: 0.200, 25.00"), "{svg}");
        assert!(draw(&clouds[1..], "x", "y").is_none());
    }
}
