//! Reads release dates from the responses of package registries.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::time::{Duration, SystemTime};

use atoll_model::network::{Project, Registry, Target};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The media types that are accepted: PyPI has the same page as HTML (PEP 691).
pub(super) const KINDS: &str =
    "application/vnd.pypi.simple.v1+json, application/json, text/plain;q=0.5";
/// The most files that one project may have released.
const FILES_MAX: usize = 200_000;
/// The origin of PyPI's files.
const FILES: &str = "https://files.pythonhosted.org";

/// The release date of each of a project's files, by its key.
pub(super) type Dates = HashMap<String, ReleaseDate>;

/// A file's release date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseDate {
    /// The known time.
    At(SystemTime),
    /// The file is listed, and its date is missing or cannot be read.
    Unread,
}

impl ReleaseDate {
    /// Parses a date (RFC 3339).
    fn read(text: &str) -> Self {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok();
        let seconds = parsed.and_then(|time| u64::try_from(time.unix_timestamp()).ok());
        // A second that has begun is over: never older than it is.
        let since = seconds.and_then(|seconds| seconds.checked_add(1));
        let time =
            since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since)));
        time.map_or(Self::Unread, Self::At)
    }
}

/// Reads a registry's response about a project.
///
/// # Errors
/// The reason why it cannot be read, in words.
pub(super) fn read(project: &Project, text: &[u8]) -> Result<Dates, String> {
    match project.registry {
        Registry::Npm => npm(project, text),
        Registry::Pip => pip(project, text),
        Registry::Cargo => cargo(text),
    }
}

fn unread(error: serde_json::Error) -> String {
    format!("its answer cannot be read: {error}")
}

/// The response lists more files than can be held.
#[derive(Debug, thiserror::Error)]
#[error("it tells of more than {FILES_MAX} files")]
struct TooMany;

/// Adds a date. A file listed twice counts as having no readable date.
fn note(dates: &mut Dates, key: String, released: ReleaseDate) -> Result<(), TooMany> {
    let count = dates.len();
    match dates.entry(key) {
        Entry::Occupied(mut occupied) => drop(occupied.insert(ReleaseDate::Unread)),
        Entry::Vacant(_) if count >= FILES_MAX => return Err(TooMany),
        Entry::Vacant(vacant) => drop(vacant.insert(released)),
    }
    Ok(())
}

/// The npm document of a package.
#[derive(Deserialize)]
struct Packument {
    name: String,
    time: Times,
}

/// The dates in it, by version.
struct Times(Dates);

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(TimesOf)
    }
}

struct TimesOf;

impl<'de> Visitor<'de> for TimesOf {
    type Value = Times;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("dates by version")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Times, A::Error> {
        let mut dates = Dates::new();
        while let Some((version, date)) = map.next_entry::<String, Date>()? {
            // Beside versions there are `created`, `modified` and the like.
            if version.starts_with(|one: char| one.is_ascii_digit()) {
                note(&mut dates, version, date.0).map_err(A::Error::custom)?;
            }
        }
        Ok(Times(dates))
    }
}

/// A date, or any other JSON value in its place.
struct Date(ReleaseDate);

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(DateOf)
    }
}

struct DateOf;

impl<'de> Visitor<'de> for DateOf {
    type Value = Date;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a date")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Date, E> {
        Ok(Date(ReleaseDate::read(text)))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Date, E> {
        Ok(Date(ReleaseDate::Unread))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Date, E> {
        Ok(Date(ReleaseDate::Unread))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Date, E> {
        Ok(Date(ReleaseDate::Unread))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Date, E> {
        Ok(Date(ReleaseDate::Unread))
    }

    fn visit_unit<E: Error>(self) -> Result<Date, E> {
        Ok(Date(ReleaseDate::Unread))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Date, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Date(ReleaseDate::Unread))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Date, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Date(ReleaseDate::Unread))
    }
}

fn npm(project: &Project, text: &[u8]) -> Result<Dates, String> {
    let packument: Packument = serde_json::from_slice(text).map_err(unread)?;
    match packument.name == project.name {
        true => Ok(packument.time.0),
        false => Err(other_project(&packument.name)),
    }
}

/// The PyPI page of a project (PEP 691, PEP 700).
#[derive(Deserialize)]
struct Page {
    name: String,
    files: Files,
}

/// The dates of the page's files, by URL.
struct Files(Dates);

#[derive(Deserialize)]
struct File {
    url: String,
    #[serde(default, rename = "upload-time")]
    upload_time: Option<Date>,
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(FilesOf)
    }
}

struct FilesOf;

impl<'de> Visitor<'de> for FilesOf {
    type Value = Files;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("files with their dates")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Files, A::Error> {
        let mut dates = Dates::new();
        while let Some(file) = list.next_element::<File>()? {
            let place = file.url.strip_prefix(FILES).map(|path| {
                let path = path.split_once('#').map_or(path, |(path, _)| path);
                Target::parse(path)
            });
            // What lies elsewhere is nothing that is asked for.
            if let Some(Ok(target)) = place {
                let released = file.upload_time.map_or(ReleaseDate::Unread, |date| date.0);
                let path = target.path().to_owned();
                note(&mut dates, path, released).map_err(A::Error::custom)?;
            }
        }
        Ok(Files(dates))
    }
}

fn pip(project: &Project, text: &[u8]) -> Result<Dates, String> {
    let page: Page = serde_json::from_slice(text).map_err(unread)?;
    match project.registry.normal(&page.name) == project.name {
        true => Ok(page.files.0),
        false => Err(other_project(&page.name)),
    }
}

/// A line of the crates.io index.
#[derive(Deserialize)]
struct Line {
    name: String,
    vers: String,
    #[serde(default)]
    pubtime: Option<Date>,
}

fn cargo(text: &[u8]) -> Result<Dates, String> {
    let mut dates = Dates::new();
    for line in text.split(|byte| *byte == b'\n') {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_slice(line).map_err(unread)?;
        let released = line.pubtime.map_or(ReleaseDate::Unread, |date| date.0);
        let key = format!("{} {}", line.name, line.vers);
        note(&mut dates, key, released).map_err(|error| error.to_string())?;
    }
    Ok(dates)
}

fn other_project(name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    format!("its answer is of another package, {name:?}")
}

#[cfg(test)]
mod tests;
