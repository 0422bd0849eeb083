//! Values as files of tools have them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use atoll_model::{
    Input, InputName, InputSource, LimitKey, Shadow, ToolEffect, parse_bytes, parse_duration,
};
use atoll_policy::{Outputs, Requested, RequestedProfile};
use serde::Deserialize;

/// The longest time that a tool can name.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The time of a call where the tool names none.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest result that a tool can name, bytes.
const RESULT_BYTES_MAX: u64 = 1 << 20;
/// The size of a result that a model reads, where the tool names none, bytes.
const RESULT_BYTES: u64 = 64 << 10;

/// Returns that a tool is on, where nothing is said.
pub(crate) fn on() -> bool {
    true
}

/// Reads an effect.
pub(crate) fn effect(name: &str) -> Result<ToolEffect, String> {
    let effects = ToolEffect::ALL.map(ToolEffect::name).join(", ");
    ToolEffect::named(name).ok_or_else(|| format!("{name:?} is none; there are {effects}"))
}

/// Shadow runs as they are written: `true`, `false` or `"twice"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum WrittenShadow {
    Once(bool),
    Times(String),
}

/// Reads the runs on a copy that come before a call's effect.
pub(crate) fn shadow(written: Option<&WrittenShadow>) -> Result<Option<Shadow>, String> {
    match written {
        None | Some(WrittenShadow::Once(false)) => Ok(None),
        Some(WrittenShadow::Once(true)) => Ok(Some(Shadow::Once)),
        Some(WrittenShadow::Times(times)) if times == "twice" => Ok(Some(Shadow::Twice)),
        Some(WrittenShadow::Times(times)) => Err(format!(
            "shadow: {times:?} is none of true, false and \"twice\""
        )),
    }
}

/// Reads the time of a call.
pub(crate) fn timeout(written: Option<&str>) -> Result<Duration, String> {
    let time = written.map_or(Ok(TIMEOUT), duration);
    time.map_err(|why| format!("timeout: {why}"))
}

/// Reads the size of a result.
pub(crate) fn result_bytes(written: Option<&str>) -> Result<usize, String> {
    let bytes = written.map_or(Ok(RESULT_BYTES), size);
    let bytes = bytes.map_err(|why| format!("result-bytes: {why}"))?;
    usize::try_from(bytes).map_err(|error| error.to_string())
}

/// Reads the boundary of a sandbox.
pub(crate) fn requested(
    profile: Option<&str>,
    allow: &[String],
    environment: &BTreeMap<String, String>,
    limits: &BTreeMap<String, String>,
    inputs: &BTreeMap<String, String>,
) -> Result<Requested, String> {
    let limit = |(key, value): (&String, &String)| {
        let key = LimitKey::parse(key).map_err(|error| format!("limits: {error}"))?;
        Ok((key, value.clone()))
    };
    let variable = |(name, value): (&String, &String)| OsString::from(format!("{name}={value}"));
    let input = |(name, source): (&String, &String)| input(name, source);
    Ok(Requested {
        profile: profile.map(|name| RequestedProfile::Named(name.to_owned())),
        allow: allow.to_vec(),
        limits: limits.iter().map(limit).collect::<Result<_, String>>()?,
        environment: environment.iter().map(variable).collect(),
        outputs: Outputs::WherePossible,
        inputs: inputs.iter().map(input).collect::<Result<_, String>>()?,
        ..Requested::default()
    })
}

/// Reads an input: a name, and an absolute path or `artifact:ID`.
fn input(name: &str, source: &str) -> Result<Input, String> {
    let at = |why: &str| format!("inputs.{name}: {why}");
    let none =
        "a name is of letters, digits, `.`, `_` and `-`, and begins with a letter or a digit";
    let source = match InputSource::parse(source) {
        Some(Ok(source @ InputSource::Artifact(_))) => source,
        None if source.starts_with('/') => {
            let path = Path::new(source).canonicalize();
            InputSource::Path(path.map_err(|error| at(&format!("{source}: {error}")))?)
        }
        Some(_) | None => return Err(at("it is neither an absolute path nor artifact:ID")),
    };
    Ok(Input {
        name: InputName::parse(name).ok_or_else(|| at(none))?,
        source,
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match !time.is_zero() && time <= TIMEOUT_MAX {
        true => Ok(time),
        false => Err("it is more than nothing and a day at most".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    match (1..=RESULT_BYTES_MAX).contains(&bytes) {
        true => Ok(bytes),
        false => Err("it is more than nothing and 1 MiB at most".to_owned()),
    }
}
