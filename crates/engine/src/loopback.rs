//! The hint that a run meant a service of this host by a loopback address: inside, that is the
//! sandbox's own.

use std::collections::BTreeSet;

use atoll_model::network::THIS_HOST;

/// The names of the loopback before a port, as programs and people write them.
const NAMES: [&str; 4] = ["127.0.0.1:", "localhost:", "[::1]:", "0.0.0.0:"];
/// The most ports that a hint names.
const PORTS_MAX: usize = 3;

/// Returns the ports of the loopback that texts name, as `http://127.0.0.1:11434/v1` does.
pub fn named<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for text in texts {
        for name in NAMES {
            let mut places = text.match_indices(name);
            ports.extend(places.by_ref().filter_map(|(at, _)| {
                let before = text.get(..at)?.chars().next_back();
                let is_whole = !before.is_some_and(|one| one.is_ascii_alphanumeric() || one == '.');
                let rest = text.get(at + name.len()..)?;
                let end = rest.find(|letter: char| !letter.is_ascii_digit());
                let port: Option<u16> = rest.get(..end.unwrap_or(rest.len()))?.parse().ok();
                port.filter(|port| *port > 0 && is_whole)
            }));
        }
    }
    ports
}

/// Returns whether a host of a flow is a loopback, by name or address.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the hint about these ports.
pub fn hint(ports: &BTreeSet<u16>, is_fenced: bool) -> Option<String> {
    let first = ports.first()?;
    let listed = ports.iter().take(PORTS_MAX);
    let listed: Vec<String> = listed.map(|port| format!("127.0.0.1:{port}")).collect();
    let listed = listed.join(", ");
    let allow = format!(
        "`--allow {THIS_HOST}:{first}` and have the program use http://{THIS_HOST}:{first}"
    );
    Some(match is_fenced {
        true => format!(
            "{listed} of this host is not reached by that address: add {allow} (atoll help network)"
        ),
        false => format!(
            "{listed} is the sandbox's own loopback inside. To reach this host's service add \
             `--host-port {first}`, or {allow} (atoll help network)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_ports_are_found_in_texts() {
        for (text, expected) in [
            ("curl http://127.0.0.1:11434/api/tags", &[11434][..]),
            ("http://localhost:8080", &[8080]),
            ("nc [::1]:5432; x=127.0.0.1:6379,", &[5432, 6379]),
            ("http://10.127.0.0.1:80 mylocalhost:81", &[]),
            ("127.0.0.1 localhost:", &[]),
            ("http://127.0.0.1:0/ http://127.0.0.1:99999/", &[]),
        ] {
            let found: Vec<u16> = named([text].into_iter()).into_iter().collect();
            assert_eq!(found, expected, "{text}");
        }
        assert!(is_loopback("127.0.0.1") && is_loopback("[::1]") && is_loopback("a.localhost"));
        assert!(!is_loopback("10.0.0.1") && !is_loopback("localhost.example"));
    }

    #[test]
    fn hints_name_options_that_exist() {
        let ports = BTreeSet::from([11434]);
        let text = hint(&ports, false).unwrap();
        assert!(text.contains("`--host-port 11434`"), "{text}");
        assert!(
            text.contains("`--allow host.atoll.internal:11434`"),
            "{text}"
        );
        assert!(!hint(&ports, true).unwrap().contains("--host-port"));
        assert_eq!(hint(&BTreeSet::new(), false), None);
    }
}
