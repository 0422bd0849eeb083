use std::fmt;

/// A call that hardly any program makes but to get out of its sandbox, as often as it
/// was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What it was about.
    pub wall: Wall,
    /// The system call.
    pub call: &'static str,
    /// The process that made it first, as it is numbered inside.
    pub pid: u32,
    /// How often. Bounded by no more than its type: it is told from inside.
    pub count: u64,
}

/// What an attempt is about: a wall of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wall {
    /// The file tree is what the boundary made of it.
    Mounts,
    /// Namespaces of its own, or of others. A program that makes a sandbox for a part of
    /// itself begins like that too.
    Namespaces,
    /// The kernel's keyrings.
    Keys,
    /// Programs and probes in the kernel.
    KernelPrograms,
    /// The handling of page faults, which holds the kernel up.
    PageFaults,
    /// The machine itself: modules, another kernel, clocks, accounting, ports.
    Machine,
    /// Files by handle, past every path.
    Handles,
    /// What happens on a whole file system.
    Watching,
    /// Other processes' descriptors.
    Descriptors,
    /// Other processes' memory, where debugging is refused.
    Debugging,
    /// Sockets to devices, to the kernel's inside, to whoever runs the machine.
    Sockets,
    /// Typing into the terminal.
    Terminal,
    /// Limits and priority of the sandbox's first process, which watches.
    FirstProcess,
    /// In a fence: services of the host, by their Unix sockets.
    Services,
    /// In a fence: processes outside, by signals.
    Processes,
}

/// A technique of MITRE ATLAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Technique {
    /// As `AML.T0105`.
    pub id: &'static str,
    /// What it is called there.
    pub name: &'static str,
}

/// The version of the data of ATLAS that the techniques are taken from: the first with
/// all of them.
pub const ATLAS_VERSION: &str = "5.4.0";

const ESCAPE: Technique = Technique {
    id: "AML.T0105",
    name: "Escape to Host",
};
/// "From OS caches, application memory, or other sources."
const CREDENTIALS: Technique = Technique {
    id: "AML.T0090",
    name: "OS Credential Dumping",
};
const LOCAL_DATA: Technique = Technique {
    id: "AML.T0037",
    name: "Data from Local System",
};

use Wall::{
    Debugging, Descriptors, FirstProcess, Handles, KernelPrograms, Keys, Machine, Mounts,
    Namespaces, PageFaults, Processes, Services, Sockets, Terminal, Watching,
};

/// Every call that is told of. What a sandbox tells besides is not believed.
pub const TOLD_CALLS: &[(&str, Wall)] = &[
    ("mount", Mounts),
    ("umount2", Mounts),
    ("pivot_root", Mounts),
    ("chroot", Mounts),
    ("open_tree", Mounts),
    ("move_mount", Mounts),
    ("fsopen", Mounts),
    ("fsconfig", Mounts),
    ("fsmount", Mounts),
    ("fspick", Mounts),
    ("mount_setattr", Mounts),
    ("swapon", Mounts),
    ("swapoff", Mounts),
    ("setns", Namespaces),
    ("unshare", Namespaces),
    ("clone", Namespaces),
    ("keyctl", Keys),
    ("add_key", Keys),
    ("request_key", Keys),
    ("bpf", KernelPrograms),
    ("perf_event_open", KernelPrograms),
    ("userfaultfd", PageFaults),
    ("init_module", Machine),
    ("finit_module", Machine),
    ("delete_module", Machine),
    ("kexec_load", Machine),
    ("kexec_file_load", Machine),
    ("reboot", Machine),
    ("settimeofday", Machine),
    ("clock_settime", Machine),
    ("acct", Machine),
    ("quotactl", Machine),
    ("quotactl_fd", Machine),
    ("iopl", Machine),
    ("ioperm", Machine),
    ("open_by_handle_at", Handles),
    ("fanotify_init", Watching),
    ("fanotify_mark", Watching),
    ("pidfd_getfd", Descriptors),
    ("ptrace", Debugging),
    ("process_vm_readv", Debugging),
    ("process_vm_writev", Debugging),
    ("socket", Sockets),
    ("ioctl", Terminal),
    ("prlimit64", FirstProcess),
    ("sched_setaffinity", FirstProcess),
    ("sched_setscheduler", FirstProcess),
    ("sched_setparam", FirstProcess),
    ("sched_setattr", FirstProcess),
    ("setpriority", FirstProcess),
    ("ioprio_set", FirstProcess),
    ("connect", Services),
    ("kill", Processes),
    ("tkill", Processes),
    ("tgkill", Processes),
    ("rt_sigqueueinfo", Processes),
    ("rt_tgsigqueueinfo", Processes),
];

impl Attempt {
    /// An attempt from what a sandbox tells; `None` for a call that none can be made by.
    #[must_use]
    pub fn told(call: &[u8], pid: u32, count: u64) -> Option<Self> {
        let mut known = TOLD_CALLS.iter();
        let (call, wall) = *known.find(|(name, _)| name.as_bytes() == call)?;
        Some(Self {
            wall,
            call,
            pid,
            count,
        })
    }
}

impl Wall {
    /// What somebody is after who goes against it.
    #[must_use]
    pub fn technique(self) -> Technique {
        match self {
            Keys | Debugging => CREDENTIALS,
            Watching => LOCAL_DATA,
            Mounts | Namespaces | KernelPrograms | PageFaults | Machine | Handles | Descriptors
            | Sockets | Terminal | FirstProcess | Services | Processes => ESCAPE,
        }
    }

    /// Its name in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mounts => "mounts",
            Namespaces => "namespaces",
            Keys => "keys",
            KernelPrograms => "kernel-programs",
            PageFaults => "page-faults",
            Machine => "machine",
            Handles => "handles",
            Watching => "watching",
            Descriptors => "descriptors",
            Debugging => "debugging",
            Sockets => "sockets",
            Terminal => "terminal",
            FirstProcess => "first-process",
            Services => "services",
            Processes => "processes",
        }
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
