//! The program `atoll`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(atoll_app::main(std::env::args_os().collect()))
}
