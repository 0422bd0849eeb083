use super::*;

/// A sandboxed program chooses names: one name could pass for another's line.
#[test]
fn two_names_that_look_the_same_are_both_listed() {
    let met = |path: &str| UndoReport {
        changed: vec![At {
            path: host_text(path),
            why: "it changed".to_owned(),
        }],
        stays: vec![Stay {
            directory: host_text(path),
            holds: Vec::new(),
        }],
        ..UndoReport::default()
    };
    let (one, other) = ("a\u{1b}", r"a\x1b");
    assert_eq!(printable(one.as_bytes()), printable(other.as_bytes()));
    let both = met(one).and(met(other)).and(met(one));
    assert_eq!((both.changed.len(), both.stays.len()), (2, 2));
}
