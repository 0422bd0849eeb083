//! The verdict of rules and policies together on one question, without any effect.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::IpAddr;

use atoll_cedar::edited::LayerFiles;
use atoll_cedar::{Action, Case, Decision, Effect, Known, Layers};
use atoll_model::network::{
    GivenUps, HostName, HostPart, Look, Network, NetworkRule, PublishedPort, Request, Scheme,
    Target, Unreachable,
};
use atoll_policy::{HostFacts, Requested, Rules};

use super::past::why_denied;
use crate::configuration::{self, Places, PolicyFiles};
use crate::failure::{Doing, Failure};

/// The approver that can be asked.
const PERSON: &str = "person";

/// The sources of rules and policies, read once.
pub struct Sources {
    files: PolicyFiles,
    host: HostFacts,
}

impl Sources {
    /// Reads the sources that count in a directory.
    pub fn read(directory: &std::path::Path) -> Result<Self, Failure> {
        let places = Places::read()?;
        Ok(Self {
            files: PolicyFiles::read(&places, Some(directory))?,
            host: configuration::host_facts(&places)?,
        })
    }

    /// Compiles the rules of a request, for a program.
    pub fn deciders(&self, requested: &Requested, program: &OsStr) -> Result<Deciders, Failure> {
        let rules = self.files.compile(requested, program, &self.host);
        let rules = rules.map_err(|error| {
            Failure::new("the rules are invalid")
                .because(&error)
                .advise(error)
        })?;
        let files = rules.policy_files().to_vec();
        Ok(Deciders {
            layers: compiled(&files)?,
            network: rules.network(),
            rules: Some(rules),
            files,
        })
    }
}

fn compiled(files: &LayerFiles) -> Result<Layers, Failure> {
    Layers::compile(files, &Known::default()).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Failure::new("the policies have mistakes")
            .because(lines.join("\n"))
            .advise("atoll policy check FILE tells all of them")
    })
}

/// The deciders: a profile's rules, and policies.
pub struct Deciders {
    /// `None` if only policies are asked.
    pub rules: Option<Rules>,
    /// The rules of the network.
    pub network: Network,
    /// The policy files.
    pub files: LayerFiles,
    layers: Layers,
}

/// The verdict of a profile's rules.
#[derive(Clone, Debug)]
pub enum OfRules {
    /// Not asked: the action is decided by the boundary, or no profile was named.
    Unasked,
    /// Allowed, by this rule if one is named.
    Allowed(Option<String>),
    /// Approval required by this rule.
    Asked(NetworkRule),
    /// This rule denies it.
    Denied(NetworkRule),
    /// Denied since nothing in the profile allows it, for this reason.
    Closed(String),
    /// Denied for this reason, whatever a profile says.
    Never(String),
}

/// The verdict, with those of rules and policies.
#[derive(Debug)]
pub struct Verdict {
    /// The effect.
    pub effect: Effect,
    /// The verdict of rules.
    pub of_rules: OfRules,
    /// The verdicts of policies on it and on the actions it needs: a request needs its connection,
    /// and that its name.
    pub of_policies: Vec<(Action, Decision)>,
}

impl Verdict {
    fn new(of_rules: OfRules, of_policies: Vec<(Action, Decision)>) -> Self {
        let by_rules = match &of_rules {
            OfRules::Unasked | OfRules::Allowed(_) => Effect::Allow,
            OfRules::Asked(_) => Effect::Ask,
            OfRules::Denied(_) | OfRules::Closed(_) | OfRules::Never(_) => Effect::Deny,
        };
        let all = of_policies.iter().map(|(_, decision)| decision.effect);
        let effect = all.chain([by_rules]).max_by_key(|effect| rank(*effect));
        Self {
            effect: effect.unwrap_or(Effect::Deny),
            of_rules,
            of_policies,
        }
    }

    /// Returns the policy decisions that are as strict as the whole verdict.
    pub fn deciding(&self) -> impl Iterator<Item = &(Action, Decision)> {
        let is_it = |one: &&(Action, Decision)| one.1.effect == self.effect;
        self.of_policies.iter().filter(is_it)
    }
}

/// Returns the strictness of an effect, for comparison.
pub fn rank(effect: Effect) -> u8 {
    match effect {
        Effect::Allow => 0,
        Effect::Ask => 1,
        Effect::Deny => 2,
    }
}

impl Deciders {
    /// Policies alone.
    pub fn of_files(files: LayerFiles) -> Result<Self, Failure> {
        Ok(Self {
            layers: compiled(&files)?,
            rules: None,
            network: Network::default(),
            files,
        })
    }

    /// Returns the same rules with other policies; `None` if these have mistakes.
    pub fn with_files(&self, files: LayerFiles) -> Option<Self> {
        Some(Self {
            layers: compiled(&files).ok()?,
            rules: self.rules.clone(),
            network: self.network.clone(),
            files,
        })
    }

    /// Returns these deciders with other network rules.
    pub fn with_network(&self, network: Network) -> Option<Self> {
        Some(Self {
            layers: compiled(&self.files).ok()?,
            rules: self.rules.clone(),
            network,
            files: self.files.clone(),
        })
    }

    /// Returns whether a policy may read the query of a request.
    pub fn read_queries(&self) -> bool {
        let mut all = self.files.iter().flat_map(|(_, files)| files);
        // Behind an escape any name can stand.
        all.any(|file| {
            let text = String::from_utf8_lossy(&file.content);
            text.contains("query") || text.contains('\\')
        })
    }

    /// Decides for a run with dropped rights, which come before everything else.
    ///
    /// # Errors
    /// When a part of the question cannot be decided.
    pub fn decide_after(&self, case: &Case, given_up: &GivenUps) -> Result<Verdict, String> {
        let verdict = self.decide(case)?;
        Ok(match why_denied(given_up, case) {
            Some(why) => Verdict::new(OfRules::Never(why), verdict.of_policies),
            None => verdict,
        })
    }

    /// Decides a question by rules and policies. The facts stated of a run are those that these
    /// rules state.
    ///
    /// # Errors
    /// When a part of the question cannot be decided.
    pub fn decide(&self, case: &Case) -> Result<Verdict, String> {
        let mut case = case.clone();
        if let Some(rules) = &self.rules {
            rules.state(&mut case);
        }
        // What is not of its action is a mistake, before anything is left out of it.
        let whole = self.ask(&case)?;
        let action = Action::named(&case.action).ok_or("no such action")?;
        match action {
            Action::Request => self.request(&case),
            Action::Connect => self.connect(&case),
            Action::Resolve => {
                let of_rules = match (&self.rules, HostName::parse(&case.resource)) {
                    (Some(_), Ok(name)) => of(self.network.name(&name)),
                    (Some(_), Err(_)) | (None, _) => OfRules::Unasked,
                };
                Ok(Verdict::new(of_rules, vec![(action, whole)]))
            }
            Action::UseCredential => {
                Ok(Verdict::new(self.credential(&case), vec![(action, whole)]))
            }
            Action::Publish => Ok(Verdict::new(self.publish(&case), vec![(action, whole)])),
            Action::Run
            | Action::Read
            | Action::Write
            | Action::Promote
            | Action::Restore
            | Action::Exec
            | Action::Call
            | Action::Escalate
            | Action::Administer => Ok(Verdict::new(OfRules::Unasked, vec![(action, whole)])),
        }
    }

    fn ask(&self, case: &Case) -> Result<Decision, String> {
        let mut decision = case.ask(|question| self.layers.authorize(question))?;
        let mut whom = decision.obligations.approve.iter();
        if decision.effect == Effect::Ask
            && let Some(other) = whom.find(|one| *one != PERSON)
        {
            let why = format!("{other:?} cannot be asked here, which denies");
            decision.errors.push(why);
            decision.effect = Effect::Deny;
        }
        Ok(decision)
    }

    fn connect(&self, case: &Case) -> Result<Verdict, String> {
        let host = host(case)?;
        let port = case.port.unwrap_or(Scheme::Https.port());
        let (of_rules, look) = self.connection(&host, port);
        let look = case.look.clone().unwrap_or_else(|| told(look).to_owned());
        let of_rules = match (&host, of_rules) {
            (HostPart::Address(address), OfRules::Allowed(by)) if look == "past" => {
                self.address(*address, port, None, OfRules::Allowed(by))
            }
            (_, of_rules) => of_rules,
        };
        let of_rules = match (of_rules, self.network.asks_of_connection(&host, port)) {
            (OfRules::Allowed(_), Some(rule)) if look == "past" => OfRules::Asked(rule.clone()),
            (of_rules, _) => of_rules,
        };
        Ok(Verdict::new(of_rules, self.needed(case, &host, &look)?))
    }

    fn request(&self, case: &Case) -> Result<Verdict, String> {
        let host = host(case)?;
        let scheme = match case.scheme.as_deref() {
            Some("http") => Scheme::Http,
            Some(_) | None => Scheme::Https,
        };
        let target = Target::parse(case.path.as_deref().unwrap_or("/"));
        let target = target.map_err(|error| error.to_string())?;
        let request = Request {
            host: &host,
            port: case.port.unwrap_or(scheme.port()),
            scheme,
            method: case.method.as_deref().unwrap_or("GET"),
            target: &target,
        };
        let (of_connection, look) = self.connection(&host, request.port);
        let is_unseen = look == Look::Past;
        let of_rules = match of_connection {
            // Where nobody looks, no request is judged.
            OfRules::Allowed(_) if is_unseen => {
                match self.network.asks_of_connection(&host, request.port) {
                    Some(rule) => OfRules::Asked(rule.clone()),
                    None => of_connection,
                }
            }
            OfRules::Allowed(_) => {
                let allowed = of(self.network.request(&request));
                match (allowed, self.network.asks_of_request(&request)) {
                    (OfRules::Allowed(_), Some(rule)) => OfRules::Asked(rule.clone()),
                    (of_rules, _) => of_rules,
                }
            }
            of_rules => of_rules,
        };
        let of_rules = match (&host, of_rules) {
            (HostPart::Address(address), OfRules::Allowed(by)) => {
                let seen = (!is_unseen).then_some(&request);
                self.address(*address, request.port, seen, OfRules::Allowed(by))
            }
            (_, of_rules) => of_rules,
        };
        let mut of_policies = self.needed(case, &host, told(look))?;
        if !is_unseen {
            for host in host.standing() {
                let asked = Case {
                    resource: host.to_string(),
                    port: Some(request.port),
                    ..case.clone()
                };
                of_policies.push((Action::Request, self.ask(&asked)?));
            }
        }
        Ok(Verdict::new(of_rules, of_policies))
    }

    fn connection(&self, host: &HostPart, port: u16) -> (OfRules, Look) {
        if self.rules.is_none() {
            return (OfRules::Unasked, Look::Into);
        }
        match self.network.connection(host, port) {
            Ok((rule, look)) => (OfRules::Allowed(Some(rule.told())), look),
            Err(why) => (unreachable(why), Look::Into),
        }
    }

    fn address(
        &self,
        address: IpAddr,
        port: u16,
        request: Option<&Request<'_>>,
        allowed: OfRules,
    ) -> OfRules {
        match self.network.address(address, port, request) {
            Ok(()) => allowed,
            Err(why) => unreachable(why),
        }
    }

    /// Decides the actions a connection needs: resolving its name, and connecting.
    fn needed(
        &self,
        case: &Case,
        host: &HostPart,
        look: &str,
    ) -> Result<Vec<(Action, Decision)>, String> {
        let bare = Case {
            scheme: None,
            method: None,
            path: None,
            body: false,
            look: None,
            port: None,
            ..case.clone()
        };
        let mut all = Vec::new();
        if let HostPart::Name(_) = host {
            let name = Case {
                action: Action::Resolve.name().to_owned(),
                ..bare.clone()
            };
            all.push((Action::Resolve, self.ask(&name)?));
        }
        let scheme = match case.scheme.as_deref() {
            Some("http") => Scheme::Http,
            Some(_) | None => Scheme::Https,
        };
        for host in host.standing() {
            let connection = Case {
                action: Action::Connect.name().to_owned(),
                resource: host.to_string(),
                port: Some(case.port.unwrap_or(scheme.port())),
                look: Some(look.to_owned()),
                labels: self.labels(case, &host, look),
                ..bare.clone()
            };
            all.push((Action::Connect, self.ask(&connection)?));
        }
        Ok(all)
    }

    /// Returns the labels that count for a connection.
    fn labels(&self, case: &Case, host: &HostPart, look: &str) -> Option<BTreeSet<String>> {
        let mut labels = case.labels.clone()?;
        if let (Some(rules), "past") = (&self.rules, look) {
            rules.label_unseen(host, &mut labels);
        }
        Some(labels)
    }

    fn credential(&self, case: &Case) -> OfRules {
        let Some(rules) = &self.rules else {
            return OfRules::Unasked;
        };
        let own = rules.credentials().map(|one| one.binding.name.as_str());
        let mut all = own.chain(rules.ssh().map(|one| one.grant.name.as_str()));
        match all.any(|one| one == case.resource) {
            true => OfRules::Allowed(Some(format!("profile {}", rules.profile()))),
            false => OfRules::Never(format!(
                "profile {} has no credential of that name",
                rules.profile()
            )),
        }
    }

    fn publish(&self, case: &Case) -> OfRules {
        let port: Result<PublishedPort, _> = case.resource.parse();
        let (Some(_), Ok(port)) = (&self.rules, port) else {
            return OfRules::Unasked;
        };
        let found = self
            .network
            .publish
            .iter()
            .find(|one| one.port.inside == port.inside);
        match found {
            Some(one) => OfRules::Allowed(Some(one.told())),
            None => OfRules::Closed("nothing publishes that port".to_owned()),
        }
    }
}

fn told(look: Look) -> &'static str {
    match look {
        Look::Into => "into",
        Look::Past => "past",
    }
}

/// Returns the host that a question is about.
pub fn host(case: &Case) -> Result<HostPart, String> {
    let name = &case.resource;
    name.parse()
        .map_err(|error| format!("{name:?} is no host: {error}"))
}

fn of(found: Result<&NetworkRule, Unreachable<'_>>) -> OfRules {
    match found {
        Ok(rule) => OfRules::Allowed(Some(rule.told())),
        Err(why) => unreachable(why),
    }
}

fn unreachable(why: Unreachable<'_>) -> OfRules {
    match why {
        Unreachable::Denied(rule) => OfRules::Denied(rule.clone()),
        Unreachable::Asked(rule) => OfRules::Asked(rule.clone()),
        Unreachable::NoRule | Unreachable::Unnamed | Unreachable::Special(_) => {
            OfRules::Closed(why.why())
        }
        Unreachable::Unclear(_) | Unreachable::Untold(_) => OfRules::Never(why.why()),
    }
}

/// Returns the directory a question is asked in: the current one.
pub fn here() -> Result<std::path::PathBuf, Failure> {
    std::env::current_dir().doing("the current directory cannot be used")
}
