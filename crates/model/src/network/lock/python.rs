//! Versions of Python packages, as far as they have one canonical spelling.

/// Returns a version in the form that all its spellings share (PEP 440, "Normalization"), without
/// leading zeros of numbers and without zeros at the end of a release. `None` for an invalid
/// version, and for an unusual spelling of one (`1.0-beta`, `v1`, `1.0a`).
#[must_use]
pub fn normal_version(text: &str) -> Option<String> {
    let (public, local) = match text.split_once('+') {
        Some((public, local)) => (public, Some(normal_local(local)?)),
        None => (text, None),
    };
    let (epoch, rest) = match public.split_once('!') {
        Some((epoch, rest)) => (number(epoch)?, rest),
        None => ("0".to_owned(), public),
    };
    let release_end = rest.find(|one: char| one != '.' && !one.is_ascii_digit());
    let (release, suffix) = rest.split_at(release_end.unwrap_or(rest.len()));
    // What stands before `.post` and `.dev` is theirs.
    let (release, suffix) = match release.strip_suffix('.') {
        Some(release) => (release, format!(".{suffix}")),
        None => (release, suffix.to_owned()),
    };
    let numbers: Option<Vec<String>> = release.split('.').map(number).collect();
    let mut numbers = numbers?;
    while numbers.len() > 1 && numbers.last().is_some_and(|last| last == "0") {
        numbers.pop();
    }
    let mut normal = format!("{epoch}!{}", numbers.join("."));
    let mut rest = suffix.as_str();
    for marks in [&["a", "b", "rc"][..], &[".post"], &[".dev"]] {
        for mark in marks {
            if let Some(numbered) = rest.strip_prefix(mark) {
                let end = numbered.find(|one: char| !one.is_ascii_digit());
                let (digits, left) = numbered.split_at(end.unwrap_or(numbered.len()));
                normal.push_str(mark);
                normal.push_str(&number(digits)?);
                rest = left;
                break;
            }
        }
    }
    if !rest.is_empty() {
        return None;
    }
    if let Some(local) = local {
        normal.push('+');
        normal.push_str(&local);
    }
    Some(normal)
}

/// Returns a number without leading zeros.
fn number(digits: &str) -> Option<String> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits.trim_start_matches('0');
    is_number.then(|| match plain {
        "" => "0".to_owned(),
        plain => plain.to_owned(),
    })
}

/// Returns a local version (the words and numbers of a repackager), separated by `.`.
fn normal_local(text: &str) -> Option<String> {
    let part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_part = !part.is_empty() && part.bytes().all(is_plain);
        is_part.then(|| number(part).unwrap_or_else(|| part.to_owned()))
    };
    let parts: Option<Vec<String>> = text.split(['.', '_', '-']).map(part).collect();
    Some(parts?.join("."))
}
