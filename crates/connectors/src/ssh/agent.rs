//! The agent in the sandbox, as programs see it: its connections and answers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::{
    Flow, FlowKind, HostPart, SIGNING_BYTES_MAX, Signed, Signing, SshGrant, SshKeys,
};
use atoll_sys::{descriptor, socket};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::{UnixDatagram, UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ssh::filter::{self, GrantedKeys, Session, Verdict};
use crate::ssh::{decoded, wire::Writer};
use atoll_egress::Egress;
use atoll_egress::connector::{AgentConnector, AgentInputs, FlowOutcome, Task};

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(10);
/// The most connections at once.
const CONNECTIONS_MAX: usize = 64;
/// The longest request, bytes: the longest that is granted has three keys and a signature.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// The longest time a signature may take: the person's agent may ask, or wait for a touch.
const PATIENCE: Duration = Duration::from_secs(150);

/// The connector of SSH: the agent in the sandbox.
#[derive(Debug, Default)]
pub struct SshAgent;

impl AgentConnector for SshAgent {
    fn serve(&self, egress: &Arc<Egress>, inputs: AgentInputs) -> io::Result<Task<'static>> {
        let agent = Agent::new(egress.ssh_grants(), &inputs.keys, inputs.signer)?;
        descriptor::never_block(inputs.listener.as_fd())?;
        let listener = UnixListener::from_std(inputs.listener.into())?;
        let egress = Arc::clone(egress);
        Ok(Box::pin(accept(egress, Arc::new(agent), listener)))
    }
}

/// The granted keys, and the channel to the signer.
#[derive(Debug)]
struct Agent {
    granted: Vec<GrantedKeys>,
    /// A SOCK_SEQPACKET socket: the runtime treats it as one of datagrams. `None` once an answer
    /// has not come in time: the next one could be taken for it.
    signer: Mutex<Option<UnixDatagram>>,
}

impl Agent {
    /// Wraps the channel to the signer.
    fn new(grants: &[SshGrant], keys: &[SshKeys], signer: OwnedFd) -> io::Result<Self> {
        descriptor::never_block(signer.as_fd())?;
        let granted = filter::granted(grants, keys);
        Ok(Self {
            granted: granted.ok_or(io::ErrorKind::InvalidData)?,
            signer: Mutex::new(Some(UnixDatagram::from_std(signer.into())?)),
        })
    }

    async fn signature(&self, signing: &Signing) -> Result<Vec<u8>, String> {
        let gone = || "who signs has ended".to_owned();
        let mut channel = self.signer.lock().await;
        let signer = channel.take().ok_or_else(gone)?;
        let asked = timeout(PATIENCE, ask(&signer, signing)).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => return Err(gone()),
            Err(_) => return Err("no signature came in time".to_owned()),
        };
        *channel = Some(signer);
        match answer {
            Signed::Signature(signature) => decoded(&signature).ok_or_else(gone),
            Signed::Nothing(why) => Err(why),
        }
    }
}

async fn ask(signer: &UnixDatagram, signing: &Signing) -> io::Result<Signed> {
    let message = serde_json::to_vec(signing)?;
    let send = || socket::send(signer.as_fd(), &message, &[]);
    signer.async_io(Interest::WRITABLE, send).await?;
    let mut answer = vec![0_u8; SIGNING_BYTES_MAX];
    let receive = || socket::receive(signer.as_fd(), &mut answer);
    let (got, _) = signer.async_io(Interest::READABLE, receive).await?;
    Ok(serde_json::from_slice(
        answer.get(..got).unwrap_or_default(),
    )?)
}

/// Accepts connections until the run ends.
async fn accept(egress: Arc<Egress>, agent: Arc<Agent>, listener: UnixListener) {
    let mut served = JoinSet::new();
    loop {
        while served.try_join_next().is_some() {}
        if served.len() >= CONNECTIONS_MAX {
            served.join_next().await;
            continue;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = egress.run_ended() => return,
        };
        match accepted {
            Ok((program, _)) => {
                let (egress, agent) = (Arc::clone(&egress), Arc::clone(&agent));
                served.spawn(async move { serve(&egress, &agent, program).await });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves one connection, until its other end closes it or sends what is no request.
async fn serve(egress: &Egress, agent: &Agent, program: UnixStream) -> Option<()> {
    let mut session = Session::default();
    let mut program = BufReader::new(program);
    loop {
        let length = usize::try_from(program.read_u32().await.ok()?).ok()?;
        if !(1..=REQUEST_BYTES_MAX).contains(&length) {
            return None;
        }
        let mut message = vec![0; length];
        program.read_exact(&mut message).await.ok()?;
        let answer = match session.judge(&agent.granted, &message) {
            Verdict::Answer(answer) => answer,
            Verdict::Refuse { granted, why } => {
                let granted = granted.and_then(|at| agent.granted.get(at));
                egress.refuse(refused_flow(granted), why.to_owned());
                filter::failure()
            }
            Verdict::Sign { granted, signing } => {
                let granted = agent.granted.get(granted)?;
                sign(egress, agent, &mut program, granted, &signing).await
            }
        };
        let answer = Writer::new().string(&answer).done();
        program.write_all(&answer).await.ok()?;
    }
}

/// Has a signature recorded, then made.
async fn sign(
    egress: &Egress,
    agent: &Agent,
    program: &mut BufReader<UnixStream>,
    granted: &GrantedKeys,
    signing: &Signing,
) -> Vec<u8> {
    let kind = match filter::is_for_commit(signing) {
        true => FlowKind::CommitSignature,
        false => FlowKind::SshLogin,
    };
    let grant = &granted.grant;
    let mut flow = flow(kind, Some(granted));
    flow.credentials.push(grant.name.clone());
    let approval = egress.consent_to_signature(&mut flow, signing, is_gone(program));
    let approval = match approval.await {
        Ok(approval) => approval,
        Err(denied) => {
            // Nothing of it was used.
            flow.credentials.clear();
            egress.refuse(flow, denied.why);
            return filter::failure();
        }
    };
    flow.rule = Some(format!("{grant} ({})", grant.origin));
    if egress.touch(&flow).await.is_err() {
        return filter::failure();
    }
    let Ok(opened) = egress.open(flow, approval).await else {
        return filter::failure();
    };
    match agent.signature(signing).await {
        Ok(signature) => {
            egress.close(&opened, FlowOutcome::default());
            filter::response(&signature)
        }
        Err(why) => {
            let nothing = FlowOutcome::nothing(why).at_last(true);
            egress.close(&opened, nothing);
            filter::failure()
        }
    }
}

/// Returns once a program does not wait for its answer any more. One that has sent the next request
/// still waits.
async fn is_gone(program: &mut BufReader<UnixStream>) {
    let is_there = matches!(program.fill_buf().await, Ok(read) if !read.is_empty());
    if is_there {
        std::future::pending::<()>().await;
    }
}

/// Returns the record of a refused request. It carries no placeholder, so no credential is named.
fn refused_flow(granted: Option<&GrantedKeys>) -> Flow {
    flow(FlowKind::SshLogin, granted)
}

fn flow(kind: FlowKind, granted: Option<&GrantedKeys>) -> Flow {
    let host = |one: &GrantedKeys| match &one.grant.host {
        HostPart::Name(name) => name.to_string(),
        HostPart::Address(address) => address.to_string(),
    };
    Flow {
        kind,
        host: granted.map_or_else(|| "ssh".to_owned(), host),
        address: None,
        via: None,
        port: granted.map_or(0, |one| one.grant.port),
        rule: None,
        request: None,
        limit: None,
        credentials: Vec::new(),
        login: None,
        policies: 0,
    }
}
