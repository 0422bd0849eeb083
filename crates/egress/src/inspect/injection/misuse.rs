//! Misuse of placeholders: in bodies, in tunnels, and wherever else nothing is injected.

use atoll_model::network::{Flow, HostPart, Place};

use super::{Misuse, encoding_text, misuse};
use crate::credentials::Credentials;
use crate::secret::Found;

/// Builds the misuse of a placeholder in a body, where it may not be in this form.
pub(crate) fn misuse_in_body(credentials: &Credentials, found: Found) -> Option<Misuse> {
    let held = credentials.get(found.number)?;
    let Place::Body(field) = &held.binding.place else {
        return misuse_in(credentials, found, "its body");
    };
    let form = encoding_text(found.form);
    let why = format!(
        "is in its body{form}, and not once as all of the field {field} of a small form or JSON object"
    );
    Some(misuse(held, &why))
}

/// Builds the misuse of a placeholder in a part of a request into which nothing is injected.
fn misuse_in(credentials: &Credentials, found: Found, place: &str) -> Option<Misuse> {
    let form = encoding_text(found.form);
    let held = credentials.get(found.number)?;
    let why = format!("is in {place}{form}, which the credential is not bound to");
    Some(misuse(held, &why))
}

/// Builds the misuse of a placeholder in a tunnel, which mostly leads to another host than its own.
pub(crate) fn misuse_in_tunnel(
    credentials: &Credentials,
    flow: &Flow,
    found: Found,
    place: &str,
) -> Option<Misuse> {
    let mut misuse = misuse_in(credentials, found, place)?;
    let held = credentials.get(found.number)?;
    let host = flow.host.parse::<HostPart>();
    if !host.is_ok_and(|host| held.binding.is_for(&host, flow.port)) {
        let form = encoding_text(found.form);
        misuse.why = format!(
            "Blocked: placeholder sent to a host that the credential is not bound to (credential \
             {}, in {place}{form})",
            misuse.name
        );
    }
    Some(misuse)
}
