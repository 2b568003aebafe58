//! A plot with two axes: bounds, grid, ticks and labels.

use super::svg::{TOP, bounds, escape, number, ticks};

pub(super) const PLOT_HEIGHT: f64 = 340.0;
pub(super) const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 704.0;
/// Bottom of the plot.
pub(super) const BOTTOM: f64 = TOP + PLOT_HEIGHT;
/// Top of the legend.
pub(super) const LEGEND: f64 = BOTTOM + 56.0;
/// Height of a row of the legend.
pub(super) const ROW: f64 = 20.0;

/// Values at the ends of both axes.
#[derive(Clone, Copy)]
pub(super) struct Axes {
    pub(super) xs: [f64; 2],
    ys: [f64; 2],
}

impl Axes {
    /// Axes around all points, x from `begin` on; y ends at round numbers. `None` if there is no point.
    pub(super) fn around(points: impl Iterator<Item = (f64, f64)> + Clone, begin: f64) -> Option<Self> {
        let xs = bounds(points.clone().map(|point| point.0))?;
        let ys = bounds(points.map(|point| point.1))?;
        let round = ticks(ys);
        let low = round.first().map_or(ys[0], |tick| tick.min(ys[0]));
        let high = round.last().map_or(ys[1], |tick| tick.max(ys[1]));
        Some(Self { xs: [xs[0].min(begin), xs[1]], ys: [low, high] })
    }

    pub(super) fn across(&self, x: f64) -> f64 {
        LEFT + (x - self.xs[0]) / (self.xs[1] - self.xs[0]) * (RIGHT - LEFT)
    }

    pub(super) fn down(&self, y: f64) -> f64 {
        BOTTOM - (y - self.ys[0]) / (self.ys[1] - self.ys[0]) * PLOT_HEIGHT
    }

    /// Place of a point, as polylines and polygons have it.
    pub(super) fn place(&self, (x, y): (f64, f64)) -> String {
        format!("{:.1},{:.1}", self.across(x), self.down(y))
    }

    /// Draws grid, ticks and the names of the axes.
    pub(super) fn draw(&self, x_label: &str, y_label: &str) -> String {
        let mut svg = String::new();
        for tick in ticks(self.ys).iter().filter(|tick| (self.ys[0]..=self.ys[1]).contains(*tick)) {
            let y = self.down(*tick);
            svg += &format!(
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"currentColor\">{}</text>\n",
                LEFT - 6.0,
                y + 4.0,
                number(*tick)
            );
        }
        for tick in ticks(self.xs).iter().filter(|tick| (self.xs[0]..=self.xs[1]).contains(*tick)) {
            let x = self.across(*tick);
            svg += &format!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{}\" stroke=\"currentColor\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n",
                BOTTOM + 5.0,
                BOTTOM + 20.0,
                number(*tick)
            );
        }
        svg + &format!(
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\" stroke=\"currentColor\"/>\n\
             <text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n\
             <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"currentColor\">{}</text>\n",
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 40.0,
            escape(x_label),
            TOP + PLOT_HEIGHT / 2.0,
            escape(y_label)
        )
    }
}

/// Place of entry `number` of the legend, which has two columns.
pub(super) fn legend_place(number: usize) -> (f64, f64) {
    (LEFT + (number % 2) as f64 * 330.0, LEGEND + (number / 2) as f64 * ROW)
}

/// Height of a drawing with so many entries in its legend.
pub(super) fn height(entries: usize) -> f64 {
    LEGEND + ROW * entries.div_ceil(2) as f64
}
