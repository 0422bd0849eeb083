//! The project's documents, which are part of the program, and their look on a terminal.

use crate::render::{Paint, Style, fold};

/// A document.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// The subject, in one line.
    pub subject: &'static str,
    /// The text, in Markdown.
    pub markdown: &'static str,
}

macro_rules! document {
    ($name:literal, $subject:literal) => {
        document!($name, $subject, "")
    };
    ($name:literal, $subject:literal, $below:literal) => {
        Document {
            name: $name,
            subject: $subject,
            markdown: include_str!(concat!("../../../docs/", $below, $name, ".md")),
        }
    };
}

/// Every document, in the order of the list.
pub const DOCUMENTS: [Document; 42] = [
    document!("quickstart", "The first runs, from nothing"),
    document!("profiles", "What a program may see, use and change"),
    document!("network", "Which hosts a program reaches"),
    document!("network-inside", "How the network is held, and what is not"),
    document!(
        "credentials",
        "Keys and logins that a program uses and never has"
    ),
    document!("secrets", "The vault that credentials are made of"),
    document!("approvals", "Ask a person before something goes out"),
    document!("apply", "Look at changes, write them, take them back"),
    document!("artifacts", "Outputs that wait as artifacts"),
    document!("checkpoints", "Checkpoints, and the undo of sessions"),
    document!("retention", "What is kept, until when, and holds"),
    document!("shadow", "Effects that are tried on a copy first"),
    document!("kept", "What agents keep from run to run"),
    document!("git", "Commit, fetch and push from inside"),
    document!("exec", "Work in a running sandbox"),
    document!(
        "serve",
        "Sandboxes for programs, over the API of E2B's SDKs"
    ),
    document!("tools", "Typed tools that models and scripts call"),
    document!(
        "hooks",
        "Decide on agents' own tools, contain their commands"
    ),
    document!("browser", "A browser inside"),
    document!("postgres", "A database without its password"),
    document!("root", "Root inside: install packages, change the system"),
    document!("nesting", "Sandboxes inside a sandbox"),
    document!("fence", "Where user namespaces are forbidden"),
    document!("restrict", "Give rights up while a run goes on"),
    document!("policy", "Policies in Cedar, beside profiles"),
    document!("purposes", "Take away what does not belong to a purpose"),
    document!("levels", "Levels of trust and modes"),
    document!("labels", "What a session has touched decides what goes out"),
    document!("reputation", "What an agent has earned decides"),
    document!("tokens", "Bound a run by a token that can be narrowed"),
    document!("organisation", "Rules that nobody below widens, signed"),
    document!(
        "trust",
        "The certificate authority that programs inside trust"
    ),
    document!("ledger", "The tamper-evident record: read, verify, prove"),
    document!("outcome", "The result of a run as JSON"),
    document!("attempts", "Attempts to leave the sandbox"),
    document!("doctor", "What this machine can hold"),
    document!("takeover", "What a mistake in Atoll itself would give"),
    document!("claude", "Claude Code in Atoll", "agents/"),
    document!("codex", "Codex in Atoll", "agents/"),
    document!("gemini", "Gemini CLI in Atoll", "agents/"),
    document!("openclaw", "OpenClaw in Atoll", "agents/"),
    document!("opencode", "OpenCode in Atoll", "agents/"),
];

/// Returns the document of a name.
pub fn document(name: &str) -> Option<&'static Document> {
    DOCUMENTS.iter().find(|one| one.name == name)
}

/// Formats the list of documents, a line each.
pub fn list(paint: Paint) -> String {
    let widest = DOCUMENTS.iter().map(|one| one.name.len()).max();
    let widest = widest.unwrap_or(0);
    let line = |one: &Document| {
        let name = paint.style(Style::Strong, &format!("{:<widest$}", one.name));
        format!("  {name}  {}\n", one.subject)
    };
    DOCUMENTS.iter().map(line).collect()
}

/// The columns of a document, however wide the terminal is: longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// Formats a document for a terminal: headings strong, paragraphs folded, links as their text.
/// Code and tables stay as they are.
pub fn shown(markdown: &str, paint: Paint, columns: usize) -> String {
    let columns = columns.min(COLUMNS_MAX);
    let mut text = String::with_capacity(markdown.len());
    let mut is_code = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            text.push_str(&format!("    {line}\n"));
            continue;
        }
        let line = unlinked(line);
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() {
            text.push_str(&format!("{}\n", paint.style(Style::Strong, heading.trim())));
        } else if line.starts_with('|') {
            text.push_str(&format!("{line}\n"));
        } else {
            let indent = if line.starts_with("- ") { "  " } else { "" };
            let room = columns.saturating_sub(indent.len());
            text.push_str(&fold(&line, room).join(&format!("\n{indent}")));
            text.push('\n');
        }
    }
    text
}

/// Replaces links by their texts: where they lead within the documents, `atoll help` shows by name.
fn unlinked(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let link = after.split_once("](").and_then(|(shown, more)| {
            let (_, beyond) = more.split_once(')')?;
            (!shown.contains(['[', ']'])).then_some((shown, beyond))
        });
        let Some((shown, beyond)) = link else {
            text.push('[');
            rest = after;
            continue;
        };
        text.push_str(shown);
        rest = beyond;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn documents_are_all_there() {
        let project = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
        let directory = Path::new(&project).join("../../docs");
        let mut found = BTreeSet::new();
        for directory in [directory.join("agents"), directory] {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|end| end == "md") {
                    found.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let listed: BTreeSet<String> = DOCUMENTS.iter().map(|one| one.name.to_owned()).collect();
        assert_eq!(listed, found);
        assert_eq!(listed.len(), DOCUMENTS.len());
    }

    #[test]
    fn document_on_a_terminal_is_plain() {
        let check = |markdown: &str, expected: &str| {
            assert_eq!(shown(markdown, Paint::new(false), 20), expected);
        };
        check("# A title\n", "A title\n");
        check(
            "See [rules](network.md#x) and [a][b].",
            "See rules and\n[a][b].\n",
        );
        check(
            "```console\n$ a [b](c) d e f g h i j\n```\nx",
            "    $ a [b](c) d e f g h i j\nx\n",
        );
        check(
            "- one two three four five",
            "- one two three\n  four five\n",
        );
        check(
            "| a [b](c.md) | one two three four |",
            "| a b | one two three four |\n",
        );
    }
}
