//! Dropped rights stay dropped.

use super::*;

fn given(json: &str, now_s: u64) -> Vec<GivenUp> {
    let said: GivingUp = serde_json::from_str(json).unwrap();
    let all = said.restrictions(now_s).unwrap().into_iter();
    let one = |what| GivenUp {
        at_s: now_s,
        by: GivenUpBy::Program {},
        what,
    };
    all.map(one).collect()
}

fn host(text: &str) -> HostPart {
    text.parse().unwrap()
}

#[test]
fn what_is_given_up_is_denied_and_nothing_takes_it_back() {
    let mut all = GivenUps::default();
    assert!(all.host(&host("api.example.com"), 10).is_none());
    for one in given(
        r#"{"deny-hosts":["*.example.com","192.0.2.0/24"],"no-credentials":["key"],"until-seconds":60}"#,
        10,
    ) {
        assert_eq!(all.add(one), Ok(true));
    }
    let denies = |name: &str, now| all.host(&host(name), now).is_some();
    assert!(denies("api.example.com", 10) && denies("192.0.2.7", 10));
    assert!(denies("[64:ff9b::c000:207]", 10), "the address within");
    assert!(!denies("example.com", 69) && denies("example.com", 70));
    assert!(all.credential(&"key".parse().unwrap()).is_some());
    assert!(all.credential(&"other".parse().unwrap()).is_none());
    assert_eq!((all.next_s(10), all.next_s(70)), (Some(70), None));
    // A later time than the first takes nothing back, and is not even kept.
    let [later] = &given(r#"{"until-seconds":600}"#, 10)[..] else {
        panic!("one")
    };
    assert_eq!(all.add(later.clone()), Ok(false));
    assert!(all.host(&host("example.com"), 70).is_some());
    let why = all.host(&host("a.example.com"), 10).unwrap().why();
    let expected = "the right to it was given up at 1970-01-01T00:00:10Z by the program \
                    itself: host *.example.com";
    assert_eq!(why, expected);
}

#[test]
fn there_is_an_end_to_it_and_always_room_for_all_of_the_network() {
    let mut all = GivenUps::default();
    for number in 0..GIVEN_UP_MAX {
        let [one] = &given(&format!(r#"{{"deny-hosts":["h{number}.example"]}}"#), 1)[..] else {
            panic!("one")
        };
        assert_eq!(all.add(one.clone()), Ok(true));
        assert_eq!(all.add(one.clone()), Ok(false), "the same again");
    }
    let more = given(r#"{"deny-hosts":["more.example"],"network":"none"}"#, 1);
    let [network, more] = &more[..] else {
        panic!("two")
    };
    assert_eq!(all.add(more.clone()), Err(TooMuchGivenUp));
    assert_eq!(all.add(network.clone()), Ok(true));
    // Nothing is left that this one would deny.
    assert_eq!(all.add(more.clone()), Ok(false));
    assert!(all.host(&host("more.example"), 1).is_some());
}

#[test]
fn what_a_program_gives_up_leaves_persons_room_of_their_own() {
    let mut all = GivenUps::default();
    let by = |by, name: String| GivenUp {
        at_s: 1,
        by,
        what: Restriction::Host(name.try_into().unwrap()),
    };
    let program = GivenUpBy::Program {};
    for number in 0..GIVEN_UP_MAX {
        let one = by(program, format!("p{number}.example"));
        assert_eq!(all.add(one), Ok(true));
    }
    let more = by(program, "more.example".to_owned());
    assert_eq!(all.add(more), Err(TooMuchGivenUp));
    for number in 0..GIVEN_UP_MAX {
        let uid = u32::try_from(number).unwrap();
        let one = by(GivenUpBy::Person { uid }, format!("h{number}.example"));
        assert_eq!(all.add(one), Ok(true));
    }
    // Persons share theirs: there is an end to it.
    let more = by(GivenUpBy::Person { uid: 777 }, "more.example".to_owned());
    assert_eq!(all.add(more), Err(TooMuchGivenUp));
}

#[test]
fn a_time_that_has_come_stays_so_whatever_the_clock_says_later() {
    let mut all = GivenUps::default();
    for one in given(r#"{"until-seconds":60}"#, 10) {
        assert_eq!(all.add(one), Ok(true));
    }
    assert!(!all.is_to_latch(69) && !all.latch(69) && all.network(69).is_none());
    assert!(all.is_to_latch(70) && all.latch(70));
    assert!(all.network(10).is_some(), "the clock was set back");
    assert!(!all.is_to_latch(71) && !all.latch(71), "once");
}

#[test]
fn what_lasts_is_kept_though_a_token_has_ended_the_same() {
    let by = |by, what| GivenUp { at_s: 1, by, what };
    let (person, token) = (GivenUpBy::Person { uid: 7 }, GivenUpBy::TokenRevoked {});
    let after = |time_s| Restriction::After { time_s };
    let mut all = GivenUps::default();
    assert_eq!(all.add(by(GivenUpBy::TokenEnd {}, after(5))), Ok(true));
    assert_eq!(all.add(by(person, after(60))), Ok(true), "it is due later");
    let why = all.network(5).unwrap().why();
    let expected = format!("{TOKEN_OVER}: it has ended, at 1970-01-01T00:00:05Z");
    assert_eq!(why, expected);
    assert_eq!(all.add(by(token, Restriction::Network {})), Ok(true));
    assert_eq!(all.add(by(GivenUpBy::TokenEnd {}, after(3))), Ok(false));
    for lasting in [GivenUpBy::Program {}, person] {
        let host = Restriction::Host("*".to_owned().try_into().unwrap());
        let mut all = all.clone();
        assert_eq!(all.add(by(lasting, host.clone())), Ok(true));
        assert_eq!(all.add(by(lasting, Restriction::Network {})), Ok(true));
        // The control: once, and then a token takes nothing that is left.
        assert_eq!(all.add(by(person, Restriction::Network {})), Ok(false));
        assert_eq!(all.add(by(lasting, host)), Ok(false));
        assert_eq!(all.add(by(token, Restriction::Network {})), Ok(false));
    }
}

#[test]
fn what_cannot_be_read_gives_nothing_up() {
    let read = |json: &str| serde_json::from_str::<GivingUp>(json).ok();
    for wrong in [
        r#"{"network":"all"}"#,
        r#"{"network":"none","allow":["example.com"]}"#,
        r#"{"deny-hosts":["example.com:443"]}"#,
        r#"{"deny-hosts":["https://example.com"]}"#,
        r#"{"until-seconds":-1}"#,
        r#"{"until-seconds":1e99}"#,
    ] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
    let nothing = read("{}").unwrap().restrictions(0);
    assert_eq!(nothing, Err(InvalidGivingUp::Nothing));
    let many = GivingUp {
        deny_hosts: vec!["a.example".to_owned().try_into().unwrap(); GIVEN_UP_AT_ONCE_MAX + 1],
        ..GivingUp::default()
    };
    assert_eq!(many.restrictions(0), Err(InvalidGivingUp::TooMany));
}
