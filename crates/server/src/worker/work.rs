//! The requests of one sandbox.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use atoll_store::Scope;
use serde_json::json;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::name;
use super::answers::unanswered;
use super::caller::Caller;
use super::files::{self, Watching};
use super::lifecycle::{Lifecycle, Reason};
use super::living::Living;
use super::paused::Paused;
use super::recorded;
use super::room::For;
use super::running::Admitted;
use super::snapshots::{Forked, Source};
use super::{Worker, making};
use crate::line::{Reader, Writer};
use crate::protocol::{CreateAsk, FileAsk, InAsk, Kind, LifeAsk, Refusal, Watch};
use crate::protocol::{CreatedFacts, Credential, Fork, Forks, MadeSnapshot};
use crate::ready::watched;

impl Worker {
    /// Carries out a request of a sandbox that the caller may use.
    pub(super) async fn work(
        self: &Arc<Self>,
        request: Admitted<'_>,
        ask: InAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let living = request.living;
        match ask {
            InAsk::Alive(ask) => ask.answer(()),
            InAsk::Measure(ask) => ask.answer(making::measure(living).await?),
            InAsk::ListPorts(ask) => ask.answer(self.sandboxes.ports(living).await?),
            InAsk::OpenPort(ask) => {
                let (port, opened) = self.sandboxes.programs.connect(living, ask.port).await?;
                ask.join(opened, port)
            }
            InAsk::Life(ask) => self.live(request, ask).await,
            InAsk::Process(ask) => {
                self.sandboxes
                    .programs
                    .run(request, ask, reader, writer)
                    .await
            }
            InAsk::File(ask) => self.file(living, ask, reader, writer).await,
        }
    }

    /// Carries out a request about the life of a sandbox.
    async fn live(
        self: &Arc<Self>,
        request: Admitted<'_>,
        ask: LifeAsk,
    ) -> Result<Answered, Refusal> {
        let Admitted {
            living, caller, by, ..
        } = request;
        let unknown = || Refusal::new(Kind::Unauthenticated, "nobody is known to ask this");
        let caller = caller.ok_or_else(unknown)?;
        let (sandboxes, snapshots) = (&self.sandboxes, &self.snapshots);
        match ask {
            LifeAsk::GetSandbox(ask) => ask.answer(living.facts()),
            LifeAsk::Connect(ask) => {
                if let Some(seconds) = ask.timeout_s {
                    self.sandboxes.prolong(living, seconds, true)?;
                }
                ask.answer(living.described_to(&caller.scopes))
            }
            LifeAsk::Kill(_) if living.life.is(Lifecycle::is_pause) => {
                let what = format!("sandbox {} is just being paused", living.spec.id);
                Err(Refusal::new(Kind::Exists, what).advise("end it again"))
            }
            LifeAsk::Kill(ask) => {
                self.sandboxes.end(living, Reason::Caller).await;
                ask.answer(())
            }
            LifeAsk::Pause(ask) => ask.answer(self.sandboxes.pause(living, ask.memory, by).await?),
            LifeAsk::Snapshot(ask) => {
                let name = ask.name.clone();
                ask.answer(snapshots.snapshot(Source::Living(living), name).await?)
            }
            LifeAsk::Fork(ask) => {
                let of = CreateAsk {
                    timeout_s: ask.timeout_s.or(living.spec.ask.timeout_s),
                    ..self.sandboxes.record_ask(living)
                };
                let of = Forked::new(&living.spec.shipped, of, ask.count)?;
                ask.answer(snapshots.fork(Source::Living(living), of, &caller).await?)
            }
            LifeAsk::RollBack(ask) => {
                let again = sandboxes.roll_back(living, &caller, &ask.snapshot);
                let again = again.await?;
                ask.answer(again.described_to(&caller.scopes))
            }
            LifeAsk::SetTimeout(ask) => {
                match ask.timeout_s {
                    0 => drop(living.live_for(Duration::ZERO, ask.extends)),
                    seconds => self.sandboxes.prolong(living, seconds, ask.extends)?,
                }
                ask.answer(())
            }
            LifeAsk::LinkPort(ask) => ask.answer(self.callers.link(living, &ask)?),
            LifeAsk::SetNetwork(ask) => {
                ask.answer(sandboxes.set_network(living, ask.0.clone(), by).await?)
            }
            LifeAsk::SetSizes(ask) => ask.answer(sandboxes.set_sizes(living, ask.0, by).await?),
            LifeAsk::Decide(ask) => ask.answer(recorded::decide(living, &ask, by).await?),
        }
    }

    /// Carries out a request about files.
    async fn file(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: FileAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let files = &living.files;
        match ask {
            FileAsk::Stat(ask) => ask.answer(files.stat(&ask.path).await?),
            FileAsk::ListDirectory(ask) => ask.answer(files.list(&ask.path, ask.depth).await?),
            FileAsk::MakeDirectory(ask) => ask.answer(files.make_directory(&ask.path).await?),
            FileAsk::Move(ask) => ask.answer(files.rename(&ask.from, &ask.to).await?),
            FileAsk::Remove(ask) => ask.answer(files.remove(&ask.path).await?),
            FileAsk::Read(ask) => files.read(&ask, writer).await.map(Answered::Written),
            FileAsk::Write(ask) => {
                self.server.room.check(For::File)?;
                tokio::select! {
                    written = files.write(&ask, reader, writer) => ask.close(written?),
                    refusal = self.sandboxes.no_more(living) => Err(refusal),
                }
            }
            FileAsk::Watch(ask) => {
                let watch = files.watch(&ask.path, ask.recursive).await?;
                let told = tell_changes(&ask, watch, reader, writer).await;
                Ok(Answered::Written(told))
            }
            FileAsk::MakeWatcher(ask) => {
                let watch = files.watch(&ask.path, ask.recursive).await?;
                let name = name(16)?;
                living.keep_watcher(&name, watch)?;
                ask.answer(name)
            }
            FileAsk::ReadWatcher(ask) => {
                let watch = living.watcher(&ask.watcher)?;
                let changes = files::changes(&watch, None).await;
                ask.answer(changes.map_err(|_| unanswered())?)
            }
            FileAsk::RemoveWatcher(ask) => ask.answer(living.remove_watcher(&ask.watcher)?),
        }
    }
}

/// Tells of changes in a directory, until the connection is closed.
async fn tell_changes(
    ask: &Watch,
    watch: Watching,
    reader: &mut Reader,
    writer: &mut Writer,
) -> io::Result<()> {
    let events = watched(watch.descriptor().try_clone()?)?;
    let watch = Arc::new(watch);
    writer.reply(ask, ()).await?;
    loop {
        let changes = tokio::select! {
            changes = files::changes(&watch, Some(&events)) => changes?,
            _ = reader.next::<()>() => return Ok(()),
        };
        if !changes.is_empty() {
            writer.then(ask, changes).await?;
        }
    }
}

impl Worker {
    /// Carries out a request of a paused sandbox; `None` if it has gone on, and the request is one of
    /// a living sandbox.
    pub(super) async fn of_paused(
        self: &Arc<Self>,
        paused: &Arc<Paused>,
        credential: &Credential,
        ask: &InAsk,
        trace: Option<&String>,
    ) -> Result<Option<Answered>, Refusal> {
        let caller = self.callers.waking(paused, credential, ask).await?;
        let caller = Caller {
            trace: trace.cloned(),
            ..caller
        };
        let answered = match ask {
            InAsk::Life(LifeAsk::GetSandbox(ask)) => ask.answer(paused.facts()),
            InAsk::Life(LifeAsk::Kill(ask)) => {
                let why = "a caller has ended it while it was paused";
                ask.answer(self.sandboxes.end_paused(paused, why).await?)
            }
            InAsk::Life(LifeAsk::Pause(_)) => {
                let what = format!("sandbox {} is paused already", paused.id);
                Err(Refusal::new(Kind::Exists, what))
            }
            InAsk::Life(LifeAsk::Connect(ask)) => {
                let living = self
                    .sandboxes
                    .resume(paused, &caller, ask.timeout_s)
                    .await?;
                ask.answer(CreatedFacts {
                    resumed: true,
                    ..living.described_to(&caller.scopes)
                })
            }
            InAsk::Life(LifeAsk::Fork(ask)) => ask.answer(fork(self, paused, &caller, ask).await?),
            InAsk::Life(LifeAsk::Snapshot(ask)) => {
                ask.answer(snapshot(self, paused, ask.name.clone()).await?)
            }
            InAsk::Alive(_) => Err(paused.gone()),
            InAsk::Life(
                LifeAsk::RollBack(_)
                | LifeAsk::SetTimeout(_)
                | LifeAsk::LinkPort(_)
                | LifeAsk::SetNetwork(_)
                | LifeAsk::SetSizes(_)
                | LifeAsk::Decide(_),
            )
            | InAsk::Measure(_)
            | InAsk::ListPorts(_)
            | InAsk::OpenPort(_)
            | InAsk::Process(_)
            | InAsk::File(_) => {
                if !(paused.record.ask.auto_resume && caller.scopes.has(Scope::Create)) {
                    return Err(paused.gone());
                }
                self.sandboxes.resume(paused, &caller, None).await?;
                return Ok(None);
            }
        };
        answered.map(Some)
    }
}

/// Makes others that begin with the files of a paused sandbox, which stays so.
async fn fork(
    worker: &Arc<Worker>,
    paused: &Arc<Paused>,
    caller: &Caller,
    ask: &Fork,
) -> Result<Forks, Refusal> {
    let _turn = paused.stays().await?;
    let asleep = paused.sleeper();
    let of = CreateAsk {
        timeout_s: ask.timeout_s.or(paused.record.ask.timeout_s),
        ..paused.record.ask.clone()
    };
    let forked = Forked::new(paused.shipped(), of, ask.count)?;
    worker
        .snapshots
        .fork(source(paused, asleep.as_ref()), forked, caller)
        .await
}

/// Copies the files of a paused sandbox, which stays so.
async fn snapshot(
    worker: &Arc<Worker>,
    paused: &Arc<Paused>,
    name: Option<String>,
) -> Result<MadeSnapshot, Refusal> {
    let _turn = paused.stays().await?;
    let asleep = paused.sleeper();
    let made = worker
        .snapshots
        .snapshot(source(paused, asleep.as_ref()), name)
        .await?;
    let facts = json!({ "why": "a caller has made a snapshot" });
    worker
        .webhooks
        .note(&paused.tenant, &paused.id, "checkpointed", &facts);
    Ok(made)
}

/// Returns what others begin with: of one that stands still as it is, with a copy.
fn source<'a>(paused: &'a Arc<Paused>, asleep: Option<&'a Arc<Living>>) -> Source<'a> {
    asleep.map_or(Source::Paused(paused), Source::Living)
}
