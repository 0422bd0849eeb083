//! Reading what a run of Rust's test harness printed, and what tests wrote
//! about themselves into the file of skips.

/// How one test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    Ignored(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) test: String,
    pub(crate) end: End,
}

/// The sums of the last lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    pub(crate) filtered_out: usize,
    /// How many such lines there were: none when the process died.
    pub(crate) count: usize,
}

/// A test that found that it could not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) test: String,
    pub(crate) reason: String,
    /// Whether a host of this kind could have run it.
    pub(crate) avoidable: bool,
}

/// Lines like `test path::name ... ok`.
pub(crate) fn lines(output: &str) -> Vec<Line> {
    output.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Line> {
    // A program that a test started may have printed before, without a newline.
    let (_, rest) = if line.starts_with("test ") {
        line.split_once("test ")?
    } else {
        line.rsplit_once("test ")
            .filter(|(_, rest)| !rest.trim().contains("  "))?
    };
    let (name, end) = rest.rsplit_once(" ... ")?;
    let name = name.trim_end_matches(" - should panic");
    let end = match end.trim() {
        "FAILED" => End::Failed,
        other if other.starts_with("ignored") => {
            let reason = other
                .trim_start_matches("ignored")
                .trim_start_matches(',')
                .trim();
            End::Ignored(reason.to_owned())
        }
        other if other == "ok" || other.starts_with("ok ") => End::Passed,
        _ => return None,
    };
    Some(Line {
        test: name.to_owned(),
        end,
    })
}

/// Lines like `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
pub(crate) fn sums(output: &str) -> Sums {
    let mut sums = Sums::default();
    for line in output.lines() {
        let Some((_, result)) = line.split_once("test result: ") else {
            continue;
        };
        let number = |label: &str| -> usize {
            result
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(label)?.trim().parse().ok())
                .unwrap_or(0)
        };
        sums.passed += number("passed");
        sums.failed += number("failed");
        sums.ignored += number("ignored");
        sums.filtered_out += number("filtered out");
        sums.count += 1;
    }
    sums
}

/// Lines like `name<TAB>reason<TAB>avoidable`, one for each test.
pub(crate) fn skips(text: &str) -> Vec<Skip> {
    let mut skips: Vec<Skip> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut parts = line.split('\t');
        let test = parts.next().unwrap_or_default().trim();
        let reason = parts.next().unwrap_or("no reason given").trim();
        // Whoever does not say that it could not be avoided has to look again.
        let avoidable = parts.next().map(str::trim) != Some("unavoidable");
        if !skips.iter().any(|skip| skip.test == test) {
            skips.push(Skip {
                test: test.to_owned(),
                reason: reason.to_owned(),
                avoidable,
            });
        }
    }
    skips
}

/// Whether a name that a test gave itself is the one the harness printed.
pub(crate) fn same_test(printed: &str, given: &str) -> bool {
    printed == given || printed.ends_with(&format!("::{given}"))
}
