//! A question with its answer, and the same with something changed.

use std::ffi::{OsStr, OsString};

use atoll_cedar::edited::LayerFiles;
use atoll_cedar::{Case, Effect};
use atoll_model::network::GivenUps;
use atoll_policy::Requested;

use super::verdict::{Deciders, Sources, Verdict};
use crate::failure::Failure;
use crate::reputation;

/// A question that was put.
pub struct Asking<'a> {
    /// `None` if only policies are asked.
    pub sources: Option<&'a Sources>,
    /// The request for the boundary.
    pub requested: Requested,
    /// The program.
    pub program: OsString,
    /// The question.
    pub case: Case,
    /// The rights the run has dropped.
    pub given_up: GivenUps,
    /// The question with the facts stated of the run.
    pub stated: Case,
    /// The deciders.
    pub deciders: Deciders,
    /// The verdict.
    pub verdict: Verdict,
}

impl<'a> Asking<'a> {
    /// Decides the question by rules and policies.
    ///
    /// # Errors
    /// When the rules cannot be compiled, or a part of the question cannot be decided.
    pub fn put(
        sources: &'a Sources,
        requested: Requested,
        program: &OsStr,
        question: (Case, GivenUps),
    ) -> Result<Self, Failure> {
        let deciders = sources.deciders(&requested, program)?;
        Self::of(Some(sources), requested, program, question, deciders)
    }

    /// Puts it to policies alone.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_to_files(files: LayerFiles, case: Case) -> Result<Self, Failure> {
        let deciders = Deciders::of_files(files)?;
        let (requested, program) = (Requested::default(), OsStr::new(""));
        let question = (case, GivenUps::default());
        Self::of(None, requested, program, question, deciders)
    }

    fn of(
        sources: Option<&'a Sources>,
        requested: Requested,
        program: &OsStr,
        (case, given_up): (Case, GivenUps),
        deciders: Deciders,
    ) -> Result<Self, Failure> {
        let mut case = case;
        if let Some(rules) = &deciders.rules {
            reputation::state(&mut case, rules);
        }
        let verdict = deciders
            .decide_after(&case, &given_up)
            .map_err(|why| Failure::new("this cannot be asked").because(why))?;
        let mut stated = case.clone();
        if let Some(rules) = &deciders.rules {
            rules.state(&mut stated);
        }
        Ok(Self {
            sources,
            requested,
            program: program.to_owned(),
            case,
            given_up,
            stated,
            deciders,
            verdict,
        })
    }

    /// Returns the effect with something changed; `None` if it cannot be decided.
    pub fn effect(&self, requested: &Requested, case: &Case) -> Option<Effect> {
        let verdict = match self.sources {
            Some(sources) if *requested != self.requested => {
                let deciders = sources.deciders(requested, &self.program).ok()?;
                deciders.decide_after(case, &self.given_up)
            }
            Some(_) | None => self.deciders.decide_after(case, &self.given_up),
        };
        verdict.ok().map(|verdict| verdict.effect)
    }
}
