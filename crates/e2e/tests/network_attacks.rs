//! Ways past the allowed destinations, tried from a sandbox on a small internet that records its
//! clients; each with a control, in which one more rule, or a program that leaves one defence out,
//! lets the same program through.
//!
//! Start reading at [`ROWS`]. The programs are in `network_attacks/attack.py`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::internet::{Seen, is_possible, on_internet, online};
use e2e::{Avoidable, World};

use crate::attacks::harness::{SWITCH, WEAKENED};

const LONG: Duration = Duration::from_secs(60);
const PROGRAM: &str = include_str!("network_attacks/attack.py");

/// The change that makes the same attack succeed.
#[derive(Clone, Copy, Debug)]
enum Control {
    /// One more rule, which allows this to be reached or asked for.
    Allowing(&'static str),
    /// These defences left out, no others, and nothing allowed: the egress process would listen
    /// where the small internet does.
    Without(&'static str),
}

use Control::{Allowing, Without};

/// One way to reach what no rule allows.
struct Row {
    /// The way, in the program.
    way: &'static str,
    allow: &'static [&'static str],
    /// The most that the internet may record: the destinations reached, and the names asked for.
    reaches: &'static [&'static str],
    asks: &'static [&'static str],
    /// The record that the control must leave.
    mark: &'static str,
    control: Control,
}

const EXAMPLE: &[&str] = &["--allow", "example.com"];
/// The servers of example.com, the only ones that may be reached.
const OF_EXAMPLE: &[&str] = &["93.184.216.34 80", "93.184.216.34 443"];

const ROWS: &[Row] = &[
    Row {
        way: "spellings",
        allow: EXAMPLE,
        reaches: OF_EXAMPLE,
        asks: &["example.com"],
        mark: "93.184.216.35 80",
        control: Allowing("other.example"),
    },
    Row {
        way: "spellings",
        allow: &["--allow", "*.example.com"],
        reaches: &[],
        asks: &["*.example.com"],
        mark: "10.1.2.3 80",
        control: Allowing("10.0.0.0/8"),
    },
    // Everything on the internet is less than everything.
    Row {
        way: "spellings",
        allow: &[
            "--allow",
            "*",
            "--deny",
            "other.example",
            "--deny",
            "93.184.216.35",
        ],
        reaches: OF_EXAMPLE,
        asks: &["*"],
        mark: "169.254.169.254 80",
        control: Allowing("169.254.169.254"),
    },
    Row {
        way: "labels",
        allow: &["--allow", "*.example.com"],
        reaches: &[],
        asks: &["*.example.com"],
        mark: "asked other.example",
        control: Without("network"),
    },
    Row {
        way: "tunnel",
        allow: EXAMPLE,
        reaches: &[],
        asks: &[],
        mark: "asked *.t.tunnel.example",
        control: Without("network"),
    },
    // Each answer is judged, and what was judged is what is dialled.
    Row {
        way: "turns",
        allow: &["--allow", "turns.example"],
        reaches: &["93.184.216.34 80"],
        asks: &["turns.example"],
        mark: "10.1.2.3 80",
        control: Allowing("10.1.2.3"),
    },
    Row {
        way: "datagrams",
        allow: &["--allow", "*:*"],
        reaches: &[],
        asks: &[],
        mark: "udp 123",
        control: Without("network"),
    },
    Row {
        way: "rare",
        allow: EXAMPLE,
        reaches: &[],
        asks: &[],
        mark: "93.184.216.35 80",
        control: Without("network"),
    },
    Row {
        way: "own-doors",
        allow: EXAMPLE,
        reaches: &[],
        asks: &[],
        mark: "93.184.216.35 80",
        control: Allowing("other.example"),
    },
    Row {
        way: "marks",
        allow: EXAMPLE,
        reaches: &[],
        asks: &[],
        mark: "93.184.216.35 80",
        control: Allowing("93.184.216.35"),
    },
    Row {
        way: "other-names-of-a-connection",
        allow: &["--allow", "example.com", "--allow", "other.example"],
        reaches: OF_EXAMPLE,
        asks: &["example.com"],
        mark: "first \\x16\\x03",
        control: Without("network"),
    },
];

/// Writes the program into the workspace, where a run can read it.
fn place_program(world: &World) {
    fs::write(world.workspace().join("attack.py"), PROGRAM).unwrap();
}

/// Returns the records of the small internet: the destinations reached, `asked` and a name, `first`
/// and the first bytes of a connection.
fn marks(seen: &Seen) -> Vec<String> {
    let asked = seen.asked.iter().map(|name| format!("asked {name}"));
    let first = seen.first.lines().map(|first| format!("first {first}"));
    seen.reached
        .iter()
        .cloned()
        .chain(asked)
        .chain(first)
        .collect()
}

/// Returns whether a line matches: `*` stands for anything.
fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once('*') {
        Some((before, after)) => line.starts_with(before) && line.ends_with(after),
        None => line == pattern,
    }
}

impl Row {
    fn attack(&self, world: &World) {
        let script = format!("python3 attack.py {}", self.way);
        let seen = online(world, self.allow, &script);
        let what = format!(
            "{} {:?} asked {:?} reached {:?} {}",
            self.way, self.allow, seen.asked, seen.reached, seen.outcome
        );
        assert!(seen.outcome.code() == 0, "{what}");
        for reached in &seen.reached {
            assert!(
                self.reaches.contains(&reached.as_str()),
                "{reached}; {what}"
            );
        }
        for asked in &seen.asked {
            let may = self.asks.iter().any(|pattern| fits(pattern, asked));
            assert!(may, "{asked:?}; {what}");
        }
        for first in seen.first.lines() {
            assert!(!first.contains("\\x16\\x03"), "{first}; {what}");
        }
    }

    fn control(&self, world: &World, weakened: &Path) {
        let script = format!("python3 attack.py {}", self.way);
        let seen = match self.control {
            Allowing(rule) => {
                let allow = [self.allow, &["--allow", rule]].concat();
                online(world, &allow, &script)
            }
            Without(defences) => {
                let run = on_internet(world, "\"$ATOLL\" run --discard \"$@\"");
                let run = run.env("ATOLL", weakened).env(SWITCH, defences);
                let run = run.args(["sh", "--", "sh", "-c", &script]);
                Seen::of(world, run.run())
            }
        };
        let marks = marks(&seen);
        let reached = marks
            .iter()
            .any(|mark| match self.mark.strip_prefix("first ") {
                Some(first) => mark.contains(first),
                None => fits(self.mark, mark),
            });
        assert!(
            reached,
            "control of {}, {:?}: {marks:?} {}",
            self.way, self.control, seen.outcome
        );
    }
}

#[test]
fn nothing_that_no_rule_allows_is_reached_by_any_way() {
    let world = World::new("nothing_that_no_rule_allows_is_reached_by_any_way");
    if !is_possible(&world, &[]) {
        return;
    }
    let Some(weakened) = std::env::var_os(WEAKENED) else {
        return world.skip(&format!("{WEAKENED} names no program"), Avoidable::Yes);
    };
    let weakened = world.as_the_user("weakened-as-the-user", Path::new(&weakened));
    place_program(&world);
    let tried = |row: &Row| {
        row.attack(&world);
        row.control(&world, &weakened);
    };
    let failed = ROWS.iter().filter_map(|row| {
        let tried = std::panic::AssertUnwindSafe(|| tried(row));
        let broken = std::panic::catch_unwind(tried).err()?;
        let told = broken.downcast_ref::<String>().cloned();
        Some(told.unwrap_or_else(|| row.way.to_owned()))
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A program that takes as many connections as there can be takes none of anybody else's.
#[test]
fn who_takes_all_connections_leaves_neighbours_theirs() {
    let world = World::new("who_takes_all_connections_leaves_neighbours_theirs");
    if !is_possible(&world, &[]) {
        return;
    }
    place_program(&world);
    let visits = "for i in 1 2 3 4 5 6 7 8 9 10; do \
                  curl -sS -m 30 --noproxy '*' http://example.com/ || echo none; done";
    // It holds what it has until its input ends.
    let command = format!(
        "sh -c 'mkfifo go; \"$ATOLL\" run --discard --allow example.com:7 -- \
         python3 attack.py connections <go >held & exec 9>go; \
         until grep -q all held; do sleep 0.05; done; \
         \"$ATOLL\" run --discard --allow example.com -- sh -c \"$0\"; exec 9>&-; wait; cat held' \"{visits}\""
    );
    let outcome = on_internet(&world, &command).within(LONG).run();
    let said = outcome.out();
    let visits = said.matches("this is 93.184.216.34").count();
    assert_eq!(visits, 10, "{outcome}");
    let held = said.lines().find_map(|line| line.strip_prefix("held "));
    let held: u32 = held.unwrap().parse().unwrap();
    // As many as a network holds at a time, and no fewer.
    assert!((900..=1024).contains(&held), "{outcome}");
}
