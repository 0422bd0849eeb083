/// Policy's answer to a call. `G` is the grant, which only policy can make.
#[derive(Debug)]
pub enum Verdict<G> {
    /// The call may proceed, within this grant.
    Allow(G),
    /// A person decides.
    Ask(Vec<Reason>),
    /// The call is refused.
    Deny(Vec<Reason>),
}

impl<G> Verdict<G> {
    /// Returns the verdict with another form of its grant.
    pub fn map<H>(self, form: impl FnOnce(G) -> H) -> Verdict<H> {
        match self {
            Self::Allow(grant) => Verdict::Allow(form(grant)),
            Self::Ask(reasons) => Verdict::Ask(reasons),
            Self::Deny(reasons) => Verdict::Deny(reasons),
        }
    }
}

/// One reason for a verdict, for a person or an agent to act on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Reason {
    /// The thing that is refused or asked about.
    pub what: String,
    /// The cause of the refusal or question.
    pub why: String,
    /// The rule that decided, with the place where it is written.
    pub rule: String,
    /// The change that would lead to another answer.
    pub how_to_ask: String,
}
