//! PostgreSQL with an injected login: the program's startup packet is read and decided on, Atoll
//! authenticates with a password that no sandbox holds, and then bytes pass in both directions.
//!
//! The program needs no password: any program in the sandbox may use the credential. Between it and
//! Atoll there is TLS or none; the server has to speak TLS and show a certificate, unless a profile
//! allows a server in a private network to do without.

mod inspection;
mod message;
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

use atoll_model::network::{CredentialName, Flow, FlowKind, FlowLogin, PostgresAccess, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use self::program::{FirstRequest, Program};
use self::server::{LoginError, REJECTED, UNREACHED};
use self::sessions::Sessions;
use self::startup::{Key, Startup};
use self::stream::Stream;
use atoll_egress::Egress;
use atoll_egress::connector::{
    BudgetShare, Denied, Destination, FlowOutcome, LoginConnector, ProgramStream, ResolveError,
    Route, Task,
};

/// The SQLSTATE of a login that is not authorized (PostgreSQL, appendix A).
const FORBIDDEN: &str = "28000";

/// The connector of PostgreSQL.
#[derive(Debug, Default)]
pub struct Postgres {
    /// The connections with an injected login.
    sessions: Sessions,
}

impl LoginConnector for Postgres {
    fn serve<'a>(
        &'a self,
        egress: &'a Arc<Egress>,
        program: ProgramStream,
        to: Destination,
        flow: Flow,
        part: Option<BudgetShare>,
    ) -> Task<'a> {
        Box::pin(serve(egress, &self.sessions, program, to, flow, part))
    }
}

/// A connection that a rule allows: its destination, its record, and its part of that rule's
/// budget.
struct AllowedConnection<'a> {
    sessions: &'a Sessions,
    to: &'a Destination,
    flow: Flow,
    part: Option<&'a BudgetShare>,
    /// The TLS demanded of the server.
    tls: ServerTls,
    /// The number of the approval, where one was needed.
    approval: Option<u32>,
}

/// Carries one connection from its arrival to its end.
async fn serve(
    egress: &Arc<Egress>,
    sessions: &Sessions,
    mut arrival: ProgramStream,
    to: Destination,
    flow: Flow,
    part: Option<BudgetShare>,
) {
    if arrival.grant().await.is_err() {
        return arrival.reset();
    }
    let flow = Flow {
        kind: FlowKind::Postgres,
        ..flow
    };
    let begun = tokio::select! {
        begun = program::begin(egress, arrival, &to) => begun,
        () = egress.run_ended() => return,
    };
    let asked = AllowedConnection {
        sessions,
        to: &to,
        flow,
        part: part.as_ref(),
        tls: ServerTls::default(),
        approval: None,
    };
    match begun {
        FirstRequest::Over => {}
        FirstRequest::Refused { mut program, why } => {
            egress.refuse(asked.flow, why.to_owned());
            program.deny(FORBIDDEN, &for_program(why), "").await;
        }
        FirstRequest::Cancel { program, key } => {
            cancel(egress, asked, key).await;
            // There is no answer: the end says that it is done.
            drop(program);
        }
        FirstRequest::Startup { program, startup } => begin(egress, asked, program, startup).await,
    }
}

fn for_program(why: &str) -> String {
    format!("Atoll: {why}")
}

/// Decides on the user and database of a login, and carries the connection.
async fn begin(
    egress: &Arc<Egress>,
    connection: AllowedConnection<'_>,
    mut program: Program,
    startup: Startup,
) {
    let mut flow = connection.flow.clone();
    flow.login = Some(FlowLogin {
        user: startup.user.clone(),
        database: startup.database.clone(),
    });
    if let Some((name, why)) = misused(egress, &startup) {
        flow.credentials.push(name);
        egress.refuse(flow, why.clone());
        return program.deny(FORBIDDEN, &for_program(&why), "").await;
    }
    let (index, name, tls) = match judge(egress, connection.to, &startup) {
        Ok((index, name, access)) => (index, name.clone(), access.tls),
        Err(Denied { why, shown, hint }) => {
            egress.refuse(flow, why);
            return program.deny(FORBIDDEN, &for_program(&shown), &hint).await;
        }
    };
    if let Err(Denied { why, shown, hint }) = egress.check_credential(&name, &mut flow) {
        egress.refuse(flow, why);
        return program.deny(FORBIDDEN, &for_program(&shown), &hint).await;
    }
    flow.credentials.push(name.clone());
    let approval = egress.consent_to_login(connection.to, &mut flow, program.is_gone());
    let approval = match approval.await {
        Ok(approval) => approval,
        Err(Denied { why, shown, hint }) => {
            flow.credentials.clear();
            egress.refuse(flow, why);
            return program.deny(FORBIDDEN, &for_program(&shown), &hint).await;
        }
    };
    let connection = AllowedConnection {
        flow,
        tls,
        approval,
        ..connection
    };
    let places = match places(egress, &connection).await {
        Ok(places) => places,
        Err((state, why)) => return program.deny(state, &for_program(&why), "").await,
    };
    let mut failed = None;
    for place in places {
        match connect(egress, &connection, &mut program, index, &startup, place).await {
            Some(AttemptError::Elsewhere(failure)) => failed = Some(failure),
            Some(AttemptError::Failed(failure)) => {
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
            let said = egress.masked_text(said);
            program.end_with(&said).await;
        }
        (None, state, why) => program.deny(state, &for_program(&why), "").await,
    }
}

/// Returns the credential whose placeholder is in the startup packet, if one is, and the reason to
/// refuse it.
fn misused(egress: &Egress, startup: &Startup) -> Option<(CredentialName, String)> {
    let found = egress.placeholders()?.find(&startup.packet())?;
    let name = egress.credential_name(found.number)?;
    let why = format!("the placeholder of credential {name} is in what the program signs in with");
    Some((name.clone(), why))
}

/// Returns the credential that is for this user and database, and its access.
fn judge<'a>(
    egress: &'a Egress,
    to: &'a Destination,
    startup: &Startup,
) -> Result<(usize, &'a CredentialName, &'a PostgresAccess), Denied> {
    let Startup { user, database, .. } = startup;
    let mut all = egress.postgres_logins(to);
    if let Some(found) = all.find(|(_, _, access)| access.holds(user, database)) {
        return Ok(found);
    }
    let all = egress.postgres_logins(to);
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
    let shown = format!("user \"{user}\", database \"{database}\": {why}");
    Err(Denied { why, shown, hint })
}

/// Returns the places where the host may be dialled. A failure is reported.
async fn places(
    egress: &Egress,
    connection: &AllowedConnection<'_>,
) -> Result<Vec<Route>, (&'static str, String)> {
    let AllowedConnection { to, flow, .. } = connection;
    let found = egress.places(to).await;
    match found.and_then(|places| stream::check_places(connection.tls, places)) {
        Ok(places) => Ok(places),
        Err(ResolveError::Refused { why, shown }) => {
            let flow = Flow {
                credentials: Vec::new(),
                ..flow.clone()
            };
            egress.refuse(flow, why);
            Err((FORBIDDEN, shown))
        }
        Err(ResolveError::Unknown(why)) => {
            let why = format!("DNS lookup failed: {why}");
            egress.record_unreached(flow.clone(), why.clone()).await;
            Err((UNREACHED, why))
        }
    }
}

/// The outcome of one address that did not serve.
enum AttemptError {
    /// Another one can be tried.
    Elsewhere(LoginError),
    /// No other one is tried.
    Failed(LoginError),
}

/// Has a connection recorded, makes it, authenticates, and carries it to its end. Returns `None`
/// then.
async fn connect(
    egress: &Arc<Egress>,
    connection: &AllowedConnection<'_>,
    program: &mut Program,
    index: usize,
    startup: &Startup,
    place: Route,
) -> Option<AttemptError> {
    let mut flow = connection.flow.clone();
    (flow.address, flow.via) = (place.address(), egress.via(place));
    if egress.touch(&flow).await.is_err() {
        return None;
    }
    let opened = egress.open(flow.clone(), connection.approval);
    let opened = opened.await.ok()?;
    let signed_in = tokio::select! {
        signed_in = sign_in(egress, connection, index, startup, place) => signed_in,
        () = egress.run_ended() => Err((LoginError::over(), None)),
    };
    let server = match signed_in {
        Ok(server) => server,
        Err((failed, recorded)) => {
            let why = recorded.unwrap_or_else(|| failed.why.clone());
            let is_last = !failed.is_elsewhere;
            egress.close(&opened, FlowOutcome::nothing(why).at_last(is_last));
            return Some(match failed.is_elsewhere {
                true => AttemptError::Elsewhere(failed),
                false => AttemptError::Failed(failed),
            });
        }
    };
    let ended = relay::carry(egress, connection, program, server, place).await;
    egress.close_relayed(&opened, flow, ended.bytes, ended.stopped, connection.part);
    None
}

/// Authenticates to a server. Returns the failure otherwise, and its reason for the record where
/// that differs.
async fn sign_in(
    egress: &Arc<Egress>,
    connection: &AllowedConnection<'_>,
    index: usize,
    startup: &Startup,
    place: Route,
) -> Result<Stream, (LoginError, Option<String>)> {
    let plain = |failed: LoginError| (failed, None);
    // Before the server waits for it.
    let secret = egress.value(index).await.map_err(|none| {
        let failed = match none.why {
            Some(why) => LoginError::because(why),
            None => LoginError::rejected("there is no such credential"),
        };
        (failed, none.recorded)
    })?;
    let connected = server::connect(egress, connection.to, place, connection.tls).await;
    let mut stream = connected.map_err(plain)?;
    match server::sign_in(&mut stream, startup, secret.expose()).await {
        Ok(()) => Ok(stream),
        Err(failed) => {
            if failed.is_wrong_password {
                egress.doubt(index, &secret);
            }
            Err(plain(failed))
        }
    }
}

/// Cancels the query of another connection of this sandbox, at the same server.
async fn cancel(egress: &Egress, connection: AllowedConnection<'_>, key: Key) {
    let AllowedConnection {
        sessions, to, flow, ..
    } = connection;
    // A person who is asked about connections has said yes to the one that it is for.
    let Some((place, tls, approval)) = sessions.by(to, key) else {
        let why = "it wants to end what no connection of this sandbox does";
        return egress.refuse(flow, why.to_owned());
    };
    let flow = Flow {
        address: place.address(),
        via: egress.via(place),
        ..flow
    };
    let Ok(opened) = egress.open(flow, approval).await else {
        return;
    };
    let connection = async {
        let mut stream = server::connect(egress, to, place, tls).await?;
        let ended = |error| LoginError::ended(&error);
        let request = startup::cancel_request(key);
        stream.write_all(&request).await.map_err(ended)?;
        stream.flush().await.map_err(ended)?;
        // It closes the connection once it has done so, and says nothing.
        let _ = timeout(server::CANCEL_PATIENCE, stream.read_u8()).await;
        Ok::<_, LoginError>(())
    };
    let connection = tokio::select! {
        connection = connection => connection,
        () = egress.run_ended() => Err(LoginError::over()),
    };
    let carried = match connection {
        Ok(()) => FlowOutcome::default(),
        Err(failed) => FlowOutcome::nothing(failed.why).at_last(true),
    };
    egress.close(&opened, carried);
}

impl LoginError {
    fn because(why: String) -> Self {
        Self::new(REJECTED, why)
    }

    fn over() -> Self {
        Self::because("the sandbox ended".to_owned())
    }
}
