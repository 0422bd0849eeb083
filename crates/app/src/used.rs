//! Which credentials were put into requests, how often and where, for a person: the same
//! at a run's end and in its story.

use std::collections::BTreeMap;

use crate::escape::printable;
use crate::render;

/// How many hosts a line names.
const HOSTS_SHOWN_MAX: usize = 4;

/// A line for each credential, of how often it was put into requests to each host.
pub(crate) fn lines(used: &BTreeMap<(String, String), u64>) -> Vec<String> {
    let mut of_each: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for ((name, host), times) in used {
        of_each.entry(name).or_default().push((host, *times));
    }
    let line = |(name, mut hosts): (&str, Vec<(&str, u64)>)| {
        hosts.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let all = hosts.iter().map(|(_, times)| times).sum();
        let shown = hosts.iter().take(HOSTS_SHOWN_MAX).map(|(host, _)| *host);
        let shown = shown.collect::<Vec<_>>().join(", ");
        let further = match hosts.len().saturating_sub(HOSTS_SHOWN_MAX) {
            0 => String::new(),
            further => format!(
                " and {}",
                render::counted(further as u64, "other", "others")
            ),
        };
        let requests = render::counted(all, "request", "requests");
        let line = format!("credential {name}: put into {requests} to {shown}{further}");
        printable(line.as_bytes())
    };
    of_each.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_often_and_where() {
        let mut used = BTreeMap::new();
        for (name, host, times) in [
            ("git", "example.com", 1),
            ("hub", "a.example", 2),
            ("hub", "b.example", 5),
        ] {
            used.insert((name.to_owned(), host.to_owned()), times);
        }
        let told = [
            "credential git: put into 1 request to example.com",
            "credential hub: put into 7 requests to b.example, a.example",
        ];
        assert_eq!(lines(&used), told);
        for number in 0..9 {
            used.insert(("git".to_owned(), format!("{number}.example")), 1);
        }
        let told = "credential git: put into 10 requests to 0.example, 1.example, 2.example, 3.example and 6 others";
        assert_eq!(lines(&used)[0], told);
        assert!(lines(&BTreeMap::new()).is_empty());
    }
}
