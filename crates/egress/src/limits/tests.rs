//! Budgets of rules, by the real clock.

use std::num::NonZero;

use super::*;

/// Returns rules of one table, for these hosts, with these limits.
fn network(hosts: &[&str], limits: RuleLimits) -> Network {
    let rule = |host: &&str| NetworkRule {
        limits: limits.clone(),
        to: host.parse().unwrap(),
        ..NetworkRule::learning()
    };
    Network {
        allow: hosts.iter().map(rule).collect(),
        ..Network::default()
    }
}

fn one(limits: RuleLimits) -> (Network, Budgets) {
    let network = network(&["example.com"], limits);
    let budgets = Budgets::new(&network);
    (network, budgets)
}

fn request(head: u64, body: Option<u64>) -> BudgetRequest {
    BudgetRequest::Request { head, body }
}

#[test]
fn request_bucket_starts_full_and_fills_evenly() {
    let most: Frequency = "3/min".parse().unwrap();
    let start = Instant::now();
    let mut full = None;
    let mut sent = Vec::new();
    for second in 0..120 {
        if take(&mut full, most, start + Duration::from_secs(second)).is_ok() {
            sent.push(second);
        }
    }
    assert_eq!(sent, [0, 1, 2, 20, 40, 60, 80, 100]);
    let again = take(&mut full, most, start + Duration::from_secs(110));
    assert_eq!(again, Err(Duration::from_secs(10)));
}

#[test]
fn budget_of_one_table_is_shared_by_its_hosts() {
    let limits = RuleLimits {
        requests: Some("2/h".parse().unwrap()),
        ..RuleLimits::default()
    };
    let network = network(&["a.example", "b.example"], limits);
    let budgets = Budgets::new(&network);
    let [a, b] = &network.allow[..] else {
        panic!("two rules");
    };
    let _first = budgets.begin(a, request(1, None)).unwrap();
    let _second = budgets.begin(b, request(1, None)).unwrap();
    for rule in [a, b] {
        let excess = budgets.begin(rule, request(1, None)).unwrap_err();
        assert_eq!(excess.limit, Limit::Requests);
        let again = excess.again.unwrap().as_secs();
        assert!((1790..=1800).contains(&again), "{again}");
        assert!(excess.why().ends_with("(requests = \"2/h\")"), "{excess}");
        assert_eq!(excess.rule, rule.to_string());
    }
    // Another table says the same and is another one.
    let mut other = a.clone();
    other.limits.table = 7;
    let network = Network {
        allow: vec![a.clone(), other.clone()],
        ..Network::default()
    };
    let budgets = Budgets::new(&network);
    for rule in [a, a, &other, &other] {
        assert!(budgets.begin(rule, request(1, None)).is_ok());
    }
    assert!(budgets.begin(&other, request(1, None)).is_err());
}

#[test]
fn budget_ended_flow_frees_its_share() {
    let (network, budgets) = one(RuleLimits {
        connections: NonZero::new(2),
        ..RuleLimits::default()
    });
    let rule = &network.allow[0];
    let first = budgets.begin(rule, BudgetRequest::Tunnel).unwrap();
    let second = budgets.begin(rule, BudgetRequest::Tunnel).unwrap();
    let excess = budgets.begin(rule, BudgetRequest::Tunnel).unwrap_err();
    assert_eq!(excess.limit, Limit::Connections);
    drop(first);
    let third = budgets.begin(rule, BudgetRequest::Tunnel).unwrap();
    assert!(budgets.begin(rule, BudgetRequest::Tunnel).is_err());
    drop((second, third));
    assert!(budgets.begin(rule, BudgetRequest::Tunnel).is_ok());
}

#[test]
fn byte_limit_exceeded_ends_flow() {
    for (way, limits, limit) in [
        (
            Direction::Up,
            RuleLimits {
                upload: NonZero::new(100),
                ..RuleLimits::default()
            },
            Limit::Upload,
        ),
        (
            Direction::Down,
            RuleLimits {
                download: NonZero::new(100),
                ..RuleLimits::default()
            },
            Limit::Download,
        ),
    ] {
        let (network, budgets) = one(limits);
        let rule = &network.allow[0];
        let part = budgets.begin(rule, BudgetRequest::Tunnel).unwrap().unwrap();
        let other = budgets.begin(rule, BudgetRequest::Tunnel).unwrap().unwrap();
        assert!(part.pass(way, 60).unwrap().is_none());
        assert!(other.pass(way, 40).unwrap().is_none());
        assert_eq!(part.pass(way, 1).unwrap_err().limit, limit);
        assert_eq!(part.excess().unwrap().limit, limit);
        // Not a byte more, neither of this one nor of others.
        assert!(part.pass(way, 0).is_err());
        assert!(other.pass(way, 1).is_err());
        let next = budgets.begin(rule, BudgetRequest::Tunnel).unwrap_err();
        assert_eq!(next.limit, limit);
    }
}

#[test]
fn byte_limit_declared_excess_is_refused_first() {
    let (network, budgets) = one(RuleLimits {
        body: Some(50),
        upload: NonZero::new(100),
        ..RuleLimits::default()
    });
    let rule = &network.allow[0];
    let begin = |head, body| budgets.begin(rule, request(head, body));
    assert_eq!(begin(1, Some(51)).unwrap_err().limit, Limit::Body);
    assert_eq!(begin(51, Some(50)).unwrap_err().limit, Limit::Upload);
    assert_eq!(begin(101, None).unwrap_err().limit, Limit::Upload);
    // Nothing of that was counted, but heads are.
    let part = begin(50, Some(50)).unwrap().unwrap();
    assert!(part.pass(Direction::Up, 50).unwrap().is_none());
    assert_eq!(begin(1, None).unwrap_err().limit, Limit::Upload);
    // What comes back is no body of a request.
    assert!(part.pass(Direction::Down, 1000).unwrap().is_none());
    assert_eq!(part.pass(Direction::Up, 1).unwrap_err().limit, Limit::Body);
}

#[test]
fn byte_rate_delays_each_direction() {
    let (network, budgets) = one(RuleLimits {
        rate: NonZero::new(1000),
        ..RuleLimits::default()
    });
    let begin = || {
        let begun = budgets.begin(&network.allow[0], BudgetRequest::Tunnel);
        begun.unwrap().unwrap()
    };
    let (part, other) = (begin(), begin());
    assert_eq!(part.piece_bytes(), 125);
    let start = Instant::now();
    let from = |part: &BudgetShare, way, bytes| {
        let from = part.pass(way, bytes).unwrap().unwrap();
        from.duration_since(start).as_secs()
    };
    assert_eq!(from(&part, Direction::Up, 5000), 5);
    assert_eq!(from(&other, Direction::Up, 5000), 10);
    assert_eq!(from(&part, Direction::Down, 3000), 3);
    // What nobody waits for is no reason to stop.
    assert!(part.pass(Direction::Down, u64::MAX).is_ok());
    assert!(part.pass(Direction::Down, u64::MAX).is_ok());
}

#[tokio::test]
async fn duration_limit_exceeded_ends_flow() {
    let (network, budgets) = one(RuleLimits {
        duration_ms: NonZero::new(30),
        ..RuleLimits::default()
    });
    let begun = budgets.begin(&network.allow[0], BudgetRequest::Tunnel);
    let part = begun.unwrap().unwrap();
    assert!(part.pass(Direction::Up, 1).unwrap().is_none());
    let excess = part.late().await;
    assert_eq!(excess.limit, Limit::Duration);
    assert!(excess.why().ends_with("(duration = \"30ms\")"), "{excess}");
    assert!(part.pass(Direction::Up, 1).is_err());
}

#[test]
fn unlimited_rule_has_no_budget() {
    let (network, budgets) = one(RuleLimits::default());
    let begun = budgets.begin(&network.allow[0], request(u64::MAX, Some(u64::MAX)));
    assert!(begun.unwrap().is_none());
    // What should have one and has none is no way around it.
    let (limited, _) = one(RuleLimits {
        body: Some(1),
        ..RuleLimits::default()
    });
    let begun = budgets.begin(&limited.allow[0], BudgetRequest::Tunnel);
    assert!(begun.is_err());
}

#[test]
fn limits_of_run_count_flows_of_all_rules() {
    let mut network = network(&["a.example", "b.example"], RuleLimits::default());
    network.limits = NetworkLimits {
        bytes: Some(10),
        rate: None,
        connections: Some(2),
    };
    let budgets = Budgets::new(&network);
    let begin = |index: usize| budgets.begin(&network.allow[index], BudgetRequest::Tunnel);
    let first = begin(0).unwrap().unwrap();
    let second = begin(1).unwrap().unwrap();
    let third = begin(0).unwrap_err();
    assert_eq!(third.limit, Limit::RunConnections);
    assert!(third.why().contains("--limit connections=2"), "{third}");
    drop(first);
    let first = begin(0).unwrap().unwrap();
    assert_eq!(first.pass(Direction::Up, 6).unwrap(), None);
    assert_eq!(second.pass(Direction::Down, 4).unwrap(), None);
    let over = second.pass(Direction::Up, 1).unwrap_err();
    assert_eq!(over.limit, Limit::NetworkBytes);
    assert!(over.why().contains("--limit network-bytes=10"), "{over}");
    // Nothing passes after that, and nothing begins.
    assert!(first.pass(Direction::Down, 0).is_err());
    drop((first, second));
    assert_eq!(begin(0).unwrap_err().limit, Limit::NetworkBytes);
}

#[test]
fn limits_of_run_hold_beside_those_of_a_rule() {
    let limits = RuleLimits {
        upload: NonZero::new(5),
        ..RuleLimits::default()
    };
    let mut network = network(&["a.example"], limits);
    network.limits.rate = Some(1);
    let budgets = Budgets::new(&network);
    let share = budgets.begin(&network.allow[0], BudgetRequest::Tunnel);
    let share = share.unwrap().unwrap();
    assert_eq!(share.piece_bytes(), 1);
    assert!(
        share.pass(Direction::Up, 3).unwrap().is_some(),
        "the run's rate"
    );
    let over = share.pass(Direction::Up, 3).unwrap_err();
    assert_eq!(over.limit, Limit::Upload);
    assert!(over.why().contains("upload"), "{over}");
}
