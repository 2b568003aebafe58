//! What can be drawn of a run, and against what.

use serde::Serialize;

use super::{Logged, Moment, Run};

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Curve {
    /// Smoothed training loss (dashed) and development loss, bits per token.
    Loss,
    /// Smoothed development loss alone, bits per token.
    DevLoss,
    /// Plain training loss (dashed) and development loss, bits per token.
    Nll,
    /// BLEU of the development set.
    Bleu,
    /// Mean gate entropy of the development set, nats.
    GateEntropy,
    /// Smoothed loss of G steps, bits per token.
    GateLoss,
    /// Target tokens per second.
    TokensPerSecond,
    /// Milliseconds per update.
    UpdateMs,
    /// Learning rate.
    Lr,
    /// Gradient norm.
    GradientNorm,
}

/// What it is drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Against {
    /// Updates.
    Updates,
    /// Epochs.
    Epochs,
    /// Minutes of training.
    Time,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// What the legend calls it; of lines of one colour, one is enough.
    #[serde(skip)]
    pub legend: Option<String>,
    /// Which run it belongs to, from 0: its colour.
    pub run: usize,
    /// Whether it is drawn dashed.
    pub dashed: bool,
    /// (x, y), x rising.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Loss,
        Self::DevLoss,
        Self::Nll,
        Self::Bleu,
        Self::GateEntropy,
        Self::GateLoss,
        Self::TokensPerSecond,
        Self::UpdateMs,
        Self::Lr,
        Self::GradientNorm,
    ];

    /// Name with unit, for the axis.
    pub fn label(self) -> &'static str {
        match self {
            Self::Loss => "smoothed loss, bits/token",
            Self::DevLoss => "smoothed development loss, bits/token",
            Self::Nll => "plain loss, bits/token",
            Self::Bleu => "BLEU, development set",
            Self::GateEntropy => "gate entropy, nats",
            Self::GateLoss => "loss of G steps, bits/token",
            Self::TokensPerSecond => "target tokens per second",
            Self::UpdateMs => "ms per update",
            Self::Lr => "learning rate",
            Self::GradientNorm => "gradient norm",
        }
    }

    /// The lines of all runs; none of runs that never logged it.
    pub fn series(self, runs: &[Run], against: Against) -> Vec<Series> {
        let mut all = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            let mut add = |name: String, lines: &[Logged], key: &str, dashed: bool| {
                let point = |line: &Logged| Some((against.of(&line.at), *line.numbers.get(key)?));
                let mut points: Vec<(f64, f64)> = lines.iter().filter_map(point).collect();
                points.retain(|(x, y)| x.is_finite() && y.is_finite());
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                if !points.is_empty() {
                    all.push(Series { legend: Some(name.clone()), name, run: number, dashed, points });
                }
            };
            let name = run.name.clone();
            match self {
                Self::Loss | Self::Nll => {
                    let key = if self == Self::Loss { "loss" } else { "nll_loss" };
                    add(format!("{name} (train)"), &run.train, key, true);
                    add(format!("{name} (dev)"), &run.valid, key, false);
                }
                Self::DevLoss => add(name, &run.valid, "loss", false),
                Self::Bleu => add(name, &run.valid, "bleu", false),
                Self::GateEntropy => add(name, &run.valid, "gate_entropy", false),
                Self::GateLoss => add(name, &run.train, "gate_loss", false),
                Self::TokensPerSecond => add(name, &run.train, "wps", false),
                Self::UpdateMs => add(name, &run.train, "update_ms", false),
                Self::Lr => add(name, &run.train, "lr", false),
                Self::GradientNorm => add(name, &run.train, "gnorm", false),
            }
        }
        all
    }
}

impl Against {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Updates, Self::Epochs, Self::Time];

    /// Name with unit, for the axis.
    pub fn label(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Epochs => "epochs",
            Self::Time => "minutes of training",
        }
    }

    fn of(self, at: &Moment) -> f64 {
        match self {
            Self::Updates => at.updates,
            Self::Epochs => at.epochs,
            Self::Time => at.seconds / 60.0,
        }
    }
}
