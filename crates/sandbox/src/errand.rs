//! What a program is given that is run outside on behalf of a run: no code that a program
//! inside could have written is to be found by it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Variables by whose values a loader, a shell or an interpreter runs further code.
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
/// The same, by how their names begin.
const LOADING_PREFIXES: &[&str] = &["BASH_FUNC_", "DYLD_", "LD_", "LUA_", "PERL", "PYTHON"];
/// Where this process is, and the program is not.
const DIRECTORIES: &[&str] = &["OLDPWD", "PWD"];

/// This process's environment for a program that it runs outside, at `/`: without variables
/// by which an interpreter loads code, and with the places of `PATH` alone that are there,
/// absolute and not in the workspace.
///
/// To be called after credentials were taken out of the environment.
#[must_use]
pub fn environment_outside(workspace: Option<&Path>) -> Vec<(OsString, OsString)> {
    cleaned(std::env::vars_os(), workspace)
}

fn cleaned(
    variables: impl Iterator<Item = (OsString, OsString)>,
    workspace: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let kept = variables.filter(|(name, _)| !loads(name));
    kept.filter_map(|(name, value)| match name == "PATH" {
        true => Some((name, search_path(&value, workspace)?)),
        false => Some((name, value)),
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

/// Without any place there is no `PATH` at all: an empty one would name a directory.
fn search_path(value: &OsStr, workspace: Option<&Path>) -> Option<OsString> {
    let places = search_places(value, workspace);
    let fit = places.filter(|place| !place.as_os_str().as_bytes().contains(&b':'));
    let joined = std::env::join_paths(fit).ok()?;
    (!joined.is_empty()).then_some(joined)
}

/// The directories of a `PATH` that are absolute, there, and neither in the workspace nor
/// reached through it, each by its canonical name.
pub fn search_places(value: &OsStr, workspace: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(value)
        .filter(|place| place.is_absolute())
        .filter_map(move |place| resolved(&place, workspace))
        .filter(|place| place.is_dir())
}

/// The canonical form of an absolute path. Nothing where it lies in the workspace, any link
/// on its way does, or it has too many links: what a program inside can write decides
/// then what it leads to. What is not there has the name that it would have.
#[must_use]
pub fn resolved(path: &Path, workspace: Option<&Path>) -> Option<PathBuf> {
    let workspace = workspace.map(|one| one.canonicalize().unwrap_or_else(|_| one.to_owned()));
    let mut at = PathBuf::from("/");
    let mut left: Vec<OsString> = parts(path);
    let mut links = 0;
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
        if workspace.as_ref().is_some_and(|one| lies_in(&at, one)) {
            return None;
        }
        if let Ok(target) = std::fs::read_link(&at) {
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            at.pop();
            left.append(&mut parts(&target));
        }
    }
    Some(at)
}

/// By its name, or by another that the same directory is mounted at.
fn lies_in(at: &Path, workspace: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
    at.starts_with(workspace)
        || at.symlink_metadata().is_ok_and(|facts| {
            facts.is_dir() && Some((facts.dev(), facts.ino())) == identity(workspace)
        })
}

/// A path's parts, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let kept = path.components().filter(|part| *part != Component::CurDir);
    let mut parts: Vec<OsString> = kept.map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}

/// The first of a command's arguments that names something in the workspace: an absolute
/// path, or one beneath the home, by itself or after a `=`.
pub fn argument_inside<'a>(
    arguments: impl IntoIterator<Item = &'a OsStr>,
    workspace: &Path,
    home: &Path,
) -> Option<&'a OsStr> {
    let is_inside = |text: &[u8]| {
        let path = match text.strip_prefix(b"~/") {
            Some(beneath) => home.join(OsStr::from_bytes(beneath)),
            None if text == b"~" => home.to_owned(),
            None => PathBuf::from(OsStr::from_bytes(text)),
        };
        path.is_absolute() && resolved(&path, Some(workspace)).is_none()
    };
    arguments.into_iter().find(|argument| {
        let text = argument.as_bytes();
        let after = text.iter().position(|byte| *byte == b'=');
        let after = after.and_then(|at| text.get(at + 1..));
        is_inside(text) || after.is_some_and(is_inside)
    })
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
        let workspace = Some(workspace.as_path());
        let real = Some(bin.join("real"));
        assert_eq!(resolved(&bin.join("fine"), workspace), real);
        assert_eq!(resolved(&bin.join("../bin/./fine"), workspace), real);
        // Where it ends is no matter, nor how it is written.
        assert_eq!(bin.join("chain").canonicalize().ok(), real);
        assert_eq!(resolved(&bin.join("chain"), workspace), None);
        assert_eq!(resolved(&bin.join("chain"), None), real);
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
        let left = cleaned(variables(path), Some(&workspace));
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
        let left = cleaned(variables(workspace.join("bin").into()), Some(&workspace));
        assert!(left.iter().all(|(name, _)| name != "PATH"));
    }

    #[test]
    fn an_argument_that_names_what_is_in_the_workspace_is_found() {
        let (_directory, workspace, bin) = world();
        let home = workspace.parent().unwrap();
        let inside = workspace.join("script").into_os_string();
        let mut option = OsString::from("--config=");
        option.push(&inside);
        for refused in [inside.as_os_str(), &option, OsStr::new("~/work/script")] {
            let found = argument_inside([OsStr::new("one"), refused], &workspace, home);
            assert_eq!(found, Some(refused));
        }
        let fine = ["script", "~/bin/script", "a=b", "work", "~"].map(OsStr::new);
        let fine = fine.into_iter().chain([bin.as_os_str()]);
        assert_eq!(argument_inside(fine, &workspace, home), None);
    }
}
