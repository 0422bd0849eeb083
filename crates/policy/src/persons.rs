//! `[approvals]`: the number of persons needed to widen a run's rights while it is going on.

use crate::document::{Complaint, Document, Section};
use crate::origin::{Origin, Sourced};

/// The most approvers.
const APPROVERS_MAX: usize = 64;
/// The longest name, bytes: more than useradd(8) takes.
const NAME_BYTES_MAX: usize = 64;

/// The number of persons who have to approve a lease.
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

/// The approvals needed before a run gets more rights than its rules grant, for longer than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Widened {
    /// The place where two persons with different user numbers are required, if they are.
    pub by_two: Option<Origin>,
    /// The approvers besides the run's own user. Root is one only if it is listed.
    pub approvers: Vec<Approver>,
}

/// A person who can give the second of two approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    /// The user's name or number.
    pub name: String,
    /// The place where the approver is named.
    pub origin: Origin,
}

fn approver(one: Sourced<String>) -> Approver {
    Approver {
        name: one.value,
        origin: one.origin,
    }
}

impl Widened {
    /// Merges both files: the stricter number counts, and the organisation's approvers if it names
    /// any.
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
