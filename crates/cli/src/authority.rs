//! `atoll ca`: the certificate authority that sandboxes trust.

use std::time::{Duration, SystemTime};

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Durability, host_text};
use atoll_model::civil_date;
use atoll_store::{AuthorityError, CertificateAuthority};
use serde_json::json;

use crate::advice;
use crate::arguments::{
    AuthorityAction, AuthorityArguments, RotateAuthorityArguments, ShowAuthorityArguments,
};
use crate::output::Output;

/// The time for which new sandboxes still trust a replaced authority.
const OVERLAP: Duration = Duration::from_secs(30 * 24 * 3600);

/// Shows the authority, or replaces it.
pub fn authority(arguments: AuthorityArguments, output: &Output) -> Result<u8, Failure> {
    match arguments.action {
        AuthorityAction::Show(arguments) => show(&arguments, output),
        AuthorityAction::Rotate(arguments) => rotate(&arguments, output),
    }
}

fn unusable(error: &AuthorityError) -> Failure {
    Failure::new("the certificate authority cannot be used")
        .because(error)
        .advise(advice::authority(error))
}

fn show(arguments: &ShowAuthorityArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let found = match places.state.exists() {
        true => CertificateAuthority::read(&places.read_state()?),
        false => Ok(None),
    };
    let found = found.map_err(|error| unusable(&error))?;
    let Some(found) = found else {
        return Err(
            Failure::new("there is no certificate authority yet").advise(
                "the first run whose network is looked into makes it; so does: atoll ca rotate",
            ),
        );
    };
    let now = SystemTime::now();
    if arguments.json {
        let former: Vec<serde_json::Value> = found
            .former(now)
            .map(|one| {
                json!({
                    "certificate": one.certificate,
                    "fingerprint": one.fingerprint,
                    "trusted-until-s": one.trusted_until_s,
                })
            })
            .collect();
        output.json(&json!({
            "name": found.name(),
            "certificate": found.certificate(),
            "fingerprint": found.fingerprint(),
            "valid-from-s": seconds(found.valid_from()),
            "valid-until-s": seconds(found.valid_until()),
            "path": host_text(found.path()),
            "former": former,
        }));
        return Ok(0);
    }
    let path = printable(found.path().as_os_str().as_encoded_bytes());
    let mut text = format!(
        "{}\n  SHA-256     {}\n  valid       {} to {}\n  kept in     {path}\n",
        found.name(),
        found.fingerprint(),
        date(seconds(found.valid_from())),
        date(seconds(found.valid_until())),
    );
    for one in found.former(now) {
        let until = date(one.trusted_until_s);
        text.push_str(&format!("  until {until} also {}\n", one.fingerprint));
    }
    output.result(&format!("{text}{}", found.certificate()));
    Ok(0)
}

fn rotate(arguments: &RotateAuthorityArguments, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let overlap = match arguments.revoke {
        true => Duration::ZERO,
        false => OVERLAP,
    };
    let made = CertificateAuthority::rotate(&state, SystemTime::now(), overlap)
        .map_err(|error| unusable(&error))?;
    let body = json!({ "fingerprint": made.fingerprint(), "revoked": arguments.revoke });
    ledger
        .record(None, "authority.rotated", body, Durability::Durable)
        .doing("the change cannot be recorded")?;
    let after = match arguments.revoke {
        true => "New sandboxes trust no other.",
        false => "New sandboxes trust the one before it for 30 days more.",
    };
    output.say(&format!(
        "{} is the certificate authority now. {after}\n",
        made.name()
    ));
    Ok(0)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Returns the day of a time in seconds since 1970.
fn date(seconds: u64) -> String {
    let (year, month, day) = civil_date(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}
