//! Signatures that are made anew: the program's own is checked before anything is sent.

use super::Outgoing;
use super::unanswered::Unanswered;
use crate::Egress;
use crate::inspect::Asked;
use crate::inspect::injection::Needed;

/// Whether a program has signed what it sends.
pub(super) async fn check(
    egress: &Egress,
    asked: &Asked,
    outgoing: &mut Outgoing,
) -> Result<(), Unanswered> {
    let Some(signing) = outgoing.injection.signing() else {
        return Ok(());
    };
    let body = match (signing.needs(), &mut outgoing.body) {
        (Needed::Body, Some(body)) => {
            let read = body.read(&egress.ahead).await;
            read.map_err(|error| Unanswered::Broken(error.to_string()))?
        }
        (Needed::Body, None) | (Needed::Nothing, _) => Default::default(),
    };
    let (credentials, parts) = (&egress.credentials, &outgoing.parts);
    let proven = signing.prove(credentials, asked, parts, &outgoing.head, &body);
    proven.map_err(Unanswered::Misused)
}
