//! `[home]`: the places of the home directory that are shown, and their access.

use std::path::PathBuf;

use crate::document::{Document, Section};
use crate::origin::Sourced;
use crate::places::parse_in_home;
use crate::words::Author;

/// The access to a place in the home directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeUse {
    /// Readable.
    Read,
    /// Changed in a layer of the run.
    Layer,
    /// Changed in a layer that the profile's next run goes on with.
    Keep,
    /// Changed in a layer that only saves time.
    Cache,
}

/// A place in the home directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HomePlace {
    pub(crate) path: PathBuf,
    pub(crate) usage: HomeUse,
}

/// `[home]` of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomeSettings {
    pub(crate) places: Vec<Sourced<HomePlace>>,
    pub(crate) keep_caches: Option<Sourced<bool>>,
}

impl HomeSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>, author: Author) -> Self {
        let Some(mut section) = document.section(top, "home", "home") else {
            return Self::default();
        };
        let known: &[&str] = match author {
            Author::Profile => &["read", "layer", "keep", "cache", "keep-caches"],
            Author::Project => {
                let why = "a project's file cannot choose what is kept between runs";
                document.refuse(&mut section, "keep", why);
                document.refuse(&mut section, "keep-caches", why);
                &["read", "layer", "cache"]
            }
        };
        let mut places: Vec<Sourced<HomePlace>> = Vec::new();
        for (key, usage) in [
            ("read", HomeUse::Read),
            ("layer", HomeUse::Layer),
            ("keep", HomeUse::Keep),
            ("cache", HomeUse::Cache),
        ] {
            let Some(list) = document.list(&mut section, key, parse_in_home) else {
                continue;
            };
            for place in list.value {
                places.push(place.map(|path| HomePlace { path, usage }));
            }
        }
        report_twice(document, &places);
        let keep_caches = document.flag(&mut section, "keep-caches");
        document.end(section, known);
        Self {
            places,
            keep_caches: keep_caches.map(|(flag, _)| flag),
        }
    }
}

/// Reports a path in two lists of one file, whose use would be ambiguous.
fn report_twice(document: &mut Document, places: &[Sourced<HomePlace>]) {
    for (index, place) in places.iter().enumerate() {
        let other = places.iter().take(index).find(|other| {
            other.value.usage != place.value.usage && other.value.path == place.value.path
        });
        if let Some(other) = other {
            let (first, second) = match other.origin.line() <= place.origin.line() {
                true => (other, place),
                false => (place, other),
            };
            let path = &place.value.path;
            let what = format!(
                "{path:?} in [home] is named twice, for different uses; first at {}",
                first.origin
            );
            document.report_line(&second.origin, what);
        }
    }
}
