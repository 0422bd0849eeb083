//! Which data the session has touched: gained while its connections go on, never lost. What gives
//! a label waits until it is recorded.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_model::network::{Flow, FlowKind, HostPart};

use crate::Egress;
use crate::line::Line;

/// Something that nobody vouches for has been read.
pub(crate) const UNTRUSTED: &str = "untrusted";

/// The labels of a run, and what of them is still to be recorded.
#[derive(Debug)]
pub(crate) struct Labels {
    /// Hosts whose answers are vouched for: names, or `*.` and a name.
    trusted: Vec<String>,
    /// Those of models among them, written the same way.
    models: Vec<String>,
    state: Mutex<State>,
    /// Held by who tells, so that nobody goes on with what another one tells of.
    telling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    has: BTreeSet<String>,
    /// Each with what has given it, in order, until it is on disk.
    untold: VecDeque<(String, String)>,
}

impl Labels {
    /// Those with which a run begins, which are in the record.
    pub(crate) fn new(has: BTreeSet<String>, trusted: Vec<String>, models: Vec<String>) -> Self {
        let state = State {
            has,
            untold: VecDeque::new(),
        };
        Self {
            trusted,
            models,
            state: Mutex::new(state),
            telling: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is by now.
    pub(crate) fn has(&self) -> BTreeSet<String> {
        self.state().has.clone()
    }

    /// Adds one, and has it recorded by whoever goes on next. Whether it was not there.
    pub(crate) fn gain(&self, label: &str, by: &str) -> bool {
        let mut state = self.state();
        let is_new = !state.has.contains(label);
        if is_new {
            state.has.insert(label.to_owned());
            state.untold.push_back((label.to_owned(), by.to_owned()));
        }
        is_new
    }

    /// Whether a host is one of a model. An address is nobody's name.
    pub(crate) fn is_of_model(&self, host: &HostPart) -> bool {
        match host {
            HostPart::Name(name) => is_among(&self.models, name.as_str()),
            HostPart::Address(_) => false,
        }
    }

    /// What a host answers is about to be read.
    fn read_from(&self, host: &str) {
        if !is_among(&self.trusted, host) {
            self.gain(UNTRUSTED, host);
        }
    }

    /// Waits until all that was gained is on disk.
    ///
    /// Whoever tells may be dropped while it waits, as with a connection that is reset: a label
    /// stays untold until it is on disk, so the next one that goes on tells of it again.
    async fn settle(&self, line: &Line) -> io::Result<()> {
        let _telling = self.telling.lock().await;
        loop {
            let first = self.state().untold.front().cloned();
            let Some((label, by)) = first else {
                return Ok(());
            };
            line.label(label, by).await?;
            self.state().untold.pop_front();
        }
    }
}

/// Whether a name is one of these, or lies beneath one.
fn is_among(hosts: &[String], name: &str) -> bool {
    hosts.iter().any(|one| {
        let beneath = one.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        one == name || beneath
    })
}

impl Egress {
    /// Notes what a flow touches, and waits until that is recorded: before it happens.
    ///
    /// # Errors
    /// When nobody records any more.
    pub(crate) async fn touch(&self, flow: &Flow) -> io::Result<()> {
        let Some(labels) = self.policies.labels() else {
            return Ok(());
        };
        match flow.kind {
            FlowKind::Tunnel | FlowKind::Postgres => labels.read_from(&flow.host),
            FlowKind::Request | FlowKind::SshLogin | FlowKind::CommitSignature => {}
            // These are none of the program's, or carry nothing to it.
            FlowKind::Name | FlowKind::Published | FlowKind::Fetch | FlowKind::Revocation => {
                return Ok(());
            }
        }
        for name in &flow.credentials {
            labels.gain(&format!("secret:{name}"), &flow.host);
        }
        labels.settle(&self.line).await
    }

    /// The same of a host's answer, before any of it is carried on.
    ///
    /// # Errors
    /// When nobody records any more.
    pub(crate) async fn hear_from(&self, host: &HostPart) -> io::Result<()> {
        let Some(labels) = self.policies.labels() else {
            return Ok(());
        };
        labels.read_from(&host.to_string());
        labels.settle(&self.line).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use atoll_model::network::FlowOrder;
    use atoll_sys::{descriptor, socket};
    use tokio::time::timeout;

    use super::*;

    /// A line, and its other end.
    fn line() -> (Line, OwnedFd) {
        let (line, far) = socket::pair().unwrap();
        descriptor::never_block(line.as_fd()).unwrap();
        (Line::new(line).unwrap(), far)
    }

    /// The other side says that these are on disk.
    fn record(far: &OwnedFd, id: u64) {
        let said = serde_json::to_vec(&FlowOrder::Recorded { id }).unwrap();
        socket::send(far.as_fd(), &said, &[]).unwrap();
    }

    /// A program that resets its connection ends who tells: the label is waited for all the same.
    #[tokio::test]
    async fn a_label_is_told_of_until_it_is_on_disk() {
        let (line, far) = line();
        let labels = Labels::new(BTreeSet::new(), Vec::new(), Vec::new());
        labels.gain("first", "example.org");
        labels.gain("second", "example.org");
        let soon = Duration::from_millis(20);
        // Whoever goes on waits, and is dropped; nobody has said that it is on disk.
        for _ in 0..3 {
            assert!(!labels.gain("first", "example.net"));
            assert!(timeout(soon, labels.settle(&line)).await.is_err());
            assert_eq!(labels.state().untold.len(), 2);
        }
        // The three before had one number each.
        record(&far, 4);
        let further = async {
            while labels.state().untold.len() > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // The second is told of once the first is on disk.
            record(&far, 5);
            std::future::pending::<()>().await;
        };
        let settled = async {
            tokio::select! {
                biased;
                settled = labels.settle(&line) => settled,
                () = line.hear(|_, _| (), |_| (), |_, _| false) => panic!("it is heard of"),
                () = further => panic!("it waits"),
            }
        };
        let settled = timeout(Duration::from_secs(60), settled).await;
        settled.unwrap().unwrap();
        assert!(labels.state().untold.is_empty());
    }

    /// Where nobody records any more, nothing goes on, now and later.
    #[tokio::test]
    async fn a_label_that_cannot_be_recorded_lets_nothing_on() {
        let (line, far) = line();
        let labels = Labels::new(BTreeSet::new(), Vec::new(), Vec::new());
        labels.gain("first", "example.org");
        drop(far);
        let told = async {
            let (settled, ()) = tokio::join!(labels.settle(&line), line.send());
            settled
        };
        let told = timeout(Duration::from_secs(60), told).await;
        told.unwrap().unwrap_err();
        labels.settle(&line).await.unwrap_err();
    }

    #[test]
    fn a_label_is_gained_once_and_a_host_is_trusted_by_its_whole_name() {
        let labels = Labels::new(
            BTreeSet::from(["private".to_owned()]),
            vec!["api.example.com".to_owned(), "*.models.example".to_owned()],
            vec!["*.models.example".to_owned()],
        );
        for (host, expected) in [
            ("api.example.com", true),
            ("a.models.example", true),
            ("b.a.models.example", true),
            ("models.example", false),
            ("amodels.example", false),
            ("xapi.example.com", false),
            ("api.example.com.evil.example", false),
            ("192.0.2.1", false),
        ] {
            assert_eq!(is_among(&labels.trusted, host), expected, "{host}");
        }
        for (host, expected) in [
            ("a.models.example", true),
            ("api.example.com", false),
            ("192.0.2.1", false),
        ] {
            let host: HostPart = host.parse().unwrap();
            assert_eq!(labels.is_of_model(&host), expected, "{host}");
        }
        labels.read_from("api.example.com");
        assert!(labels.state().untold.is_empty());
        assert!(!labels.gain("private", "again"));
        labels.read_from("example.org");
        labels.read_from("example.net");
        let told = [(UNTRUSTED.to_owned(), "example.org".to_owned())];
        assert_eq!(labels.state().untold, told);
        assert_eq!(
            labels.has(),
            BTreeSet::from(["private".to_owned(), UNTRUSTED.to_owned()])
        );
    }
}
