//! The diagnosis of this host: what it can enforce, why not more, and what helps.
//!
//! The engine reads, tries and draws the conclusions; [`show`] prints them.

mod show;
#[cfg(test)]
mod tests;

use atoll_engine::configuration::Places;
use atoll_engine::doctor::facts::Facts;
use atoll_engine::doctor::finding::{Finding, Grade, Group};
use atoll_engine::doctor::{apparmor, findings};
use atoll_engine::failure::Failure;
use atoll_model::Mode;

use crate::arguments::{DoctorArguments, Requirement};
use crate::output::Output;
use crate::terminal::terminal_size;

/// `atoll run` starts, and holds less than it could elsewhere.
const STATUS_WEAKER: u8 = 1;
/// `atoll run` does not start.
const STATUS_NOTHING: u8 = 3;

/// Reports on the host.
pub fn doctor(arguments: &DoctorArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.apparmor_profile {
        return print_profile(output);
    }
    let facts = Facts::read(&Places::read()?, crate::LAUNCHER);
    let findings = findings::diagnose(&facts);
    let mode = findings::mode(&facts, &findings);
    let status = status(&findings, mode, &arguments.require);
    if arguments.json {
        output.json(&show::document(&findings, mode, &facts, status));
    } else {
        let columns = terminal_size().filter(|_| output.is_terminal);
        let columns = columns.map(|size| usize::from(size.columns));
        output.result(&show::text(&findings, mode, &facts, output.paint, columns));
    }
    Ok(status)
}

/// Returns the exit status: whether everything that is enforceable is enforced, or everything that
/// is required.
fn status(findings: &[Finding], mode: Option<Mode>, required: &[Requirement]) -> u8 {
    let Some(mode) = mode else {
        return STATUS_NOTHING;
    };
    let none_weaker = |is_asked: &dyn Fn(Group) -> bool| {
        let weaker = |one: &Finding| one.grade == Grade::Weaker && is_asked(one.group);
        !findings.iter().any(weaker)
    };
    let meets = |requirement: &Requirement| match requirement {
        Requirement::Fence => true,
        Requirement::Full => mode == Mode::Full,
        Requirement::Limits => none_weaker(&|group| group == Group::Limits),
    };
    let is_enough = if required.is_empty() {
        none_weaker(&|_| true)
    } else {
        required.iter().all(meets)
    };
    if is_enough { 0 } else { STATUS_WEAKER }
}

fn print_profile(output: &Output) -> Result<u8, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new("the path of this program is not known").because(error))?;
    let profile = apparmor::profile(&program).map_err(|why| {
        Failure::new("no profile can be written for this program")
            .because(why)
            .advise("have it where its path is plain, as in /usr/local/bin/atoll")
    })?;
    output.result(&profile);
    if output.is_terminal {
        output.say(&format!(
            "\nAs root: {}\n",
            apparmor::installation(&program)
        ));
    }
    Ok(0)
}
