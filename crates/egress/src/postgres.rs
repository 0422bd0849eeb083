//! PostgreSQL with an injected login: the program's startup packet is read and decided on, Atoll
//! authenticates with a password that no sandbox holds, and then bytes pass in both directions.
//!
//! The program needs no password: any program in the sandbox may use the credential. Between it and
//! Atoll there is TLS or none; the server has to speak TLS and show a certificate, unless a profile
//! allows a server in a private network to do without.

mod message;
mod passing;
mod program;
mod relay;
mod scram;
mod server;
mod sessions;
mod startup;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use atoll_model::network::{
    CredentialName, Flow, FlowKind, FlowLogin, HostPart, Look, NoConsent, PostgresAccess, ServerTls,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use self::program::{Begun, Program};
use self::server::{Failed, REJECTED, UNREACHED};
pub(crate) use self::sessions::Sessions;
use self::startup::{Key, Startup};
use self::stream::Stream;
use crate::Egress;
use crate::arrival::Arrival;
use crate::control_channel::{Carried, Opened};
use crate::credentials::fetch;
use crate::destination::Destination;
use crate::dial::Place;
use crate::inspect::asking;
use crate::limits::Part;
use crate::opening::Stop;
use crate::policies::{Asks, Forbidden};
use crate::resolve::{ResolveError, addresses};

/// The SQLSTATE of a login that is not authorized (PostgreSQL, appendix A).
const FORBIDDEN: &str = "28000";

/// Returns whether Atoll injects the login of connections to a host and port.
pub(crate) fn is_signed_in(egress: &Egress, host: &HostPart, port: u16) -> bool {
    accesses(egress, host, port).next().is_some()
}

/// Returns the logins for a host and port: each credential's index, its name, and the access that
/// it is for.
fn accesses<'a>(
    egress: &'a Egress,
    host: &'a HostPart,
    port: u16,
) -> impl Iterator<Item = (usize, &'a CredentialName, &'a PostgresAccess)> {
    let all = egress.credentials.iter().enumerate();
    all.filter_map(move |(index, held)| {
        let access = held.binding.postgres_at(host, port)?;
        Some((index, held.name(), access))
    })
}

/// A connection that a rule allows: its destination, its record, and its part of that rule's
/// budget.
struct Asked<'a> {
    wanted: &'a Destination,
    flow: Flow,
    part: Option<&'a Part>,
    /// The TLS demanded of the server.
    tls: ServerTls,
    /// The number of the approval, where one was needed.
    approval: Option<u32>,
}

/// A denied login: the reason for the record, the reason for the program, and a hint for it.
struct Denied {
    why: String,
    inside: String,
    hint: String,
}

/// Carries one connection from its arrival to its end.
pub(crate) async fn serve(
    egress: &Arc<Egress>,
    mut arrival: Arrival,
    wanted: Destination,
    flow: Flow,
    part: Option<Part>,
) {
    if arrival.grant().await.is_err() {
        return arrival.reset();
    }
    let flow = Flow {
        kind: FlowKind::Postgres,
        ..flow
    };
    let begun = tokio::select! {
        begun = program::begin(egress, arrival, &wanted) => begun,
        () = egress.is_over() => return,
    };
    let asked = Asked {
        wanted: &wanted,
        flow,
        part: part.as_ref(),
        tls: ServerTls::default(),
        approval: None,
    };
    match begun {
        Begun::Over => {}
        Begun::Refused { mut program, why } => {
            egress.control.refuse(asked.flow, why.to_owned());
            program.deny(FORBIDDEN, &told(why), "").await;
        }
        Begun::Cancel { program, key } => {
            cancel(egress, asked, key).await;
            // There is no answer: the end says that it is done.
            drop(program);
        }
        Begun::Startup { program, startup } => begin(egress, asked, program, startup).await,
    }
}

fn told(why: &str) -> String {
    format!("Atoll: {why}")
}

/// Decides on the user and database of a login, and carries the connection.
async fn begin(egress: &Arc<Egress>, asked: Asked<'_>, mut program: Program, startup: Startup) {
    let mut flow = asked.flow.clone();
    flow.login = Some(FlowLogin {
        user: startup.user.clone(),
        database: startup.database.clone(),
    });
    if let Some((name, why)) = misused(egress, &startup) {
        flow.credentials.push(name);
        egress.control.refuse(flow, why.clone());
        return program.deny(FORBIDDEN, &told(&why), "").await;
    }
    let (index, name, tls) = match judge(egress, asked.wanted, &startup) {
        Ok((index, name, access)) => (index, name.clone(), access.tls),
        Err(Denied { why, inside, hint }) => {
            egress.control.refuse(flow, why);
            return program.deny(FORBIDDEN, &told(&inside), &hint).await;
        }
    };
    let now = egress.policies.now();
    flow.policies = now.version();
    if let Err(forbidden) = now.credential(&name) {
        egress.control.refuse(flow, forbidden.why);
        return program.deny(FORBIDDEN, &told(&forbidden.inside), "").await;
    }
    flow.credentials.push(name.clone());
    let approval = match consent(egress, asked.wanted, &mut program, &mut flow).await {
        Ok(approval) => approval,
        Err(Denied { why, inside, hint }) => {
            flow.credentials.clear();
            egress.control.refuse(flow, why);
            return program.deny(FORBIDDEN, &told(&inside), &hint).await;
        }
    };
    let asked = Asked {
        flow,
        tls,
        approval,
        ..asked
    };
    let places = match places(egress, &asked).await {
        Ok(places) => places,
        Err((state, why)) => return program.deny(state, &told(&why), "").await,
    };
    let mut failed = None;
    for place in places {
        match connect(egress, &asked, &mut program, index, &startup, place).await {
            Some(Tried::Elsewhere(failure)) => failed = Some(failure),
            Some(Tried::Failed(failure)) => {
                failed = Some(failure);
                break;
            }
            None => return,
        }
    }
    let failure = failed.map_or(
        (None, UNREACHED, "it has no address".to_owned()),
        |failed| (failed.said, failed.state, failed.why),
    );
    match failure {
        (Some(said), _, _) => {
            let said = egress.credentials.masked_text(said);
            program.end_with(&said).await;
        }
        (None, state, why) => program.deny(state, &told(&why), "").await,
    }
}

/// Waits for a person's approval of this login with these credentials, where rules need one.
/// Returns the approval's number.
async fn consent(
    egress: &Egress,
    wanted: &Destination,
    program: &mut Program,
    flow: &mut Flow,
) -> Result<Option<u32>, Denied> {
    let (host, port) = (&wanted.host, wanted.port);
    let forbidden = |one: Forbidden| Denied {
        why: one.why,
        inside: one.inside,
        hint: String::new(),
    };
    let rule = egress.network.asks_of_connection(host, port);
    let now = egress.policies.now();
    flow.policies = now.version();
    let uses = now.credentials(&flow.credentials).map_err(forbidden)?;
    let asks = now.begin_connection(host, port, Look::Past);
    let asks = Asks::and(asks.map_err(forbidden)?, uses);
    let Some(asked) = Asks::beside(rule, asks) else {
        return Ok(None);
    };
    let given = tokio::select! {
        given = asking::consent(egress, asking::connection(flow, asked.clone())) => given,
        () = program.is_gone() => Err(NoConsent::Left),
    };
    let approval = given.map_err(|why| Denied {
        why: why.why().to_owned(),
        inside: why.why().to_owned(),
        hint: why.how_to_ask().to_owned(),
    })?;
    // While a person was waited for it has become another time, and labels or other policies may
    // have come.
    let now = egress.policies.now();
    flow.policies = now.version();
    let granted = now.connection(host, port, Look::Past);
    let uses = now.credentials(&flow.credentials).map_err(forbidden)?;
    let asks = Asks::and(granted.map_err(forbidden)?, uses);
    Asks::still(&asked, rule, asks).map_err(forbidden)?;
    Ok(Some(approval))
}

/// Returns the credential whose placeholder is in the startup packet, if one is, and the reason to
/// refuse it.
fn misused(egress: &Egress, startup: &Startup) -> Option<(CredentialName, String)> {
    let found = egress.credentials.placeholders()?.find(&startup.packet())?;
    let name = egress.credentials.get(found.number)?.name();
    let why = format!("the placeholder of credential {name} is in what the program signs in with");
    Some((name.clone(), why))
}

/// Returns the credential that is for this user and database, and its access.
fn judge<'a>(
    egress: &'a Egress,
    wanted: &'a Destination,
    startup: &Startup,
) -> Result<(usize, &'a CredentialName, &'a PostgresAccess), Denied> {
    let Startup { user, database, .. } = startup;
    let mut all = accesses(egress, &wanted.host, wanted.port);
    if let Some(found) = all.find(|(_, _, access)| access.holds(user, database)) {
        return Ok(found);
    }
    let all = accesses(egress, &wanted.host, wanted.port);
    let (of_user, others): (Vec<_>, Vec<_>) = all.partition(|(_, _, access)| access.user == *user);
    let known = of_user.first().or(others.first());
    let (why, hint) = match known {
        Some((_, name, access)) if access.user == *user => (
            format!("credential {name} signs in to other databases than this one"),
            format!(
                "ask the person who started this to add it: to `database` in `place` of [credential.{name}]"
            ),
        ),
        Some((_, name, access)) => (
            format!(
                "credential {name} signs in as {}, and as nobody else",
                access.user
            ),
            format!(
                "sign in as {}, or ask the person who started this for a credential of this user",
                access.user
            ),
        ),
        None => ("no credential signs in to it".to_owned(), String::new()),
    };
    let inside = format!("user \"{user}\", database \"{database}\": {why}");
    Err(Denied { why, inside, hint })
}

/// Returns the places where the host may be dialled. A failure is reported.
async fn places(egress: &Egress, asked: &Asked<'_>) -> Result<Vec<Place>, (&'static str, String)> {
    let Asked { wanted, flow, .. } = asked;
    let found = addresses(egress, &wanted.host, wanted.port, None).await;
    match found.and_then(|places| stream::held(asked.tls, places)) {
        Ok(places) => Ok(places),
        Err(ResolveError::Refused { why, inside }) => {
            let flow = Flow {
                credentials: Vec::new(),
                ..flow.clone()
            };
            egress.control.refuse(flow, why);
            Err((FORBIDDEN, inside))
        }
        Err(ResolveError::Unknown(why)) => {
            let why = format!("its name leads nowhere: {why}");
            if let Ok(opened) = egress.control.open(flow.clone(), false).await {
                let failure = Carried::nothing(why.clone()).at_last(true);
                egress.control.close(&opened, failure);
            }
            Err((UNREACHED, why))
        }
    }
}

/// The outcome of one address that did not serve.
enum Tried {
    /// Another one can be tried.
    Elsewhere(Failed),
    /// No other one is tried.
    Failed(Failed),
}

/// Has a connection recorded, makes it, authenticates, and carries it to its end. Returns `None`
/// then.
async fn connect(
    egress: &Arc<Egress>,
    asked: &Asked<'_>,
    program: &mut Program,
    index: usize,
    startup: &Startup,
    place: Place,
) -> Option<Tried> {
    let mut flow = asked.flow.clone();
    (flow.address, flow.via) = (place.address(), place.via(egress));
    if egress.touch(&flow).await.is_err() {
        return None;
    }
    let opened = egress.control.open_by(flow.clone(), true, asked.approval);
    let opened = opened.await.ok()?;
    let signed_in = tokio::select! {
        signed_in = sign_in(egress, asked, index, startup, place) => signed_in,
        () = egress.is_over() => Err((Failed::over(), None)),
    };
    let server = match signed_in {
        Ok(server) => server,
        Err((failed, recorded)) => {
            let why = recorded.unwrap_or_else(|| failed.why.clone());
            let is_last = !failed.is_elsewhere;
            egress
                .control
                .close(&opened, Carried::nothing(why).at_last(is_last));
            return Some(match failed.is_elsewhere {
                true => Tried::Elsewhere(failed),
                false => Tried::Failed(failed),
            });
        }
    };
    let ended = relay::carry(egress, asked, program, server, place).await;
    close(egress, asked, &opened, flow, ended);
    None
}

/// Reports how an authenticated connection ended.
fn close(egress: &Egress, asked: &Asked<'_>, opened: &Opened, flow: Flow, ended: relay::Ended) {
    let failure = match ended.stopped {
        Some(Stop::Beyond(excess)) => {
            let flow = Flow {
                credentials: Vec::new(),
                ..flow
            };
            egress.control.refuse_beyond(flow, &excess);
            None
        }
        Some(stop) => Some(stop.why()),
        None => None,
    };
    let carried = Carried {
        bytes: ended.bytes,
        failure,
        ..Carried::default()
    };
    let excess = asked.part.and_then(Part::excess);
    egress.control.close(opened, carried.ended_by(excess));
}

/// Authenticates to a server. Returns the failure otherwise, and its reason for the record where
/// that differs.
async fn sign_in(
    egress: &Arc<Egress>,
    asked: &Asked<'_>,
    index: usize,
    startup: &Startup,
    place: Place,
) -> Result<Stream, (Failed, Option<String>)> {
    let plain = |failed: Failed| (failed, None);
    let held = egress.credentials.get(index);
    let held = held.ok_or_else(|| plain(Failed::rejected("there is no such credential")))?;
    // Before the server waits for it.
    let secret = match held.given() {
        Some(secret) => Arc::clone(secret),
        None => {
            let values = fetch::value(egress, index).await.map_err(|unfetched| {
                let recorded = Some(unfetched.recorded());
                (Failed::because(unfetched.why), recorded)
            })?;
            let whole = values.whole().map(Arc::clone);
            whole.ok_or_else(|| plain(Failed::rejected("there is no such credential")))?
        }
    };
    let connected = server::connect(
        egress,
        &asked.wanted.host,
        asked.wanted.port,
        place,
        asked.tls,
    )
    .await;
    let mut stream = connected.map_err(plain)?;
    match server::sign_in(&mut stream, startup, secret.expose()).await {
        Ok(()) => Ok(stream),
        Err(failed) => {
            if failed.is_wrong_password {
                egress.credentials.doubt(index, &secret);
            }
            Err(plain(failed))
        }
    }
}

/// Cancels the query of another connection of this sandbox, at the same server.
async fn cancel(egress: &Egress, asked: Asked<'_>, key: Key) {
    let Asked { wanted, flow, .. } = asked;
    // A person who is asked about connections has said yes to the one that it is for.
    let Some((place, tls, approval)) = egress.databases.by(wanted, key) else {
        let why = "it wants to end what no connection of this sandbox does";
        return egress.control.refuse(flow, why.to_owned());
    };
    let flow = Flow {
        address: place.address(),
        via: place.via(egress),
        ..flow
    };
    let Ok(opened) = egress.control.open_by(flow, true, approval).await else {
        return;
    };
    let asked = async {
        let mut stream = server::connect(egress, &wanted.host, wanted.port, place, tls).await?;
        let ended = |error| Failed::ended(&error);
        let request = startup::cancel_request(key);
        stream.write_all(&request).await.map_err(ended)?;
        stream.flush().await.map_err(ended)?;
        // It closes the connection once it has done so, and says nothing.
        let _ = timeout(server::CANCEL_PATIENCE, stream.read_u8()).await;
        Ok::<_, Failed>(())
    };
    let asked = tokio::select! {
        asked = asked => asked,
        () = egress.is_over() => Err(Failed::over()),
    };
    let carried = match asked {
        Ok(()) => Carried::default(),
        Err(failed) => Carried::nothing(failed.why).at_last(true),
    };
    egress.control.close(&opened, carried);
}

impl Failed {
    fn because(why: String) -> Self {
        Self::new(REJECTED, why)
    }

    fn over() -> Self {
        Self::because("the sandbox ended".to_owned())
    }
}
