#![allow(clippy::unwrap_used)]

use super::*;

fn shown(text: &str) -> Option<String> {
    let made = without_secrets(text.as_bytes()).unwrap();
    made.map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn a_configuration_without_secrets_is_shown_as_it_is() {
    for text in [
        "",
        "[core]\n\tbare = false\n\trepositoryformatversion = 0\n",
        "[remote \"origin\"]\n\turl = https://example.org/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
        "[remote \"origin\"]\n\turl = git@example.org:a/b.git\n",
        "[remote \"origin\"]\n\turl = ssh://git@example.org/a/b.git\n",
        "[user] name = Ann ; who\n\temail = ann@example.org # where\n",
        "[branch \"a/b\"]\r\n\tremote = origin\r\n\tmerge = refs/heads/a\r\n",
        "[alias]\n\tlg = \"log --graph \\\n --all\"\n\tdone\n",
    ] {
        assert_eq!(shown(text), None, "{text}");
    }
}

#[test]
fn secrets_of_a_configuration_are_left_out() {
    let check = |text: &str, expected: &str| {
        assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
    };
    check(
        "[remote \"origin\"]\n\turl = https://ann:its-PW@example.org/a.git\n",
        "[remote \"origin\"]\n\turl = \"https://example.org/a.git\"\n",
    );
    check(
        "[remote \"o\"]\n\turl = \"https://its-PW@example.org:8443/a.git\" # x\n",
        "[remote \"o\"]\n\turl = \"https://example.org:8443/a.git\"\n",
    );
    check(
        "[remote \"o\"]\nurl = ssh://ann:its-PW@example.org/a\n",
        "[remote \"o\"]\n\turl = \"ssh://example.org/a\"\n",
    );
    check(
        "[http \"https://example.org\"]\n\textraHeader = X: its-PW\n\tsslVerify\n",
        "[http \"https://example.org\"]\n\tsslverify\n",
    );
    check(
        "[http] ExtraHeader = \"AUTHORIZATION: \\\n  basic its-PW\"\n[core]\nbare=false",
        "[http]\n[core]\n\tbare = \"false\"\n",
    );
    check(
        "[credential \"https://example.org\"]\n\tusername = its-PW\n\thelper = !echo its-PW\n[a]\nb = c\n",
        "[a]\n\tb = \"c\"\n",
    );
    check("[credential]\n\thelper = store\n", "");
    check(
        "[sendemail \"x\"]\n\tsmtpPass = its-PW\n",
        "[sendemail \"x\"]\n",
    );
    check("[github]\n\toauth-Token = its-PW\n", "[github]\n");
    check(
        "[url \"https://ann:its-PW@example.org/\"]\n\tinsteadOf = gh:\n[a]\nb\n",
        "[a]\n\tb\n",
    );
    check(
        "[alias]\n\tx = !curl -H 'Authorization: Bearer its-PW'\n\ty = status\n",
        "[alias]\n\ty = \"status\"\n",
    );
    check(
        "[core]\n\tsshCommand = sshpass -p its-PW ssh\n\tbare = no\n",
        "[core]\n\tbare = \"no\"\n",
    );
    check("[a]\n\tb = ghp_its-PW0123456789\n", "[a]\n");
    check("[a]\n\tb = https://example.org/?key=its-PW\n", "[a]\n");
    // A slash within a password ends what is looked at as the host's.
    check("[a]\n\tb = https://ann:its/PW@example.org/\n", "[a]\n");
    check(
        "[a]\n# url = https://ann:its-PW@example.org\nb = c\n",
        "[a]\n\tb = \"c\"\n",
    );
    check("[a]\nb = c ; password its-PW\n", "[a]\n\tb = \"c\"\n");
}

/// A configuration in another notation reads as the same to git, and so it does here.
#[test]
fn a_configuration_that_cannot_be_read_is_not_shown() {
    for text in [
        "[core\n",
        "[core \"x]\n",
        "[core \"x\" ]\n",
        "bare = true\n",
        "[core]\n\tbare true\n",
        "[core]\n\tx = \"open\n",
        "[core]\n\tx = \\q\n",
        "[core]\n\tx = a\0b\n",
        "[core]\n=\n",
    ] {
        assert_eq!(
            without_secrets(text.as_bytes()),
            Err(NoConfiguration),
            "{text:?}"
        );
    }
    let long = format!("[a]\n{}", "b = c\n".repeat(200_000));
    assert_eq!(without_secrets(long.as_bytes()), Err(NoConfiguration));
}

#[test]
fn a_value_is_the_last_of_its_name() {
    let check = |text: &str, expected: Option<&str>| {
        let found = value(text.as_bytes(), b"core", b"worktree");
        let found = found.map(|found| found.map(|found| String::from_utf8(found).unwrap()));
        assert_eq!(found, Ok(expected.map(str::to_owned)), "{text:?}");
    };
    let unclear = |text: &str| {
        let found = value(text.as_bytes(), b"core", b"worktree");
        assert_eq!(found, Err(NoConfiguration), "{text:?}");
    };
    check(
        "[core]\n\tbare = false\n\tworktree = ../../../part\n",
        Some("../../../part"),
    );
    check("[CORE]\nWorkTree=/a\n[user]\nworktree = /b\n", Some("/a"));
    check("[core]\nworktree = /a\n[core]\nworktree = /b\n", Some("/b"));
    check("[core] worktree = /a b  \n", Some("/a b"));
    check(
        "[core]\nworktree = \"/a;b \\\"c\\\\\"\n",
        Some("/a;b \"c\\"),
    );
    check("[core]\nworktree = /a ; a remark\n", Some("/a"));
    check("[core]\nworktree = /a\\\n/b\n", Some("/a/b"));
    check("[core \"x\"]\nworktree = /a\n", None);
    check("[user]\nworktree = /a\n", None);
    unclear("worktree = /a\n");
    unclear("[core]\nworktree\n");
    unclear("[core]\nworktree = \"/a\n");
}
