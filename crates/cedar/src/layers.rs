//! Layers: organisation, user, project. Each only takes away.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Action;
use crate::decision::{Decision, Effect};
use crate::fault::Fault;
use crate::policies::{Known, Needs, Policies};
use crate::question::Question;

/// A file of policies: its name, for messages, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Its absolute path.
    pub name: String,
    /// Its content as read.
    pub content: Vec<u8>,
}

/// Who wrote policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Whoever runs the machine.
    Organisation,
    /// The person.
    User,
    /// A project, whose file the person has trusted.
    Project,
}

impl Layer {
    /// From the highest.
    pub const ALL: [Self; 3] = [Self::Organisation, Self::User, Self::Project];
}

impl fmt::Display for Layer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Self::Organisation => "organisation",
            Self::User => "user",
            Self::Project => "project",
        })
    }
}

/// The policies of all layers that have some.
///
/// What is asked has to be allowed by each layer that has an opinion. A layer has one of an action
/// where it permits something of it: then it permits nothing else of it. Where it permits nothing
/// of an action, it leaves that as it is, but for what it forbids. So no layer can allow what
/// another one, or the profile, does not.
#[derive(Debug, Default)]
pub struct Layers {
    layers: Vec<(Layer, Policies)>,
}

impl Layers {
    /// Compiles the files of each layer.
    ///
    /// # Errors
    /// Every mistake: then whoever asks has to deny.
    pub fn compile(files: &[(Layer, Vec<PolicyFile>)], known: &Known) -> Result<Self, Vec<Fault>> {
        let mut layers = Vec::new();
        let mut faults = Vec::new();
        for (layer, files) in files.iter().filter(|(_, files)| !files.is_empty()) {
            match Policies::compile(files, known.clone()) {
                Ok(policies) => layers.push((*layer, policies)),
                Err(found) => faults.extend(found),
            }
        }
        match faults.is_empty() {
            true => Ok(Self { layers }),
            false => Err(faults),
        }
    }

    /// Whether nobody has written any policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|(_, policies)| policies.is_empty())
    }

    /// Each layer that there is.
    pub fn each(&self) -> impl Iterator<Item = (Layer, &Policies)> {
        self.layers
            .iter()
            .map(|(layer, policies)| (*layer, policies))
    }

    /// Whether some policy can be about one of these.
    #[must_use]
    pub fn are_about(&self, actions: &[Action]) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|(_, policies)| actions.iter().any(|action| policies.is_about(*action)))
    }

    /// Answers a question: denied where one layer denies, else to be asked where one asks for
    /// that, else allowed with every obligation of every layer. It is pure.
    #[must_use]
    pub fn authorize(&self, question: &Question<'_>) -> Decision {
        let mut whole = Decision::nothing_said();
        let needs = self.layers.iter().map(|(_, policies)| policies.needs);
        let needs = needs.fold(Needs::default(), Needs::or);
        let Some((_, first)) = self.layers.first() else {
            return whole;
        };
        // All layers know of the same groups.
        let put = match first.put(question, needs) {
            Ok(put) => put,
            Err(why) => return Decision::failed(why),
        };
        for (_, policies) in &self.layers {
            let mut found = policies.judge(&put);
            let is_silent = found.deciding.is_empty() && found.errors.is_empty();
            if is_silent {
                match policies.permitting(put.action) {
                    Some(other) => found.others.push(other.clone()),
                    None => found.effect = Effect::Allow,
                }
            }
            whole = both(whole, found);
        }
        whole
    }
}

/// The stricter of two answers, with all that either says of it.
fn both(mut one: Decision, mut two: Decision) -> Decision {
    one.shadowed.append(&mut two.shadowed);
    one.others.append(&mut two.others);
    let stricter = rank(two.effect) > rank(one.effect);
    if stricter || two.effect == one.effect {
        if stricter {
            one.effect = two.effect;
            // What permits elsewhere has not decided.
            if two.effect == Effect::Deny {
                one.deciding.clear();
            }
        }
        one.deciding.append(&mut two.deciding);
    } else if one.effect == Effect::Ask {
        one.deciding.append(&mut two.deciding);
    }
    one.obligations.add(&two.obligations);
    one.errors.append(&mut two.errors);
    one
}

fn rank(effect: Effect) -> u8 {
    match effect {
        Effect::Allow => 0,
        Effect::Ask => 1,
        Effect::Deny => 2,
    }
}
