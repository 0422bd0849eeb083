//! The program `atoll`, as tests of attacks need it: a run can leave a defence out, so
//! that an attack is seen to fail for that defence and for nothing else.

use std::process::ExitCode;

/// The variable that names the defences to leave out, as the crates `init` and `sandbox` read it.
const SWITCH: &str = "ATOLL_TEST_WITHOUT";

fn main() -> ExitCode {
    let without = std::env::var(SWITCH).unwrap_or_default();
    eprintln!("NO BOUNDARY: this build is for tests; {SWITCH} leaves out: {without:?}");
    ExitCode::from(atoll_cli::main(std::env::args_os().collect()))
}
