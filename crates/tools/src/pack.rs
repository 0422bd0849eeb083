//! Packs: tools that others have made, with the rights that they need. A pack is signed by its
//! maker, shown to a person, and installed as it was shown; of one that is changed after that no tool
//! counts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atoll_engine::configuration::read_optional;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::signed::{Manifest, OrganisationKey, Signed, VerifierKey};
use atoll_policy::{Requested, RequestedProfile, SourceFile};
use serde::Deserialize;

/// The file of tools.
pub(crate) const FILE: &str = "tools.toml";
/// The directory of the packs that are installed, and of those that were approved.
pub(crate) const DIRECTORY: &str = "packs";
/// The file of the signature.
const SIGNATURE: &str = "pack.sig";
/// The file that says what it is.
const ABOUT: &str = "pack.toml";
/// The end of the name of a profile's file.
const PROFILE: &str = ".profile.toml";
const NAME_BYTES_MAX: usize = 64;
/// The largest pack, bytes.
pub const PACK_BYTES_MAX: usize = 8 << 20;

/// The files of a pack, by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A pack, as its maker has signed it.
#[derive(Clone, Debug)]
pub struct Pack {
    about: About,
    key: VerifierKey,
    serial: u64,
    files: Files,
    /// The list of the files, signed.
    note: Vec<u8>,
}

/// The words of a pack about itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    name: String,
    version: String,
    description: String,
}

impl Pack {
    /// Reads a pack of these files, whose maker has this key.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn of(mut files: Files, key: &VerifierKey) -> Result<Self, String> {
        let note = files.remove(SIGNATURE);
        let note = note.ok_or_else(|| format!("it has no {SIGNATURE}: it is not signed"))?;
        let about = about(&files)?;
        let manifest = Manifest::open(Signed::Tools, &note, key);
        let manifest = manifest.map_err(|fault| format!("{SIGNATURE}: {fault}"))?;
        let named = files.iter().map(|(name, bytes)| (&**name, &**bytes));
        manifest.check(named).map_err(|fault| fault.to_string())?;
        Ok(Self {
            about,
            key: key.clone(),
            serial: manifest.serial(),
            files,
            note,
        })
    }

    /// Signs a directory as a pack: its number is the one after that of the signature that is there.
    ///
    /// # Errors
    /// When it is none, or cannot be written.
    pub fn sign(directory: &Path, key: &OrganisationKey) -> Result<(String, u64), Failure> {
        let unsigned = "nothing is signed";
        let mut files = files_in(directory).doing(unsigned)?;
        let before = files.remove(SIGNATURE);
        let name = about(&files).doing(unsigned)?.name;
        let before = before.map(|note| Manifest::open(Signed::Tools, &note, key.verifier()));
        let before = before.transpose().doing(unsigned)?;
        let serial = before.map_or(1, |before| before.serial() + 1);
        let named = files.iter().map(|(name, bytes)| (&**name, &**bytes));
        let maker = key.verifier().name();
        let list = Manifest::of(Signed::Tools, maker, serial, None, named).doing(unsigned)?;
        let note = list.sign(std::slice::from_ref(key)).doing(unsigned)?;
        write(&directory.join(SIGNATURE), note.as_bytes()).doing(unsigned)?;
        Ok((name, serial))
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Returns the name that files of a pack say it has.
    ///
    /// # Errors
    /// Describes why they are no pack's.
    pub fn name_in(files: &Files) -> Result<String, String> {
        Ok(about(files)?.name)
    }

    /// Returns its version, as its maker says.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.about.version
    }

    /// Returns what it is for, as its maker says.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.about.description
    }

    /// Returns the number of its list, which only grows.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the key of its maker.
    #[must_use]
    pub fn key(&self) -> &VerifierKey {
        &self.key
    }

    /// Returns its files.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the file that its tools are in.
    pub(crate) fn tools(&self) -> &[u8] {
        self.files.get(FILE).map_or(&[], |bytes| bytes)
    }

    /// Has a boundary be of the pack's own profile: it names no other, and that extends none, so that
    /// no right of it is a person's that was not shown.
    pub(crate) fn bound(&self, requested: &mut Requested) -> Result<(), String> {
        let Some(RequestedProfile::Named(name)) = &requested.profile else {
            return Err("profile: one of the pack's own is missing".to_owned());
        };
        let file = format!("{name}{PROFILE}");
        let content = self.files.get(&file);
        let content = content.ok_or_else(|| format!("profile: the pack has no {file}"))?;
        let text = std::str::from_utf8(content).map_err(|_| format!("{file} is not UTF-8"))?;
        let table: toml::Table =
            toml::from_str(text).map_err(|error| format!("{file}: {error}"))?;
        if table.contains_key("extends") {
            return Err(format!("{file}: a profile of a pack extends no other"));
        }
        let of = format!("{}/{file}", self.name());
        let own = SourceFile::new(of, content.clone());
        requested.profile = Some(RequestedProfile::File(own));
        Ok(())
    }

    /// Returns whether a file of its directory is one of it.
    pub(crate) fn has(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| self.files.contains_key(name))
    }

    /// Reads a pack that was installed, if it still is what was approved.
    pub(crate) fn installed(directory: &Path, state: &Path) -> Result<Self, String> {
        let name = directory.file_name().and_then(|name| name.to_str());
        let name = name.ok_or("its name is no text")?;
        let approved = read_optional(&approval(state, name));
        let approved = approved.map_err(|failure| failure.why.unwrap_or(failure.what))?;
        let approved = approved.ok_or("nobody has approved it: atoll tools install")?;
        let text = String::from_utf8(approved.content.into_owned());
        let text = text.map_err(|_| "its approval is no text".to_owned())?;
        let (key, note) = text.split_once('\n').ok_or("its approval is garbled")?;
        let key = VerifierKey::parse(key).map_err(|fault| fault.to_string())?;
        let pack = Self::of(files_in(directory)?, &key)?;
        match pack.note == note.as_bytes() && pack.name() == name {
            true => Ok(pack),
            false => Err("it is not the one that was approved: atoll tools install".to_owned()),
        }
    }

    /// Returns the pack of this name that was approved before: its maker's key and its number.
    ///
    /// # Errors
    /// Describes why that cannot be told.
    pub fn before(name: &str, state: &Path) -> Result<Option<(VerifierKey, u64)>, String> {
        let approved = read_optional(&approval(state, name));
        let approved = approved.map_err(|failure| failure.why.unwrap_or(failure.what))?;
        let Some(approved) = approved else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&approved.content);
        let (key, note) = text.split_once('\n').ok_or("its approval is garbled")?;
        let key = VerifierKey::parse(key).map_err(|fault| fault.to_string())?;
        let list = Manifest::open(Signed::Tools, note.as_bytes(), &key);
        let serial = list.map_err(|fault| fault.to_string())?.serial();
        Ok(Some((key, serial)))
    }

    /// Installs it in a configuration directory, in place of an earlier one, as approved.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn install(&self, configuration: &Path, state: &Path) -> Result<(), Failure> {
        let failed = "the pack cannot be installed";
        let parent = configuration.join(DIRECTORY);
        let new = parent.join(format!(".{}.{}", self.name(), std::process::id()));
        let write_all = || -> io::Result<()> {
            fs::create_dir_all(&new)?;
            for (name, bytes) in &self.files {
                write(&new.join(name), bytes)?;
            }
            write(&new.join(SIGNATURE), &self.note)?;
            // Between these steps none of its tools counts.
            remove(&parent.join(self.name()))?;
            fs::rename(&new, parent.join(self.name()))?;
            fs::create_dir_all(state.join(DIRECTORY))?;
            let approved = [format!("{}\n", self.key).as_bytes(), &self.note].concat();
            write(&approval(state, self.name()), &approved)
        };
        write_all().doing(failed)
    }

    /// Removes an installed pack. Its maker's key and its number stay known.
    ///
    /// # Errors
    /// When there is none, or it cannot be removed.
    pub fn uninstall(name: &str, configuration: &Path) -> Result<(), Failure> {
        let path = configuration.join(DIRECTORY).join(name);
        if !is_name(name) || !path.is_dir() {
            return Err(Failure::new("there is no such pack").because(path.display()));
        }
        remove(&path).doing("the pack cannot be removed")
    }
}

/// Returns the directories of installed packs, in the order of their names.
pub(crate) fn directories(configuration: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(configuration.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        // One that is being written begins with a dot.
        if entry.file_name().to_str().is_none_or(is_name) {
            all.push(entry.path());
        }
    }
    all.sort();
    Ok(all)
}

/// Reads the files of a directory, all of which are a pack's.
///
/// # Errors
/// Describes what is no file of a pack, or cannot be read.
pub fn files_in(directory: &Path) -> Result<Files, String> {
    let mut files = Files::new();
    let mut bytes = 0;
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name();
        let name = name.to_str().ok_or("a name is no text")?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !Signed::Tools.has(name) {
            return Err(format!("{name:?} is no file that a pack has"));
        }
        let read = read_optional(&entry.path());
        let file = read.map_err(|failure| failure.why.unwrap_or(failure.what))?;
        let content = file.map(|file| file.content.into_owned());
        let content = content.ok_or_else(|| format!("{name} is gone"))?;
        bytes += content.len();
        if bytes > PACK_BYTES_MAX {
            return Err(format!("it is larger than {PACK_BYTES_MAX} bytes"));
        }
        files.insert(name.to_owned(), content);
    }
    Ok(files)
}

fn about(files: &Files) -> Result<About, String> {
    let text = files
        .get(ABOUT)
        .ok_or_else(|| format!("it has no {ABOUT}"))?;
    let text = std::str::from_utf8(text).map_err(|_| format!("{ABOUT} is not UTF-8"))?;
    let about: About = toml::from_str(text).map_err(|error| format!("{ABOUT}: {error}"))?;
    match is_name(&about.name) {
        true => Ok(about),
        false => Err(format!(
            "{ABOUT}: {:?} is no name of a pack: small letters, digits and -, at most \
             {NAME_BYTES_MAX}",
            about.name
        )),
    }
}

fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_of_name)
}

fn approval(state: &Path, name: &str) -> PathBuf {
    state.join(DIRECTORY).join(format!("{name}.approved"))
}

/// Removes a directory: first from where it is looked for.
fn remove(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let away = path.with_file_name(format!(".{name}.{}.old", std::process::id()));
    match fs::rename(path, &away) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved.and_then(|()| fs::remove_dir_all(&away)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = fs::File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
