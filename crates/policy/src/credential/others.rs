//! `others`: the handling of other credentials' placeholders in bodies.

use atoll_model::network::{Others, Place as Spot};

use crate::document::{Complaint, Document, Section};

/// Reads `others`; by default a placeholder of another credential stops a request.
pub(super) fn read(
    document: &mut Document,
    section: &mut Section<'_>,
    place: Option<&Spot>,
) -> Others {
    let parse = |text: &str| match (text, place) {
        ("refused", _) => Ok(Others::Refused),
        ("masked", Some(Spot::Header { .. } | Spot::Basic(_) | Spot::Query(_)) | None) => {
            Ok(Others::Masked)
        }
        ("masked", Some(Spot::Body(_) | Spot::Refresh(_) | Spot::SigV4(_) | Spot::Postgres(_))) => {
            Err(Complaint::new(
                "`others = \"masked\"` is for a credential in a header or a parameter: bodies of \
                 other requests are not changed so",
                "leave it out",
            ))
        }
        (_, _) => Err(Complaint::new(
            format!("`others`: there is no {text:?}"),
            "write \"masked\" or \"refused\"",
        )),
    };
    let read = document.text(section, "others", parse);
    read.map_or_else(Others::default, |read| read.value)
}

/// Returns its line in a profile, unless it is the default.
pub(super) fn line(others: Others) -> Option<String> {
    match others {
        Others::Refused => None,
        Others::Masked => Some("others = \"masked\"".to_owned()),
    }
}
