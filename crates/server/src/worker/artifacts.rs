//! Artifacts, for callers: each of their own tenant. Who makes sandboxes sees what these have put
//! out, and gets what was promoted; approvers decide, and look before.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use atoll_data::served::{ArtifactDecided, ServedArtifacts};
use atoll_data::{Scanned, Verdict};
use atoll_engine::failure::Failure;
use atoll_store::{Artifact, ArtifactFilter, ArtifactState, Role};
use bytes::Bytes;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::spawn_blocking;

use super::answers::{Answer, Answered, fault, refusal};
use super::caller::Caller;
use super::server::Server;
use crate::line::{Stream, Writer};
use crate::protocol::{
    ArtifactFacts, ArtifactsAsk, DecideArtifact, FindingFacts, Kind, ReadArtifact, Refusal,
    ScanFacts,
};

/// The blocks that are read ahead of who takes them.
const BLOCKS_AHEAD: usize = 2;
/// The time between two looks at what was put away.
const ATTENDED_EVERY: Duration = Duration::from_secs(1);
/// The time to the next look where one has failed.
const ATTENDED_AGAIN: Duration = Duration::from_secs(60);
/// The longest reason, bytes.
const WHY_BYTES_MAX: usize = 4 << 10;

/// The artifacts of a server.
pub(super) struct Artifacts {
    server: Arc<Server>,
    scans: tokio::sync::Mutex<()>,
}

impl Artifacts {
    pub(super) fn new(server: &Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            scans: tokio::sync::Mutex::default(),
        })
    }

    /// Carries out a request about artifacts.
    pub(super) async fn run(
        self: &Arc<Self>,
        caller: &Caller,
        ask: ArtifactsAsk,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        check(caller, &ask)?;
        match ask {
            ArtifactsAsk::ListArtifacts(ask) => {
                let state = ask.state.as_deref().map(state).transpose()?;
                let filter = ArtifactFilter {
                    tenant: Some(caller.tenant.clone()),
                    run: None,
                    sandbox: ask.sandbox.clone(),
                    state,
                };
                let listed = self.with(move |own| {
                    let all = own.list(&filter)?;
                    all.iter().map(|one| facts(own, one)).collect()
                });
                ask.answer(listed.await?)
            }
            ArtifactsAsk::GetArtifact(ask) => {
                let artifact = self.one(caller, &ask.id).await?;
                let told = self.with(move |own| facts(own, &artifact));
                ask.answer(told.await?)
            }
            ArtifactsAsk::ScanArtifact(ask) => {
                let artifact = self.one(caller, &ask.id).await?;
                // One after the other: they are no sandboxes of a tenant's, and in no quota.
                let _alone = self.scans.lock().await;
                let told = self.with(move |own| {
                    own.scan(&artifact)?;
                    facts(own, &artifact)
                });
                ask.answer(told.await?)
            }
            ArtifactsAsk::GetStatement(ask) => {
                let artifact = self.one(caller, &ask.id).await?;
                let read = move |own: &ServedArtifacts<'_>| own.statement(&artifact);
                ask.answer(self.with(read).await?)
            }
            ArtifactsAsk::ReadArtifact(ask) => self.read(caller, &ask, writer).await,
            ArtifactsAsk::DecideArtifact(ask) => ask.answer(self.decide(caller, &ask).await?),
        }
    }

    async fn decide(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &DecideArtifact,
    ) -> Result<ArtifactFacts, Refusal> {
        if ask
            .why
            .as_ref()
            .is_some_and(|why| why.len() > WHY_BYTES_MAX)
        {
            let what = format!("a reason has {WHY_BYTES_MAX} bytes at most");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let artifact = self.one(caller, &ask.id).await?;
        if artifact.state != ArtifactState::Held {
            let what = format!("artifact {} is {} already", ask.id, artifact.state.name());
            return Err(Refusal::new(Kind::Exists, what));
        }
        let (caller, ask) = (caller.clone(), ask.clone());
        let decide = move |own: &ServedArtifacts<'_>| {
            let decided = ArtifactDecided {
                tenant: &caller.tenant,
                by: &caller.name,
                promotes: ask.promotes,
                why: ask.why.as_deref(),
            };
            let artifact = own.decide(&ask.id, &decided)?;
            facts(own, &artifact)
        };
        self.with(decide).await
    }

    /// Writes the content of an artifact that the caller may have. Where it turns out not to be
    /// whole, the answer has no end.
    async fn read(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &ReadArtifact,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let artifact = self.one(caller, &ask.id).await?;
        let decides = decides(caller.role);
        if artifact.state != ArtifactState::Promoted && !decides {
            let what = format!("artifact {} is {}", ask.id, artifact.state.name());
            let refused = Refusal::new(Kind::Forbidden, what);
            let advice = "an approver promotes it: POST /v1/artifacts/ID/promote";
            return Err(match artifact.state {
                ArtifactState::Held => refused.advise(advice),
                ArtifactState::Promoted | ArtifactState::Rejected => refused,
            });
        }
        let one = artifact.clone();
        let told = self.with(move |own| facts(own, &one)).await?;
        let (blocks, mut coming) = channel(BLOCKS_AHEAD);
        let (own, one) = (Arc::clone(self), artifact.clone());
        let reading = spawn_blocking(move || {
            let mut to = Blocks(blocks);
            ServedArtifacts(&own.server.engine).read(&one, &mut to)
        });
        let written = async {
            writer.reply(ask, told).await?;
            while let Some(block) = coming.recv().await {
                writer.content(Stream::Output, &block).await?;
            }
            match reading.await.map_err(io::Error::other)? {
                Ok(()) => writer.then(ask, ()).await,
                Err(failure) => Err(io::Error::other(failure)),
            }
        };
        Ok(Answered::Written(written.await))
    }

    /// Has what sandboxes have put out meet the rule of its profile, as it comes.
    pub(super) async fn attend_now_and_then(self: &Arc<Self>) {
        let mut last = None;
        loop {
            // Whatever is put away is a file there of its own.
            let now = ServedArtifacts(&self.server.engine).changed();
            if now != last {
                match self.with(|own| own.attend()).await {
                    Ok(()) => last = now,
                    Err(refusal) => {
                        eprintln!("atoll serve: artifacts wait unscanned: {}", refusal.what);
                        tokio::time::sleep(ATTENDED_AGAIN).await;
                    }
                }
            }
            tokio::time::sleep(ATTENDED_EVERY).await;
        }
    }

    async fn one(self: &Arc<Self>, caller: &Caller, id: &str) -> Result<Artifact, Refusal> {
        let (tenant, asked) = (caller.tenant.clone(), id.to_owned());
        let found = self.with(move |own| own.find(&tenant, &asked));
        let missing = || Refusal::new(Kind::NotFound, format!("there is no artifact {id:?}"));
        found.await?.ok_or_else(missing)
    }

    /// Does what waits for the disk in a thread of its own.
    async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&ServedArtifacts<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Refusal> {
        let own = Arc::clone(self);
        let done = spawn_blocking(move || work(&ServedArtifacts(&own.server.engine))).await;
        done.map_err(|error| fault(&error))?
            .map_err(|failure| refusal(&failure))
    }
}

/// Returns whether callers of a role decide about artifacts.
fn decides(role: Role) -> bool {
    matches!(role, Role::Administrator | Role::Approver)
}

/// Refuses what a caller of this role may not.
fn check(caller: &Caller, ask: &ArtifactsAsk) -> Result<(), Refusal> {
    let role = caller.role;
    let may = match ask {
        ArtifactsAsk::DecideArtifact(_) => decides(role),
        ArtifactsAsk::ReadArtifact(_) | ArtifactsAsk::ScanArtifact(_) => {
            decides(role) || role == Role::User
        }
        ArtifactsAsk::ListArtifacts(_)
        | ArtifactsAsk::GetArtifact(_)
        | ArtifactsAsk::GetStatement(_) => role != Role::Operator,
    };
    if may {
        return Ok(());
    }
    let what = format!("a key of the role {} may not do that", role.name());
    let refused = Refusal::new(Kind::Forbidden, what);
    Err(refused.advise("administrators and approvers decide about artifacts"))
}

fn state(name: &str) -> Result<ArtifactState, Refusal> {
    ArtifactState::named(name).ok_or_else(|| {
        let all = ArtifactState::ALL.map(ArtifactState::name).join(", ");
        let what = format!("there is no state {name:?}; there are {all}");
        Refusal::new(Kind::Invalid, what)
    })
}

fn facts(own: &ServedArtifacts<'_>, artifact: &Artifact) -> Result<ArtifactFacts, Failure> {
    let (origin, decision) = (&artifact.origin, artifact.decision.as_ref());
    let scans = own.evidence(artifact)?;
    Ok(ArtifactFacts {
        scans: scans.into_iter().map(scan_facts).collect(),
        id: artifact.id.clone(),
        name: String::from_utf8_lossy(&artifact.name).into_owned(),
        size: artifact.bytes,
        media: artifact.media.clone(),
        sha256: artifact.sha256.clone(),
        blake3: artifact.blake3.clone(),
        state: artifact.state.name().to_owned(),
        destroyed: artifact.destroyed,
        decided_by: decision.map(|decision| decision.by.clone()),
        decided_ms: decision.map(|decision| decision.at_ms),
        why: decision.and_then(|decision| decision.why.clone()),
        sandbox: origin.sandbox.clone(),
        run: origin.run.to_string(),
        interrupted: origin.interrupted,
        created_ms: artifact.at_ms,
        ledger_entry: artifact.entry,
    })
}

fn scan_facts(scanned: Scanned) -> ScanFacts {
    let (verdict, findings, why) = match scanned.verdict {
        Verdict::Clean => ("clean", Vec::new(), None),
        Verdict::Found(findings) => ("found", findings, None),
        Verdict::Failed(why) => ("failed", Vec::new(), Some(why)),
    };
    let findings = findings.into_iter().map(|one| FindingFacts {
        rule: one.rule,
        place: one.place,
        confidence: one.confidence,
    });
    ScanFacts {
        scanner: scanned.scanner.clone(),
        version: scanned.version,
        at_ms: scanned.at_ms,
        verdict: verdict.to_owned(),
        findings: findings.collect(),
        why,
    }
}

/// Sends what is written on, a block at a time.
struct Blocks(Sender<Bytes>);

impl Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
