//! Ways out by sockets and pipes, and rarely used families of sockets.

use super::harness::{Attack, Control, Technique, try_all};
use super::prey;

use Control::{Outside, OutsideAsRoot, Without};
use Technique::{EscapeToHost, Exfiltration, UnsecuredCredentials};

const SHOWN: &[&str] = &["--discard", "--ro", "{shared}"];
const LIVE: &[&str] = &["--live"];

const UNIX: &[Attack] = &[
    Attack::new(
        "unix-stream-of-a-view",
        EscapeToHost,
        "./attack unix 1 {socket} evil",
        prey::shared_listener,
        Without("overlay"),
    )
    .options(SHOWN),
    Attack::new(
        "unix-stream-of-a-view-by-its-descriptor",
        EscapeToHost,
        "exec 5<{shared}; ./attack unix 1 /proc/self/fd/5/listening evil",
        prey::shared_listener,
        Without("overlay"),
    )
    .options(SHOWN),
    Attack::new(
        "unix-datagram-of-a-view",
        EscapeToHost,
        "./attack unix 2 {socket} evil",
        prey::shared_datagrams,
        Without("overlay"),
    )
    .options(SHOWN),
    Attack::new(
        "unix-stream-of-the-workspace",
        EscapeToHost,
        "./attack unix 1 {socket} evil",
        prey::workspace_listener,
        Without("layer"),
    ),
    Attack::new(
        "unix-stream-of-a-live-workspace",
        EscapeToHost,
        "./attack unix 1 {socket} evil",
        prey::workspace_listener,
        Without("covers"),
    )
    .options(LIVE),
    Attack::new(
        "unix-stream-of-a-live-workspace-by-another-name",
        EscapeToHost,
        "ln {socket} other; mv {socket} moved; for s in other moved {socket}; do ./attack unix 1 $s evil; done",
        prey::workspace_listener,
        Without("covers"),
    )
    .options(LIVE),
    Attack::new(
        "socket-named-by-the-environment",
        UnsecuredCredentials,
        "./attack unix 1 ${DOCKER_HOST:-{socket}} evil; ./attack unix 1 {socket} evil",
        prey::home_listener,
        Outside,
    )
    .front(
        "export SSH_AUTH_SOCK={socket} DOCKER_HOST={socket} XDG_RUNTIME_DIR={home}/.run \
         DBUS_SESSION_BUS_ADDRESS=unix:path={socket} GPG_AGENT_INFO={socket}; exec",
    ),
    Attack::new(
        "socket-by-the-root-of-another-process",
        EscapeToHost,
        "for root in /proc/self/root /proc/1/root /proc/$PPID/root; do ./attack unix 1 $root{socket} evil; done",
        prey::home_listener,
        Outside,
    ),
    Attack::new(
        "abstract-stream",
        EscapeToHost,
        "./attack unix 1 {socket} evil",
        prey::abstract_listener,
        Without("network,landlock"),
    ),
    Attack::new(
        "abstract-datagram",
        EscapeToHost,
        "./attack unix 2 {socket} evil",
        prey::abstract_datagrams,
        Without("network,landlock"),
    ),
    Attack::new(
        "pipe-of-a-view-written",
        EscapeToHost,
        "timeout 2 sh -c 'echo evil > {pipe}'",
        prey::shared_pipe,
        Without("overlay,landlock"),
    )
    .options(SHOWN),
    Attack::new(
        "pipe-of-a-view-read",
        EscapeToHost,
        "timeout 2 head -n 1 {pipe}",
        prey::shared_pipe,
        Without("overlay"),
    )
    .options(SHOWN),
];

const INTERNET: &[Attack] = &[
    Attack::new(
        "tcp-to-the-host",
        Exfiltration,
        "./attack internet tcp 127.0.0.1 {port} evil",
        prey::loopback,
        Without("network"),
    ),
    Attack::new(
        "tcp-to-the-host-by-another-address",
        Exfiltration,
        "for host in 127.1.2.3 0.0.0.0; do ./attack internet tcp $host {port} evil; done",
        prey::loopback,
        Without("network"),
    ),
    Attack::new(
        "tcp-to-the-host-over-ipv6",
        Exfiltration,
        "./attack internet tcp ::1 {port} evil",
        prey::loopback_six,
        Without("network"),
    )
    .if_host("test -e /proc/net/if_inet6"),
    Attack::new(
        "tcp-to-the-host-as-a-mapped-address",
        Exfiltration,
        "./attack internet tcp ::ffff:127.0.0.1 {port} evil",
        prey::loopback,
        Without("network"),
    )
    .if_host("test -e /proc/net/if_inet6"),
    Attack::new(
        "tcp-with-its-first-data",
        Exfiltration,
        "./attack internet fastopen 127.0.0.1 {port} evil",
        prey::loopback,
        Without("network"),
    ),
    Attack::new(
        "tcp-by-many-paths",
        Exfiltration,
        "./attack internet mptcp 127.0.0.1 {port} evil",
        prey::loopback,
        Without("network,seccomp"),
    )
    .if_host("./attack family 2 1 262"),
    Attack::new(
        "udp-to-the-host",
        Exfiltration,
        "./attack internet udp 127.0.0.1 {port} evil",
        prey::loopback_datagrams,
        Without("network"),
    ),
];

/// Returns an attack by a family that anyone can open, so that the filter alone keeps it closed.
const fn family(id: &'static str, script: &'static str) -> Attack {
    Attack::new(
        id,
        EscapeToHost,
        script,
        prey::what_it_prints,
        Without("seccomp"),
    )
    .if_host(script)
}

const FAMILIES: &[Attack] = &[
    family("family-vsock", "./attack family 40 1 0").told("sockets", "AML.T0105"),
    family("family-vsock-datagram", "./attack family 40 2 0").told("sockets", "AML.T0105"),
    family("family-alg", "./attack family 38 5 0").told("sockets", "AML.T0105"),
    family("family-mptcp", "./attack family 2 1 262"),
    family("family-tipc", "./attack family 30 1 0").told("sockets", "AML.T0105"),
    family("family-bluetooth", "./attack family 31 3 0").told("sockets", "AML.T0105"),
    family("family-rds", "./attack family 21 5 0").told("sockets", "AML.T0105"),
    family("family-can", "./attack family 29 3 1").told("sockets", "AML.T0105"),
    family("family-kcm", "./attack family 41 2 0").told("sockets", "AML.T0105"),
    family("family-smc", "./attack family 43 1 0").told("sockets", "AML.T0105"),
    family("family-qrtr", "./attack family 42 2 0").told("sockets", "AML.T0105"),
    family("family-phonet", "./attack family 35 2 0").told("sockets", "AML.T0105"),
    family("netlink-sock-diag", "./attack family 16 3 4"),
    family("netlink-xfrm", "./attack family 16 3 6"),
    family("netlink-audit", "./attack family 16 3 9"),
    family("netlink-connector", "./attack family 16 3 11"),
    family("netlink-netfilter", "./attack family 16 3 12"),
    family("netlink-uevent", "./attack family 16 3 15"),
    family("netlink-generic", "./attack family 16 3 16"),
    family("netlink-crypto", "./attack family 16 3 21"),
    family("family-with-high-bits", "./attack family 0x28 0x80801 0").told("sockets", "AML.T0105"),
    Attack::new(
        "packet-socket",
        Exfiltration,
        "./attack family 17 3 0x300",
        prey::what_it_prints,
        OutsideAsRoot,
    )
    .told("sockets", "AML.T0105"),
    Attack::new(
        "raw-socket",
        Exfiltration,
        "./attack family 2 3 1; ./attack family 10 3 58; ./attack family 2 3 255",
        prey::what_it_prints,
        OutsideAsRoot,
    ),
];

#[test]
fn sockets_and_pipes_of_the_host_are_not_reached() {
    try_all("sockets_and_pipes_of_the_host_are_not_reached", UNIX);
}

#[test]
fn no_protocol_reaches_the_host() {
    try_all("no_protocol_reaches_the_host", INTERNET);
}

#[test]
fn rare_families_of_sockets_are_closed() {
    try_all("rare_families_of_sockets_are_closed", FAMILIES);
}
