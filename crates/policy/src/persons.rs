//! `[approvals]`: how many persons it takes to widen what a run may while it goes on.

use crate::document::{Complaint, Document, Section};
use crate::origin::{Origin, Sourced};

/// How many names there can be.
const APPROVERS_MAX: usize = 64;
/// The longest name, bytes: what useradd(8) takes, and some more.
const NAME_BYTES_MAX: usize = 64;

/// How many persons have to say yes to what lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persons {
    One,
    Two,
}

/// `[approvals]` of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersonSettings {
    widen: Option<Sourced<Persons>>,
    approvers: Option<Vec<Sourced<String>>>,
}

impl PersonSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Self {
        let Some(mut section) = document.section(top, "approvals", "approvals") else {
            return Self::default();
        };
        let widen = document.measure_with_place(&mut section, "widen", parse_widen);
        let approvers = document.list_with_numbers(&mut section, "approvers", parse_approver);
        document.end(section, &["widen", "approvers"]);
        if let Some(list) = approvers
            .as_ref()
            .filter(|list| list.value.len() > APPROVERS_MAX)
        {
            let what = format!("`approvers` in [approvals]: {APPROVERS_MAX} at most");
            document.report_line(&list.origin, what);
        }
        Self {
            widen,
            approvers: approvers.map(|list| list.value),
        }
    }
}

fn parse_widen(text: &str) -> Result<Persons, Complaint> {
    match text {
        "1" => Ok(Persons::One),
        "2" => Ok(Persons::Two),
        _ => Err(Complaint::new(
            format!("{text} is no number of persons that can be asked for"),
            "1 or 2",
        )),
    }
}

fn parse_approver(text: &str) -> Result<String, Complaint> {
    let is_usable = |byte: u8| byte.is_ascii_graphic() && !b":/,".contains(&byte);
    match !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_usable) {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            format!("{text:?} is no name of a user"),
            "a name of /etc/passwd, or a user's number",
        )),
    }
}

/// Who has to say yes before a run may do more, for longer than once, than its rules say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Widened {
    /// Where it says that it takes two persons with different user numbers, if it does.
    pub by_two: Option<Origin>,
    /// The persons who count beside the run's own. Root is one where it is among them.
    pub approvers: Vec<Approver>,
}

/// Somebody who can say the second of two yeses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    /// The name of a user, or their number.
    pub name: String,
    /// Where that is written.
    pub origin: Origin,
}

fn approver(one: Sourced<String>) -> Approver {
    Approver {
        name: one.value,
        origin: one.origin,
    }
}

impl Widened {
    /// The stricter number of both files; where the organisation names who counts, those do.
    pub(crate) fn of(organisation: PersonSettings, user: PersonSettings) -> Self {
        let said = [organisation.widen, user.widen].into_iter().flatten();
        let mut by_two = said.filter(|one| one.value == Persons::Two);
        let approvers = organisation
            .approvers
            .or(user.approvers)
            .unwrap_or_default();
        Self {
            by_two: by_two.next().map(|one| one.origin),
            approvers: approvers.into_iter().map(approver).collect(),
        }
    }
}
