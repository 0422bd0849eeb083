//! Descriptors that were left open when the sandbox was started.

use super::harness::{Attack, Control, Technique, try_all};
use super::prey;

use Control::Without;
use Technique::EscapeToHost;

const ATTACKS: &[Attack] = &[
    Attack::new(
        "file-left-open",
        EscapeToHost,
        "cat <&7",
        prey::secret,
        Without("descriptors"),
    )
    .front("exec 7<{secret}; exec"),
    Attack::new(
        "file-left-open-with-a-high-number",
        EscapeToHost,
        "./attack scan secret",
        prey::secret,
        Without("descriptors"),
    )
    .front("exec 9<{secret}; exec"),
    Attack::new(
        "file-left-open-for-writing",
        EscapeToHost,
        "echo evil >&8",
        prey::canary,
        Without("descriptors"),
    )
    .front("exec 8>>{canary}; exec"),
    Attack::new(
        "directory-left-open",
        EscapeToHost,
        "./attack scan secret; ./attack scan ../secret; ./attack scan home/.netrc",
        prey::secret,
        Without("descriptors,landlock"),
    )
    .front("exec 9<{top}; exec"),
    Attack::new(
        "directory-left-open-by-its-path",
        EscapeToHost,
        "cat /proc/self/fd/9/secret /dev/fd/9/secret /proc/$$/fd/9/../top/secret",
        prey::secret,
        Without("descriptors,landlock"),
    )
    .front("exec 9<{top}; exec"),
    Attack::new(
        "directory-left-open-to-start-in",
        EscapeToHost,
        "cd /proc/self/fd/9 && cat secret",
        prey::secret,
        Without("descriptors,landlock"),
    )
    .front("exec 9<{top}; exec"),
];

#[test]
fn descriptors_left_open_lead_nowhere() {
    try_all("descriptors_left_open_lead_nowhere", ATTACKS);
}
