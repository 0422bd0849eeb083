//! Cedar policies: read with the other files, and asked about all that a boundary grants. The rules
//! of a profile are such policies too, compiled ([`Rules::show_cedar`]).

mod notices;

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use atoll_cedar::{
    Action, Asked, Case, Facts as CedarFacts, Known, Layer, Layers, PolicyFile, Principal, Served,
    hand,
};
use atoll_model::network::{HostName, PublishedPort};
use atoll_model::{Boundary, Call, Reason};

use crate::asking::{Answer, Asking};
use crate::compiled::{Policies, policy_file, problems};
use crate::digest::PolicyDigest;
use crate::error::{Problem, ProfileError};
use crate::file::SourceFile;
use crate::levels::{TrustMode, covers};
use crate::network::publishing::publishing;
use crate::notice::Notice;
use crate::origin::Origin;
use crate::programs::{self};
use crate::project::untrusted;
use crate::purposes::{self, Purposes};
use crate::refusal::reason;
use crate::rules::Rules;
use crate::source::{Facts, Sources};
use crate::unjudged;
use notices::{tell_idle, tell_wider};

/// The policies as read, with notices about them.
#[derive(Debug)]
pub(crate) struct ReadPolicies {
    pub(crate) policies: Option<Policies>,
    /// The files of purposes.
    pub(crate) purposes: Purposes,
    pub(crate) notices: Vec<Notice>,
    /// The version of every file, also of one without a policy.
    pub(crate) version: PolicyDigest,
}

/// Reads the files of each layer that count. Cedar is not touched if there are none: most runs have
/// none, and start without its cost.
pub(crate) fn read(sources: &Sources<'_>) -> Result<ReadPolicies, ProfileError> {
    let mut version = PolicyDigest::new();
    let given = sources.policies;
    let (organisation, of_organisation) = purposes::apart(given.organisation);
    let (user, of_user) = purposes::apart(given.user);
    let purposes = Purposes::new([of_organisation, of_user].concat());
    let (project, others): (Vec<_>, Vec<_>) = given
        .project
        .iter()
        .partition(|file| sources.trust.trusts(&file.name, &file.content));
    let name = |file: &SourceFile<'_>| base_name(&file.name).to_owned();
    let others = others.into_iter();
    let mut notices: Vec<Notice> = others
        .map(|file| untrusted(sources, file, &name(file)))
        .collect();
    notices.extend(gone(sources));
    let files: Vec<(Layer, Vec<PolicyFile>)> = vec![
        (Layer::Organisation, organisation),
        (Layer::User, user),
        (
            Layer::Project,
            project.into_iter().map(policy_file).collect(),
        ),
    ];
    let mut any = false;
    for (layer, files) in &files {
        for file in files {
            any = true;
            version.add(&format!("policies {layer} {}", file.name), &file.content);
        }
    }
    if !any {
        return Ok(ReadPolicies {
            policies: None,
            purposes,
            notices,
            version,
        });
    }
    let layers = Layers::compile(&files, &Known::default());
    let layers = layers.map_err(|faults| ProfileError::Invalid(problems(faults)))?;
    let policies = (!layers.is_empty()).then_some(Policies { layers, files });
    Ok(ReadPolicies {
        policies,
        purposes,
        notices,
        version,
    })
}

/// Returns notices about trusted policy files of the project that are missing.
fn gone(sources: &Sources<'_>) -> Vec<Notice> {
    let given = sources.policies;
    let is_there = |path: &str| given.project.iter().any(|file| file.name == path);
    let trusted = sources.trust.policies_in(given.directory);
    let gone = trusted.filter(|path| !is_there(path));
    gone.map(|path| Notice {
        text: format!(
            "{} was trusted and is not there: nothing of it counts. `atoll trust` trusts what is \
             there now",
            base_name(path)
        ),
        origin: Origin::File {
            name: path.into(),
            line: 1,
        },
    })
    .collect()
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Takes the policies into the rules, with Atoll's own beside them, and adds notices about those
/// that change nothing. Completes the version.
pub(crate) fn take(rules: &mut Rules, read: ReadPolicies) -> Result<(), ProfileError> {
    let read = with_level(read, rules)?;
    let read = with_purposes(read, rules)?;
    let read = with_labels(read, rules)?;
    let mut version = rules.rest.clone();
    version.add("policies", read.version.clone().finish().as_bytes());
    rules.digest = version.finish();
    record_notices(rules, read);
    Ok(())
}

/// Adds the policies of the level of trust.
fn with_level(mut read: ReadPolicies, rules: &Rules) -> Result<ReadPolicies, ProfileError> {
    let Some((name, text)) = rules.trust.cedar() else {
        return Ok(read);
    };
    read.add(Layer::Level, vec![own_file(name, text)])?;
    Ok(read)
}

/// Adds the policies of the purposes.
fn with_purposes(mut read: ReadPolicies, rules: &mut Rules) -> Result<ReadPolicies, ProfileError> {
    let (files, narrowed) = read.purposes.settle(rules)?;
    rules.trust.narrowed = narrowed;
    if !files.is_empty() {
        read.add(Layer::Purpose, files)?;
    }
    Ok(read)
}

/// Adds the policies on labels, if labels are recorded.
fn with_labels(mut read: ReadPolicies, rules: &mut Rules) -> Result<ReadPolicies, ProfileError> {
    let policies = read.policies.as_ref();
    let are_about = policies.is_some_and(|policies| policies.layers.are_about_labels());
    if let Some((name, text)) = rules.label_cedar(are_about) {
        read.add(Layer::Labels, vec![own_file(name, text)])?;
    }
    Ok(read)
}

impl ReadPolicies {
    /// Adds a generated layer, or that of the purposes.
    pub(crate) fn add(&mut self, layer: Layer, files: Vec<PolicyFile>) -> Result<(), ProfileError> {
        for file in &files {
            let name = format!("policies {}", file.name);
            self.version.add(&name, &file.content);
        }
        let policies = self.policies.get_or_insert_default();
        let added = policies.layers.add(layer, &files);
        added.map_err(|faults| ProfileError::Invalid(problems(faults)))?;
        policies.files.push((layer, files));
        Ok(())
    }
}

/// Creates a file of Atoll's own.
fn own_file(name: String, text: String) -> PolicyFile {
    PolicyFile {
        name,
        content: text.into_bytes(),
    }
}

/// Returns all problems in a policy file.
#[must_use]
pub fn check_policies(file: &SourceFile<'_>) -> Vec<Problem> {
    let file = policy_file(file);
    let mut faults = purposes::faults(&file);
    let read = atoll_cedar::Policies::compile(&[file], Known::default());
    faults.extend(read.err().unwrap_or_default());
    problems(faults)
}

/// Keeps the policies, and adds notices about those that change nothing.
fn record_notices(rules: &mut Rules, read: ReadPolicies) {
    rules.notices.extend(read.notices);
    let Some(policies) = read.policies else {
        return;
    };
    for (layer, compiled) in policies.layers.each() {
        for remark in atoll_cedar::refused(compiled) {
            let origin = Origin::File {
                name: remark.file.as_str().into(),
                line: remark.line,
            };
            rules.notice(remark.what, origin);
        }
        tell_idle(rules, compiled);
        if layer == Layer::Project {
            tell_wider(rules, compiled);
        }
    }
    unjudged::notice_tunnels(rules, &policies.layers);
    rules.policies = Some(Arc::new(policies));
}

impl Policies {
    /// Returns the reasons not to publish another port of a running sandbox.
    pub(crate) fn publishing(
        &self,
        rules: &Rules,
        call: &Call,
        facts: &Facts<'_>,
        port: PublishedPort,
    ) -> Vec<Reason> {
        let mut asking = Asking {
            layers: &self.layers,
            facts: &cedar_facts(rules, call, facts),
            trust: Some((&rules.trust, facts.mode)),
            workspace: None,
            answer: Answer::default(),
        };
        let (_, session) = principals(call);
        asking.ask(&session, Asked::Publish(port), publishing(port));
        let Answer {
            mut reasons, asked, ..
        } = asking.answer;
        reasons.extend(asked.into_iter().map(|one| Reason {
            how_to_ask: format!(
                "a person is asked as a run begins: start it anew with --publish {port}"
            ),
            ..one
        }));
        reasons
    }

    /// Returns the reasons not to do this with a run that goes on, as this person.
    pub(crate) fn administering(
        &self,
        rules: &Rules,
        call: &Call,
        facts: &Facts<'_>,
        person: u32,
        asked: Asked<'_>,
        what: &str,
    ) -> Vec<Reason> {
        // Nobody says here what the session has touched by now.
        if self.layers.look_at_labels(asked.action()) {
            let why = "policies ask which data the session has touched, which is not known here";
            let instead = "leave labels out of policies on that";
            return vec![reason(what, why, &Origin::BuiltIn, instead)];
        }
        let mut asking = Asking {
            layers: &self.layers,
            facts: &cedar_facts(rules, call, facts),
            trust: None,
            workspace: None,
            answer: Answer::default(),
        };
        let principal = Principal {
            person,
            session: None,
        };
        asking.ask(&principal, asked, what.to_owned());
        asking.answer.reasons
    }

    /// Asks about an exec in a sandbox that is there, by a session that has touched data of these
    /// labels.
    pub(crate) fn exec(
        &self,
        rules: &Rules,
        call: &Call,
        facts: &Facts<'_>,
        search: &OsStr,
    ) -> Answer {
        let said = CedarFacts {
            labels: facts.labels.filter(|_| rules.notes_labels()).cloned(),
            ..cedar_facts(rules, call, facts)
        };
        let mut asking = Asking {
            layers: &self.layers,
            facts: &said,
            trust: Some((&rules.trust, facts.mode)),
            workspace: None,
            answer: Answer::default(),
        };
        let (_, session) = principals(call);
        if let Some(program) = asking.program(call) {
            asking.exec(&session, call, program, search);
        }
        asking.answer
    }

    /// Adds the labels that policies give to shown places, so that all questions are asked with
    /// them.
    fn label_places(
        &self,
        session: &Principal,
        call: &Call,
        boundary: &Boundary,
        said: &mut CedarFacts,
    ) {
        if said.labels.is_none() {
            return;
        }
        let mut asking = Asking {
            layers: &self.layers,
            facts: said,
            trust: None,
            workspace: None,
            answer: Answer::default(),
        };
        asking.places(session, call, boundary);
        let found = asking.answer.labels;
        if let Some(labels) = &mut said.labels {
            labels.extend(found);
        }
    }

    /// Asks about all that a boundary grants from the beginning. A timeout tightens the boundary.
    pub(crate) fn ask(
        &self,
        rules: &Rules,
        call: &Call,
        facts: &Facts<'_>,
        boundary: &mut Boundary,
    ) -> Answer {
        let (person, session) = principals(call);
        let mut said = CedarFacts {
            labels: rules.labels_at_start(call, boundary),
            ..cedar_facts(rules, call, facts)
        };
        self.label_places(&session, call, boundary, &mut said);
        let mut asking = Asking {
            layers: &self.layers,
            facts: &said,
            trust: Some((&rules.trust, facts.mode)),
            workspace: Some(call.workspace()),
            answer: Answer::default(),
        };
        if call.lives() {
            // No program is named yet: a policy that permits some programs permits no such sandbox.
            asking.run(&person, call, "", boundary);
        } else if let Some(program) = asking.program(call) {
            asking.run(&person, call, program, boundary);
            let search = programs::search(&boundary.environment);
            asking.exec(&session, call, program, search);
        }
        let limit = &mut boundary.limits.wall_clock;
        match asking.answer.wall_clock {
            Some(timeout) if limit.is_none_or(|limit| timeout < limit) => *limit = Some(timeout),
            Some(_) | None => asking.answer.wall_clock_by = None,
        }
        asking.places(&session, call, boundary);
        for one in &mut boundary.network.publish {
            let port = one.port;
            let decision = asking.ask(&session, Asked::Publish(port), publishing(port));
            // What is asked about is published only once a person has said yes.
            one.asked = decision.asks_a_person().then(|| decision.why());
        }
        let credentials = boundary.network.credentials.iter().map(|one| &one.name);
        let keys = boundary.network.ssh.iter().map(|one| &one.name);
        for name in credentials.chain(keys) {
            asking.ask(
                &session,
                Asked::UseCredential(name),
                format!("credential {name}"),
            );
        }
        let mut answer = asking.answer;
        let [resolve, connect, request] = Action::OF_FLOWS;
        let flows = [resolve, connect, request, Action::UseCredential];
        answer.labels = said.labels.clone().unwrap_or_default();
        let is_asked = self.layers.are_about(&flows) || said.labels.is_some();
        if !boundary.network.is_empty() && is_asked {
            match hand(&session, &said, &self.files) {
                Ok(handed) => answer.for_flows = Some(handed),
                Err(why) => answer.reasons.push(reason(
                    "the policies of its connections",
                    why,
                    &Origin::BuiltIn,
                    "write fewer policies",
                )),
            }
        }
        answer
    }
}

/// Returns the caller, and the session of the call.
pub(crate) fn principals(call: &Call) -> (Principal, Principal) {
    let person = Principal {
        person: call.principal.uid,
        session: None,
    };
    let session = Principal {
        session: Some(call.run().to_string()),
        ..person.clone()
    };
    (person, session)
}

pub(crate) fn cedar_facts(rules: &Rules, call: &Call, facts: &Facts<'_>) -> CedarFacts {
    let time = facts.now.duration_since(UNIX_EPOCH);
    let time = time.map_or(0, |time| time.as_secs());
    let trust = &rules.trust;
    CedarFacts {
        trust: trust.level.as_ref().map(|one| one.value.name().to_owned()),
        task: trust.task.clone(),
        purpose: trust.purpose(),
        reputation: trust.reputation,
        served: call.served().map(Served::from),
        is_strict: trust.mode() == TrustMode::Strict,
        trusted: rules.vouched(),
        models: rules.label_models(),
        ..CedarFacts::new(time, facts.mode, &rules.profile.value)
    }
}

impl Rules {
    /// Returns whether some policy reads the agent's reputation.
    #[must_use]
    pub fn ask_for_reputation(&self) -> bool {
        self.policies().is_some_and(Layers::are_about_reputation)
    }

    /// Sets the agent's reputation, points; 0 for an unknown agent.
    pub fn take_reputation(&mut self, points: u8) {
        self.trust.reputation = points;
    }

    /// Returns the agent's reputation, points, if some policy reads it.
    #[must_use]
    pub fn reputation(&self) -> Option<u8> {
        self.ask_for_reputation().then_some(self.trust.reputation)
    }

    /// Returns whether a question is about a host of the agent's models.
    fn is_model_of(&self, case: &Case) -> bool {
        let is_flow =
            Action::named(&case.action).is_some_and(|one| Action::OF_FLOWS.contains(&one));
        let name = HostName::parse(&case.resource);
        let is_model = |name: HostName| {
            let models = self.label_models();
            models.iter().any(|one| covers(one, name.as_str()))
        };
        is_flow && (case.model || name.is_ok_and(is_model))
    }

    /// Fills in the facts of a run by these rules into a question: its profile, and what is stated
    /// of it.
    pub fn state(&self, case: &mut Case) {
        let trust = &self.trust;
        case.profile = Some(self.profile.value.clone());
        case.trust = trust.level.as_ref().map(|one| one.value.name().to_owned());
        case.task.clone_from(&trust.task);
        case.purpose = trust.purpose();
        case.model = self.is_model_of(case);
        case.is_strict = trust.mode() == TrustMode::Strict;
    }
}

impl Rules {
    /// Returns the policies of all layers; `None` if nobody has written any.
    #[must_use]
    pub fn policies(&self) -> Option<&Layers> {
        self.policies.as_ref().map(|policies| &policies.layers)
    }

    /// Returns the policy files in force of all layers, those of a level of trust included.
    #[must_use]
    pub fn policy_files(&self) -> &[(Layer, Vec<PolicyFile>)] {
        let policies = self.policies.as_ref();
        policies.map_or(&[], |policies| &policies.files)
    }

    /// Returns whether a person can be asked about outgoing connections, requests or credentials.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        let all = [Action::Connect, Action::Request, Action::UseCredential];
        let asks = |layers: &Layers| layers.ask_about(&all);
        !self.network().ask.is_empty() || self.policies().is_some_and(asks)
    }
}
