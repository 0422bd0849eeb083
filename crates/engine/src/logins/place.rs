//! The writing of a login file: whole or not at all, and over no file that is something else.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::merge::Own;
use crate::failure::{Doing, Failure};
use crate::shell::command_line;
use crate::supervision::{LoginFileError, LoginLock, LoginText};

/// Bits of a directory's mode by which others than its owner write to it.
const OTHERS_WRITE: u32 = 0o022;
/// The wait for a run that renews the same login.
const PATIENCE: Duration = Duration::from_secs(45);

/// A place for a login file.
pub struct Place {
    path: PathBuf,
    /// The file in Atoll's own state that holds a new text until it is written.
    own: PathBuf,
    is_replaced: bool,
}

impl Place {
    /// Prepares the place of this file. A missing directory is made: without it an agent has
    /// nothing to write to.
    ///
    /// # Errors
    /// When another user could write there, or something else is in its place.
    pub fn prepare(file: &Path, own: PathBuf, belongs: &Own<'_>) -> Result<Self, Failure> {
        let refused = |why: String| {
            let what = format!("the login file {} cannot be written", file.display());
            Failure::new(what).because(why)
        };
        let Some(above) = file.parent() else {
            return Err(refused("it has no directory".to_owned()));
        };
        if let (Ok(to), false) = (above.read_link(), above.exists()) {
            let why = format!(
                "its directory {} is a link to {}, which is not there",
                above.display(),
                to.display()
            );
            return Err(refused(why).advise("make what it leads to, or take the link away"));
        }
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(above);
        made.map_err(|error| {
            let why = format!("its directory {} cannot be made: {error}", above.display());
            refused(why).advise("make it, for you alone, or log in outside")
        })?;
        let facts = above.metadata().doing("its directory cannot be found")?;
        let is_own = facts.uid() == rustix::process::geteuid().as_raw();
        if !is_own || facts.mode() & OTHERS_WRITE != 0 {
            let why = "its directory belongs to somebody else, or others can write to it";
            let advice = match is_own {
                true => format!("chmod go-w {}", command_line(&[above.into()])),
                false => "log in outside, as whom it belongs to".to_owned(),
            };
            return Err(refused(why.to_owned()).advise(advice));
        }
        let mut place = Self {
            path: file.to_owned(),
            own,
            is_replaced: false,
        };
        let (_lock, there) = place
            .there()
            .map_err(|error| refused(error.to_string()).advise("move what is there away"))?;
        if let Some(there) = &there {
            let fits = belongs.merged(there.text(), b"{}");
            fits.map_err(|why| {
                refused(format!(
                    "a login cannot be put into the file that is there: {why}"
                ))
                .advise("move it away, or mend it")
            })?;
        }
        place.is_replaced = there.is_some();
        Ok(place)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether a file is there already.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Locks the file, so that no run renews it meanwhile, and reads it.
    fn there(&self) -> Result<(LoginLock, Option<LoginText>), LoginFileError> {
        let lock = LoginLock::take(&self.path, &self.own, PATIENCE, &|| true)?;
        let there = lock.read()?;
        Ok((lock, there))
    }

    /// Writes it whole, and on disk when this returns. A new file is readable by its owner alone;
    /// of an existing one everything stays that is not of this login.
    ///
    /// # Errors
    /// When it cannot be written, or a file has appeared meanwhile.
    pub fn write(&self, text: &[u8], belongs: &Own<'_>) -> Result<(), Failure> {
        let failed = |why: String| {
            let what = format!("the login file {} is not written", self.path.display());
            Failure::new(what)
                .because(why)
                .advise("look at what is in its place, and log in again")
        };
        let (lock, there) = self.there().map_err(|error| failed(error.to_string()))?;
        let written = match &there {
            Some(_) if !self.is_replaced => Err(LoginFileError::Changed),
            None => lock.write(None, text),
            // One that was renewed meanwhile is the login that is replaced.
            Some(before) => {
                let merged = belongs.merged(before.text(), text).map_err(failed)?;
                lock.write(Some(before), &merged)
            }
        };
        written.map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::failure::Hint;

    #[test]
    fn a_login_file_is_written_whole_and_over_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("agent/auth.json");
        let login = atoll_policy::Login {
            name: "agent".parse().unwrap(),
            file: file.clone(),
            keep: Vec::new(),
            claims: Vec::new(),
            holds: atoll_policy::Holds::Login,
            optional: true,
            issue: None,
        };
        let fields = [(
            atoll_model::network::IssuedToken::Access,
            "new".parse().unwrap(),
        )];
        let own = Own::of(&login, &fields.into());
        let prepare = || Place::prepare(&file, top.path().join("own"), &own);
        let place = prepare().unwrap();
        assert!(!place.is_replaced());
        // What comes meanwhile stays.
        let theirs = |text: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        };
        theirs("another");
        assert!(place.write(b"{}", &own).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "another");
        fs::remove_file(&file).unwrap();
        place.write(b"{}", &own).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        // One that is there is replaced, also where a run has renewed it meanwhile.
        let place = prepare().unwrap();
        assert!(place.is_replaced());
        theirs("{\"new\":0,\"of others\":[2]}");
        place.write(b"{\"new\":1}", &own).unwrap();
        let merged = "{\"new\":1,\"of others\":[2]}";
        assert_eq!(fs::read_to_string(&file).unwrap(), merged);
        // A link that comes meanwhile is not written over, nor followed.
        let place = prepare().unwrap();
        let kept = top.path().join("kept");
        fs::rename(&file, &kept).unwrap();
        symlink(&kept, &file).unwrap();
        assert!(place.write(b"other", &own).is_err() && prepare().is_err());
        assert_eq!(fs::read_to_string(&kept).unwrap(), merged);
        fs::remove_file(&file).unwrap();
        fs::hard_link(&kept, &file).unwrap();
        assert!(prepare().is_err());
        fs::remove_file(&file).unwrap();
        // What is no login file is not made into one.
        theirs("notes");
        assert!(prepare().is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "notes");
        fs::remove_file(&file).unwrap();
        // Nothing is left beside it, nor where its text was made.
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 0);
        let own = fs::read_dir(top.path().join("own")).unwrap();
        let own: Vec<_> = own.map(|one| one.unwrap().file_name()).collect();
        let is_lock = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".lock");
        assert!(own.iter().all(is_lock), "{own:?}");
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        let told = |failure: Failure| {
            let text = |hint| match hint {
                Hint::Text(text) => text,
                other => panic!("{other:?}"),
            };
            let hints: Vec<String> = failure.hints.into_iter().map(text).collect();
            let advice = hints.join("; ");
            (failure.why.unwrap_or_default(), advice)
        };
        let (why, advice) = told(prepare().map(drop).unwrap_err());
        assert!(
            why.contains("others can write") && advice.contains("chmod go-w "),
            "{why} {advice}"
        );
        // A directory that is a link to nothing is told as that.
        fs::remove_dir(file.parent().unwrap()).unwrap();
        symlink(top.path().join("nowhere"), file.parent().unwrap()).unwrap();
        let (why, advice) = told(prepare().map(drop).unwrap_err());
        assert!(why.contains("nowhere, which is not there"), "{why}");
        assert!(advice.contains("take the link away"), "{advice}");
    }
}
