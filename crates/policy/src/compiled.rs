//! Policy files of all layers, compiled.

use atoll_cedar::{Fault, Layer, Layers, PolicyFile};

use crate::error::Problem;
use crate::file::SourceFile;

/// The policies of all layers, as read and compiled.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    pub(crate) layers: Layers,
    pub(crate) files: Vec<(Layer, Vec<PolicyFile>)>,
}

pub(crate) fn policy_file(file: &SourceFile<'_>) -> PolicyFile {
    PolicyFile {
        name: file.name.to_string(),
        content: file.content.to_vec(),
    }
}

pub(crate) fn problems(faults: Vec<Fault>) -> Vec<Problem> {
    let problem = |fault: Fault| Problem {
        file: fault.file,
        line: fault.line,
        column: fault.column,
        what: fault.what,
        hint: fault.hint,
    };
    faults.into_iter().map(problem).collect()
}
