//! The tables of `tidy.toml` as types. That file explains each.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) budgets: Budgets,
    #[serde(default)]
    pub(crate) long_files: Vec<LongFile>,
    pub(crate) audited: Audited,
    pub(crate) crates: BTreeMap<String, Member>,
    #[serde(default)]
    pub(crate) facades: Vec<Facade>,
    pub(crate) words: Words,
    #[serde(default)]
    pub(crate) falling: Tables,
    #[serde(default)]
    pub(crate) commits: Commits,
    pub(crate) fuzz: Fuzz,
    pub(crate) specification: Specification,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budgets {
    pub(crate) file_lines_soft: usize,
    pub(crate) file_lines_hard: usize,
    pub(crate) function_lines: usize,
    pub(crate) audited_lines: usize,
    pub(crate) product_lines: usize,
    pub(crate) methods: usize,
    pub(crate) parameters: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LongFile {
    pub(crate) path: String,
    pub(crate) reason: String,
    /// A table of data, which may be as long as the data is.
    #[serde(default)]
    pub(crate) data: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Audited {
    pub(crate) crates: Vec<String>,
    pub(crate) unsafe_only_in: String,
    /// Files of programs that run in sandboxes alone.
    #[serde(default)]
    pub(crate) unsafe_programs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    pub(crate) own: Vec<String>,
    pub(crate) third_party: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) never: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facade {
    #[serde(rename = "crate")]
    pub(crate) user: String,
    pub(crate) of: String,
    pub(crate) names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Words {
    pub(crate) names: Vec<String>,
    pub(crate) left_over: Vec<String>,
    pub(crate) macros: Vec<String>,
    pub(crate) common_directories: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commits {
    /// The last commit whose subject is not checked.
    pub(crate) since: String,
}

/// A number for each crate; a crate without one has 0.
pub(crate) type Falling = BTreeMap<String, usize>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tables {
    pub(crate) cycles: Falling,
    pub(crate) doc_openers: Falling,
    pub(crate) tuple_parameters: Falling,
    /// Types by crate and name.
    pub(crate) methods: Falling,
    pub(crate) circles: Circles,
}

/// Circles of files, in all crates together.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Circles {
    pub(crate) largest: usize,
    pub(crate) files: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fuzz {
    pub(crate) seeds: usize,
    pub(crate) seed_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Specification {
    pub(crate) file: String,
    pub(crate) end_to_end: String,
    pub(crate) clauses: BTreeMap<String, usize>,
}
