//! The parts of a question that policies read.

/// The parts of a request that some policy reads; parts that are expensive to compute are computed
/// only then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) segments: bool,
    pub(crate) loose: bool,
    pub(crate) labels: bool,
    pub(crate) confidence: bool,
    pub(crate) reputation: bool,
    pub(crate) arguments: bool,
    pub(crate) served: bool,
}

impl Needs {
    /// Finds the parts that a text can read: a part is read by its name alone, and an escape can
    /// hide any name.
    pub(crate) fn of(text: &str) -> Self {
        let names = |name: &str| text.contains(name) || text.contains('\\');
        Self {
            segments: names("segments"),
            loose: names("loose"),
            labels: names("labels"),
            confidence: names("confidence"),
            reputation: names("reputation"),
            arguments: names("arguments"),
            served: names("served"),
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            segments: self.segments || other.segments,
            loose: self.loose || other.loose,
            labels: self.labels || other.labels,
            confidence: self.confidence || other.confidence,
            reputation: self.reputation || other.reputation,
            arguments: self.arguments || other.arguments,
            served: self.served || other.served,
        }
    }
}
