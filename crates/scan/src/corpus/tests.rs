use super::*;

fn shown(measured: &Measured) -> String {
    let few = |kinds: BTreeMap<&str, usize>| format!("{kinds:#?}");
    let alarms: Vec<String> = measured
        .alarms
        .iter()
        .map(|(rule, one)| format!("{rule}: {}: {:?}", one.kind, one.text))
        .collect();
    let misses: Vec<String> = measured
        .misses
        .iter()
        .map(|one| format!("{}: {:?}", one.kind, one.text))
        .collect();
    format!(
        "{:#?}\nmissed {}\nmisses\n{}\nalarms\n{}",
        measured.figures,
        few(measured.missed_kinds()),
        misses.join("\n"),
        alarms.join("\n")
    )
}

#[test]
fn samples_are_the_same_for_a_seed() {
    for scanner in [Scanner::Secrets, Scanner::PersonalData] {
        let all = samples(scanner, 7);
        assert!(all.len() > 500);
        assert_eq!(all, samples(scanner, 7));
        assert_ne!(all, samples(scanner, 9));
        for one in all {
            assert!(one.line.is_none_or(|line| line <= one.text.lines().count()));
        }
    }
}

/// Neither the seed that is measured nor another is what the rules were made for.
fn check(scanner: Scanner, recall: f64, precision: f64) {
    for seed in [SEED, 7] {
        let measured = measure_on(scanner, samples(scanner, seed)).unwrap();
        let figures = &measured.figures;
        let is_enough = figures.recall >= recall && figures.precision >= precision;
        assert!(is_enough, "{}", shown(&measured));
        assert_eq!(measured.misses.len(), figures.missed);
        assert_eq!(measured.alarms.len(), figures.false_alarms);
    }
    assert!(measure(scanner).is_ok());
}

#[test]
fn secrets_are_found_in_the_corpus() {
    check(Scanner::Secrets, 0.98, 0.98);
}

#[test]
fn personal_data_is_found_in_the_corpus() {
    check(Scanner::PersonalData, 0.98, 0.98);
}

#[test]
fn scanners_without_samples_are_not_measured() {
    let measured = measure(Scanner::Programs);
    assert!(matches!(
        measured,
        Err(Unmeasured::NoSamples(Scanner::Programs))
    ));
}
