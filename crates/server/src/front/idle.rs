//! Bodies of which nothing comes: each is given up after a while, so that nobody keeps a connection,
//! a file and a place by sending nothing.

use std::io;
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use tokio::time::timeout;

use crate::protocol::{Kind, Refusal};

/// The longest time in which nothing of a body comes.
const IDLE: Duration = Duration::from_secs(60);

/// Returns a body that fails where nothing of it comes for too long.
pub(super) fn timed(body: Body) -> Body {
    timed_to(body, IDLE)
}

fn timed_to(body: Body, most: Duration) -> Body {
    let blocks = body.into_data_stream();
    Body::from_stream(try_unfold(blocks, move |mut blocks| async move {
        match timeout(most, blocks.next()).await {
            Ok(block) => {
                let block = block.transpose().map_err(io::Error::other)?;
                Ok(block.map(|block| (block, blocks)))
            }
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }))
}

/// Returns the refusal where an error means that nothing of a body has come for too long.
fn late(error: &(dyn std::error::Error + 'static)) -> Option<Refusal> {
    let mut all = std::iter::successors(Some(error), |error| {
        // Of an error of its own kind this is the cause only.
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    });
    let is_late = |error: &(dyn std::error::Error + 'static)| {
        let error = error.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    all.any(is_late).then(|| {
        let what = format!("nothing of the body has come for {} s", IDLE.as_secs());
        Refusal::new(Kind::Late, what).advise("send it again")
    })
}

/// Returns the refusal of a body that cannot be read, with the reasons beneath.
pub(crate) fn wrong_body(error: &(dyn std::error::Error + 'static)) -> Refusal {
    if let Some(refusal) = late(error) {
        return refusal;
    }
    let mut what = "the body is not understood".to_owned();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return refusal.clone();
        }
        let why = error.to_string();
        // Some repeat what lies beneath them.
        if !what.contains(&why) {
            what = format!("{what}: {why}");
        }
        next = error.source();
    }
    Refusal::invalid(what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;

    use super::super::form::FormParts;
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    }

    /// A body of which this comes, and nothing more.
    fn stalled(begin: &'static str) -> Body {
        let begin = futures_util::stream::iter([Ok::<_, io::Error>(Bytes::from(begin))]);
        let rest = futures_util::stream::pending();
        timed_to(
            Body::from_stream(begin.chain(rest)),
            Duration::from_millis(20),
        )
    }

    #[test]
    fn a_body_of_which_nothing_comes_is_given_up() {
        runtime().block_on(async {
            let mut blocks = stalled("begin").into_data_stream();
            assert_eq!(blocks.next().await.unwrap().unwrap(), "begin");
            let error = blocks.next().await.unwrap().unwrap_err();
            assert_eq!(wrong_body(&error).kind, Kind::Late);
            let again = io::Error::other(error);
            assert_eq!(wrong_body(&again).kind, Kind::Late);
        });
    }

    #[test]
    fn a_form_of_which_nothing_comes_is_given_up() {
        runtime().block_on(async {
            let mut parts = FormParts::of(stalled("--b\r\nContent-Disposition: "), "b".to_owned());
            assert_eq!(parts.next().await.err().unwrap().kind, Kind::Late);
            let begin = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nbegin";
            let mut parts = FormParts::of(stalled(begin), "b".to_owned());
            let mut part = parts.next().await.unwrap().unwrap();
            let error = loop {
                if let Err(error) = part.chunk().await {
                    break error;
                }
            };
            assert_eq!(wrong_body(&error).kind, Kind::Late);
        });
    }

    #[test]
    fn a_body_that_comes_is_whole() {
        runtime().block_on(async {
            let body = timed(Body::from("all of it"));
            let all = axum::body::to_bytes(body, 100).await.unwrap();
            assert_eq!(all, "all of it");
        });
    }
}
