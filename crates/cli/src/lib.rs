//! The binary `atoll`: roles, command line, terminal.
//!
//! The library reads the command line ([`arguments`]) into requests of the engine, which does the
//! work, and words its results, notices and hints. What a person reads is made in [`render`]; what
//! a hostile program writes to a terminal goes through [`escape`]. System calls are made elsewhere.
//! No two modules use each other. Start reading at [`main`].

mod advice;
mod answered;
mod approvals;
pub mod arguments;
mod artifacts;
mod ask_key;
mod authority;
mod breakers;
mod checkpoints;
mod checks;
mod conclusion;
mod consent;
mod console;
mod data;
mod denied;
mod desk;
mod diff;
mod documents;
mod downloads;
pub mod escape;
mod exec;

mod finding;
mod help;
mod hints;
mod hook;
mod init;
mod kept;
mod ledger;
mod left_out;
mod meant;
mod notices;
mod output;
mod own;
mod planted;
mod policy;
mod ports;
mod promotion;
mod question;
mod reached;
pub mod render;
mod renewed;
mod reputation;
mod requested;
mod restrict;
mod review;
mod run;
mod sandbox;
mod secret;
mod serve;
mod served;
mod sessions;
mod signin;
mod status;
mod stop;
mod template;
mod terminal;
mod token;
mod tools;
mod undo_report;
mod upkeep;
mod used;
mod why;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use arguments::Command;
use atoll_engine::failure::Failure;
use atoll_engine::roles;
pub use atoll_launcher::LAUNCHER;
use atoll_sandbox::Starting;
use atoll_server::{FRONT, front_program};
use atoll_tools::{CLIENT, client_program};
use output::Output;

/// Runs the program with these arguments, its own name first, and returns the
/// exit status.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> u8 {
    if let Some(status) = roles::take(&arguments) {
        return status;
    }
    if let [_, word, scanner] = arguments.as_slice()
        && word == atoll_data::SCAN_WORKER
    {
        return scan_program(scanner);
    }
    if arguments
        .first()
        .is_some_and(|name| name.as_bytes() == FRONT.to_bytes())
    {
        return front_program();
    }
    if arguments
        .first()
        .is_some_and(|name| name.as_bytes() == CLIENT.to_bytes())
    {
        return client_program();
    }
    // Reading the arguments takes as long as all the launcher needs before its first work.
    let arguments = arguments::in_full(&arguments);
    let is_run = arguments.get(1).is_some_and(|word| word == "run");
    let starting = is_run.then(run::begin);
    let command = match arguments::read(&arguments) {
        Ok(command) => command,
        Err(error) => {
            // Whoever asked for help and closed the pipe has had enough of it.
            let _ = error.print();
            return arguments::status_of(&error);
        }
    };
    // Whatever is read of a secret, by whichever command, is gone with the memory it was read into.
    atoll_egress::secret::erase_freed_memory();
    let output = Output::of_process();
    match perform(command, starting, &output) {
        Ok(status) => status,
        Err(failure) => {
            output.failure(&failure);
            status::of(failure.kind)
        }
    }
}

/// Is a scanner, inside its sandbox.
fn scan_program(scanner: &OsStr) -> u8 {
    match atoll_data::work(&scanner.to_string_lossy()) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("{why}");
            status::STATUS_OWN_ERROR
        }
    }
}

fn perform(
    command: Command,
    starting: Option<Result<Starting, Failure>>,
    output: &Output,
) -> Result<u8, Failure> {
    match command {
        Command::Run(arguments) => run::run(*arguments, starting, output),
        Command::Exec(arguments) => exec::exec(&arguments, output),
        Command::Shell(arguments) => exec::shell(&arguments, output),
        Command::Login(arguments) => signin::login(&arguments, output),
        Command::Serve(arguments) => serve::serve(&arguments, output),
        Command::Template(arguments) => template::template(&arguments, output),
        Command::Sandbox(arguments) => sandbox::sandbox(&arguments, output),
        Command::Volume(arguments) => sandbox::volume(&arguments, output),
        Command::Snapshot(arguments) => sandbox::snapshots(&arguments, output),
        Command::Runs(arguments) => review::runs(&arguments, output),
        Command::Sessions(arguments) => sessions::sessions(&arguments, output),
        Command::Approvals(arguments) => {
            approvals::approvals(arguments, &|| served::approvals(output), output)
        }
        Command::Stop(arguments) => stop::stop(&arguments, output),
        Command::Restrict(arguments) => restrict::restrict(&arguments, output),
        Command::Ports(arguments) => ports::ports(&arguments, output),
        Command::Publish(arguments) => ports::publish(&arguments, output),
        Command::Diff(arguments) => review::diff(&arguments, output),
        Command::Apply(arguments) => review::apply(&arguments, output),
        Command::Discard(arguments) => review::discard(&arguments, output),
        Command::Undo(arguments) => review::undo(&arguments, output),
        Command::Kept(arguments) => kept::kept(&arguments, output),
        Command::Why(arguments) => why::why(&arguments, output),
        Command::Gc(arguments) => upkeep::gc(&arguments, output),
        Command::Profile(arguments) => upkeep::profile(arguments, output),
        Command::Policy(arguments) => policy::policy(arguments, output),
        Command::Trust(arguments) => upkeep::trust(&arguments, output),
        Command::Authority(arguments) => authority::authority(arguments, output),
        Command::Secret(arguments) => secret::secret(arguments, output),
        Command::Token(arguments) => token::token(&arguments, output),
        Command::Tools(arguments) => tools::tools(&arguments, output),
        Command::Mcp(arguments) => tools::mcp(&arguments, output),
        Command::Init(arguments) => init::init(&arguments, output),
        Command::Hook(arguments) => hook::hook(&arguments, output),
        Command::Artifacts(arguments) => artifacts::artifacts(&arguments, output),
        Command::Checkpoint(arguments) => checkpoints::checkpoint(&arguments, output),
        Command::Restore(arguments) => checkpoints::restore(&arguments, output),
        Command::Breakers(arguments) => breakers::breakers(&arguments, output),
        Command::Data(arguments) => data::data(&arguments, output),
        Command::Ledger(arguments) => ledger::ledger(arguments, output),
        Command::Doctor(arguments) => upkeep::doctor(&arguments, output),
        Command::Completions(arguments) => Ok(upkeep::completions(&arguments, output)),
        Command::Man(arguments) => upkeep::man(&arguments, output),
        Command::Help(words) => help::help(&words, output),
    }
}
