//! The network that a sandbox is created with.

use atoll_engine::failure::Failure;
use serde_json::{Value, json};

/// Reads a network: less than the server's, as `/v1` takes it.
pub(super) fn asked(word: Option<&str>) -> Result<Value, Failure> {
    let Some(word) = word else {
        return Ok(Value::Null);
    };
    let hosts: Vec<&str> = word.split(',').map(str::trim).collect();
    match word {
        "closed" => Ok(json!({ "internet": false })),
        "registries" | "internet" => Err(Failure::new(format!(
            "--network {word} is the server's to grant"
        ))
        .because("a sandbox can only ask for less than serve.toml says")
        .advise(format!(
            "atoll serve --network {word}, and no --network here"
        ))),
        _ if hosts.iter().all(|host| is_host(host)) => {
            Ok(json!({ "allow": hosts, "deny": ["0.0.0.0/0"] }))
        }
        _ => Err(Failure::new("--network is no network")
            .because("it is closed, or hosts with commas between them")
            .advise("--network api.example.com,*.example.org")),
    }
}

fn is_host(text: &str) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || "-_.:*/[]".contains(letter);
    !text.is_empty() && text.chars().all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_closed_or_hosts() {
        let asked = |word| asked(word).ok();
        assert_eq!(asked(None), Some(Value::Null));
        assert_eq!(asked(Some("closed")), Some(json!({ "internet": false })));
        let hosts = json!({ "allow": ["api.example.com", "*.example.org"], "deny": ["0.0.0.0/0"] });
        assert_eq!(asked(Some("api.example.com, *.example.org")), Some(hosts));
        for wrong in ["", "internet", "registries", "a,,b", "a b", "https://a b"] {
            assert_eq!(asked(Some(wrong)), None, "{wrong}");
        }
    }
}
