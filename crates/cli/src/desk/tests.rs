#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use atoll_model::TerminalRights;
use atoll_model::network::{
    ApprovalScope, AskedCall, AskedHeader, AskedRequest, CallDigest, FlowKind, Scheme, Scope,
};

use super::page::WORDS;
use super::*;

const SIZE: Size = Size {
    rows: 40,
    columns: 100,
};

fn pending(approval: u32, path: &str) -> Pending {
    let digest = CallDigest::new([u8::try_from(approval).unwrap(); 32]);
    Pending {
        approval,
        digest,
        call: AskedCall {
            signs: None,
            kind: FlowKind::Request,
            host: "example.com".to_owned(),
            port: 443,
            request: Some(AskedRequest {
                scheme: Scheme::Https,
                method: "POST".to_owned(),
                path: path.to_owned(),
                query: Some("o\r\n".to_owned()),
                path_digest: digest,
                target_digest: digest,
                confidence: None,
                is_web_socket: false,
                headers_digest: digest,
                telling_headers_digest: digest,
                telling_headers: Vec::new(),
                further_headers: 0,
                body: None,
            }),
            login: None,
            credentials: Vec::new(),
            rule: "a rule".to_owned(),
            policies: 0,
        },
        waiting: 1,
        age_seconds: 0,
        left_seconds: 120,
        agreed: None,
        takes_two: false,
        second: None,
    }
}

/// Returns a pending call under dual control of three persons.
fn of_two(number: u32, path: &str) -> Pending {
    let second = atoll_sandbox::Second {
        owner: 1000,
        persons: vec![1000, 1001, 1002],
    };
    Pending {
        takes_two: true,
        second: Some(second),
        ..pending(number, path)
    }
}

/// A prompt with the terminal of a program that has written something, and a clock of its own.
struct Scene {
    desk: Desk,
    filter: EscapeFilter,
    now: Instant,
    size: Size,
    /// True while output is on its way to the terminal.
    unshown: bool,
}

impl Scene {
    fn new(written: &str) -> Self {
        let rights = TerminalRights {
            title: false,
            clipboard: false,
            queries: true,
        };
        let mut filter = EscapeFilter::new(rights);
        filter.push(written.as_bytes(), &mut Vec::new());
        Self {
            desk: Desk::new(RunId::new(1, 1), AskKey::default(), None),
            filter,
            now: Instant::now(),
            size: SIZE,
            unshown: false,
        }
    }

    fn asked(mut self, open: &[Pending]) -> Self {
        self.desk.asked(open.to_vec());
        self
    }

    fn turn(&mut self) -> (String, Option<Decision>, Option<Size>) {
        let looked = self
            .desk
            .turn(&self.filter, self.size, !self.unshown, self.now);
        self.unshown = !looked.shown.is_empty();
        let answered = looked.answered.map(|one| one.decision);
        (
            String::from_utf8(looked.shown).unwrap(),
            answered,
            looked.resized,
        )
    }

    /// Completes the output to the terminal.
    fn shown(&mut self) {
        self.unshown = false;
        self.turn();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.turn();
        self.shown();
    }

    /// Types a text, and returns the part that is left for the program.
    fn typed(&mut self, text: &str) -> String {
        let mut typed = text.as_bytes().to_vec();
        self.desk.typed(&mut typed, self.now);
        String::from_utf8(typed).unwrap()
    }

    /// Draws the question, and waits until input counts.
    fn ready(mut self) -> Self {
        self.turn();
        self.shown();
        self.wait(SETTLING);
        self
    }

    fn answers(&mut self, text: &str) -> Option<Decision> {
        assert_eq!(self.typed(text), "");
        self.turn().1
    }
}

#[test]
fn each_letter_is_an_answer_and_nothing_else_is() {
    let grant = |scope| {
        let breadth = ApprovalScope::Same;
        Some(Decision::Grant { scope, breadth })
    };
    for (typed, expected) in [
        ("o\r", grant(Scope::Once)),
        (" O \n", grant(Scope::Once)),
        ("x\x7fo\r", grant(Scope::Once)),
        ("r\r", grant(Scope::Run)),
        ("t\r", grant(Scope::Seconds { seconds: 900 })),
        ("d\r", Some(Decision::Deny {})),
        ("s\r", Some(Decision::Stop {})),
        ("\x03", Some(Decision::Deny {})),
        ("\r", None),
        ("o", None),
        ("oo\r", None),
        ("yes\r", None),
        ("hello o\r", None),
        ("l\r", None),
        ("\x1a", None),
        ("\x1b[200~o\r\x1b[201~", None),
        ("\x1b[1;1Ro\r", None),
        ("\u{e9}o\r", None),
        ("\x04o\r", None),
    ] {
        let mut scene = Scene::new("$ ").asked(&[pending(1, "/a")]).ready();
        assert_eq!(scene.answers(typed), expected, "{typed:?}");
    }
}

#[test]
fn what_is_no_answer_is_told_with_the_answers_where_there_is_room() {
    let told = |columns, typed: &str| {
        let mut scene = Scene::new("$ ").asked(&[pending(1, "/a")]);
        scene.size = Size { rows: 40, columns };
        let mut scene = scene.ready();
        scene.typed(typed);
        scene.turn().0
    };
    let short = "\r\x1b[KNo answer. A letter, Enter: ";
    assert_eq!(
        told(80, "x\r"),
        "\r\x1b[Kx is none of these; o, r, t, d, s, n or l, then Enter: "
    );
    assert_eq!(told(40, "x\r"), short);
    assert_eq!(told(80, "\r"), short);
    let mut scene = Scene::new("$ ").asked(&[pending(1, "/a")]);
    let (drawn, ..) = scene.turn();
    assert!(
        drawn.contains("l  later (Ctrl-] brings it back)"),
        "{drawn}"
    );
}

#[test]
fn what_is_typed_before_a_question_can_be_read_answers_nothing() {
    let mut scene = Scene::new("").asked(&[pending(1, "/a")]);
    assert_eq!(scene.typed("ls\r"), "ls\r");
    let (drawn, ..) = scene.turn();
    assert!(drawn.contains("A moment"), "{drawn}");
    // Not all of it is on the screen, for however long.
    scene.now += SETTLING * 3;
    assert_eq!(scene.answers("o\r"), None);
    scene.shown();
    // Somebody types on.
    for _ in 0..9 {
        scene.now += SETTLING * 9 / 10;
        assert_eq!(scene.answers("o\r"), None);
    }
    scene.wait(SETTLING);
    assert!(scene.answers("o\r").is_some());
    // The next question is another one: all of this begins anew.
    scene.desk.asked(vec![pending(2, "/b")]);
    scene.turn();
    assert_eq!(scene.answers("o\r"), None);
    scene.shown();
    assert_eq!(scene.answers("o\r"), None);
    // What came with a sequence, too.
    scene.wait(SETTLING);
    assert_eq!(scene.answers("o\x1b[A"), None);
    assert_eq!(scene.answers("\r"), None);
    assert_eq!(scene.answers("o\r"), None);
    scene.wait(SETTLING);
    assert_eq!(scene.answers("\r"), None);
    assert!(scene.answers("o\r").is_some());
}

#[test]
fn what_is_pasted_answers_nothing_however_slowly_it_comes() {
    // In one, in parts, and begun before there was a question.
    for begins in [&["\x1b[200~hello "][..], &["\x1b[", "200~hello "]] {
        for before in [false, true] {
            let mut scene = Scene::new("");
            let mut scene = match before {
                true => {
                    begins.iter().for_each(|part| drop(scene.typed(part)));
                    scene.asked(&[pending(1, "/a")]).ready()
                }
                false => {
                    let mut scene = scene.asked(&[pending(1, "/a")]).ready();
                    for part in begins {
                        assert_eq!(scene.answers(part), None);
                    }
                    scene
                }
            };
            for part in ["o\r", "\x03", "d\r", "r\r", "\x1b[20"] {
                scene.wait(SETTLING * 2);
                assert_eq!(scene.desk.due(), None);
                assert_eq!(scene.answers(part), None, "{part:?}");
            }
            assert_eq!(scene.answers("1~o\r"), None);
            assert!(scene.desk.due().is_some());
            assert_eq!(scene.answers("o\r"), None);
            // The control: it has ended, and is over.
            scene.wait(SETTLING);
            assert!(scene.answers("o\r").is_some());
        }
    }
}

#[test]
fn a_question_has_the_terminal_until_it_is_over() {
    let mut scene = Scene::new("text").asked(&[pending(1, "/a")]);
    let (drawn, ..) = scene.turn();
    assert!(drawn.starts_with("\x1b[?1049h"), "{drawn:?}");
    assert!(scene.desk.has_terminal());
    // Answered elsewhere, or its time was over.
    scene.desk.asked(Vec::new());
    let (left, ..) = scene.turn();
    assert!(left.ends_with("\x1b[?2004l\x1b[?1049l"), "{left:?}");
    assert!(!scene.desk.has_terminal());
    assert_eq!(scene.typed("o\r"), "o\r");
    // Put off, and brought back by the key, which is the program's at all other times.
    assert_eq!(scene.typed("\x1d"), "\x1d");
    let mut scene = scene.asked(&[pending(2, "/a")]).ready();
    assert_eq!(scene.answers("l\r"), None);
    assert!(!scene.desk.has_terminal());
    for form in ["\x1d", "\x1b[93;5u", "\x1b[27;5;93~"] {
        assert_eq!(scene.typed(&format!("ls{form}o\r")), "ls");
        let (drawn, ..) = scene.turn();
        assert!(drawn.contains("/a"), "{drawn}");
        scene.shown();
        scene.wait(SETTLING);
        assert_eq!(scene.answers("\x1a"), None);
        assert!(!scene.desk.has_terminal());
    }
}

#[test]
fn a_whole_screen_is_left_to_its_program_but_for_the_key() {
    let mut scene =
        Scene::new("\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[2;9r").asked(&[pending(1, "/a")]);
    assert_eq!(scene.turn(), ("\x07".to_owned(), None, None));
    assert_eq!(scene.turn().0, "");
    assert_eq!(scene.typed("\x1d"), "");
    let (drawn, ..) = scene.turn();
    assert!(
        drawn.starts_with("\x1b7\x1b[r\x1b[?25h\x1b[?1000l"),
        "{drawn:?}"
    );
    scene.shown();
    scene.wait(SETTLING);
    assert_eq!(scene.typed("d\r"), "");
    let (left, said, resized) = scene.turn();
    assert_eq!(said, Some(Decision::Deny {}));
    assert!(
        left.ends_with("\x1b8\x1b[?25l\x1b[?1000h\x1b7\x1b[2;9r\x1b8"),
        "{left:?}"
    );
    // It draws its screen anew: it is told of another size, and of its own again.
    assert_eq!(resized.unwrap().rows, SIZE.rows - 1);
    assert!(scene.desk.due().is_some());
    scene.now += REPAINTING;
    assert_eq!(scene.turn().2, Some(SIZE));
    assert_eq!(scene.desk.due(), None);
    // One that gives the screen back is asked at once.
    let mut scene = Scene::new("\x1b[?1049h").asked(&[pending(1, "/a")]);
    scene.turn();
    scene.filter.push(b"\x1b[?1049l", &mut Vec::new());
    assert!(scene.turn().0.contains("/a"));
}

#[test]
fn nothing_is_granted_before_its_last_page_was_there() {
    let long = format!("/{}/the-end", "x".repeat(4000));
    let mut scene = Scene::new("").asked(&[pending(1, &long)]);
    scene.size = Size {
        rows: 24,
        columns: 60,
    };
    let mut scene = scene.ready();
    let mut pages = 0;
    while scene.answers("o\r").is_none() {
        scene.shown();
        pages += 1;
        assert!(pages < 40);
    }
    assert!(pages > 2, "{pages}");
    // In a window that shows none nothing is granted, and everything can be denied.
    let mut scene = Scene::new("").asked(&[pending(1, "/a")]);
    scene.size = Size {
        rows: 8,
        columns: 30,
    };
    let mut scene = scene.ready();
    for _ in 0..40 {
        assert_eq!(scene.answers("o\r"), None);
    }
    assert_eq!(scene.answers("d\r"), Some(Decision::Deny {}));
}

/// Returns the lines that a terminal of this size shows, where only text is written.
fn lines(drawn: &str) -> Vec<String> {
    let from = drawn.rfind("\x1b[2J\x1b[H").unwrap() + 7;
    let text = drawn[from..].replace("\x1b[1m", "").replace("\x1b[0m", "");
    let text = text.replace("\r\x1b[K", "");
    assert!(!text.contains('\x1b'), "{text:?}");
    text.split("\r\n").map(str::to_owned).collect()
}

#[test]
fn every_page_fits_its_window_and_has_nothing_of_a_programs_but_letters() {
    let evil = "/\u{1b}[2J\u{430}\u{202e}\u{ff21}\r\nhost: other\u{301}";
    for rows in 4..60 {
        for columns in [10, 31, 40, 80, 200] {
            let mut scene = Scene::new("").asked(&[pending(1, evil), pending(2, "/b")]);
            scene.size = Size { rows, columns };
            let (drawn, ..) = scene.turn();
            let lines = lines(&drawn);
            assert!(
                lines.len() <= usize::from(rows),
                "{rows} {columns}: {lines:#?}"
            );
            for line in &lines {
                assert!(
                    line.len() < usize::from(columns),
                    "{rows} {columns}: {line}"
                );
                assert!(
                    line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                    "{line}"
                );
                assert!(!line.starts_with("host: other"), "{line}");
            }
            if columns == 200 && rows > 30 {
                assert!(lines[0].contains("1 more wait"), "{lines:?}");
                let at = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
                assert!(at("digest: ") < at("Text supplied by the program:"));
                assert!(at("Text supplied by the program:") < at("query: \"o\\r\\n\""));
                assert!(
                    lines.iter().any(|line| line.contains("\\u{430}")),
                    "{lines:#?}"
                );
            }
        }
    }
}

#[test]
fn no_text_of_a_program_is_a_line_of_atolls_own_on_any_page() {
    let size = Size {
        rows: 25,
        columns: 60,
    };
    // Lines as Atoll's own, each padded so that it would stand alone, whatever came before it.
    let fake = ["host: api.github.com", "path: /harmless", "method: GET"];
    for shift in 0..usize::from(size.columns) {
        let padded = fake.map(|line| format!("{line:width$}", width = shift + 20));
        let text = padded.concat().repeat(30);
        let mut question = pending(1, "/a");
        question.call.rule = text.clone();
        let request = question.call.request.as_mut().unwrap();
        request.query = Some(text.clone());
        request.telling_headers = vec![AskedHeader {
            name: "x-one".to_owned(),
            value: text,
        }];
        let subject = Subject::Call(Box::new(question.clone()));
        let pages = Pages::of(
            (&RunId::new(1, 1), None),
            &subject,
            (0, AskKey::default()),
            size,
        );
        assert!(pages.last() > 2);
        let mut has_words = false;
        for page in 0..=pages.last() {
            let mut shown = Vec::new();
            let drawn = Page {
                pages: &pages,
                page,
                prompt: Prompt::Answer,
                line: "",
            };
            drawn.draw(&mut shown);
            let lines = lines(&String::from_utf8(shown).unwrap());
            // Title, call, number, an empty line; an empty line stands before the answers, too.
            let body: Vec<&String> = lines[4..]
                .iter()
                .take_while(|line| !line.starts_with("o  "))
                .collect();
            let is_own = |line: &&&String| !line.starts_with("| ");
            let own = [
                "question",
                "host: example.com",
                "port",
                "what",
                "method: POST",
                "path: /a",
            ];
            let own = [
                &own[..],
                &[
                    "rule",
                    "waiting",
                    "digest",
                    "More of rule:",
                    "More of digest:",
                    WORDS,
                ],
            ]
            .concat();
            for line in body.iter().filter(is_own).filter(|line| !line.is_empty()) {
                assert!(
                    own.iter().any(|one| line.starts_with(one)),
                    "{shift}: {line}"
                );
            }
            has_words |= body.iter().any(|line| line.as_str() == WORDS);
            assert!(!body[0].starts_with("| "), "{shift}: {lines:#?}");
            if has_words {
                assert!(body.iter().any(|line| line.as_str() == WORDS), "{lines:#?}");
            }
        }
        assert!(has_words);
    }
}

#[test]
fn a_head_that_has_no_room_says_so_and_shows_the_end_of_its_host() {
    let mut question = pending(1, &format!("/{}", "x".repeat(90)));
    let head = |question: &Pending, columns| {
        let size = Size { rows: 40, columns };
        let mut scene = Scene::new("").asked(std::slice::from_ref(question));
        scene.size = size;
        lines(&scene.turn().0).swap_remove(1)
    };
    assert!(!head(&question, 200).ends_with("..."));
    let cut = head(&question, 60);
    assert!(
        cut.starts_with("example.com port 443 (https): POST /x"),
        "{cut}"
    );
    assert!(cut.ends_with("x..."), "{cut}");
    question.call.host = format!("github.com.{}.evil.net", "a".repeat(60));
    for columns in [31, 40, 60, 80] {
        let cut = head(&question, columns);
        assert!(cut.starts_with("..."), "{cut}");
        assert!(cut.ends_with("a.evil.net port 443..."), "{cut}");
    }
    // All of it stands below.
    question.call.host = format!("github.com.{}evil.net", "a.".repeat(110));
    let mut scene = Scene::new("").asked(std::slice::from_ref(&question));
    scene.size.columns = 60;
    let below = lines(&scene.turn().0)[4..].join("").replace("| ", "");
    assert!(below.contains(&question.call.host), "{below}");
    assert!(head(&question, 200).contains(".a.evil.net port 443"));
}

#[test]
fn a_window_of_another_size_is_drawn_anew_and_read_anew() {
    let mut scene = Scene::new("").asked(&[pending(1, "/a")]).ready();
    scene.typed("o");
    scene.size.columns = 60;
    scene.desk.resized();
    let (drawn, ..) = scene.turn();
    assert!(drawn.contains("page 1"), "{drawn}");
    assert_eq!(scene.answers("\r"), None);
    scene.shown();
    scene.wait(SETTLING);
    assert_eq!(scene.answers("\r"), None);
    assert!(scene.answers("o\r").is_some());
}

#[test]
fn a_key_is_one_that_nothing_else_needs() {
    for (text, shown) in [
        ("ctrl-]", "Ctrl-]"),
        ("CTRL-O", "Ctrl-O"),
        ("ctrl-\\", "Ctrl-\\"),
    ] {
        assert_eq!(text.parse::<AskKey>().unwrap().to_string(), shown);
    }
    for text in [
        "", "]", "ctrl-", "ctrl-c", "ctrl-m", "ctrl-[", "ctrl-ab", "ctrl-1", "^]",
    ] {
        assert!(text.parse::<AskKey>().is_err(), "{text}");
    }
}

fn listener(port: u16, at: ListensAt) -> Listener {
    Listener {
        port,
        at,
        program: Some("node".to_owned()),
    }
}

/// Returns the port that a person wants to have published by typing this, once a port is shown.
fn publishes(scene: &mut Scene, typed: &str) -> Option<u16> {
    assert_eq!(scene.typed(typed), "");
    let looked = scene.desk.turn(&scene.filter, SIZE, true, scene.now);
    assert_eq!(looked.answered, None);
    let port = looked.publishes?;
    assert_eq!(port.inside, port.outside);
    Some(port.inside)
}

#[test]
fn a_port_is_published_by_the_persons_key_and_letter_alone() {
    let listening = |port| {
        let mut scene = Scene::new("$ ");
        let key = scene
            .desk
            .listens(&listener(port, ListensAt::Loopback))
            .unwrap();
        assert_eq!(key, AskKey::default());
        scene.turn();
        assert!(!scene.desk.has_terminal(), "it came up by itself");
        scene
    };
    let shown = |port| {
        let mut scene = listening(port);
        assert_eq!(scene.typed("ls\x1drest"), "ls");
        let (drawn, ..) = scene.turn();
        assert!(
            drawn.contains(&format!("http://127.0.0.1:{port} on this host")),
            "{drawn}"
        );
        assert!(drawn.contains(WORDS) && drawn.contains("| name: node"));
        scene.shown();
        scene
    };
    // Nothing counts before it could be read.
    let mut scene = shown(3000);
    assert_eq!(publishes(&mut scene, "p\r"), None);
    scene.wait(SETTLING);
    assert_eq!(publishes(&mut scene, "p\r"), Some(3000));
    assert!(!scene.desk.has_terminal());
    // It was published once, and the key is the program's again.
    assert_eq!(scene.typed("\x1d"), "\x1d");
    for typed in ["l\r", "\x03", "\x1a"] {
        let mut scene = shown(3000);
        scene.wait(SETTLING);
        assert_eq!(publishes(&mut scene, typed), None);
        assert!(!scene.desk.has_terminal(), "{typed:?}");
        assert_eq!(scene.typed("\x1d"), "\x1d", "{typed:?}");
    }
    for typed in ["o\r", "r\r", "\r", "\x1b[200~p\r\x1b[201~"] {
        let mut scene = shown(3000);
        scene.wait(SETTLING);
        assert_eq!(publishes(&mut scene, typed), None);
        assert!(scene.desk.has_terminal(), "{typed:?}");
    }
    // Each of several in turn.
    let mut scene = listening(3000);
    scene.desk.listens(&listener(3001, ListensAt::Everywhere));
    scene.typed("\x1d");
    scene.turn();
    scene.shown();
    scene.wait(SETTLING);
    assert_eq!(publishes(&mut scene, "n\r"), None);
    scene.shown();
    scene.wait(SETTLING);
    assert_eq!(publishes(&mut scene, "p\r"), Some(3000));
}

#[test]
fn a_question_goes_before_a_port_and_a_whole_screen_keeps_its_key() {
    let mut scene = Scene::new("$ ");
    scene.desk.listens(&listener(3000, ListensAt::Loopback));
    scene.typed("\x1d");
    scene.turn();
    let mut scene = scene.asked(&[pending(1, "/a")]);
    let (drawn, ..) = scene.turn();
    assert!(drawn.contains("whether this may go out"), "{drawn}");
    // Nothing leads to what listens elsewhere.
    let mut scene = Scene::new("$ ");
    let at = listener(3000, ListensAt::Elsewhere);
    assert_eq!(scene.desk.listens(&at), None);
    assert_eq!(scene.typed("\x1d"), "\x1d");
    let mut scene = Scene::new("\x1b[?1049h");
    scene.desk.listens(&listener(3000, ListensAt::Loopback));
    scene.turn();
    assert_eq!(scene.typed("\x1d"), "\x1d");
}

#[test]
fn what_takes_two_persons_says_so_and_is_drawn_anew_once_one_has_agreed() {
    let mut scene = Scene::new("").asked(&[of_two(1, "/a")]);
    let (drawn, _, _) = scene.turn();
    assert!(
        drawn.contains("r  the same for this run (takes two)"),
        "{drawn}"
    );
    assert!(drawn.contains("o  once    "), "{drawn}");
    assert!(!drawn.contains("agreed: "), "{drawn}");
    scene.shown();
    scene.wait(SETTLING);
    let mut agreed = of_two(1, "/a");
    agreed.agreed = Some(atoll_sandbox::Agreed {
        scope: Scope::Run,
        breadth: ApprovalScope::Same,
        by: atoll_sandbox::Who { uid: 1001, pid: 1 },
    });
    agreed.second = Some(atoll_sandbox::Second {
        owner: 1000,
        persons: vec![1000, 1002],
    });
    scene.desk.asked(vec![agreed]);
    let (drawn, _, _) = scene.turn();
    assert!(drawn.contains("agreed: "), "{drawn}");
    // What was typed at the page before counts for nothing.
    assert_eq!(scene.answers("r\r"), None);
    // The control: alone one person says it.
    let (drawn, _, _) = Scene::new("").asked(&[pending(1, "/a")]).turn();
    assert!(!drawn.contains("takes two"), "{drawn}");
}

/// Nobody types any more then, and the program's last output is to be shown.
#[test]
fn a_page_leaves_the_terminal_when_the_program_ends() {
    let mut scene = Scene::new("$ ");
    scene.desk.listens(&listener(3000, ListensAt::Loopback));
    scene.typed("\x1d");
    scene.turn();
    scene.shown();
    assert!(scene.desk.has_terminal(), "the control");
    scene.desk.over();
    let (shown, ..) = scene.turn();
    assert!(!scene.desk.has_terminal());
    assert!(shown.contains("\x1b[?1049l"), "{shown:?}");
    assert_eq!(
        scene.desk.listens(&listener(3001, ListensAt::Loopback)),
        None
    );
    let mut scene = Scene::new("$ ").asked(&[pending(1, "/a")]).ready();
    scene.desk.over();
    scene.turn();
    assert!(!scene.desk.has_terminal());
}

#[test]
fn a_port_that_takes_two_persons_is_shown_so_with_who_the_other_can_be() {
    let drawn = |second: Option<&str>| {
        let mut scene = Scene::new("$ ");
        scene.desk.second = second.map(str::to_owned);
        scene.desk.listens(&listener(3000, ListensAt::Loopback));
        scene.turn();
        scene.typed("\x1d");
        scene.turn().0
    };
    let two = drawn(Some("ada or ben"));
    for text in [
        "p  publish (takes two)",
        "persons: it takes two: once you say yes, within two minutes ada or ben",
    ] {
        assert!(two.contains(text), "{text}: {two}");
    }
    // The control.
    let one = drawn(None);
    assert!(one.contains("p  publish ") && !one.contains("two"), "{one}");
}
