//! Requests of one sandbox. Paths are absolute, or relative to the home.

use serde::{Deserialize, Serialize};

use super::asked::*;
use super::facts::*;
use super::request::requests;

requests! {
    /// A request of one sandbox.
    InAsk {
        /// Says if it is there. Needs no credential.
        Alive {} -> ();
        /// Measures it.
        Measure {} -> Measures;
        /// Lists what listens in it.
        ListPorts {} -> Vec<PortFacts>;
        /// Connects to one of its ports: bytes both ways follow the answer.
        OpenPort { port: u16 } -> OpenedPort;
    }
    with Life(LifeAsk), Process(ProcessAsk), File(FileAsk)
}

requests! {
    /// A request about the life of a sandbox, which its own token does not reach.
    LifeAsk {
        /// Describes it.
        GetSandbox {} -> SandboxFacts;
        /// Describes it with its access token. Its life is made longer, never shorter: so many
        /// seconds from now on.
        Connect { timeout_s: Option<u64> } -> CreatedFacts;
        /// Ends it.
        Kill {} -> ();
        /// Has its programs stand still, or ends them, and keeps its files until it goes on; its
        /// memory too, if asked to, where there is room. Answers whether that is kept.
        Pause { memory: bool } -> bool;
        /// Copies its files for others to begin with.
        Snapshot { name: Option<String> } -> MadeSnapshot;
        /// Makes others that begin with its files.
        Fork { count: usize, timeout_s: Option<u64> } -> Forks;
        /// Ends its programs and goes on with the files of a snapshot, by its id or name.
        RollBack { snapshot: String } -> CreatedFacts;
        /// Sets its life from now on; 0 ends it.
        SetTimeout { timeout_s: u64, extends: bool } -> ();
        /// Makes a link to one of its ports.
        LinkPort { port: u16, lasts_s: u64 } -> Link;
        /// Puts another network in the place of the one it has.
        SetNetwork(NetworkAsk) -> ();
        /// Changes what its programs may use, while they run.
        SetSizes(SizesAsk) -> ();
        /// Decides what waits for an approver, by its number in the sandbox.
        Decide { approval: u32, decision: DecideAsk } -> ();
    }
}

requests! {
    /// A request about programs in a sandbox.
    ProcessAsk {
        /// Starts a program. Frames of its output follow the answer.
        Start(Box<StartAsk>) -> StartedFacts, then End;
        /// Starts a program whose output waits a while for whoever follows it.
        Launch(Box<StartAsk>) -> StartedFacts;
        /// Follows a program's output from an offset on; only what is new if `None`.
        Attach { process: Selector, from: Option<u64> } -> StartedFacts, then End;
        /// Lists the running programs.
        ListProcesses {} -> Vec<ProcessFacts>;
        /// Writes the frames that follow to a program's input; answers at their end.
        Input { process: Selector } -> ();
        /// Closes a program's input.
        CloseInput { process: Selector } -> ();
        /// Sends a program a signal.
        Signal { process: Selector, number: u8 } -> ();
        /// Sets the size of a program's terminal.
        Resize { process: Selector, terminal: TerminalSize } -> ();
    }
}

requests! {
    /// A request about files in a sandbox.
    FileAsk {
        /// Describes a file.
        Stat { path: String } -> EntryFacts;
        /// Lists a directory, so many levels deep.
        ListDirectory { path: String, depth: u32 } -> Vec<EntryFacts>;
        /// Makes a directory.
        MakeDirectory { path: String } -> EntryFacts;
        /// Moves a file.
        Move { from: String, to: String } -> EntryFacts;
        /// Removes a file or directory.
        Remove { path: String } -> ();
        /// Opens a file to read it, or a part. Its descriptor follows the answer.
        Read { path: String, range: Option<ByteRange> } -> FileFacts;
        /// Opens a file to write it from empty. Its descriptor follows the answer; the description
        /// comes once the end of the frames is told.
        Write { path: String } -> (), then EntryFacts;
        /// Tells of changes in a directory until the connection is closed.
        Watch { path: String, recursive: bool } -> (), then Vec<ChangeFacts>;
        /// Notes changes in a directory; answers the name of the watcher.
        MakeWatcher { path: String, recursive: bool } -> String;
        /// Takes what a watcher has noted.
        ReadWatcher { watcher: String } -> Vec<ChangeFacts>;
        /// Ends a watcher.
        RemoveWatcher { watcher: String } -> ();
    }
}

/// A part of a file, as of RFC 9110, 14.1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteRange {
    /// From a byte on, to another one if given, both included.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

/// The name of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// By the number of its process in the sandbox.
    Pid(u32),
    /// By the name that it was started with.
    Tag(String),
}
