//! The `mae` program.

fn main() -> std::process::ExitCode {
    mae_cli::run(std::env::args_os()).into()
}
