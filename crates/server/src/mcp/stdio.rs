//! Tools for one client over standard input and output, in a session of the person's own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::sandboxes::PriorAnswer;
use atoll_model::Reason;
use atoll_tools::{Asked, Cancel, ChangeSet, ChangedLists, Form, LocalRunner, Said, Session};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, serve_server};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc::UnboundedSender;

use super::{MESSAGE_BYTES_MAX, Server, ToolCall, Toolbox, Watch, is_clear, key_of, shadow_agreed};
use crate::protocol::{MayFacts, Refusal, ResultPart, ToolFacts, ToolReply};
use crate::tool_facts::{failed, may, part, reply};

/// The time between two looks whether a list has changed.
const WATCH: Duration = Duration::from_secs(1);
/// A message that is refused by every reader.
const NO_MESSAGE: &[u8] = b"{}\n";

/// The time between two looks whether a limit ends the session.
const LOOK: Duration = Duration::from_secs(1);

/// A session on this machine.
#[derive(Clone)]
struct Local(Arc<Session<LocalRunner>>);

/// Serves the tools of a session until the client has gone.
///
/// # Errors
/// When standard input and output cannot be used.
pub fn serve_stdio(session: &Arc<Session<LocalRunner>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .doing("no threads can be made")?;
    let local = Local(Arc::clone(session));
    let served = runtime.block_on(async {
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(pass_on(tokio::io::stdin(), far));
        tokio::spawn(end_in_time(Arc::clone(session)));
        let server = serve_server(Server::new(local), (near, tokio::io::stdout())).await;
        // A client that goes before it has begun has nothing to be told.
        match server {
            Ok(server) => server.waiting().await.map(drop).map_err(io::Error::other),
            Err(_) => Ok(()),
        }
    });
    // A read of standard input cannot be ended.
    runtime.shutdown_background();
    served.doing("the client is not served any more")
}

/// Ends the session once a limit does, for as long as it is served.
async fn end_in_time(session: Arc<Session<LocalRunner>>) {
    let mut is_over = false;
    while !is_over {
        tokio::time::sleep(LOOK).await;
        let session = Arc::clone(&session);
        let expired = move || session.expire(&session.registry()).is_some();
        is_over = tokio::task::spawn_blocking(expired).await.unwrap_or(true);
    }
}

/// Hands a client's messages on; what can be read in two ways comes as what is no message.
async fn pass_on(from: impl AsyncRead + Unpin, mut to: DuplexStream) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        let most = MESSAGE_BYTES_MAX as u64 + 1;
        let got = (&mut from).take(most).read_until(b'\n', &mut line).await?;
        if got == 0 {
            return to.shutdown().await;
        }
        if line.last() != Some(&b'\n') && got as u64 == most {
            // Too long: the rest of it is read and left out.
            while !matches!(line.last(), None | Some(b'\n')) {
                line.clear();
                (&mut from).take(most).read_until(b'\n', &mut line).await?;
            }
            to.write_all(NO_MESSAGE).await?;
            continue;
        }
        match is_clear(&line) {
            true => to.write_all(&line).await?,
            false => to.write_all(NO_MESSAGE).await?,
        }
    }
}

impl Local {
    /// Carries out work of the session that takes its time.
    async fn carry_out<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session<LocalRunner>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let session = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&session)).await;
        done.map_err(|error| failed(&Failure::new(error.to_string())))
    }
}

impl Toolbox for Local {
    async fn tools(
        &self,
        _: &RequestContext<RoleServer>,
        form: Form,
    ) -> Result<Vec<ToolFacts>, Refusal> {
        let listed = self.carry_out(move |session| session.listing(form));
        Ok(listed.await?.into_iter().map(ToolFacts::from).collect())
    }

    fn watch(&self, _: &RequestContext<RoleServer>, to: UnboundedSender<ChangedLists>) -> Watch {
        let own = self.clone();
        Box::pin(async move {
            let mut seen = None;
            loop {
                let looked = own.carry_out(move |session| {
                    let changed = session.changed_lists(&mut seen);
                    (changed, seen)
                });
                let Ok((changed, now)) = looked.await else {
                    return;
                };
                seen = now;
                if changed.any() && to.send(changed).is_err() {
                    return;
                }
                tokio::time::sleep(WATCH).await;
            }
        })
    }

    async fn call(
        &self,
        of: &RequestContext<RoleServer>,
        call: ToolCall,
    ) -> Result<ToolReply, Refusal> {
        let ToolCall {
            name,
            arguments,
            agreed,
            listener,
            answers,
            askable,
        } = call;
        let answer = match agreed {
            None => PriorAnswer::Nobody,
            Some(Ok(agreement)) => PriorAnswer::Agreed(agreement),
            Some(Err(why)) => PriorAnswer::Denied(why),
        };
        let cancel = Cancel::new().map_err(|failure| failed(&failure))?;
        let (word, token) = (cancel.clone(), of.ct.clone());
        let watching = tokio::spawn(async move {
            token.cancelled().await;
            word.cancel();
        });
        let key = key_of(of);
        let (peer, able) = (of.peer.clone(), of.client_capabilities());
        let can_ask = able.is_some_and(|one| one.elicitation.is_some());
        let called = self.carry_out(move |session| {
            let approver = |change: &ChangeSet, reasons: &[Reason]| {
                shadow_agreed(&peer, can_ask, change, reasons)
            };
            let pass_on = listener.map(|to| move |said: Said| drop(to.send(said)));
            session.call(&Asked {
                name: &name,
                arguments: &arguments,
                key: key.as_deref(),
                answer: &answer,
                cancel: &cancel,
                listener: pass_on.as_ref().map(|one| one as &dyn Fn(Said)),
                answers: answers.as_ref(),
                askable,
                approver: Some(&approver),
            })
        });
        let called = called.await;
        watching.abort();
        reply(self.0.id().as_str(), called?)
    }

    async fn read(
        &self,
        _: &RequestContext<RoleServer>,
        call: u32,
        from: usize,
    ) -> Result<ResultPart, Refusal> {
        part(self.0.rest_of(call, from))
    }

    async fn may(
        &self,
        _: &RequestContext<RoleServer>,
        name: &str,
        arguments: &str,
    ) -> Result<MayFacts, Refusal> {
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        let verdict = self.carry_out(move |session| session.may(&name, &arguments));
        may(verdict.await?)
    }
}
