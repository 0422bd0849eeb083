use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn run(line: &str) -> RunArguments {
    match read(&words(line)) {
        Ok(Command::Run(arguments)) => *arguments,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> clap::Error {
    read(&words(line)).expect_err(line)
}

#[test]
fn the_definition_is_sound() {
    definition().debug_assert();
    RunArguments::augment_args(clap::Command::new("run")).debug_assert();
}

#[test]
fn run_reads_every_option() {
    let found = run(
        "atoll run --profile rust --workspace /w --ro /a --ro /b --limit memory=1G \
         --limit cpu=2 --timeout 90s --env CI --env A=b --keep --resume last \
         --json out.json --no-tty -- sh -c x --live -- y",
    );
    let expected = RunArguments {
        profile: Some("rust".into()),
        workspace: Some("/w".into()),
        ro: vec!["/a".into(), "/b".into()],
        limit: vec!["memory=1G".into(), "cpu=2".into()],
        timeout: Some("90s".into()),
        env: vec!["CI".into(), "A=b".into()],
        keep: true,
        resume: Some("last".into()),
        json: Some("out.json".into()),
        no_tty: true,
        command: words("sh -c x --live -- y"),
        ..RunArguments::default()
    };
    assert_eq!(found, expected);
}

#[test]
fn options_after_the_command_belong_to_the_command() {
    for line in ["atoll run sh --keep", "atoll run -- sh --keep"] {
        let found = run(line);
        assert!(!found.keep, "{line}");
        assert_eq!(found.command, words("sh --keep"), "{line}");
    }
}

#[test]
fn both_ways_of_reading_run_agree() {
    for line in [
        "atoll run -- true",
        "atoll run --live --tty -- a b",
        "atoll run --profile x --discard c --d",
        "atoll run --timeout=1s -- -x",
        "atoll run --help",
        "atoll run -h",
        "atoll run",
        "atoll run --keep --discard -- x",
        "atoll run --nothing -- x",
    ] {
        let argv = words(line);
        let alone = read_run_only(&argv).expect("starts with run");
        let whole = CommandLine::try_parse_from(&argv).map(|line| line.command);
        match (alone, whole) {
            (Ok(alone), Ok(whole)) => assert_eq!(Command::Run(Box::new(alone)), whole, "{line}"),
            (Err(alone), Err(whole)) => assert_eq!(alone.kind(), whole.kind(), "{line}"),
            (alone, whole) => panic!("{line}: {alone:?} but {whole:?}"),
        }
    }
}

#[test]
fn names_of_any_bytes_are_taken() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"a\xffb".to_vec());
    let mut argv = words("atoll run --env");
    argv.extend([odd.clone(), "--".into(), odd.clone()]);
    match read(&argv) {
        Ok(Command::Run(found)) => {
            assert_eq!(found.env, vec![odd.clone()]);
            assert_eq!(found.command, vec![odd]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_other_commands_are_read() {
    let check = |line: &str, expected: Command| {
        assert_eq!(read(&words(line)).expect(line), expected, "{line}");
    };
    let diff = |run: &str, paths: &[&str]| DiffArguments {
        run: run.into(),
        paths: paths.iter().map(Into::into).collect(),
        stat: false,
        caches: false,
        no_pager: false,
        json: false,
    };
    check("atoll diff", Command::Diff(diff("last", &[])));
    check(
        "atoll diff k7qd a b",
        Command::Diff(diff("k7qd", &["a", "b"])),
    );
    check(
        "atoll why",
        Command::Why(WhyArguments {
            run: "last".into(),
            session: None,
            json: false,
        }),
    );
    check(
        "atoll apply last --take-back",
        Command::Apply(ApplyArguments {
            run: Some("last".into()),
            take_back: true,
            ..ApplyArguments::default()
        }),
    );
    check(
        "atoll undo last --take-back",
        Command::Undo(UndoArguments {
            run: "last".into(),
            take_back: true,
            ..UndoArguments::default()
        }),
    );
    check(
        "atoll ledger tail -n 3 -f",
        Command::Ledger(LedgerArguments {
            action: LedgerAction::Tail(TailLedgerArguments {
                number: 3,
                follow: true,
                json: false,
            }),
        }),
    );
    check(
        "atoll profile show",
        Command::Profile(ProfileArguments {
            action: ProfileAction::Show(ShowProfileArguments {
                name: "default".into(),
                json: false,
            }),
        }),
    );
    check(
        "atoll gc --older-than 30d --dry-run",
        Command::Gc(GcArguments {
            older_than: Some("30d".into()),
            dry_run: true,
            json: false,
        }),
    );
    check(
        "atoll trust --list",
        Command::Trust(TrustArguments {
            list: true,
            ..TrustArguments::default()
        }),
    );
}

#[test]
fn wrong_usage_is_refused_with_atolls_own_status() {
    for line in [
        "atoll",
        "atoll nothing",
        "atoll run",
        "atoll run --keep --apply -- x",
        "atoll run --tty --no-tty -- x",
        "atoll run --live --resume last -- x",
        "atoll apply",
        "atoll undo",
        "atoll apply last a --finish",
        "atoll apply last --finish --take-back",
        "atoll trust --list --revoke",
        "atoll undo last --list --force",
        "atoll undo last --list --take-back",
        "atoll completions nosuchshell",
        "atoll ledger",
        "atoll profile",
    ] {
        assert_eq!(status_of(&refused(line)), 125, "{line}");
    }
    for line in ["atoll --help", "atoll --version", "atoll run --help"] {
        assert_eq!(status_of(&refused(line)), 0, "{line}");
    }
}

#[test]
fn what_only_a_collector_is_sent_goes_with_no_other_form() {
    let forms = ["--tiles d", "--format ocsf", "--otlp http://127.0.0.1:4318"];
    for form in forms {
        for option in ["", " --follow", " --again", " --follow --again"] {
            let line = format!("atoll ledger export {form}{option}");
            let is_taken = option.is_empty() || form.starts_with("--otlp");
            assert_eq!(read(&words(&line)).is_ok(), is_taken, "{line}");
        }
    }
}

#[test]
fn every_option_explains_itself() {
    fn look(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{} {}",
                command.get_name(),
                argument.get_id()
            );
        }
        command.get_subcommands().for_each(look);
    }
    look(&definition());
}

#[test]
fn help_of_run_tells_statuses_limits_and_examples() {
    let help = refused("atoll run --help").to_string();
    for status in ["124", "125", "126", "127", "128 + n"] {
        assert!(help.contains(status), "{status}");
    }
    for key in atoll_model::LimitKey::names() {
        assert!(help.contains(&format!("{key}=")), "{key}");
    }
    assert!(help.contains("Examples:\n  atoll run -- "));
    let widest = help.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "a line of {widest:?} characters");
}

#[test]
fn lists_of_commands_fit_a_narrow_terminal() {
    fn check(mut command: clap::Command) {
        let help = command.render_help().to_string();
        let commands = help
            .split("\n\n")
            .find(|part| part.starts_with("Commands:"));
        for line in commands.unwrap_or_default().lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
    let all = definition();
    for one in all.get_subcommands() {
        check(one.clone());
    }
    check(all);
}

#[test]
fn words_of_habit_are_understood() {
    for line in ["atoll ls", "atoll list", "atoll ps"] {
        assert!(matches!(read(&words(line)), Ok(Command::Runs(_))), "{line}");
    }
    assert!(matches!(
        read(&words("atoll profiles ls")),
        Ok(Command::Profile(_))
    ));
    assert!(matches!(
        read(&words("atoll log tail")),
        Ok(Command::Ledger(_))
    ));
}

#[test]
fn a_name_of_what_is_kept_without_an_action_is_told_which_there_are() {
    let named = refused("atoll kept codex").to_string();
    assert!(named.contains("atoll kept diff NAME"), "{named}");
    let misspelt = refused("atoll kept aply codex").to_string();
    assert!(
        misspelt.contains("'apply'") && !misspelt.contains("NAME shows"),
        "{misspelt}"
    );
}

#[test]
fn options_that_others_have_are_told_with_what_stands_for_them_here() {
    for (line, words) in [
        ("atoll run --no-network -- true", "leave it out"),
        ("atoll run --offline -- true", "--deny '*'"),
        ("atoll run --network=host -- true", "--allow HOST[:PORT]"),
        ("atoll run --allow-net -- true", "--preset NAME"),
    ] {
        let said = refused(line).to_string();
        assert!(said.contains(words), "{line}: {said}");
    }
    let said = refused("atoll run --allwo x -- true").to_string();
    assert!(said.contains("--allow"), "{said}");
}

#[test]
fn agent_by_its_name_is_run() {
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    for (written, means) in [
        ("atoll codex --help", "atoll run -- codex --help"),
        ("atoll claude", "atoll run -- claude"),
        ("atoll run -- codex", "atoll run -- codex"),
        ("atoll cargo", "atoll cargo"),
    ] {
        assert_eq!(in_full(&words(written)), words(means));
    }
}

/// Returns the options that texts name for a command of `atoll` and that it does not have.
fn unknown_options(text: &str) -> Vec<String> {
    let (mut unknown, definition) = (Vec::new(), definition());
    for (at, _) in text.match_indices("atoll ") {
        let rest = text.get(at + "atoll ".len()..).unwrap_or_default();
        let end = rest
            .find(['"', '`', ';', '\n', ',', '('])
            .unwrap_or(rest.len());
        let mut command = &definition;
        let mut said = String::new();
        let mut is_before = true;
        for word in rest.get(..end).unwrap_or_default().split(' ') {
            if word == "--" {
                break;
            }
            if let (true, Some(next)) = (is_before, command.find_subcommand(word)) {
                command = next;
                said = format!("{said} {word}");
                continue;
            }
            is_before = false;
            let name = word
                .trim_end_matches(['.', ':', '\'', ')'])
                .split('=')
                .next();
            let Some(name) = name.and_then(|name| name.strip_prefix("--")) else {
                continue;
            };
            let mut known = command.get_arguments().filter_map(|one| one.get_long());
            if !said.is_empty() && name != "help" && !known.any(|one| one == name) {
                unknown.push(format!("atoll{said} --{name}"));
            }
        }
    }
    unknown
}

/// Options that hints, examples and help name exist for the command that they name them for.
#[test]
fn options_in_texts_exist_for_their_commands() {
    assert_eq!(
        unknown_options("atoll apply X --nothing"),
        ["atoll apply --nothing"]
    );
    let crates =
        std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let mut directories = vec![crates];
    let mut wrong = Vec::new();
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "target"].contains(&name.as_str()) {
                directories.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                // A string that goes on in the next line.
                let text = text.replace("\\n", " ");
                let lines: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
                wrong.extend(unknown_options(&lines.concat()));
            }
        }
    }
    assert!(files > 100, "{files}");
    assert_eq!(wrong, Vec::<String>::new());
}
