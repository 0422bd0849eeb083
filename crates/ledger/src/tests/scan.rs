use proptest::prelude::*;
use serde_json::{Map, Value};

use super::power::Dice;
use super::*;
use crate::event::Draft;
use crate::scan::scan;

/// Checks that the quick reading and the full one agree on an event's bytes; returns whether the
/// quick one passed them.
fn agrees(event: &[u8]) -> bool {
    let mut line = TreeHash::of_leaf(event).to_string().into_bytes();
    line.push(b' ');
    line.extend_from_slice(event);
    let (full, quick) = (Event::read(&line, 1, 0), scan(event));
    let shown = || String::from_utf8_lossy(event).into_owned();
    if let Some(quick) = &quick {
        let full = full.unwrap_or_else(|why| panic!("{why}: {}", shown()));
        assert_eq!(quick.seq, full.position.seq, "{}", shown());
        assert_eq!(quick.prev, full.prev, "{}", shown());
        assert_eq!(quick.kind, full.kind, "{}", shown());
    }
    quick.is_some()
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(Value::from),
        (-(1_i64 << 53)..=1 << 53).prop_map(Value::from),
        "[ -~\\x00-\\x1fäé😂\u{2028}]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z_-]{0,4}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn bytes_of(body: Value, seq: u64, has_run: bool) -> Vec<u8> {
    let body = json!({ "body": body });
    let run = run_id(7);
    let draft = Draft::new("test.noted", has_run.then_some(&run), &body).unwrap();
    let prev = TreeHash::of_leaf(b"before");
    let (line, _) = draft.line(seq, prev, SystemTime::now()).unwrap();
    line[65..line.len() - 1].to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The ledger's own output is read quickly, and no altered form of it passes where a full
    /// reading would refuse it.
    #[test]
    fn a_quick_reading_passes_what_a_full_one_passes(
        body in value(),
        seq in 0..=1_u64 << 53,
        has_run in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let event = bytes_of(body, seq, has_run);
        prop_assert!(agrees(&event), "{}", String::from_utf8_lossy(&event));
        let mut dice = Dice(seed);
        const LIKELY: &[u8] = b"\"\\{}[],:-+.0123456789eEuntrfalsbv \n\x00\x7f\xff";
        for _ in 0..60 {
            let mut altered = event.clone();
            for _ in 0..=dice.below(3) {
                let at = dice.below(altered.len());
                match dice.below(5) {
                    0 => { altered.remove(at); }
                    1 => altered.insert(at, LIKELY[dice.below(LIKELY.len())]),
                    2 => altered[at] ^= 1 << dice.below(8),
                    3 => altered.swap(at, dice.below(event.len() / 2)),
                    _ => altered[at] = LIKELY[dice.below(LIKELY.len())],
                }
            }
            agrees(&altered);
        }
    }
}

#[test]
fn a_quick_reading_is_as_strict_as_a_full_one() {
    let event = String::from_utf8(bytes_of(json!({ "a": 1, "b": "x" }), 7, true)).unwrap();
    assert!(agrees(event.as_bytes()));
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for (from, to, passes) in [
        ("\"a\":1", "\"a\":0", true),
        ("\"a\":1", "\"a\":-0", false),
        ("\"a\":1", "\"a\":01", false),
        ("\"a\":1", "\"a\":1.0", false),
        ("\"a\":1", "\"a\":1e3", false),
        ("\"a\":1", "\"a\":-1", true),
        ("\"a\":1", "\"a\":9007199254740992", true),
        ("\"a\":1", "\"a\":9007199254740993", false),
        ("\"a\":1", "\"a\":-9007199254740993", false),
        ("\"a\":1", "\"a\":99999999999999999999", false),
        ("\"a\":1", "\"a\":1,\"a\":1", false),
        ("\"a\":1", "\"c\":1", false),
        ("\"a\":1", "\"A\":{},\"a\":[]", true),
        ("\"a\":1", "\"ä\":1", false),
        ("\"a\":1", "\"a\":[1,]", false),
        ("\"a\":1", "\"a\":tru", false),
        ("\"x\"", "\"\\/\"", false),
        ("\"x\"", "\"\\n\"", true),
        ("\"x\"", "\"\\u000a\"", false),
        ("\"x\"", "\"\\u001f\"", true),
        ("\"x\"", "\"\\u001F\"", false),
        ("\"x\"", "\"\\u0020\"", false),
        ("\"x\"", "\"\\ud83d\\ude00\"", false),
        ("\"x\"", "\"\u{7f}\"", true),
        ("\"v\":1", "\"v\":2", false),
        ("\"seq\":7", "\"seq\":9007199254740993", false),
        ("test.noted", "test", false),
        ("\"x\"", &nested(62), true),
        ("\"x\"", &nested(63), false),
    ] {
        let altered = event.replacen(from, to, 1);
        assert_ne!(altered, event, "{from}");
        assert_eq!(agrees(altered.as_bytes()), passes, "{to}");
    }
}
