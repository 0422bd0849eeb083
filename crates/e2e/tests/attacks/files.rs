//! Files outside: those that are not shown, those that are shown for reading, the
//! workspace itself, and what Atoll and other programs trust.

use super::harness::{Attack, Control, Technique, try_all};
use super::prey;

use Control::{Outside, Without};
use Technique::{
    DataDestruction, DataFromLocalSystem, EscapeToHost, ModifyAgentConfiguration,
    UnsecuredCredentials,
};

const SHOWN: &[&str] = &["--discard", "--ro", "{shared}"];
const LIVE: &[&str] = &["--live"];

const fn read(id: &'static str, technique: Technique, script: &'static str) -> Attack {
    Attack::new(id, technique, script, prey::secret, Outside)
}

const SECRETS: &[Attack] = &[
    read("secret-by-its-path", DataFromLocalSystem, "cat {secret}"),
    read(
        "secret-beside-the-workspace",
        DataFromLocalSystem,
        "cat ../secret ./../secret",
    ),
    read(
        "secret-by-a-link-that-was-there",
        DataFromLocalSystem,
        "cat link",
    ),
    read(
        "secret-by-a-link",
        DataFromLocalSystem,
        "ln -s {secret} new && cat new; ln -s {top} up && cat up/secret",
    ),
    read(
        "secret-by-a-hard-link",
        DataFromLocalSystem,
        "ln {secret} hard && cat hard; cp -l {secret} hard2 && cat hard2",
    ),
    read(
        "secret-by-the-root-of-a-process",
        DataFromLocalSystem,
        "for root in /proc/self/root /proc/1/root /proc/$PPID/root /proc/self/task/$$/root; do cat $root{secret}; done",
    ),
    read(
        "secret-by-the-directory-of-a-process",
        DataFromLocalSystem,
        "for dir in /proc/self/cwd /proc/1/cwd /proc/$PPID/cwd; do cat $dir/../secret; done",
    ),
    read(
        "secret-by-a-moved-directory",
        DataFromLocalSystem,
        "mkdir -p a/b; cd a/b; mv ../../a ../../../a; mv ../../a /tmp/a; cat ../../secret ../../../secret {secret}",
    ),
    read(
        "credentials-of-the-home",
        UnsecuredCredentials,
        "cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.netrc {home}/.netrc",
    ),
    read(
        "credentials-of-the-environment",
        UnsecuredCredentials,
        "printenv; cat /proc/self/environ /proc/1/environ; tr '\\0' '\\n' < /proc/$PPID/environ",
    )
    .front(
        "export AWS_SECRET_ACCESS_KEY={text} GITHUB_TOKEN={text} ANTHROPIC_API_KEY={text}; exec",
    ),
    read(
        "configuration-of-atoll-read",
        DataFromLocalSystem,
        "cat {config}/atoll/secret {state}/atoll/secret {state}/atoll/*/* ~/.config/atoll/secret",
    ),
];

const fn write(id: &'static str, technique: Technique, script: &'static str) -> Attack {
    Attack::new(id, technique, script, prey::canary, Outside)
}

const OUTSIDE: &[Attack] = &[
    write(
        "canary-overwritten",
        DataDestruction,
        "echo evil > {canary}",
    ),
    write(
        "canary-appended-to",
        DataDestruction,
        "echo evil >> {canary}",
    ),
    write("canary-removed", DataDestruction, "rm -f {canary}"),
    write(
        "canary-replaced",
        DataDestruction,
        "echo evil > new; mv -f new {canary}",
    ),
    write("canary-cut", DataDestruction, "truncate -s 1 {canary}"),
    write("canary-opened-up", DataDestruction, "chmod 777 {canary}"),
    write("canary-made-new", DataDestruction, "touch -d @1 {canary}"),
    write(
        "canary-through-a-link",
        DataDestruction,
        "ln -s {canary} link; echo evil > link",
    ),
    write(
        "canary-through-a-hard-link",
        DataDestruction,
        "ln {canary} link && echo evil > link",
    ),
    write(
        "canary-through-a-directory",
        DataDestruction,
        "ln -s .. up; echo evil > up/canary; echo evil > ../canary",
    ),
    write(
        "file-made-beside",
        DataDestruction,
        "echo evil > {top}/new; echo evil > ../new",
    ),
    write(
        "canary-through-a-process",
        DataDestruction,
        "for root in /proc/self/root /proc/1/root /proc/$PPID/root; do echo evil > $root{canary}; done",
    ),
];

const VIEWS: &[Attack] = &[
    Attack::new(
        "view-overwritten",
        DataDestruction,
        "echo evil > {canary}",
        prey::shared_canary,
        Without("read-only,landlock"),
    )
    .options(SHOWN),
    Attack::new(
        "view-removed",
        DataDestruction,
        "rm -f {canary}",
        prey::shared_canary,
        Without("read-only,landlock"),
    )
    .options(SHOWN),
    Attack::new(
        "view-added-to",
        DataDestruction,
        "echo evil > {shared}/new; mkdir {shared}/made; ln -s /etc {shared}/link",
        prey::shared_canary,
        Without("read-only,landlock"),
    )
    .options(SHOWN),
    Attack::new(
        "view-through-a-link-of-the-workspace",
        DataDestruction,
        "ln -s {shared} link; echo evil > link/canary",
        prey::shared_canary,
        Without("read-only,landlock"),
    )
    .options(SHOWN),
    Attack::new(
        "view-opened-up",
        DataDestruction,
        "chmod 777 {canary}",
        prey::shared_canary,
        Without("read-only"),
    )
    .options(SHOWN),
    Attack::new(
        "view-made-old",
        DataDestruction,
        "touch -d @1 {canary}",
        prey::shared_canary,
        Without("read-only"),
    )
    .options(SHOWN),
];

const fn in_the_workspace(id: &'static str, script: &'static str) -> Attack {
    Attack::new(
        id,
        DataDestruction,
        script,
        prey::workspace_canary,
        Without("layer"),
    )
}

const WORKSPACE: &[Attack] = &[
    in_the_workspace("workspace-overwritten", "echo evil > canary"),
    in_the_workspace("workspace-removed", "rm -f canary"),
    in_the_workspace("workspace-replaced", "echo evil > new; mv -f new canary"),
    in_the_workspace("workspace-opened-up", "chmod 600 canary"),
    in_the_workspace(
        "workspace-mapped",
        "dd if=/dev/zero of=canary bs=1 count=1 conv=notrunc,fsync",
    ),
    in_the_workspace(
        "workspace-by-a-hard-link",
        "ln canary link && echo evil > link",
    ),
    in_the_workspace(
        "workspace-below-its-layer",
        "echo evil > /proc/self/cwd/canary; echo evil > /proc/self/root$PWD/canary",
    ),
];

const TRUSTED: &[Attack] = &[
    Attack::new(
        "own-profile-written",
        ModifyAgentConfiguration,
        "mkdir -p {config}/atoll/profiles; echo evil > {canary}; echo evil > {config}/atoll/profiles/new.toml",
        prey::own_profile,
        Outside,
    ),
    Attack::new(
        "hook-overwritten",
        ModifyAgentConfiguration,
        "echo evil > .git/hooks/pre-commit",
        prey::hook,
        Without("seals"),
    )
    .options(LIVE),
    Attack::new(
        "hook-added",
        ModifyAgentConfiguration,
        "echo evil > .git/hooks/post-checkout; ln -s ../../attack .git/hooks/post-merge",
        prey::hook,
        Without("seals"),
    )
    .options(LIVE),
    Attack::new(
        "hooks-moved-away",
        ModifyAgentConfiguration,
        "mv .git/hooks .git/gone; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
        prey::hook,
        Without("seals"),
    )
    .options(LIVE),
    Attack::new(
        "repository-moved-away",
        ModifyAgentConfiguration,
        "mv .git gone; cp -r gone .git; echo evil > .git/hooks/pre-commit",
        prey::hook,
        Without("seals"),
    )
    .options(LIVE),
    Attack::new(
        "hook-before-it-is-applied",
        ModifyAgentConfiguration,
        "echo evil > .git/hooks/pre-commit",
        prey::hook,
        Without("layer"),
    ),
    Attack::new(
        "set-user-id-in-a-live-workspace",
        EscapeToHost,
        "chmod 4755 file; chmod u+s,g+s file",
        prey::set_id,
        Without("set-id"),
    )
    .options(LIVE),
];

#[test]
fn secrets_outside_are_not_read() {
    try_all("secrets_outside_are_not_read", SECRETS);
}

#[test]
fn files_outside_are_not_changed() {
    try_all("files_outside_are_not_changed", OUTSIDE);
}

#[test]
fn views_are_not_changed() {
    try_all("views_are_not_changed", VIEWS);
}

#[test]
fn a_workspace_is_not_changed_before_it_is_applied() {
    try_all("a_workspace_is_not_changed_before_it_is_applied", WORKSPACE);
}

#[test]
fn what_programs_trust_is_not_changed() {
    try_all("what_programs_trust_is_not_changed", TRUSTED);
}
