//! The walls of a sandbox, in words for people.

/// Returns what a program tries that goes against a wall, by the wall's name in the ledger.
pub fn aim(wall: &str) -> &'static str {
    match wall {
        "mounts" => "change the file tree",
        "namespaces" => "create a namespace",
        "keys" => "use the kernel's keyrings",
        "kernel-programs" => "load a program into the kernel",
        "page-faults" => "handle page faults",
        "machine" => "change the machine",
        "handles" => "open files by handle",
        "watching" => "watch a file system",
        "descriptors" => "take descriptors of other processes",
        "debugging" => "debug other processes",
        "sockets" => "open a socket to the kernel or a device",
        "terminal" => "type into the terminal",
        "first-process" => "change the sandbox's first process",
        "services" => "connect to services of the host",
        "processes" => "signal processes outside",
        _ => "leave the sandbox",
    }
}

/// Returns what stands against such a try.
pub fn guard(wall: &str) -> &'static str {
    match wall {
        "mounts" => "mount isolation",
        "namespaces" => "namespace isolation",
        "keys" => "keyring isolation",
        "kernel-programs" => "the ban on kernel programs",
        "page-faults" => "the ban on page fault handlers",
        "machine" => "machine isolation",
        "handles" => "the ban on file handles",
        "watching" => "the ban on watching file systems",
        "descriptors" => "descriptor isolation",
        "debugging" => "the ban on debugging",
        "sockets" => "socket isolation",
        "terminal" => "terminal isolation",
        "first-process" => "the guard of the first process",
        "services" => "service isolation",
        "processes" => "process isolation",
        _ => "the sandbox",
    }
}
