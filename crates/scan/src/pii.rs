//! Personal data by its looks: e-mail addresses, telephone numbers, payment cards, bank accounts and
//! social security numbers, by checksum where there is one. A name, or an address of a street, cannot
//! be told from other text.

mod disguise;
mod phone;

use std::collections::BTreeMap;
use std::ops::Range;

/// A kind of personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PiiKind {
    /// An e-mail address (RFC 5321).
    Email,
    /// A telephone number: with its country's code (E.164), as North America writes it, or with a word
    /// for it.
    Phone,
    /// The number of a payment card (ISO/IEC 7812), by its issuer, length and checksum.
    Card,
    /// An account's number (IBAN, ISO 13616), by its country's length and checksum.
    Iban,
    /// A social security number of the United States, in the ranges that are given out.
    Ssn,
}

/// Personal data in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPii {
    /// Its kind.
    pub kind: PiiKind,
    /// Its place, bytes.
    pub at: Range<usize>,
}

/// The number of times that each kind was masked.
pub type PiiCounts = BTreeMap<PiiKind, usize>;

impl PiiKind {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "e-mail",
            Self::Phone => "phone",
            Self::Card => "card",
            Self::Iban => "IBAN",
            Self::Ssn => "SSN",
        }
    }
}

/// Finds the personal data in a text, in order; that which is written in another way, as
/// percent-encoded or in base64, too.
#[must_use]
pub fn find_pii(text: &str) -> Vec<FoundPii> {
    let mut found = find_plain(text);
    let more = disguise::find(text, &found);
    if !more.is_empty() {
        found.extend(more);
        found.sort_by_key(|one| (one.at.start, one.at.end));
        // Of two that have bytes in common, the first stays.
        let mut end = 0;
        found.retain(|one| {
            let is_apart = one.at.start >= end;
            end = if is_apart { one.at.end } else { end };
            is_apart
        });
    }
    found
}

/// Finds the personal data that is written as it is.
fn find_plain(text: &str) -> Vec<FoundPii> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::<FoundPii>::new(), 0);
    // A number or a code begins no part of a word but the first.
    let mut is_within = false;
    while let Some(byte) = bytes.get(at) {
        let class = Class::of(*byte);
        let was_within = is_within;
        is_within = matches!(class, Class::Letter | Class::Digit);
        let one = match class {
            Class::At => {
                let after = found.last().map_or(0, |one| one.at.end);
                email(text, at, after).map(|at| (PiiKind::Email, at))
            }
            Class::Other => None,
            _ if was_within => None,
            Class::Plus => phone::international(bytes, at).map(|at| (PiiKind::Phone, at)),
            Class::Open => phone::national(bytes, at).map(|at| (PiiKind::Phone, at)),
            Class::Letter => match bytes.get(at + 2..at + 4) {
                Some([b'0'..=b'9', b'0'..=b'9']) => iban(bytes, at).map(|at| (PiiKind::Iban, at)),
                _ => None,
            },
            Class::Digit => number(bytes, at),
        };
        match one {
            Some((kind, place)) => {
                is_within = false;
                at = place.end;
                found.push(FoundPii { kind, at: place });
            }
            None => at += 1,
        }
    }
    found
}

/// The class of a byte: what may begin there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    /// A part of a word; a byte beyond ASCII is.
    Letter,
    Digit,
    At,
    Plus,
    Open,
}

impl Class {
    fn of(byte: u8) -> Self {
        const CLASSES: [Class; 256] = Class::all();
        CLASSES
            .get(usize::from(byte))
            .copied()
            .unwrap_or(Self::Other)
    }

    #[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
    const fn all() -> [Self; 256] {
        let mut classes = [Self::Other; 256];
        let mut at = 0;
        while at < classes.len() {
            classes[at] = match at as u8 {
                b'A'..=b'Z' | b'a'..=b'z' | b'_' | 0x80.. => Self::Letter,
                b'0'..=b'9' => Self::Digit,
                b'@' => Self::At,
                b'+' => Self::Plus,
                b'(' => Self::Open,
                _ => Self::Other,
            };
            at += 1;
        }
        classes
    }
}

/// Finds what begins with this digit.
fn number(text: &[u8], at: usize) -> Option<(PiiKind, Range<usize>)> {
    // Most numbers are short, and alone.
    let own = digits(text, at).len();
    let is_alone = !text
        .get(at + own)
        .is_some_and(|sign| b" -./()".contains(sign));
    if own < 7 && is_alone {
        return None;
    }
    let card = card(text, at).map(|at| (PiiKind::Card, at));
    let ssn = || ssn(text, at).map(|at| (PiiKind::Ssn, at));
    let phone = || phone::national(text, at).map(|at| (PiiKind::Phone, at));
    card.or_else(ssn).or_else(phone)
}

/// Masks the personal data in a text, counted by its kind; `None` where there is none.
#[must_use]
pub fn mask_pii(text: &str, counts: &mut PiiCounts) -> Option<String> {
    let found = find_pii(text);
    let mut masked = String::with_capacity(text.len());
    let mut from = 0;
    for FoundPii { kind, at } in &found {
        masked.push_str(text.get(from..at.start).unwrap_or_default());
        masked.push_str(&format!("[masked: {}]", kind.name()));
        from = at.end;
        *counts.entry(*kind).or_default() += 1;
    }
    masked.push_str(text.get(from..).unwrap_or_default());
    (!found.is_empty()).then_some(masked)
}

/// The longest part of an address before its `@`, and after it, bytes.
const LOCAL_BYTES_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 253;
/// Ends of names with an `@` that are no addresses: those of units of systemd, and of files.
const NO_DOMAINS: [&str; 21] = [
    "css", "device", "gif", "jpeg", "jpg", "js", "json", "mount", "path", "png", "scope",
    "service", "slice", "socket", "svg", "swap", "target", "timer", "ts", "webp", "yml",
];

/// Finds the address around an `@`, after the place where the last one ended.
fn email(text: &str, at: usize, after: usize) -> Option<Range<usize>> {
    let is_of_local = |one: &char| one.is_alphanumeric() || "._%+-'/=&".contains(*one);
    let before = text.get(after..at)?;
    let local = before
        .chars()
        .rev()
        .take(LOCAL_BYTES_MAX)
        .take_while(is_of_local);
    let local = before.get(before.len() - local.map(char::len_utf8).sum::<usize>()..)?;
    // Signs before it belong to the text around it, as in a query of an address.
    let local = local.rsplit(['/', '=', '&']).next()?;
    let local = local.trim_start_matches(['.', '\'', '-', '%', '+']);
    let is_user = text.get(..at - local.len())?.ends_with("://");
    let rest = text.get(at + 1..)?;
    let is_of_domain = |one: &char| one.is_alphanumeric() || matches!(one, '-' | '.');
    let domain = rest.chars().take(DOMAIN_BYTES_MAX).take_while(is_of_domain);
    let domain = rest.get(..domain.map(char::len_utf8).sum())?;
    let domain = domain.trim_end_matches(['.', '-']);
    let (hosts, top) = domain.rsplit_once('.')?;
    let is_top = top.starts_with("xn--") || top.chars().all(char::is_alphabetic);
    let is_label = |label: &str| !(label.is_empty() || label.starts_with('-'));
    // As programs write the place of a repository.
    let is_git = local == "git" && rest.get(domain.len()..)?.starts_with([':', '/']);
    let is_address = !local.is_empty()
        && !local.ends_with('.')
        && !is_user
        && !is_git
        && top.chars().count() >= 2
        && is_top
        && hosts.split('.').all(is_label)
        && !NO_DOMAINS.contains(&&*top.to_ascii_lowercase());
    is_address.then(|| at - local.len()..at + 1 + domain.len())
}

/// The ways that a card's number is written in groups.
const CARD_GROUPS: [&[usize]; 4] = [&[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4], &[4, 4, 4, 4, 3]];

/// Finds the card's number that begins with this digit.
fn card(text: &[u8], at: usize) -> Option<Range<usize>> {
    if is_joined(text, at, at) {
        return None;
    }
    let whole = digits(text, at);
    if whole.len() > 4 {
        let end = at + whole.len();
        return (is_card(whole) && !is_joined(text, at, end)).then_some(at..end);
    }
    let sign = text
        .get(at + 4)
        .filter(|sign| matches!(sign, b' ' | b'-'))?;
    CARD_GROUPS.iter().find_map(|groups| {
        let (mut number, mut next) = (Vec::new(), at);
        for (place, group) in groups.iter().enumerate() {
            if place > 0 {
                (text.get(next) == Some(sign)).then_some(())?;
                next += 1;
            }
            let own = digits(text, next);
            (own.len() == *group).then(|| number.extend_from_slice(own))?;
            next += group;
        }
        (is_card(&number) && !is_joined(text, at, next)).then_some(at..next)
    })
}

/// Returns whether digits are the number of a card of a known issuer, with its checksum.
fn is_card(digits: &[u8]) -> bool {
    let first = |count| {
        let digits = digits.get(..count).unwrap_or_default().iter();
        digits.fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    let is_issued = match digits.len() {
        14 => matches!(first(3), 300..=305) || matches!(first(2), 36 | 38),
        15 => matches!(first(2), 34 | 37),
        16 => {
            first(1) == 4
                || matches!(first(2), 51..=55 | 62 | 65)
                || matches!(first(3), 644..=649)
                || matches!(first(4), 2221..=2720 | 3528..=3589 | 6011)
                || matches!(first(4), 5018 | 5020 | 5038 | 6304 | 6759 | 6761 | 6763)
        }
        19 => first(1) == 4 || matches!(first(2), 62 | 65) || first(4) == 6011,
        _ => false,
    };
    let sum = digits.iter().rev().enumerate().map(|(place, digit)| {
        let digit = u32::from(digit - b'0');
        match place % 2 {
            0 => digit,
            _ => digit * 2 / 10 + digit * 2 % 10,
        }
    });
    is_issued && sum.sum::<u32>() % 10 == 0
}

/// The countries with IBANs, and their lengths (the registry of SWIFT).
const IBANS: &str = "\
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 \
    DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 \
    IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 \
    MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 \
    SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30";

/// Finds the IBAN that begins with this letter, whole or in groups of four.
fn iban(text: &[u8], at: usize) -> Option<Range<usize>> {
    let [first, second, digit, other] = text.get(at..at + 4)? else {
        return None;
    };
    if !(digit.is_ascii_digit() && other.is_ascii_digit()) || is_word(text, at.checked_sub(1)) {
        return None;
    }
    let country = [first.to_ascii_uppercase(), second.to_ascii_uppercase()];
    let country = std::str::from_utf8(&country).ok()?;
    let length = IBANS.split(' ').find_map(|one| one.strip_prefix(country))?;
    let length: usize = length.parse().ok()?;
    let sign = text.get(at + 4).filter(|sign| matches!(sign, b' ' | b'-'));
    let (mut next, mut rest) = (at, 0_u32);
    let mut letters = Vec::with_capacity(length);
    while letters.len() < length {
        if sign.is_some() && letters.len() % 4 == 0 && !letters.is_empty() {
            (text.get(next) == sign).then_some(())?;
            next += 1;
        }
        // All of it is in upper case, or in lower.
        let letter = text.get(next).filter(|letter| {
            letter.is_ascii_digit()
                || letter.is_ascii_alphabetic()
                    && letter.is_ascii_lowercase() == first.is_ascii_lowercase()
        })?;
        letters.push(letter.to_ascii_uppercase());
        next += 1;
    }
    letters.rotate_left(4);
    for letter in letters {
        rest = match letter {
            b'0'..=b'9' => rest * 10 + u32::from(letter - b'0'),
            _ => rest * 100 + u32::from(letter - b'A') + 10,
        } % 97;
    }
    (rest == 1 && !is_word(text, Some(next))).then_some(at..next)
}

/// Finds the social security number that begins with this digit: with hyphens, or otherwise where a
/// word before it says so.
fn ssn(text: &[u8], at: usize) -> Option<Range<usize>> {
    if is_joined(text, at, at) {
        return None;
    }
    let whole = digits(text, at);
    let number = |from: usize, count: usize| {
        let own = text.get(at + from..at + from + count)?;
        let number = own
            .iter()
            .all(u8::is_ascii_digit)
            .then(|| std::str::from_utf8(own).ok())??;
        number.parse::<u32>().ok()
    };
    let (sign, from, end) = match whole.len() {
        3 => (text.get(at + 3)?, [4, 7], at + 11),
        9 => (&0, [3, 5], at + 9),
        _ => return None,
    };
    let is_written = *sign == 0 || text.get(at + 6) == Some(sign);
    let is_known = *sign == b'-' || matches!(sign, 0 | b' ' | b'.') && is_called_ssn(text, at);
    if !is_written || !is_known || is_joined(text, at, end) {
        return None;
    }
    let [group_at, serial_at] = from;
    let (area, group, serial) = (number(0, 3)?, number(group_at, 2)?, number(serial_at, 4)?);
    let is_given = !matches!(area, 0 | 666 | 900..) && group > 0 && serial > 0;
    // A number of advertisements and books.
    let is_nobodys = matches!((area, group, serial), (78, 5, 1120) | (219, 9, 9999));
    (is_given && !is_nobodys).then_some(at..end)
}

/// Returns whether a word shortly before says that a number is one of social security.
fn is_called_ssn(text: &[u8], at: usize) -> bool {
    let before = text.get(at.saturating_sub(32)..at).unwrap_or_default();
    let line = before
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let lower = line.to_ascii_lowercase();
    let words: [&[u8]; 3] = [b"ssn", b"social security", b"social_security"];
    words
        .iter()
        .any(|word| memchr::memmem::find(&lower, word).is_some())
}

fn digits(text: &[u8], at: usize) -> &[u8] {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| !byte.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

/// Returns whether the byte there is part of a word; a byte beyond ASCII is.
fn is_word(text: &[u8], at: Option<usize>) -> bool {
    let byte = at.and_then(|at| text.get(at));
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii())
}

/// Returns whether what begins and ends there is part of something longer: a word, a fraction, digits
/// in groups, as of a UUID, or in thousands.
fn is_joined(text: &[u8], start: usize, end: usize) -> bool {
    let is_sign = |byte: &u8| matches!(byte, b'-' | b'.' | b'/' | b'+');
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let before = start.checked_sub(1);
    let is_before = match before.and_then(|at| text.get(at)) {
        // Fields are parted by it as well.
        Some(b',') => start.checked_sub(2).is_some_and(is_digit) && digits(text, start).len() == 3,
        sign => sign.is_some_and(is_sign) && is_word(text, start.checked_sub(2)),
    };
    let is_after = match text.get(end) {
        Some(b',') => {
            let own = text.get(..end).unwrap_or_default().iter().rev();
            let own = own.take(4).take_while(|byte| byte.is_ascii_digit());
            is_digit(end + 1) && own.count() <= 3
        }
        sign => sign.is_some_and(is_sign) && is_word(text, Some(end + 1)),
    };
    is_word(text, before) || is_before || end > start && (is_word(text, Some(end)) || is_after)
}

#[cfg(test)]
mod tests;
