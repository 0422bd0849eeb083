/// What policy answers to a call. `G` is the grant, which only policy can make.
#[derive(Debug)]
pub enum Verdict<G> {
    /// It may happen, within this grant.
    Allow(G),
    /// A person decides.
    Ask(Vec<Reason>),
    /// It does not happen.
    Deny(Vec<Reason>),
}

/// One reason of a verdict, for a person or an agent to act on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Reason {
    /// What is refused or asked.
    pub what: String,
    /// Why.
    pub why: String,
    /// The rule that says so, with where it stands.
    pub rule: String,
    /// What would change the answer.
    pub how_to_ask: String,
}
