//! Warnings about a token that is narrowed to less than its holder may think.

use atoll_tokens::{Right, Terms, told_time};

/// Returns the terms without effect, given the token's terms before.
pub fn told(before: &[Terms], terms: &Terms) -> Vec<String> {
    let is_carried = |right: &Right| {
        let mut blocks = before.iter().filter(|one| !one.rights.is_empty());
        blocks.all(|block| block.rights.iter().any(|own| own.meets(right)))
    };
    let lost: Vec<&Right> = terms.rights.iter().filter(|one| !is_carried(one)).collect();
    let mut told: Vec<String> = lost
        .iter()
        .map(|right| format!("the token before does not carry '{right}'"))
        .collect();
    if !lost.is_empty() && lost.len() == terms.rights.len() {
        told.push("the narrower token carries nothing".to_owned());
    }
    let ends = before.iter().filter_map(|one| one.until_s);
    let end = ends
        .min()
        .filter(|end| terms.until_s.is_some_and(|until| until > *end));
    told.extend(end.and_then(told_time).map(|end| {
        format!("the token before ends earlier, at {end}, and the narrower one with it")
    }));
    let another = |one: &&Terms| {
        let session = one.session.as_ref().zip(terms.session.as_ref());
        session.is_some_and(|(own, said)| own != said)
    };
    told.extend(before.iter().find(another).map(|_| {
        "the token before counts in another session alone: the narrower one counts nowhere"
            .to_owned()
    }));
    let elsewhere = |one: &&Terms| {
        let workspace = one.workspace.as_ref().zip(terms.workspace.as_ref());
        workspace.is_some_and(|(own, said)| own != said)
    };
    told.extend(before.iter().find(elsewhere).map(|_| {
        "the token before counts in another workspace alone: the narrower one counts nowhere"
            .to_owned()
    }));
    told
}
