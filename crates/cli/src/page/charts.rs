//! Charts of a page: it holds all of them, and the reader chooses.

use serde::Serialize;

use mae_study::figures::chart::{self, Frame};
use mae_study::figures::curves::{Against, Series};

/// A chart of the page.
#[derive(Serialize)]
pub struct PageChart {
    curve: String,
    /// Quantity and unit of the x axis.
    against: &'static str,
    svg: String,
    frame: Frame,
    series: Vec<Series>,
}

impl PageChart {
    /// Draws `series` of what `curve` names, with its unit; none if there is no point.
    pub fn draw(curve: &str, against: Against, series: Vec<Series>) -> Option<Self> {
        // Every run begins at 0.
        let chart = chart::draw(&series, against.label(), curve, 0.0)?;
        let (svg, frame) = (chart.svg, chart.frame);
        Some(Self { curve: curve.to_owned(), against: against.label(), svg, frame, series })
    }
}
