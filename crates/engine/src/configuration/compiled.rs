//! Rules that were compiled before, for those who ask for the same again: the same request, of files
//! with the same content, on the same host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, PoisonError};

use atoll_policy::{
    HostFacts, NoProfiles, ProfileError, ProfileSource, Requested, Rules, SourceFile,
    compile as made,
};

use super::{PolicyFiles, UserProfiles};

/// The most rules that are kept; the oldest go first.
const KEPT_MAX: usize = 64;

static KEPT: Mutex<VecDeque<Arc<Kept>>> = Mutex::new(VecDeque::new());

/// Rules, with all that they were made of.
struct Kept {
    files: PolicyFiles,
    requested: Requested,
    program: OsString,
    host: HostFacts,
    profiles: Answers,
    rules: Rules,
}

/// The answers about a person's profiles.
#[derive(Default, PartialEq)]
struct Answers {
    names: Option<Result<Vec<String>, String>>,
    files: Vec<(String, Result<Option<SourceFile<'static>>, String>)>,
}

/// A person's profiles, with the answers given about them.
struct Asked<'a> {
    profiles: &'a UserProfiles,
    answers: RefCell<Answers>,
}

impl UserProfiles {
    /// Returns the profiles, if there is a directory of them.
    fn source(&self) -> &dyn ProfileSource {
        match self.directory.is_dir() {
            true => self,
            false => &NoProfiles,
        }
    }

    fn file(&self, name: &str) -> Result<Option<SourceFile<'static>>, String> {
        let found = self.source().lookup(name)?;
        Ok(found.map(|file| SourceFile {
            name: file.name.into_owned().into(),
            content: file.content.into_owned().into(),
        }))
    }
}

impl ProfileSource for Asked<'_> {
    fn names(&self) -> Result<Vec<String>, String> {
        let names = self.profiles.source().names();
        self.answers.borrow_mut().names = Some(names.clone());
        names
    }

    fn lookup(&self, name: &str) -> Result<Option<SourceFile<'_>>, String> {
        let file = self.profiles.file(name);
        let mut answers = self.answers.borrow_mut();
        answers.files.push((name.to_owned(), file.clone()));
        file
    }
}

impl Answers {
    /// Returns whether each of them would be given again.
    fn hold(&self, profiles: &UserProfiles) -> bool {
        let names = self.names.as_ref();
        names.is_none_or(|names| profiles.source().names() == *names)
            && self
                .files
                .iter()
                .all(|(name, file)| profiles.file(name) == *file)
    }
}

/// Compiles files and a request into rules.
pub(super) fn compile(
    files: &PolicyFiles,
    requested: &Requested,
    program: &OsStr,
    host: &HostFacts,
) -> Result<Rules, ProfileError> {
    let is_same = |kept: &&Arc<Kept>| {
        kept.requested == *requested
            && kept.program == *program
            && kept.host == *host
            && kept.files == *files
    };
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let found = kept.iter().find(is_same).cloned();
    drop(kept);
    if let Some(kept) = found.filter(|kept| kept.profiles.hold(&files.profiles)) {
        return Ok(kept.rules.clone());
    }
    let profiles = Asked {
        profiles: &files.profiles,
        answers: RefCell::default(),
    };
    let mut rules = made(&files.sources_by(&profiles), requested, program, host)?;
    rules.take_signed(files.organisation.signed.clone());
    let made = Arc::new(Kept {
        files: files.clone(),
        requested: requested.clone(),
        program: program.to_owned(),
        host: host.clone(),
        profiles: profiles.answers.into_inner(),
        rules: rules.clone(),
    });
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // What was of other profiles is of no use any more.
    kept.retain(|one| !is_same(&one));
    kept.truncate(KEPT_MAX - 1);
    kept.push_front(made);
    Ok(rules)
}
