//! The approvers of lasting rights, as users of this host.

use std::fs;

use atoll_policy::{Approver, Rules, Widened};

use crate::supervision::DualControlRule;

/// The names and numbers of users (passwd(5)).
const USERS: &str = "/etc/passwd";

/// The reason why nobody could be the second approver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSecondPerson {
    /// A name that no user here has.
    #[error("`approvers` ({}) names {:?}, and {USERS} has none of that name", .0.origin, .0.name)]
    Unknown(Approver),
    /// No approver is named but the run's own user.
    #[error(
        "`widen = 2` ({by}) takes a second person, and `approvers` names nobody but you (user {own})"
    )]
    Alone {
        /// The origin of the setting that asks for two persons.
        by: String,
        /// The user's number.
        own: u32,
    },
    /// No approver is named.
    #[error("`widen = 2` ({by}) takes a second person, and `approvers` names nobody")]
    Nobody {
        /// The origin of the setting that asks for two persons.
        by: String,
    },
}

/// Returns who approves lasting rights in a run of this process's user.
///
/// # Errors
/// [`NoSecondPerson`]: two are needed, and nobody here could be the second.
pub fn widening(rules: &Rules) -> Result<DualControlRule, NoSecondPerson> {
    let users = fs::read_to_string(USERS).unwrap_or_default();
    widening_of(rules.widened(), &users, rustix::process::getuid().as_raw())
}

fn widening_of(said: &Widened, users: &str, owner: u32) -> Result<DualControlRule, NoSecondPerson> {
    let Some(by) = said.by_two.as_ref().map(ToString::to_string) else {
        return Ok(DualControlRule::OnePerson);
    };
    let number = |one: &Approver| {
        let number = one.name.parse().ok().or_else(|| uid_of(users, &one.name));
        number.ok_or_else(|| NoSecondPerson::Unknown(one.clone()))
    };
    let approvers: Vec<u32> = said
        .approvers
        .iter()
        .map(number)
        .collect::<Result<_, _>>()?;
    match approvers.iter().any(|one| *one != owner) {
        true => Ok(DualControlRule::TwoPersons { owner, approvers }),
        false if approvers.is_empty() => Err(NoSecondPerson::Nobody { by }),
        false => Err(NoSecondPerson::Alone { by, own: owner }),
    }
}

/// Returns the number of a user.
fn uid_of(users: &str, name: &str) -> Option<u32> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next()? == name;
        let uid = fields.nth(1)?.parse().ok()?;
        is_it.then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use atoll_policy::Origin;

    use super::*;

    const THERE: &str = "root:x:0:0::/root:/bin/sh\nada:x:1001:1001::/:/bin/sh\n";

    fn of(names: &[&str], by_two: bool) -> Result<DualControlRule, String> {
        let origin = Origin::CommandLine("a test");
        let approver = |name: &&str| Approver {
            name: (*name).to_owned(),
            origin: origin.clone(),
        };
        let said = Widened {
            by_two: by_two.then(|| origin.clone()),
            approvers: names.iter().map(approver).collect(),
        };
        widening_of(&said, THERE, 1000).map_err(|error| error.to_string())
    }

    #[test]
    fn who_cannot_be_a_second_person_is_told_at_the_start() {
        let two = |approvers: &[u32]| {
            Ok(DualControlRule::TwoPersons {
                owner: 1000,
                approvers: approvers.to_vec(),
            })
        };
        assert_eq!(of(&["ada"], true), two(&[1001]));
        assert_eq!(
            of(&["1000", "ada", "0", "4000"], true),
            two(&[1000, 1001, 0, 4000])
        );
        for (names, why) in [
            (
                &["ada", "adaxx"][..],
                "names \"adaxx\", and /etc/passwd has none",
            ),
            (&["1000"], "names nobody but you (user 1000)"),
            (&[], "`approvers` names nobody"),
            (&["-5"], "names \"-5\""),
            (&["1001.5"], "names \"1001.5\""),
        ] {
            let told = of(names, true).unwrap_err();
            assert!(told.contains(why) && told.contains("a test"), "{told}");
            // The control: where it takes one nobody is looked for.
            assert_eq!(of(names, false), Ok(DualControlRule::OnePerson));
        }
    }
}
