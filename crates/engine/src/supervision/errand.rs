//! Host commands: programs run outside for a run. They must not find code that a program in the
//! sandbox could have written.

mod leading;
mod owners;
mod writers;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use leading::{begins_here, leads_inside};
use owners::{open_link, open_part};
pub use writers::{Workspaces, Writers};

/// The most symbolic links followed, as by the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The most interpreters followed, as by the kernel (fs/exec.c, `exec_binprm`).
const INTERPRETERS_MAX: usize = 5;
/// The number of bytes in which the kernel looks for a script's first line.
const HEAD_BYTES_MAX: u64 = 256;

/// Variables whose values make a loader, a shell or an interpreter run more code.
const LOADING: &[&str] = &[
    "BASHOPTS",
    "BASH_ENV",
    "CDPATH",
    "CLASSPATH",
    "ENV",
    "GCONV_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "GLIBC_TUNABLES",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LOCPATH",
    "NLSPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PS4",
    "RUBYLIB",
    "RUBYOPT",
    "SHELLOPTS",
    "VIRTUAL_ENV",
    "_JAVA_OPTIONS",
];
/// Prefixes of further such variables.
const LOADING_PREFIXES: &[&str] = &["BASH_FUNC_", "DYLD_", "LD_", "LUA_", "PERL", "PYTHON"];
/// Variables with this process's directory, which is not the program's.
const DIRECTORIES: &[&str] = &["OLDPWD", "PWD"];

/// The paths that sandboxed programs write, or wrote: workspaces, and Atoll's state of runs. No
/// code from there runs outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenInside(Vec<(PathBuf, Option<Identity>)>);

/// A directory's device and inode number, the same under all its names.
type Identity = (u64, u64);

impl FromIterator<PathBuf> for WrittenInside {
    fn from_iter<I: IntoIterator<Item = PathBuf>>(places: I) -> Self {
        let canonical = |place: PathBuf| place.canonicalize().unwrap_or(place);
        let mut places: Vec<PathBuf> = places.into_iter().map(canonical).collect();
        places.sort_unstable();
        places.dedup();
        let known = places.into_iter().map(|place| {
            let identity = place
                .metadata()
                .ok()
                .map(|facts| (facts.dev(), facts.ino()));
            (place, identity)
        });
        Self(known.collect())
    }
}

impl WrittenInside {
    /// Returns the union of both.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Returns whether a path is in one of these directories, or is another mount of one.
    fn holds(&self, at: &Path) -> bool {
        if self.0.iter().any(|(place, _)| at.starts_with(place)) {
            return true;
        }
        let facts = at.symlink_metadata().ok().filter(|facts| facts.is_dir());
        let identity = facts.map(|facts| (facts.dev(), facts.ino()));
        identity.is_some() && self.0.iter().any(|(_, one)| *one == identity)
    }
}

/// Returns this process's environment for a host command at `/`. Removed are variables by which
/// an interpreter loads code, and those that lead into sandbox-writable paths or to the current
/// directory; `PATH` keeps only existing absolute directories that are not sandbox-writable.
///
/// To be called after the credentials were removed from the environment.
#[must_use]
pub fn environment_outside(written: &WrittenInside) -> Vec<(OsString, OsString)> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    cleaned(std::env::vars_os(), written, Path::new(&home))
}

fn cleaned(
    variables: impl Iterator<Item = (OsString, OsString)>,
    written: &WrittenInside,
    home: &Path,
) -> Vec<(OsString, OsString)> {
    // Whatever a program takes a variable for, as its configuration or a program of its own.
    let leads = |value: &OsStr| begins_here(value) || leads_inside(value, written, home);
    let kept = variables.filter(|(name, _)| !loads(name));
    kept.filter_map(|(name, value)| match name == "PATH" {
        true => Some((name, search_path(&value, written)?)),
        false => (!leads(&value)).then_some((name, value)),
    })
    .collect()
}

fn loads(name: &OsStr) -> bool {
    let is_named = |one: &&str| OsStr::new(one) == name;
    let bytes = name.as_bytes();
    LOADING.iter().chain(DIRECTORIES).any(is_named)
        || LOADING_PREFIXES
            .iter()
            .any(|prefix| bytes.starts_with(prefix.as_bytes()))
}

/// Filters `PATH`. Returns `None` if no directory is left: an empty `PATH` would name a
/// directory.
fn search_path(value: &OsStr, written: &WrittenInside) -> Option<OsString> {
    let places = search_places(value, written);
    let fit = places.filter(|place| !place.as_os_str().as_bytes().contains(&b':'));
    let joined = std::env::join_paths(fit).ok()?;
    (!joined.is_empty()).then_some(joined)
}

/// Returns the directories of a `PATH` that exist, are absolute, and neither are
/// sandbox-writable nor reached through a sandbox-writable path; each by its canonical name.
pub fn search_places(value: &OsStr, written: &WrittenInside) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(value)
        .filter(|place| place.is_absolute())
        .filter_map(move |place| resolved(&place, written))
        .filter(|place| place.is_dir())
}

/// Returns the canonical form of an absolute path. `None` if the path or a link on its way is
/// sandbox-writable, so that a sandboxed program could choose the target, or if there are too
/// many links. A path that does not exist has the name that it would have.
#[must_use]
pub fn resolved(path: &Path, written: &WrittenInside) -> Option<PathBuf> {
    followed(path, written).map(|(real, _)| real)
}

/// Resolves a path; returns also the links on the way.
fn followed(path: &Path, written: &WrittenInside) -> Option<(PathBuf, Vec<PathBuf>)> {
    let mut at = PathBuf::from("/");
    let mut left: Vec<OsString> = parts(path);
    let mut links = Vec::new();
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        if part == "/" {
            at = PathBuf::from("/");
            continue;
        }
        at.push(&part);
        if written.holds(&at) {
            return None;
        }
        if let Ok(target) = std::fs::read_link(&at) {
            if links.len() == LINKS_MAX {
                return None;
            }
            links.push(at.clone());
            at.pop();
            left.append(&mut parts(&target));
        }
    }
    Some((at, links))
}

/// The reason why a host command does not run, or a file is not read, for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A sandboxed program may have written this, or a path that leads to it.
    Written(PathBuf),
    /// Other users can write this.
    Open(PathBuf),
}

/// Returns the canonical path of a file that may be used outside for a run: only root and this
/// user can write it and all that leads to it, links included, and no sandboxed program has.
///
/// # Errors
/// [`Unfit`].
pub fn file_outside(file: &Path, written: &WrittenInside) -> Result<PathBuf, Unfit> {
    let (real, links) = followed(file, written).ok_or_else(|| Unfit::Written(file.to_owned()))?;
    let open = links.iter().find_map(|link| open_link(link));
    match open.or_else(|| open_part(&real)) {
        Some(open) => Err(Unfit::Open(open)),
        None => Ok(real),
    }
}

/// Returns the canonical path of a program that may run outside: only root and this user can
/// write it and all that leads to it. The interpreters of a script are checked likewise.
///
/// # Errors
/// [`Unfit`].
pub fn program_outside(program: &Path, written: &WrittenInside) -> Result<PathBuf, Unfit> {
    let mut found = program.to_owned();
    let mut first = None;
    for _ in 0..=INTERPRETERS_MAX {
        let real = file_outside(&found, written)?;
        let interpreter = interpreter(&real, written);
        let whole = first.get_or_insert(real);
        match interpreter {
            Some(next) => found = next,
            None => return Ok(whole.clone()),
        }
    }
    Err(Unfit::Written(found))
}

/// Returns the interpreter in a script's first line (execve(2), "Interpreter scripts"); for
/// `env` the program that it looks for.
fn interpreter(program: &Path, written: &WrittenInside) -> Option<PathBuf> {
    let mut head = Vec::new();
    // What cannot be read no interpreter reads either.
    let file = std::fs::File::open(program).ok()?;
    file.take(HEAD_BYTES_MAX).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let words = line.split(|byte| byte.is_ascii_whitespace());
    let mut words = words.filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let named = PathBuf::from(words.next()?);
    if named.file_name() != Some(OsStr::new("env")) {
        return Some(named);
    }
    let is_program =
        |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    let looked_for = words.find(is_program)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = search_places(&path, written).map(|place| place.join(looked_for));
    all.find(|one| one.is_file()).or(Some(named))
}

/// Returns a path's components, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let kept = path.components().filter(|part| *part != Component::CurDir);
    let mut parts: Vec<OsString> = kept.map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}

/// Returns the first argument that names a sandbox-writable path: an absolute path, or one
/// beneath the home, alone or anywhere in the argument.
pub fn argument_inside<'a>(
    arguments: impl IntoIterator<Item = &'a OsStr>,
    written: &WrittenInside,
    home: &Path,
) -> Option<&'a OsStr> {
    let mut arguments = arguments.into_iter();
    arguments.find(|argument| leads_inside(argument, written, home))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn world() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let (workspace, bin) = (top.join("work"), top.join("bin"));
        std::fs::create_dir_all(workspace.join("bin")).unwrap();
        std::fs::create_dir(&bin).unwrap();
        (directory, workspace, bin)
    }

    #[test]
    fn a_link_on_the_way_that_lies_in_the_workspace_is_found() {
        let (_directory, workspace, bin) = world();
        std::fs::write(bin.join("real"), "").unwrap();
        symlink(bin.join("real"), bin.join("fine")).unwrap();
        symlink(bin.join("real"), workspace.join("hop")).unwrap();
        symlink("../work/hop", bin.join("chain")).unwrap();
        symlink("loop", bin.join("loop")).unwrap();
        let workspace = &WrittenInside::from_iter([workspace]);
        let real = Some(bin.join("real"));
        assert_eq!(resolved(&bin.join("fine"), workspace), real);
        assert_eq!(resolved(&bin.join("../bin/./fine"), workspace), real);
        // Where it ends is no matter, nor how it is written.
        assert_eq!(bin.join("chain").canonicalize().ok(), real);
        assert_eq!(resolved(&bin.join("chain"), workspace), None);
        assert_eq!(
            resolved(&bin.join("chain"), &WrittenInside::default()),
            real
        );
        assert_eq!(
            resolved(&bin.join("../work/bin/../../bin/real"), workspace),
            None
        );
        assert_eq!(resolved(&bin.join("loop"), workspace), None);
        let missing = bin.join("missing/one");
        assert_eq!(resolved(&missing, workspace), Some(missing.clone()));
        // A name that only begins alike is another directory.
        let beside = bin.join("../workshop");
        assert!(resolved(&beside, workspace).is_some());
    }

    #[test]
    fn the_environment_outside_leads_to_no_code_of_the_workspace() {
        let (_directory, workspace, bin) = world();
        symlink(&workspace, bin.join("led")).unwrap();
        let written = WrittenInside::from_iter([workspace.clone()]);
        let places = [
            workspace.join("bin"),
            "relative".into(),
            "".into(),
            bin.clone(),
            bin.join("led/bin"),
            bin.join("missing"),
        ];
        let path = std::env::join_paths(places).unwrap();
        let variables = |path: OsString| {
            let names = "LD_PRELOAD PYTHONPATH NODE_OPTIONS BASH_ENV ENV PERL5LIB RUBYOPT \
                         VIRTUAL_ENV BASH_FUNC_ls%% PWD HOME AWS_PROFILE GIT_ASKPASS LDAP";
            let names = names.split_whitespace();
            let mut all: Vec<(OsString, OsString)> =
                names.map(|name| (name.into(), "x".into())).collect();
            all.push(("PATH".into(), path));
            all.into_iter()
        };
        let left = cleaned(variables(path), &written, &bin);
        let names: Vec<_> = left
            .iter()
            .map(|(name, _)| name.to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["HOME", "AWS_PROFILE", "GIT_ASKPASS", "LDAP", "PATH"]
        );
        assert_eq!(left.last().unwrap().1, bin.as_os_str());
        // Nothing is left of this one.
        let left = cleaned(variables(workspace.join("bin").into()), &written, &bin);
        assert!(left.iter().all(|(name, _)| name != "PATH"));
    }

    #[test]
    fn a_variable_that_leads_into_the_workspace_does_not_go_outside() {
        let (_directory, workspace, bin) = world();
        let written = WrittenInside::from_iter([workspace.clone()]);
        let left = |value: OsString| {
            let variable = (OsString::from("GIT_CONFIG_GLOBAL"), value);
            let left = cleaned(std::iter::once(variable), &written, Path::new("/root"));
            left.len()
        };
        let mut option = OsString::from("|");
        option.push(workspace.join("less"));
        assert_eq!(left(option), 0);
        assert_eq!(left(workspace.join("gc").into()), 0);
        assert_eq!(left("./gc".into()), 0);
        // The control.
        assert_eq!(left(bin.join("gc").into()), 1);
        assert_eq!(left("Europe/Berlin".into()), 1);
    }

    #[test]
    fn an_argument_that_names_what_is_in_the_workspace_is_found() {
        let (_directory, workspace, bin) = world();
        let home = workspace.parent().unwrap();
        let written = WrittenInside::from_iter([workspace.clone()]);
        let inside = workspace.join("script").into_os_string();
        let mut option = OsString::from("--config=");
        option.push(&inside);
        let mut second = OsString::from("a=b=");
        second.push(&inside);
        let home_one = OsStr::new("~/work/script");
        for refused in [inside.as_os_str(), &option, &second, home_one] {
            let found = argument_inside([OsStr::new("one"), refused], &written, home);
            assert_eq!(found, Some(refused));
        }
        let fine = ["script", "~/bin/script", "a=b", "work", "~"].map(OsStr::new);
        let fine = fine.into_iter().chain([bin.as_os_str()]);
        assert_eq!(argument_inside(fine, &written, home), None);
    }

    fn program(path: &Path, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path, text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }

    #[test]
    fn a_program_of_any_workspace_does_not_run_outside() {
        let (_directory, workspace, bin) = world();
        let other = bin.join("../other");
        std::fs::create_dir(&other).unwrap();
        let written = WrittenInside::from_iter([workspace.clone(), other.clone()]);
        let sh = Path::new("/bin/sh").canonicalize().unwrap();
        program(&bin.join("fine"), "#!/bin/sh\n");
        program(&bin.join("by-env"), "#!/usr/bin/env -S sh -e\n");
        let fit = |name: &str| program_outside(&bin.join(name), &written);
        assert_eq!(fit("fine"), Ok(bin.join("fine")));
        assert_eq!(fit("by-env"), Ok(bin.join("by-env")));
        assert_eq!(program_outside(&sh, &written), Ok(sh));
        for place in [&workspace, &other] {
            program(&place.join("tool"), "#!/bin/sh\n");
            let link = bin.join("link");
            symlink(place.join("tool"), &link).unwrap();
            assert_eq!(fit("link"), Err(Unfit::Written(link.clone())));
            std::fs::remove_file(link).unwrap();
            // A script is what its interpreter makes of it.
            let inside = place.join("tool").canonicalize().unwrap();
            program(
                &bin.join("script"),
                &format!("#! {} -x\n", inside.display()),
            );
            assert_eq!(fit("script"), Err(Unfit::Written(inside)));
        }
        program(
            &bin.join("loop"),
            &format!("#!{}\n", bin.join("loop").display()),
        );
        assert!(fit("loop").is_err());
    }

    #[test]
    fn a_program_that_others_can_write_does_not_run_outside() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, _, bin) = world();
        let tool = bin.join("tool");
        program(&tool, "#!/bin/sh\n");
        let written = WrittenInside::default();
        let with = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            program_outside(&tool, &written)
        };
        assert_eq!(with(&tool, 0o775), Ok(tool.clone()));
        assert_eq!(with(&tool, 0o757), Err(Unfit::Open(tool.clone())));
        let _ = with(&tool, 0o755);
        assert_eq!(with(&bin, 0o777), Err(Unfit::Open(bin.clone())));
        assert_eq!(with(&bin, 0o1777), Ok(tool.clone()));
    }

    #[test]
    fn a_link_that_others_can_replace_leads_nowhere() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, _, bin) = world();
        program(&bin.join("tool"), "#!/bin/sh\n");
        let (hops, own) = (bin.join("hops"), bin.join("own"));
        for directory in [&hops, &own] {
            std::fs::create_dir(directory).unwrap();
        }
        symlink(bin.join("tool"), hops.join("hop")).unwrap();
        symlink(hops.join("hop"), own.join("link")).unwrap();
        let with = |mode: u32| {
            std::fs::set_permissions(&hops, std::fs::Permissions::from_mode(mode)).unwrap();
            file_outside(&own.join("link"), &WrittenInside::default())
        };
        assert_eq!(with(0o755), Ok(bin.join("tool")));
        assert_eq!(with(0o777), Err(Unfit::Open(hops.clone())));
        // Who may not rename it there has not made it either.
        assert_eq!(with(0o1777), Ok(bin.join("tool")));
    }
}
