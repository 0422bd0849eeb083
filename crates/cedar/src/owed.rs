//! The obligations of permitting policies, compared between versions: an obligation of an older
//! version has to be kept by one that only tightens it, wherever that still allows.
//!
//! `@approve` is not among them, since it decides by itself, nor is `@log`: a report to a person
//! restrains nothing.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::Shadow;
use cedar_policy::{Effect as CedarEffect, Policy, PolicyId, PolicySet};
use serde_json::{Value, json};

use crate::Action;
use crate::canonical::{CanonicalPolicies, Reach, condition, effect, either, with_effect};
use crate::decision::{Deciding, Decision};
use crate::layers::Layers;
use crate::obligation::{Obligations, Rate};
use crate::reading::Meta;

/// An obligation, with the least strictness that has to be kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owed {
    /// This redaction, as written.
    Redact(String),
    /// This label.
    Label(String),
    /// At most this rate, counted together as before.
    Rate(Counter, Rate),
    /// At most this timeout.
    Timeout(Duration),
    /// A state to roll back to.
    Checkpoint,
    /// At least so many runs on a copy.
    Shadow(Shadow),
}

/// The key under which a rate is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// The policy's id.
    Id(Arc<str>),
    /// The policy's line, in the only file, which may have been renamed.
    Line(u32),
}

/// An obligation of an older version that the newer one may no longer impose.
#[derive(Clone, Debug)]
pub struct DroppedObligation {
    /// The obligation.
    pub owed: Owed,
    /// The actions that the newer version allows of those on which the older one imposes it.
    pub allowed: CanonicalPolicies,
    /// The actions on which the newer version imposes it.
    pub kept: CanonicalPolicies,
}

impl Layers {
    /// Returns every obligation that the `older` layers impose where they allow this action and
    /// that the same policies do not plainly impose in these.
    ///
    /// # Errors
    /// When a policy cannot be translated.
    pub fn dropped_obligations(
        &self,
        older: &Self,
        action: Action,
        reach: Reach,
    ) -> Result<Vec<DroppedObligation>, String> {
        let is_one_file = self.is_one_file() && older.is_one_file();
        let before = older.permits(action);
        let before =
            before.filter(|(_, meta)| effect(meta, action, Reach::Possible) == CedarEffect::Permit);
        let before: Vec<(&Policy, &Meta)> = before.collect();
        let all = before
            .iter()
            .flat_map(|(policy, meta)| Owed::by(policy, meta, is_one_file));
        let all: BTreeSet<Owed> = all.collect();
        let mut dropped = Vec::new();
        for owed in all {
            let of = |all: &mut dyn Iterator<Item = (&Policy, &Meta)>| {
                let all = all.filter(|(policy, meta)| owed.is_by(policy, meta));
                let with = all.map(|(policy, _)| Ok((policy.clone(), condition(policy)?)));
                with.collect::<Result<Vec<(Policy, Value)>, String>>()
            };
            let asked = of(&mut before.iter().copied())?;
            let kept = of(&mut self.permits(action))?;
            let is_plain = |(_, one): &(Policy, Value)| kept.iter().any(|(_, other)| one == other);
            if !asked.iter().all(is_plain) {
                dropped.push(DroppedObligation {
                    allowed: self.allowed(asked, action, reach)?,
                    kept: only(&kept)?,
                    owed,
                });
            }
        }
        Ok(dropped)
    }

    /// Returns, for each obligation that one policy alone imposes (`@log` included), what is
    /// allowed of what the policy is about, and the actions on which others impose the same. The
    /// policy's layer is counted from the first.
    ///
    /// # Errors
    /// When a policy cannot be translated.
    pub fn done_by(
        &self,
        layer: usize,
        own: &Deciding,
        action: Action,
        reach: Reach,
    ) -> Result<Vec<(CanonicalPolicies, CanonicalPolicies)>, String> {
        // Of another layer it is another one, also where all that it is called by is the same.
        let is_own = |number: usize, meta: &Meta| {
            number == layer && (&meta.deciding.file, meta.deciding.line) == (&own.file, own.line)
        };
        let mut done = Vec::new();
        for (number, policy, meta) in self.permits_of_layers(action) {
            if !is_own(number, meta) || effect(meta, action, reach) != CedarEffect::Permit {
                continue;
            }
            let others = |does: &dyn Fn(&Policy, &Meta) -> bool| {
                let others = self.permits_of_layers(action);
                let others = others.filter(|(number, _, other)| !is_own(*number, other));
                let others = others.filter(|(_, policy, other)| does(policy, other));
                let with = others.map(|(_, policy, _)| Ok((policy.clone(), condition(policy)?)));
                only(&with.collect::<Result<Vec<_>, String>>()?)
            };
            let mut kept = Vec::new();
            for owed in Owed::by(policy, meta, false) {
                kept.push(others(&|policy, other| owed.is_by(policy, other))?);
            }
            for told in &meta.obligations.log {
                kept.push(others(&|_, other| other.obligations.log.contains(told))?);
            }
            for kept in kept {
                let about = vec![(policy.clone(), condition(policy)?)];
                done.push((self.allowed(about, action, reach)?, kept));
            }
        }
        Ok(done)
    }

    /// Returns what these layers allow of what some of these policies are about.
    fn allowed(
        &self,
        about: Vec<(Policy, Value)>,
        action: Action,
        reach: Reach,
    ) -> Result<CanonicalPolicies, String> {
        let mut canonical = self.canonical(action, reach)?;
        let literals = about
            .iter()
            .flat_map(|(policy, _)| policy.entity_literals());
        canonical.named.extend(literals);
        let any = either(about.into_iter().map(|(_, holds)| holds).collect());
        canonical.forbid("only there", action, json!({"!": {"arg": any}}))?;
        Ok(canonical)
    }

    /// Returns every policy that counts and permits something of this action.
    pub(crate) fn permits(&self, action: Action) -> impl Iterator<Item = (&Policy, &Meta)> {
        let all = self.permits_of_layers(action);
        all.map(|(_, policy, meta)| (policy, meta))
    }

    /// Returns these policies with the layer of each, counted from the first.
    fn permits_of_layers(&self, action: Action) -> impl Iterator<Item = (usize, &Policy, &Meta)> {
        self.each()
            .enumerate()
            .flat_map(move |(layer, (_, policies))| {
                policies.all.policies().filter_map(move |policy| {
                    let meta = policies.meta.get(policy.id())?;
                    let counts = !meta.is_report_only && meta.actions.contains(&action);
                    (counts && meta.effect == CedarEffect::Permit).then_some((layer, policy, meta))
                })
            })
    }

    /// Returns whether all policies are in one file: their lines then identify them without its
    /// name.
    fn is_one_file(&self) -> bool {
        let all = self.each().flat_map(|(_, policies)| policies.meta.values());
        let files: BTreeSet<&str> = all.map(|meta| &*meta.deciding.file).collect();
        files.len() <= 1
    }
}

/// Returns a set that allows what these policies are about, and nothing else.
fn only(all: &[(Policy, Value)]) -> Result<CanonicalPolicies, String> {
    let mut canonical = CanonicalPolicies {
        set: PolicySet::new(),
        written: HashMap::new(),
        named: BTreeSet::new(),
    };
    for (number, (policy, _)) in all.iter().enumerate() {
        canonical.named.extend(policy.entity_literals());
        // Layers name theirs alike.
        let id = PolicyId::new(format!("kept {number}"));
        canonical.add(with_effect(policy, CedarEffect::Permit, id)?)?;
    }
    Ok(canonical)
}

impl Owed {
    /// Returns the obligations of a permitting policy, `@approve` and `@log` excepted.
    pub(crate) fn by(policy: &Policy, meta: &Meta, is_one_file: bool) -> Vec<Self> {
        let of = &meta.obligations;
        let is_unnamed = policy.annotation("id").is_none();
        let counter = match is_unnamed && is_one_file {
            true => Counter::Line(meta.deciding.line),
            false => Counter::Id(Arc::clone(&meta.deciding.id)),
        };
        let mut all: Vec<Self> = of.redact.iter().cloned().map(Self::Redact).collect();
        all.extend(of.label.iter().cloned().map(Self::Label));
        all.extend(
            of.rate
                .iter()
                .map(|rate| Self::Rate(counter.clone(), *rate)),
        );
        all.extend(of.timeout.map(Self::Timeout));
        all.extend(of.checkpoint.then_some(Self::Checkpoint));
        all.extend(of.shadow.map(Self::Shadow));
        all
    }

    /// Returns whether a policy imposes this obligation where it permits.
    fn is_by(&self, policy: &Policy, meta: &Meta) -> bool {
        self.is_among(&meta.obligations, |counter, least| {
            let is_counted = match counter {
                Counter::Id(id) => *id == meta.deciding.id,
                Counter::Line(line) => {
                    *line == meta.deciding.line && policy.annotation("id").is_none()
                }
            };
            let mut rates = meta.obligations.rate.iter();
            is_counted && rates.any(|rate| holds(*rate, *least))
        })
    }

    /// Returns whether a decision imposes this obligation.
    #[must_use]
    pub fn is_of(&self, decision: &Decision) -> bool {
        self.is_among(&decision.obligations, |counter, least| {
            decision.rates.iter().any(|(by, rate)| {
                let is_counted = match counter {
                    Counter::Id(id) => id == by,
                    Counter::Line(line) => by.ends_with(&format!(":{line}")),
                };
                is_counted && holds(*rate, *least)
            })
        })
    }

    fn is_among(&self, all: &Obligations, counts: impl Fn(&Counter, &Rate) -> bool) -> bool {
        match self {
            Self::Redact(one) => all.redact.contains(one),
            Self::Label(one) => all.label.contains(one),
            Self::Rate(counter, least) => counts(counter, least),
            Self::Timeout(longest) => all.timeout.is_some_and(|timeout| timeout <= *longest),
            Self::Checkpoint => all.checkpoint,
            Self::Shadow(least) => all.shadow >= Some(*least),
        }
    }
}

/// Returns whether anything that keeps to `rate` keeps to `least` too.
fn holds(rate: Rate, least: Rate) -> bool {
    rate.count <= least.count && rate.seconds >= least.seconds
}

impl fmt::Display for Owed {
    /// Formats it as an annotation, for a rate with its counter.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut one = Obligations::default();
        match self {
            Self::Redact(name) => _ = one.redact.insert(name.clone()),
            Self::Label(name) => _ = one.label.insert(name.clone()),
            Self::Rate(_, rate) => _ = one.rate.insert(*rate),
            Self::Timeout(time) => one.timeout = Some(*time),
            Self::Checkpoint => one.checkpoint = true,
            Self::Shadow(least) => one.shadow = Some(*least),
        }
        to.write_str(&one.written().concat())?;
        match self {
            Self::Rate(Counter::Id(id), _) => write!(to, " counted for policy {id}"),
            Self::Rate(Counter::Line(line), _) => write!(to, " counted for line {line}"),
            Self::Redact(_) | Self::Label(_) | Self::Timeout(_) => Ok(()),
            Self::Checkpoint | Self::Shadow(_) => Ok(()),
        }
    }
}
