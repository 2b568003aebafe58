//! Progress bars on standard error, hidden if it is not a terminal.

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Progress bar named `what` over `total` items.
pub fn bar(total: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed} < {eta}]")
        .expect("the template is valid");
    ProgressBar::new(total).with_style(style).with_prefix(what.to_owned())
}

/// Writes a rate without digits after the point.
fn whole_rate(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // A writer that fails is a terminal that has gone.
    write!(out, "{}", HumanCount(state.per_sec() as u64)).ok();
}

/// Progress of work in several stages, with one bar for the current stage.
pub struct Stages {
    quiet: bool,
    stage: String,
    bar: ProgressBar,
}

impl Stages {
    /// Starts without a bar; `quiet` hides all bars.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, stage: String::new(), bar: ProgressBar::hidden() }
    }

    /// Updates a stage that counts lines, without a known total.
    pub fn lines(&mut self, stage: &str, done: u64) {
        if stage != self.stage {
            let style = ProgressStyle::with_template(
                "{prefix} {spinner} {human_pos} lines [{elapsed}, {rate} lines/s]",
            );
            let style = style.expect("the template is valid").with_key("rate", whole_rate);
            self.enter(stage, ProgressBar::new_spinner().with_style(style).with_prefix(stage.to_owned()));
        }
        self.bar.set_position(done);
        self.bar.tick();
    }

    /// Updates a stage with a known number of steps.
    pub fn steps(&mut self, stage: &str, done: u64, total: u64) {
        if stage != self.stage {
            self.enter(stage, bar(total, stage));
        }
        self.bar.set_position(done);
    }

    fn enter(&mut self, stage: &str, bar: ProgressBar) {
        self.finish();
        if self.quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        (self.bar, self.stage) = (bar, stage.to_owned());
    }

    /// Removes the last bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
