//! The program `atoll`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(atoll_cli::main(std::env::args_os().collect()))
}
