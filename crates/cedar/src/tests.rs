mod agreement;
mod cases;
mod depth;
mod engine;
mod files;
mod indexed;
mod layered;
mod long;
mod never;
mod obligations;
mod owed;
mod stated;
mod tools;

use atoll_model::Mode;

use crate::{Facts, Known, Policies, PolicyFile, Principal};

pub(crate) fn file(text: &str) -> PolicyFile {
    PolicyFile {
        name: "/policies/test.cedar".to_owned(),
        content: text.as_bytes().to_vec(),
    }
}

pub(crate) fn compiled(text: &str) -> Policies {
    match Policies::compile(&[file(text)], Known::default()) {
        Ok(policies) => policies,
        Err(faults) => panic!("{text}\n{faults:?}"),
    }
}

/// Returns the errors in a file, as they are printed.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let faults = Policies::compile(&[file(text)], Known::default()).err();
    let faults = faults.unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

pub(crate) fn principal() -> Principal {
    Principal {
        person: 1000,
        session: Some("run-1".to_owned()),
    }
}

pub(crate) fn facts() -> Facts {
    Facts::new(1_800_000_000, Mode::Full, "default")
}
