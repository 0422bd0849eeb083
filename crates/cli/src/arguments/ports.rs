//! The definitions of the commands that speak to a run while it goes on.

use clap::Args;

const PORTS_EXAMPLES: &str = "\
Examples:
  atoll ports                    of the run that goes on, or of all of them
  atoll ports k7qd --json";

const PUBLISH_EXAMPLES: &str = "\
Examples:
  atoll publish last 3000             http://127.0.0.1:3000 leads to port 3000 inside
  atoll publish k7qd 3000 --to 8080   so does http://127.0.0.1:8080";

/// Show what listens inside of running runs
///
/// A program is listed from about a second after it began to listen. Nothing of it is
/// reachable from here before `atoll publish`, or `atoll run --publish`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = PORTS_EXAMPLES)]
pub struct PortsArguments {
    /// The run: its id, its beginning or end, or `last`. Default: all that go on.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// Print JSON: one array, an object for each run. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Make a port of a running run reachable from here
///
/// As `atoll run --publish` does it beforehand: at 127.0.0.1 and ::1 of this host, for
/// you alone, each visit recorded. It lasts as long as the run.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = PUBLISH_EXAMPLES)]
pub struct PublishArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN")]
    pub run: String,

    /// The port that a program inside listens at.
    #[arg(value_name = "PORT", value_parser = port)]
    pub port: u16,

    /// The port of this host. Default: the same number.
    #[arg(long, value_name = "HOSTPORT", value_parser = port)]
    pub to: Option<u16>,

    /// Print JSON: one object. Default: text.
    #[arg(long)]
    pub json: bool,
    /// A run of this user, who names you in `approvers`. Default: your own.
    #[arg(long, value_name = "USER")]
    pub of: Option<String>,
}

fn port(text: &str) -> Result<u16, String> {
    match (text.parse(), text.split_once(':')) {
        (Ok(port @ 1..), _) => Ok(port),
        (_, Some((outside, inside))) => Err(format!(
            "one port is named here, that inside; for another one of this host: {inside} --to \
             {outside}"
        )),
        (Ok(0) | Err(_), None) => Err("a port is a number from 1 to 65535".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::port;

    #[test]
    fn a_port_is_a_number_and_what_is_none_is_told_in_words() {
        assert_eq!(port("3000"), Ok(3000));
        for wrong in ["0", "65536", "x", "", "-1"] {
            let told = port(wrong);
            assert_eq!(told, Err("a port is a number from 1 to 65535".to_owned()));
        }
        let told = port("3001:90");
        assert!(told.is_err_and(|told| told.ends_with("90 --to 3001")));
    }
}
