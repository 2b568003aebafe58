//! `mae completions`: a script that completes commands and flags in a shell.

use std::io::Write;

use clap_complete::Shell;

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  bash, for the current user:
    mae completions bash > ~/.local/share/bash-completion/completions/mae

  zsh, into a folder of $fpath:
    mae completions zsh > ~/.zfunc/_mae

  fish:
    mae completions fish > ~/.config/fish/completions/mae.fish";

/// Print a script that completes commands and flags in your shell.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shell to write the script for.
    shell: Shell,
}

/// Runs the command. `program` is the command line of the whole program.
pub fn run(args: &Args, mut program: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "mae", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
