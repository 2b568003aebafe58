//! Values of several runs of one kind as SVG: a row for each kind with a dot for each run, a bar at their mean, and a number
//! from elsewhere to compare with.

use std::fmt::Write;

use super::svg::{COLOURS, TOP, WIDTH, bounds, escape, number, opening, ticks};

/// Height of a row.
const ROW: f64 = 34.0;
/// Right end of the plot; means stand beside it.
const RIGHT: f64 = 640.0;
/// Room for a character of a name, and for all of it at most.
const CHARACTER: f64 = 7.5;
const NAMES: f64 = 240.0;

/// A kind of runs.
pub struct Dots {
    /// Name of the kind.
    pub name: String,
    /// Name and value of each dot.
    pub values: Vec<(String, f64)>,
    /// A number from elsewhere.
    pub beside: Option<f64>,
}

/// Draws rows over an axis named `x_label`; `beside` says where numbers from elsewhere are from. `None` if there is no value.
///
/// Numbers from elsewhere that lie far away do not stretch the axis: they are written at its end.
pub fn draw(rows: &[Dots], x_label: &str, beside: &str) -> Option<String> {
    let [low, high] = bounds(rows.iter().flat_map(|row| &row.values).map(|value| value.1))?;
    let near = (low - (high - low))..=(high + (high - low));
    let shown = rows.iter().filter_map(|row| row.beside).filter(|value| near.contains(value));
    let ticks = ticks(bounds(shown.chain([low, high]))?);
    let (first, last) = (*ticks.first()?, *ticks.last()?);
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let left = 20.0 + (CHARACTER * longest as f64).min(NAMES);
    let across = |value: f64| left + (value - first) / (last - first) * (RIGHT - left);
    let bottom = TOP + 14.0 + ROW * rows.len() as f64;
    let mut svg = opening(bottom + 78.0, x_label);
    // Writing to a string cannot fail.
    let mut add = |text: String| svg.write_str(&text).expect("a string grows");
    let text = |x: f64, y: f64, anchor: &str, words: &str| {
        let words = escape(words);
        format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"currentColor\">{words}</text>\n"
        )
    };
    for tick in &ticks {
        let x = across(*tick);
        add(format!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>"
        ));
        add(text(x, bottom + 20.0, "middle", &number(*tick)));
    }
    add(text((left + RIGHT) / 2.0, bottom + 40.0, "middle", x_label));
    add(text(WIDTH - 8.0, TOP + 8.0, "end", "mean"));
    for (i, row) in rows.iter().enumerate() {
        let (y, colour) = (TOP + 14.0 + ROW * (i as f64 + 0.5), COLOURS[i % COLOURS.len()]);
        add(text(left - 12.0, y + 4.0, "end", &row.name));
        for (j, (what, value)) in row.values.iter().enumerate() {
            // Dots of equal values lie below each other.
            let share = (j as f64 + 0.5) / row.values.len() as f64 - 0.5;
            add(dot(across(*value), y + 20.0 * share, colour, &format!("{} {what}: {value:.2}", row.name)));
        }
        if !row.values.is_empty() {
            let mean = row.values.iter().map(|value| value.1).sum::<f64>() / row.values.len() as f64;
            add(bar(across(mean), y, colour));
            add(text(WIDTH - 8.0, y + 4.0, "end", &format!("{mean:.2}")));
        }
        match row.beside {
            Some(value) if near.contains(&value) => add(diamond(across(value), y)),
            Some(value) if value < low => add(text(left + 4.0, y + 4.0, "start", &format!("← ◇ {value:.2}"))),
            Some(value) => add(text(RIGHT - 4.0, y + 4.0, "end", &format!("{value:.2} ◇ →"))),
            None => {}
        }
    }
    let y = bottom + 64.0;
    add(dot(left, y, "currentColor", "one seed") + &text(left + 10.0, y + 4.0, "start", "one seed"));
    add(bar(left + 100.0, y, "currentColor") + &text(left + 110.0, y + 4.0, "start", "mean"));
    if rows.iter().any(|row| row.beside.is_some()) {
        add(diamond(left + 180.0, y) + &text(left + 192.0, y + 4.0, "start", beside));
    }
    svg += "</svg>\n";
    Some(svg)
}

fn dot(x: f64, y: f64, colour: &str, title: &str) -> String {
    let title = escape(title);
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\" fill-opacity=\"0.85\"><title>{title}</title></circle>\n"
    )
}

fn bar(x: f64, y: f64, colour: &str) -> String {
    let (top, bottom) = (y - 12.0, y + 12.0);
    format!(
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>\n"
    )
}

fn diamond(x: f64, y: f64) -> String {
    let corners = [(x - 6.0, y), (x, y - 6.0), (x + 6.0, y), (x, y + 6.0)];
    let corners: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let corners = corners.join(" ");
    format!("<polygon points=\"{corners}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"/>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(name: &str, values: &[f64], beside: Option<f64>) -> Dots {
        let values = values.iter().enumerate().map(|(i, &value)| (format!("seed {i}"), value)).collect();
        Dots { name: name.into(), values, beside }
    }

    #[test]
    fn every_value_has_a_dot_and_far_numbers_stand_at_the_end() {
        let rows =
            [dots("a<b", &[20.0, 22.0], Some(24.0)), dots("c", &[21.0], Some(90.0)), dots("d", &[], None)];
        let svg = draw(&rows, "BLEU", "the paper").unwrap();
        // Three dots and that of the legend; bars of two means, and the legend's; one diamond in the plot.
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("stroke-width=\"3\"").count(), 3);
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert!(
            svg.contains("90.00 ◇ →") && svg.contains(">21.00<") && svg.contains("a&lt;b seed 1: 22.00"),
            "{svg}"
        );
        // The axis ends at 24, the number beside: the diamond's right corner is over the right end.
        assert!(svg.contains("646.0,"), "{svg}");
        assert!(draw(&[dots("d", &[], Some(1.0))], "x", "y").is_none());
        let one = draw(&[dots("one", &[0.0], None)], "x", "y").unwrap();
        assert!(!one.contains("NaN") && !one.contains("inf"), "{one}");
    }
}
