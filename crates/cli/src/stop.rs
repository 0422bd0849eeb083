//! `atoll stop`: a person ends runs that go on.

use atoll_engine::failure::Failure;
use atoll_engine::stop::{self, Person, Stopping};

use crate::arguments::StopArguments;
use crate::finding::tell;
use crate::output::Output;

/// Ends runs that are named, those of a session or an agent, or all.
///
/// # Errors
/// When there is no such run, or one does not answer.
pub fn stop(arguments: &StopArguments, output: &Output) -> Result<u8, Failure> {
    let what = match (&arguments.session, &arguments.agent, &*arguments.runs) {
        (Some(session), _, _) => Stopping::Session(session),
        (None, Some(agent), _) => Stopping::Agent(agent),
        (None, None, []) if arguments.all => Stopping::All,
        (None, None, []) => {
            return Err(Failure::new("no run is named")
                .because("atoll stop ends what you name, and nothing by itself")
                .advise("atoll stop last ends the run started last, atoll stop RUN RUN several")
                .advise("atoll stop --session NAME ends the runs of a session")
                .advise("atoll stop --agent NAME ends the runs of a profile")
                .advise("atoll stop --all ends all that go on"));
        }
        (None, None, runs) => Stopping::Runs(runs),
    };
    let person = Person {
        notices: output,
        taking: &tell,
    };
    stop::stop(what, person).map(|()| 0)
}
