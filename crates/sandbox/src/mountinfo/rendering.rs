//! The list of mounts as the kernel writes it, for tests and fuzzing: modelled on the kernel's
//! source (`show_mountinfo`, `mangle_path`), not on the reader.

/// Renders the line of a mount.
#[must_use]
pub fn line(path: &[u8], kind: &[u8], source: &[u8], options: &[u8], tags: usize) -> Vec<u8> {
    let all = [" shared:7", " master:3", " propagate_from:2", " unbindable"];
    let tags = all.iter().take(tags).map(|tag| tag.as_bytes());
    let mut line = b"31 22 0:27 / ".to_vec();
    escape(path, b" \t\n\\", &mut line);
    line.extend_from_slice(b" rw,nosuid");
    tags.for_each(|tag| line.extend_from_slice(tag));
    line.extend_from_slice(b" - ");
    escape(kind, b" \t\n\\#", &mut line);
    line.push(b' ');
    escape(source, b" \t\n\\#", &mut line);
    line.push(b' ');
    line.extend_from_slice(options);
    line.push(b'\n');
    line
}

/// Renders an option with its value.
#[must_use]
pub fn option(name: &str, value: &[u8]) -> Vec<u8> {
    let mut option = [name.as_bytes(), b"="].concat();
    escape(value, b",= \t\n\\", &mut option);
    option
}

fn escape(text: &[u8], which: &[u8], into: &mut Vec<u8>) {
    for byte in text {
        if which.contains(byte) {
            into.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            into.push(*byte);
        }
    }
}
