//! The organisation's layer: its directory, the pinned keys for it, and the check that its files
//! are the signed ones. The files are read once, so that what is compiled is what was hashed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::{StateDir, VerifierKey};
use atoll_policy::{SignedBy, SourceFile, organisation_directory};
use atoll_store::{Day, Manifest, OrganisationFault, Signed, remember_manifest};

use super::{Places, read_optional, read_policies};
use crate::failure::{Doing, Failure, Hint};

/// The directory of an organisation's layer for all users of this machine.
pub const MACHINE: &str = "/etc/atoll";
/// The file of the layer's bounds, beside its policies.
const BOUNDS: &str = "organisation.toml";
/// The public key that verifies the layer: in the machine's directory, and beside the user's
/// `config.toml`.
pub const KEY: &str = "organisation.pub";
/// The file of the signature, beside the signed ones.
pub const SIGNATURE: &str = "organisation.sig";
const UNUSABLE: &str = "the organisation's layer cannot be relied on, so nothing starts";
/// The mode bits by which others than the owner can write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The organisation's files that count, as read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// The bounds that no layer below may widen.
    pub bounds: Option<SourceFile<'static>>,
    /// The policy files.
    pub policies: Vec<SourceFile<'static>>,
    /// The signer of the files; none where no key is pinned.
    pub signed: Option<SignedBy>,
}

impl Layer {
    /// Reads the files of a directory, without verifying a signature.
    pub fn of(directory: &Path) -> Result<Self, Failure> {
        Ok(Self {
            bounds: read_optional(&directory.join(BOUNDS))?,
            policies: read_policies(directory)?,
            signed: None,
        })
    }

    /// Returns whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bounds.is_none() && self.policies.is_empty()
    }

    /// Returns all files of the layer.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile<'static>> {
        self.bounds.iter().chain(&self.policies)
    }

    /// Returns each file with its name in the directory. A path that is not UTF-8 has no name here,
    /// nor in any list.
    pub fn named(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files().map(|file| {
            let name = file.name.rsplit('/').next().unwrap_or_default();
            (name, &*file.content)
        })
    }
}

/// A pinned key.
#[derive(Clone, Debug)]
pub struct Pin {
    /// The file in which it is pinned.
    pub path: PathBuf,
    /// The key.
    pub key: VerifierKey,
}

/// The directory that counts, and the keys that have to have signed it.
#[derive(Debug)]
pub struct Place {
    /// The directory.
    pub directory: PathBuf,
    /// The keys that all have to have signed it; without any it counts unsigned.
    pub pins: Vec<Pin>,
}

impl Place {
    /// Returns the place of the layer that counts for this person.
    ///
    /// # Errors
    /// Where that is in doubt.
    pub fn of(places: &Places, config: Option<&SourceFile<'static>>) -> Result<Self, Failure> {
        let own = match config {
            Some(config) => organisation_directory(config).map_err(|error| {
                Failure::new("config.toml cannot be used")
                    .because(&error)
                    .advise(error)
            })?,
            None => None,
        };
        let of_machine = pinned(&Path::new(MACHINE).join(KEY))?;
        let of_person = pinned(&places.organisation_key())?;
        let Some(directory) = own else {
            return Ok(Self {
                directory: PathBuf::from(MACHINE),
                pins: of_machine.into_iter().chain(of_person).collect(),
            });
        };
        // Two layers in one could permit together what neither permits.
        if of_machine.is_some() || !Layer::of(Path::new(MACHINE))?.is_empty() {
            return Err(Failure::new(UNUSABLE)
                .because(format!(
                    "there are two: {MACHINE} is this machine's, and config.toml names {}",
                    directory.display()
                ))
                .advise(format!(
                    "take `organisation` out of config.toml, or have {MACHINE} emptied"
                )));
        }
        match of_person {
            Some(pin) => Ok(Self {
                directory,
                pins: vec![pin],
            }),
            None => Err(Failure::new(UNUSABLE)
                .because(format!(
                    "config.toml names {}, and no key is pinned that signs what lies there",
                    directory.display()
                ))
                .advise(
                    "atoll policy organisation trust KEY pins it; the organisation gives it out",
                )),
        }
    }

    /// Reads the files, and verifies that all keys have signed exactly these.
    pub fn read(&self) -> Result<(Layer, Vec<Manifest>), Failure> {
        let layer = Layer::of(&self.directory)?;
        let mut manifests = Vec::new();
        if self.pins.is_empty() {
            return Ok((layer, manifests));
        }
        let path = self.directory.join(SIGNATURE);
        let note = read_optional(&path)?.ok_or_else(|| self.unsigned(&path))?;
        for pin in &self.pins {
            let opened = Manifest::open(Signed::Layer, &note.content, &pin.key);
            let manifest = opened.map_err(|fault| refused(&path, &fault))?;
            let checked = manifest.check(layer.named());
            checked.map_err(|fault| refused(&self.directory, &fault))?;
            manifests.push(manifest);
        }
        Ok((layer, manifests))
    }

    /// Returns the failure for a missing signature, with the next step for a person who has pinned
    /// a key.
    fn unsigned(&self, path: &Path) -> Failure {
        let pin = self.pins.first().map(|pin| pin.path.display().to_string());
        let failure = Failure::new(UNUSABLE)
            .because(format!(
                "there is no {}, and {} says that it has to be signed",
                path.display(),
                pin.clone().unwrap_or_default(),
            ))
            .advise("have the organisation give you its layer whole, with its signature");
        let machine = Path::new(MACHINE);
        // One that was only said is pinned nowhere.
        let is_own = |path: &Path| path.is_absolute() && !path.starts_with(machine);
        match (self.pins.as_slice(), pin) {
            // The person's own alone, and no directory of theirs.
            ([only], Some(pin)) if self.directory == machine && is_own(&only.path) => {
                failure
                    .advise("where it lies elsewhere, config.toml names that: organisation = { directory = \"...\" }")
                    .advise(format!("or remove {pin}, your own pin: no layer is then asked for"))
            }
            _ => failure,
        }
    }

    /// Reads the layer, and refuses one that was rolled back or has expired. Remembers the
    /// manifests it has seen.
    fn read_and_remember(&self, places: &Places) -> Result<Layer, Failure> {
        let (mut layer, manifests) = self.read()?;
        if manifests.is_empty() {
            return Ok(layer);
        }
        let state = StateDir::open(&places.state).map_err(|error| {
            Failure::new("what was seen of the organisation's layer cannot be remembered")
                .because(&error)
                .advise(error)
        })?;
        let now = SystemTime::now();
        for (pin, manifest) in self.pins.iter().zip(&manifests) {
            let seen = remember_manifest(&state, &pin.key, manifest, now);
            seen.map_err(|fault| refused(&self.directory.join(SIGNATURE), &fault))?;
            layer.signed = Some(SignedBy {
                name: manifest.name().to_owned(),
                serial: manifest.serial(),
                key: pin.key.short_id(),
            });
        }
        Ok(layer)
    }
}

/// Reads the organisation's layer: unverified where no key for it is pinned, else only with the
/// signatures of all pinned keys.
///
/// # Errors
/// Where any of that is in doubt: nothing may run then.
pub fn read(places: &Places, config: Option<&SourceFile<'static>>) -> Result<Layer, Failure> {
    Place::of(places, config)?.read_and_remember(places)
}

/// Returns the key that a file pins; none where the file is missing.
///
/// # Errors
/// Where the file, or its directory, could be another's.
pub fn pinned(path: &Path) -> Result<Option<Pin>, Failure> {
    // One that leads nowhere is no pin that is not there.
    refuse_link(path)?;
    let Some(file) = read_optional(path)? else {
        return Ok(None);
    };
    for place in [Some(path), path.parent()].into_iter().flatten() {
        refuse_others(place)?;
    }
    let text = std::str::from_utf8(&file.content).unwrap_or_default();
    let key = VerifierKey::parse(text.strip_suffix('\n').unwrap_or(text)).map_err(|why| {
        Failure::new(UNUSABLE)
            .because(format!("{} holds no key: {why}", path.display()))
            .advise("atoll policy organisation trust KEY --replace pins it anew")
    })?;
    Ok(Some(Pin {
        path: path.to_owned(),
        key,
    }))
}

/// Refuses a key that is a link: the directory of the link's target is not checked, so others could
/// exchange the key there.
fn refuse_link(path: &Path) -> Result<(), Failure> {
    // What else is wrong with it is told by whoever reads it.
    let is_link = path
        .symlink_metadata()
        .is_ok_and(|facts| facts.is_symlink());
    match is_link {
        false => Ok(()),
        true => Err(Failure::new(UNUSABLE)
            .because(format!(
                "{}, where its key is pinned, is a link",
                path.display()
            ))
            .advise("put the file itself there")),
    }
}

/// Refuses a key that others can exchange, since it pins nothing.
fn refuse_others(path: &Path) -> Result<(), Failure> {
    let facts = path
        .metadata()
        .doing(&format!("{} cannot be examined", path.display()))?;
    let caller = rustix::process::geteuid().as_raw();
    let is_ours = [0, caller].contains(&facts.uid());
    if is_ours && facts.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let (shown, mode) = (path.display(), facts.mode() & 0o7777);
    let failure = Failure::new(UNUSABLE);
    Err(match is_ours {
        true => failure
            .because(format!(
                "others can write to {shown} (mode {mode:04o}), where its key is pinned"
            ))
            .advise(Hint::WritableByOthers(path.to_owned())),
        false => failure
            .because(format!(
                "{shown}, where its key is pinned, is neither yours nor root's"
            ))
            .advise(Hint::OwnedByOther(path.to_owned())),
    })
}

/// Returns the failure for a faulty layer, with the file and the next step.
pub fn refused(place: &Path, fault: &OrganisationFault) -> Failure {
    Failure::new(UNUSABLE)
        .because(format!("{}: {fault}", place.display()))
        .advise(to_do(fault))
}

const WHOLE: &str = "have the organisation give you its layer whole, or sign it: atoll policy \
                     organisation sign DIRECTORY --key FILE";

fn to_do(fault: &OrganisationFault) -> String {
    match fault {
        OrganisationFault::NoManifest(_)
        | OrganisationFault::BadSignature(_)
        | OrganisationFault::Altered(_)
        | OrganisationFault::Added(_)
        | OrganisationFault::Missing(_) => WHOLE.to_owned(),
        OrganisationFault::OtherKey(_) | OrganisationFault::OtherName { .. } => {
            "atoll policy organisation status shows which key is pinned; where the organisation \
             itself tells you another one: atoll policy organisation trust KEY --replace"
                .to_owned()
        }
        OrganisationFault::Expired { path, .. } => format!(
            "have the organisation sign it anew; where only the clock was wrong once, remove {}",
            path.display()
        ),
        OrganisationFault::RolledBack { path, .. } | OrganisationFault::SameNumber { path, .. } => {
            format!(
                "have the organisation give you its newest layer; where it began anew with a \
                 smaller number, remove {}",
                path.display()
            )
        }
        OrganisationFault::Unreadable { path, .. } => format!(
            "remove {}: it is then not known which layers have counted before",
            path.display()
        ),
        OrganisationFault::Private(_)
        | OrganisationFault::File(_)
        | OrganisationFault::Key { .. }
        | OrganisationFault::Unfit(_) => {
            "ls -ld shows whose it is, and who can write there".to_owned()
        }
        OrganisationFault::NoRandom => "try again".to_owned(),
    }
}

/// Returns the last day on which a list is valid, as people read it.
pub fn until(manifest: &Manifest) -> Option<String> {
    manifest.until().map(|day: Day| day.to_string())
}
