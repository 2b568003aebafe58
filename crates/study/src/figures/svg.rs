//! Parts of drawings: opening, bounds, ticks and text.

/// Width of a drawing.
pub(super) const WIDTH: f64 = 720.0;
/// Top of a plot.
pub(super) const TOP: f64 = 12.0;
/// Colours that people with any colour vision tell apart (Okabe and Ito), readable on white and on black.
pub(super) const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Colour of a run by its number, from 0.
pub fn colour(run: usize) -> &'static str {
    COLOURS[run % COLOURS.len()]
}

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The first lines of a drawing of this height.
pub(super) fn opening(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         color=\"#1b1f24\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n<title>{}</title>\n",
        escape(title)
    )
}

/// The lowest and the highest value, a little apart where they are equal; `None` if there are none.
pub(super) fn bounds(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let [low, high] = values
        .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)]);
    if low > high {
        return None;
    }
    let apart = if low < high { 0.0 } else { (low.abs() * 0.05).max(0.5) };
    Some([low - apart, high + apart])
}

/// About six round numbers that enclose the range.
pub(super) fn ticks([low, high]: [f64; 2]) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|step| *step >= rough).unwrap_or(rough);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// A tick's text: no more digits than it needs.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value.abs() >= 1e6 || value.abs() < 1e-3 {
        format!("{value:.1e}")
    } else {
        format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose() {
        assert_eq!(ticks([0.0, 100.0]), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks([3.1, 7.9]), [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(["0", "0.5", "1200", "1.0e-4", "2.0e6"], [0.0, 0.5, 1200.0, 1e-4, 2e6].map(number));
    }
}
