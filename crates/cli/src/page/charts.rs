//! Charts of a page: it holds all of them, and the reader chooses.

use mae_study::figures::colour;
use mae_study::figures::curves::{Against, Series};
use serde::Serialize;

/// A chart of the page, which its script draws.
#[derive(Serialize)]
pub struct PageChart {
    curve: String,
    /// Quantity and unit of the x axis.
    against: &'static str,
    series: Vec<Line>,
}

/// A line of the chart.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    series: Series,
    /// Name in the legend; of lines of one colour, one is enough.
    legend: Option<String>,
    colour: &'static str,
}

impl PageChart {
    /// A chart of `series` of what `curve` names, with its unit; none if there is no point.
    pub fn of(curve: &str, against: Against, series: Vec<Series>) -> Option<Self> {
        series.iter().any(|series| !series.points.is_empty()).then(|| {
            let line =
                |series: Series| Line { legend: series.legend.clone(), colour: colour(series.run), series };
            let series = series.into_iter().map(line).collect();
            Self { curve: curve.to_owned(), against: against.label(), series }
        })
    }
}
