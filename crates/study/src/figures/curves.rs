//! Curves of a run, and the axes that they can be drawn against.

use mae_train::history::{History, Logged, Moment};
use mae_train::validate::Validation;
use serde::Serialize;

/// A curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Mean I(expert; input) of the development set over attentions, nats.
    GateInformation,
    /// Smoothed loss of G steps, bits per token.
    GateLoss,
    /// Norm of the gates' gradient in G steps.
    GateGradientNorm,
    /// Updates of the gates so far.
    GateUpdates,
    /// Target tokens per second.
    TokensPerSecond,
    /// Milliseconds per update.
    UpdateMs,
    /// Learning rate.
    Lr,
    /// Gradient norm.
    GradientNorm,
}

/// Axis that a curve is drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Name of the line.
    pub name: String,
    /// Name in the legend; of lines of one colour, one is enough.
    #[serde(skip)]
    pub legend: Option<String>,
    /// Number of its run, from 0, which decides its colour.
    pub run: usize,
    /// True if it is drawn dashed.
    pub dashed: bool,
    /// (x, y), x rising.
    pub points: Vec<(f64, f64)>,
    /// Of a mean of several runs: the lowest and the highest of them at each point. Empty for a single run.
    #[serde(skip)]
    pub band: Vec<[f64; 2]>,
}

impl Curve {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Loss,
        Self::DevLoss,
        Self::Nll,
        Self::Bleu,
        Self::GateEntropy,
        Self::GateInformation,
        Self::GateLoss,
        Self::GateGradientNorm,
        Self::GateUpdates,
        Self::TokensPerSecond,
        Self::UpdateMs,
        Self::Lr,
        Self::GradientNorm,
    ];

    /// Name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::DevLoss => "dev-loss",
            Self::Nll => "nll",
            Self::Bleu => "bleu",
            Self::GateEntropy => "gate-entropy",
            Self::GateInformation => "gate-information",
            Self::GateLoss => "gate-loss",
            Self::GateGradientNorm => "gate-gradient-norm",
            Self::GateUpdates => "gate-updates",
            Self::TokensPerSecond => "tokens-per-second",
            Self::UpdateMs => "update-ms",
            Self::Lr => "lr",
            Self::GradientNorm => "gradient-norm",
        }
    }

    /// Name with unit, for the axis.
    pub fn label(self) -> &'static str {
        match self {
            Self::Loss => "smoothed loss, bits/token",
            Self::DevLoss => "smoothed development loss, bits/token",
            Self::Nll => "plain loss, bits/token",
            Self::Bleu => "BLEU, development set",
            Self::GateEntropy => "gate entropy, nats",
            Self::GateInformation => "I(expert; input), nats",
            Self::GateLoss => "loss of G steps, bits/token",
            Self::GateGradientNorm => "gradient norm of G steps",
            Self::GateUpdates => "G steps",
            Self::TokensPerSecond => "target tokens per second",
            Self::UpdateMs => "ms per update",
            Self::Lr => "learning rate",
            Self::GradientNorm => "gradient norm",
        }
    }

    /// The lines of all runs; none of runs that never logged it.
    pub fn series(self, runs: &[History], against: Against) -> Vec<Series> {
        let mut all = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            let mut add = |name: String, values: Vec<(Moment, f64)>, dashed: bool| {
                let mut points: Vec<(f64, f64)> =
                    values.into_iter().map(|(at, value)| (against.of(&at), value)).collect();
                points.retain(|(x, y)| x.is_finite() && y.is_finite());
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                if !points.is_empty() {
                    let (legend, band) = (Some(name.clone()), Vec::new());
                    all.push(Series { legend, name, run: number, dashed, points, band });
                }
            };
            let name = run.name.clone();
            match self {
                Self::Loss => {
                    add(format!("{name} (train)"), of(&run.train, |line| Some(line.loss)), true);
                    add(format!("{name} (dev)"), of(&run.valid, |line| Some(line.loss)), false);
                }
                Self::Nll => {
                    add(format!("{name} (train)"), of(&run.train, |line| Some(line.nll_loss)), true);
                    add(format!("{name} (dev)"), of(&run.valid, |line| Some(line.nll_loss)), false);
                }
                Self::DevLoss => add(name, of(&run.valid, |line| Some(line.loss)), false),
                Self::Bleu => add(name, of(&run.valid, |line| line.bleu), false),
                Self::GateEntropy => add(name, of(&run.valid, |line| line.gate_entropy), false),
                Self::GateInformation => add(name, of(&run.valid, information), false),
                Self::GateGradientNorm => add(name, of(&run.train, |line| line.gate_gnorm), false),
                Self::GateUpdates => {
                    add(name, of(&run.valid, |line| line.gate_updates.map(|updates| updates as f64)), false);
                }
                Self::GateLoss => add(name, of(&run.train, |line| line.gate_loss), false),
                Self::TokensPerSecond => add(name, of(&run.train, |line| Some(line.wps)), false),
                Self::UpdateMs => add(name, run.update_times(), false),
                Self::Lr => add(name, of(&run.train, |line| Some(line.lr)), false),
                Self::GradientNorm => add(name, of(&run.train, |line| Some(line.gnorm)), false),
            }
        }
        all
    }
}

/// Mean over attentions of what inputs tell about their experts.
fn information(line: &Validation) -> Option<f64> {
    let sum: f64 = line.gates.iter().map(|gates| gates.information).sum();
    (!line.gates.is_empty()).then(|| sum / line.gates.len() as f64)
}

/// A number of every line that has it, with the time of the line.
fn of<T>(lines: &[Logged<T>], number: impl Fn(&T) -> Option<f64>) -> Vec<(Moment, f64)> {
    lines.iter().filter_map(|logged| Some((logged.at, number(&logged.line)?))).collect()
}

impl Against {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Updates, Self::Epochs, Self::Time];

    /// Name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Epochs => "epochs",
            Self::Time => "time",
        }
    }

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
