//! A run that goes on: what listens inside is looked for, and whoever speaks to it is answered.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_model::network::{FlowOrder, Listener, Published, PublishedPort};

use super::{FlowNews, Outside, State, Who};
use crate::approvals::Stopped;
use crate::control::{Answer, Control, Declined, Question};
use crate::doors;

/// From this port on the kernel hands out those that nobody has asked for (ip(7),
/// `ip_local_port_range`): who listens there seldom is for a person.
const HANDED_OUT: u16 = 32_768;

/// How long after it began a run can be spoken to: most are over by then.
const OPENS_AFTER: Duration = Duration::from_millis(500);

/// Who decides whether one more port is published, with these published already.
pub type Publisher<'a> = &'a dyn Fn(PublishedPort, &[Published]) -> Result<Published, Declined>;

/// What can be asked of a run while it goes on, and by whom that is decided.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Whether it has a network of its own, on which it is looked for what listens.
    pub has_network: bool,
    /// Opens the directory of the sockets at which runs are spoken to.
    pub directory: &'a dyn Fn() -> io::Result<OwnedFd>,
    /// Whether a port is published.
    pub decide: Publisher<'a>,
}

impl<'a> Outside<'a> {
    /// With what can be asked meanwhile.
    #[must_use]
    pub fn asked(mut self, live: Option<Live<'a>>) -> Self {
        self.live = live;
        self.opens_at = live.map(|_| Instant::now() + OPENS_AFTER);
        self
    }

    /// Does what there is to do, beside what carries.
    pub(super) fn attend_live(&mut self) {
        if let Some(listening) = &mut self.listening {
            let begun = listening.look();
            self.tell_listening(begun);
        }
        let is_due = self.opens_at.is_some_and(|at| at <= Instant::now());
        if self.control.is_none() && (is_due || self.approvals.is_asking()) {
            self.open_control();
        }
        self.attend_approvals();
        if let Some(mut control) = self.control.take() {
            control.attend(&mut |who, question| self.answer(who, question));
            self.control = Some(control);
        }
    }

    /// Most runs are over before they could be spoken to: they make no socket.
    fn open_control(&mut self) {
        let Some(live) = self.live.filter(|_| !self.is_unspoken) else {
            return;
        };
        match (live.directory)().and_then(|directory| Control::open(directory, live.run)) {
            Ok(control) => self.control = Some(control),
            // The run goes on as well without.
            Err(_) => self.is_unspoken = true,
        }
    }

    /// Keeps what a person is to be told of: not what they know already.
    fn tell_listening(&mut self, begun: Vec<Listener>) {
        let is_known = |one: &Listener| {
            let mut published = self.published.iter();
            one.port >= HANDED_OUT || published.any(|known| known.port.inside == one.port)
        };
        let new = begun.into_iter().filter(|one| !is_known(one));
        self.begun.extend(new);
    }

    fn answer(&mut self, who: Who, question: Question) -> Answer {
        match question {
            Question::Ports {} => {
                if let Some(listening) = &mut self.listening {
                    let begun = listening.look_now();
                    self.tell_listening(begun);
                }
                let listening = self.listening.as_ref();
                Answer::Ports {
                    listening: listening.map(|one| one.now()).unwrap_or_default(),
                    published: self.published.clone(),
                }
            }
            Question::Publish(port) => match self.publish(port) {
                Ok(published) => Answer::Published(published),
                Err(declined) => Answer::Refused(declined),
            },
            Question::Approvals {} => self.list_approvals(),
            Question::Approval { approval } => self.show_approval(approval),
            Question::Decide {
                approval,
                digest,
                decision,
            } => self.decide((approval, digest), decision, who),
            Question::Revoke { approval } => self.revoke(approval, who),
            Question::Stop {} => self.stop(Stopped {
                by: who,
                approval: None,
            }),
        }
    }

    /// Publishes one more port: decided, recorded, and only then taken.
    fn publish(&mut self, port: PublishedPort) -> Result<Published, Declined> {
        let over = || Declined {
            why: "its connections are not carried any more".to_owned(),
            advice: "start the run anew, with --publish".to_owned(),
        };
        let live = self.live.ok_or_else(over)?;
        let decided = (live.decide)(port, &self.published).inspect_err(|declined| {
            let why = &declined.why;
            self.is_unrecorded |= !(self.record)(&[FlowNews::Unpublished { port, why }]);
        });
        let published = decided?;
        if matches!(self.state, State::None) {
            return Err(over());
        }
        let mut listeners = doors::listen(port).map_err(|error| Declined {
            why: error.to_string(),
            advice: "atoll publish RUN PORT --to HOSTPORT takes another port of this host"
                .to_owned(),
        })?;
        if !self.recorded(&[FlowNews::Published(&published)]) {
            return Err(Declined {
                why: "it cannot be recorded".to_owned(),
                advice: "atoll ledger verify".to_owned(),
            });
        }
        match &mut self.state {
            State::None => {}
            State::Listening(waiting) => waiting.append(&mut listeners),
            State::Carrying { .. } => {
                let published = published.clone();
                self.tell(FlowOrder::Publish { published }, &listeners);
            }
        }
        self.published.push(published.clone());
        self.flows.published_later.push(published.clone());
        Ok(published)
    }
}
