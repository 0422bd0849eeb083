//! One run of code, in a sandbox of its own that begins with the files that it is given.

use std::collections::BTreeMap;

use atoll_model::RESIDENT;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FILES_MAX, Session, file_id, name_of};
use crate::front::Front;
use crate::front::answers::{json as answer_json, refuse_rest};
use crate::front::ask::{Next, within};
use crate::front::transfer::{fetch, store};
use crate::line::Stream;
use crate::protocol::{Credential, End, Kind, Refusal, Start, StartAsk, describe_limit};

/// The longest time of a run, milliseconds.
const RUN_MS_MAX: u64 = 240_000;
/// The most of each output that is returned, bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The directory of the code: nothing of it is a file of the session.
const PLACE: &str = "/tmp/run";
/// The header of the kind of runs that a client expects, and the only kind that there is here.
const PROFILE: (&str, &str) = ("x-codeapi-expected-profile", "default");

/// A language: its name in requests, the file of its code, and how a shell runs that with arguments.
type Language = (&'static str, &'static str, &'static str);

const LANGUAGES: [Language; 12] = [
    ("py", "main.py", r#"exec python3 main "$@""#),
    ("js", "main.js", r#"exec node main "$@""#),
    (
        "ts",
        "main.ts",
        r#"exec node --experimental-strip-types main "$@""#,
    ),
    ("bash", "main.sh", r#"exec bash main "$@""#),
    ("c", "main.c", r#"cc -o out main -lm && exec out "$@""#),
    ("cpp", "main.cpp", r#"c++ -o out main && exec out "$@""#),
    ("java", "main.java", r#"exec java main "$@""#),
    ("go", "main.go", r#"exec go run main "$@""#),
    ("php", "main.php", r#"exec php main "$@""#),
    ("r", "main.r", r#"exec Rscript main "$@""#),
    ("rs", "main.rs", r#"rustc -o out main && exec out "$@""#),
    (
        "f90",
        "main.f90",
        r#"gfortran -o out main && exec out "$@""#,
    ),
];

/// The body of a request.
#[derive(Deserialize)]
pub(super) struct Run {
    lang: String,
    code: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    files: Vec<Input>,
    /// The caller's own names: each run is apart from all others anyway.
    #[serde(default, rename = "session_id")]
    _session: Option<String>,
    #[serde(default, rename = "user_id")]
    _user: Option<String>,
    #[serde(default, rename = "entity_id")]
    _entity: Option<String>,
    #[serde(default, rename = "runtime_session_hint")]
    _hint: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// A file to begin with.
#[derive(Deserialize)]
struct Input {
    id: String,
    name: String,
    /// The session that has it; older clients call it by the other name.
    #[serde(alias = "session_id")]
    storage_session_id: String,
}

/// Runs code, and tells what came of it.
pub(super) async fn answer(
    front: &Front,
    key: &Credential,
    headers: &HeaderMap,
    asked: Run,
) -> Result<Response, Refusal> {
    refuse_rest(&asked.rest)?;
    let (header, profile) = PROFILE;
    if headers
        .get(header)
        .is_some_and(|expected| expected != profile)
    {
        let what = "every run begins anew: sessions that keep their state are not offered";
        return Err(Refusal::new(Kind::Invalid, what));
    }
    let command = command(&asked)?;
    if asked.files.len() > FILES_MAX {
        let what = format!("{FILES_MAX} files are the most at once");
        return Err(Refusal::new(Kind::Invalid, what));
    }
    let session = Session::begin(front, key).await?;
    match run(&session, &asked, command).await {
        Ok((body, has_files)) => {
            if !has_files {
                session.end().await;
            }
            Ok(answer_json(StatusCode::OK, &body))
        }
        Err(refusal) => {
            session.end().await;
            Err(refusal)
        }
    }
}

fn language(name: &str) -> Result<Language, Refusal> {
    let found = LANGUAGES.iter().find(|(one, ..)| *one == name);
    found.copied().ok_or_else(|| {
        let all = LANGUAGES.map(|(name, ..)| name).join(", ");
        Refusal::new(Kind::Invalid, format!("lang {name:?} is not offered"))
            .advise(format!("the languages are {all}"))
    })
}

fn command(asked: &Run) -> Result<Vec<String>, Refusal> {
    let (_, file, script) = language(&asked.lang)?;
    // No name of a directory or file has anything that a shell reads.
    let script = script.replace(" main", &format!(" {PLACE}/{file}"));
    let script = script.replace(" out", &format!(" {PLACE}/out"));
    let begin = ["/bin/sh", "-c", &script, "sh"].map(str::to_owned);
    Ok(begin
        .into_iter()
        .chain(asked.args.iter().cloned())
        .collect())
}

/// Runs code in a session; returns the answer, and whether it has files.
async fn run(
    session: &Session<'_>,
    asked: &Run,
    command: Vec<String>,
) -> Result<(Value, bool), Refusal> {
    let (front, key) = (session.front, session.key);
    let mut before = BTreeMap::new();
    for input in &asked.files {
        let from = Session::new(front, key, &input.storage_session_id);
        let path = from.file(&input.id).await?.path;
        let none = HeaderMap::new();
        let content = fetch(front, key.clone(), Some(&from.sandbox), path, &none).await?;
        let stored = session.store(&input.name, content.into_body()).await?;
        before.insert(stored.path, (stored.modified_ns, stored.size));
    }
    let (_, file, _) = language(&asked.lang)?;
    let path = format!("{PLACE}/{file}");
    let code = Body::from(asked.code.clone());
    let _ = store(front, key, &session.sandbox, &path, code).await?;
    let (stdout, stderr, is_good) = outcome(session, command).await?;
    let mut files = Vec::new();
    // What a run that has failed leaves behind is not kept.
    if is_good {
        for file in session.files().await? {
            if before.get(&file.path) != Some(&(file.modified_ns, file.size)) {
                let name = name_of(&file);
                files.push(json!({
                    "id": file_id(name),
                    "name": name,
                    "path": name,
                    "session_id": session.sandbox,
                    "storage_session_id": session.sandbox,
                }));
            }
        }
    }
    let has_files = !files.is_empty();
    let body = json!({
        "session_id": session.sandbox,
        "stdout": stdout,
        "stderr": stderr,
        "files": files,
    });
    Ok((body, has_files))
}

/// Runs a program to its end; returns its outputs, and whether it ended well.
async fn outcome(
    session: &Session<'_>,
    command: Vec<String>,
) -> Result<(String, String, bool), Refusal> {
    let ask = StartAsk {
        command,
        directory: Some(RESIDENT.home.to_owned()),
        timeout_ms: Some(RUN_MS_MAX),
        ..StartAsk::default()
    };
    let ask = within(&session.sandbox, Start(Box::new(ask)));
    let mut line = session.front.begin(session.key.clone(), ask).await?;
    line.reply().await?;
    let (mut stdout, mut stderr) = (Output::default(), Output::default());
    let why = loop {
        match line.next().await? {
            Next::Content(Stream::Error, content) => stderr.take(&content),
            Next::Content(_, content) => stdout.take(&content),
            Next::Message(end) => match end {
                End::Exited(0) => break None,
                End::Exited(status) => break Some(format!("exit status {status}")),
                End::Signalled(number) => break Some(format!("ended by signal {number}")),
                End::Limited(limit) => break Some(describe_limit(&limit)),
                End::Late => break Some("its time was over".to_owned()),
                End::TooSlow => break Some("its reader was too slow".to_owned()),
                End::Otherwise(why) | End::Gone(why) => break Some(why),
            },
        }
    };
    let (stdout, mut stderr) = (stdout.text(), stderr.text());
    if let Some(why) = &why {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr += why;
    }
    Ok((stdout, stderr, why.is_none()))
}

/// One output of a program, up to a limit.
#[derive(Default)]
struct Output {
    kept: Vec<u8>,
    is_cut: bool,
}

impl Output {
    fn take(&mut self, content: &[u8]) {
        let room = OUTPUT_BYTES_MAX
            .saturating_sub(self.kept.len())
            .min(content.len());
        self.kept
            .extend_from_slice(content.get(..room).unwrap_or_default());
        self.is_cut |= room < content.len();
    }

    fn text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if self.is_cut {
            text += "\n(there is more, which is left out)";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn code_is_run_from_its_own_place() {
        let run = |text: &str| serde_json::from_str::<Run>(text).unwrap();
        let asked = run(r#"{"lang":"c","code":"","args":["main out; x"]}"#);
        let script = "cc -o /tmp/run/out /tmp/run/main.c -lm && exec /tmp/run/out \"$@\"";
        assert_eq!(
            command(&asked).unwrap(),
            ["/bin/sh", "-c", script, "sh", "main out; x"]
        );
        assert!(command(&run(r#"{"lang":"cobol","code":""}"#)).is_err());
    }
}
