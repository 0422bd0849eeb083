//! The reference search for a value, as slow and plain as possible: at every index, every way to
//! write every symbol. It shares nothing with the code that it checks.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// The longest gap between two symbols.
const GAP_BYTES_MAX: usize = 24;
const GAP_UNITS_MAX: usize = 12;

/// A form of a value: the bytes that each symbol can be, and those that may precede it.
struct Form {
    symbols: Vec<Vec<u8>>,
    /// The bytes of a gap, each set with the multiple that the place of the symbol after it must
    /// be.
    between: Vec<(&'static [u8], usize)>,
    has_prefixes: bool,
}

/// Returns whether a value occurs in these bytes, in any form.
pub(crate) fn stands(bytes: &[u8], value: &[u8]) -> bool {
    forms(value)
        .iter()
        .any(|form| (0..bytes.len()).any(|start| stands_at(bytes, start, form)))
}

fn digits(bytes: &[u8]) -> Vec<Vec<u8>> {
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.bytes().map(either).collect()
}

fn either(byte: u8) -> Vec<u8> {
    vec![byte.to_ascii_lowercase(), byte.to_ascii_uppercase()]
}

/// Returns the digits of symbols that can be several bytes each.
fn digits_of_each(symbols: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let of_one = |symbol: &Vec<u8>| {
        let all: Vec<Vec<Vec<u8>>> = symbol.iter().map(|byte| digits(&[*byte])).collect();
        [0, 1].map(|place| all.iter().flat_map(|one| one[place].clone()).collect())
    };
    symbols.iter().flat_map(of_one).collect()
}

fn forms(value: &[u8]) -> Vec<Form> {
    let form = |symbols, between: &[(&'static [u8], usize)], has_prefixes| Form {
        symbols,
        between: between.to_vec(),
        has_prefixes,
    };
    let of_digits: [(&[u8], usize); 2] = [(b"\0\r\n", 1), (b" :-,", 2)];
    let plain = value.iter().map(|byte| {
        let mut bytes = either(*byte);
        if *byte == b' ' {
            bytes.push(b'+');
        }
        bytes
    });
    let mut forms = vec![
        form(plain.collect(), &[(b"\0", 1)], false),
        form(digits(value), &of_digits, true),
    ];
    for before in 0..3 {
        let encoded = STANDARD_NO_PAD.encode([&vec![0; before], value].concat());
        let whole = (before * 8).div_ceil(6)..(before + value.len()) * 8 / 6;
        let letters = encoded.as_bytes()[whole].iter().map(|letter| match letter {
            b'+' => b"+-".to_vec(),
            b'/' => b"/_".to_vec(),
            letter => vec![*letter],
        });
        let letters: Vec<Vec<u8>> = letters.collect();
        forms.push(form(digits_of_each(&letters), &of_digits, true));
        forms.push(form(letters, &[(b"\0\r\n", 1)], false));
    }
    forms
}

fn stands_at(bytes: &[u8], start: usize, form: &Form) -> bool {
    let mut places = BTreeSet::from([start]);
    for (number, symbol) in form.symbols.iter().enumerate() {
        if number > 0 {
            let after = places
                .iter()
                .flat_map(|place| gaps(bytes, *place, number, form));
            let after: Vec<usize> = after.collect();
            places.extend(after);
        }
        let mut next = BTreeSet::new();
        for place in &places {
            let read = readings(&bytes[*place..]).into_iter();
            next.extend(
                read.filter_map(|(byte, length)| symbol.contains(&byte?).then_some(place + length)),
            );
        }
        places = next;
        if places.is_empty() {
            return false;
        }
    }
    true
}

/// Returns every possible end of a gap between two symbols.
fn gaps(bytes: &[u8], place: usize, number: usize, form: &Form) -> Vec<usize> {
    let (mut at, mut lines, mut returns) = (place, 0, 0);
    let mut ends = Vec::new();
    for _ in 0..GAP_UNITS_MAX {
        let is_of = |byte: u8| {
            let mut all = form.between.iter();
            all.any(|(bytes, each)| bytes.contains(&byte) && number.is_multiple_of(*each))
        };
        let read = readings(&bytes[at..]).into_iter();
        let unit = read
            .filter(|(byte, _)| byte.is_none_or(is_of))
            .max_by_key(|(_, length)| *length);
        let Some((byte, length)) = unit else { break };
        let byte = byte.unwrap_or(b'\n');
        lines += usize::from(byte == b'\n');
        returns += usize::from(byte == b'\r');
        if lines > 1 || returns > 1 || at + length - place > GAP_BYTES_MAX {
            break;
        }
        at += length;
        ends.push(at);
    }
    let is_prefix = |at: &usize| {
        let rest = &bytes[*at..];
        form.has_prefixes
            && number.is_multiple_of(2)
            && (rest.starts_with(b"0x") || rest.starts_with(b"0X"))
    };
    let prefixed: Vec<usize> = ends
        .iter()
        .copied()
        .filter(is_prefix)
        .map(|at| at + 2)
        .collect();
    ends.extend(prefixed);
    ends
}

/// Returns the readings of the beginning of a text: a byte, or `None` for a soft line break, with
/// its length.
fn readings(bytes: &[u8]) -> Vec<(Option<u8>, usize)> {
    let Some(first) = bytes.first() else {
        return Vec::new();
    };
    let mut read = vec![(Some(*first), 1)];
    let text: String = bytes
        .iter()
        .take(16)
        .map(|byte| char::from(*byte))
        .collect();
    let hexadecimal = |text: &str| {
        let digits = text
            .get(..2)
            .filter(|two| two.bytes().all(|one| one.is_ascii_hexdigit()));
        digits.and_then(|two| u8::from_str_radix(two, 16).ok())
    };
    let fixed = |before: &str, limit: u8| {
        let digits = text.strip_prefix(before);
        let byte = digits.and_then(hexadecimal).filter(|byte| *byte <= limit);
        byte.map(|byte| (Some(byte), before.len() + 2))
    };
    read.extend(fixed("%", 0xff));
    read.extend(fixed("\\x", 0xff));
    read.extend(fixed("\\u00", 0x7f));
    read.extend(fixed("\\U000000", 0x7f));
    read.extend(fixed("=", 0x7f));
    for soft in ["=\n", "=\r\n"] {
        read.extend(text.starts_with(soft).then_some((None, soft.len())));
    }
    let short = [
        ("\\\"", b'"'),
        ("\\'", b'\''),
        ("\\\\", b'\\'),
        ("\\/", b'/'),
        ("\\b", 8),
        ("\\f", 12),
        ("\\n", b'\n'),
        ("\\r", b'\r'),
        ("\\t", b'\t'),
    ];
    let short = short
        .iter()
        .filter(|(written, _)| text.starts_with(written));
    read.extend(short.map(|(written, byte)| (Some(*byte), written.len())));
    read.extend(numbered(&text, "\\u{", 16, "}", true));
    read.extend(numbered(&text, "&#x", 16, ";", false));
    read.extend(numbered(&text, "&#X", 16, ";", false));
    read.extend(numbered(&text, "&#", 10, ";", false));
    read.extend(octal(&text));
    let names = NAMES
        .iter()
        .filter(|(name, _)| text.get(1..).is_some_and(|text| text.starts_with(name)));
    if *first == b'&'
        && let Some((name, byte)) = names.max_by_key(|(name, _)| name.len())
    {
        let length = 1 + name.len();
        let is_ended = text[length..].starts_with(';');
        read.push((Some(*byte), length + usize::from(is_ended)));
    }
    read
}

/// Reads an ASCII number of up to eight digits, as many as possible.
fn numbered(
    text: &str,
    before: &str,
    radix: u32,
    end: &str,
    has_end: bool,
) -> Option<(Option<u8>, usize)> {
    let rest = text.strip_prefix(before)?;
    let digits = rest
        .chars()
        .take(8)
        .take_while(|digit| digit.is_digit(radix))
        .count();
    let number = |count: &usize| {
        u32::from_str_radix(&rest[..*count], radix).is_ok_and(|number| number < 0x80)
    };
    let count = (1..=digits).rev().find(number)?;
    let is_ended = rest[count..].starts_with(end);
    let byte = u8::from_str_radix(&rest[..count], radix).ok();
    let length = before.len() + count + if is_ended { end.len() } else { 0 };
    (is_ended || !has_end).then_some((byte, length))
}

fn octal(text: &str) -> Option<(Option<u8>, usize)> {
    let rest = text.strip_prefix('\\')?;
    let digits = rest
        .chars()
        .take(3)
        .take_while(|digit| digit.is_digit(8))
        .count();
    let count = (1..=digits).rev();
    let mut all =
        count.filter_map(|count| Some((u8::from_str_radix(&rest[..count], 8).ok()?, count)));
    all.next().map(|(byte, count)| (Some(byte), 1 + count))
}

const NAMES: &[(&str, u8)] = &[
    ("AMP", b'&'),
    ("GT", b'>'),
    ("Hat", b'^'),
    ("LT", b'<'),
    ("NewLine", b'\n'),
    ("QUOT", b'"'),
    ("Tab", b'\t'),
    ("UnderBar", b'_'),
    ("amp", b'&'),
    ("apos", b'\''),
    ("ast", b'*'),
    ("bsol", b'\\'),
    ("colon", b':'),
    ("comma", b','),
    ("commat", b'@'),
    ("dollar", b'$'),
    ("equals", b'='),
    ("excl", b'!'),
    ("grave", b'`'),
    ("gt", b'>'),
    ("lbrace", b'{'),
    ("lbrack", b'['),
    ("lcub", b'{'),
    ("lowbar", b'_'),
    ("lpar", b'('),
    ("lsqb", b'['),
    ("lt", b'<'),
    ("midast", b'*'),
    ("num", b'#'),
    ("percnt", b'%'),
    ("period", b'.'),
    ("plus", b'+'),
    ("quest", b'?'),
    ("quot", b'"'),
    ("rbrace", b'}'),
    ("rbrack", b']'),
    ("rcub", b'}'),
    ("rpar", b')'),
    ("rsqb", b']'),
    ("semi", b';'),
    ("sol", b'/'),
    ("verbar", b'|'),
    ("vert", b'|'),
];

/// Returns some ways to write a byte.
pub(crate) fn ways(byte: u8) -> Vec<Vec<u8>> {
    let mut ways = vec![vec![byte], format!("%{byte:02x}").into_bytes()];
    ways.push(format!("\\x{byte:02x}").into_bytes());
    if byte < 0x80 {
        ways.push(format!("\\u00{byte:02x}").into_bytes());
    }
    ways
}
