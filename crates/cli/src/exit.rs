//! Exit codes.

/// Exit code of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCode(u8);

impl ExitCode {
    /// The command succeeded.
    pub const SUCCESS: Self = Self(0);
    /// The command failed.
    pub const FAILURE: Self = Self(1);

    /// Number that the system gets.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> Self {
        Self(number)
    }
}
