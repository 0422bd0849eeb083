use super::*;

fn said(organisation: Option<&str>, config: Option<&str>) -> (bool, Vec<String>) {
    let mut world = world();
    world.organisation = organisation.map(str::to_owned);
    world.config = config.map(str::to_owned);
    let rules = world.rules();
    let widened = rules.widened();
    let names = widened.approvers.iter().map(|one| one.name.clone());
    (widened.by_two.is_some(), names.collect())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The stricter number counts, and the organisation names the approvers.
#[test]
fn what_widens_takes_as_many_as_the_stricter_file_says() {
    let two = "[approvals]\nwiden = 2\napprovers = ['ada', '1001']\n";
    // A number is one, however it is written.
    let numbers = "[approvals]\nwiden = 2\napprovers = [1001, '1002']\n";
    assert_eq!(said(None, Some(numbers)), (true, names(&["1001", "1002"])));
    let one = "[approvals]\nwiden = 1\napprovers = ['eve']\n";
    assert_eq!(said(None, None), (false, names(&[])));
    assert_eq!(said(None, Some(two)), (true, names(&["ada", "1001"])));
    assert_eq!(said(Some(two), None), (true, names(&["ada", "1001"])));
    assert_eq!(said(Some(two), Some(one)), (true, names(&["ada", "1001"])));
    assert_eq!(said(Some(one), Some(two)), (true, names(&["eve"])));
    let nobody = "[approvals]\nwiden = 2\napprovers = []\n";
    assert_eq!(said(Some(nobody), Some(two)), (true, names(&[])));
    let alone = "[approvals]\nwiden = 2\n";
    assert_eq!(said(Some(alone), Some(one)), (true, names(&["eve"])));
}

#[test]
fn mistakes_in_it_and_a_profiles_or_projects_word_are_refused() {
    let wrong = [
        "widen = 3",
        "widen = 0",
        "widen = true",
        "widen = 'two'",
        "approvers = 'ada'",
        "approvers = ['']",
        "approvers = ['a:b']",
        "approvers = [0x3e9]",
        "approvers = [true]",
        "persons = 2",
    ];
    for line in wrong {
        let text = format!("[approvals]\n{line}\n");
        for is_organisation in [true, false] {
            let mut world = world();
            match is_organisation {
                true => world.organisation = Some(text.clone()),
                false => world.config = Some(text.clone()),
            }
            assert!(world.compile().is_err(), "{line}");
        }
    }
    let text = "[approvals]\nwiden = 1\n";
    assert!(world().profile("p", text).with("p").compile().is_err());
    assert!(world().project(text).compile().is_err());
}
