//! Programs by their first bytes: a file that is executed, or that a loader takes, whatever its name
//! says.

use crate::Finding;

/// The first bytes of programs, and what they are.
const FORMS: [(&[u8], &str); 12] = [
    (b"\x7fELF", "elf"),
    (b"MZ", "windows-program"),
    (b"\xfe\xed\xfa\xce", "mach-o"),
    (b"\xfe\xed\xfa\xcf", "mach-o"),
    (b"\xce\xfa\xed\xfe", "mach-o"),
    (b"\xcf\xfa\xed\xfe", "mach-o"),
    (b"\xca\xfe\xba\xbe", "java-class-or-mach-o"),
    (b"\0asm", "webassembly"),
    (b"#!", "script"),
    (b"dex\n", "android-program"),
    (b"L\0\0\0\x01\x14\x02\0", "windows-link"),
    (b"[Desktop Entry]", "desktop-entry"),
];

/// Lines of a script that has no first line of its own, each in a form of Windows.
const SCRIPTS: [(&[u8], &str); 2] = [(b"@echo off", "batch-script"), (b"<job", "windows-script")];

pub(crate) fn scan(content: &[u8]) -> Vec<Finding> {
    let text = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let is_form = |form: &&(&[u8], &str)| match form.1 {
        // Two letters alone begin many a text.
        "windows-program" => is_windows_program(content),
        _ => text.starts_with(form.0),
    };
    let forms = FORMS.iter().filter(is_form).map(|form| form.1);
    let head = text.get(..64).unwrap_or(text).to_ascii_lowercase();
    let scripts = SCRIPTS
        .iter()
        .filter(|form| head.trim_ascii_start().starts_with(form.0));
    let rules = forms.chain(scripts.map(|form| form.1));
    let found = rules.map(|rule| Finding {
        rule: rule.to_owned(),
        place: "byte 0".to_owned(),
        confidence: 95,
    });
    found.collect()
}

/// Returns whether it has the two headers of a Windows program (PE format, "MS-DOS Stub").
fn is_windows_program(content: &[u8]) -> bool {
    let at = content
        .get(0x3c..0x40)
        .and_then(|bytes| bytes.first_chunk());
    let at = at.map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let header = at.and_then(|at| content.get(at..)?.first_chunk::<4>());
    content.starts_with(b"MZ") && header == Some(b"PE\0\0")
}
