//! The effective rights of a token, by all of its blocks together.

use atoll_tokens::{COMMON_MAX, Part, Right, Terms, TooManyRights, in_common, told_time};

/// The most a token grants.
#[derive(Debug, PartialEq, Eq)]
pub struct Worth {
    /// The rights that all blocks with rights share, each in words. `None` if they are too many to
    /// be listed.
    pub rights: Option<Vec<String>>,
    /// The place, count and time limits, in words; empty for a token without limits.
    within: Vec<String>,
}

/// Returns the most these blocks grant. Blocks that another program has appended can narrow it
/// further.
///
/// # Errors
/// When they grant nothing.
pub fn worth(parts: &[Part], now_s: u64) -> Result<Worth, String> {
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
    let rights = of_all(&blocks)?;
    let has_a_way = |right: &Right| !matches!(right, Right::UseCredential(_));
    if rights
        .as_ref()
        .is_ok_and(|rights| !rights.iter().any(has_a_way))
    {
        return Err(
            "it lets credentials be put in and nothing be sent that they could be put into"
                .to_owned(),
        );
    }
    let end = blocks.iter().filter_map(|one| one.until_s).min();
    let is_once = blocks.iter().any(|one| one.once);
    let within = [
        is_once.then(|| "in the first run that holds it alone".to_owned()),
        session.map(|name| format!("in session {} alone", name.as_str())),
        workspace.map(|path| format!("in workspace {path} alone")),
        end.and_then(told_time).map(|end| format!("until {end}")),
    ];
    Ok(Worth {
        rights: rights.ok().as_deref().map(words),
        within: within.into_iter().flatten().collect(),
    })
}

/// Returns the rights that all blocks with rights share, or that they are too many to be listed.
///
/// # Errors
/// When there is none.
fn of_all(blocks: &[&Terms]) -> Result<Result<Vec<Right>, TooManyRights>, String> {
    let mut naming = blocks.iter().filter(|one| !one.rights.is_empty());
    let first = naming.next().ok_or("it carries no right")?;
    let mut all = first.rights.clone();
    for block in naming {
        all = match in_common(&all, &block.rights) {
            Ok(all) => all,
            Err(too_many) => return Ok(Err(too_many)),
        };
        if all.is_empty() {
            return Err(format!(
                "no right is in all of its blocks: what one of them names ({}) those before it do \
                 not carry",
                words(&block.rights).join(", ")
            ));
        }
    }
    Ok(Ok(all))
}

fn words(rights: &[Right]) -> Vec<String> {
    rights.iter().map(ToString::to_string).collect()
}

/// Returns the value that all have; `Some(None)` if there are none, `None` if two are different.
fn one_alone<'a, T: PartialEq>(mut all: impl Iterator<Item = &'a T>) -> Option<Option<&'a T>> {
    let first = all.next();
    all.all(|one| Some(one) == first).then_some(first)
}

impl Worth {
    /// Describes it in a sentence, with a note if blocks of others can narrow it.
    pub fn told(&self, is_narrowed: bool) -> String {
        let rights = self.rights.as_ref().map(|rights| rights.join(", "));
        let many = || format!("what all of its blocks carry, more than {COMMON_MAX} rights");
        let mut words = vec![format!("for {}", rights.unwrap_or_else(many))];
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

    #[test]
    fn worth_is_what_every_block_carries() {
        let shown = |blocks: &[&[&str]]| {
            let parts: Vec<Part> = blocks.iter().map(|rights| part(rights, as_is)).collect();
            worth(&parts, 100).map(|worth| worth.rights.unwrap())
        };
        let one = "request GET https://api.example.com/v1/users";
        let all = "request * https://*.example.com/*";
        for (blocks, expected) in [
            // A later block that is wider carries no more.
            (vec![vec![one], vec![all]], vec![one]),
            (vec![vec![all], vec![one]], vec![one]),
            (
                vec![
                    vec!["request * https://api.example.com/*"],
                    vec!["request GET https://*.example.com/v1/*"],
                ],
                vec!["request GET https://api.example.com/v1/*"],
            ),
            (
                vec![
                    vec![one, "use-credential *"],
                    vec!["use-credential github", all],
                ],
                vec![one, "use-credential github"],
            ),
            (
                vec![
                    vec!["connect *:443"],
                    vec!["request GET https://a.example/*", "publish *"],
                ],
                vec!["request GET https://a.example/*"],
            ),
            (
                vec![
                    vec!["connect a.example:*"],
                    vec!["connect *:22", "connect a.example:22"],
                ],
                vec!["connect a.example:22"],
            ),
            (
                vec![
                    vec!["publish *", "publish 80"],
                    vec!["publish 80", "publish 81"],
                ],
                vec!["publish 80", "publish 81"],
            ),
        ] {
            let blocks: Vec<&[&str]> = blocks.iter().map(Vec::as_slice).collect();
            let expected = expected.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(shown(&blocks), Ok(expected), "{blocks:?}");
        }
        // Each two of them have something in common, and all three nothing.
        let none = shown(&[
            &["publish 80", "publish 81"],
            &["publish 81", "publish 82"],
            &["publish 82", "publish 80"],
        ]);
        assert!(
            none.unwrap_err()
                .contains("no right is in all of its blocks")
        );
    }
}
