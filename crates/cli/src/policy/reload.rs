//! `atoll policy reload`: runs that go on decide by the policies that there are now.

use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use atoll_cedar::ASKED_BYTES_MAX;
use atoll_engine::configuration::{Places, PolicyFiles};
use atoll_engine::control::{
    BEGINNING, BEGINNING_PAUSE, Named, directory, going_on, none_goes_on, unanswered,
};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::finding::sessions;
use atoll_engine::printable::printable;
use atoll_engine::prover::Programs;
use atoll_engine::supervision::{Answer, ControlError, Question, Reloaded, Runs, Versions, ask};
use atoll_ledger::live_runs;
use atoll_model::RunId;
use atoll_policy::{Compared, ReloadError, Rules};
use atoll_sandbox::Declined;

use super::widening::{Widens, widens};
use crate::advice;
use crate::arguments::ReloadPolicyArguments;
use crate::output::Output;
use crate::render::short_version;

/// The most that is read of two versions, bytes: as much as a prover reads.
const COMPARED_BYTES_MAX: usize = ASKED_BYTES_MAX;

/// Has a run, those of a session, or all of them reread their policies.
///
/// # Errors
/// When there is no such run, or one keeps the policies that it has: the others reread theirs.
pub(super) fn reload(arguments: &ReloadPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let reloading = Reloading {
        programs: Programs::find(),
        arguments,
        output,
    };
    let runs = match (&arguments.run, &arguments.session) {
        (Some(text), _) => return reloading.named(text),
        (None, Some(session)) => {
            let state = Places::read()?.read_state()?;
            sessions::running(&state, session)?.1
        }
        (None, None) if arguments.all => {
            let places = Places::read()?;
            match places.state.exists() {
                true => live_runs(&places.read_state()?).doing("the runs cannot be listed")?,
                false => Vec::new(),
            }
        }
        (None, None) => {
            return Err(Failure::new("no run is named")
                .because("policies are read anew by the runs that you name")
                .advise("atoll policy reload last is about the run started last")
                .advise("atoll policy reload --all is about all that go on"));
        }
    };
    if runs.is_empty() {
        output.say("No run goes on.\n");
        return Ok(0);
    }
    let mut failed = None;
    for run in &runs {
        let asked = patiently(|directory| {
            let answer = ask(directory, run, &Question::Compare { at: 0 });
            Ok((run.clone(), answer))
        });
        let reloaded = match asked {
            // It has ended meanwhile.
            Ok((_, Err(ControlError::Gone))) if is_over(run) => continue,
            asked => asked.and_then(|(run, answer)| reloading.one(&run, answer)),
        };
        if let Err(failure) = reloaded {
            keep(&mut failed, failure, output);
        }
    }
    failed.map_or(Ok(0), Err)
}

fn is_over(run: &RunId) -> bool {
    let alive = || live_runs(&Places::read().ok()?.read_state().ok()?).ok();
    alive().is_some_and(|alive| !alive.contains(run))
}

/// Keeps the first failure, which ends the command, and warns of the others.
fn keep(failed: &mut Option<Failure>, failure: Failure, output: &Output) {
    match failed {
        None => *failed = Some(failure),
        Some(_) => output.warn(&match failure.why {
            Some(why) => format!("{}: {why}", failure.what),
            None => failure.what,
        }),
    }
}

/// The rereading of policies by runs, with the proof of whether more is allowed then.
struct Reloading<'a> {
    programs: Result<Programs, String>,
    arguments: &'a ReloadPolicyArguments,
    output: &'a Output,
}

impl Reloading<'_> {
    fn named(&self, text: &str) -> Result<u8, Failure> {
        let named = Named::read(text, &crate::finding::tell)?;
        let (run, answer) = patiently(|directory| {
            let run = going_on(directory, &named)?;
            let answer = ask(directory, &run, &Question::Compare { at: 0 });
            Ok((run, answer))
        })?;
        self.one(&run, answer).map(|()| 0)
    }

    /// Rereads the policies of one run; `begun` is the beginning of the prover's input for both
    /// versions.
    fn one(&self, run: &RunId, begun: Result<Answer, ControlError>) -> Result<(), Failure> {
        let directory = directory()?.ok_or_else(none_goes_on)?;
        let compared = match begun {
            // A mistake is the run's to tell, and to record.
            Ok(Answer::Refused(_)) => None,
            begun => {
                let is_needed = self.arguments.only_tightening || self.programs.is_ok();
                is_needed
                    .then(|| rest(&directory, run, begun))
                    .transpose()?
            }
        };
        let (versions, compared) = compared.unzip();
        if self.arguments.only_tightening
            && let Some(compared) = compared.clone()
        {
            self.proven(run, compared)?;
        }
        let only = versions.filter(|_| self.arguments.only_tightening);
        let reloaded = taken(run, ask(&directory, run, &Question::Reload { only }))?;
        tell(run, &reloaded, self.output);
        // A change that tightens does not wait for its proof.
        if let Some(compared) = compared.filter(|_| !self.arguments.only_tightening)
            && reloaded.from != reloaded.to
        {
            self.say_whether_wider(compared);
        }
        Ok(())
    }

    /// Fails unless it is proven that nothing more is allowed.
    fn proven(&self, run: &RunId, compared: Compared) -> Result<(), Failure> {
        let kept = Failure::new(format!("run {run} keeps the policies that it has"));
        match widens(&self.programs, compared, self.arguments.seconds) {
            Widens::No => Ok(()),
            Widens::Yes(lines) => Err(kept
                .because(format!(
                    "those that there are now allow more:\n{}",
                    printed(&lines.join("\n"))
                ))
                .advise("without --only-tightening they are reloaded all the same")),
            Widens::Unknown(why) => Err(kept
                .because(format!(
                    "whether those that there are now allow more is not known: {}",
                    printed(&why)
                ))
                .advise(match self.programs {
                    Ok(_) => "where time is what a proof lacks, --seconds gives it more",
                    Err(_) => "install cvc5, or whichever is missing, for a proof",
                })),
        }
    }

    fn say_whether_wider(&self, compared: Compared) {
        let told = match widens(&self.programs, compared, self.arguments.seconds) {
            Widens::No => {
                self.output
                    .say("It is proven that nothing more is allowed than before.\n");
                return;
            }
            Widens::Yes(lines) => format!("more is allowed than before:\n{}", lines.join("\n")),
            Widens::Unknown(why) => {
                format!("whether more is allowed than before is not known: {why}")
            }
        };
        self.output.warn(&printed(&told));
    }
}

/// Reads the rest of the prover's input for both versions, and the versions.
fn rest(
    directory: &Runs,
    run: &RunId,
    begun: Result<Answer, ControlError>,
) -> Result<(Versions, Compared), Failure> {
    let mut answer = begun;
    let (mut whole, mut before) = (String::new(), None);
    loop {
        let (versions, text, bytes) = match answer {
            Ok(Answer::Compared {
                versions,
                text,
                bytes,
            }) => (versions, text, bytes),
            other => return Err(taken(run, other).map_or_else(|failure| failure, |_| strange(run))),
        };
        whole.push_str(&text);
        let is_same = before.as_ref().is_none_or(|before| *before == versions);
        if !is_same || text.is_empty() || whole.len() > COMPARED_BYTES_MAX {
            return Err(strange(run));
        }
        if whole.len() >= bytes {
            let compared = serde_json::from_str(&whole).map_err(|_| strange(run))?;
            return Ok((versions, compared));
        }
        before = Some(versions);
        answer = ask(directory, run, &Question::Compare { at: whole.len() });
    }
}

fn strange(run: &RunId) -> Failure {
    unanswered(run, &ControlError::Strange)
}

type Asked = (RunId, Result<Answer, ControlError>);

/// Asks a run, also one that has only just begun and does not listen yet.
fn patiently(asking: impl Fn(&Runs) -> Result<Asked, Failure>) -> Result<Asked, Failure> {
    let until = Instant::now() + BEGINNING;
    loop {
        let asked = directory()?.ok_or_else(none_goes_on);
        match asked.and_then(|directory| asking(&directory)) {
            Ok((_, Err(ControlError::Gone))) | Err(_) if Instant::now() < until => {
                sleep(BEGINNING_PAUSE);
            }
            asked => return asked,
        }
    }
}

fn taken(run: &RunId, answer: Result<Answer, ControlError>) -> Result<Reloaded, Failure> {
    match answer {
        Ok(Answer::Reloaded(reloaded)) => Ok(reloaded),
        Ok(Answer::Refused(declined)) => {
            let failure = Failure::new(format!("run {run} keeps the policies that it has"))
                .because(printed(&declined.why));
            Err(failure.advise(printed(&declined.advice)))
        }
        Ok(
            Answer::Ports { .. }
            | Answer::Published(_)
            | Answer::Approvals { .. }
            | Answer::Approval(_)
            | Answer::Compared { .. }
            | Answer::GivenUp { .. }
            | Answer::Agreed(_)
            | Answer::Executing { .. }
            | Answer::Exec(_)
            | Answer::Denied(_)
            | Answer::NeedsApproval { .. }
            | Answer::Done {},
        ) => Err(unanswered(run, &ControlError::Strange)),
        Err(error) => Err(unanswered(run, &error)),
    }
}

/// Formats a text of several lines for a terminal.
fn printed(text: &str) -> String {
    let lines = text.lines().map(|line| printable(line.as_bytes()));
    lines.collect::<Vec<_>>().join("\n")
}

fn tell(run: &RunId, reloaded: &Reloaded, output: &Output) {
    let Reloaded { from, to, told } = reloaded;
    for line in told {
        output.warn(&printed(line));
    }
    let to = short_version(to);
    output.say(&match reloaded.from == reloaded.to {
        true => format!("{run}: nothing is different: {to} decides\n"),
        false => format!(
            "{run}: {to} decides from now on, no longer {}\n",
            short_version(from)
        ),
    });
}

/// Returns a function that rereads the policies of a run: the files that a run in this workspace
/// reads.
pub(crate) fn rereading<'a>(
    places: &'a Places,
    workspace: &'a Path,
) -> impl Fn(&Rules) -> Result<Rules, Declined> + 'a {
    |rules| {
        let files = PolicyFiles::read(places, Some(workspace)).map_err(|failure| Declined {
            why: match failure.why {
                Some(why) => format!("{}: {why}", failure.what),
                None => failure.what,
            },
            advice: "once that is repaired: atoll policy reload".to_owned(),
        })?;
        let reloaded = rules.reloaded(&files.sources()).map(|mut reloaded| {
            reloaded.take_signed(files.signed().cloned());
            reloaded
        });
        reloaded.map_err(|error| Declined {
            advice: match &error {
                ReloadError::Files(error) => advice::profile(error).to_owned(),
                ReloadError::Project { .. } => {
                    "look at it, then atoll trust, and reload once more; or start the run anew"
                        .to_owned()
                }
                ReloadError::Purpose { name } => {
                    format!("put {name}.purpose.cedar back, and reload once more")
                }
                ReloadError::Labels => "start the run anew".to_owned(),
            },
            why: error.to_string(),
        })
    }
}
