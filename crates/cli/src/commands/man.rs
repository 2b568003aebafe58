//! `mae man`: manual pages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mae_data::files;

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  Write the pages to a folder and read one:
    mae man man1
    man man1/mae-train.1

  Install the pages for the current user:
    mae man ~/.local/share/man/man1";

/// First line of every page: a comment by which the next run knows that it may replace the file.
const MARK: &str = ".\\\" Manual page of mae, written by `mae man`.\n";

/// Write manual pages: mae.1 and a page for every command.
///
/// Pages of an earlier run are replaced; other files are left alone.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder for the pages; it is made if it does not exist.
    dir: PathBuf,
}

/// Runs the command. `program` is the command line of the whole program.
pub fn run(args: &Args, mut program: clap::Command) -> Result<ExitCode> {
    program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    render(&program, &mut pages)?;
    let dir = &args.dir;
    files::create_folder(dir)?;
    for (name, _) in &pages {
        check_replaceable(&dir.join(name))?;
    }
    for (name, page) in &pages {
        files::write(dir.join(name), page.as_bytes())?;
    }
    println!("{} pages in {}", pages.len(), dir.display());
    Ok(ExitCode::SUCCESS)
}

/// Adds the pages of a command and of its subcommands, each with its file name.
fn render(command: &clap::Command, pages: &mut Vec<(String, String)>) -> Result<()> {
    let man =
        clap_mangen::Man::new(command.clone()).source(concat!("mae ", env!("MAE_VERSION"))).manual("mae");
    let mut page = MARK.as_bytes().to_vec();
    man.render(&mut page)?;
    // clap_mangen puts the help after the options, which begins with the examples, into a section "EXTRA".
    let page = String::from_utf8(page)?.replacen(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n", 1);
    pages.push((man.get_filename(), page));
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        render(subcommand, pages)?;
    }
    Ok(())
}

/// Returns an error if `path` holds anything but a page of `mae man`.
fn check_replaceable(path: &Path) -> Result<()> {
    match std::fs::read(path) {
        Ok(content) => ensure!(
            content.starts_with(MARK.as_bytes()),
            "{} exists and was not written by `mae man`; remove it or name another folder",
            path.display()
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    Ok(())
}
