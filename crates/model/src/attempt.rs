use std::fmt;

/// A violation: a system call that hardly any program makes except to escape its sandbox, with the
/// number of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The wall that it went against.
    pub wall: ViolationKind,
    /// The system call.
    pub call: &'static str,
    /// The process that made it first, by its pid in the sandbox.
    pub pid: u32,
    /// The number of refusals, bounded by its type alone: the sandbox reports it.
    pub count: u64,
}

/// The wall of the sandbox that a violation goes against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// The file tree as the boundary made it.
    Mounts,
    /// Creating namespaces, or joining those of others. A program that sandboxes a part of itself
    /// begins like that too.
    Namespaces,
    /// The kernel's keyrings.
    Keys,
    /// Programs and probes in the kernel (bpf(2), perf_event_open(2)).
    KernelPrograms,
    /// The handling of page faults (userfaultfd(2)), which can stall the kernel.
    PageFaults,
    /// The machine itself: kernel modules, another kernel (kexec), clocks, accounting, I/O ports.
    Machine,
    /// Files opened by handle, which bypasses every path.
    Handles,
    /// Events of a whole file system (fanotify(7)).
    Watching,
    /// Other processes' descriptors.
    Descriptors,
    /// Other processes' memory, in boundaries that refuse debugging.
    Debugging,
    /// Sockets to devices, to kernel internals, or to the machine's hypervisor.
    Sockets,
    /// Input pushed into the terminal.
    Terminal,
    /// Limits and priority of the sandbox's first process, its supervisor.
    FirstProcess,
    /// In a fence: services of the host, through their Unix sockets.
    Services,
    /// In a fence: processes outside the sandbox, through signals.
    Processes,
}

/// A technique of MITRE ATLAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Technique {
    /// Its id, as `AML.T0105`.
    pub id: &'static str,
    /// Its name in ATLAS.
    pub name: &'static str,
}

/// The version of the ATLAS data that the techniques are taken from: the first with all of them.
pub const ATLAS_VERSION: &str = "5.4.0";

const ESCAPE: Technique = Technique {
    id: "AML.T0105",
    name: "Escape to Host",
};
/// The technique of reading credentials "from OS caches, application memory, or other sources".
const CREDENTIALS: Technique = Technique {
    id: "AML.T0090",
    name: "OS Credential Dumping",
};
const LOCAL_DATA: Technique = Technique {
    id: "AML.T0037",
    name: "Data from Local System",
};

use ViolationKind::{
    Debugging, Descriptors, FirstProcess, Handles, KernelPrograms, Keys, Machine, Mounts,
    Namespaces, PageFaults, Processes, Services, Sockets, Terminal, Watching,
};

/// Every call that is reported as a violation, with its wall. Any other call that a sandbox reports
/// is ignored.
pub const TOLD_CALLS: &[(&str, ViolationKind)] = &[
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

/// The calls among these that ordinary tools make to find out what they may: sandboxes that agents
/// and browsers make for a part of themselves, watchers of files, profilers.
const PROBES: &[&str] = &["clone", "unshare", "fanotify_init", "perf_event_open"];

/// Returns whether ordinary tools make this call to find out whether they may: that alone is a
/// denial, and no reason for suspicion.
#[must_use]
pub fn is_probe(call: &str) -> bool {
    PROBES.contains(&call)
}

impl Attempt {
    /// Returns the violation that a sandbox reports; `None` for a call that is not in
    /// [`TOLD_CALLS`].
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

impl ViolationKind {
    /// Returns the ATLAS technique of a program that goes against this wall.
    #[must_use]
    pub fn technique(self) -> Technique {
        match self {
            Keys | Debugging => CREDENTIALS,
            Watching => LOCAL_DATA,
            Mounts | Namespaces | KernelPrograms | PageFaults | Machine | Handles | Descriptors
            | Sockets | Terminal | FirstProcess | Services | Processes => ESCAPE,
        }
    }

    /// Returns its name in the ledger.
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

impl fmt::Display for ViolationKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
