use super::*;
use serde_json::Value;

const KEY: &str = "sk-ant-api03-r3alK3yOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1les";
const CANARY: &str = "c4n4ryOfTh1sT3stWh1chN0bodyM4yS33in";

fn paths(texts: &[&str]) -> Vec<FieldPath> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn masked(form: SettingsForm, file: &str) -> Settings {
    let rules = FieldRules {
        secrets: &paths(&["named.*"]),
        keep: &paths(&["env.MODEL", "*.kept"]),
    };
    mask(form, file.as_bytes(), rules, &mut |_, _| Ok(None)).unwrap()
}

fn json(file: &str) -> (Value, Settings) {
    let made = masked(SettingsForm::Json, file);
    (serde_json::from_slice(&made.text).unwrap(), made)
}

#[test]
fn settings_secret_is_replaced_rest_stays() {
    // What is written, whether it goes in as it is.
    for (value, stays) in [
        (r#"{"primaryApiKey": "IT"}"#, false),
        (
            r#"{"models": {"providers": {"a": {"apiKey": "IT"}}}}"#,
            false,
        ),
        (r#"{"channels": {"telegram": {"botToken": "IT"}}}"#, false),
        (
            r#"{"gateway": {"auth": {"mode": "token", "password": "IT"}}}"#,
            false,
        ),
        (r#"{"apiKeys": ["IT"], "x": 1}"#, false),
        (r#"{"mcpServers": {"a": {"env": {"ANY": "IT"}}}}"#, false),
        (
            r#"{"mcpServers": {"a": {"headers": {"x-any": "Bearer IT"}}}}"#,
            false,
        ),
        (
            r#"{"mcp": {"a": {"environment": {"deep": {"er": ["IT"]}}}}}"#,
            false,
        ),
        (r#"{"named": {"anything": "IT"}}"#, false),
        (r#"{"args": ["--api-key", "IT"]}"#, false),
        (r#"{"args": ["--api-key=IT", "serve"]}"#, false),
        (
            r#"{"args": ["--header", "Authorization: Bearer IT"]}"#,
            false,
        ),
        (r#"{"url": "https://example.com/mcp?x=1&token=IT"}"#, false),
        (r#"{"url": "https://ann:IT@example.com/"}"#, false),
        (r#"{"url": "https://IT@example.com/"}"#, false),
        (r#"{"command": "TOKEN=IT npx serve"}"#, false),
        // What follows a flag, also one that only perhaps is of a secret, or of several.
        (r#"{"args": ["--key", "IT"]}"#, false),
        (r#"{"args": ["--auth", "IT"]}"#, false),
        (r#"{"args": ["--pat", "IT"]}"#, false),
        (r#"{"args": ["--pass", "IT"]}"#, false),
        (r#"{"args": ["--api-keys", "IT"]}"#, false),
        (r#"{"args": ["--tokens", "IT", "serve"]}"#, false),
        (r#"{"args": ["--model", "IT"]}"#, true),
        // Lists and objects beneath what is handed to others, and beneath the name of a secret.
        (r#"{"env": ["ANY=IT"]}"#, false),
        (r#"{"headers": ["x-any: IT"]}"#, false),
        (r#"{"headers": [["x-any", "IT"]]}"#, false),
        (r#"{"apiKeys": {"search": "IT"}}"#, false),
        (r#"{"password": {"deep": [{"er": "IT"}]}}"#, false),
        (
            r#"{"secrets": {"of": {"source": "file", "path": "IT"}}}"#,
            true,
        ),
        (
            r#"{"secrets": {"of": {"source": "other", "path": "IT"}}}"#,
            false,
        ),
        // Within a text.
        (r#"{"url": "https://ann:(,;&')IT@example.com/"}"#, false),
        (r#"{"url": "https://ann:x?#IT@example.com/"}"#, false),
        (r#"{"args": ["--env=MY_NAME=IT", "serve"]}"#, false),
        (r#"{"args": ["--env=MY_TOKEN=IT", "serve"]}"#, false),
        (r#"{"command": "run -e ANY=IT serve"}"#, false),
        (
            r#"{"allow": ["curl -H \"Authorization: Bearer IT\" https://example.com/"]}"#,
            false,
        ),
        (
            r#"{"allow": ["curl -H 'x-api-key: IT' https://example.com/"]}"#,
            false,
        ),
        (r#"{"allow": ["curl -d '{\"apiKey\": \"IT\"}'"]}"#, false),
        (r#"{"command": "TOKEN=\"IT\" npx serve"}"#, false),
        (r#"{"command": "npx serve --api-key IT"}"#, false),
        (r#"{"command": "npx serve --api-key 'IT' --port 1"}"#, false),
        (r#"{"told": "my password: IT"}"#, false),
        (r#"{"told": "npx serve --port IT, of the model: IT"}"#, true),
        (
            r#"{"command": "serve --api-key ${IT}", "x": "TOKEN=$(IT)"}"#,
            true,
        ),
        (r#"{"apiKey": "${IT}"}"#, true),
        (r#"{"apiKey": "{env:IT}"}"#, true),
        (r#"{"headers": {"authorization": "Bearer ${IT}"}}"#, true),
        (r#"{"apiKey": "{file:~/IT}"}"#, true),
        (r#"{"env": {"MODEL": "IT"}}"#, true),
        (r#"{"any": {"kept": "IT"}}"#, true),
        (r#"{"env_key": "IT", "bearer_token_env_var": "IT"}"#, true),
        (
            r#"{"apiKey": {"source": "env", "provider": "default", "id": "IT"}}"#,
            true,
        ),
        (
            r#"{"apiKeyHelper": "IT", "model": "IT", "tokenizer": "IT"}"#,
            true,
        ),
    ] {
        let file = value.replace("IT", CANARY);
        let (after, made) = json(&file);
        let text = String::from_utf8(made.text).unwrap();
        assert_eq!(text.contains(CANARY), stays, "{value}: {text}");
        assert_eq!(!made.has_secrets, stays, "{value}: {text}");
        if stays {
            assert_eq!(text, file);
        }
        // Its shape stays, and it is JSON of the same members.
        let before: Value = serde_json::from_str(&file).unwrap();
        let names = |value: &Value| {
            value
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&before), names(&after), "{text}");
        for kept in [
            "serve",
            "Authorization: Bearer ",
            "https://",
            "example.com",
            "--api-key",
        ] {
            assert_eq!(file.contains(kept), text.contains(kept), "{text}");
        }
    }
}

#[test]
fn settings_key_shape_is_replaced_anywhere() {
    for key in [
        KEY,
        "sk-proj-r3alK3yOfTh1sT3stWh1chN0Ag3nt",
        "ghp_0123456789abcdefghijABCDEFGHIJklmnop",
        "xoxb-123456789012-123456789012-AbCdEfGhIjKlMnOpQrStUvWx",
        "AKIA0123456789ABCDEF",
        "AIzaSyR3alK3yOfTh1sT3stN0Ag3ntM4yS33iNM",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----",
    ] {
        for text in [key.to_owned(), format!("use {key} for it, or '{key}'.")] {
            let file =
                serde_json::json!({"any": {"kept": text}, "env": {"MODEL": text}}).to_string();
            let (_, made) = json(&file);
            let shown = String::from_utf8(made.text).unwrap();
            for part in [key, &key[key.len() / 3..key.len() * 2 / 3]] {
                assert!(!shown.contains(part), "{part}: {shown}");
            }
        }
    }
    // Words that begin as one do.
    let file =
        r#"{"kept": "sk-learn-is-a-library-of-people", "url": "https://example.com:8443/a@b"}"#;
    let (_, made) = json(file);
    assert_eq!(String::from_utf8(made.text).unwrap(), file);
}

#[test]
fn settings_found_secret_is_replaced_everywhere() {
    let file = format!(
        r#"{{"told": "I use {CANARY}, mostly", "list": ["{CANARY}"], "token": "{CANARY}"}}"#
    );
    let (after, made) = json(&file);
    assert!(!String::from_utf8(made.text).unwrap().contains(CANARY));
    let stands = after["token"].as_str().unwrap();
    assert_eq!(after["told"], format!("I use {stands}, mostly"));
    assert_eq!((stands.len(), made.has_secrets), (CANARY.len(), true));
    // A word of an environment can stand anywhere by itself.
    let file = r#"{"env": {"ANY": "production"}, "name": "production", "production": 1}"#;
    let (after, _) = json(file);
    assert_eq!(
        (&after["name"], &after["production"]),
        (&"production".into(), &1.into())
    );
    assert_ne!(after["env"]["ANY"], "production");
    // As the name of a member nothing can stand for it.
    let file = format!(r#"{{"{CANARY}": 1, "token": "{CANARY}"}}"#);
    let refused = mask(
        SettingsForm::Json,
        file.as_bytes(),
        FieldRules::default(),
        &mut |_, _| Ok(None),
    );
    assert!(
        matches!(refused, Err(SettingsMaskError::Kept)),
        "{refused:?}"
    );
}

#[test]
fn settings_json5_comments_with_keys_are_dropped() {
    let file = format!(
        "// settings\n{{\n  apiKey: '{CANARY}', /* or {KEY} */\n  port: 0x10,\n  \"on\": true, // yes\n  list: [1, 2,],\n}}\n"
    );
    let (after, made) = json(&file);
    let text = String::from_utf8(made.text).unwrap();
    assert!(
        !text.contains(CANARY) && !text.contains("settings"),
        "{text}"
    );
    assert_eq!((&after["port"], &after["on"]), (&16.into(), &true.into()));
    assert_eq!(after["list"], serde_json::json!([1, 2]));
    // Without a secret and without comments it is what it was.
    let plain = "{a: 1,}\n";
    let made = masked(SettingsForm::Json, plain);
    assert_eq!((made.text, made.has_secrets), (plain.into(), false));
    // A key in a comment alone is one.
    let (after, made) = json(&format!("// {KEY}\n{{a: 1}}\n"));
    assert_eq!((after["a"].clone(), made.has_secrets), (1.into(), true));
}

#[test]
fn settings_toml_is_masked_alike() {
    let file = format!(
        "model = \"gpt\" # {CANARY}\nsince = 2026-01-02T03:04:05Z\n[model_providers.own]\nenv_key = \"OWN_KEY\"\n\
         experimental_bearer_token = \"{CANARY}\"\nhttp_headers = {{ \"x-any\" = \"{CANARY}\" }}\n\
         [mcp_servers.docs]\nargs = [\"--token\", \"{CANARY}\"]\nenv = {{ DOCS = \"{CANARY}\", CI = \"1\" }}\n\
         password = 123456\n"
    );
    let made = masked(SettingsForm::Toml, &file);
    let text = String::from_utf8(made.text.clone()).unwrap();
    assert!(!text.contains(CANARY) && !text.contains("123456"), "{text}");
    let after: toml::Table = text.parse().unwrap();
    assert_eq!(after["model"].as_str(), Some("gpt"));
    assert_eq!(after["since"].to_string(), "2026-01-02T03:04:05Z");
    let own = &after["model_providers"]["own"];
    assert_eq!(own["env_key"].as_str(), Some("OWN_KEY"));
    let stands = own["experimental_bearer_token"].as_str().unwrap();
    assert_eq!(stands.len(), CANARY.len());
    let docs = &after["mcp_servers"]["docs"];
    assert_eq!(docs["env"]["CI"].as_str(), Some("1"));
    assert_eq!(docs["password"].as_integer(), Some(0));
    assert_eq!(docs["args"][0].as_str(), Some("--token"));
    assert_eq!(docs["args"][1].as_str().map(str::len), Some(CANARY.len()));
}

#[test]
fn settings_credential_field_has_placeholder() {
    let file = format!(r#"{{"primaryApiKey": "{KEY}", "ref": {{"primaryApiKey": "${{A_KEY}}"}}}}"#);
    let mut asked = Vec::new();
    let known: StandInLookup<'_> = &mut |names: &[String], value: &[u8]| {
        asked.push((names.join("."), value.to_vec()));
        Ok((names == ["primaryApiKey"]).then(|| "it-stands".to_owned()))
    };
    let made = mask(
        SettingsForm::Json,
        file.as_bytes(),
        FieldRules::default(),
        known,
    )
    .unwrap();
    let after: Value = serde_json::from_slice(&made.text).unwrap();
    assert_eq!(after["primaryApiKey"], "it-stands");
    // What names a variable is no value of a credential.
    assert_eq!(
        asked,
        [("primaryApiKey".to_owned(), KEY.as_bytes().to_vec())]
    );
}

#[test]
fn settings_unparsable_are_refused() {
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let hidden = format!(
        "{{\"a\": {}1{}, \"b\": \"]]]]]\"}}",
        "[']]]', ".repeat(500),
        "]".repeat(500)
    );
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(SETTINGS_BYTES_MAX));
    for (form, file) in [
        (SettingsForm::Json, b"not JSON".to_vec()),
        (SettingsForm::Json, b"{\"a\": ".to_vec()),
        (SettingsForm::Json, b"{\"a\": \"\xff\"}".to_vec()),
        (SettingsForm::Json, deep.clone().into_bytes()),
        (SettingsForm::Json, hidden.into_bytes()),
        (SettingsForm::Json, long.into_bytes()),
        (SettingsForm::Json, Vec::new()),
        (SettingsForm::Toml, b"a = ".to_vec()),
        (SettingsForm::Toml, format!("a = {deep}").into_bytes()),
    ] {
        let refused = mask(form, &file, FieldRules::default(), &mut |_, _| Ok(None));
        assert!(refused.is_err(), "{form:?}");
    }
}

#[test]
fn settings_adversarial_words_are_read_fast() {
    let begun = std::time::Instant::now();
    for word in [
        "x",
        "sk-",
        "eyJ.",
        "a:",
        "://",
        "=",
        "'",
        "\\\"",
        "--token ",
        "-----BEGIN ",
    ] {
        let text = word.repeat((SETTINGS_BYTES_MAX - 100) / word.len());
        let file = format!("{{\"any\": \"{text}\", \"token\": \"{CANARY}\"}}");
        let made = mask(
            SettingsForm::Json,
            file.as_bytes(),
            FieldRules::default(),
            &mut |_, _| Ok(None),
        );
        assert!(
            made.is_ok_and(|made| !String::from_utf8_lossy(&made.text).contains(CANARY)),
            "{word}"
        );
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

/// Text outside values: comments, and members replaced by a later one of the same name.
#[test]
fn settings_text_outside_values_is_dropped() {
    let table = [
        (SettingsForm::Json, "// apiKey: IT\n{\"a\": \"b//c\"}", "a"),
        (SettingsForm::Json, "{\"a\": 1, /* \"x\": \"IT\" */ }", "a"),
        (SettingsForm::Json, "{a: 'it\\'s', // IT\n}", "a"),
        (SettingsForm::Toml, "a = \"b#c\" # IT\n", "a"),
        (SettingsForm::Toml, "# x = 'IT'\na = 1\n", "a"),
    ];
    for (form, file, kept) in table {
        let made = masked(form, &file.replace("IT", CANARY));
        let text = String::from_utf8(made.text).unwrap();
        assert!(
            !text.contains(CANARY) && text.contains(kept),
            "{file}: {text}"
        );
        assert!(made.has_secrets, "{file}");
    }
    // Without one it is shown as it is written.
    for (form, file) in [
        (
            SettingsForm::Json,
            "{a: 'http://x//', \"b\": \"/* no */\",}",
        ),
        (SettingsForm::Toml, "a   = \"b#c\"\nb = '''\n# no\n'''\n"),
    ] {
        let made = masked(form, file);
        assert_eq!(String::from_utf8(made.text).unwrap(), file);
        assert!(!made.has_secrets, "{file}");
    }
    for (form, file) in [
        (
            SettingsForm::Json,
            r#"{"env": {"MY_PASSWORD": "x"}, "env": {}}"#,
        ),
        (
            SettingsForm::Json,
            r#"{"a": {"b": [{"c": 1, "\u0063": 2}]}}"#,
        ),
        (SettingsForm::Toml, "a = 1\na = 2\n"),
    ] {
        let refused = mask(form, file.as_bytes(), FieldRules::default(), &mut |_, _| {
            Ok(None)
        });
        assert!(refused.is_err(), "{file}");
    }
}

#[test]
fn settings_key_as_member_name_is_refused() {
    let pem = "-----BEGIN PRIVATE KEY-----\\nMC4CAQAwBQYDK2VwBCIEIJ";
    for name in [
        KEY,
        &format!("curl -H 'x: {KEY}'"),
        &format!("https://ann:{CANARY}@example.com/"),
        &format!("curl --token {CANARY}"),
        pem,
    ] {
        for (form, file) in [
            (
                SettingsForm::Json,
                format!("{{\"a\": [{{\"{name}\": true}}]}}"),
            ),
            (SettingsForm::Toml, format!("[a]\n\"{name}\" = true\n")),
        ] {
            let refused = mask(form, file.as_bytes(), FieldRules::default(), &mut |_, _| {
                Ok(None)
            });
            assert!(
                matches!(refused, Err(SettingsMaskError::Kept)),
                "{file}: {refused:?}"
            );
        }
    }
    let file = r#"{"git push --token * --force": "ask", "https://example.com": 1}"#;
    assert!(!json(file).1.has_secrets);
}

#[test]
fn settings_each_key_in_text_is_found() {
    let pem =
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v\n-----END PRIVATE KEY-----";
    for text in [format!("{KEY} and {pem}"), format!("{KEY}:{KEY}x {pem}")] {
        let (_, made) = json(&serde_json::json!({ "any": text }).to_string());
        let shown = String::from_utf8(made.text).unwrap();
        assert!(
            !shown.contains("r3alK3y") && !shown.contains("MC4CAQ"),
            "{shown}"
        );
    }
}

#[test]
fn settings_long_environment_numbers_are_replaced() {
    for (file, stays) in [
        (r#"{"env": {"PIN": 98765432}}"#, false),
        (r#"{"headers": [98765432]}"#, false),
        (r#"{"args": ["--password", 98765432]}"#, false),
        (r#"{"passwords": {"ann": 98765432}}"#, false),
        (
            r#"{"maxTokens": 98765432, "args": ["--port", 98765432]}"#,
            true,
        ),
    ] {
        let made = masked(SettingsForm::Json, file);
        let text = String::from_utf8(made.text).unwrap();
        assert_eq!(text.contains("98765432"), stays, "{text}");
    }
    let made = masked(SettingsForm::Toml, "[env]\nPIN = 98765432\nPORT = 8080\n");
    let text = String::from_utf8(made.text).unwrap();
    assert!(
        !text.contains("98765432") && text.contains("8080"),
        "{text}"
    );
}

#[test]
fn settings_with_too_many_secrets_are_refused() {
    let many = |count: usize| {
        let keys: Vec<String> = (0..count).map(|one| format!("\"{CANARY}{one}\"")).collect();
        format!("{{\"apiKeys\": [{}]}}", keys.join(","))
    };
    // A list of lists is written with its indentation.
    let large = format!(
        "{{\"token\": \"{CANARY}\", \"a\": {}{}{}}}",
        "[".repeat(60),
        "1,".repeat(40_000) + "1",
        "]".repeat(60)
    );
    let dotted = format!("{} = 1\n", vec!["a"; 70].join("."));
    let tables = format!(
        "[{}]\n{} = 1\n",
        vec!["a"; 40].join("."),
        vec!["b"; 40].join(".")
    );
    let nested = format!("a = {}1{}\n", "{ b.c.d = ".repeat(30), " }".repeat(30));
    for (form, file, is_fit) in [
        (SettingsForm::Json, many(4_000), true),
        (SettingsForm::Json, many(4_200), false),
        (SettingsForm::Json, large, false),
        (SettingsForm::Toml, dotted, false),
        (SettingsForm::Toml, tables, false),
        (SettingsForm::Toml, nested, false),
        (
            SettingsForm::Toml,
            "[a.b.c]\nx = [1.5, 2.5, { y = 1.5 }]\n".into(),
            true,
        ),
    ] {
        let made = mask(form, file.as_bytes(), FieldRules::default(), &mut |_, _| {
            Ok(None)
        });
        assert_eq!(made.is_ok(), is_fit, "{form:?} {:.60}", file);
    }
}
