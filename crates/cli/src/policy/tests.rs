use super::*;

/// The facts stated with `--with` shape the rules like the options of a run do.
#[test]
fn with_stated_facts_make_the_rules() {
    let with = |lines: &[&str]| AskPolicyArguments {
        what: Some("run".to_owned()),
        resource: Some("git".to_owned()),
        with: lines.iter().map(|one| (*one).to_owned()).collect(),
        ..AskPolicyArguments::default()
    };
    let requested =
        |arguments: &AskPolicyArguments| stated(arguments, &case(arguments).unwrap()).unwrap();
    let facts = [
        "trust = 'none'",
        "task = 'mend it'",
        "purpose = 'review'",
        "profile = 'codex'",
    ];
    let options = AskPolicyArguments {
        trust: Some("none".to_owned()),
        task: Some("mend it".to_owned()),
        purpose: Some("review".to_owned()),
        profile: Some("codex".to_owned()),
        ..with(&[])
    };
    assert_eq!(requested(&with(&facts)), requested(&options));
    // An option is what is meant where both say something.
    let both = AskPolicyArguments {
        trust: Some("low".to_owned()),
        ..with(&facts)
    };
    assert_eq!(requested(&both).trust.as_deref(), Some("low"));
}

#[test]
fn stated_fact_that_does_not_count_is_refused() {
    let of = |trust: Option<&str>| Case {
        trust: trust.map(str::to_owned),
        ..Case::default()
    };
    assert_eq!(uncounted(&of(Some("low")), &of(Some("low"))), None);
    assert_eq!(uncounted(&of(None), &of(Some("low"))), None);
    let told = uncounted(&of(Some("high")), &of(Some("low"))).unwrap();
    assert_eq!(
        told,
        "trust is stated as \"high\", and counts as \"low\" by the rules here"
    );
    assert!(uncounted(&of(Some("high")), &of(None)).is_some());
}
