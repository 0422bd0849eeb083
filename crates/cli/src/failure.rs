use std::fmt::Display;

use atoll_model::{Reason, RunId};

/// A command that ended in an error: what happened, why, what to do next, and
/// the exit status.
#[derive(Debug)]
pub struct Failure {
    /// The error.
    pub what: String,
    /// The reason, as far as known.
    pub why: Option<String>,
    /// Remedies, each a sentence or a command.
    pub advice: Vec<String>,
    /// The exit status.
    pub status: u8,
    /// The reasons of a denial, each with its rule.
    pub reasons: Vec<Reason>,
    /// The run it is about, with the profile, if one was named.
    pub about: Option<Box<(RunId, String)>>,
    /// Further notices, printed after everything else.
    pub notices: Box<Notices>,
}

/// Sentences behind a failure: apart from it, since failures are handed on by value.
#[derive(Debug, Default)]
pub struct Notices(pub Vec<String>);

/// The status of every error of Atoll's own, wrong usage included.
pub const STATUS_OWN_ERROR: u8 = 125;
/// The status of a denial.
pub const STATUS_DENIED: u8 = 126;

impl Failure {
    /// Creates an error of Atoll's own, in one sentence.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: None,
            advice: Vec::new(),
            status: STATUS_OWN_ERROR,
            reasons: Vec::new(),
            about: None,
            notices: Box::default(),
        }
    }

    /// Sets the reason.
    #[must_use]
    pub fn because(mut self, why: impl Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Adds further notices.
    #[must_use]
    pub fn noting<Line: Display>(mut self, notices: impl IntoIterator<Item = Line>) -> Self {
        let notices = notices.into_iter().map(|notice| notice.to_string());
        self.notices.0.extend(notices);
        self
    }

    /// Names the run and the profile that it is about.
    #[must_use]
    pub fn about(mut self, run: &RunId, profile: &str) -> Self {
        self.about = Some(Box::new((run.clone(), profile.to_owned())));
        self
    }

    /// Sets another exit status.
    #[must_use]
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }
}

/// Adds the attempted operation to an error.
pub trait Doing<T> {
    /// Turns the error into a failure of this.
    fn doing(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Display> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what).because(error))
    }
}
