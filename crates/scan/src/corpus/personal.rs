//! Personal data in texts, plain and written in other ways, and numbers that are none.

use super::random::{Random, base64};
use super::{Sample, surrounded};

/// The values of each kind, and those of each way to write one.
const VALUES: usize = 24;
const DISGUISES: usize = 8;
/// The samples of each form without personal data.
const EACH: usize = 6;

/// Lines with a value in them, `$V`.
const LINES: [&str; 16] = [
    "contact: $V",
    "{\"name\": \"Ann Lee\", \"value\": \"$V\", \"active\": true}",
    "INSERT INTO people VALUES (17, 'Ann Lee', '$V', 'Berlin');",
    "Please reach Ann at $V before Monday.",
    "17,Ann Lee,$V,Berlin,2026-05-01",
    "<td class=\"c\">$V</td>",
    "value=$V",
    "  customer_value: \"$V\"",
    "2026-05-01T10:00:00Z INFO created customer 17 ($V)",
    "Ann Lee\t$V\tBerlin",
    "# asked by Ann, $V.",
    "const value = '$V';",
    "- $V",
    "Dear Ann, we have noted $V as you wished.",
    "$V",
    "ann|$V|active",
];

/// Makes a value of a kind.
type Make = fn(&mut Random) -> String;

/// Ways to write a value.
type Disguise = (&'static str, fn(&str) -> String);

const OF_MAILS: [Disguise; 10] = [
    ("url-encoded", |value| {
        format!("https://a.net/u?to={}&x=1", value.replace('@', "%40"))
    }),
    ("entity-decimal", |value| {
        format!("write to {}", value.replace('@', "&#64;"))
    }),
    ("entity-hex", |value| {
        format!("write to {}", value.replace('@', "&#x40;"))
    }),
    ("all-entities", |value| {
        value
            .chars()
            .map(|one| format!("&#{};", u32::from(one)))
            .collect()
    }),
    ("base64", |value| {
        format!("payload={}", base64(format!("user: {value}\n").as_bytes()))
    }),
    ("full-width-at", |value| {
        format!("mail {}", value.replace('@', "\u{ff20}"))
    }),
    ("zero-width", |value| {
        format!("mail {}", value.replace('@', "\u{200b}@\u{200b}"))
    }),
    ("escaped", |value| {
        format!("{{\"to\":\"{}\"}}", value.replace('@', "\\u0040"))
    }),
    ("spaced-at", |value| {
        format!("mail {} please", value.replace('@', " @ "))
    }),
    ("word-at", |value| {
        format!(
            "mail {} please",
            value.replace('@', " [at] ").replace('.', " [dot] ")
        )
    }),
];

const OF_NUMBERS: [Disguise; 7] = [
    ("full-width", |value| {
        format!(
            "number {}",
            value.chars().map(full_width).collect::<String>()
        )
    }),
    ("zero-width", |value| {
        format!("number {}", spread(value, "\u{200b}"))
    }),
    ("no-break-space", |value| {
        format!("number {}", value.replace([' ', '-'], "\u{a0}"))
    }),
    ("other-hyphen", |value| {
        format!("number {}", value.replace([' ', '-'], "\u{2011}"))
    }),
    ("base64", |value| {
        format!(
            "blob: {}",
            base64(format!("number is {value}\n").as_bytes())
        )
    }),
    ("url-encoded", |value| {
        format!(
            "/pay?number={}&x=1",
            value.replace(' ', "%20").replace('+', "%2B")
        )
    }),
    ("entities", |value| {
        value
            .chars()
            .map(|one| format!("&#{};", u32::from(one)))
            .collect()
    }),
];

/// Lines without personal data; `{..}` are filled.
const NONE: [(&str, &str); 40] = [
    ("order", "order {d:16} shipped"),
    ("order-short", "order number 2026-{d:6}-{d:4}"),
    ("invoice", "invoice INV-{d:8} of 2026-05-{d:2}"),
    ("version", "app 1.{d:1}.{d:2}-rc.{d:1}+{d:8}"),
    (
        "versions",
        "lodash@4.17.{d:2} react@18.2.{d:1} @types/node@20.{d:1}.0",
    ),
    ("seconds", "at 17645{d:5}: started"),
    ("millis", "\"ts\": 17645{d:8},"),
    ("nanos", "time_unix_nano: 17645{d:14}"),
    ("date", "2026-05-1{d:1}T10:{d:2}:11.{d:6}Z ready"),
    ("ip", "client 10.{d:2}.{d:2}.{d:2}:443 connected"),
    ("ip-v6", "addr fe80::{h:4}:{h:4}:{h:4}:{h:4}"),
    ("mac", "link/ether {h:2}:{h:2}:{h:2}:{h:2}:{h:2}:{h:2}"),
    ("uuid", "id {h:8}-{h:4}-4{h:3}-a{h:3}-{h:12}"),
    ("isbn", "ISBN 978-3-16-{d:6}-{d:1}"),
    ("isbn-10", "ISBN 0-306-{d:5}-{d:1}"),
    ("hex", "commit {h:40}"),
    (
        "numbers-in-code",
        "const TABLE: [u32; 4] = [{d:9}, {d:9}, {d:9}, {d:9}];",
    ),
    (
        "phone-like-in-code",
        "let range = {d:3}..{d:4}; x = {d:7} - {d:4};",
    ),
    ("offset", "seek(+{d:6}); y += {d:10};"),
    ("float", "lat 52.{d:12} lon 13.{d:12}"),
    ("fraction", "0.{d:16} 1.{d:15}e-10"),
    ("decorator", "@app.route('/users/<id>')"),
    ("scope", "import x from '@scope/package.name';"),
    ("git-remote", "git@github.com:org/repo-{d:2}.git"),
    ("ssh-url", "ssh://git@git.corp.net/{z:6}/repo"),
    ("unit", "systemctl start getty@tty{d:1}.service"),
    ("retina", "background: url(icon@2x.png)"),
    ("image", "docker pull app@sha256:{h:64}"),
    ("matrix-product", "y = x @ self.weight + bias"),
    (
        "css-at",
        "@media (min-width: {d:3}px) { .a { width: {d:3}px } }",
    ),
    ("tracking", "tracking 1Z{U:6}{d:10}"),
    ("ean", "EAN 400638{d:7}"),
    ("account-range", "rows {d:5}-{d:5} of {d:7}"),
    ("port-range", "ports 30000-32767, 1{d:4}-2{d:4}"),
    ("table", "| 10{d:2} | 20{d:2} | 30{d:2} | 40{d:2} |"),
    (
        "log-duration",
        "done in {d:3}.{d:3} ms, {d:8} bytes, pid {d:5}",
    ),
    ("size", "total 1{d:2},{d:3},{d:3} bytes"),
    ("model", "part 5{d:3}-{d:4}-{d:4}-A"),
    ("user-at-host", "user@localhost: ~/src$ ls"),
    ("jdbc", "jdbc:oracle:thin:@db-{d:1}:1521:orcl"),
];

pub(super) fn samples(random: &mut Random) -> Vec<Sample> {
    let mut all = Vec::new();
    let kinds: [(&str, Make); 11] = [
        ("e-mail", mail),
        ("phone-international", phone_international),
        ("phone-american", phone_american),
        ("phone-local", phone_local),
        ("card", |random| card(random, "")),
        ("card-spaces", |random| card(random, " ")),
        ("card-dashes", |random| card(random, "-")),
        ("iban", |random| iban(random, "")),
        ("iban-groups", |random| iban(random, " ")),
        ("ssn", ssn),
        ("ssn-named", |random| {
            format!("SSN {}", ssn(random).replace('-', " "))
        }),
    ];
    for (kind, make) in kinds {
        for _ in 0..VALUES {
            let value = make(random);
            let line = random.pick(&LINES).replace("$V", &value);
            all.push(sample(random, kind, &line, true));
        }
        let ways = match kind {
            "e-mail" => OF_MAILS.as_slice(),
            "phone-international" | "card-spaces" | "iban-groups" | "ssn" => &OF_NUMBERS,
            _ => &[],
        };
        // Without hyphens or a name, nobody could tell.
        let ways = ways
            .iter()
            .filter(|(way, _)| (kind, *way) != ("ssn", "no-break-space"));
        for (way, write) in ways {
            for _ in 0..DISGUISES {
                let value = make(random);
                all.push(sample(
                    random,
                    &format!("{kind} {way}"),
                    &write(&value),
                    true,
                ));
            }
        }
    }
    of_none(random, &mut all);
    near_misses(random, &mut all);
    all
}

/// Adds lines that look like personal data, and are none.
fn of_none(random: &mut Random, all: &mut Vec<Sample>) {
    for (kind, form) in NONE {
        for _ in 0..EACH {
            let own = form.replace("{ .a { width: {d:3}px } }", "\u{1}");
            let line = random.fill(&own).replace('\u{1}', "{ .a { width: 1px } }");
            all.push(sample(random, kind, &line, false));
        }
    }
}

/// Adds numbers that no checksum lets pass, and bytes.
fn near_misses(random: &mut Random, all: &mut Vec<Sample>) {
    for _ in 0..EACH * 4 {
        let number = card_digits(random, "4", 16);
        let wrong = wrong_digit(random, &number);
        all.push(sample(
            random,
            "card-wrong-digit",
            &format!("ref {wrong}"),
            false,
        ));
        let account = iban(random, "");
        let wrong = wrong_digit(random, &account);
        all.push(sample(
            random,
            "iban-wrong-digit",
            &format!("ref {wrong}"),
            false,
        ));
        let code = random.pick(&[
            "000-12-3456",
            "666-45-1234",
            "900-45-1234",
            "123-00-4567",
            "123-45-0000",
        ]);
        all.push(sample(
            random,
            "ssn-never-given",
            &format!("id {code}"),
            false,
        ));
        let blob: Vec<String> = random.bytes(171).chunks(57).map(base64).collect();
        all.push(sample(random, "base64-of-bytes", &blob.join("\n"), false));
        let text = base64(
            random
                .fill("just {z:5} and {z:7} without any {z:4}")
                .as_bytes(),
        );
        all.push(sample(random, "base64-of-text", &text, false));
    }
}

fn sample(random: &mut Random, kind: &str, line: &str, is_one: bool) -> Sample {
    let (text, at) = surrounded(random, &["id: 17", "city: Berlin"], line, &["state: open"]);
    Sample {
        kind: kind.to_owned(),
        text,
        line: is_one.then_some(at),
    }
}

fn mail(random: &mut Random) -> String {
    let names = [
        "ann",
        "bob.smith",
        "c_jones",
        "dora-k",
        "eve+news",
        "f.g.hall",
        "j\u{fc}rgen",
        "k2",
    ];
    let hosts = [
        "example.com",
        "mail.example.org",
        "corp.co.uk",
        "uni-ulm.de",
        "gmail.com",
        "b\u{fc}cher.example",
        "x.io",
    ];
    format!(
        "{}{}@{}",
        random.pick(&names),
        random.below(100),
        random.pick(&hosts)
    )
}

fn phone_international(random: &mut Random) -> String {
    let forms = [
        "+49 30 2{d:6}",
        "+44 20 7946 0{d:3}",
        "+1 (415) 555-2{d:3}",
        "+1 212-555-0{d:3}",
        "+33 1 42 68 {d:2} {d:2}",
        "+81 3-1234-{d:4}",
        "+4917612{d:6}",
        "+61 2 9374 {d:4}",
        "+91 98765 4{d:4}",
        "0049 30 2{d:6}",
    ];
    let form = random.pick(&forms);
    random.fill(form)
}

fn phone_american(random: &mut Random) -> String {
    let forms = [
        "(415) 555-2{d:3}",
        "415-555-2{d:3}",
        "415.555.2{d:3}",
        "1-800-555-2{d:3}",
        "(212) 736 5{d:3}",
    ];
    let form = random.pick(&forms);
    random.fill(form)
}

fn phone_local(random: &mut Random) -> String {
    let forms = [
        "Tel. 030 2{d:6}",
        "tel: 020 7946 0{d:3}",
        "phone: 07911 12{d:4}",
        "Phone 415555{d:4}",
        "mobile: 0176 12{d:6}",
        "Fax: 089/2{d:6}",
        "call 01 42 68 {d:2} {d:2}",
        "phone number: 09876 5{d:5}",
    ];
    let form = random.pick(&forms);
    random.fill(form)
}

fn card(random: &mut Random, sign: &str) -> String {
    let (first, length) = random.pick(&[
        ("4", 16),
        ("51", 16),
        ("55", 16),
        ("2221", 16),
        ("37", 15),
        ("6011", 16),
        ("3530", 16),
    ]);
    let digits = card_digits(random, first, length);
    let groups: &[usize] = if length == 15 {
        &[4, 6, 5]
    } else {
        &[4, 4, 4, 4]
    };
    let mut rest = digits.as_str();
    let parts = groups.iter().map(|count| {
        let (part, after) = rest.split_at_checked(*count).unwrap_or((rest, ""));
        rest = after;
        part
    });
    parts.collect::<Vec<_>>().join(sign)
}

/// Makes a number with its checksum.
fn card_digits(random: &mut Random, first: &str, length: usize) -> String {
    let body = format!("{first}{}", random.digits(length - 1 - first.len()));
    let sum = body.bytes().rev().enumerate().map(|(place, digit)| {
        let digit = u32::from(digit - b'0');
        match place % 2 {
            0 => digit * 2 / 10 + digit * 2 % 10,
            _ => digit,
        }
    });
    let sum: u32 = sum.sum();
    format!("{body}{}", (10 - sum % 10) % 10)
}

fn iban(random: &mut Random, sign: &str) -> String {
    let (country, form) = random.pick(&[
        ("DE", "{d:18}"),
        ("GB", "{Z:4}{d:14}"),
        ("FR", "{d:23}"),
        ("ES", "{d:20}"),
        ("NL", "{Z:4}{d:10}"),
        ("NO", "{d:11}"),
        ("AT", "{d:16}"),
        ("CH", "{d:17}"),
    ]);
    let account = random.fill(form);
    let rest = format!("{account}{country}00")
        .bytes()
        .fold(0_u32, |rest, one| match one {
            b'0'..=b'9' => (rest * 10 + u32::from(one - b'0')) % 97,
            _ => (rest * 100 + u32::from(one - b'A') + 10) % 97,
        });
    let whole = format!("{country}{:02}{account}", 98 - rest);
    let groups: Vec<String> = whole
        .as_bytes()
        .chunks(4)
        .map(|group| String::from_utf8_lossy(group).into_owned())
        .collect();
    groups.join(sign)
}

fn ssn(random: &mut Random) -> String {
    let area = 100 + random.below(500);
    format!(
        "{area:03}-{:02}-{:04}",
        10 + random.below(80),
        1000 + random.below(8000)
    )
}

/// Changes the last digit, so that a checksum is wrong.
fn wrong_digit(random: &mut Random, number: &str) -> String {
    let (head, last) = number
        .split_at_checked(number.len() - 1)
        .unwrap_or((number, "0"));
    let last: usize = last.parse().unwrap_or(0);
    format!("{head}{}", (last + 1 + random.below(9)) % 10)
}

fn full_width(one: char) -> char {
    let wide = one
        .to_digit(10)
        .and_then(|digit| char::from_u32(0xff10 + digit));
    wide.unwrap_or(one)
}

fn spread(value: &str, sign: &str) -> String {
    value.chars().map(|one| format!("{one}{sign}")).collect()
}
