//! The files of Atoll's own that sandboxes share: an empty directory; for served ones, in place of a
//! person's, users of their own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use atoll_model::RESIDENT;
use atoll_sandbox::{ACCOUNTS, IDS, WorkspacePlace, make_layer};
use atoll_store::remove_directory;

use crate::home::{Home, UPPER};
use crate::place_error::state_error;
use crate::{PlaceError, Request};

/// The search path of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The directory that all served sandboxes share, which none of them writes to.
pub(crate) struct ServedPlace {
    /// The files of users and groups.
    pub(crate) accounts: PathBuf,
}

impl ServedPlace {
    /// Opens it for a served sandbox, and makes it the first time; `None` for any other.
    pub(crate) fn of(request: &Request<'_>) -> Result<Option<Self>, PlaceError> {
        if request.call.served().is_none() {
            return Ok(None);
        }
        let directory = request.state.path().join("served");
        let place = Self {
            accounts: directory.join("etc"),
        };
        if !place.accounts.join("complete").exists() {
            place.make().map_err(state_error("making", &directory))?;
        }
        Ok(Some(place))
    }

    fn make(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(&self.accounts)?;
        for name in ACCOUNTS {
            let path = self.accounts.join(name);
            fs::write(&path, accounts(name))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        fs::write(self.accounts.join("complete"), "")
    }
}

/// Makes the home of a served sandbox: a directory of its own where there is nothing beneath that it
/// could be a layer over; or finds the one that it begins with.
pub(crate) fn make_home(
    home: &Path,
    base: Option<u32>,
    kept: Option<&Home>,
) -> Result<WorkspacePlace, PlaceError> {
    if let Some(kept) = kept.and_then(Home::begins) {
        return match &*kept.layers {
            [] => Ok(WorkspacePlace::Copy(kept.path.clone())),
            layers => layer_over(&kept.path, layers, base),
        };
    }
    let home = &kept.map_or_else(|| home.to_owned(), |kept| kept.path(home));
    let make = || -> io::Result<()> {
        fs::create_dir(home)?;
        fs::set_permissions(home, fs::Permissions::from_mode(0o755))?;
        match base.map(|base| [RESIDENT.uid, RESIDENT.gid].map(|id| Some(base + id % IDS))) {
            Some([uid, gid]) => std::os::unix::fs::chown(home, uid, gid),
            None => Ok(()),
        }
    };
    make().map_err(state_error("making", home))?;
    Ok(WorkspacePlace::Copy(home.clone()))
}

/// Makes the upper directory of a home over layers whose files belong to its ids already, or finds
/// the one that it had.
fn layer_over(
    directory: &Path,
    layers: &[PathBuf],
    base: Option<u32>,
) -> Result<WorkspacePlace, PlaceError> {
    let home = Path::new(RESIDENT.home);
    let Some((lowest, over)) = layers.split_last() else {
        return Err(PlaceError::System(
            home.to_owned(),
            "it has no layer".to_owned(),
        ));
    };
    let upper = directory.join(UPPER);
    let before = upper.symlink_metadata().ok();
    // One that was mounted without waiting for the disk is refused again, also after a sudden end.
    remove_directory(&directory.join("work"))
        .map_err(|error| state_error("removing", directory)(io::Error::other(error)))?;
    let top = over.first().unwrap_or(lowest);
    let (mut layer, _) = make_layer(directory, top, home, base)?;
    if let Some(before) = before {
        look_again(&upper, &before).map_err(state_error("giving back", &upper))?;
    }
    layer.lower.clone_from(lowest);
    layer.over = over.to_vec();
    layer.own = u32::try_from(layers.len()).unwrap_or(u32::MAX);
    layer.linked = false;
    layer.volatile = true;
    Ok(WorkspacePlace::Layer(layer))
}

/// Gives an upper directory the owner and mode that it had.
pub(crate) fn look_again(upper: &Path, before: &fs::Metadata) -> io::Result<()> {
    lchown(upper, Some(before.uid()), Some(before.gid()))?;
    fs::set_permissions(upper, before.permissions())
}

/// Returns the text of a file of accounts: root, the resident, and nobody.
fn accounts(name: &str) -> String {
    let user = RESIDENT;
    let lines = match name {
        "passwd" => [
            "root:x:0:0:root:/root:/bin/bash".to_owned(),
            format!(
                "{}:x:{}:{}::{}:/bin/bash",
                user.name, user.uid, user.gid, user.home
            ),
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin".to_owned(),
        ],
        _ => [
            "root:x:0:".to_owned(),
            format!("{}:x:{}:", user.name, user.gid),
            "nogroup:x:65534:".to_owned(),
        ],
    };
    lines.join("\n") + "\n"
}

/// Returns the environment of programs: nothing of the server's own.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    let own = [
        ("PATH", PATH),
        ("USER", RESIDENT.name),
        ("LOGNAME", RESIDENT.name),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
    ];
    own.map(|(name, value)| (name.into(), value.into())).into()
}

/// Makes an empty directory, the lower one of read-only overlays.
pub(crate) fn make_empty(state: &Path) -> Result<PathBuf, PlaceError> {
    let path = state.join("empty");
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(state_error("making", &path)(error))
        }
        _ => Ok(path),
    }
}
