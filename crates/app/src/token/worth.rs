//! What a token is good for, by all of its blocks together.

use atoll_tokens::{Part, Right, Terms, told_time};

/// What a token carries at most.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worth {
    /// The rights of its last block that names some, each in words.
    pub(super) rights: Vec<String>,
    /// Where and until when alone, in words; nothing of what is anywhere and for ever.
    within: Vec<String>,
}

/// What these blocks carry at most. What somebody else's program has appended can narrow it further.
///
/// # Errors
/// Why that is nothing.
pub(super) fn worth(parts: &[Part], now_s: u64) -> Result<Worth, String> {
    let blocks: Vec<&Terms> = parts
        .iter()
        .filter_map(|part| part.terms.as_ref())
        .collect();
    let begins = blocks.iter().filter_map(|one| one.from_s).max();
    if let Some(begins) = begins.filter(|begins| *begins > now_s) {
        let begins = told_time(begins).unwrap_or_default();
        return Err(format!("it begins at {begins}: is the clock set back?"));
    }
    let sessions = blocks.iter().filter_map(|one| one.session.as_ref());
    let session = one_alone(sessions)
        .ok_or("its blocks are for different sessions, and no run is in both of them")?;
    let workspaces = blocks.iter().filter_map(|one| one.workspace.as_ref());
    let workspace = one_alone(workspaces)
        .ok_or("its blocks are for different workspaces, and no run is in both of them")?;
    let rights = in_common(&blocks)?;
    let has_a_way = |right: &&Right| !matches!(right, Right::UseCredential(_));
    if !rights.iter().any(has_a_way) {
        return Err(
            "it lets credentials be put in and nothing be sent that they could be put into"
                .to_owned(),
        );
    }
    let end = blocks.iter().filter_map(|one| one.until_s).min();
    let within = [
        session.map(|name| format!("in session {} alone", name.as_str())),
        workspace.map(|path| format!("in workspace {path} alone")),
        end.and_then(told_time).map(|end| format!("until {end}")),
    ];
    Ok(Worth {
        rights: rights.iter().map(ToString::to_string).collect(),
        within: within.into_iter().flatten().collect(),
    })
}

/// The rights of the last block that has something in common with each other one.
fn in_common<'a>(blocks: &[&'a Terms]) -> Result<Vec<&'a Right>, String> {
    let naming = blocks.iter().filter(|one| !one.rights.is_empty());
    let naming: Vec<&'a Terms> = naming.copied().collect();
    let mut last = Err("it carries no right".to_owned());
    for own in &naming {
        let is_carried = |right: &&Right| {
            let mut others = naming.iter();
            others.all(|other| other.rights.iter().any(|one| one.meets(right)))
        };
        let carried: Vec<&Right> = own.rights.iter().filter(is_carried).collect();
        if carried.is_empty() {
            let named: Vec<String> = own.rights.iter().map(ToString::to_string).collect();
            return Err(format!(
                "no right is in all of its blocks: what one of them names ({}) another one does \
                 not carry",
                named.join(", ")
            ));
        }
        last = Ok(carried);
    }
    last
}

/// The one of these that all others are too; nothing of none. None where two are different.
fn one_alone<'a, T: PartialEq>(mut all: impl Iterator<Item = &'a T>) -> Option<Option<&'a T>> {
    let first = all.next();
    all.all(|one| Some(one) == first).then_some(first)
}

impl Worth {
    /// In a sentence. Where some of its blocks are somebody else's, that they can narrow it.
    pub(super) fn told(&self, is_narrowed: bool) -> String {
        let mut words = vec![format!("for {}", self.rights.join(", "))];
        words.extend(self.within.iter().cloned());
        let further = match is_narrowed {
            true => ", as far as what another program has appended lets it",
            false => "",
        };
        format!("It counts, {}{further}.", words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rights: &[&str], with: impl FnOnce(&mut Terms)) -> Part {
        let mut terms = Terms {
            rights: rights.iter().map(|text| text.parse().unwrap()).collect(),
            ..Terms::default()
        };
        with(&mut terms);
        Part {
            id: "ab".to_owned(),
            terms: Some(terms),
            source: String::new(),
        }
    }

    fn as_is(_: &mut Terms) {}

    #[test]
    fn what_a_token_is_good_for_is_what_all_its_blocks_carry() {
        let get = "request GET https://api.example.com/v1/*";
        let issued = || part(&[get, "use-credential github"], as_is);
        let told = |parts: &[Part]| worth(parts, 100).map(|worth| worth.told(false));
        let both = format!("It counts, for {get}, use-credential github.");
        assert_eq!(told(&[issued()]), Ok(both.clone()));
        // What names no rights leaves them.
        let until = part(&[], |terms| terms.until_s = Some(1_800_000_000));
        let ends = both.replace("github.", "github, until 2027-01-15T08:00:00Z.");
        assert_eq!(told(&[issued(), until]), Ok(ends));
        let one = "request GET https://api.example.com/v1/users";
        let narrowed = [issued(), part(&[one, "publish 3000"], as_is)];
        assert_eq!(told(&narrowed), Ok(format!("It counts, for {one}.")));
        let said = worth(&narrowed, 100).unwrap().told(true);
        assert!(
            said.ends_with("as far as what another program has appended lets it."),
            "{said}"
        );
        for (parts, why) in [
            (
                vec![issued(), part(&["connect other.example:443"], as_is)],
                "no right is in all of its blocks",
            ),
            (
                vec![part(&["use-credential github"], as_is)],
                "nothing be sent",
            ),
            (
                vec![issued(), part(&["use-credential *"], as_is)],
                "nothing be sent",
            ),
            (vec![part(&[], as_is)], "it carries no right"),
            (
                vec![part(&[get], |terms| terms.from_s = Some(101))],
                "it begins at 1970-01-01T00:01:41Z",
            ),
        ] {
            let found = worth(&parts, 100).unwrap_err();
            assert!(found.contains(why), "{why}: {found}");
        }
        let of = |name: &str| {
            let name = atoll_model::SessionName::parse(name).unwrap();
            part(&[], |terms| terms.session = Some(name))
        };
        let twice = told(&[issued(), of("one"), of("one")]).unwrap();
        assert!(twice.contains("in session one alone"), "{twice}");
        let nowhere = worth(&[issued(), of("one"), of("two")], 100).unwrap_err();
        assert!(nowhere.contains("different sessions"), "{nowhere}");
        let at = |path: &str| part(&[], |terms| terms.workspace = Some(path.to_owned()));
        let nowhere = worth(&[issued(), at("/a"), at("/b")], 100).unwrap_err();
        assert!(nowhere.contains("different workspaces"), "{nowhere}");
    }
}
