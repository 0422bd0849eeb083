//! The programs of a sandbox: started, followed, steered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::PriorAnswer;
use atoll_model::ServedExec;
use serde_json::json;

use super::approving::{Question, advised};
use super::callers::shown_to;
use super::completing::completed;
use super::lifecycle::Lifecycle;
use super::living::Living;
use super::process::{NotStarted, Place, Process, most_kib};
use super::shares::Of;
use super::window::{Next, Reading};
use super::work::Admitted;
use super::{Answer, Answered, Worker, unanswered};
use crate::line::{Frame, Reader, Writer};
use crate::protocol::{
    End, Kind, ProcessAsk, ProcessFacts, Refusal, Request, StartAsk, StartedFacts,
};

/// The time for which a program's output waits for the first who reads it.
const HELD: Duration = Duration::from_secs(5);
/// The time in which a limit that has ended a program is told of, and that signal.
const LIMIT_TOLD: Duration = Duration::from_millis(150);
const SIGKILL: u8 = 9;
/// The time between two looks whether somebody does.
const HELD_LOOK: Duration = Duration::from_millis(20);

impl Worker {
    /// Carries out a request about programs.
    pub(super) async fn run(
        self: &Arc<Self>,
        request: Admitted<'_>,
        ask: ProcessAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let living = request.living;
        match ask {
            ProcessAsk::Start(ask) => {
                let (process, reading) = self.begin(&request, &ask.0).await?;
                Ok(follow(&ask, living, &process, reading, reader, writer).await)
            }
            ProcessAsk::Launch(ask) => {
                let (process, reading) = self.begin(&request, &ask.0).await?;
                let started = started(&process, &reading);
                tokio::spawn(hold(reading));
                ask.answer(started)
            }
            ProcessAsk::Attach(ask) => {
                let process = living.process(&ask.process)?;
                let reading = process.window.read(ask.from);
                Ok(follow(&ask, living, &process, reading, reader, writer).await)
            }
            ProcessAsk::ListProcesses(ask) => {
                let all = processes(living);
                ask.answer(match &request.caller {
                    Some(caller) => shown_to(caller, all),
                    None => all,
                })
            }
            ProcessAsk::Input(ask) => {
                ask.answer(pass_input(&*living.process(&ask.process)?, reader).await?)
            }
            ProcessAsk::CloseInput(ask) => {
                ask.answer(living.process(&ask.process)?.close_input().await?)
            }
            ProcessAsk::Signal(ask) => {
                let process = living.process(&ask.process)?;
                if process.window.over().is_some() {
                    return Err(Refusal::new(Kind::NotFound, "the program has ended"));
                }
                process.signal(ask.number);
                ask.answer(())
            }
            ProcessAsk::Resize(ask) => {
                living.process(&ask.process)?.resize(ask.terminal);
                ask.answer(())
            }
        }
    }

    /// Starts a program, once for each name of a request.
    async fn begin(
        self: &Arc<Self>,
        request: &Admitted<'_>,
        ask: &StartAsk,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        let (living, ask, by) = (request.living, ask.clone(), request.by.clone());
        match &request.once {
            None => self.start(living, ask, by).await,
            Some(once) => self.start_once(living, once, ask, by).await,
        }
    }

    /// Starts a program, if one more can be supervised, and once an approver has agreed where
    /// policies ask about it.
    pub(super) async fn start(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: StartAsk,
        by: ServedExec,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        let mut by = by;
        let ask = completed(living, ask, &mut by).await?;
        let sandbox = &living.sandbox;
        let place = self.place(&living.spec.tenant, &ask)?;
        let nobody = PriorAnswer::Nobody;
        let asked = match Process::start(sandbox, ask.clone(), by.clone(), nobody, place).await {
            Ok((process, reading)) => return Ok(kept(living, process, reading)),
            Err(NotStarted::Refused(refusal)) => return Err(refusal),
            Err(NotStarted::NeedsApproval(asked)) => asked,
        };
        let question = Question {
            action: "exec",
            sandbox: living.spec.id.clone(),
            run: Some(sandbox.run().clone()),
            caller: by.caller.clone(),
            shown: json!({
                "command": ask.command,
                "directory": ask.directory,
                "terminal": ask.terminal.is_some(),
                "variables": ask.environment.keys().collect::<Vec<_>>(),
            }),
            asked,
        };
        let answer = tokio::select! {
            answer = self.ask_approver(&living.spec.tenant, question) => answer?,
            state = living.life.stopped() => {
                let what = format!("sandbox {} has ended: {state}", living.spec.id);
                return Err(Refusal::new(Kind::NoSandbox, what));
            }
        };
        let place = self.place(&living.spec.tenant, &ask)?;
        match Process::start(sandbox, ask, by, answer.clone(), place).await {
            Ok((process, reading)) => Ok(kept(living, process, reading)),
            Err(NotStarted::Refused(refusal)) => Err(advised(&answer, refusal)),
            Err(NotStarted::NeedsApproval(_)) => Err(unanswered()),
        }
    }

    /// Takes the shares of a program, if its tenant may have one more.
    pub(super) fn place(&self, tenant: &str, ask: &StartAsk) -> Result<Place, Refusal> {
        let mut running = vec![self.shares.take(Of::Programs, tenant, 1)?];
        if ask.terminal.is_some() {
            running.push(self.shares.take(Of::Terminals, tenant, 1)?);
        }
        let kept = self.shares.take(Of::Memory, tenant, most_kib(ask))?;
        Ok(Place { running, kept })
    }
}

fn kept(living: &Arc<Living>, process: Arc<Process>, reading: Reading) -> (Arc<Process>, Reading) {
    living.keep(&process);
    (process, reading)
}

fn processes(living: &Living) -> Vec<ProcessFacts> {
    let processes = living.processes();
    let running = processes.iter().filter(|one| one.window.over().is_none());
    running
        .map(|process| ProcessFacts {
            pid: process.pid(),
            started: process.asked.clone(),
        })
        .collect()
}

/// Sends what a program writes, until its end or the reader's.
async fn follow(
    ask: &impl Request<Reply = StartedFacts, Then = End>,
    living: &Living,
    process: &Process,
    mut reading: Reading,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Answered {
    let follow = async {
        writer.reply(ask, started(process, &reading)).await?;
        loop {
            let next = tokio::select! {
                biased;
                next = reading.next() => next,
                // Whoever has asked says nothing more, or is gone.
                _ = reader.next::<()>() => return Ok(()),
                // It writes nothing more for now.
                state = living.life.wait(Lifecycle::keeps_memory) => {
                    return writer.then(ask, End::Gone(state.to_string())).await;
                }
            };
            match next {
                Next::Content(stream, content) => writer.content(stream, &content).await?,
                Next::End(end) => {
                    if end == End::Signalled(SIGKILL) {
                        // A limit ends programs first, and is told of just after that.
                        let _ = tokio::time::timeout(LIMIT_TOLD, living.life.stopped()).await;
                    }
                    let state = living.life.state();
                    let end = match end {
                        End::Exited(_) | End::Signalled(_) | End::Gone(_)
                            if !state.is_running() =>
                        {
                            End::Gone(state.to_string())
                        }
                        end => end,
                    };
                    return writer.then(ask, end).await;
                }
            }
        }
    };
    Answered::Written(follow.await)
}

fn started(process: &Process, reading: &Reading) -> StartedFacts {
    StartedFacts {
        pid: process.pid(),
        lost: reading.lost,
        at: reading.at,
    }
}

/// Keeps the output of a program that was only started, until whoever follows it has come, or does
/// not.
async fn hold(reading: Reading) {
    let until = Instant::now() + HELD;
    while Instant::now() < until && reading.is_alone() {
        tokio::time::sleep(HELD_LOOK).await;
    }
}

/// Writes the frames that come to a program's input.
async fn pass_input(process: &Process, reader: &mut Reader) -> Result<(), Refusal> {
    loop {
        match reader.next::<()>().await {
            Ok(Some(Frame::Content(_, content))) => process.write(&content).await?,
            Ok(Some(_)) | Ok(None) | Err(_) => return Ok(()),
        }
    }
}
