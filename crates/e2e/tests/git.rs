//! git with credentials that no sandbox holds: passwords that are injected outside, keys that sign
//! outside. Real git, real servers, in a sandbox, and for an ordinary user in a fence too.

use std::fs;
use std::time::Duration;

use e2e::holders;
use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Outcome, World, id, is_root};

const LONG: Duration = Duration::from_secs(180);
const SERVERS: &str = include_str!("clients/servers.py");
/// The certificates of all that these servers are.
const NAMES: &[&str] = &["git.example"];
/// The password that the server demands.
const REAL: &str = "ghp_r3alP4ssw0rdOfTh1sT3stN0bodyS33s1t00";

/// Runs a shell script where the servers are: in a sandbox, and then for an ordinary user in a
/// fence. Each result is checked. `before` is shell that runs outside first.
fn everywhere(world: &World, before: &str, script: &str, check: impl Fn(&Outcome)) {
    check(&outcome(world, "\"$ATOLL\"", before, script));
    if !is_root() {
        let outcome = outcome(world, "\"$FENCED\"", before, script);
        let _ = outcome.says(["only fenced in"]);
        check(&outcome);
    }
}

fn outcome(world: &World, atoll: &str, before: &str, script: &str) -> Outcome {
    world.canary(REAL, &["outside.sh"]);
    let script_at = world.top().join("script.sh");
    fs::write(&script_at, script).unwrap();
    let text = format!(
        "{before}\nscript=$(cat '{}')\n{atoll} run --discard --profile bound -- sh -c \"$script\"\n",
        script_at.display()
    );
    let path = world.top().join("outside.sh");
    fs::write(&path, text).unwrap();
    let command = format!("sh '{}'", path.display());
    let run = on_servers(world, SERVERS, NAMES, &command);
    let run = run.env("FENCED", without_namespaces(world));
    let run = run.env("SERVERS", "git").env("GIT_PASSWORD", REAL);
    let run = run.env("CLIENT_ID", id().0.to_string());
    let outcome = run.env("INTERNET_PORTS", "7").within(LONG).run();
    key_is_secret(world);
    outcome
}

/// Forbids the client's key anywhere but in the file that Atoll is told to read.
fn key_is_secret(world: &World) {
    // What stands there by the first lines is in every key's file.
    let key = noted(world, "client");
    for line in key.lines().skip(2).filter(|line| !line.starts_with('-')) {
        world.canary(line, &["home/.ssh/mine", "lines"]);
    }
}

/// Returns the servers' records of a name.
fn noted(world: &World, name: &str) -> String {
    fs::read_to_string(world.top().join("internet").join(name)).unwrap_or_default()
}

const COMMIT: &str = "git -c user.name=a -c user.email=a@example.com commit -q --allow-empty";

/// The person's name and habits come inside, and a commit works the first time; what runs a
/// program, or holds a secret, does not.
#[test]
fn git_settings_come_inside_as_values() {
    let world = World::new("git_settings_come_inside_as_values");
    if !e2e::program_exists("git") {
        return world.skip("git is not installed", e2e::Avoidable::Yes);
    }
    let included = world.home().join("work.config");
    fs::write(&included, "[user]\n\temail = work@example.com\n").unwrap();
    world.canary("t0kenOfInsteadOf1234", &["home/.gitconfig"]);
    let text = format!(
        "[user]\n\tname = \"Ada \\\"L\\\" # 1\"\n\temail = ada@example.com\n\
         [init]\n\tdefaultBranch = trunk\n[alias]\n\tevil = !touch evil\n\
         [core]\n\teditor = touch evil\n\tpager = touch evil\n\
         [commit]\n\tgpgsign = true\n[credential]\n\thelper = !touch evil\n\
         [url \"https://x:t0kenOfInsteadOf1234@h/\"]\n\tinsteadOf = h:\n\
         [includeIf \"gitdir:{}/\"]\n\tpath = {}\n",
        world.workspace().display(),
        included.display()
    );
    fs::write(world.home().join(".gitconfig"), text).unwrap();
    let _ = world.host_shell("git init -q").run().success();
    let script = "git commit -q --allow-empty -m one && git log -1 --format='%an <%ae> %G?'; \
                  git init -q other && git -C other symbolic-ref HEAD; \
                  git config --global --list --name-only; \
                  GIT_CONFIG_GLOBAL=/dev/null git commit -q --allow-empty -m two 2> said || \
                      grep -c 'tell me who you are' said";
    let run = world.run_inside(script).success();
    let expected = "Ada \"L\" # 1 <work@example.com> N\nrefs/heads/trunk\n\
                    init.defaultbranch\nuser.email\nuser.name\n1\n";
    assert_eq!(run.out(), expected, "{run}");
    let _ = run.says(["git signs no commits inside"]);
    assert!(!world.exists("evil"));
    // A program of that name in the workspace is none that runs outside.
    world.write("git", "#!/bin/sh\ntouch \"$(dirname \"$0\")/evil\"\n");
    let _ = world.host_shell("chmod +x git").run().success();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", world.workspace().display());
    let run = world.run(["--discard"], "true").env("PATH", path).run();
    assert!(run.code() == 0 && !world.exists("evil"), "{run}");
    let _ = world.host_shell("rm git").run().success();
    // A hostile repository's include that never ends holds nobody up, and gives nothing away.
    let _ = world
        .host_shell("mkfifo pipe && git config include.path ../pipe")
        .run()
        .success();
    let run = world.run_inside("echo ran").success();
    assert_eq!(run.out(), "ran\n", "{run}");
}

const BOUND: &str = r#"
[network]
allow = [{ preset = "git-push", repositories = ["git.example/repo"] }]

[credential.git]
source = { environment = "HUB_TOKEN" }
to = "git.example"
place = { basic = "*" }
"#;

#[test]
fn git_finds_its_password_and_pushes_to_what_is_named_alone() {
    let name = "git_finds_its_password_and_pushes_to_what_is_named_alone";
    let world = World::new(name);
    if !is_possible(&world, &["openssl", "git", "sshd"]) {
        return;
    }
    world.profile(
        "bound",
        &format!("{BOUND}\n[git]\nhttps-for-ssh = ['git.example']\n"),
    );
    let before = format!("export HUB_TOKEN={REAL}; unset GIT_PASSWORD");
    let script = format!(
        "export GIT_TERMINAL_PROMPT=0; git clone -q https://git.example/repo.git here && cd here && cat file && \
         {COMMIT} -m second && git push -q origin main && git rev-parse HEAD; \
         git ls-remote -q git@git.example:repo.git main | wc -l; \
         git fetch -q ssh://git@git.example/repo.git && echo fetched; \
         git push -q https://git.example/other.git main 2>&1 | grep -o 403 | head -1; \
         env; git config --show-origin --get-regexp . ; cat .git/config"
    );
    everywhere(&world, &before, &script, |outcome| {
        let told = outcome.out();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.len() > 5, "{outcome}");
        assert_eq!(lines[0], "first", "{outcome}");
        assert_eq!(lines[2..5], ["1", "fetched", "403"], "{outcome}");
        assert!(!told.contains(REAL), "{outcome}");
        assert!(told.contains("HUB_TOKEN=ghp_"), "{outcome}");
        // What was pushed is there.
        let refs = noted(&world, "refs");
        assert!(
            refs.starts_with(&format!("{} commit\trefs/heads/main", lines[1])),
            "{refs} {outcome}"
        );
        let requests = noted(&world, "requests");
        assert!(!requests.contains("/other.git"), "{requests}");
        let opened = events(&world, "flow.opened");
        let with = opened.iter().filter(|one| one["credential"] == "git");
        assert!(with.count() >= 4, "{opened:?}");
    });
    // Without the credential the same server gives nothing.
    let open = BOUND.split("[credential").next().unwrap();
    world.profile("bound", open);
    everywhere(&world, "unset GIT_PASSWORD", &script, |outcome| {
        assert!(!outcome.out().contains("first"), "{outcome}");
        assert!(!noted(&world, "requests").is_empty());
    });
}

#[test]
fn submodules_are_fetched_where_their_repositories_are_named() {
    let name = "submodules_are_fetched_where_their_repositories_are_named";
    let world = World::new(name);
    if !is_possible(&world, &["openssl", "git", "sshd"]) {
        return;
    }
    let both = BOUND.replace(
        "\"git.example/repo\"",
        "\"git.example/repo\", \"git.example/other\"",
    );
    let before = format!("export HUB_TOKEN={REAL}; unset GIT_PASSWORD");
    let script = format!(
        "export GIT_TERMINAL_PROMPT=0; git clone -q https://git.example/repo.git one && \
         git -C one push -q https://git.example/other.git main; \
         git clone -q https://git.example/repo.git two && cd two && \
         git submodule --quiet add https://git.example/other.git part && {COMMIT} -m part && cat part/file && \
         git push -q origin HEAD:refs/heads/with-part && cd .. && \
         git clone -q -b with-part --recurse-submodules https://git.example/repo.git three && cat three/part/file"
    );
    world.profile("bound", &both);
    everywhere(&world, &before, &script, |outcome| {
        assert_eq!(outcome.out(), "first\nfirst\n", "{outcome}");
    });
    // Where the other one is not named, what it is part of comes without it.
    world.profile("bound", BOUND);
    everywhere(&world, &before, &script, |outcome| {
        assert!(outcome.out().is_empty(), "{outcome}");
        assert!(!noted(&world, "requests").contains("/other.git"));
    });
}

/// Returns a profile by which the agent's key logs in to one host as one user.
fn granted(further: &str) -> String {
    format!(
        "[network]\nallow = ['git.example:22', 'another.example:22', 'other.example:22']\n\
         [ssh.git]\nto = 'git.example'\nuser = 'server'\nkey = 'FINGERPRINT'\n{further}"
    )
}

/// Shell that starts an agent with two keys outside, of which one is granted, and accepts the
/// host's key. The agent ends with the small internet.
const AGENT: &str = r#"
place=$(dirname "$0")/internet
eval "$(ssh-agent -s)" >/dev/null
trap 'kill $SSH_AGENT_PID' EXIT
install -m 600 "$place/client" "$place/mine"
ssh-keygen -q -t ed25519 -N '' -C other -f "$place/unshown"
ssh-add -q "$place/mine" "$place/unshown"
mkdir -p -m 700 "$HOME/.ssh"
cp "$place/known" "$HOME/.ssh/known_hosts"
fingerprint=$(ssh-keygen -lf "$place/client.pub" | cut -d' ' -f2)
sed -i "s|FINGERPRINT|$fingerprint|" "$PROFILE"
"#;

/// As [`everywhere`], with that agent.
fn with_agent(world: &World, profile: &str, further: &str, script: &str, check: impl Fn(&Outcome)) {
    world.profile("bound", profile);
    let path = world.config().join("atoll/profiles/bound.toml");
    let text = profile.to_owned();
    let before = format!(
        "PROFILE='{}'\ncat >\"$PROFILE\" <<'END'\n{text}\nEND\n{AGENT}\n{further}",
        path.display()
    );
    everywhere(world, &before, script, check);
}

#[test]
fn git_over_ssh_signs_in_with_a_key_that_is_not_inside() {
    let world = World::new("git_over_ssh_signs_in_with_a_key_that_is_not_inside");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    let at = world.top().join("internet");
    let at = at.display();
    let script = format!(
        "git clone -q ssh://git.example{at}/server/repo.git here && cd here && cat file && \
         {COMMIT} -m second && git push -q origin main && git rev-parse HEAD; \
         ssh-add -L | wc -l; ssh-add -L | grep -c other; \
         for bad in -D -d '-x -q' ; do echo x | ssh-add $bad >/dev/null 2>&1 && echo changed; done; \
         ls \"$(dirname \"$SSH_AUTH_SOCK\")\"; env; cat \"$(dirname \"$SSH_AUTH_SOCK\")\"/*.pub"
    );
    with_agent(&world, &granted(""), "", &script, |outcome| {
        let told = outcome.out();
        let log = noted(&world, "sshd.log");
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.len() > 5, "{outcome}\n{log}");
        assert_eq!(lines[0], "first", "{outcome}\n{log}");
        assert_eq!(lines[2..4], ["1", "0"], "{outcome}");
        assert!(!told.contains("changed"), "{outcome}");
        let refs = noted(&world, "refs");
        assert!(
            refs.starts_with(&format!("{} commit\trefs/heads/main", lines[1])),
            "{refs} {outcome}"
        );
        let _ = outcome.says(["ssh: signed in to server@git.example 2 times"]);
        let opened = events(&world, "flow.opened");
        let logins = opened.iter().filter(|one| one["kind"] == "ssh-login");
        let logins: Vec<_> = logins.collect();
        assert_eq!(logins.len(), 2, "{opened:?}");
        assert_eq!(logins[0]["host"], "git.example");
        assert_eq!(logins[0]["credential"], "git");
    });
}

#[test]
fn ssh_alone_finds_its_configuration() {
    let world = World::new("ssh_alone_finds_its_configuration");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    world.profile("bound", &granted(""));
    let path = world.config().join("atoll/profiles/bound.toml");
    // It looks in the home of the account, where this user has one: in this mount namespace
    // that is the test's.
    let account = world.host("getent").args(["passwd", &id().0.to_string()]);
    let account = account.run().out();
    let home = match account.split(':').nth(5) {
        Some(home) => format!("mount --bind \"$HOME\" '{home}' && export HOME='{home}' || exit"),
        None => String::new(),
    };
    let before = format!("{home}\nPROFILE='{}'\n{AGENT}", path.display());
    let script = "ssh server@git.example echo in; ls -A ~/.ssh";
    let outcome = outcome(&world, "\"$ATOLL\"", &before, script).success();
    assert_eq!(outcome.out(), "in\nconfig\n", "{outcome}");
}

/// A policy requires an approval before a key signs: without one it does not, and an approval
/// covers the key and host that were shown.
#[test]
fn a_key_that_policies_ask_about_signs_once_a_person_says_so() {
    let world = World::new("a_key_that_policies_ask_about_signs_once_a_person_says_so");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    let policy = "@id(\"uses\") @approve(\"person\")\n\
                  permit(principal, action == Action::\"use_credential\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), policy);
    let script = "S=\"ssh -F $(dirname \"$SSH_AUTH_SOCK\")/config\"; \
                  $S server@git.example echo in 2>/dev/null || echo refused";
    let say = |word: &str| {
        format!(
            "(until \"$ATOLL\" approvals show 1 >\"$place/shown\" 2>/dev/null; do sleep 0.1; done; \
             \"$ATOLL\" approvals {word} 1 >/dev/null 2>&1) &"
        )
    };
    for (word, expected) in [("grant", "in\n"), ("deny", "refused\n")] {
        with_agent(&world, &granted(""), &say(word), script, |outcome| {
            assert_eq!(outcome.out(), expected, "{outcome}");
            let shown = noted(&world, "shown");
            for text in [
                "host: git.example",
                "a key of SSH signs in there",
                "credentials: git",
                "policy uses",
            ] {
                assert!(shown.contains(text), "{text}: {shown} {outcome}");
            }
            let opened = events(&world, "flow.opened");
            let logins: Vec<_> = opened
                .iter()
                .filter(|one| one["kind"] == "ssh-login")
                .collect();
            match word {
                "grant" => assert_eq!(logins[0]["approval"], 1, "{opened:?}"),
                _ => assert!(logins.is_empty(), "{opened:?}"),
            }
        });
    }
}

/// Asks the agent in the sandbox for signatures that it refuses, one for each argument.
const ASK: &str = include_str!("git/ask.py");

#[test]
fn an_agent_inside_signs_nothing_else() {
    let world = World::new("an_agent_inside_signs_nothing_else");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    world.write("ask.py", ASK);
    let directory = "D=$(dirname \"$SSH_AUTH_SOCK\"); S=\"ssh -F $D/config\"";
    let script = format!(
        "{directory}; $S server@git.example echo in; \
         $S -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -i $D/git.pub server@another.example echo reached 2>/dev/null || echo refused another; \
         $S -o HostKeyAlias=git.example -i $D/git.pub server@another.example echo reached 2>/dev/null || echo refused key; \
         $S second@git.example echo reached 2>/dev/null || echo refused user; \
         $S -A server@git.example 'ssh-add -L >/dev/null 2>&1 && echo lists; ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null server@93.184.216.37 echo reached' 2>/dev/null || echo refused onward; \
         echo hello | ssh-keygen -q -Y sign -n git -f $D/git.pub >/dev/null 2>&1 || echo refused commit; \
         python3 ask.py"
    );
    // Outside the same key opens all of them.
    let control = "S=\"ssh -F /dev/null -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -i $place/mine\"; \
         for to in server@git.example second@git.example server@another.example; do $S $to echo control 2>/dev/null; done";
    with_agent(&world, &granted(""), control, &script, |outcome| {
        let log = noted(&world, "sshd.log");
        let told = outcome.out();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "control",
                "control",
                "control",
                "in",
                "refused another",
                "refused key",
                "refused user",
                "refused onward",
                "refused commit",
                "raw refused",
                "login unbound refused",
                "bind of another refused",
                "bind forged refused",
                "add refused",
                "lock refused",
                "long closed",
                "list 1",
            ],
            "{outcome}\n{log}"
        );
        let _ = outcome.says(["ssh: signed in to server@git.example"]);
        let refused = events(&world, "flow.refused");
        let why: Vec<&str> = refused
            .iter()
            .filter_map(|one| one["why"].as_str())
            .collect();
        for wanted in [
            "the host has shown a key that is not among those by which a host of [ssh] is known \
             (`host-keys`, or known_hosts): it is another host, or its key has changed",
            "the login is for another user or host than `user` and `to` of [ssh] say",
            "the agent is not forwarded to another host",
            "no `sign-commits` lets this key sign commits",
            "it is no login that was to be signed",
        ] {
            assert!(why.contains(&wanted), "{wanted}: {why:?}");
        }
    });
}

#[test]
fn commits_are_signed_where_that_is_granted() {
    let world = World::new("commits_are_signed_where_that_is_granted");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    let script = format!(
        "git init -q here && cd here && {COMMIT} -S -m signed && echo \"a@example.com $(cat $(git config user.signingkey))\" > signers && \
         git -c gpg.ssh.allowedSignersFile=$PWD/signers verify-commit -v HEAD 2>&1 | grep -o 'Good \"git\" signature'; \
         echo hello | ssh-keygen -q -Y sign -n file -f $(git config user.signingkey) >/dev/null 2>&1 || echo refused"
    );
    with_agent(
        &world,
        &granted("sign-commits = true\n"),
        "",
        &script,
        |outcome| {
            assert_eq!(
                outcome.out(),
                "Good \"git\" signature\nrefused\n",
                "{outcome}"
            );
            let _ = outcome.says(["ssh: signed commits with the key for server@git.example once"]);
            let opened = events(&world, "flow.opened");
            assert!(
                opened.iter().any(|one| one["kind"] == "commit-signature"),
                "{opened:?}"
            );
        },
    );
}

#[test]
fn a_key_in_a_file_signs_and_is_not_inside() {
    let world = World::new("a_key_in_a_file_signs_and_is_not_inside");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    let profile = granted("").replace("'FINGERPRINT'", "{ file = '~/.ssh/mine' }");
    let profile = profile.replace("[ssh.git]", "# FINGERPRINT\n[ssh.git]");
    let before = "install -m 600 \"$place/client\" \"$HOME/.ssh/mine\"; unset SSH_AUTH_SOCK";
    world.profile("bound", &profile);
    let path = world.config().join("atoll/profiles/bound.toml");
    let before = format!("PROFILE='{}'\n{AGENT}\n{before}", path.display());
    let script = "D=$(dirname \"$SSH_AUTH_SOCK\"); ssh -F $D/config server@git.example echo in; \
                  cat ~/.ssh/mine 2>/dev/null; ssh-add -L | wc -l";
    everywhere(&world, &before, script, |outcome| {
        let log = noted(&world, "sshd.log");
        assert_eq!(outcome.out(), "in\n1\n", "{outcome}\n{log}");
    });
    // The same out of the vault.
    let sealed = profile.replace("file = '~/.ssh/mine'", "vault = 'deploy'");
    world.profile("bound", &sealed);
    let set = format!("{before}; \"$ATOLL\" secret set deploy <\"$HOME/.ssh/mine\" >/dev/null");
    let opened = outcome(&world, "\"$ATOLL\"", &set, script).success();
    assert_eq!(opened.out(), "in\n1\n", "{opened}");
    // One that is locked cannot be used, and nothing starts.
    world.profile("bound", &profile);
    let locked =
        format!("{before}; ssh-keygen -q -p -P '' -N secret -f \"$HOME/.ssh/mine\" >/dev/null");
    let refused = outcome(&world, "\"$ATOLL\"", &locked, script).expect_status(125);
    assert!(refused.out().is_empty(), "{refused}");
    refused.is_clear_error(["it is locked by a passphrase", "ssh-add"]);
}

#[test]
fn a_host_whose_key_nobody_knows_is_none() {
    let world = World::new("a_host_whose_key_nobody_knows_is_none");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    world.profile("bound", &granted(""));
    let path = world.config().join("atoll/profiles/bound.toml");
    let before = format!(
        "PROFILE='{}'\n{AGENT}\nrm \"$HOME/.ssh/known_hosts\"",
        path.display()
    );
    let refused = outcome(&world, "\"$ATOLL\"", &before, "echo started").expect_status(125);
    assert!(refused.out().is_empty(), "{refused}");
    refused.is_clear_error(["no key of that host is known", "host-keys"]);
}

/// A policy forbids connecting to a server of SSH from the start, and each signature while a run
/// goes on.
#[test]
fn a_login_by_ssh_is_closed_by_a_policy_of_its_action() {
    let world = World::new("a_login_by_ssh_is_closed_by_a_policy_of_its_action");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd", "ssh-agent"]) {
        return;
    }
    let at = world.top().join("internet");
    let at = at.display();
    let ask = format!("git ls-remote -q ssh://git.example{at}/server/repo.git >/dev/null");
    let own = world.config().join("atoll/own.cedar");
    let policy = |action: &str, when: &str| {
        format!(
            "mkdir -p '{}'\ncat >'{}' <<END\n@id(\"closed\") forbid(principal, action == Action::\"{action}\", resource) {when};\nEND\n",
            own.parent().unwrap().display(),
            own.display()
        )
    };
    let once = format!("{ask} && echo done; true");
    with_agent(&world, &granted(""), "", &once, |outcome| {
        assert_eq!(outcome.out(), "done\n", "{outcome}");
    });
    for action in ["resolve", "connect"] {
        with_agent(
            &world,
            &granted(""),
            &policy(action, ""),
            &once,
            |outcome| {
                assert_eq!(outcome.out(), "", "{action} {outcome}");
            },
        );
    }
    let late = policy(
        "use_credential",
        "when { context.time >= $(($(date +%s) + 15)) }",
    );
    let script =
        format!("for i in $(seq 60); do {ask} || break; echo done; sleep 1; done; echo ended $i");
    with_agent(&world, &granted(""), &late, &script, |outcome| {
        let told = outcome.out();
        assert!(told.starts_with("done\n"), "{outcome}");
        let ended = told
            .lines()
            .last()
            .and_then(|line| line.strip_prefix("ended "));
        let times: u32 = ended.unwrap().parse().unwrap();
        assert!(times < 60, "{outcome}");
    });
}

/// Writes the secret parts of an Ed25519 key: most of its seed, which stands before the public half
/// (PROTOCOL.key of OpenSSH), and its file's lines.
const SEED: &str = "import base64, sys\nplace, to = sys.argv[1:]\n\
    lines = [one for one in open(f'{place}/client').read().split('\\n') if one and one[0] != '-']\n\
    public = base64.b64decode(open(f'{place}/client.pub').read().split()[1])[-32:]\n\
    held = base64.b64decode(''.join(lines))\nat = held.rindex(public)\n\
    open(f'{to}/sought/real', 'wb').write(held[at - 32:at - 4])\nopen(f'{to}/lines', 'w').write(lines[2])";

/// Returns a run in which a key in a file signs, and which this command searches meanwhile.
fn signing_while(world: &World, searching: &str) -> Outcome {
    let profile = granted("").replace("'FINGERPRINT'", "{ file = '~/.ssh/mine' }");
    world.profile(
        "bound",
        &profile.replace("[ssh.git]", "# FINGERPRINT\n[ssh.git]"),
    );
    let path = world.config().join("atoll/profiles/bound.toml");
    world.write(world.top().join("seed.py"), SEED);
    world.write(holders::sought(world), "");
    // The agent's shell waits for what it does at its end.
    let agent = AGENT.replace(
        "eval \"$(ssh-agent -s)\" >/dev/null\ntrap 'kill $SSH_AGENT_PID' EXIT\n",
        "",
    );
    let agent: Vec<&str> = agent
        .lines()
        .filter(|line| !line.starts_with("ssh-add"))
        .collect();
    let text = format!(
        "PROFILE='{}'\n{}\ninstall -m 600 \"$place/client\" \"$HOME/.ssh/mine\"\n\
         python3 '{top}/seed.py' \"$place\" '{top}'\nexec {searching}\n",
        path.display(),
        agent.join("\n"),
        top = world.top().display()
    );
    let outside = world.top().join("outside.sh");
    fs::write(&outside, text).unwrap();
    let script = "D=$(dirname \"$SSH_AUTH_SOCK\"); ssh -n -F $D/config server@git.example echo in; \
                  echo KEY=$SSH_AUTH_SOCK; sh -c 'echo READY; read go'; \
                  ssh -n -F $D/config server@git.example echo in";
    let run = on_servers(
        world,
        SERVERS,
        NAMES,
        &format!("sh '{}' \"$@\"", outside.display()),
    );
    let run = holders::without_variable(world, run);
    let run = run.env("SERVERS", "git").env("GIT_PASSWORD", REAL);
    let run = run.env("CLIENT_ID", id().0.to_string());
    let run = run.env("INTERNET_PORTS", "7").within(LONG);
    let run = run.args(["sh", "--profile", "bound", "--", "sh", "-c", script]);
    let outcome = run.run();
    key_is_secret(world);
    outcome
}

#[test]
fn no_process_but_the_one_that_signs_holds_a_key_of_ssh() {
    let world = World::new("no_process_but_the_one_that_signs_holds_a_key_of_ssh");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd"]) {
        return;
    }
    let searching = holders::searching(&world);
    let outcome = signing_while(&world, &searching);
    let what = format!("{outcome}\n{}", noted(&world, "sshd.log"));
    assert_eq!(outcome.out().matches("in\n").count(), 2, "{what}");
    holders::expect_held_by(&world, &["atoll-signer"], &what);
}

#[test]
fn a_key_of_ssh_is_in_no_core_dump() {
    let world = World::new("a_key_of_ssh_is_in_no_core_dump");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd"]) {
        return;
    }
    if !holders::dumps_are_files(&world) {
        return;
    }
    let outcome = signing_while(&world, &holders::dumping(&world));
    assert!(outcome.out().contains("in\n"), "{outcome}");
    let both = ["atoll-signer", "atoll-egress"];
    holders::expect_no_dump_of(&world, &both, &outcome.to_string());
    let searched = holders::searched(&world);
    // Where it is kept, which only root can see, is neither swapped out nor dumped.
    let held: Vec<&str> = searched
        .lines()
        .filter(|line| line.contains(" holds it"))
        .collect();
    let expected: &[&str] = match is_root() {
        true => &["atoll-signer holds it lo dd"],
        false => &[],
    };
    assert_eq!(held, expected, "{outcome}\n{searched}");
}

#[test]
fn no_process_but_the_one_that_carries_holds_a_password_of_git() {
    let name = "no_process_but_the_one_that_carries_holds_a_password_of_git";
    let world = World::new(name);
    if !is_possible(&world, &["openssl", "git", "sshd"]) {
        return;
    }
    world.profile("bound", &BOUND.replace("HUB_TOKEN", "GITHUB_TOKEN"));
    world.write(world.top().join("real"), REAL);
    world.write(holders::sought(&world), REAL);
    world.canary(REAL, &["real", "sought"]);
    let searching = format!("env -u GIT_PASSWORD {}", holders::searching(&world));
    let run = on_servers(&world, SERVERS, NAMES, &searching);
    let run = run.env("SERVERS", "git").env("GIT_PASSWORD", REAL);
    let run = run.env("CLIENT_ID", id().0.to_string());
    let run = run.env("INTERNET_PORTS", "7").within(LONG);
    let script = "export GIT_TERMINAL_PROMPT=0; git clone -q https://git.example/repo.git here && cat here/file; \
                  echo KEY=$GITHUB_TOKEN; echo READY; read go; git -C here fetch -q && echo fetched";
    let outcome = run
        .args(["sh", "--profile", "bound", "--", "sh", "-c", script])
        .run();
    let what = outcome.to_string();
    assert!(
        outcome.out().contains("first\n") && outcome.out().contains("fetched\n"),
        "{what}"
    );
    holders::expect_held_by(&world, &["atoll-egress"], &what);
}
