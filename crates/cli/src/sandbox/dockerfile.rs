//! Reads the common part of a Dockerfile (docs.docker.com/reference/dockerfile) as steps of a build.

use std::collections::{BTreeMap, BTreeSet};

use atoll_engine::failure::Failure;
use serde_json::{Value, json};

/// The name of the upload that holds the context.
pub(super) const CONTEXT: &str = "context";
/// Instructions that say how a container is run, or describe it.
const LEFT_OUT: [&str; 9] = [
    "CMD",
    "ENTRYPOINT",
    "EXPOSE",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "STOPSIGNAL",
    "VOLUME",
    "ONBUILD",
];
/// Files that ADD would unpack.
const ARCHIVES: [&str; 6] = [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"];

/// The steps of a Dockerfile.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Dockerfile {
    /// The image that it begins with.
    pub(super) from: String,
    /// The steps, as the build API has them.
    pub(super) steps: Vec<Value>,
    /// The instructions that mean nothing for a template.
    pub(super) left_out: BTreeSet<String>,
    /// True if it copies files of the context.
    pub(super) copies: bool,
}

/// An instruction that is not taken.
#[derive(Debug, PartialEq)]
pub(super) struct Mistake {
    line: usize,
    what: String,
    advice: &'static str,
}

impl Mistake {
    pub(super) fn failure(self, file: &str) -> Failure {
        let failure = Failure::new(format!("{file}:{}: {}", self.line, self.what));
        match self.advice {
            "" => failure,
            advice => failure.advise(advice),
        }
    }
}

/// An instruction, with the line that it begins at.
struct Instruction {
    line: usize,
    name: String,
    rest: String,
    /// The lines of its here-documents, with those that end them.
    document: Option<String>,
}

impl Instruction {
    fn mistake(&self, what: impl Into<String>, advice: &'static str) -> Mistake {
        let what = format!("{} {}", self.name, what.into());
        Mistake {
            line: self.line,
            what,
            advice,
        }
    }

    /// Takes the options at its beginning; returns them with what follows.
    fn options(&self) -> (BTreeMap<&str, &str>, &str) {
        let (mut options, mut rest) = (BTreeMap::new(), self.rest.as_str());
        while let Some(option) = rest.strip_prefix("--") {
            let (option, left) = option
                .split_once(char::is_whitespace)
                .unwrap_or((option, ""));
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            options.insert(name, value);
            rest = left.trim_start();
        }
        (options, rest)
    }
}

/// Reads a Dockerfile of one stage.
pub(super) fn read(text: &str) -> Result<Dockerfile, Mistake> {
    let mut reading = Reading::default();
    for instruction in instructions(text)? {
        reading.take(&instruction)?;
    }
    reading.end()
}

/// Splits a text into its instructions: lines that are continued are one, comments are none.
fn instructions(text: &str) -> Result<Vec<Instruction>, Mistake> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, first)) = lines.next() {
        let mut whole = String::new();
        let mut line = first;
        loop {
            let is_comment = line.trim_start().starts_with('#');
            if !is_comment {
                match line.trim_end().strip_suffix('\\') {
                    Some(part) => whole.push_str(part),
                    None => whole.push_str(line.trim_end()),
                }
            }
            let goes_on = match is_comment {
                true => !whole.is_empty(),
                false => line.trim_end().ends_with('\\'),
            };
            let Some((_, next)) = goes_on.then(|| lines.next()).flatten() else {
                break;
            };
            line = next;
        }
        let whole = whole.trim();
        if whole.is_empty() {
            continue;
        }
        let (name, rest) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
        let mut one = Instruction {
            line: at + 1,
            name: name.to_ascii_uppercase(),
            rest: rest.trim().to_owned(),
            document: None,
        };
        for end in here_documents(&one.rest) {
            let document = one.document.get_or_insert_default();
            loop {
                let Some((_, line)) = lines.next() else {
                    return Err(one.mistake(format!("has no line {end:?} at its end"), ""));
                };
                document.extend([line, "\n"]);
                if line.trim_start_matches('\t') == end {
                    break;
                }
            }
        }
        found.push(one);
    }
    Ok(found)
}

/// Returns the words that end the here-documents of an instruction.
fn here_documents(rest: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let word = |after: &str| {
        let after = after.strip_prefix('-').unwrap_or(after);
        let after = after.trim_start_matches(['"', '\'']);
        let word: String = after.chars().take_while(|one| is_part(*one)).collect();
        // A number is shifted by, and a word of the shell is what it reads.
        let begins = word.chars().next();
        begins.filter(|one| !one.is_ascii_digit()).map(|_| word)
    };
    let parts = rest.replace("<<<", "   ");
    parts.split("<<").skip(1).filter_map(word).collect()
}

/// Returns whether an instruction is a here-document, and nothing else.
fn is_alone(rest: &str) -> bool {
    rest.starts_with("<<") && !rest.contains(char::is_whitespace)
}

/// Returns whether a platform is that of this machine.
fn is_own(platform: &str) -> bool {
    let own = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    platform == format!("linux/{own}")
}

/// A Dockerfile that is being read.
#[derive(Default)]
struct Reading {
    file: Dockerfile,
    /// The variables that were set so far.
    variables: BTreeMap<String, String>,
    is_begun: bool,
    sets_user: bool,
    sets_directory: bool,
}

impl Reading {
    fn take(&mut self, one: &Instruction) -> Result<(), Mistake> {
        match (one.name.as_str(), self.is_begun) {
            ("FROM", false) => self.begin(one)?,
            ("FROM", true) => {
                let advice = "build the first as a template NAME, and begin with atoll/NAME";
                return Err(one.mistake("begins another stage: one is built", advice));
            }
            ("ARG", _) => self.argument(one)?,
            (_, false) => return Err(one.mistake("comes before FROM", "")),
            ("RUN", _) => self.run(one)?,
            ("COPY" | "ADD", _) => self.copy(one)?,
            ("ENV", _) => {
                let all = pairs(one)?;
                let all = all.into_iter();
                let all = all.map(|(name, value)| (name, self.expanded(&value)));
                self.set(all.collect());
            }
            ("WORKDIR" | "USER", _) if one.rest.is_empty() => {
                return Err(one.mistake("names nothing", ""));
            }
            ("WORKDIR", _) => {
                self.sets_directory = true;
                let directory = self.expanded(&one.rest);
                self.step("WORKDIR", json!([directory]));
            }
            ("USER", _) => {
                self.sets_user = true;
                let user = self.expanded(&one.rest);
                self.step("USER", json!([user]));
            }
            (name, _) if LEFT_OUT.contains(&name) => {
                self.file.left_out.insert(name.to_owned());
            }
            _ => {
                let advice = "RUN, COPY, ADD, ENV, ARG, WORKDIR and USER are";
                return Err(one.mistake("is not taken", advice));
            }
        }
        Ok(())
    }

    fn begin(&mut self, one: &Instruction) -> Result<(), Mistake> {
        let (options, rest) = one.options();
        let image = rest.split_whitespace().next().unwrap_or_default();
        let image = self.expanded(image);
        if options.keys().any(|option| *option != "platform") || image.is_empty() {
            return Err(one.mistake("names no image", "FROM debian:12"));
        }
        if let Some(other) = options.get("platform").filter(|one| !is_own(one)) {
            return Err(one.mistake(format!("is of {other}, and this machine is not"), ""));
        }
        if image == "scratch" {
            let advice = "FROM atoll/debian is a minimal Debian";
            return Err(one.mistake("begins with nothing, where nothing can run", advice));
        }
        self.is_begun = true;
        self.file.from = image;
        // As where images are built; E2B's SDKs do the same.
        self.step("USER", json!(["root"]));
        self.step("WORKDIR", json!(["/"]));
        Ok(())
    }

    fn argument(&mut self, one: &Instruction) -> Result<(), Mistake> {
        for word in words(one, &one.rest)? {
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            let pair = (name.to_owned(), self.expanded(value));
            match self.is_begun {
                true => self.set(vec![pair]),
                false => drop(self.variables.insert(pair.0, pair.1)),
            }
        }
        Ok(())
    }

    fn run(&mut self, one: &Instruction) -> Result<(), Mistake> {
        let (options, rest) = one.options();
        if let Some(option) = options.keys().next() {
            let what = format!("--{option} is not offered");
            return Err(one.mistake(what, "leave it out: the step runs as any other"));
        }
        let command = match (&one.document, list(rest)) {
            (Some(document), _) => match here_documents(rest).as_slice() {
                // It is the text of a program of the shell.
                [end] if is_alone(rest) => {
                    let text = document.trim_end_matches('\n');
                    let text = text.strip_suffix(end.as_str()).unwrap_or(text);
                    text.trim_end_matches('\t').to_owned()
                }
                _ => format!("{rest}\n{document}"),
            },
            (None, Some(words)) => shlex::try_join(words.iter().map(String::as_str))
                .map_err(|_| one.mistake("has a zero byte", ""))?,
            (None, None) => rest.to_owned(),
        };
        if command.trim().is_empty() {
            return Err(one.mistake("runs nothing", ""));
        }
        self.step("RUN", json!([command]));
        Ok(())
    }

    fn copy(&mut self, one: &Instruction) -> Result<(), Mistake> {
        let (options, rest) = one.options();
        let odd = |option: &&&str| !["chown", "chmod", "link"].contains(*option);
        if let Some(option) = options.keys().find(odd) {
            let advice = match *option {
                "from" => "copy it from the context: one stage is built",
                _ => "leave it out",
            };
            return Err(one.mistake(format!("--{option} is not offered"), advice));
        }
        let words = match list(rest) {
            Some(words) => words,
            None => words(one, rest)?,
        };
        let Some((to, sources)) = words
            .split_last()
            .filter(|(_, sources)| !sources.is_empty())
        else {
            return Err(one.mistake("needs a source and a target", "COPY files /app/"));
        };
        let to = self.expanded(to);
        if sources.len() > 1 && !to.ends_with('/') {
            return Err(one.mistake("of many needs a target that ends with /", "COPY a b /app/"));
        }
        for from in sources {
            let from = self.expanded(from);
            self.copy_one(one, &options, &from, &to)?;
        }
        Ok(())
    }

    fn copy_one(
        &mut self,
        one: &Instruction,
        options: &BTreeMap<&str, &str>,
        from: &str,
        to: &str,
    ) -> Result<(), Mistake> {
        let is_elsewhere = ["://", "git@", "<<"].iter().any(|mark| from.contains(mark));
        if is_elsewhere {
            let what = format!("of {from} is not offered");
            return Err(one.mistake(what, "RUN curl, git or cat instead"));
        }
        if one.name == "ADD" && ARCHIVES.iter().any(|end| from.ends_with(end)) {
            let what = format!("does not unpack {from}");
            return Err(one.mistake(what, "COPY it, and RUN tar -xf"));
        }
        let from = from.trim_start_matches("./").trim_start_matches('/');
        if from.split('/').any(|part| part == "..") {
            return Err(one.mistake(format!("of {from} leads out of the context"), ""));
        }
        let from = if from.is_empty() { "." } else { from };
        let option = |name| self.expanded(options.get(name).copied().unwrap_or_default());
        // Files are root's, whoever the user is then.
        let owner = match option("chown") {
            owner if owner.is_empty() => "root".to_owned(),
            owner => owner,
        };
        let words = json!([from, to, owner, option("chmod")]);
        self.file.copies = true;
        self.file.steps.push(json!({
            "type": "COPY",
            "args": words,
            "filesHash": CONTEXT,
        }));
        Ok(())
    }

    fn set(&mut self, all: Vec<(String, String)>) {
        let words: Vec<&String> = all.iter().flat_map(|(name, value)| [name, value]).collect();
        self.step("ENV", json!(words));
        self.variables.extend(all);
    }

    fn step(&mut self, kind: &str, words: Value) {
        let step = json!({ "type": kind, "args": words });
        self.file.steps.push(step);
    }

    /// Puts variables in the place of their names. Others stay: the image may have them.
    fn expanded(&self, text: &str) -> String {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let braced = after.strip_prefix('{').and_then(|one| one.split_once('}'));
            let (name, left) = match braced {
                Some(found) => found,
                None => after.split_at(after.find(|one| !is_name(one)).unwrap_or(after.len())),
            };
            let (name, default) = match name.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (name, None),
            };
            let value = self.variables.get(name).map(String::as_str);
            match value
                .filter(|value| !value.is_empty())
                .or(default)
                .or(value)
            {
                Some(value) => out.push_str(value),
                None if braced.is_some() => out.extend(["${", name, "}"]),
                None => out.extend(["$", name]),
            }
            rest = left;
        }
        out + rest
    }

    fn end(mut self) -> Result<Dockerfile, Mistake> {
        if !self.is_begun {
            return Err(Mistake {
                line: 1,
                what: "it has no FROM".to_owned(),
                advice: "FROM debian:12",
            });
        }
        if !self.sets_user {
            self.step("USER", json!(["user"]));
        }
        if !self.sets_directory {
            self.step("WORKDIR", json!(["/home/user"]));
        }
        Ok(self.file)
    }
}

/// Returns the words of a list of JSON, where a text is one.
fn list(text: &str) -> Option<Vec<String>> {
    text.starts_with('[')
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

fn words(one: &Instruction, text: &str) -> Result<Vec<String>, Mistake> {
    shlex::split(text).ok_or_else(|| one.mistake("has a quote without an end", ""))
}

/// Returns the variables of an ENV: `NAME=VALUE …`, or `NAME VALUE`.
fn pairs(one: &Instruction) -> Result<Vec<(String, String)>, Mistake> {
    let first = one.rest.split_whitespace().next().unwrap_or_default();
    if first.is_empty() {
        return Err(one.mistake("names no variable", "ENV NAME=value"));
    }
    if !first.contains('=') {
        let value = one.rest.strip_prefix(first).unwrap_or_default().trim();
        if value.is_empty() {
            return Err(one.mistake("has a name without a value", "ENV NAME=value"));
        }
        return Ok(vec![(first.to_owned(), value.to_owned())]);
    }
    let pair = |word: String| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let all: Option<Vec<_>> = words(one, &one.rest)?.into_iter().map(pair).collect();
    all.ok_or_else(|| one.mistake("has a name without a value", "ENV NAME=value"))
}

#[cfg(test)]
mod tests;
