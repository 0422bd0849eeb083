//! Files that others execute or trust. A hostile program that may change one of
//! them escapes at the person's next command, so they are shown apart and need a
//! yes of their own.

use crate::RelativePath;

/// One kind of control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFile {
    /// Path components, matched at any depth, without regard to case; what lies
    /// beneath is meant too. A component can hold one `*`.
    pub pattern: &'static str,
    /// Who executes or trusts it.
    pub reason: &'static str,
}

const fn row(pattern: &'static str, reason: &'static str) -> ControlFile {
    ControlFile { pattern, reason }
}

const GIT: &str = "git runs programs named there";
const GIT_STATE: &str = "git continues from it, and it can name commands";
const GIT_ELSEWHERE: &str = "git takes its repository or objects from the place named there";
const CI: &str = "the CI system runs it, often with secrets";
const SHELL: &str = "a shell runs it at its start";
const EDITOR: &str = "an editor runs the tasks and programs named there";
const PACKAGES: &str = "a package manager takes registries, credentials and scripts from it";
const AGENT: &str = "agents take their instructions, tools and permissions from it";
const HOOKS: &str = "it is run at git commands";
const DEBUGGER: &str = "a debugger runs the commands in it";
const TOOLS: &str = "a tool manager runs what it names on entering the directory";

/// All kinds, for the sandbox to make them read-only where writes go straight to
/// the person's directory. Two more are found by shape: a file (or symbolic link)
/// named `.git`, and `HEAD` outside of `.git`, which makes a bare repository.
pub const CONTROL_FILES: &[ControlFile] = &[
    row(".git/hooks", GIT),
    row(".git/config*", GIT),
    row(
        ".git/info",
        "git takes attributes, and with them filter programs, from it",
    ),
    row(".git/modules/*/hooks", GIT),
    row(".git/modules/*/config*", GIT),
    row(".git/worktrees/*/config*", GIT),
    row(".git/worktrees/*/gitdir", GIT_ELSEWHERE),
    row(".git/worktrees/*/commondir", GIT_ELSEWHERE),
    row(".git/commondir", GIT_ELSEWHERE),
    row(".git/gitdir", GIT_ELSEWHERE),
    row(".git/objects/info/alternates", GIT_ELSEWHERE),
    row(".git/objects/info/http-alternates", GIT_ELSEWHERE),
    row(".git/remotes", GIT_ELSEWHERE),
    row(".git/branches", GIT_ELSEWHERE),
    row(".git/rebase-merge", GIT_STATE),
    row(".git/rebase-apply", GIT_STATE),
    row(".git/sequencer", GIT_STATE),
    row(".gitmodules", GIT_ELSEWHERE),
    row(
        ".gitattributes",
        "git runs the filters and merge drivers named there",
    ),
    row(".gitconfig", GIT),
    row(".husky", HOOKS),
    row(".githooks", HOOKS),
    row(".pre-commit-config.yaml", HOOKS),
    row(".pre-commit-hooks.yaml", HOOKS),
    row("lefthook*", HOOKS),
    row(".lefthook*", HOOKS),
    row(".overcommit.yml", HOOKS),
    row(".lintstagedrc*", HOOKS),
    row(".github/workflows", CI),
    row(".github/actions", CI),
    row(".github/copilot-instructions.md", AGENT),
    row(".gitlab-ci.yml", CI),
    row(".gitlab-ci.yaml", CI),
    row(".gitlab", CI),
    row(".circleci", CI),
    row(".travis.yml", CI),
    row("Jenkinsfile*", CI),
    row("azure-pipelines*", CI),
    row(".azure-pipelines*", CI),
    row("bitbucket-pipelines.yml", CI),
    row(".drone.yml", CI),
    row(".woodpecker*", CI),
    row(".buildkite", CI),
    row(".cirrus.yml", CI),
    row("appveyor.yml", CI),
    row(".appveyor.yml", CI),
    row(".forgejo", CI),
    row(".gitea", CI),
    row(".ci", CI),
    row(".envrc", "direnv runs it on entering the directory"),
    row(".direnv", "direnv runs it on entering the directory"),
    row(".env", "tools load it into their environment"),
    row(".env.*", "tools load it into their environment"),
    row(".bashrc", SHELL),
    row(".bash_profile", SHELL),
    row(".bash_login", SHELL),
    row(".bash_logout", SHELL),
    row(".bash_aliases", SHELL),
    row(".profile", SHELL),
    row(".zshrc", SHELL),
    row(".zprofile", SHELL),
    row(".zshenv", SHELL),
    row(".zlogin", SHELL),
    row(".zlogout", SHELL),
    row(".cshrc", SHELL),
    row(".tcshrc", SHELL),
    row(".kshrc", SHELL),
    row(".inputrc", "the shell binds keys to commands by it"),
    row(".config/fish", SHELL),
    row(".config/git", GIT),
    row(".config/systemd", "systemd runs it"),
    row(".config/autostart", "the desktop runs it"),
    row(".ssh", "ssh takes hosts, keys and commands from it"),
    row(".vscode", EDITOR),
    row("*.code-workspace", EDITOR),
    row(".idea", EDITOR),
    row(".fleet", EDITOR),
    row(".zed", EDITOR),
    row(".nvim.lua", EDITOR),
    row(".nvimrc", EDITOR),
    row(".exrc", EDITOR),
    row(".vimrc", EDITOR),
    row(".lvimrc", EDITOR),
    row(".dir-locals.el", EDITOR),
    row(".dir-locals-2.el", EDITOR),
    row(
        ".devcontainer",
        "an editor builds and starts the container it describes",
    ),
    row(
        ".devcontainer.json",
        "an editor builds and starts the container it describes",
    ),
    row(
        ".cargo/config",
        "cargo runs the linkers, runners and wrappers named there",
    ),
    row(
        ".cargo/config.toml",
        "cargo runs the linkers, runners and wrappers named there",
    ),
    row(
        "rust-toolchain",
        "rustup takes the compiler from the path named there",
    ),
    row(
        "rust-toolchain.toml",
        "rustup takes the compiler from the path named there",
    ),
    row(".npmrc", PACKAGES),
    row(".yarnrc*", PACKAGES),
    row(".yarn/releases", "yarn runs itself from there"),
    row(".yarn/plugins", "yarn runs it"),
    row(".pnpmfile.cjs", "pnpm runs it at install"),
    row(".pnpmfile.mjs", "pnpm runs it at install"),
    row("bunfig.toml", PACKAGES),
    row("pip.conf", PACKAGES),
    row(".pip", PACKAGES),
    row(".pypirc", PACKAGES),
    row("sitecustomize.py", "python runs it at its start"),
    row("usercustomize.py", "python runs it at its start"),
    row(".netrc", "programs take credentials from it"),
    row(".mvn", "Maven takes arguments and extensions from it"),
    row(".bazelrc", "Bazel takes options from it"),
    row(".bazelversion", "bazelisk takes the program to run from it"),
    row(".gdbinit", DEBUGGER),
    row(".lldbinit", DEBUGGER),
    row(".tool-versions", TOOLS),
    row(".mise*", TOOLS),
    row("mise*.toml", TOOLS),
    row(".asdfrc", TOOLS),
    row(".autoenv*", TOOLS),
    row("atoll.toml", "Atoll takes this project's boundary from it"),
    row(".mcp.json", AGENT),
    row(".claude", AGENT),
    row(".claude.json", AGENT),
    row(".codex", AGENT),
    row(".cursor", AGENT),
    row(".cursorrules", AGENT),
    row(".windsurf*", AGENT),
    row(".gemini", AGENT),
    row(".opencode", AGENT),
    row("opencode.json*", AGENT),
    row(".aider*", AGENT),
    row(".agents", AGENT),
    row("AGENTS.md", AGENT),
    row("AGENTS.override.md", AGENT),
    row("CLAUDE.md", AGENT),
    row("CLAUDE.local.md", AGENT),
    row("GEMINI.md", AGENT),
];

/// Why the path is a control file, if it is one. `whole` means that the entry
/// stands for all that is or could be beneath it, as a symbolic link or a moved
/// directory does: then the beginning of a pattern matches too.
pub(crate) fn reason(path: &RelativePath, is_directory: bool, whole: bool) -> Option<&'static str> {
    let names: Vec<Vec<u8>> = path.components().map(plain_form).collect();
    let git = names.iter().position(|name| name == b".git");
    let last = names.last()?;
    if git.is_some_and(|at| at + 1 == names.len()) && !is_directory {
        return Some(GIT_ELSEWHERE);
    }
    if last == b"head" && git.is_none() && !is_directory {
        return Some("it makes its directory a git repository, with hooks of its own");
    }
    CONTROL_FILES
        .iter()
        .find(|row| matches(row.pattern, &names, whole))
        .map(|row| row.reason)
}

/// Case-insensitive and otherwise forgiving file systems open the same file by
/// other names: `.GIT`, `.git.`, `git~1`, or with ignorable characters within.
fn plain_form(name: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => text
            .chars()
            .filter(|letter| {
                !matches!(u32::from(*letter), 0x200c..=0x200f | 0x202a..=0x202e | 0x206a..=0x206f | 0xfeff)
            })
            .collect::<String>()
            .into_bytes(),
        _ => name.to_vec(),
    };
    plain.make_ascii_lowercase();
    while plain.len() > 1 && matches!(plain.last(), Some(b'.' | b' ')) {
        plain.pop();
    }
    if plain == b"git~1" {
        return b".git".to_vec();
    }
    plain
}

fn matches(pattern: &str, names: &[Vec<u8>], whole: bool) -> bool {
    let first = pattern.bytes().next().unwrap_or_default();
    (0..names.len()).any(|start| {
        let rest = names.get(start..).unwrap_or_default();
        let head = rest
            .first()
            .and_then(|name| name.first())
            .copied()
            .unwrap_or_default();
        (first == b'*' || first.eq_ignore_ascii_case(&head)) && matches_from(pattern, rest, whole)
    })
}

fn matches_from(pattern: &str, names: &[Vec<u8>], whole: bool) -> bool {
    let Some((name, after)) = names.split_first() else {
        return whole;
    };
    let (part, rest) = match pattern.split_once('/') {
        Some((part, rest)) => (part, Some(rest)),
        None => (pattern, None),
    };
    match rest {
        // A lone star stands for one or more names: submodules have submodules.
        Some(rest) if part == "*" => (0..names.len())
            .any(|at| matches_from(rest, names.get(at + 1..).unwrap_or_default(), whole)),
        Some(rest) => matches_name(part, name) && matches_from(rest, after, whole),
        None => matches_name(part, name),
    }
}

/// `part` holds at most one star; `name` is in lower case already.
fn matches_name(part: &str, name: &[u8]) -> bool {
    let part = part.as_bytes();
    let Some(star) = part.iter().position(|byte| *byte == b'*') else {
        return part.eq_ignore_ascii_case(name);
    };
    let (start, end) = (part.get(..star), part.get(star + 1..));
    let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
    name.len() >= start.len() + end.len()
        && name
            .get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
        && name
            .get(name.len() - end.len()..)
            .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}
