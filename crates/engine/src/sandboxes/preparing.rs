//! The rules, credentials and facts that a sandbox is decided by.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::{Ledger, StateDir};
use atoll_model::{Mode, RESIDENT, SessionId};
use atoll_policy::{HostFacts, Requested, Rules};
use atoll_store::RunRecord;

use super::nobody::Unheard;
use super::{CreateSandbox, Engine, Shared, Workspace};
use crate::configuration::PolicyFiles;
use crate::credentials::Words;
use crate::failure::{Doing, Failure};
use crate::git_settings::Listing;
use crate::run::beginning::{Handed, handed, join, join_session};
use crate::run::refused::widening;
use crate::run::{RunRequest, compiled, no_rules, purpose};
use crate::served;
use crate::supervision::DualControlRule;

/// All that a call needs besides the request.
pub(super) struct Prepared {
    pub(super) rules: Rules,
    /// The host, as the rules were compiled for it.
    pub(super) host: HostFacts,
    pub(super) handed: Handed,
    pub(super) widening: DualControlRule,
    pub(super) session: Option<SessionId>,
    pub(super) nothing: OwnedFd,
    pub(super) now: SystemTime,
}

/// Compiles the rules of a sandbox, and reads its credentials. One that begins with the layers of a
/// run has its purposes and labels.
pub(super) fn prepare(
    shared: &Shared,
    typed: &RunRequest<'_>,
    workspace: &Path,
    from: Option<&RunRecord>,
) -> Result<Prepared, Failure> {
    let (places, state, host) = (&shared.places, &shared.state, &shared.host);
    let earlier = purpose::earlier(typed, state, from)?;
    let git = Listing::start(workspace, &host.home);
    let mut rules = compiled(typed, earlier, places, state, workspace, host)?;
    rules.take_git(git.finish());
    let widening = widening(&rules)?;
    let handed = handed(typed, &rules, places, host, workspace, &Unheard)?;
    let now = SystemTime::now();
    let session = join(
        typed,
        &mut rules,
        state,
        &shared.ledger,
        from,
        &Unheard,
        now,
    )?;
    Ok(Prepared {
        rules,
        host: host.clone(),
        handed,
        widening,
        session,
        nothing: nothing()?,
        now,
    })
}

/// Compiles the rules of a sandbox that is served: no file of a person's, no credential, and no
/// variable of this process has a part in it.
pub(super) fn prepare_served(shared: &Shared, wanted: &CreateSandbox) -> Result<Prepared, Failure> {
    let host = HostFacts {
        home: PathBuf::from(RESIDENT.home),
        ..shared.host.clone()
    };
    let files = PolicyFiles::read(&shared.places, None)?;
    let name = wanted.workspace.session();
    let requested = Requested {
        in_session: name.is_some(),
        system: wanted
            .system
            .as_ref()
            .filter(|system| !system.over_host)
            .map(|system| system.name.clone()),
        ..wanted.requested.clone()
    };
    let rules = files.compile(&requested, OsStr::new(""), &host);
    let mut rules = rules.map_err(no_rules)?;
    let widening = widening(&rules)?;
    let now = SystemTime::now();
    let (state, ledger) = (&shared.state, &shared.ledger);
    let join = |name: String| join_session(&name, &mut rules, state, ledger, &Unheard, now);
    let session = name.map(join).transpose()?;
    Ok(Prepared {
        rules,
        host,
        handed: Handed {
            handover: None,
            signing: None,
            words: Words {
                command: Vec::new(),
                environment: served::environment(),
            },
        },
        widening,
        session,
        nothing: nothing()?,
        now,
    })
}

impl Engine {
    /// Compiles the rules of a sandbox over a directory, without its credentials.
    pub(crate) fn rules_in(
        &self,
        wanted: &CreateSandbox,
        workspace: &Path,
    ) -> Result<(Rules, HostFacts), Failure> {
        let Shared {
            places,
            state,
            host,
            ..
        } = &*self.shared;
        let from = wanted.begins_with.as_ref().map(|copies| &copies.of);
        let typed = typed(wanted);
        let earlier = purpose::earlier(&typed, state, from)?;
        let rules = compiled(&typed, earlier, places, state, workspace, host)?;
        Ok((rules, host.clone()))
    }

    /// Compiles the rules of a served sandbox.
    pub(crate) fn rules_of_served(
        &self,
        wanted: &CreateSandbox,
    ) -> Result<(Rules, HostFacts), Failure> {
        let prepared = prepare_served(&self.shared, wanted)?;
        Ok((prepared.rules, prepared.host))
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    pub(crate) fn state_dir(&self) -> &StateDir {
        &self.shared.state
    }

    pub(crate) fn mode(&self) -> Mode {
        self.shared.mode
    }
}

fn nothing() -> Result<OwnedFd, Failure> {
    let nothing = File::options().read(true).write(true).open("/dev/null");
    Ok(nothing.doing("/dev/null cannot be opened")?.into())
}

/// Returns the request for a run without a program.
pub(super) fn typed(wanted: &CreateSandbox) -> RunRequest<'_> {
    RunRequest {
        requested: Box::new(|| Ok(wanted.requested.clone())),
        // By which a profile is chosen.
        command: wanted
            .begins_with
            .as_ref()
            .map_or(&[], |copies| &copies.of.command),
        options: Vec::new(),
        session: None,
        resume: None,
        purpose: None,
        workspace: match &wanted.workspace {
            Workspace::Directory(workspace) => Some(workspace),
            Workspace::Own(_) => None,
        },
        tokens: &[],
        login: None,
        root: wanted.requested.root,
        discard: wanted.is_discarded(),
        apply: false,
    }
}
