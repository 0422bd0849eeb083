//! The smallest change that would have allowed something. Each is decided on before it is
//! suggested: a change that does not allow it is no suggestion.

use atoll_cedar::edited::{LayerFiles, excepting, layer_of, with, without};
use atoll_cedar::{Action, Case, Deciding, Decision, Effect, Layer};
use atoll_model::network::{Destination, Meant, NetworkRule, Request, Scheme, Target};
use atoll_policy::{Requested, network_entry};

use super::asking::Asking;
use super::verdict::{Deciders, OfRules, Verdict, host};

/// The most steps of a change: more is another profile.
const STEPS_MAX: usize = 12;
const LEVELS: [&str; 4] = ["low", "medium", "high", "full"];
const MODES: [&str; 2] = ["layered", "permissive"];

/// One change, of one or more steps that are all needed.
pub struct Change {
    /// The steps.
    pub steps: Vec<Step>,
    /// The verdict with this change.
    pub effect: Effect,
}

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Approval by somebody who is asked about this action.
    Person(Option<Action>),
    /// An option that trusts further.
    Trust {
        /// The option.
        option: &'static str,
        /// Its value.
        value: &'static str,
    },
    /// A rule of the network.
    Allow {
        /// The rule as an option takes it, where it is one.
        rule: Option<String>,
        /// The entry of the list.
        entry: String,
    },
    /// A port is published.
    Publish(String),
    /// A rule that denies is taken out.
    Undeny(String),
    /// A policy has an exception.
    Except {
        /// The policy.
        policy: Deciding,
        /// The layer it belongs to, if known.
        layer: Option<Layer>,
        /// The condition of the exception.
        condition: String,
    },
    /// A policy is taken out.
    Drop {
        /// The policy.
        policy: Deciding,
        /// The layer it belongs to, if known.
        layer: Option<Layer>,
    },
    /// A policy more.
    Permit {
        /// The file.
        file: String,
        /// The layer it belongs to, if known.
        layer: Option<Layer>,
        /// The policy.
        policy: String,
    },
}

/// The way in which forbidding policies are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Except,
    Drop,
}

/// Returns the changes that would allow it, the smallest first; none if it is allowed.
pub fn that_allow(asking: &Asking<'_>) -> Vec<Change> {
    let mut found = Vec::new();
    match asking.verdict.effect {
        Effect::Allow => return found,
        Effect::Ask => {
            let steps = vec![Step::Person(Action::named(&asking.case.action))];
            found.push(Change {
                steps,
                effect: Effect::Allow,
            });
            found.extend(trusted(asking, "--mode", &MODES));
            return found;
        }
        Effect::Deny => {}
    }
    if let Some(change) = repaired(asking, &asking.requested, Way::Except) {
        found.push(change);
        found.extend(dropped(asking));
        return found;
    }
    if let Some(change) = repaired(asking, &asking.requested, Way::Drop) {
        found.push(change);
        return found;
    }
    found.extend(trusted(asking, "--trust", &LEVELS));
    found.extend(trusted(asking, "--mode", &MODES));
    found
}

/// Returns the change that removes policies, if some forbid it.
fn dropped(asking: &Asking<'_>) -> Option<Change> {
    let change = repaired(asking, &asking.requested, Way::Drop)?;
    let is_drop = |step: &Step| matches!(step, Step::Drop { .. });
    change.steps.iter().any(is_drop).then_some(change)
}

/// Finds the least further trust that leads to a change.
fn trusted(asking: &Asking<'_>, option: &'static str, values: &[&'static str]) -> Option<Change> {
    asking.sources?;
    values.iter().find_map(|value| {
        let mut requested = asking.requested.clone();
        let stated = match option {
            "--trust" => &mut requested.trust,
            _ => &mut requested.mode,
        };
        *stated = Some((*value).to_owned());
        let mut change = repaired(asking, &requested, Way::Except)?;
        change.steps.insert(0, Step::Trust { option, value });
        Some(change)
    })
}

/// The change so far.
struct Repair<'a> {
    asking: &'a Asking<'a>,
    way: Way,
    requested: Requested,
    undenied: Vec<NetworkRule>,
    files: Option<LayerFiles>,
    steps: Vec<Step>,
}

/// Takes one obstacle after the other away: each of them denies by itself, so each step is needed.
fn repaired(asking: &Asking<'_>, requested: &Requested, way: Way) -> Option<Change> {
    let mut repair = Repair {
        asking,
        way,
        requested: requested.clone(),
        undenied: Vec::new(),
        files: None,
        steps: Vec::new(),
    };
    for _ in 0..=STEPS_MAX {
        let deciders = repair.deciders()?;
        let verdict = deciders.decide_after(&asking.case, &asking.given_up).ok()?;
        let is_done = match (asking.verdict.effect, verdict.effect) {
            (_, Effect::Allow) | (Effect::Deny, Effect::Ask) => true,
            (_, Effect::Ask | Effect::Deny) => false,
        };
        if is_done {
            return Some(Change {
                steps: repair.steps,
                effect: verdict.effect,
            });
        }
        repair.step(&verdict, &deciders)?;
    }
    None
}

impl Repair<'_> {
    fn deciders(&self) -> Option<Deciders> {
        let own = match self.asking.sources {
            Some(sources) => {
                let made = sources.deciders(&self.requested, &self.asking.program);
                made.ok()?
            }
            None => Deciders::of_files(self.asking.deciders.files.clone()).ok()?,
        };
        let mut network = own.network.clone();
        let is_left = |rule: &NetworkRule| !self.undenied.contains(rule);
        network.deny.retain(is_left);
        let own = own.with_network(network)?;
        match &self.files {
            Some(files) => own.with_files(files.clone()),
            None => Some(own),
        }
    }

    /// Takes the first obstacle away; none where nothing does.
    fn step(&mut self, verdict: &Verdict, deciders: &Deciders) -> Option<()> {
        match &verdict.of_rules {
            OfRules::Unasked | OfRules::Allowed(_) => {}
            OfRules::Asked(_) if verdict.effect == Effect::Deny => {}
            OfRules::Asked(_) | OfRules::Never(_) => return None,
            OfRules::Denied(rule) => {
                self.undenied.push(rule.clone());
                self.steps.push(Step::Undeny(rule.told()));
                return Some(());
            }
            OfRules::Closed(_) => return self.open(),
        }
        let is_it = |one: &&(Action, Decision)| one.1.effect == Effect::Deny;
        let (action, decision) = verdict.of_policies.iter().find(is_it)?;
        if !decision.errors.is_empty() || decision.is_unasked {
            return None;
        }
        let asked = part(&self.asking.case, *action);
        let files = self.files.clone();
        let files = files.unwrap_or_else(|| deciders.files.clone());
        let (files, step) = match (decision.deciding.first(), decision.others.first()) {
            (Some(policy), _) if policy.is_of_level() || policy.is_of_purpose() => return None,
            (Some(policy), _) => self.changed(&files, policy, &asked, deciders)?,
            (None, Some(other)) if other.is_of_level() => return None,
            (None, Some(other)) => {
                let policy = permit(&asked)?;
                let (file, layer) = (other.file.to_string(), layer_of(&files, other));
                let more = with(&files, &file, &policy)?;
                (
                    more,
                    Step::Permit {
                        file,
                        layer,
                        policy,
                    },
                )
            }
            (None, None) => return None,
        };
        self.files = Some(files);
        self.steps.push(step);
        Some(())
    }

    fn changed(
        &self,
        files: &LayerFiles,
        policy: &Deciding,
        asked: &Case,
        deciders: &Deciders,
    ) -> Option<(LayerFiles, Step)> {
        let layer = layer_of(files, policy);
        if self.way == Way::Drop {
            let policy = policy.clone();
            return Some((without(files, &policy)?, Step::Drop { policy, layer }));
        }
        conditions(asked).into_iter().find_map(|condition| {
            let changed = excepting(files, policy, &condition)?;
            // A condition that this policy cannot have is a mistake.
            let _ = deciders.with_files(changed.clone())?;
            let policy = policy.clone();
            Some((
                changed,
                Step::Except {
                    policy,
                    layer,
                    condition,
                },
            ))
        })
    }

    /// Adds a line of a profile, once.
    fn open(&mut self) -> Option<()> {
        self.asking.sources?;
        let is_open = |step: &Step| matches!(step, Step::Allow { .. } | Step::Publish(_));
        if self.steps.iter().any(is_open) {
            return None;
        }
        let case = &self.asking.case;
        if case.action == Action::Publish.name() {
            self.requested.publish.push(case.resource.clone());
            self.steps.push(Step::Publish(case.resource.clone()));
            return Some(());
        }
        let meant = rule(case)?;
        let entry = network_entry(&meant);
        let rule = meant.as_text();
        self.requested.allow.push(rule.clone()?);
        self.steps.push(Step::Allow { rule, entry });
        Some(())
    }
}

/// Returns the rule that allows it.
fn rule(case: &Case) -> Option<Meant> {
    let host = host(case).ok()?;
    if no_host(&host.to_string()).is_some() {
        return None;
    }
    let scheme = match case.scheme.as_deref() {
        Some("http") => Scheme::Http,
        Some(_) | None => Scheme::Https,
    };
    let port = case.port.unwrap_or(scheme.port());
    if case.action != Action::Request.name() {
        return Some(Destination::of(&host, port).into());
    }
    let target = Target::parse(case.path.as_deref().unwrap_or("/")).ok()?;
    let request = Request {
        host: &host,
        port,
        scheme,
        method: case.method.as_deref().unwrap_or("GET"),
        target: &target,
    };
    Some(request.as_rule())
}

/// Returns the question for an action that this one needs, without the members that are not of that
/// action.
fn part(case: &Case, action: Action) -> Case {
    if case.action == action.name() {
        return case.clone();
    }
    Case {
        action: action.name().to_owned(),
        scheme: None,
        method: None,
        path: None,
        body: false,
        look: None,
        port: case.port.filter(|_| action == Action::Connect),
        ..case.clone()
    }
}

/// Returns the policy that permits it.
fn permit(asked: &Case) -> Option<String> {
    let mut permit = None;
    let nobody = atoll_cedar::Layers::default();
    let put = asked.ask(|question| {
        permit = question.asked.permit();
        nobody.authorize(question)
    });
    put.ok().and(permit)
}

/// Returns conditions that hold for this question only, the narrowest first.
fn conditions(asked: &Case) -> Vec<String> {
    let Some(permit) = permit(asked) else {
        return Vec::new();
    };
    let resource = permit
        .split_once(", resource ")
        .and_then(|(_, rest)| rest.strip_suffix(");"));
    let Some(resource) = resource else {
        return Vec::new();
    };
    let one = format!(
        "action == Action::\"{}\" && resource {resource}",
        asked.action
    );
    let mut all = Vec::new();
    if asked.action == Action::Request.name() {
        let method = asked.method.as_deref().unwrap_or("GET");
        let target = Target::parse(asked.path.as_deref().unwrap_or("/"));
        if let Ok(target) = target {
            let path = target.path();
            all.push(format!(
                "{one} && context.method == {method:?} && context.path == {path:?}"
            ));
        }
    }
    all.push(one);
    all
}

/// Returns the use of a name beneath `arpa` that is no host's: RFC 3172, of addresses RFC 1035, 3.5
/// and RFC 3596, 2.5. Names beneath `home.arpa` are of a network at home (RFC 8375).
pub fn no_host(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_in = |zone: &str| {
        let front = name.strip_suffix(zone);
        front.is_some_and(|front| front.is_empty() || front.ends_with('.'))
    };
    if !is_in("arpa") || is_in("home.arpa") {
        return None;
    }
    match is_in("in-addr.arpa") || is_in("ip6.arpa") {
        true => Some("the name that an address has"),
        false => Some("what the network says of itself"),
    }
}
