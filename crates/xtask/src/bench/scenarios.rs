//! The benchmarks: their work, their contenders and their targets.
//!
//! Scripts that run inside as well as outside print the time of the work
//! alone, taken by `date` before and after it: the start of a sandbox is a
//! benchmark of its own. Both clock readings start a process, which adds less
//! than a millisecond on either side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::measure::{Contender, ELAPSED, Prepared};
use super::{neighbour, peers, stop};
use crate::command;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Benchmark {
    Start,
    Spawner,
    Compile,
    Python,
    Untar,
    GitStatus,
    GitStatusAgain,
    Neighbour,
    Calls,
    CallsOfCompile,
    Stop,
}

/// The statistic that is compared.
#[derive(Clone, Copy)]
pub(crate) enum Statistic {
    Median,
    /// The 99th percentile.
    P99,
}

impl Statistic {
    /// Returns the suffix for tables; empty for the usual statistic.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Median => "",
            Self::P99 => ", p99",
        }
    }
}

/// The upper limit of a ratio, or of a time in milliseconds.
pub(crate) struct Target {
    pub(crate) of: &'static str,
    /// The contender to compare with; without one, the limit is a time in milliseconds.
    pub(crate) to: Option<&'static str>,
    pub(crate) at_most: f64,
    pub(crate) by: Statistic,
}

impl Target {
    /// Returns the name of what is measured.
    pub(crate) fn ratio(&self) -> String {
        let against = self.to.map_or(String::new(), |to| format!(" / {to}"));
        format!("{}{against}{}", self.of, self.by.suffix())
    }

    /// Returns the limit, with its unit.
    pub(crate) fn limit(&self) -> String {
        let unit = self.to.map_or(" ms", |_| "");
        format!("≤ {}{unit}", self.at_most)
    }
}

/// The program that one user measures, and the directories to do it in.
pub(crate) struct Place {
    /// `atoll`, or another program that is measured.
    pub(crate) program: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) workspace: PathBuf,
}

/// The number of files to compile: together they take three seconds or so, on a machine with
/// nothing else to do.
const SOURCE_FILES: usize = 8;
const FUNCTIONS_IN_A_FILE: usize = 20;
const SMALL_FILES: usize = 10_000;

const COMPILE: &str = "cc -O2 -o program *.c";
const CALLS: &str = include_str!("calls.c");
/// The variable by which tests leave defences out; see `without` in `atoll-sys`.
const LEFT_OUT: &str = "ATOLL_TEST_WITHOUT=seccomp,landlock";

/// The system's own Python, since one from a home is not seen inside.
const PYTHON: &str = "/usr/bin/python3";
const PYTHON_LOOP: &str =
    "x = 0\nfor i in range(9000000):\n    x = (x * 31 + i) % 1000003\nprint(x)\n";

impl Benchmark {
    pub(crate) const ALL: [Self; 11] = [
        Self::Start,
        Self::Spawner,
        Self::Compile,
        Self::Python,
        Self::Untar,
        Self::GitStatus,
        Self::GitStatusAgain,
        Self::Neighbour,
        Self::Calls,
        Self::CallsOfCompile,
        Self::Stop,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Spawner => "spawner",
            Self::Compile => "compile",
            Self::Python => "python",
            Self::Untar => "untar",
            Self::GitStatus => "git-status",
            Self::GitStatusAgain => "git-status-again",
            Self::Neighbour => "neighbour",
            Self::Calls => "calls",
            Self::CallsOfCompile => "calls-of-compile",
            Self::Stop => "stop",
        }
    }

    /// Returns the default number of rounds: enough for a steady median within a minute or two.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Start => 300,
            Self::Spawner => 1000,
            Self::Compile | Self::Python | Self::Untar | Self::CallsOfCompile => 11,
            Self::Calls => 21,
            Self::GitStatus | Self::GitStatusAgain => 51,
            // In each five runs, which go on for a moment.
            Self::Stop => 40,
            // Of 400 requests each.
            Self::Neighbour => 5,
        }
    }

    pub(crate) fn targets(self) -> Vec<Target> {
        let target = |of, to, at_most| Target {
            of,
            to: Some(to),
            at_most,
            by: Statistic::Median,
        };
        match self {
            Self::Start => vec![
                target("atoll", "bubblewrap", 1.5),
                target("atoll", "bubblewrap", 1.2),
                target("atoll", "runc", 0.4),
            ],
            Self::Spawner => vec![
                target("spawner", "plain", 3.2),
                target("spawner", "plain", 2.6),
                Target {
                    of: "spawner",
                    to: Some("plain"),
                    at_most: 8.0,
                    by: Statistic::P99,
                },
            ],
            Self::Compile | Self::Python => vec![target("inside", "outside", 1.05)],
            Self::Untar => vec![target("inside", "outside", 1.1)],
            Self::GitStatus | Self::GitStatusAgain => vec![target("inside", "outside", 1.5)],
            Self::Neighbour => neighbour::targets(),
            Self::Calls => vec![target("with", "without", 1.1)],
            Self::CallsOfCompile => vec![target("with", "without", 1.03)],
            Self::Stop => stop::targets(),
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Start => "a whole process that does nothing but `true`",
            Self::Spawner => {
                "sandboxes from a launcher that stays, a static program that does nothing"
            }
            Self::Compile => "eight C files compiled and linked with -O2",
            Self::Python => "a Python loop of nine million turns",
            Self::Untar => "10,000 small files unpacked into the workspace",
            Self::GitStatus => "the first `git status` on 10,000 tracked files",
            Self::Neighbour => {
                "a small request (a process started, an echo) in a sandbox, beside a bomb in another"
            }
            Self::Calls => {
                "a loop of system calls inside, with the filter and Landlock and without these"
            }
            Self::CallsOfCompile => {
                "eight C files compiled inside, with the filter and Landlock and without these"
            }
            Self::Stop => {
                "from before `atoll stop` is started until no process of the sandbox is there and the last byte has arrived outside; what is stopped forks and sends"
            }
            Self::GitStatusAgain => "a further `git status` on 10,000 tracked files",
        }
    }
}

impl Place {
    pub(crate) fn new(program: &Path, directory: &Path) -> Result<Self> {
        let workspace = directory.join("workspace");
        fs::create_dir(&workspace)?;
        Ok(Self {
            program: program.to_path_buf(),
            directory: directory.to_path_buf(),
            workspace,
        })
    }

    /// Returns the words of `atoll run --discard -- …`.
    pub(crate) fn atoll(&self, words: &[&str]) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        let before = [program.as_str(), "run", "--discard", "--"];
        before
            .iter()
            .chain(words)
            .map(|word| (*word).to_owned())
            .collect()
    }
}

/// Writes the files that the benchmark works on and names the contenders.
pub(crate) fn prepare(benchmark: Benchmark, place: &Place) -> Result<Prepared> {
    match benchmark {
        Benchmark::Start => peers::start(place),
        Benchmark::Spawner | Benchmark::Stop => bail!("it measures itself"),
        Benchmark::Compile => compile(place),
        Benchmark::Python => python(place),
        Benchmark::Untar => untar(place),
        Benchmark::GitStatus => git_status(place, ""),
        // The first one looks every file up anew in the sandbox's overlay, which
        // is as young as the sandbox; outside, the kernel knows them already.
        Benchmark::GitStatusAgain => git_status(place, STATUS),
        Benchmark::Neighbour => neighbour::prepare(place),
        Benchmark::Calls => {
            fs::write(place.workspace.join("calls.c"), CALLS)?;
            let mut compiler = Command::new("cc");
            let compiler = compiler.current_dir(&place.workspace);
            command::output(compiler.args(["-O1", "-static", "-o", "calls", "calls.c"]))?;
            prepare_script(place, "", "./calls")?;
            Ok(with_and_without(place))
        }
        Benchmark::CallsOfCompile => {
            c_files(place)?;
            prepare_script(place, "", COMPILE)?;
            Ok(with_and_without(place))
        }
    }
}

/// Prepares the same work inside with and without defences, by the program in which a test can
/// leave them out.
fn with_and_without(place: &Place) -> Prepared {
    let contender = |name, front: &[&str]| Contender {
        name,
        command: front
            .iter()
            .map(|&word| word.to_owned())
            .chain(place.atoll(&["sh", "work.sh"]))
            .collect(),
        directory: place.workspace.clone(),
        afterwards: None,
        times_itself: true,
    };
    Prepared {
        contenders: vec![
            contender("without", &["env", LEFT_OUT]),
            contender("with", &[]),
        ],
        absent: Vec::new(),
        directory: place.directory.clone(),
    }
}

fn compile(place: &Place) -> Result<Prepared> {
    c_files(place)?;
    inside_and_outside(place, COMPILE, Some("rm program"))
}

fn c_files(place: &Place) -> Result<()> {
    for number in 0..SOURCE_FILES {
        fs::write(
            place.workspace.join(format!("part{number}.c")),
            c_source(number),
        )?;
    }
    fs::write(
        place.workspace.join("main.c"),
        "int part0_0(int);int main(void){return part0_0(0)&0;}\n",
    )?;
    Ok(())
}

/// Returns functions in C that give an optimiser something to do, the same ones each time.
pub(crate) fn c_source(file: usize) -> String {
    let mut text = String::new();
    for number in 0..FUNCTIONS_IN_A_FILE {
        let name = format!("part{file}_{number}");
        text.push_str(&format!(
            "int {name}(int x){{int a[16];for(int i=0;i<16;i++)a[i]=x*i+{number};\
             for(int i=0;i<x;i++){{switch((a[i&15]+i)%7){{case 0:a[i&15]+={number};break;\
             case 1:a[(i+1)&15]^=x;break;case 2:a[i&15]*=3;break;case 3:a[i&7]-=i;break;\
             default:a[(i*{number})&15]+=a[i&3]/({number}+1);}}}}\
             int s=0;for(int i=0;i<16;i++)s+=a[i];return s;}}\n"
        ));
    }
    text
}

fn python(place: &Place) -> Result<Prepared> {
    fs::write(place.workspace.join("loop.py"), PYTHON_LOOP)?;
    if !Path::new(PYTHON).exists() {
        return Ok(absent(place, "the system has no Python"));
    }
    inside_and_outside(place, &format!("{PYTHON} -I loop.py"), None)
}

fn untar(place: &Place) -> Result<Prepared> {
    let files = place.directory.join("files");
    small_files(&files)?;
    let archive = place.workspace.join("archive.tar");
    let mut tar = Command::new("tar");
    command::output(
        tar.arg("-cf")
            .arg(archive)
            .arg("-C")
            .arg(&place.directory)
            .arg("files"),
    )?;
    inside_and_outside(place, "tar -xf archive.tar", Some("rm -r files"))
}

const STATUS: &str = "git status --porcelain";

fn git_status(place: &Place, before: &str) -> Result<Prepared> {
    if command::find("git").is_none() {
        return Ok(absent(place, "git is not installed"));
    }
    small_files(&place.workspace.join("files"))?;
    // Housekeeping in the background would disturb what is measured.
    let settings = [
        "user.name=bench",
        "user.email=bench@localhost",
        "gc.auto=0",
        "maintenance.auto=false",
    ];
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(&place.workspace);
        git.args(settings.iter().flat_map(|setting| ["-c", *setting]));
        command::output(git.args(words))
    };
    prepare_script(place, before, STATUS)?;
    git(&["init", "--quiet"])?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "--message", "files"])?;
    // Files as young as the index are read again each time: let them age.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    git(&["status"])?;
    Ok(contenders(place, None))
}

fn small_files(directory: &Path) -> Result<()> {
    for number in 0..SMALL_FILES {
        let folder = directory.join(format!("{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder)?;
        }
        fs::write(
            folder.join(format!("{number}.txt")),
            format!("file {number}\n").repeat(40),
        )?;
    }
    Ok(())
}

fn inside_and_outside(place: &Place, work: &str, afterwards: Option<&str>) -> Result<Prepared> {
    prepare_script(place, "", work)?;
    Ok(contenders(place, afterwards))
}

fn prepare_script(place: &Place, before: &str, work: &str) -> Result<()> {
    let script = format!(
        "set -e\n{before} >/dev/null\nstarted=$(date +%s%N)\n{work} >/dev/null\nended=$(date +%s%N)\n\
         echo \"{ELAPSED}$((ended - started))\"\n"
    );
    Ok(fs::write(place.workspace.join("work.sh"), script)?)
}

fn contenders(place: &Place, afterwards: Option<&str>) -> Prepared {
    let shell = |text: &str| vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()];
    let contender = |name, command, afterwards| Contender {
        name,
        command,
        directory: place.workspace.clone(),
        afterwards,
        times_itself: true,
    };
    Prepared {
        contenders: vec![
            contender(
                "outside",
                vec!["sh".to_owned(), "work.sh".to_owned()],
                afterwards.map(shell),
            ),
            // What was written inside is thrown away with the sandbox.
            contender("inside", place.atoll(&["sh", "work.sh"]), None),
        ],
        absent: Vec::new(),
        directory: place.directory.clone(),
    }
}

fn absent(place: &Place, reason: &str) -> Prepared {
    Prepared {
        contenders: Vec::new(),
        absent: vec![
            ("inside", reason.to_owned()),
            ("outside", reason.to_owned()),
        ],
        directory: place.directory.clone(),
    }
}
