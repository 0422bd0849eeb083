//! The list of presets.

/// An entry in the list of presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetSummary {
    /// The preset's name, as for `--preset`.
    pub name: &'static str,
    /// The preset's description.
    pub description: &'static str,
    /// The whole file.
    pub content: &'static str,
}
