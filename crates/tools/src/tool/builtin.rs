//! Tools that come with Atoll: programs over the files of the session's sandbox, off until a table
//! names them.

use atoll_model::ToolEffect;
use serde_json::{Map, Value, json};

/// A tool that comes with Atoll.
pub(super) struct Builtin {
    name: &'static str,
    pub(super) description: &'static str,
    pub(super) effect: ToolEffect,
    pub(super) idempotent: bool,
    pub(super) command: &'static [&'static str],
    pub(super) stdin: Option<&'static str>,
    arguments: &'static [Argument],
}

/// An argument of one: a text.
struct Argument {
    name: &'static str,
    description: &'static str,
    is_required: bool,
}

const fn required(name: &'static str, description: &'static str) -> Argument {
    Argument {
        name,
        description,
        is_required: true,
    }
}

const fn optional(name: &'static str, description: &'static str) -> Argument {
    Argument {
        name,
        description,
        is_required: false,
    }
}

const WRITE: &str = "mkdir -p -- \"$(dirname -- \"$1\")\" && cat > \"$1\"";
// Nothing found is no failure.
const SEARCH: &str = "asked=$1; shift; grep -rnIE --regexp=\"$asked\" -- \"$@\" || [ $? = 1 ]";
const EDIT: &str = "\
import json, sys
asked = json.load(sys.stdin)
with open(asked['path'], newline='') as file:
    text = file.read()
found = text.count(asked['old'])
if found != 1:
    sys.exit('the text to replace is there %d times, not once' % found)
with open(asked['path'], 'w', newline='') as file:
    file.write(text.replace(asked['old'], asked['new']))
";
const FETCH: &str = "\
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers=dict([('User-Agent', 'atoll')]))
with urllib.request.urlopen(asked, timeout=30) as answer:
    sys.stdout.buffer.write(answer.read(4 << 20))
";
const PATH: Argument = required("path", "The file's path.");

const ALL: [Builtin; 7] = [
    Builtin {
        name: "run",
        description: "Runs a command line by a shell.",
        effect: ToolEffect::Write,
        idempotent: false,
        command: &["sh", "-c", "{command}"],
        stdin: None,
        arguments: &[required("command", "The command line.")],
    },
    Builtin {
        name: "read_file",
        description: "Reads a file.",
        effect: ToolEffect::Read,
        idempotent: true,
        command: &["cat", "--", "{path}"],
        stdin: None,
        arguments: &[PATH],
    },
    Builtin {
        name: "write_file",
        description: "Writes a file anew, and makes the directories above it.",
        effect: ToolEffect::Write,
        idempotent: true,
        command: &["sh", "-c", WRITE, "--", "{path}"],
        stdin: Some("{content}"),
        arguments: &[PATH, required("content", "The text of the file.")],
    },
    Builtin {
        name: "edit_file",
        description: "Replaces a text in a file that is there exactly once.",
        effect: ToolEffect::Write,
        idempotent: false,
        command: &["python3", "-I", "-c", EDIT],
        stdin: Some("{*}"),
        arguments: &[
            PATH,
            required("old", "The text to replace."),
            required("new", "The text in its place."),
        ],
    },
    Builtin {
        name: "list_directory",
        description: "Lists a directory: kind, mode, size and name of each file.",
        effect: ToolEffect::Read,
        idempotent: true,
        command: &["ls", "-lAp", "--", "{path}"],
        stdin: None,
        arguments: &[optional(
            "path",
            "The directory; by default that of the work.",
        )],
    },
    Builtin {
        name: "search",
        description: "Searches files for a regular expression, a line for each match.",
        effect: ToolEffect::Read,
        idempotent: true,
        command: &["sh", "-c", SEARCH, "--", "{pattern}", "{path}"],
        stdin: None,
        arguments: &[
            required("pattern", "The extended regular expression."),
            optional(
                "path",
                "The file or directory; by default that of the work.",
            ),
        ],
    },
    Builtin {
        name: "fetch_url",
        description: "Fetches what is at an address, by GET.",
        effect: ToolEffect::Read,
        idempotent: true,
        command: &["python3", "-I", "-c", FETCH, "{url}"],
        stdin: None,
        arguments: &[required("url", "The address: http:// or https://.")],
    },
];

impl Builtin {
    /// Returns the one of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        const { &ALL }.iter().find(|one| one.name == name)
    }

    /// Returns the schema of its arguments.
    pub(super) fn schema(&self) -> Value {
        let property = |one: &Argument| {
            let pattern = if one.name == "url" { "^https?://" } else { "" };
            let description = one.description;
            let schema =
                json!({ "type": "string", "pattern": pattern, "description": description });
            (one.name.to_owned(), schema)
        };
        let properties: Map<String, Value> = self.arguments.iter().map(property).collect();
        let required = self.arguments.iter().filter(|one| one.is_required);
        let required: Vec<&str> = required.map(|one| one.name).collect();
        json!({ "properties": properties, "required": required })
    }
}
