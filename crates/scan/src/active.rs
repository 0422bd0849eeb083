//! Active content: pages, pictures and documents that run something where they are opened.

use std::io::Cursor;

use memchr::memmem::find;
use regex::bytes::{Regex, RegexBuilder};
use zip::ZipArchive;

use crate::{Finding, Unscanned};

/// Forms of markup that run something.
const MARKUP: [(&str, &str); 6] = [
    ("script", r"<\s*script[\s/>]"),
    (
        "event-handler",
        r#"<[a-z][^>]{0,2000}[\s"'/]on[a-z]{3,24}\s*="#,
    ),
    (
        "script-address",
        r#"(?:href|src|action|data|to|values)\s*=\s*["']?\s*(?:javascript|vbscript|data:text/html)[:;,]"#,
    ),
    ("embedded", r"<\s*(?:iframe|object|embed|applet)[\s/>]"),
    ("foreign-object", r"<\s*foreignobject[\s/>]"),
    ("refresh", r#"http-equiv\s*=\s*["']?refresh"#),
];
/// Names of a PDF's actions (ISO 32000, 12.6).
const PDF: [(&str, &[u8]); 5] = [
    ("pdf-script", b"/JavaScript"),
    ("pdf-launch", b"/Launch"),
    ("pdf-open-action", b"/OpenAction"),
    ("pdf-embedded-file", b"/EmbeddedFile"),
    ("pdf-form-script", b"/AA"),
];
/// The first bytes of a compound file, as older Office writes.
const COMPOUND: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";
/// The most entries of a document that are looked at.
const ENTRIES_MAX: usize = 10_000;

pub(crate) fn scan(content: &[u8]) -> Result<Vec<Finding>, Unscanned> {
    let mut found = Vec::new();
    if content.starts_with(b"%PDF")
        || find(content.get(..1024).unwrap_or(content), b"%PDF-").is_some()
    {
        let actions = PDF
            .iter()
            .filter_map(|(rule, name)| Some((*rule, find(content, name)?)));
        found.extend(actions.map(|(rule, at)| Finding::at_byte(rule, at, 80)));
    } else if content.starts_with(COMPOUND) {
        let macros = find(content, b"_\0V\0B\0A\0").or_else(|| find(content, b"Attribut\0e VB_"));
        found.extend(macros.map(|at| Finding::at_byte("macros", at, 90)));
    } else if content.starts_with(b"PK\x03\x04") {
        found.extend(document(content)?);
    } else if looks_like_markup(content) {
        for (rule, expression) in MARKUP {
            let at = compiled(expression)?.find(content);
            found.extend(at.map(|at| Finding::at_line(rule, content, at.start(), 85)));
        }
    } else if let Some(at) = formula(content) {
        found.push(Finding::at_line("spreadsheet-formula", content, at, 60));
    }
    Ok(found)
}

/// Returns whether a text has tags, as a page or a picture in SVG.
fn looks_like_markup(content: &[u8]) -> bool {
    let head = content
        .get(..64 << 10)
        .unwrap_or(content)
        .to_ascii_lowercase();
    let tags: [&[u8]; 7] = [
        b"<html",
        b"<!doctype",
        b"<svg",
        b"<?xml",
        b"<body",
        b"<script",
        b"<div",
    ];
    tags.iter().any(|tag| find(&head, tag).is_some())
}

fn compiled(expression: &str) -> Result<Regex, Unscanned> {
    let built = RegexBuilder::new(expression)
        .case_insensitive(true)
        .unicode(false)
        .build();
    built.map_err(|error| Unscanned::Unreadable(error.to_string()))
}

/// Finds macros and links to other places in a document of newer Office, which is an archive.
fn document(content: &[u8]) -> Result<Vec<Finding>, Unscanned> {
    let archive = ZipArchive::new(Cursor::new(content));
    let archive = archive.map_err(|error| Unscanned::Unreadable(error.to_string()))?;
    if archive.len() > ENTRIES_MAX {
        return Err(Unscanned::Unreadable(format!(
            "it has more than {ENTRIES_MAX} entries"
        )));
    }
    let rules = archive.file_names().filter_map(|name| {
        let lower = name.to_ascii_lowercase();
        let rule = if lower.ends_with("vbaproject.bin") {
            "macros"
        } else if lower.contains("/activex/") {
            "active-x"
        } else if lower.contains("/embeddings/") {
            "embedded"
        } else if lower.starts_with("basic/") || lower.starts_with("scripts/") {
            "macros"
        } else {
            return None;
        };
        Some(Finding::at_entry(rule, name, 90))
    });
    Ok(rules.collect())
}

/// Returns the place of a field of comma-separated values that a spreadsheet computes.
fn formula(content: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(content).ok()?;
    let calls = ["cmd|", "hyperlink(", "importxml(", "webservice(", "dde("];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let mut field_at = at;
        for field in line.split_inclusive(',') {
            let inner = field.trim_start_matches([' ', '"', '\'', '\t']);
            let lower = inner.to_ascii_lowercase();
            let begins = inner.starts_with(['=', '+', '@', '-']);
            if begins && calls.iter().any(|call| lower.contains(call)) {
                return Some(field_at);
            }
            field_at += field.len();
        }
        at += line.len();
    }
    None
}
