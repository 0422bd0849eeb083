//! The checks of circles, methods, parameters and totals.

use super::{budgets, check, falling, found, lines, rules, tree};
use crate::tidy::rules::Circles;
use crate::tidy::shapes;

#[test]
fn circles_of_files_neither_rise_nor_stay_high() {
    let type_of_parent = "use super::A;";
    // Each case: the files `a`, `a/b`, `a/b/c`; the largest circle; the files in circles.
    let cases = [
        (["use crate::a::b::B;", "", "use crate::a::A;"], 0, 0),
        (["mod b;\nuse b::B;", type_of_parent, ""], 2, 2),
        (["use self::b::B;", "type C = super::A;", ""], 2, 2),
        (
            [
                "use crate::{a::b::{c::C}};",
                "use super::A;",
                "use super::B;",
            ],
            3,
            3,
        ),
        (["pub use b::B;", "", "use crate::a::B;"], 0, 0),
        (
            [
                "pub use b::B;",
                "use self::c::C;",
                "use super::super::B as D;",
            ],
            2,
            2,
        ),
        (
            [
                "use b::{self};",
                "fn f() { self.a }\npub(super) fn g() {}",
                type_of_parent,
            ],
            0,
            0,
        ),
        (
            ["mod b;", "#[cfg(test)]\nuse super::A;", type_of_parent],
            0,
            0,
        ),
        (["use b::B;", "// use super::A;", ""], 0, 0),
    ];
    for (texts, largest, files) in cases {
        let paths = ["a.rs", "a/b.rs", "a/b/c.rs"].map(|path| format!("crates/frame/src/{path}"));
        let tree = tree(&[0, 1, 2].map(|at| (paths[at].as_str(), texts[at])));
        let mut rules = rules();
        let mut findings = |largest, files| {
            rules.falling.circles = Circles { largest, files };
            falling::check(&tree, &rules).len()
        };
        assert_eq!(findings(largest, files), 0, "{texts:?}");
        assert_eq!(findings(largest + 1, files + 1), 2, "{texts:?}");
        if files > 0 {
            assert_eq!(findings(largest - 1, files - 1), 2, "{texts:?}");
        }
    }
}

#[test]
fn methods_are_counted_by_type_in_all_files() {
    let text = "impl<T: Fn() -> u8> A<T> {\n    fn a() {\n        fn inner() {}\n    }\n}\n\
                impl Display for A {\n    fn b() {}\n}\nfn c(\n    x: impl Fn(),\n) {}\n\
                pub struct A;\nmod b;\n";
    let files = [
        ("crates/frame/src/a.rs", text),
        (
            "crates/frame/src/a/b.rs",
            "use super::A;\nimpl A {\n    pub fn d() {}\n}\n",
        ),
        (
            "crates/frame/src/c.rs",
            "struct A;\nimpl A {\n    fn e() {}\n}\n",
        ),
        (
            "crates/frame/src/tests.rs",
            "use super::a::A;\nimpl A {\n    fn f() {}\n}\n",
        ),
    ];
    let cases: [(usize, Option<usize>, &[&str]); 5] = [
        (2, None, &[]),
        (
            1,
            None,
            &["crates/frame:1: 2 instead of 1 methods of `frame::a::A`"],
        ),
        (1, Some(2), &[]),
        (
            1,
            Some(3),
            &["crates/frame:1: 2 instead of 3 methods of `frame::a::A`"],
        ),
        (
            2,
            Some(3),
            &["crates/frame:1: 2 instead of 3 methods of `frame::a::A`"],
        ),
    ];
    for (limit, allowed, expected) in cases {
        let mut rules = rules();
        rules.budgets.methods = limit;
        let named = allowed.map(|allowed| ("frame::a::A".to_owned(), allowed));
        rules.falling.methods = named.into_iter().collect();
        let findings = lines(falling::check(&tree(&files), &rules));
        assert_eq!(findings, expected, "{limit} {allowed:?}");
    }
}

#[test]
fn parameters_are_counted_without_self() {
    let cases = [
        ("fn f() {}", 0),
        ("fn f<'a, T: Fn(u8) -> u8>(&'a mut self, a: T) {}", 1),
        (
            "fn f(self: Arc<Self>, a: fn(u8, u8) -> u8, (b, c): (A, B));",
            2,
        ),
        (
            "fn f(\n    a: Map<A, B>,\n    b: impl Fn(A, B) -> C,\n) {}",
            2,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(shapes::parameters(text), [(1, "f", expected)], "{text}");
    }
    assert!(shapes::parameters("type F = fn(u8);").is_empty());
    let eight = format!("\nfn f({}) {{}}", "a: u8, ".repeat(8));
    assert_eq!(
        found(&[("crates/model/src/a.rs", &eight)]),
        ["crates/model/src/a.rs:2: `f` has 8 parameters, more than 7"]
    );
    assert!(found(&[("crates/model/src/tests.rs", &eight)]).is_empty());
}

#[test]
fn product_lines_leave_out_tests_and_comments() {
    let text = "//! Why.\n\nfn a() {}\n#[cfg(test)]\nmod samples;\n";
    let tree = tree(&[
        ("crates/model/src/lib.rs", text),
        ("crates/model/src/samples.rs", "fn b() {}\n"),
        ("crates/model/src/tests.rs", "fn c() {}\n"),
        ("crates/xtask/src/a.rs", "fn d() {}\n"),
        ("crates/e2e/tests/a.rs", "fn e() {}\n"),
    ]);
    assert_eq!(budgets::product_lines(&tree), 1);
    assert!(check(&tree, &rules(), None).is_empty());
}

#[test]
fn audited_lines_stand_still_and_product_lines_may_shrink() {
    let mut rules = rules();
    rules.budgets.audited_lines = 5;
    rules.budgets.product_lines = 5;
    for (audited, product, expected) in [(5, 5, 0), (5, 4, 0), (5, 6, 1), (4, 5, 1), (6, 5, 1)] {
        let findings = budgets::totals(&rules, audited, product);
        assert_eq!(findings.len(), expected, "{audited} {product}");
    }
}
