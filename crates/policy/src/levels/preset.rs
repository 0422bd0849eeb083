//! Trust presets that ship with Atoll: a level and a mode, named by use.

use crate::document::{Complaint, Document};
use crate::error::Problem;
use crate::file::SourceFile;
use crate::levels::{Level, TrustMode};
use crate::presets::PresetSummary;
use crate::words::among;

/// The file of a preset.
struct Shipped {
    name: &'static str,
    file: &'static str,
    content: &'static str,
}

macro_rules! presets {
    ($($name:literal,)*) => {
        &[$(Shipped {
            name: $name,
            file: concat!("level/", $name, ".toml"),
            content: include_str!(concat!("../../levels/", $name, ".toml")),
        }),*]
    };
}

const ALL: &[Shipped] = presets! {
    "production-backend",
    "development-assistant",
    "research",
    "public-chat",
};

/// The settings of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrustPreset {
    pub(crate) level: Level,
    pub(crate) mode: TrustMode,
}

/// Returns the preset of this name.
pub(crate) fn named(name: &str) -> Option<TrustPreset> {
    let shipped = ALL.iter().find(|one| one.name == name)?;
    shipped.read().ok().flatten()
}

/// Parses a preset's name.
pub(crate) fn parse(name: &str) -> Result<TrustPreset, Complaint> {
    let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
    named(name).ok_or_else(|| among(name, &names))
}

/// Returns all presets, in the order in which they are listed.
pub(crate) fn summaries() -> impl Iterator<Item = PresetSummary> {
    ALL.iter().map(|one| PresetSummary {
        name: one.name,
        description: one.description(),
        content: one.content,
    })
}

impl Shipped {
    fn read(&self) -> Result<Option<TrustPreset>, Vec<Problem>> {
        let file = SourceFile::new(self.file, self.content.as_bytes());
        let (mut document, mut top) = Document::open(&file)?;
        document.text(&mut top, "description", |_| Ok(()));
        let level = document.text(&mut top, "level", Level::parse);
        let mode = document.text(&mut top, "mode", TrustMode::parse);
        document.end(top, &["description", "level", "mode"]);
        let both = level.zip(mode).map(|(level, mode)| TrustPreset {
            level: level.value,
            mode: mode.value,
        });
        document.close(both)
    }

    fn description(&self) -> &'static str {
        let found = self.content.lines().find_map(|line| {
            let text = line.strip_prefix("description = \"")?;
            text.strip_suffix('"')
        });
        found.unwrap_or_default()
    }
}
