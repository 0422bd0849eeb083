//! The kernel's own files, devices, mounts and namespaces.

use super::harness::{Attack, Control, Technique, try_all};
use super::prey;

use Control::{InNamespaces, Outside, OutsideAsRoot, Without};
use Technique::{DataFromLocalSystem, EscapeToHost};

/// Returns an attack on a file of /proc that everyone can read outside.
const fn masked(id: &'static str, script: &'static str) -> Attack {
    Attack::new(
        id,
        DataFromLocalSystem,
        script,
        prey::any_output,
        Without("proc-masks"),
    )
    .if_host(script)
}

/// Returns an attack that only root of the host can make, which may not do it in the sandbox
/// either. It writes only values that are there already, or opens without writing.
const fn of_root(id: &'static str, script: &'static str) -> Attack {
    Attack::new(
        id,
        EscapeToHost,
        script,
        prey::what_it_prints,
        OutsideAsRoot,
    )
    .if_host(script)
}

const FILES: &[Attack] = &[
    masked("proc-cmdline", "head -c 16 /proc/cmdline | grep ."),
    masked("proc-kallsyms", "head -n 1 /proc/kallsyms | grep ."),
    masked(
        "proc-config",
        "head -c 2 /proc/config.gz | od -An -tx1 | grep .",
    ),
    of_root(
        "proc-core-pattern",
        "f=/proc/sys/kernel/core_pattern; v=$(cat $f); printf %s \"$v\" > $f && echo taken",
    ),
    of_root(
        "proc-modprobe",
        "f=/proc/sys/kernel/modprobe; v=$(cat $f); printf %s \"$v\" > $f && echo taken",
    ),
    of_root(
        "proc-kernel-knob",
        "f=/proc/sys/kernel/pid_max; v=$(cat $f); echo $v > $f && echo taken",
    ),
    of_root(
        "proc-memory-knob",
        "f=/proc/sys/vm/swappiness; v=$(cat $f); echo $v > $f && echo taken",
    ),
    of_root("proc-sysrq", ": >> /proc/sysrq-trigger && echo taken"),
    of_root(
        "proc-irq",
        ": >> /proc/irq/default_smp_affinity && echo taken",
    ),
    of_root(
        "proc-kcore",
        "head -c 4 /proc/kcore | grep -q ELF && echo taken",
    ),
    of_root(
        "proc-binfmt",
        ": >> /proc/sys/fs/binfmt_misc/register && echo taken",
    ),
    of_root(
        "cgroup-release-agent",
        "for f in $(find /sys/fs/cgroup /proc /tmp -maxdepth 3 -name release_agent 2>/dev/null); do : >> $f && echo taken; done; \
         test -n \"$f\"",
    ),
    of_root(
        "sysfs-uevent-helper",
        ": >> /sys/kernel/uevent_helper && echo taken",
    ),
    of_root(
        "device-of-a-disk",
        "for d in /dev/vd? /dev/sd? /dev/nvme?n? /dev/loop?; do head -c 1 $d > /dev/null && echo taken; done; true",
    ),
    of_root(
        "device-of-the-memory",
        "head -c 1 /dev/mem > /dev/null && echo taken",
    ),
    of_root(
        "device-of-the-log",
        "dd if=/dev/kmsg bs=8192 count=1 iflag=nonblock of=/dev/null && echo taken",
    ),
    of_root(
        "device-made",
        "d=$(mktemp -d) && mknod $d/zero c 1 5 && head -c 1 $d/zero > /dev/null && echo taken; rm -r $d",
    ),
    Attack::new(
        "sysfs-listed",
        DataFromLocalSystem,
        "ls /sys/kernel /sys/class /sys/fs/cgroup 2>/dev/null",
        prey::any_output,
        Outside,
    ),
];

const MOUNTS: &[Attack] = &[
    Attack::new(
        "mount-in-memory",
        EscapeToHost,
        "./attack mount mount tmpfs /tmp",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("mounts", "AML.T0105"),
    Attack::new(
        "mount-by-the-new-calls",
        EscapeToHost,
        "./attack mount fsopen tmpfs /tmp",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("mounts", "AML.T0105"),
    Attack::new(
        "mount-over-itself",
        EscapeToHost,
        "mount --rbind / /tmp && echo taken",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("mounts", "AML.T0105"),
    Attack::new(
        "mount-made-writable",
        EscapeToHost,
        "mount -o remount,bind,rw /usr && echo taken; mount --bind /usr /usr && echo taken",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("mounts", "AML.T0105"),
    Attack::new(
        "unmounted-cover",
        EscapeToHost,
        "mount -t tmpfs none /mnt 2>/dev/null; for place in /proc/sys /proc/kcore /tmp /mnt; do \
         umount $place 2>/dev/null && echo taken; umount -l $place 2>/dev/null && echo taken; done",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("mounts", "AML.T0105"),
    Attack::new(
        "another-root",
        EscapeToHost,
        "chroot / true && echo taken",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("mounts", "AML.T0105"),
    Attack::new(
        "user-namespace",
        EscapeToHost,
        "./attack new unshare 0x10000000; ./attack new clone 0x10000000; ./attack new clone3 0x10000000",
        prey::what_it_prints,
        Outside,
    )
    .told("namespaces", "AML.T0105")
    .if_host("./attack new unshare 0x10000000"),
    Attack::new(
        "user-namespace-with-high-bits",
        EscapeToHost,
        "./attack new unshare 0x10020000; ./attack new clone3 0x10020000; ./attack new clone 0x30000000",
        prey::what_it_prints,
        Outside,
    )
    .told("namespaces", "AML.T0105")
    .if_host("./attack new unshare 0x10020000"),
    Attack::new(
        "other-namespaces",
        EscapeToHost,
        "for kind in 0x20000 0x40000000 0x8000000 0x4000000 0x20000000 0x2000000; do \
         for way in unshare clone clone3; do ./attack new $way $kind; done; done",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("namespaces", "AML.T0105"),
    Attack::new(
        "namespace-joined",
        EscapeToHost,
        "for kind in mnt net ipc uts; do ./attack join /proc/1/ns/$kind; ./attack join /proc/self/ns/$kind; done",
        prey::what_it_prints,
        InNamespaces,
    )
    .told("namespaces", "AML.T0105"),
];

/// Returns an attack by a call that the kernel permits to anybody, and the filter to nobody.
const fn call(id: &'static str, script: &'static str) -> Attack {
    Attack::new(
        id,
        EscapeToHost,
        script,
        prey::what_it_prints,
        Without("seccomp"),
    )
    .if_host(script)
}

const CALLS: &[Attack] = &[
    call("call-io-uring", "./attack call io_uring"),
    call("call-userfaultfd", "./attack call userfaultfd").told("page-faults", "AML.T0105"),
    call("call-memfd-secret", "./attack call memfd_secret"),
    call("call-fanotify", "./attack call fanotify").told("watching", "AML.T0037"),
    call("call-move-pages", "./attack call move_pages"),
    call("call-io-setup", "./attack call io_setup"),
    call("call-personality", "./attack call personality"),
    call("call-keyctl", "./attack call keyctl").told("keys", "AML.T0090"),
    call("call-add-key", "./attack call add_key").told("keys", "AML.T0090"),
    call("call-quotactl", "./attack call quotactl").told("machine", "AML.T0105"),
    of_root("call-syslog", "./attack call syslog"),
    call("call-handle", "./attack call handle"),
    call("call-perf", "./attack call perf").told("kernel-programs", "AML.T0105"),
    of_root("call-bpf", "./attack call bpf").told("kernel-programs", "AML.T0105"),
];

#[test]
fn calls_that_open_doors_are_refused() {
    try_all("calls_that_open_doors_are_refused", CALLS);
}

#[test]
fn files_of_the_kernel_are_closed() {
    try_all("files_of_the_kernel_are_closed", FILES);
}

#[test]
fn mounts_and_namespaces_stay_as_they_are() {
    try_all("mounts_and_namespaces_stay_as_they_are", MOUNTS);
}
