//! Inputs of a sandbox (`--input`), and their bounds (`[inputs]`).

use atoll_model::{Input, InputBounds, Inputs, parse_bytes};

use crate::document::{Complaint, Document, Section};
use crate::origin::{Origin, Sourced};

/// `[inputs]` of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputSettings {
    bytes: Option<Sourced<u64>>,
    files: Option<Sourced<u64>>,
    types: Option<Sourced<Vec<Sourced<String>>>>,
}

impl InputSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Self {
        let Some(mut section) = document.section(top, "inputs", "inputs") else {
            return Self::default();
        };
        let number = |text: &str| text.parse().map_err(|_| no_number(text));
        let bytes = |text: &str| parse_bytes(text).map_err(|error| error.to_string().into());
        let settings = Self {
            bytes: document.measure_with_place(&mut section, "bytes", bytes),
            files: document.measure_with_place(&mut section, "files", number),
            types: document.list(&mut section, "types", parse_type),
        };
        document.end(section, &["bytes", "files", "types"]);
        settings
    }
}

fn no_number(text: &str) -> Complaint {
    Complaint::new(
        format!("{text:?} is no number"),
        "write a whole number, as 1000",
    )
}

fn parse_type(text: &str) -> Result<String, Complaint> {
    let part = |one: &str| {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-+.".contains(&byte);
        !one.is_empty() && one.bytes().all(fits)
    };
    let is_type = |(family, kind): (&str, &str)| part(family) && (kind == "*" || part(kind));
    match text.split_once('/').is_some_and(is_type) {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            format!("{text:?} is no media type"),
            "write one as \"text/csv\", or a family as \"text/*\"",
        )),
    }
}

/// The inputs asked for, and their bounds by the merged profiles.
#[derive(Clone, Debug)]
pub(crate) struct InputRules {
    pub(crate) all: Vec<Input>,
    pub(crate) bytes: Sourced<u64>,
    pub(crate) files: Sourced<u64>,
    pub(crate) types: Vec<Sourced<String>>,
}

impl Default for InputRules {
    fn default() -> Self {
        let bounds = InputBounds::default();
        Self {
            all: Vec::new(),
            bytes: Sourced::built_in(bounds.bytes),
            files: Sourced::built_in(bounds.files),
            types: Vec::new(),
        }
    }
}

impl InputRules {
    /// Merges a file's settings over these.
    pub(crate) fn merge(&mut self, settings: InputSettings) {
        self.bytes = settings.bytes.unwrap_or_else(|| self.bytes.clone());
        self.files = settings.files.unwrap_or_else(|| self.files.clone());
        if let Some(types) = settings.types {
            self.types = types.value;
        }
    }

    /// Returns whether they differ from the defaults, so that they are worth showing.
    pub(crate) fn are_stated(&self) -> bool {
        let origins = [&self.bytes.origin, &self.files.origin];
        let are_built_in = origins.iter().all(|one| **one == Origin::BuiltIn);
        !(are_built_in && self.types.is_empty())
    }

    pub(crate) fn bounded(&self) -> Inputs {
        Inputs {
            all: self.all.clone(),
            bounds: InputBounds {
                bytes: self.bytes.value,
                files: self.files.value,
                types: self.types.iter().map(|one| one.value.clone()).collect(),
            },
        }
    }
}
