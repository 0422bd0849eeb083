//! Layers of templates: made of what root has changed in a sandbox that is gone, or of an image that
//! was unpacked in one.

use std::ffi::OsStr;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use atoll_model::RESIDENT;
use atoll_sandbox::IDS;

use super::home::{copy, remove_home, settle};
use super::{Engine, Sandbox};
use crate::accounts;
use crate::failure::{Doing, Failure};
use crate::home::{KeptHome, LINKS, WHOLE, forget_work};
use crate::rooted::SYSTEM_LAYERS;

/// The directory of an unpacked image in a home.
pub const IMAGE: &str = "rootfs";
/// The most directories at the root of an image, each of which is a mount.
const ROOTS_MAX: usize = 64;
/// The directory of the system that has its users.
const ACCOUNTS: &str = "etc";
/// The home of a template in an image.
const HOME: [&str; 2] = ["home", "user"];

impl Sandbox {
    /// Ends it, and keeps its home and root's changes of the system in these new directories, on
    /// disk before this returns.
    ///
    /// # Errors
    /// When it had ended before, or they cannot be kept; both are gone then.
    pub fn kill_keeping_all(&self, home: &Path, system: &Path) -> Result<KeptHome, Failure> {
        self.home.keep_system(system.to_owned());
        let kept = self.kill_keeping_home(home);
        if kept.is_err() {
            let _ = remove_home(system);
        }
        kept
    }

    /// Copies its home and root's changes of the system, at one moment: it stands still meanwhile.
    ///
    /// # Errors
    /// When it cannot stand still, or they cannot be copied; nothing is left then.
    pub fn copy_all(&self, home: &Path, system: &Path) -> Result<KeptHome, Failure> {
        let made = self.shared.state.scratch_dir(&self.run).join(SYSTEM_LAYERS);
        let changes = self.home.system_path(&made);
        self.copied(&[(&self.home_path(), home), (&changes, system)])?;
        forget_work(system).doing("the copy is not kept")?;
        Ok(self.kept_at(home))
    }
}

impl Engine {
    /// Copies root's changes of a system, whose sandbox is gone, to a new directory.
    ///
    /// # Errors
    /// When they cannot be read or written; nothing is left then.
    pub fn copy_system(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        copy(from, to)?;
        forget_work(to).doing("the copy is not kept")
    }
}

/// Makes a template's layer, in a new directory, of root's changes of a system whose sandbox is
/// gone; `base` is that of its home.
///
/// # Errors
/// When it cannot be kept.
pub fn make_template_layer(changes: &Path, base: Option<u32>, layer: &Path) -> Result<(), Failure> {
    let make = || -> io::Result<()> {
        fs::create_dir_all(layer)?;
        for part in fs::read_dir(changes)? {
            let part = part?;
            fs::rename(part.path().join("upper"), layer.join(part.file_name()))?;
        }
        own(layer, base)
    };
    make().doing("the layer is not kept")?;
    settle(layer)
}

/// Makes a template's layer of an image that was unpacked to [`IMAGE`] in this home, and the home
/// that sandboxes begin with of the one in the image, if it has one.
///
/// # Errors
/// When it is no system, or cannot be kept.
pub fn import_image(
    unpacked: &KeptHome,
    layer: &Path,
    home: &Path,
) -> Result<Option<KeptHome>, Failure> {
    let unkept = "the image is not kept";
    let image = unpacked.path.join(IMAGE);
    let facts = fs::symlink_metadata(&image).doing(unkept)?;
    if !facts.is_dir() {
        return Err(Failure::new("no image was unpacked"));
    }
    fs::create_dir_all(layer).doing(unkept)?;
    let begins = take_home(&image, unpacked.base, home).doing(unkept)?;
    take_roots(&image, layer).doing(unkept)?;
    own(layer, unpacked.base).doing(unkept)?;
    let etc = layer.join(WHOLE).join(ACCOUNTS);
    accounts::ensure_resident(&etc, false).doing(unkept)?;
    settle(layer)?;
    Ok(begins)
}

/// Takes the home out of an image.
fn take_home(image: &Path, base: Option<u32>, to: &Path) -> io::Result<Option<KeptHome>> {
    let mut at = image.to_path_buf();
    for name in HOME {
        at.push(name);
        let is_there = fs::symlink_metadata(&at).is_ok_and(|facts| facts.is_dir());
        if !is_there {
            return Ok(None);
        }
    }
    fs::rename(&at, to)?;
    if let Some(base) = base {
        // Whoever it was made for in the image, it is the resident's here.
        let [uid, gid] = [RESIDENT.uid, RESIDENT.gid].map(|id| Some(base + id % IDS));
        lchown(to, uid, gid)?;
    }
    Ok(Some(KeptHome {
        path: to.to_owned(),
        base,
        layers: Vec::new(),
    }))
}

/// Moves the directories at the root of an image to a layer, and lists the links there.
fn take_roots(image: &Path, layer: &Path) -> io::Result<()> {
    let (mut roots, mut links) = (0, String::new());
    let whole = layer.join(WHOLE);
    fs::create_dir(&whole)?;
    fs::set_permissions(&whole, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = plain(&name) else {
            continue;
        };
        let facts = entry.path().symlink_metadata()?;
        if facts.is_dir() {
            roots += 1;
            if roots > ROOTS_MAX {
                let what = format!("an image has {ROOTS_MAX} directories at its root at most");
                return Err(io::Error::other(what));
            }
            fs::rename(entry.path(), whole.join(name))?;
        } else if facts.is_symlink() {
            let to = fs::read_link(entry.path())?;
            if let Some(to) = plain(to.as_os_str()) {
                links.push_str(&format!("{name}\t{to}\n"));
            }
        }
    }
    fs::write(layer.join(LINKS), links)
}

/// Returns a text that can be a part of a line.
fn plain(text: &OsStr) -> Option<&str> {
    let text = text.to_str()?;
    (!text.as_bytes().iter().any(u8::is_ascii_control)).then_some(text)
}

/// Gives the files of a layer to the ids that they have in a sandbox, as each sandbox shows them
/// shifted to its own. Set-id bits, which mean nothing there, would mean something here.
pub(super) fn own(layer: &Path, base: Option<u32>) -> io::Result<()> {
    let mut waiting = vec![layer.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let facts = path.symlink_metadata()?;
            own_one(&path, &facts, base)?;
            if facts.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

fn own_one(path: &Path, facts: &Metadata, base: Option<u32>) -> io::Result<()> {
    if facts.is_file() && facts.mode() & 0o6000 != 0 {
        fs::set_permissions(path, Permissions::from_mode(facts.mode() & 0o1777))?;
    }
    let Some(base) = base else { return Ok(()) };
    // A file of several names is its owner's already when its second name comes.
    let inside = |id: u32| match id.checked_sub(base) {
        Some(own) if own < IDS => own,
        _ if id < IDS => id,
        _ => 0,
    };
    lchown(path, Some(inside(facts.uid())), Some(inside(facts.gid())))
}
