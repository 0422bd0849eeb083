use super::*;

fn token(since: SystemTime, life_s: Option<u64>) -> Token {
    Token {
        values: Arc::new(Secret::new(b"0123456789abcdef".to_vec()).unwrap()).into(),
        since,
        ends: life_s.map(|life| since + Duration::from_secs(life)),
        is_doubted: false,
    }
}

#[test]
fn fetch_renews_before_expiry() {
    let now = SystemTime::now();
    let after = |seconds| now + Duration::from_secs(seconds);
    for (life, at, is_fresh, holds) in [
        (Some(3600), 0, true, true),
        (Some(3600), 3539, true, true),
        (Some(3600), 3541, false, true),
        (Some(3600), 3600, false, false),
        (Some(20), 17, true, true),
        (Some(20), 18, false, true),
        (None, 1 << 30, true, true),
    ] {
        let token = token(now, life);
        assert_eq!(token.is_fresh(after(at)), is_fresh, "{life:?} {at}");
        assert_eq!(token.holds(after(at)), holds, "{life:?} {at}");
    }
    assert!(!token(after(10), Some(3600)).is_fresh(now));
}

#[test]
fn fetch_failed_backs_off() {
    let now = SystemTime::now();
    let mut state = State::default();
    assert!(state.known(now).is_none());
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        let told = state.keep(Err("why".to_owned().into()), now);
        assert_eq!(told.err(), Some("why".to_owned().into()));
        assert_eq!(
            state.failed.as_ref().unwrap().pause,
            Duration::from_secs(pause)
        );
        assert!(matches!(state.known(now), Some(Err(_))));
    }
    state.failed.as_mut().unwrap().until = Instant::now();
    assert!(state.known(now).is_none());
    assert!(state.keep(Ok(token(now, Some(100))), now).is_ok());
    assert!(state.failed.is_none());
    // One that holds is used where there is no new one.
    let later = now + Duration::from_secs(95);
    assert!(state.known(later).is_none());
    assert!(state.keep(Err("why".to_owned().into()), later).is_ok());
    assert!(matches!(state.known(later), Some(Ok(_))));
    let too_late = now + Duration::from_secs(100);
    assert!(matches!(state.known(too_late), Some(Err(_))));
}

#[test]
fn fetch_keeps_earlier_values_to_revoke() {
    let now = SystemTime::now();
    let mut state = State::default();
    for _ in 0..EARLIER_MAX + 4 {
        let _ = state.keep(Ok(token(now, Some(100))), now);
    }
    assert_eq!(state.earlier.len(), EARLIER_MAX);
    // None is dropped that may still be good: one token is in use.
    assert_eq!(state.oldest.len(), 3);
    // The same one again is not another one.
    let last = state.token.as_ref().unwrap();
    let same = Token {
        values: last.values.clone(),
        ..token(now, None)
    };
    let _ = state.keep(Ok(same), now);
    assert_eq!(state.earlier.len(), EARLIER_MAX);
    let later = now + Duration::from_secs(100);
    let _ = state.keep(Ok(token(later, None)), later);
    // What has ended is nobody's any more.
    assert_eq!(state.earlier.len(), 1);
}

#[test]
fn fetch_command_error_is_recorded_not_shown() {
    let mut state = State::default();
    let unfetched = FetchError {
        why: "it ended".to_owned(),
        said: "not logged in".to_owned(),
    };
    // The same to who asks later.
    let _ = state.keep(Err(unfetched), SystemTime::now());
    let Some(Err(told)) = state.known(SystemTime::now()) else {
        panic!("it is known to have failed");
    };
    assert_eq!(told.why, "it ended");
    assert_eq!(told.recorded(), "it ended: not logged in");
}

#[test]
fn fetch_rejected_value_is_renewed_sparingly() {
    let now = SystemTime::now();
    let by = Fetch::Command { patience_s: 1 };
    let source = Source::new(by, &Network::default(), Ingredients::new());
    let kept = token(now, None);
    let secret = Arc::clone(kept.values.whole().unwrap());
    source.state.try_lock().unwrap().token = Some(kept);
    let is_known = |at| source.state.try_lock().unwrap().known(at).is_some();
    let later = now + DOUBTED_AFTER;
    source.doubt(&secret, now);
    assert!(is_known(later));
    source.doubt(token(now, None).values.whole().unwrap(), later);
    assert!(is_known(later));
    source.doubt(&secret, later);
    assert!(!is_known(later));
}

#[test]
fn fetch_rejected_login_backs_off() {
    let by = Fetch::Login {
        request: Box::new(atoll_model::network::RenewalRequest {
            token: "https://login.example/token".parse().unwrap(),
            client: "a client".to_owned(),
            published: atoll_model::network::PublishedSecret::None,
            form: atoll_model::network::RenewalForm::Json,
            scope: Vec::new(),
        }),
        by: "by".parse().unwrap(),
        ends_s: None,
        scope: None,
    };
    let source = Source::new(by, &Network::default(), Ingredients::new());
    let now = SystemTime::now();
    for pause_s in [600, 1200, 2400, 4800, 9600, 14_400, 14_400] {
        let kept = token(now, None);
        let secret = Arc::clone(kept.values.whole().unwrap());
        source.state.try_lock().unwrap().token = Some(kept);
        let is_known = |at| source.state.try_lock().unwrap().known(at).is_some();
        let later = now + Duration::from_secs(pause_s);
        source.doubt(&secret, later - Duration::from_secs(1));
        assert!(is_known(later), "{pause_s}");
        source.doubt(&secret, later);
        source.doubt(&secret, later);
        assert!(!is_known(later), "{pause_s}");
    }
}
