//! Requests about templates that are built, and their answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::requests;

requests! {
    /// A request about templates. One is named by its id, or its name.
    TemplatesAsk {
        /// Lists them.
        ListTemplates {} -> Vec<TemplateFacts>;
        /// Describes one.
        GetTemplate { id: String } -> TemplateFacts;
        /// Removes one that nothing stands on.
        RemoveTemplate { id: String } -> ();
        /// Begins a build, which waits for its plan. The name is a new one, or one that is replaced.
        RequestBuild { name: String, cpus: Option<u32>, memory_mib: Option<u64> } -> RequestedBuild;
        /// Makes a token by which files are uploaded for a build.
        LinkUpload { template: String } -> String;
        /// Carries out a plan; answers at once.
        StartBuild { template: String, build: String, plan: Box<BuildPlan> } -> ();
        /// Tells how far a build is, with so many lines of its log from one on.
        GetBuild { template: String, build: String, from: usize, limit: usize } -> BuildFacts;
    }
}

/// A build that waits for its plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RequestedBuild {
    pub template: String,
    pub build: String,
}

/// The plan of a template.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BuildPlan {
    /// The files that it begins with.
    pub from: BuildFrom,
    /// The steps, in their order.
    pub steps: Vec<BuildStep>,
    /// The program that each of its sandboxes begins with.
    pub start: Option<String>,
    /// The program that succeeds once that is ready.
    pub ready: Option<String>,
    /// True to carry out all of it, also where the same was built before.
    pub force: bool,
}

/// The files that a build begins with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildFrom {
    /// The host's system.
    #[default]
    Host,
    /// Another template.
    Template(String),
    /// An image in an uploaded layout (OCI Image Layout Specification).
    Layout {
        /// The name of the upload.
        upload: String,
        /// The name of the image in it; needed where there are several.
        name: Option<String>,
    },
    /// An image of a registry.
    Image {
        /// Its name.
        name: String,
        /// The user and the password at the registry.
        login: Option<Box<RegistryLogin>>,
    },
}

/// A login at a registry. Nothing of it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub struct RegistryLogin {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for RegistryLogin {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("RegistryLogin").finish_non_exhaustive()
    }
}

/// A step of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildStep {
    /// Copy uploaded files.
    Copy {
        /// The name of the upload.
        upload: String,
        /// The path of the files in it.
        from: String,
        /// The path in the template.
        to: String,
        /// The owner, `user` or `user:group`.
        owner: Option<String>,
        /// The permission bits, octal.
        mode: Option<String>,
    },
    /// Run a command of the shell.
    Run {
        /// The command.
        command: String,
        /// The user it runs as.
        user: Option<String>,
    },
    /// Set variables.
    Environment(BTreeMap<String, String>),
    /// Set the directory of what follows.
    Directory(String),
    /// Set the user of what follows.
    User(String),
}

/// A template.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateFacts {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The time at which it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// The digest of all that it was built from.
    pub digest: String,
    /// The user that its programs are.
    pub user: String,
    /// The processors of its sandboxes.
    pub cpus: u32,
    /// Their memory, MiB.
    pub memory_mib: u64,
    /// The sandboxes that stand on it, running or paused.
    pub sandboxes: usize,
}

/// The state of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildState {
    /// Waiting for its plan.
    Waiting,
    /// Going on.
    Building,
    /// The template is there.
    Ready,
    /// Failed.
    Failed,
}

/// A line of a build's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildLine {
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// True for what a program wrote to its standard error.
    pub is_error: bool,
    /// The step: `base`, a number from 1, or `finalize`.
    pub step: String,
    /// The text.
    pub text: String,
}

/// The progress of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildFacts {
    /// The state.
    pub state: BuildState,
    /// The lines of the log from the one that was asked for.
    pub lines: Vec<BuildLine>,
    /// The reason why it has failed.
    pub why: Option<String>,
    /// The step that has failed.
    pub step: Option<String>,
}
