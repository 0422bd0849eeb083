//! Labels of the data that the session has touched: gained while its connections go on, never lost.
//! A flow that gives a label waits until that is recorded.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_model::network::{Flow, FlowKind, HostPart};

use crate::Egress;
use crate::control_channel::ControlChannel;

/// The source of a label that another run of the session has gained.
const BESIDE: &str = "another run of its session";
/// The number of bytes read at once from the file of other runs' labels.
const BLOCK_BYTES: usize = 4 << 10;
/// The most that is read of it at all, bytes: its writer keeps to the same limit.
const BESIDE_BYTES_MAX: usize = 1 << 20;

/// The label of a session that has read data nobody vouches for.
pub(crate) const UNTRUSTED: &str = "untrusted";

/// The labels of a run, with those that are still to be recorded.
#[derive(Debug)]
pub(crate) struct Labels {
    /// Hosts whose answers are vouched for: names, or `*.` and a name.
    trusted: Vec<String>,
    /// Hosts of models among them, written the same way.
    models: Vec<String>,
    state: Mutex<State>,
    /// Held while labels are reported, so that no flow goes on with a label whose record is still
    /// under way.
    telling: tokio::sync::Mutex<()>,
    /// The labels that other runs of the session gain, where there can be any.
    beside: Option<Mutex<SessionLabels>>,
}

/// The labels that other runs of the session gain, read as they are written, one a line.
#[derive(Debug)]
struct SessionLabels {
    file: OwnedFd,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    bytes: usize,
    /// Set when a read has failed: labels missed then are unknown.
    is_lost: bool,
}

impl SessionLabels {
    /// Returns the labels that have come since the last read.
    fn read(&mut self) -> io::Result<Vec<String>> {
        if self.is_lost {
            return Err(io::Error::other("it could not be read before"));
        }
        let read = self.lines();
        self.is_lost = read.is_err();
        read
    }

    fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut block = [0; BLOCK_BYTES];
        loop {
            let got = rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut block))?;
            self.bytes += got;
            if self.bytes > BESIDE_BYTES_MAX {
                return Err(io::Error::other("it is too long"));
            }
            match block.get(..got) {
                Some([]) | None => break,
                Some(new) => self.begun.extend_from_slice(new),
            }
        }
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n');
        let whole: Vec<u8> = self.begun.drain(..whole.map_or(0, |end| end + 1)).collect();
        let text = String::from_utf8(whole).map_err(io::Error::other)?;
        let lines = text.lines().filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }
}

#[derive(Debug, Default)]
struct State {
    has: BTreeSet<String>,
    /// Labels that are not recorded yet, each with its source, in order.
    untold: VecDeque<(String, String)>,
}

impl Labels {
    /// Begins with the labels that the run starts with, which are recorded already.
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
            beside: None,
        }
    }

    /// Adds the labels that other runs of the session gain: a file that is read from its current
    /// offset onwards.
    pub(crate) fn beside(self, gained: Option<OwnedFd>) -> Self {
        let beside = gained.map(|file| SessionLabels {
            file,
            begun: Vec::new(),
            bytes: 0,
            is_lost: false,
        });
        Self {
            beside: beside.map(Mutex::new),
            ..self
        }
    }

    /// Reads the labels that other runs of the session have gained by now. Each is recorded as this
    /// run's too, by the next flow that goes on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn learn(&self) -> io::Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        // While it is held nobody decides by less than what was read.
        let mut beside = beside.lock().unwrap_or_else(PoisonError::into_inner);
        for label in beside.read()? {
            self.gain(&label, BESIDE);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the labels that the run has by now.
    pub(crate) fn has(&self) -> BTreeSet<String> {
        self.state().has.clone()
    }

    /// Adds a label, for the next flow that goes on to have recorded. Returns whether it is new.
    pub(crate) fn gain(&self, label: &str, by: &str) -> bool {
        let mut state = self.state();
        let is_new = !state.has.contains(label);
        if is_new {
            state.has.insert(label.to_owned());
            state.untold.push_back((label.to_owned(), by.to_owned()));
        }
        is_new
    }

    /// Returns whether a host is one of a model. An address never is.
    pub(crate) fn is_of_model(&self, host: &HostPart) -> bool {
        match host {
            HostPart::Name(name) => is_among(&self.models, name.as_str()),
            HostPart::Address(_) => false,
        }
    }

    /// Adds the label for reading a host's answer, unless the host is trusted.
    fn read_from(&self, host: &str) {
        if !is_among(&self.trusted, host) {
            self.gain(UNTRUSTED, host);
        }
    }

    /// Waits until all labels gained so far are on disk.
    ///
    /// Whoever reports them may be dropped while waiting, as with a connection that is reset: a
    /// label stays in the queue until it is on disk, so the next flow that goes on reports it
    /// again.
    async fn settle(&self, control: &ControlChannel) -> io::Result<()> {
        let _telling = self.telling.lock().await;
        loop {
            let first = self.state().untold.front().cloned();
            let Some((label, by)) = first else {
                return Ok(());
            };
            control.label(label, by).await?;
            self.state().untold.pop_front();
        }
    }
}

/// Returns whether a name is one of these hosts, or lies beneath one.
fn is_among(hosts: &[String], name: &str) -> bool {
    hosts.iter().any(|one| {
        let beneath = one.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        one == name || beneath
    })
}

impl Egress {
    /// Adds the labels that a flow gives, and waits until they are recorded, before the flow goes
    /// on.
    ///
    /// # Errors
    /// When the recording process is gone.
    pub async fn touch(&self, flow: &Flow) -> io::Result<()> {
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
        labels.settle(&self.control).await
    }

    /// Adds the label that a host's answer gives, and waits until it is recorded, before any of the
    /// answer is carried on.
    ///
    /// # Errors
    /// When the recording process is gone.
    pub(crate) async fn add_answer_label(&self, host: &HostPart) -> io::Result<()> {
        let Some(labels) = self.policies.labels() else {
            return Ok(());
        };
        labels.read_from(&host.to_string());
        labels.settle(&self.control).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use atoll_model::network::FlowOrder;
    use atoll_sys::{descriptor, socket};
    use tokio::time::timeout;

    use super::*;

    /// Returns a control channel, and its other end.
    fn channel() -> (ControlChannel, OwnedFd) {
        let (channel, far) = socket::pair().unwrap();
        descriptor::never_block(channel.as_fd()).unwrap();
        (ControlChannel::new(channel).unwrap(), far)
    }

    /// Confirms from the other end that these are on disk.
    fn record(far: &OwnedFd, id: u64) {
        let said = serde_json::to_vec(&FlowOrder::Recorded { id }).unwrap();
        socket::send(far.as_fd(), &said, &[]).unwrap();
    }

    /// A program that resets its connection ends the reporting task: the label is still waited for.
    #[tokio::test]
    async fn label_unrecorded_is_reported_again() {
        let (channel, far) = channel();
        let labels = Labels::new(BTreeSet::new(), Vec::new(), Vec::new());
        labels.gain("first", "example.org");
        labels.gain("second", "example.org");
        let soon = Duration::from_millis(20);
        // Whoever goes on waits, and is dropped; nobody has said that it is on disk.
        for _ in 0..3 {
            assert!(!labels.gain("first", "example.net"));
            assert!(timeout(soon, labels.settle(&channel)).await.is_err());
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
                settled = labels.settle(&channel) => settled,
                () = channel.receive_orders(|_, _| (), |_| (), |_, _| false, |_| true) => panic!("it is heard of"),
                () = further => panic!("it waits"),
            }
        };
        let settled = timeout(Duration::from_secs(60), settled).await;
        settled.unwrap().unwrap();
        assert!(labels.state().untold.is_empty());
    }

    /// A label that another run of the session gains counts here from then on, and is reported as
    /// gained.
    #[test]
    fn session_labels_of_other_run_are_read() {
        let path = std::env::temp_dir().join(format!("atoll-gained-{}", std::process::id()));
        std::fs::write(&path, "private\n").unwrap();
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        let labels = Labels::new(BTreeSet::new(), Vec::new(), Vec::new());
        let labels = labels.beside(Some(File::open(&path).unwrap().into()));
        let has = |labels: &Labels| labels.has().into_iter().collect::<Vec<_>>().join(" ");
        labels.learn().unwrap();
        assert_eq!(has(&labels), "private");
        // A line counts once it is whole.
        other.write_all(b"web\nunt").unwrap();
        labels.learn().unwrap();
        assert_eq!(has(&labels), "private web");
        other.write_all(b"rusted\n").unwrap();
        labels.learn().unwrap();
        assert_eq!(has(&labels), "private untrusted web");
        let told: Vec<_> = labels.state().untold.iter().cloned().collect();
        let expected =
            ["private", "web", "untrusted"].map(|label| (label.to_owned(), BESIDE.to_owned()));
        assert_eq!(told, expected);
        // What cannot be read denies from then on: nobody knows what was missed.
        other.write_all(b"\xff\n").unwrap();
        labels.learn().unwrap_err();
        other.write_all(b"more\n").unwrap();
        labels.learn().unwrap_err();
        std::fs::remove_file(&path).unwrap();
    }

    /// A label that cannot be recorded lets no flow on, now and later.
    #[tokio::test]
    async fn label_unrecordable_stops_flow() {
        let (channel, far) = channel();
        let labels = Labels::new(BTreeSet::new(), Vec::new(), Vec::new());
        labels.gain("first", "example.org");
        drop(far);
        let told = async {
            let (settled, ()) = tokio::join!(labels.settle(&channel), channel.send());
            settled
        };
        let told = timeout(Duration::from_secs(60), told).await;
        told.unwrap().unwrap_err();
        labels.settle(&channel).await.unwrap_err();
    }

    #[test]
    fn label_is_gained_once_and_trust_needs_whole_name() {
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
