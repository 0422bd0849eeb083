//! Properties, one after the other, and what refutes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use atoll_cedar::{
    Action, CanonicalPolicies, Case, Decision, DroppedObligation, Effect, Layer, Layers,
    PolicyFile, Property, Reach, Refuted, SCHEMA, Subject, Target, Verdict, carried,
};
use atoll_model::network::HostPart;
use cedar_policy::{EntityId, EntityTypeName, EntityUid, Policy, PolicySet, RequestEnv, Schema};
use cedar_policy_symcc::err::Error;
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicySet, Env};

use crate::world::id;
use crate::{solver, witness, world};

/// Who acts, of all kinds of the schema: nothing asks for the others.
pub(crate) const PRINCIPALS: [&str; 2] = ["Person", "Session"];

/// Policies as they decide on a run.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) layers: Layers,
    trust: Option<String>,
    is_strict: bool,
}

impl Side {
    fn new(subject: &Subject) -> Result<Self, String> {
        Ok(Self {
            layers: subject.compile()?,
            trust: subject.trust.clone(),
            is_strict: subject.is_strict,
        })
    }

    /// What the policies decide, as a run is decided on; nothing where this is no question about
    /// such a run.
    pub(crate) fn decided(&self, action: Action, case: &Case) -> Option<Decision> {
        if self.trust.is_some() && self.trust != case.trust {
            return None;
        }
        let case = Case {
            is_strict: self.is_strict,
            ..case.clone()
        };
        let found = case.ask(|question| self.layers.authorize(question)).ok()?;
        Some(found.within(carried(action)))
    }

    /// What happens, perhaps once somebody has agreed; what happens unasked is that where nobody
    /// is asked.
    pub(crate) fn canonical(
        &self,
        action: Action,
        reach: Reach,
    ) -> Result<CanonicalPolicies, String> {
        self.layers.canonical(action, self.reach(reach))
    }

    /// Where these allow what the older ones have something done for, and may not have it done.
    pub(crate) fn dropped_obligations(
        &self,
        older: &Self,
        action: Action,
    ) -> Result<Vec<DroppedObligation>, String> {
        let reach = self.reach(Reach::Possible);
        self.layers
            .dropped_obligations(&older.layers, action, reach)
    }

    pub(crate) fn reach(&self, reach: Reach) -> Reach {
        match self.is_strict {
            true => Reach::Unasked,
            false => reach,
        }
    }
}

/// Finds proofs, with one solver for as long as it works.
#[derive(Debug)]
pub(crate) struct Prover {
    program: PathBuf,
    subject: Rc<Side>,
    limit: Duration,
    /// What of a request nobody has to say.
    usual: Case,
    until: Instant,
    pub(crate) schema: Schema,
    solver: Option<CedarSymCompiler<solver::Process>>,
}

/// What was looked for and found, on the way to a verdict.
pub(crate) enum Found {
    Nothing,
    Something(Box<Env>),
    CannotSay(String),
}

impl Prover {
    /// One that takes this solver, and this long for each property of these policies. What
    /// refutes is as the `usual` case where that says the same.
    ///
    /// # Errors
    /// When the policies have mistakes.
    pub(crate) fn new(
        program: &Path,
        limit: Duration,
        usual: Case,
        subject: &Subject,
    ) -> Result<Self, String> {
        let schema = Schema::from_cedarschema_str(SCHEMA).map_err(|error| error.to_string())?;
        Ok(Self {
            program: program.to_owned(),
            subject: Rc::new(Side::new(subject)?),
            limit,
            usual,
            until: Instant::now(),
            schema: schema.0,
            solver: None,
        })
    }

    /// Whether the property holds of the policies.
    pub(crate) fn prove(&mut self, property: &Property) -> Verdict {
        self.until = Instant::now() + self.limit;
        // An earlier one ends at its own time.
        self.solver = None;
        let side = Rc::clone(&self.subject);
        let verdict = match property {
            Property::NeverErrors => self.never_errors(&side),
            Property::EveryPolicyMatters => self.every_policy_matters(&side),
            Property::NobodyReaches(target) => {
                let narrow = |action: Action| condition(target, action).map(Some);
                let actions = [Action::Resolve, Action::Connect, Action::Request];
                self.never_allows(&side, &actions, &narrow)
            }
            Property::NeverAllows { action, condition } => {
                let narrow = |_| Some(condition.clone());
                self.never_allows(&side, &[*action], &narrow)
            }
            Property::OnlyTightens(old) => self.compared(&side, old, false),
            Property::Same(old) => self.compared(&side, old, true),
        };
        self.solver = None;
        verdict
    }

    /// Whether these only tighten the old ones, and where both directions count, they these.
    fn compared(&mut self, new: &Side, old: &Subject, both: bool) -> Verdict {
        let old = match Side::new(old) {
            Ok(old) => old,
            Err(why) => return Verdict::Unknown(format!("of the other version: {why}")),
        };
        if old.trust.is_some() && old.trust != new.trust {
            let why = "the levels that both state are different, and policies can read them";
            return Verdict::Unknown(why.to_owned());
        }
        let narrower = self.only_tightens(new, &old);
        match narrower {
            Verdict::Refuted(_) => narrower,
            Verdict::Proven | Verdict::Unknown(_) if !both => narrower,
            Verdict::Proven => self.only_tightens(&old, new),
            Verdict::Unknown(_) => match self.only_tightens(&old, new) {
                refuted @ Verdict::Refuted(_) => refuted,
                Verdict::Proven | Verdict::Unknown(_) => narrower,
            },
        }
    }

    /// Whether none of these actions is allowed where the condition for it holds, if it has one;
    /// without any answer for an action it is passed over.
    fn never_allows(
        &mut self,
        side: &Side,
        actions: &[Action],
        narrow: &dyn Fn(Action) -> Option<Option<String>>,
    ) -> Verdict {
        let mut unknown = None;
        for action in actions {
            let Some(condition) = narrow(*action) else {
                continue;
            };
            let verdict = self.allows_nothing(side, *action, condition.as_deref());
            match verdict {
                Verdict::Proven => {}
                Verdict::Refuted(_) => return verdict,
                Verdict::Unknown(why) => unknown = unknown.or(Some(why)),
            }
        }
        unknown.map_or(Verdict::Proven, Verdict::Unknown)
    }

    fn allows_nothing(&mut self, side: &Side, action: Action, condition: Option<&str>) -> Verdict {
        let made = side
            .canonical(action, Reach::Possible)
            .and_then(|mut meant| {
                if let Some(condition) = condition {
                    let only = outside(action, condition)?;
                    meant.named.extend(only.entity_literals());
                    add(&mut meant.set, [only])?;
                }
                Ok(meant)
            });
        let within = match condition
            .map(|condition| inside(action, condition))
            .transpose()
        {
            Ok(within) => within,
            Err(why) => return Verdict::Unknown(why),
        };
        let confirms = |case: &Case| {
            let is_meant = |within: &Layers| {
                let found = case.ask(|question| within.authorize(question));
                found.is_ok_and(|found| found.effect == Effect::Allow)
            };
            let found = side.decided(action, case)?;
            let counts = found.at_most() != Effect::Deny && within.as_ref().is_none_or(is_meant);
            counts.then(|| found.why())
        };
        match made {
            Ok(meant) => self.differs(&meant, None, action, &confirms),
            Err(why) => Verdict::Unknown(why),
        }
    }

    /// Whether all that the new ones allow is allowed by the old ones, what happens unasked
    /// unasked, and with all that the old ones have done besides.
    fn only_tightens(&mut self, new: &Side, old: &Side) -> Verdict {
        // What fails is denied, and Cedar passes over it: of the old ones that would be less.
        match self.never_errors(old) {
            Verdict::Proven => {}
            Verdict::Refuted(found) => {
                return Verdict::Unknown(format!(
                    "one of the old policies can fail: {}",
                    found.told
                ));
            }
            unknown @ Verdict::Unknown(_) => return unknown,
        }
        let mut unknown = None;
        for action in asked() {
            let mut before = None;
            for reach in [Reach::Possible, Reach::Unasked] {
                let both = new
                    .canonical(action, reach)
                    .and_then(|new| Ok((new, old.canonical(action, reach)?)));
                let (ours, theirs) = match both {
                    Ok(both) => both,
                    Err(why) => return Verdict::Unknown(why),
                };
                let sets = (ours.set.clone(), theirs.set.clone());
                if sets.0 == sets.1 || before.as_ref() == Some(&sets) {
                    continue;
                }
                before = Some(sets);
                let confirms = |case: &Case| wider(new, old, action, case);
                match self.differs(&ours, Some(&theirs), action, &confirms) {
                    Verdict::Proven => {}
                    refuted @ Verdict::Refuted(_) => return refuted,
                    Verdict::Unknown(why) => unknown = unknown.or(Some(why)),
                }
            }
        }
        match unknown {
            Some(why) => Verdict::Unknown(why),
            None => match self.keeps(new, old) {
                Verdict::Proven => self.gains_nothing(new, old),
                verdict => verdict,
            },
        }
    }

    /// Whether there is a request that one set allows and the other does not; without another
    /// one, any that it allows.
    pub(crate) fn differs(
        &mut self,
        one: &CanonicalPolicies,
        other: Option<&CanonicalPolicies>,
        action: Action,
        confirms: &dyn Fn(&Case) -> Option<String>,
    ) -> Verdict {
        let mut named = one.named.clone();
        named.extend(
            other
                .into_iter()
                .flat_map(|other| other.named.iter().cloned()),
        );
        let nothing = PolicySet::new();
        let against = other.map_or(&nothing, |other| &other.set);
        let mut set = one.set.clone();
        let text = format!("{set} {against}");
        let limited = self.impossible(action, &named, &text);
        if let Err(why) = limited.and_then(|all| add(&mut set, all)) {
            return Verdict::Unknown(why);
        }
        let mut unknown = None;
        for principal in PRINCIPALS {
            match self.search(&set, against, principal, action) {
                Found::Nothing => {}
                Found::CannotSay(why) => unknown = unknown.or(Some(why)),
                Found::Something(found) => {
                    let cases = witness::cases(&found, action, &named);
                    let real = cases.iter().find_map(|case| Some((case, confirms(case)?)));
                    match real {
                        Some((case, told)) => {
                            let (case, told) = self.simplest(case, told, confirms);
                            return refuted(Some(case), told);
                        }
                        None => unknown = unknown.or_else(|| Some(on_paper(action, &found))),
                    }
                }
            }
        }
        unknown.map_or(Verdict::Proven, Verdict::Unknown)
    }

    /// The same request without what does not matter to it.
    pub(crate) fn simplest(
        &self,
        case: &Case,
        told: String,
        confirms: &dyn Fn(&Case) -> Option<String>,
    ) -> (Case, String) {
        let mut simplest = (case.clone(), told);
        for simpler in witness::SIMPLER {
            let mut case = simplest.0.clone();
            simpler(&mut case, &self.usual);
            if let Some(told) = confirms(&case) {
                simplest = (case, told);
            }
        }
        simplest
    }

    /// What no request about a run by the policies is.
    pub(crate) fn impossible(
        &self,
        action: Action,
        named: &BTreeSet<EntityUid>,
        text: &str,
    ) -> Result<Vec<Policy>, String> {
        world::impossible(action, named, text, self.subject.trust.as_deref())
    }

    /// Looks for a request that one set allows and the other does not.
    pub(crate) fn search(
        &mut self,
        one: &PolicySet,
        other: &PolicySet,
        principal: &str,
        action: Action,
    ) -> Found {
        let Some(kinds) = kinds(principal, action) else {
            return Found::Nothing;
        };
        let compile = |set| {
            let compiled = CompiledPolicySet::compile(set, &kinds, &self.schema);
            compiled.map_err(|error| told(&error))
        };
        let (one, other) = match (compile(one), compile(other)) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(why), _) | (_, Err(why)) => return Found::CannotSay(why),
        };
        self.ask(|solver| solver::now(solver.check_implies_with_counterexample_opt(&one, &other)))
    }

    /// Asks the solver; one that failed is not asked again.
    pub(crate) fn ask(
        &mut self,
        ask: impl FnOnce(
            &mut CedarSymCompiler<solver::Process>,
        ) -> Result<Result<Option<Env>, Error>, String>,
    ) -> Found {
        let mut at_work = match self.solver.take() {
            Some(at_work) => at_work,
            None => match self.start() {
                Ok(at_work) => at_work,
                Err(why) => return Found::CannotSay(why),
            },
        };
        match ask(&mut at_work) {
            Ok(Ok(found)) => {
                self.solver = Some(at_work);
                found.map_or(Found::Nothing, |found| Found::Something(Box::new(found)))
            }
            Ok(Err(error)) => Found::CannotSay(told(&error)),
            Err(why) => Found::CannotSay(why),
        }
    }

    fn start(&self) -> Result<CedarSymCompiler<solver::Process>, String> {
        if Instant::now() >= self.until {
            return Err("it takes too long".to_owned());
        }
        let process = solver::Process::start(&self.program, self.until)?;
        CedarSymCompiler::new(process).map_err(|error| told(&error))
    }
}

/// Every action that policies are asked for.
pub(crate) fn asked() -> impl Iterator<Item = Action> {
    Action::ALL.into_iter().filter(|action| action.is_asked())
}

/// That one version allows what the other asks about or denies, or asks about what it denies.
fn wider(new: &Side, old: &Side, action: Action, case: &Case) -> Option<String> {
    let (before, now) = (old.decided(action, case)?, new.decided(action, case)?);
    let is_wider = match (now.at_most(), before.at_most()) {
        (Effect::Allow, Effect::Ask | Effect::Deny) | (Effect::Ask, Effect::Deny) => true,
        (Effect::Allow, Effect::Allow) | (Effect::Ask, Effect::Ask | Effect::Allow) => false,
        (Effect::Deny, _) => false,
    };
    is_wider.then(|| {
        format!(
            "{}, and in the other version {}: {}",
            now.why(),
            before.at_most(),
            before.why()
        )
    })
}

/// Where a request is about a target, in Cedar; nothing where none can be.
fn condition(target: &Target, action: Action) -> Option<String> {
    let is_by_name = action == Action::Resolve;
    match target {
        Target::Host(HostPart::Address(_)) | Target::Block(_) if is_by_name => None,
        Target::Host(host) => Some(format!("resource == {}", id("Host", &host.to_string()))),
        Target::Beneath(name) => Some(format!("resource in {}", id("Host", &format!("*.{name}")))),
        Target::Block(block) => Some(format!(
            "context has ip && context.ip.isInRange(ip(\"{block}\"))"
        )),
    }
}

pub(crate) fn refuted(case: Option<Case>, told: String) -> Verdict {
    Verdict::Refuted(Box::new(Refuted { case, told }))
}

/// That what the solver finds is nothing that anybody can ask for, as far as is known here.
pub(crate) fn on_paper(action: Action, found: &Env) -> String {
    let request = &found.request;
    let resource = request.resource().map(ToString::to_string);
    format!(
        "the solver finds a request ({} of {}), and no real one like it is allowed: what it takes \
         for possible may be more than there is",
        action.name(),
        resource.unwrap_or_default()
    )
}

/// A layer that allows what is within a condition, as Atoll itself reads it.
fn inside(action: Action, condition: &str) -> Result<Layers, String> {
    let text = format!(
        "permit(principal, action == Action::\"{}\", resource)\nwhen {{ {condition} }};\n",
        action.name()
    );
    let file = PolicyFile {
        name: "condition".to_owned(),
        content: text.into_bytes(),
    };
    let subject = Subject::new(&[(Layer::User, vec![file])])?;
    let compiled = subject.compile();
    compiled.map_err(|why| format!("the condition cannot be used: {why}"))
}

/// A policy that forbids what is outside of a condition.
fn outside(action: Action, condition: &str) -> Result<Policy, String> {
    let text = format!(
        "forbid(principal, action == Action::\"{}\", resource) unless {{ {condition} }};",
        action.name()
    );
    let id = cedar_policy::PolicyId::new("only there");
    Policy::parse(Some(id), text).map_err(|error| format!("the condition cannot be read: {error}"))
}

pub(crate) fn add(to: &mut PolicySet, all: impl IntoIterator<Item = Policy>) -> Result<(), String> {
    let mut all = all.into_iter();
    all.try_for_each(|one| to.add(one).map_err(|error| error.to_string()))
}

/// The kinds of a request: who, what, with what.
pub(crate) fn kinds(principal: &str, action: Action) -> Option<RequestEnv> {
    let kind = |name: &str| name.parse::<EntityTypeName>().ok();
    let id = EntityId::new(action.name());
    let action_id = EntityUid::from_type_name_and_id(kind("Action")?, id);
    let resource = kind(world::resource(action)?)?;
    Some(RequestEnv::new(kind(principal)?, action_id, resource))
}

/// A mistake with all that stands behind it.
pub(crate) fn told(error: &Error) -> String {
    if let Error::PolicyNotWellTyped { errs } = error {
        let all: Vec<String> = errs.iter().map(ToString::to_string).collect();
        return format!("a policy has other types: {}", all.join("; "));
    }
    error.to_string()
}
