//! Checkers of `tools/` in other languages.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The Python that `MAE_PYTHON` names, or that of the system.
pub fn python() -> String {
    std::env::var("MAE_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Runs a checker of `tools/` if what it needs is installed; otherwise says so, and fails if the
/// variable `required` is 1.
pub fn check(program: &str, (tool, required): (&str, &str), args: &[&str], want: &str) {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools").join(tool);
    let run = |args: &[&str]| {
        let output = Command::new(program).arg(&tool).args(args).output();
        output.map_or_else(
            |error| (false, error.to_string()),
            |output| {
                let said = [output.stdout, output.stderr].concat();
                (output.status.success(), String::from_utf8_lossy(&said).trim().to_owned())
            },
        )
    };
    let (ready, why) = run(&["--ready"]);
    if !ready {
        let is_required = std::env::var_os(required).is_some_and(|value| value == "1");
        assert!(!is_required, "{required} is 1 and {program} cannot run {}: {why}", tool.display());
        // Not by `eprintln!`, which tests that pass keep to themselves.
        let text = format!("NOT RUN: {}: {}\n", tool.display(), why.lines().last().unwrap_or(""));
        return std::io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    }
    let (done, said) = run(args);
    assert!(done && said.ends_with(want), "{said}");
}
