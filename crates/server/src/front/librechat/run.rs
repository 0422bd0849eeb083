//! One run of code, in a sandbox of its own that begins with the files that it is given.

use super::{Session, check_count, file_id, name_of};
use crate::front::dialect::*;
use crate::front::exec::Output;

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
pub(super) async fn answer(caller: &Caller, request: Request<Body>) -> Answered {
    let (header, profile) = PROFILE;
    let expected = request.headers().get(header).cloned();
    let asked: Run = body(request).await?;
    refuse_rest(&asked.rest)?;
    if expected.is_some_and(|expected| expected != profile) {
        let what = "every run begins anew: sessions that keep their state are not offered";
        return Err(Refusal::invalid(what));
    }
    let command = command(&asked)?;
    check_count(asked.files.len())?;
    let session = Session::begin(caller).await?;
    let ran = run(&session, &asked, command).await;
    if !matches!(ran, Ok((_, true))) {
        session.end().await;
    }
    ok(&ran?.0)
}

fn language(name: &str) -> Result<Language, Refusal> {
    let found = LANGUAGES.iter().find(|(one, ..)| *one == name);
    found.copied().ok_or_else(|| {
        let all = LANGUAGES.map(|(name, ..)| name).join(", ");
        Refusal::invalid(format!("lang {name:?} is not offered"))
            .advise(format!("the languages are {all}"))
    })
}

fn command(asked: &Run) -> Result<Vec<String>, Refusal> {
    let (_, file, script) = language(&asked.lang)?;
    // No name of a directory or file has anything that a shell reads.
    let script = script.replace(" main", &format!(" {PLACE}/{file}"));
    let script = script.replace(" out", &format!(" {PLACE}/out"));
    let begin = ["/bin/sh", "-c", &script, "sh"].map(str::to_owned);
    let all = begin.into_iter().chain(asked.args.iter().cloned());
    Ok(all.collect())
}

/// Runs code in a session; returns the answer, and whether it has files.
async fn run(
    session: &Session,
    asked: &Run,
    command: Vec<String>,
) -> Result<(Value, bool), Refusal> {
    let sandbox = &session.0;
    let mut before = BTreeMap::new();
    for input in &asked.files {
        let from = Session(sandbox.caller.sandbox(&input.storage_session_id));
        let content = from.content(&input.id).await?.into_body();
        let stored = session.store(&input.name, content).await?;
        before.insert(stored.path, (stored.modified_ns, stored.size));
    }
    let (_, file, _) = language(&asked.lang)?;
    let code = Body::from(asked.code.clone());
    sandbox.store(&format!("{PLACE}/{file}"), code).await?;
    let ask = StartAsk {
        command,
        directory: Some(RESIDENT.home.to_owned()),
        timeout_ms: Some(RUN_MS_MAX),
        ..StartAsk::default()
    };
    let ran = sandbox.run(ask, OUTPUT_BYTES_MAX).await?;
    let mut files = Vec::new();
    // What a run that has failed leaves behind is not kept.
    if ran.end == End::Exited(0) {
        for file in session.files().await? {
            if before.get(&file.path) != Some(&(file.modified_ns, file.size)) {
                let name = name_of(&file);
                files.push(json!({
                    "id": file_id(name),
                    "name": name,
                    "path": name,
                    "session_id": sandbox.id,
                    "storage_session_id": sandbox.id,
                }));
            }
        }
    }
    let has_files = !files.is_empty();
    let body = json!({
        "session_id": sandbox.id,
        "stdout": shown(&ran.stdout),
        "stderr": with_end(shown(&ran.stderr), &ran.end),
        "files": files,
    });
    Ok((body, has_files))
}

fn shown(output: &Output) -> String {
    let rest = if output.is_cut {
        "\n(there is more, which is left out)"
    } else {
        ""
    };
    output.text() + rest
}

/// Adds to a run's errors why it has failed, if it has.
fn with_end(mut stderr: String, end: &End) -> String {
    let why = match end {
        End::Exited(0) => return stderr,
        End::Signalled(_) => format!("ended by {}", end.why()),
        _ => end.why(),
    };
    if !stderr.is_empty() && !stderr.ends_with('\n') {
        stderr.push('\n');
    }
    stderr + &why
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
