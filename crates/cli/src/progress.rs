//! Progress bars on standard error; nothing where it is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `total` things, called `what`.
pub fn bar(total: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed} < {eta}]")
        .expect("the template is valid");
    ProgressBar::new(total).with_style(style).with_prefix(what.to_owned())
}
