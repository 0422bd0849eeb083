//! The logins and refresh tokens renewed in a run, and where the new ones are: for a person and as
//! JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use atoll_engine::printable::printable;
use atoll_engine::supervision::{Flows, RenewedLogin, RotatedToken};
use atoll_model::civil_date;
use serde_json::{Value, json};

use crate::render;

/// Formats a line for each of them.
pub(crate) fn told(flows: &Flows) -> Vec<String> {
    [lines(&flows.renewed), rotated_lines(&flows.rotated)].concat()
}

/// Formats a line for each login.
fn lines(all: &[RenewedLogin]) -> Vec<String> {
    let line = |one: &RenewedLogin| {
        let times = match one.times {
            1 => String::new(),
            times => format!(", {} times in all", render::grouped(times)),
        };
        let line = format!(
            "login {}: renewed at {}{times}, and its new tokens written to {}",
            one.name,
            moment(one.at),
            one.file.display()
        );
        printable(line.as_bytes())
    };
    all.iter().map(line).collect()
}

/// Returns the renewed logins as JSON.
pub(crate) fn json(all: &[RenewedLogin]) -> Vec<Value> {
    let one = |one: &RenewedLogin| {
        json!({
            "login": one.name,
            "file": one.file.to_string_lossy(),
            "at": moment(one.at),
            "times": one.times,
        })
    };
    all.iter().map(one).collect()
}

/// Formats a line for each refresh token that an issuer has replaced.
fn rotated_lines(all: &[RotatedToken]) -> Vec<String> {
    let line = |one: &RotatedToken| {
        let (name, from, at) = (&one.name, &one.from, moment(one.at));
        let line = match &one.unkept {
            None => format!(
                "credential {name}: its refresh token was replaced at {at}, and the new one written to {from}"
            ),
            Some(why) => format!(
                "credential {name}: its refresh token was replaced at {at}, and the new one not written to {from} ({why}): \
                 the old one may open nothing any more; get a new one, and keep it by atoll secret set NAME"
            ),
        };
        printable(line.as_bytes())
    };
    all.iter().map(line).collect()
}

/// Returns the rotated refresh tokens as JSON.
pub(crate) fn rotated_json(all: &[RotatedToken]) -> Vec<Value> {
    let one = |one: &RotatedToken| {
        json!({
            "credential": one.name,
            "from": one.from,
            "at": moment(one.at),
            "written": one.unkept.is_none(),
        })
    };
    all.iter().map(one).collect()
}

/// Formats a time as in RFC 3339, in UTC, to the second.
fn moment(at: SystemTime) -> String {
    let seconds = at
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_login_that_was_written_is_told_with_its_file_and_when() {
        let mut one = RenewedLogin {
            name: "codex".to_owned(),
            file: "/home/p/.codex/auth.json".into(),
            at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            times: 1,
        };
        let told = "login codex: renewed at 2023-11-14T22:13:20Z, and its new tokens written to \
                    /home/p/.codex/auth.json";
        assert_eq!(lines(std::slice::from_ref(&one)), [told]);
        one.times = 3;
        let told = told.replace("20Z", "20Z, 3 times in all");
        assert_eq!(lines(std::slice::from_ref(&one)), [told]);
        assert_eq!(json(&[one])[0]["at"], "2023-11-14T22:13:20Z");
        assert!(lines(&[]).is_empty());
    }

    #[test]
    fn a_refresh_token_that_was_replaced_is_told_with_where_it_is_or_is_not() {
        let mut one = RotatedToken {
            name: "api".to_owned(),
            from: "the vault's secret api".to_owned(),
            at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            unkept: None,
        };
        let told = "credential api: its refresh token was replaced at 2023-11-14T22:13:20Z, and \
                    the new one written to the vault's secret api";
        assert_eq!(rotated_lines(std::slice::from_ref(&one)), [told]);
        assert_eq!(rotated_json(std::slice::from_ref(&one))[0]["written"], true);
        one.unkept = Some("it is a symbolic link".to_owned());
        let lines = rotated_lines(std::slice::from_ref(&one));
        assert!(lines[0].contains("not written to the vault's secret api (it is a symbolic link)"));
        assert_eq!(rotated_json(&[one])[0]["written"], false);
    }
}
