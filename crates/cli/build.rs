//! Build script: puts the commit into `mae --version` and into results.
//!
//! `MAE_VERSION` is "0.1.0 (abc1234)" in a git checkout and "0.1.0" elsewhere: in a source archive, without git, or
//! in a folder of another repository. `MAE_BUILD_COMMIT` is the commit alone, and is not set elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let crate_folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    println!("cargo::rerun-if-changed=build.rs");
    let version = match commit(&crate_folder) {
        Some(commit) => {
            println!("cargo::rustc-env=MAE_BUILD_COMMIT={commit}");
            format!("{version} ({commit})")
        }
        None => version,
    };
    println!("cargo::rustc-env=MAE_VERSION={version}");
}

/// Abbreviated commit of the repository whose root is two folders above this crate.
fn commit(crate_folder: &Path) -> Option<String> {
    let root = crate_folder.join("../..").canonicalize().ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    // HEAD changes with the branch, its log with every commit. Cargo would run this script in every build if it named
    // a file that does not exist.
    for name in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "--short=7", "HEAD"])
}

/// Output of a git command, without the end of the line; `None` if it fails or there is no git.
fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(folder).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned()).filter(|text| !text.is_empty())
}
