//! The interface of connectors: parts of the egress process that speak one foreign protocol.
//!
//! A connector is handed connections that the rules allow and whose logins Atoll injects. It
//! speaks the protocol; what it dials, whether a person is asked, which credential it may use and
//! what is recorded is decided here, by the methods of [`Egress`] below. It must record a flow
//! before its effect ([`Egress::open`]) and end when the run does ([`Egress::is_over`]).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use atoll_model::network::{
    CredentialName, Flow, HostPart, Look, NoConsent, PostgresAccess, Signing, SshGrant, SshKeys,
};
use rustls::ServerConfig;
use tokio_rustls::client::TlsStream;

pub use crate::control_channel::{FlowOutcome, OpenFlow};
pub use crate::destination::Destination;
pub use crate::dial::{Route, UpstreamStream};
pub use crate::limits::{BudgetShare, Direction, Excess, late, passed};
pub use crate::opening::StopReason;
pub use crate::origin_error::why_not;
pub use crate::program_stream::ProgramStream;
pub use crate::resolve::ResolveError;

use crate::Egress;
use crate::credentials::fetch;
use crate::inspect::{approval, misused};
use crate::policies::{ApprovalNeed, Forbidden, PolicySnapshot};
use crate::resolve::addresses;
use crate::secret::{Found, Masks, Placeholders, Secret};

/// The work of a connector.
pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The connectors of an egress process: without one for its protocol, a connection is refused.
#[derive(Default)]
pub struct Connectors {
    /// PostgreSQL, with an injected login.
    pub postgres: Option<Box<dyn LoginConnector>>,
    /// The SSH agent in the sandbox.
    pub ssh: Option<Box<dyn AgentConnector>>,
}

impl fmt::Debug for Connectors {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Connectors").finish_non_exhaustive()
    }
}

/// A protocol of connections whose login is injected.
pub trait LoginConnector: Send + Sync {
    /// Carries one connection that a rule allows from its arrival to its end.
    fn serve<'a>(
        &'a self,
        egress: &'a Arc<Egress>,
        program: ProgramStream,
        to: Destination,
        flow: Flow,
        part: Option<BudgetShare>,
    ) -> Task<'a>;
}

/// An agent in the sandbox for keys that sign elsewhere.
pub trait AgentConnector: Send + Sync {
    /// Begins to serve programs. Returns the work, which ends with the run.
    ///
    /// # Errors
    /// The kernel's, or keys that cannot be read.
    fn serve(&self, egress: &Arc<Egress>, inputs: AgentInputs) -> io::Result<Task<'static>>;
}

/// The inputs of an agent.
#[derive(Debug)]
pub struct AgentInputs {
    /// The keys.
    pub keys: Vec<SshKeys>,
    /// The channel to the signer process.
    pub signer: OwnedFd,
    /// The listener in the sandbox.
    pub listener: OwnedFd,
}

/// A denial: the reason for the record, the reason for the program, and a hint for it.
#[derive(Debug)]
pub struct Denied {
    /// The reason for the record.
    pub why: String,
    /// The reason for the program.
    pub shown: String,
    /// The hint; empty if there is none.
    pub hint: String,
}

impl From<Forbidden> for Denied {
    fn from(forbidden: Forbidden) -> Self {
        Self {
            why: forbidden.why,
            shown: forbidden.shown,
            hint: String::new(),
        }
    }
}

impl From<NoConsent> for Denied {
    fn from(why: NoConsent) -> Self {
        Self {
            why: why.why().to_owned(),
            shown: why.why().to_owned(),
            hint: why.how_to_ask().to_owned(),
        }
    }
}

/// A credential without a value.
#[derive(Debug)]
pub struct Unavailable {
    /// The reason for the program; `None` where there is no such credential.
    pub why: Option<String>,
    /// The reason for the record, where it differs.
    pub recorded: Option<String>,
}

/// Records.
impl Egress {
    /// Records a refused flow.
    pub fn refuse(&self, flow: Flow, why: String) {
        self.control.refuse(flow, why);
    }

    /// Has a flow recorded, before its effect; with the number of the approval, if one was needed.
    ///
    /// # Errors
    /// When the recording process is gone: then nothing may be done.
    pub async fn open(&self, flow: Flow, approval: Option<u32>) -> io::Result<OpenFlow> {
        self.control.open_by(flow, true, approval).await
    }

    /// Records the end of a flow.
    pub fn close(&self, opened: &OpenFlow, carried: FlowOutcome) {
        self.control.close(opened, carried);
    }

    /// Records the end of a flow that was relayed, and the limit beyond which it went.
    pub fn close_relayed(
        &self,
        opened: &OpenFlow,
        flow: Flow,
        bytes: [u64; 2],
        stopped: Option<StopReason>,
        part: Option<&BudgetShare>,
    ) {
        let failure = match stopped {
            Some(StopReason::Beyond(excess)) => {
                let flow = Flow {
                    credentials: Vec::new(),
                    ..flow
                };
                self.control.refuse_beyond(flow, &excess);
                None
            }
            Some(stop) => Some(stop.why()),
            None => None,
        };
        let carried = FlowOutcome {
            bytes,
            failure,
            ..FlowOutcome::default()
        };
        let excess = part.and_then(BudgetShare::excess);
        self.control.close(opened, carried.ended_by(excess));
    }

    /// Records a flow whose host cannot be resolved.
    pub async fn record_unreached(&self, flow: Flow, why: String) {
        if let Ok(opened) = self.control.open(flow, false).await {
            let failure = FlowOutcome::nothing(why).at_last(true);
            self.control.close(&opened, failure);
        }
    }

    /// Records a placeholder in what a program sends. Returns the reason for which the connection
    /// ends.
    #[must_use]
    pub fn misused(&self, flow: Flow, found: Found, place: &str) -> String {
        misused(self, flow, found, place)
    }
}

/// Decisions.
impl Egress {
    /// Checks whether policies allow the use of a credential, whose version the flow carries then.
    ///
    /// # Errors
    /// The reasons.
    pub fn check_credential(&self, name: &CredentialName, flow: &mut Flow) -> Result<(), Denied> {
        let now = self.policies.now();
        flow.policies = now.version();
        now.credential(name)?;
        Ok(())
    }

    /// Waits for a person's approval of a connection with these credentials, where rules need one,
    /// or until the program is gone. Returns the approval's number.
    ///
    /// # Errors
    /// The reasons for which there is none.
    pub async fn consent_to_login(
        &self,
        to: &Destination,
        flow: &mut Flow,
        is_gone: impl Future<Output = ()>,
    ) -> Result<Option<u32>, Denied> {
        let (host, port) = (&to.host, to.port);
        let rule = self.network().asks_of_connection(host, port);
        let now = self.policies.now();
        flow.policies = now.version();
        let uses = now.credentials(&flow.credentials)?;
        let asks = now.begin_connection(host, port, Look::Past);
        let asks = ApprovalNeed::and(asks?, uses);
        let Some(asked) = ApprovalNeed::beside(rule, asks) else {
            return Ok(None);
        };
        let approval = tokio::select! {
            given = approval::consent(self, approval::connection(flow, asked.clone())) => given,
            () = is_gone => Err(NoConsent::Left),
        }?;
        // While a person was waited for it has become another time, and labels or other policies
        // may have come.
        let now = self.policies.now();
        flow.policies = now.version();
        let granted = now.connection(host, port, Look::Past);
        let uses = now.credentials(&flow.credentials)?;
        let asks = ApprovalNeed::and(granted?, uses);
        ApprovalNeed::still(&asked, rule, asks)?;
        Ok(Some(approval))
    }

    /// Checks whether policies let a key sign now: a run may not use its key at every time. Where
    /// they need an approval, waits for it, or until the program is gone. Returns its number.
    ///
    /// # Errors
    /// The reasons for which it does not sign.
    pub async fn consent_to_signature(
        &self,
        flow: &mut Flow,
        signing: &Signing,
        is_gone: impl Future<Output = ()>,
    ) -> Result<Option<u32>, Denied> {
        let now = self.policies.now();
        flow.policies = now.version();
        let asks = now.credentials(&flow.credentials)?;
        let Some(asked) = ApprovalNeed::beside(None, asks) else {
            return Ok(None);
        };
        drop(now);
        let approval = tokio::select! {
            given = approval::consent(self, approval::signature(flow, asked.clone(), signing)) => given,
            () = is_gone => Err(NoConsent::Left),
        }?;
        // While a person was waited for it has become another time, or other policies may have
        // come.
        let now = self.policies.now();
        flow.policies = now.version();
        let asks = now.credentials(&flow.credentials)?;
        ApprovalNeed::still(&asked, None, asks)?;
        Ok(Some(approval))
    }

    /// Waits until a connection with an injected login may go on no longer. Returns the reason.
    pub async fn login_lost(&self, to: &Destination, place: Route, flow: &Flow) -> String {
        let Destination { host, port } = to;
        let may = |now: &PolicySnapshot<'_>| {
            now.connection(host, *port, Look::Past)?;
            now.credentials(&flow.credentials).map(drop)
        };
        self.lost(host, Some(place), flow.policies, may).await
    }

    /// Returns the granted SSH keys.
    #[must_use]
    pub fn ssh_grants(&self) -> &[SshGrant] {
        &self.network().ssh
    }
}

/// Ways out.
impl Egress {
    /// Returns the places where a host may be dialled.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn places(&self, to: &Destination) -> Result<Vec<Route>, ResolveError> {
        addresses(self, &to.host, to.port, None).await
    }

    /// Returns the upstream proxy by which a place is dialled, for the record.
    #[must_use]
    pub fn via(&self, place: Route) -> Option<String> {
        place.via(self)
    }

    /// Dials a host at a checked place.
    ///
    /// # Errors
    /// The kernel's, or the upstream proxy's.
    pub async fn dial(&self, to: &Destination, place: Route) -> io::Result<UpstreamStream> {
        crate::dial::dial(self, &to.host, to.port, place).await
    }

    /// Starts TLS with a database server, whose certificate must be for this host.
    ///
    /// # Errors
    /// Those of TLS.
    pub async fn connect_database(
        &self,
        host: &HostPart,
        stream: UpstreamStream,
    ) -> io::Result<TlsStream<UpstreamStream>> {
        self.upstream.connect_database(host, stream).await
    }

    /// Returns whether the sandbox trusts an authority of Atoll's.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.certificates.is_some()
    }

    /// Returns the TLS configuration by which a program is shown a database at this host; `None`
    /// where the sandbox trusts no authority of Atoll's.
    #[must_use]
    pub fn database_config(&self, host: &HostPart) -> Option<io::Result<Arc<ServerConfig>>> {
        let certificates = self.certificates.as_ref()?;
        let config = certificates.of_database(host);
        Some(config.map_err(|error| io::Error::other(error.to_string())))
    }
}

/// Credentials.
impl Egress {
    /// Returns the injected logins of PostgreSQL for a host and port: each credential's index, its
    /// name, and the access that it is for.
    pub fn postgres_logins<'a>(
        &'a self,
        to: &'a Destination,
    ) -> impl Iterator<Item = (usize, &'a CredentialName, &'a PostgresAccess)> {
        let all = self.credentials.iter().enumerate();
        all.filter_map(move |(index, held)| {
            let access = held.binding.postgres_at(&to.host, to.port)?;
            Some((index, held.name(), access))
        })
    }

    /// Returns a credential's name.
    #[must_use]
    pub fn credential_name(&self, index: usize) -> Option<&CredentialName> {
        self.credentials.get(index).map(|held| held.name())
    }

    /// Returns the search for placeholders, if there are any.
    #[must_use]
    pub fn placeholders(&self) -> Option<&Placeholders> {
        self.credentials.placeholders()
    }

    /// Returns the masks for the real values that there are by now.
    #[must_use]
    pub fn masks(&self) -> Option<Masks> {
        self.credentials.masks()
    }

    /// Masks real values in a text, keeping its length.
    #[must_use]
    pub fn masked_text(&self, text: Vec<u8>) -> Vec<u8> {
        self.credentials.masked_text(text)
    }

    /// Returns the single value of a credential, which is fetched where it is not known.
    ///
    /// # Errors
    /// The reasons for which there is none.
    pub async fn value(self: &Arc<Self>, index: usize) -> Result<Arc<Secret>, Unavailable> {
        let none = || Unavailable {
            why: None,
            recorded: None,
        };
        let held = self.credentials.get(index).ok_or_else(none)?;
        if let Some(secret) = held.given() {
            return Ok(Arc::clone(secret));
        }
        let values = fetch::value(self, index).await;
        let values = values.map_err(|unfetched| Unavailable {
            recorded: Some(unfetched.recorded()),
            why: Some(unfetched.why),
        })?;
        values.whole().map(Arc::clone).ok_or_else(none)
    }

    /// Notes that a server has rejected a value.
    pub fn doubt(&self, index: usize, secret: &Arc<Secret>) {
        self.credentials.doubt(index, secret);
    }
}
