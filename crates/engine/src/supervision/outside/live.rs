//! The control of a running sandbox: its listeners are watched, and callers of the control
//! socket answered.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use atoll_model::network::{Listener, Published, PublishedPort, Scope};
use atoll_model::{PublishPort, RunId, Served};
use atoll_sandbox::{
    Decision, Declined, Listening, PortAgreed, SecondApproval, Settled, SettledOf, Stopped, Who,
};

use super::publishing::{Effect, Publishing, asked};
use super::{CallGate, ExecGate, FlowEvent, Outside};
use crate::supervision::approvals::{DualControlRule, UNHEARD};
use crate::supervision::control::{Answer, Control, Others, Question, Standing};
use crate::supervision::owner::{OwnerAsk, OwnerEnd};

/// The first port that the kernel assigns by itself (ip(7), `ip_local_port_range`): a listener
/// there is seldom meant for a person.
const HANDED_OUT: u16 = 32_768;

/// The time after which a run opens its control socket: most have ended by then.
const OPENS_AFTER: Duration = Duration::from_millis(500);

/// The time after which a failed attempt is repeated.
const OPENS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The most notices about dual control that wait.
const UNTOLD_MAX: usize = 16;

/// The most times that other approvers can be the first to approve a port: each time is an
/// event.
const YESES_OF_OTHERS_MAX: u32 = 64;

/// The controls of a running sandbox, and what decides about them.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// The run.
    pub run: &'a RunId,
    /// True if it has a network of its own, whose listeners are watched.
    pub has_network: bool,
    /// Opens the directory of the control sockets.
    pub directory: &'a dyn Fn() -> io::Result<OwnedFd>,
    /// Decides about actions on it, and records them.
    pub gate: &'a dyn CallGate,
    /// The rule for approving lasting rights.
    pub widening: &'a DualControlRule,
    /// Takes over whom a sandbox made ahead was given to.
    pub assign: &'a dyn Fn(Box<Served>),
    /// Decides about execs, and records them.
    pub execs: &'a dyn ExecGate,
    /// The requests of the program that holds the sandbox, for one that lives: its control socket is
    /// open from the beginning.
    pub owner: Option<&'a OwnerEnd>,
}

/// A port with the first of two approvals.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgreedPort {
    pub(super) port: PublishedPort,
    pub(super) by: Who,
    pub(super) until: Instant,
}

/// A pending notice about dual control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// No other approver can be heard.
    Unheard,
    /// The request with this number has its first approval.
    Question(u32),
    /// The port has its first approval.
    Port,
    /// The second person has decided.
    Settled(Box<Settled>),
}

impl<'a> Outside<'a> {
    /// Adds the controls. The name for other approvers is taken now: once the program runs, it
    /// could take the name.
    #[must_use]
    pub fn asked(mut self, live: Option<Live<'a>>) -> Self {
        if let Some(live) = live {
            self.approvals.widened_by(live.widening.clone());
            self.expect_others(live);
        }
        self.live = live;
        self.opens_at = live.map(|live| match live.owner.is_some() {
            true => Instant::now(),
            false => Instant::now() + OPENS_AFTER,
        });
        self
    }

    fn expect_others(&mut self, live: Live<'_>) {
        let approvers = live.widening.approvers();
        if approvers.is_empty() {
            return;
        }
        match Others::open(live.run, approvers) {
            Ok(others) => self.others = Some(others),
            Err(_) => {
                self.approvals.widened_by(DualControlRule::Unheard {});
                self.waits_for(Waits::Unheard);
                self.recorded(&[FlowEvent::Unheard { why: UNHEARD }]);
            }
        }
    }

    /// Does what there is to do besides the egress process.
    pub(super) fn attend_live(&mut self) {
        self.drop_freezers();
        if let Some(listening) = &mut self.listening {
            let begun = listening.look();
            self.tell_listening(begun);
        }
        let is_due = self.opens_at.is_some_and(|at| at <= Instant::now());
        let is_wanted = self.approvals.is_asking() && !self.is_unspoken;
        if self.control.is_none() && (is_due || is_wanted) {
            self.open_control();
        }
        self.attend_approvals();
        self.attend_owner();
        if let Some(mut control) = self.control.take() {
            let staying = control.attend(&mut |(who, standing), question| match standing {
                Standing::Own => self.answer(who, question),
                Standing::Other => self.answer_other(who, question),
            });
            self.control = Some(control);
            staying
                .into_iter()
                .for_each(|caller| self.keep_caller(caller));
        }
    }

    /// Does what the program that holds the sandbox asks for.
    fn attend_owner(&mut self) {
        let owner = self.live.and_then(|live| live.owner);
        for ask in owner.map(OwnerEnd::take).unwrap_or_default() {
            match ask {
                OwnerAsk::Question(question, to) => {
                    // Who does not wait any more gets no answer.
                    let _ = to.send(self.answer(Who::own(), question));
                }
                OwnerAsk::Exec(caller) => self.ask_exec(*caller),
                OwnerAsk::Network(network, to) => {
                    let _ = to.send(self.replace(network));
                }
                OwnerAsk::Assign(served, to) => {
                    let _ = self.live.inspect(|live| (live.assign)(served));
                    let _ = to.send(());
                }
                OwnerAsk::Freeze(stream) => self.freeze(stream, None),
                OwnerAsk::Files(to) => self.serve_files(move |served| {
                    let _ = to.send(served);
                }),
            }
        }
    }

    /// Opens the control socket; not earlier than needed, since most runs end before.
    fn open_control(&mut self) {
        let Some(live) = self.live else {
            return;
        };
        match (live.directory)().and_then(|directory| Control::open(directory, live.run)) {
            Ok(control) => self.control = Some(control.hearing(self.others.take())),
            // What is in the way now need not stay: nobody could stop the run otherwise.
            Err(_) => {
                self.is_unspoken = true;
                self.opens_at = Some(Instant::now() + OPENS_AGAIN_AFTER);
            }
        }
    }

    /// Queues new listeners for the person, without those already known.
    fn tell_listening(&mut self, begun: Vec<Listener>) {
        let is_known = |one: &Listener| {
            let mut published = self.published.iter();
            one.port >= HANDED_OUT || published.any(|known| known.port.inside == one.port)
        };
        let new = begun.into_iter().filter(|one| !is_known(one));
        self.begun.extend(new);
    }

    /// Answers an approver other than the run's own user: they may see what waits, approve what
    /// needs two persons, and deny.
    fn answer_other(&mut self, who: Who, question: Question) -> Answer {
        let advice = match &question {
            Question::Approvals {} | Question::Approval { .. } | Question::Publish(_) => None,
            Question::Decide {
                approval, decision, ..
            } => match decision {
                Decision::Grant {
                    scope: Scope::Once, ..
                } if !self.approvals.goes_on(*approval) => {
                    Some("a single call is theirs alone; you: --run or --for TIME")
                }
                Decision::Grant { .. } | Decision::Deny {} => None,
                Decision::Stop {} => {
                    Some("atoll approvals deny QUESTION --of USER, without --stop")
                }
            },
            Question::Ports {}
            | Question::Reach { .. }
            | Question::Revoke { .. }
            | Question::Restrict(_)
            | Question::Compare { .. }
            | Question::Reload { .. }
            | Question::Exec { .. }
            | Question::Freeze {}
            | Question::Stop {} => Some("what lasts (--run, --for) and ports take a second person"),
        };
        match advice {
            None => self.answer(who, question),
            Some(advice) => Answer::Refused(Declined {
                why: "whose run it is says that alone".to_owned(),
                advice: advice.to_owned(),
            }),
        }
    }

    pub(super) fn answer(&mut self, who: Who, question: Question) -> Answer {
        match question {
            Question::Ports {} => {
                if let Some(listening) = &mut self.listening {
                    let begun = listening.look_now();
                    self.tell_listening(begun);
                }
                let listening = match (&self.listening, self.launcher) {
                    (Some(listening), _) => listening.now(),
                    // Without a network nobody is told of listeners; whoever asks is.
                    (None, Some(launcher)) => Listening::of(launcher, &[]).look_now(),
                    (None, None) => Vec::new(),
                };
                Answer::Ports {
                    listening,
                    published: self.published.clone(),
                }
            }
            Question::Publish(port) => {
                let answer = self.publish_by(who, port);
                answer.unwrap_or_else(Answer::Refused)
            }
            Question::Reach { port } => {
                let answer = self.reach(port, who);
                answer.map_or_else(Answer::Refused, |()| Answer::Done {})
            }
            Question::Approvals {} => self.list_approvals(),
            Question::Approval { approval } => self.show_approval(approval),
            Question::Decide {
                approval,
                digest,
                decision,
            } => self.decide((approval, digest), decision, who),
            Question::Revoke { approval } => self.revoke(approval, who),
            Question::Restrict(said) => self.give_up(&said, who),
            Question::Compare { at } => self.compare(at),
            // Nothing more can be allowed than before where the version that is read is one that
            // was proven to be no wider.
            Question::Reload { only: None }
                if *self.approvals.widening() != DualControlRule::OnePerson =>
            {
                Answer::Refused(Declined {
                    why: "policies that may allow more take two persons in this run".to_owned(),
                    advice: "atoll policy reload --only-tightening, or start the run anew"
                        .to_owned(),
                })
            }
            Question::Reload { only } => self.reload(who, only.as_ref()),
            Question::Stop {} => self.stop(Stopped {
                by: who,
                approval: None,
            }),
            // Taken before, with their connections.
            Question::Exec { .. } | Question::Freeze {} => Answer::Refused(over()),
        }
    }

    /// Publishes one more port if all necessary approvals are given; otherwise records the
    /// first.
    pub(super) fn publish_by(&mut self, by: Who, port: PublishedPort) -> Result<Answer, Declined> {
        let now = Instant::now();
        let waiting = self.agreed_port.filter(|one| now < one.until);
        if let Some(other) = waiting.filter(|one| one.port != port) {
            let inside = other.port.inside;
            let left = other.until.saturating_duration_since(now).as_secs();
            return Err(Declined {
                why: format!("port {inside} waits for a second person, for {left} s more"),
                advice: format!("one port at a time: publish {inside} first, or wait that long"),
            });
        }
        let agreed = waiting;
        let first = agreed.map(|one| one.by);
        let suffices = self.approvals.widening().suffices(first, by);
        let declined = |why| Declined {
            why,
            advice: "start the run anew, with --publish".to_owned(),
        };
        if suffices.map_err(declined)? {
            self.agreed_port = None;
            let published = self.publish(asked(port, by, first), Effect::Open);
            self.settled_port((port, first), by, &published);
            return published.map(Answer::Published);
        }
        self.begin_yes(by)?;
        let asked = PublishPort {
            waits_for_second: true,
            ..asked(port, by, None)
        };
        self.publish(asked, Effect::Wait { by })?;
        self.waits_for(Waits::Port);
        let second = self.approvals.widening().second(Some(by));
        Ok(second.map_or(Answer::Done {}, Answer::Agreed))
    }

    /// Counts a first approval of a port by another approver: their number in a run is limited,
    /// since each is recorded.
    fn begin_yes(&mut self, by: Who) -> Result<(), Declined> {
        if self.approvals.widening().is_owner(by) {
            return Ok(());
        }
        if self.yeses_of_others >= YESES_OF_OTHERS_MAX {
            return Err(Declined {
                why: format!(
                    "others have been the first to say yes to a port {YESES_OF_OTHERS_MAX} times \
                     in this run"
                ),
                advice: "whose run it is says yes first: atoll publish RUN PORT".to_owned(),
            });
        }
        self.yeses_of_others = self.yeses_of_others.saturating_add(1);
        Ok(())
    }

    /// Queues the notice of what came of the second approval of a port.
    fn settled_port(
        &mut self,
        (port, first): (PublishedPort, Option<Who>),
        by: Who,
        published: &Result<Published, Declined>,
    ) {
        let Some(first) = first else {
            return;
        };
        let refused = published.as_ref().err().map(|declined| &declined.why);
        let of = SettledOf::Port {
            port,
            refused: refused.cloned(),
        };
        self.waits_for(Waits::Settled(Box::new(Settled { first, by, of })));
    }

    /// Returns the port that waits for a second approval.
    pub(super) fn waiting_port(&self) -> Option<PortAgreed> {
        let AgreedPort { port, by, until } = self.agreed_port?;
        let left = until.checked_duration_since(Instant::now())?;
        Some(PortAgreed {
            port,
            by,
            second: self.approvals.widening().second(Some(by))?,
            left_seconds: left.as_secs(),
        })
    }

    /// Queues a notice; of too many only the latest are kept.
    pub(super) fn waits_for(&mut self, one: Waits) {
        self.of_two.retain(|other| *other != one);
        let further = self.of_two.len().saturating_sub(UNTOLD_MAX - 1);
        self.of_two.drain(..further);
        self.of_two.push(one);
    }

    /// Takes the due notices about dual control that still apply.
    pub(super) fn tell_of_two(&mut self) -> Vec<SecondApproval> {
        if self.of_two.is_empty() {
            return Vec::new();
        }
        let waits = std::mem::take(&mut self.of_two);
        let pending = self.approvals.pending(Instant::now());
        let mut told = Vec::new();
        for one in waits {
            told.extend(match one {
                Waits::Unheard => Some(SecondApproval::Unheard),
                Waits::Question(number) => {
                    let mut pending = pending.iter();
                    let it = pending.find(|it| it.approval == number && it.agreed.is_some());
                    it.map(|it| SecondApproval::Question(Box::new(it.clone())))
                }
                Waits::Port => self.waiting_port().map(SecondApproval::Port),
                Waits::Settled(settled) => Some(SecondApproval::Settled(settled)),
            });
        }
        told
    }

    /// Publishes one more port, or takes note of its first approval: decided, recorded, and only
    /// then in effect.
    fn publish(&mut self, asked: PublishPort, effect: Effect) -> Result<Published, Declined> {
        let live = self.live.ok_or_else(over)?;
        let already = self.published.clone();
        let mut publishing = Publishing {
            outside: self,
            port: asked.port,
            effect,
            listeners: Vec::new(),
            published: None,
        };
        let decided = live.gate.publish(asked, &already, &mut publishing);
        let published = publishing.published;
        self.recorded(&[]);
        decided.and(published.ok_or_else(over))
    }

    /// Lets callers of a server reach a port: decided and recorded, the first time.
    fn reach(&mut self, port: u16, by: Who) -> Result<(), Declined> {
        let port = PublishedPort {
            outside: port,
            inside: port,
        };
        if self.published.iter().any(|one| one.port == port) {
            return Ok(());
        }
        self.publish(asked(port, by, None), Effect::Reach).map(drop)
    }
}

pub(super) fn over() -> Declined {
    Declined {
        why: "its connections are not carried any more".to_owned(),
        advice: "start the run anew, with --publish".to_owned(),
    }
}
