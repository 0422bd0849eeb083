//! The reasons why files are control files: who executes or trusts them.

pub(super) const GIT: &str = "git runs programs named there";
pub(super) const GIT_STATE: &str = "git continues from it, and it can name commands";
pub(super) const GIT_ELSEWHERE: &str =
    "git takes its repository or objects from the place named there";
pub(super) const HG: &str = "Mercurial runs the hooks, extensions and aliases named there";
pub(super) const ELSEWHERE: &str =
    "a version control system takes its repository from the place named there";
pub(super) const JJ: &str = "jj runs the editors, tools and filters named there";
pub(super) const VCS: &str = "a version control system runs programs named there";
pub(super) const HOOKS: &str = "it is run at git commands";
pub(super) const CI: &str = "the CI system runs it, often with secrets";
pub(super) const DEPLOY: &str = "a deployment runs the commands named there, often with secrets";
pub(super) const REVIEW: &str =
    "the forge takes from it whose review a change needs, or changes of its own";
pub(super) const ENTER: &str = "direnv runs it on entering the directory";
pub(super) const VARIABLES: &str = "tools load it into their environment";
pub(super) const SHELL: &str = "a shell runs it at its start";
pub(super) const DESKTOP: &str = "the desktop or the service manager runs it";
pub(super) const TERMINAL: &str = "a terminal or multiplexer runs the programs named there";
pub(super) const ACCESS: &str = "programs take hosts, keys, credentials and commands from it";
pub(super) const EDITOR: &str = "an editor runs the tasks and programs named there";
/// Applies only where the person works: files in a cache are not opened there.
pub(crate) const LINTER: &str =
    "editors and linters execute it, or plugins named there, as soon as the project is open";
pub(super) const CONTAINER: &str = "an editor builds and starts the container it describes";
pub(super) const CARGO: &str = "cargo runs the linkers, runners and wrappers named there";
pub(super) const RUSTUP: &str = "rustup takes the compiler from the path named there";
pub(super) const PACKAGES: &str =
    "a package manager takes registries, credentials and scripts from it";
pub(super) const INSTALL: &str = "a package manager runs it";
pub(super) const PYTHON: &str = "python runs it at its start";
pub(super) const BUILD: &str =
    "a build tool takes the programs, options or extensions to run from it";
pub(super) const REPL: &str = "an interpreter or client runs the commands in it at its start";
pub(super) const DEBUGGER: &str = "a debugger runs the commands in it";
pub(super) const TOOLS: &str = "a tool manager runs what it names on entering the directory";
pub(super) const ATOLL: &str = "Atoll takes this project's boundary from it";
pub(super) const OWN: &str = "Atoll takes its rules, and whom it trusts, from it";
pub(super) const AGENT: &str = "agents take their instructions, tools and permissions from it";
pub(super) const HOSTED: &str = "a hosted workspace runs the commands in it at its start";
