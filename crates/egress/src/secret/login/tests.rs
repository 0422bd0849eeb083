use super::*;

const TOKEN: &str = "sk-ant-oat01-r3alK3yOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1les";

fn paths(texts: &[&str]) -> Vec<FieldPath> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn made(file: &str, keep: &[&str], claims: &[&str]) -> Result<String, LoginMaskError> {
    let claims: Vec<String> = claims.iter().map(|&claim| claim.to_owned()).collect();
    let made = stand_in(file.as_bytes(), &paths(keep), &claims, &mut |_, _| Ok(None))?;
    Ok(String::from_utf8(made).unwrap())
}

fn token(header: &str, claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        part(header),
        part(claims),
        "c2lnbmF0dXJlLW9mLWEtdG9rZW4tMDEyMzQ1Njc4OQ"
    )
}

fn claims_of(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn login_file_keeps_members_not_texts() {
    let file = format!(
        r#" {{"claudeAiOauth": {{"accessToken": "{TOKEN}", "expiresAt": 1800000000000, "scopes":
        ["user:inference", "user:profile"], "subscriptionType": "max", "pin": 123456, "on": true,
        "none": null}}, "of-tomorrow": {{"deep": ["secret-of-tomorrow-0123456789", {{"in": "a list"}}]}},
        "empty": "", "umlaut": "g\u00e4nse\"f\u00fcsschen", "list": [], "object": {{}}}} "#
    );
    let keep = [
        "claudeAiOauth.expiresAt",
        "*.scopes",
        "claudeAiOauth.subscriptionType",
    ];
    let text = made(&file, &keep, &[]).unwrap();
    let (before, after): (Value, Value) = (
        serde_json::from_str(&file).unwrap(),
        serde_json::from_str(&text).unwrap(),
    );
    let (was, is) = (&before["claudeAiOauth"], &after["claudeAiOauth"]);
    for kept in ["expiresAt", "scopes", "subscriptionType", "on", "none"] {
        assert_eq!(was[kept], is[kept], "{kept}: {text}");
    }
    let stands = is["accessToken"].as_str().unwrap();
    assert!(
        stands.starts_with("sk-ant-oat01-") && stands.len() == TOKEN.len(),
        "{text}"
    );
    assert_eq!(is["pin"], 0);
    for gone in [TOKEN, "123456", "tomorrow-0123", "a list", "gänse", "chen"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    assert_eq!(after["of-tomorrow"]["deep"][1]["in"], "xxxxxx");
    assert_eq!(after["empty"], "");
    assert_eq!(after["umlaut"].as_str().unwrap().chars().count(), 14);
    assert_eq!(
        (after["list"].to_string(), after["object"].to_string()),
        ("[]".into(), "{}".into())
    );
}

#[test]
fn login_file_credential_field_has_placeholder() {
    let file = format!(r#"{{"tokens": {{"access": "{TOKEN}", "other": "kept"}}}}"#);
    let mut seen = Vec::new();
    let known: StandInLookup<'_> = &mut |names: &[String], value: &[u8]| {
        let is_it = names == ["tokens", "access"];
        seen.push((names.join("."), String::from_utf8(value.to_vec()).unwrap()));
        Ok(is_it.then(|| "it stands".to_owned()))
    };
    let made = stand_in(file.as_bytes(), &paths(&["tokens.other"]), &[], known).unwrap();
    assert_eq!(
        String::from_utf8(made).unwrap(),
        r#"{"tokens":{"access":"it stands","other":"kept"}}"#
    );
    assert_eq!(seen[0], ("tokens.access".to_owned(), TOKEN.to_owned()));
    // What a credential refuses is refused, and a second copy of it does not go in.
    let refused = stand_in(file.as_bytes(), &[], &[], &mut |_, _| Err("no".to_owned()));
    assert!(matches!(refused, Err(LoginMaskError::Unfit(why)) if why == "no"));
    let twice = format!(r#"{{"a": "{TOKEN}", "b": "Bearer {TOKEN}"}}"#);
    let only_a = |names: &[String], _: &[u8]| Ok((names == ["a"]).then(|| "stands".to_owned()));
    let kept = stand_in(twice.as_bytes(), &paths(&["b"]), &[], &mut { only_a });
    assert!(matches!(kept, Err(LoginMaskError::Kept)));
    assert!(stand_in(twice.as_bytes(), &[], &[], &mut { only_a }).is_ok());
}

#[test]
fn login_file_web_token_keeps_named_claims() {
    let claims = r#"{"email": "ann@example.com", "exp": 1900000000, "sub": "user-of-this-test-0123",
        "https://api.openai.com/auth": {"chatgpt_account_id": "account-1", "groups": ["a"],
        "organizations": [{"id": "org-of-this-test"}], "user_id": "u-0123"}, "iat": "text"}"#;
    let real = token(
        r#"{"alg":"RS256","typ":"JWT","kid":"of-this-test"}"#,
        claims,
    );
    let file = format!(r#"{{"tokens": {{"id_token": "{real}"}}}}"#);
    let text = made(&file, &[], &["email", "chatgpt_account_id"]).unwrap();
    let after: Value = serde_json::from_str(&text).unwrap();
    let stands = after["tokens"]["id_token"].as_str().unwrap();
    let told = claims_of(stands);
    assert_eq!(
        told,
        serde_json::json!({"email": "ann@example.com", "exp": 1_900_000_000,
            "https://api.openai.com/auth": {"chatgpt_account_id": "account-1"}})
    );
    assert!(stands.split('.').count() == 3 && !stands.ends_with(real.rsplit('.').next().unwrap()));
    let header = stands.split('.').next().unwrap();
    let header = String::from_utf8(URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
    assert!(
        header.contains("RS256") && !header.contains("of-this-test"),
        "{header}"
    );
    // Without any named, the times alone.
    let text = made(&file, &[], &[]).unwrap();
    let after: Value = serde_json::from_str(&text).unwrap();
    let told = claims_of(after["tokens"]["id_token"].as_str().unwrap());
    assert_eq!(told, serde_json::json!({"exp": 1_900_000_000}));
}

#[test]
fn login_file_invalid_is_refused() {
    let deep = |count: usize| format!("{}1{}", "{\"a\":".repeat(count), "}".repeat(count));
    let many = format!("{{\"a\": [{}1]}}", "1,".repeat(VALUES_MAX));
    let long = format!("{{\"{}\": 1}}", "n".repeat(NAME_BYTES_MAX + 1));
    assert!(made(&deep(DEPTH_MAX), &[], &[]).is_ok());
    assert_eq!(
        made(r#"[{"a": "b"}]"#, &["a"], &[]).unwrap(),
        r#"[{"a":"b"}]"#
    );
    for (file, expected) in [
        (deep(DEPTH_MAX + 1).as_str(), "within each other"),
        (&"[".repeat(60_000), "within each other"),
        (&many, "values"),
        (&long, "name of a member"),
        ("{\"a\": 1, \"a\": 2}", "two members"),
        ("{\"a\": 1, \"\\u0061\": 2}", "two members"),
        ("1", "no JSON object"),
        ("\"text\"", "no JSON object"),
        ("", "no JSON"),
        ("{\"a\": \"b\"} x", "no JSON"),
        ("{\"a\": \"b\"", "no JSON"),
        ("{\"a\": \"b}", "no JSON"),
        ("{\"a\": \"b\\", "no JSON"),
        ("{\"a\": \"\\ud800\"}", "no JSON"),
        ("{\"a\": \"\n\"}", "no JSON"),
        ("{\"a\": 01}", "no JSON"),
        ("{\"a\": tru}", "no JSON"),
        ("{\"a\": }", "no JSON"),
        ("{\"a\" 1}", "no JSON"),
        ("{,}", "no JSON"),
        ("{\"a\": 1,}", "no JSON"),
        ("{\"a\": [1,]}", "no JSON"),
        ("{\"a\": 1 \"b\": 2}", "no JSON"),
        ("\u{feff}{}", "no JSON"),
    ] {
        let error = made(file, &[], &[]).unwrap_err().to_string();
        assert!(
            error.contains(expected),
            "{}: {error}",
            file.get(..40).unwrap_or(file)
        );
    }
    assert!(stand_in(b"{\"a\": \"\xff\"}", &[], &[], &mut |_, _| Ok(None)).is_err());
}
