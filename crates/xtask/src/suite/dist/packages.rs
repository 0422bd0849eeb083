//! The packages that the program is handed out in. Their descriptions are files in `packaging/`, in
//! which `@VERSION@` stands for the version.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{glibc, tools};
use crate::{command, tree};

/// The version of everything in this workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The manifest of the program's package.
const MANIFEST: &str = "crates/cli/Cargo.toml";

/// The shells with completions: their names, and the places where the files of a Debian package
/// are looked for.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "atoll.bash", "bash-completion/completions/atoll"),
    ("zsh", "_atoll", "zsh/vendor-completions/_atoll"),
    ("fish", "atoll.fish", "fish/vendor_completions.d/atoll.fish"),
];

/// The making of all packages from one program.
pub(super) struct Packer<'a> {
    root: &'a Path,
    cache: &'a Path,
    program: &'a Path,
    /// The directory of the packages.
    target: &'a Path,
    /// A directory for what goes into them.
    work: PathBuf,
    /// The time that files in them have, seconds: that of the commit.
    time: String,
}

impl<'a> Packer<'a> {
    pub(super) fn new(
        root: &'a Path,
        cache: &'a Path,
        program: &'a Path,
        target: &'a Path,
    ) -> Result<Self> {
        let work = target.join("work");
        fs::create_dir_all(&work)?;
        let mut ask = Command::new("git");
        ask.current_dir(root).args(["log", "-1", "--format=%ct"]);
        let time = command::output(&mut ask)?.trim().to_owned();
        Ok(Self {
            root,
            cache,
            program,
            target,
            work,
            time,
        })
    }

    /// Makes all of them, and the sums of all.
    pub(super) fn pack(self) -> Result<()> {
        let parts = self.archive()?;
        self.debian(&parts)?;
        self.npm()?;
        self.wheel()?;
        self.components()?;
        fs::remove_dir_all(&self.work)?;
        let mut names: Vec<_> = fs::read_dir(self.target)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        names.sort();
        let mut sum = Command::new("sha256sum");
        let sums = command::output(sum.current_dir(self.target).arg("--").args(names))?;
        fs::write(self.target.join("SHA256SUMS"), sums)?;
        Ok(())
    }

    /// Makes the archive for any distribution; returns the directory of what is in it.
    fn archive(&self) -> Result<PathBuf> {
        let name = format!("atoll-{VERSION}-x86_64-linux-gnu");
        let own = self.work.join(&name);
        self.place(self.program, &own.join("atoll"))?;
        self.documents(&own)?;
        let mut pages = Command::new(self.program);
        command::output(pages.arg("man").arg(own.join("man/man1")))?;
        fs::create_dir(own.join("completions"))?;
        for (shell, file, _) in SHELLS {
            let text = command::output(Command::new(self.program).args(["completions", shell]))?;
            fs::write(own.join("completions").join(file), text)?;
        }
        let mut pack = Command::new("tar");
        pack.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .arg("--mode=u=rwX,go=rX")
            .arg(format!("--mtime=@{}", self.time))
            .args(["--gzip", "--create", "--file"])
            .arg(self.target.join(format!("{name}.tar.gz")))
            .arg("--directory")
            .args([&self.work, Path::new(&name)]);
        command::output(&mut pack)?;
        Ok(own)
    }

    /// Makes the package of Debian and its descendants.
    fn debian(&self, parts: &Path) -> Result<()> {
        let own = self.work.join("deb");
        self.fill("deb/control", &own.join("DEBIAN/control"))?;
        self.place(self.program, &own.join("usr/bin/atoll"))?;
        let documents = own.join("usr/share/doc/atoll");
        self.documents(&documents)?;
        fs::rename(documents.join("LICENSE"), documents.join("copyright"))?;
        for page in fs::read_dir(parts.join("man/man1"))? {
            let page = page?;
            let target = own.join("usr/share/man/man1").join(page.file_name());
            self.place(&page.path(), &target)?;
            command::output(Command::new("gzip").args(["-9", "--no-name"]).arg(target))?;
        }
        for (_, file, place) in SHELLS {
            let target = own.join("usr/share").join(place);
            self.place(&parts.join("completions").join(file), &target)?;
        }
        let mut pack = Command::new("dpkg-deb");
        pack.env("SOURCE_DATE_EPOCH", &self.time)
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&own)
            .arg(self.target.join(format!("atoll_{VERSION}_amd64.deb")));
        command::output(&mut pack).map(drop)
    }

    /// Makes the packages of npm: what users name, and the program for this machine.
    fn npm(&self) -> Result<()> {
        let (main, machine) = (self.work.join("npm"), self.work.join("npm-machine"));
        self.fill("npm/atoll/package.json", &main.join("package.json"))?;
        self.fill("npm/atoll/atoll", &main.join("atoll"))?;
        let description = "npm/atoll-linux-x64/package.json";
        self.fill(description, &machine.join("package.json"))?;
        self.place(self.program, &machine.join("bin/atoll"))?;
        self.documents(&main)?;
        self.documents(&machine)?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"])
            .arg(self.target)
            .args([main, machine]);
        command::output(&mut pack).map(drop)
    }

    /// Makes the package of PyPI, a wheel with the program as it is.
    fn wheel(&self) -> Result<()> {
        let own = self.work.join("wheel");
        let described = own.join(format!("atoll-{VERSION}.dist-info"));
        for name in ["METADATA", "WHEEL"] {
            self.fill(&format!("wheel/{name}"), &described.join(name))?;
        }
        let license = described.join("licenses/LICENSE");
        self.place(&self.root.join("LICENSE"), &license)?;
        let page = fs::read(self.root.join("README.md"))?;
        let mut metadata = File::options()
            .append(true)
            .open(described.join("METADATA"))?;
        std::io::Write::write_all(&mut metadata, &page)?;
        let scripts = own.join(format!("atoll-{VERSION}.data/scripts"));
        self.place(self.program, &scripts.join("atoll"))?;
        let mut pack = Command::new(tools::python(self.cache));
        pack.env("SOURCE_DATE_EPOCH", &self.time)
            .args(["-m", "wheel", "pack", "--dest-dir"])
            .args([self.target, &own]);
        command::output(&mut pack).map(drop)
    }

    /// Writes the list of what the program consists of, for those who look for known errors.
    fn components(&self) -> Result<()> {
        // It is written beside every manifest: those of a copy.
        let copy = self.work.join("source");
        tree::copy(self.root, &copy)?;
        let mut list = Command::new(tools::sbom(self.cache));
        list.current_dir(&copy)
            .env("SOURCE_DATE_EPOCH", &self.time)
            .args(["cyclonedx", "--quiet", "--format=json"])
            .args(["--describe=binaries", "--spec-version=1.5"])
            .args(["--target", glibc::TARGET, "--manifest-path", MANIFEST]);
        command::output(&mut list)?;
        let made = copy.join(MANIFEST).with_file_name("atoll_bin.cdx.json");
        // The same wherever it is made.
        let text = fs::read_to_string(made)?.replace(&copy.display().to_string(), "/atoll");
        let target = self.target.join(format!("atoll-{VERSION}.cdx.json"));
        Ok(fs::write(target, text)?)
    }

    /// Copies what every package has: the licence, and the first page.
    fn documents(&self, directory: &Path) -> Result<()> {
        for name in ["LICENSE", "README.md"] {
            self.place(&self.root.join(name), &directory.join(name))?;
        }
        Ok(())
    }

    /// Copies a file with its rights, and makes the directories that it is in.
    fn place(&self, source: &Path, target: &Path) -> Result<()> {
        fs::create_dir_all(target.parent().unwrap_or(&self.work))?;
        let copied = fs::copy(source, target);
        copied.with_context(|| format!("cannot copy {}", source.display()))?;
        Ok(())
    }

    /// Copies a file of `packaging/`, with the version in its place.
    fn fill(&self, name: &str, target: &Path) -> Result<()> {
        let source = self.root.join("packaging").join(name);
        self.place(&source, target)?;
        let text = fs::read_to_string(&source)?;
        Ok(fs::write(target, text.replace("@VERSION@", VERSION))?)
    }
}
