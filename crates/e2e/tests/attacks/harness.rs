//! The trial of one attack: inside the ordinary program, where it has to fail, and then where it
//! has to succeed, or it would test nothing.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use e2e::{Avoidable, Invocation, Outcome, World, is_root, program_exists};

/// The variable by which a build for tests learns which defences to leave out.
pub const SWITCH: &str = "ATOLL_TEST_WITHOUT";
/// The variable that names that build.
pub const WEAKENED: &str = "ATOLL_BIN_WITHOUT";
/// The longest time of an attempt on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Attacks on views that only the owner of a file can make.
const OWNERS_ALONE: [&str; 2] = ["view-made-old", "view-opened-up"];

/// The technique of an attack, by MITRE ATLAS.
#[derive(Debug, Clone, Copy)]
pub enum Technique {
    /// AML.T0105
    EscapeToHost,
    /// AML.T0025
    Exfiltration,
    /// AML.T0037
    DataFromLocalSystem,
    /// AML.T0055
    UnsecuredCredentials,
    /// AML.T0081
    ModifyAgentConfiguration,
    /// AML.T0101
    DataDestruction,
    /// AML.T0050
    CommandInterpreter,
}

impl Technique {
    fn id(self) -> &'static str {
        match self {
            Self::EscapeToHost => "AML.T0105",
            Self::Exfiltration => "AML.T0025",
            Self::DataFromLocalSystem => "AML.T0037",
            Self::UnsecuredCredentials => "AML.T0055",
            Self::ModifyAgentConfiguration => "AML.T0081",
            Self::DataDestruction => "AML.T0101",
            Self::CommandInterpreter => "AML.T0050",
        }
    }
}

/// The place where the same attack has to succeed.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    /// In a sandbox with these defences left out and no others.
    Without(&'static str),
    /// Outside: the shape of the sandbox stops it, and there is nothing that could be left out.
    Outside,
    /// Outside, as root of the host. An ordinary user cannot do it anywhere.
    OutsideAsRoot,
    /// Outside, as root of namespaces of its own.
    InNamespaces,
}

/// Returns, from outside and after the attempt, whether the target was taken.
pub type Judge = Box<dyn FnMut(&World, &Outcome) -> bool>;

/// The target of an attack, watched from outside.
pub struct Prey {
    /// The values of `{name}` in scripts, options and fronts.
    pub names: Vec<(&'static str, String)>,
    /// The judge of whether the attack got it.
    pub taken: Judge,
}

/// One attack. The script is the shell's; `./attack` is the attacking program.
pub struct Attack {
    /// Its name in the specification.
    pub id: &'static str,
    technique: Technique,
    script: &'static str,
    prey: fn(&World) -> Prey,
    control: Control,
    options: &'static [&'static str],
    front: &'static str,
    possible: &'static str,
    on_terminal: bool,
    told: Option<Told>,
}

/// The ledger's record of an attack: the kind of violation, and the technique.
#[derive(Debug, Clone, Copy)]
struct Told {
    wall: &'static str,
    atlas: &'static str,
    in_a_fence: bool,
}

impl Attack {
    /// Returns an attack with default options.
    pub const fn new(
        id: &'static str,
        technique: Technique,
        script: &'static str,
        prey: fn(&World) -> Prey,
        control: Control,
    ) -> Self {
        Self {
            id,
            technique,
            script,
            prey,
            control,
            options: &["--discard"],
            front: "exec",
            possible: "",
            on_terminal: false,
            told: None,
        }
    }

    /// Adds these options of `atoll run`.
    pub const fn options(mut self, options: &'static [&'static str]) -> Self {
        self.options = options;
        self
    }

    /// Starts it from this part of a shell script, which ends before the program.
    pub const fn front(mut self, front: &'static str) -> Self {
        self.front = front;
        self
    }

    /// Tries it only where this script succeeds on the host: a kernel without a feature cannot be
    /// attacked through it.
    pub const fn if_host(mut self, script: &'static str) -> Self {
        self.possible = script;
        self
    }

    /// Gives it a terminal.
    pub const fn on_terminal(mut self) -> Self {
        self.on_terminal = true;
        self
    }

    /// Expects a violation, which the filter reports, also in a fence.
    pub const fn told(mut self, wall: &'static str, atlas: &'static str) -> Self {
        self.told = Some(Told {
            wall,
            atlas,
            in_a_fence: true,
        });
        self
    }

    /// As [`Attack::told`], but not in a fence: process 1 is the host's there, and the messages of
    /// a fence at its start read like prey on a terminal.
    pub const fn told_but_in_a_fence(self, wall: &'static str, atlas: &'static str) -> Self {
        let told = Some(Told {
            wall,
            atlas,
            in_a_fence: false,
        });
        Self { told, ..self }
    }

    fn attempt(&self, test: &str, place: Place) -> (bool, Outcome) {
        let world = world(test);
        let place = match place {
            // Made before anything is watched.
            Place::Unmapped(program, without) => {
                Place::Inside(world.without_user_namespaces(&program), without)
            }
            Place::Inside(..) | Place::Fenced | Place::Outside | Place::InNamespaces => place,
        };
        let mut prey = (self.prey)(&world);
        let filled = |text: &str| {
            let fill = |text: String, (name, value): &(&str, String)| {
                text.replace(&format!("{{{name}}}"), value)
            };
            prey.names.iter().fold(text.to_owned(), fill)
        };
        let options: Vec<String> = self.options.iter().map(|one| filled(one)).collect();
        let inside = format!(
            "{} \"$ATOLL\" run {} -- sh -c \"$SCRIPT\"",
            filled(self.front),
            options.join(" ")
        );
        let outside = format!("{} sh -c \"$SCRIPT\"", filled(self.front));
        let invocation = match place {
            Place::Inside(ref program, without) | Place::Unmapped(ref program, without) => world
                .host_shell(&inside)
                .env("ATOLL", program)
                .env(SWITCH, without),
            Place::Fenced => world
                .host_shell(&inside)
                .env("ATOLL", program())
                .without_namespaces(),
            Place::Outside => world.host_shell(&outside),
            Place::InNamespaces => world.mount_shell(&outside),
        };
        let invocation = invocation.env("SCRIPT", filled(self.script)).within(SOON);
        let outcome = self.carry_out(invocation);
        if matches!(place, Place::Inside(..) | Place::Fenced) {
            let failed = outcome.code() == 125 && outcome.err().contains("error:");
            assert!(!failed, "{}: nothing started: {outcome}", self.id);
        }
        let is_ordinary = match &place {
            Place::Inside(used, _) | Place::Unmapped(used, _) => *used == program(),
            Place::Fenced => true,
            Place::Outside | Place::InNamespaces => false,
        };
        if let Some(told) = self.told.filter(|_| is_ordinary) {
            let ledger = fs::read_to_string(world.segment()).unwrap();
            let names = [("wall", told.wall), ("atlas", told.atlas)];
            let is_told = |line: &str| {
                line.contains("\"type\":\"attempt.seen\"")
                    && names
                        .iter()
                        .all(|(name, value)| line.contains(&format!("\"{name}\":\"{value}\"")))
            };
            assert!(
                ledger.lines().any(is_told),
                "{}: {told:?} is not told: {outcome}",
                self.id
            );
        }
        ((prey.taken)(&world, &outcome), outcome)
    }

    fn carry_out(&self, invocation: Invocation) -> Outcome {
        if self.on_terminal {
            invocation.on_terminal(24, 80).wait()
        } else {
            invocation.run()
        }
    }

    /// Returns whether it could succeed anywhere on this host.
    fn is_possible(&self, test: &str) -> bool {
        let alone = !matches!(self.control, Control::OutsideAsRoot) || is_root();
        alone
            && (self.possible.is_empty() || world(test).host_shell(self.possible).run().code() == 0)
    }

    fn check(&self, test: &str, weakened: &Path) {
        let (id, technique) = (self.id, self.technique.id());
        if !self.is_possible(test) {
            let reason = "nobody could do that on this host, or this user could not";
            world(test).skip_row(id, reason, Avoidable::No);
            return;
        }
        let (place, named) = match self.control {
            Control::Without(defences) => {
                let place = Place::Inside(weakened.to_path_buf(), defences);
                (place, format!("without {defences}"))
            }
            Control::Outside | Control::OutsideAsRoot => (Place::Outside, "outside".to_owned()),
            Control::InNamespaces => (Place::InNamespaces, "outside, in namespaces".to_owned()),
        };
        // The ordinary program is asked to leave the same out, and does not.
        let switched = match self.control {
            Control::Without(defences) => defences,
            Control::Outside | Control::OutsideAsRoot | Control::InNamespaces => "",
        };
        let (taken, outcome) = self.attempt(test, Place::Inside(program(), switched));
        assert!(!taken, "{id} GOT THROUGH: {outcome}");
        if self.told.is_some_and(|told| told.in_a_fence) && !is_root() {
            let (taken, outcome) = self.attempt(test, Place::Fenced);
            assert!(!taken, "{id} GOT THROUGH A FENCE: {outcome}");
        }
        let (taken, outcome) = self.attempt(test, place);
        assert!(
            taken,
            "{id} does not succeed {named}, so it tests nothing: {outcome}"
        );
        println!("{id} [{technique}]: held; succeeds {named}");
        note_row(id);
        if is_root() {
            self.check_unmapped(test, weakened);
        }
    }

    /// Repeats the trial where root can make no user namespaces.
    fn check_unmapped(&self, test: &str, weakened: &Path) {
        let id = self.id;
        if self.options.contains(&"--live") {
            // No run is live there, which `unmapped.rs` sees.
            return;
        }
        let (taken, outcome) = self.attempt(test, Place::Unmapped(program(), ""));
        assert!(
            !taken,
            "{id} GOT THROUGH without user namespaces: {outcome}"
        );
        let defences = match self.control {
            // The workspace is a copy there, and no layer.
            // What takes an owner fails there already for the number inside.
            Control::Without(_) if OWNERS_ALONE.contains(&id) => return,
            Control::Without(defences) if !defences.contains("layer") => defences,
            Control::Without(_)
            | Control::Outside
            | Control::OutsideAsRoot
            | Control::InNamespaces => return,
        };
        let place = Place::Unmapped(weakened.to_path_buf(), defences);
        let (taken, outcome) = self.attempt(test, place);
        assert!(
            taken,
            "{id} does not succeed without {defences} and user namespaces: {outcome}"
        );
    }
}

#[derive(Clone)]
enum Place {
    Inside(PathBuf, &'static str),
    /// In a sandbox, where root can make no user namespaces.
    Unmapped(PathBuf, &'static str),
    /// In a fence, without namespaces.
    Fenced,
    Outside,
    InNamespaces,
}

/// Tries a whole table of attacks, whatever the results of the first ones.
pub fn try_all(test: &str, attacks: &[Attack]) {
    let Some(weakened) = weakened(test) else {
        return;
    };
    let failed: Vec<String> = attacks
        .iter()
        .filter_map(|attack| {
            let tried = std::panic::AssertUnwindSafe(|| attack.check(test, &weakened));
            let broken = std::panic::catch_unwind(tried).err()?;
            let told = broken.downcast_ref::<String>().cloned();
            Some(told.unwrap_or_else(|| attack.id.to_owned()))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Returns the build that can leave defences out, unless the test has to be skipped.
pub fn weakened(test: &str) -> Option<PathBuf> {
    if attack_program().is_none() {
        World::new(test).skip("there is no C compiler", Avoidable::Yes);
        return None;
    }
    let named = std::env::var_os(WEAKENED).map(PathBuf::from);
    if named.is_none() {
        World::new(test).skip(&format!("{WEAKENED} names no program"), Avoidable::Yes);
    }
    named
}

/// Returns a world with the attacking program in its workspace.
pub fn world(test: &str) -> World {
    let world = World::new(test);
    // By a process of its own: a file that this one has open for writing is inherited by
    // whatever another thread starts just then, and cannot be executed meanwhile.
    let mut copying = Command::new("sh")
        .args(["-c", "cat > attack && chmod 755 attack"])
        .current_dir(world.workspace())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = copying.stdin.take().unwrap();
    input.write_all(attack_program().unwrap()).unwrap();
    drop(input);
    assert!(copying.wait().unwrap().success());
    world
}

/// Returns the attacking program, compiled once.
pub fn attack_program() -> Option<&'static [u8]> {
    static COMPILED: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    COMPILED.get_or_init(compile).as_deref()
}

fn compile() -> Option<Vec<u8>> {
    if !program_exists("cc") {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("attack");
    // Static: it runs wherever it is, with whatever a boundary lets it map.
    let mut compiler = Command::new("cc")
        .args(["-O1", "-static", "-x", "c", "-", "-o"])
        .arg(&target)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(include_bytes!("attack.c")).unwrap();
    drop(input);
    assert!(compiler.wait().unwrap().success(), "attack.c");
    Some(fs::read(target).unwrap())
}

/// Returns the ordinary program.
pub fn program() -> PathBuf {
    let named: OsString = std::env::var_os("ATOLL_BIN").unwrap();
    named.into()
}

/// Reports that a row of a table was carried out.
pub fn note_row(id: &str) {
    if let Some(file) = std::env::var_os("ATOLL_RAN_FILE") {
        let mut options = fs::File::options();
        let mut file = options.append(true).create(true).open(file).unwrap();
        // One write, because other tests write to the same file.
        file.write_all(format!("{id}\n").as_bytes()).unwrap();
    }
}
