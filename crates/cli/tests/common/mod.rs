//! A folder to run `mae` in, and what came of it.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod lm;
pub mod page;
pub mod place;
pub mod study;
pub mod tool;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A temporary folder that commands run in; it goes away when dropped.
pub struct Sandbox(tempfile::TempDir);

/// What a command said.
#[derive(Debug)]
pub struct Run {
    code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Sandbox {
    /// An empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("the sandbox can be written to");
    }

    /// Runs `mae` in the folder.
    pub fn mae(&self, args: &[&str], more: &[&str]) -> Run {
        self.mae_reading("", args, more)
    }

    /// Runs `mae` in the folder with this standard input.
    pub fn mae_reading(&self, stdin: &str, args: &[&str], more: &[&str]) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mae"))
            .args(args)
            .args(more)
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // A command that does not read its input closes the pipe: no fault of the test.
        child.stdin.take().expect("it is a pipe").write_all(stdin.as_bytes()).ok();
        let output = child.wait_with_output().expect("the program ends");
        let text = |bytes| String::from_utf8(bytes).expect("mae prints UTF-8");
        Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub fn succeeded(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        &self.stdout
    }

    /// Standard error of a command that must have failed, in words and not by a panic.
    #[track_caller]
    pub fn failed(&self) -> &str {
        assert!(self.failed_in_words(), "{:?}: {}{}", self.code, self.stdout, self.stderr);
        &self.stderr
    }

    /// Whether it failed, in words and not by a panic.
    pub fn failed_in_words(&self) -> bool {
        matches!(self.code, Some(1 | 2)) && !self.stderr.contains("panicked")
    }

    /// Whether it succeeded.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

/// Lines with their ends.
pub fn lines(lines: &[impl AsRef<str>]) -> String {
    lines.iter().map(|line| format!("{}\n", line.as_ref())).collect()
}

/// A gzip file of one stored block (RFC 1952).
pub fn gzip(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("a stored block holds 64 KiB at most");
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    file.extend(length.to_le_bytes());
    file.extend((!length).to_le_bytes());
    file.extend(text.as_bytes());
    file.extend(crc32(text.as_bytes()).to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
