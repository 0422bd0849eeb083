//! Scans of artifacts: the content goes into a fresh sandbox without a network, and evidence comes
//! out. Whatever goes wrong on the way is evidence too, and never that nothing was found.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_engine::artifacts::{Seen, kept_by};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::quoted;
use atoll_engine::sandboxes::{
    CreateSandbox, Engine, ExecRequest, PriorAnswer, Requested, RequestedProfile, Workspace,
};
use atoll_ledger::Durability;
use atoll_model::{Ending, LimitKey, Reason};
use atoll_scan::{CONTENT_BYTES_MAX, FINDINGS_MAX, Scanner, VERSION};
use atoll_store::{Artifact, Artifacts, Evidence};
use serde_json::json;

use crate::clamav;
use crate::verdict::{Verdict, WHY_CHARS_MAX};
use crate::worker::{Answer, SCAN_WORKER};

/// The limits of a scanner.
const LIMITS: [(LimitKey, &str); 3] = [
    (LimitKey::Memory, "512MiB"),
    (LimitKey::Processes, "16"),
    (LimitKey::Disk, "16MiB"),
];
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 10;

/// A scan of an artifact by one scanner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The scanner's name.
    pub scanner: String,
    /// The version of the scanners.
    pub version: u32,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// The result.
    pub verdict: Verdict,
}

/// Scans an artifact by all scanners, each in a sandbox of its own, and keeps what they say. `rules`
/// are those for secrets, in the format of gitleaks, in place of those built in; `program` is the
/// program of [`work`](crate::work).
///
/// # Errors
/// When the artifact cannot be read, or the evidence not be kept.
pub fn scan(
    engine: &Engine,
    store: &Artifacts,
    artifact: &Artifact,
    rules: Option<&str>,
    program: &Path,
) -> Result<Vec<Scanned>, Failure> {
    let mut content = Vec::new();
    let is_large = artifact.bytes > CONTENT_BYTES_MAX as u64;
    if !is_large {
        store
            .read(artifact, &mut content)
            .doing("the artifact cannot be read")?;
    }
    let by = |name: &str, look: &dyn Fn() -> Verdict| {
        let verdict = match is_large {
            true => Verdict::Failed(format!("it is larger than {} MiB", CONTENT_BYTES_MAX >> 20)),
            false => look(),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Scanned {
            scanner: name.to_owned(),
            version: VERSION,
            at_ms: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            verdict,
        }
    };
    let look = |scanner: &Scanner| {
        let name = match (scanner, rules) {
            // What a caller's rules say is no word of those built in.
            (Scanner::Secrets, Some(_)) => "secrets-by-rules",
            _ => scanner.name(),
        };
        by(name, &|| {
            let looked = in_sandbox(engine, *scanner, &content, rules, program);
            looked.unwrap_or_else(|failure| Verdict::Failed(told(&failure)))
        })
    };
    // The slowest beside all others: each has a copy of the content in its memory.
    let (slowest, others) = Scanner::ALL.split_at(1);
    let all: Vec<Scanned> = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let ours = others.iter().map(&look);
            let clamd = clamav::socket();
            let clamd = clamd.map(|socket| by(clamav::NAME, &|| clamav::scan(&socket, &content)));
            ours.chain(clamd).collect::<Vec<_>>()
        });
        let slowest: Vec<_> = slowest.iter().map(&look).collect();
        let others = others
            .join()
            .map_err(|_| Failure::new("a scan has failed"))?;
        Ok::<_, Failure>(slowest.into_iter().chain(others).collect())
    })?;
    for scanned in &all {
        let verdict = serde_json::to_string(&scanned.verdict);
        let evidence = Evidence {
            scanner: scanned.scanner.clone(),
            version: scanned.version,
            at_ms: scanned.at_ms,
            verdict: verdict.doing("the evidence cannot be kept")?,
        };
        let kept = store.note(artifact, &evidence);
        kept.doing("the evidence cannot be kept")?;
    }
    record(engine, artifact, &all)?;
    Ok(all)
}

/// Records what scanners have said.
fn record(engine: &Engine, artifact: &Artifact, all: &[Scanned]) -> Result<(), Failure> {
    let words = all
        .iter()
        .map(|one| (one.scanner.clone(), json!(one.verdict.word())));
    let body = json!({
        "artifact": artifact.id,
        "sha256": artifact.sha256,
        "version": VERSION,
        "verdicts": words.collect::<serde_json::Map<_, _>>(),
    });
    let run = Some(&artifact.origin.run);
    let (_, ledger) = kept_by(engine);
    let recorded = ledger.record(run, "artifact.scanned", body, Durability::Durable);
    recorded.map(drop).doing("the scan could not be recorded")
}

/// Returns what scanners have said of an artifact, the last of each. What cannot be understood is told
/// as a failure.
///
/// # Errors
/// When it cannot be read.
pub fn evidence(store: &Artifacts, artifact: &Artifact) -> Result<Vec<Scanned>, Failure> {
    let all = store
        .evidence(artifact)
        .doing("the evidence cannot be read")?;
    let all = all.into_iter().map(|one| {
        let verdict = serde_json::from_str(&one.verdict);
        let unknown = |_| Verdict::Failed("its evidence is not understood".to_owned());
        Scanned {
            scanner: one.scanner,
            version: one.version,
            at_ms: one.at_ms,
            verdict: verdict.unwrap_or_else(unknown),
        }
    });
    Ok(all.collect())
}

/// Returns the scanners that have said nothing of an artifact, or an earlier version of which has.
///
/// # Errors
/// When what they have said cannot be read.
pub fn missing(store: &Artifacts, artifact: &Artifact) -> Result<Vec<&'static str>, Failure> {
    let all = evidence(store, artifact)?;
    let has = |name: &str| {
        let mut present = all.iter().filter(|one| one.version == VERSION);
        present.any(|one| one.scanner == name)
    };
    let names = Scanner::ALL.iter().map(|one| one.name());
    let names = names.chain(clamav::socket().map(|_| clamav::NAME));
    Ok(names.filter(|name| !has(name)).collect())
}

/// Returns what is to be known of an artifact before it is promoted. A scanner that has not looked is
/// a reason to ask a person.
///
/// # Errors
/// When what scanners have said cannot be read.
pub fn seen(store: &Artifacts, artifact: &Artifact) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let concern = |scanner: &str, why: String| Reason {
        what: format!("promoting {}", quoted(&artifact.name)),
        why,
        rule: format!("scanner {scanner}"),
        how_to_ask: "promote it at a terminal, where you are asked".to_owned(),
    };
    for one in evidence(store, artifact)? {
        let word = format!("{}={}", one.scanner, one.verdict.word());
        seen.words.insert(word);
        let why = match one.verdict {
            Verdict::Clean => continue,
            Verdict::Failed(why) => format!("it says nothing of the content: {why}"),
            Verdict::Found(findings) => {
                let rules: BTreeSet<String> = findings.into_iter().map(|one| one.rule).collect();
                let names: Vec<&str> = rules.iter().map(String::as_str).collect();
                let why = format!("it found {}", names.join(", "));
                seen.found.extend(rules);
                why
            }
        };
        seen.concerns.push(concern(&one.scanner, why));
    }
    let missing = missing(store, artifact)?.into_iter();
    let missing = missing.map(|name| concern(name, "it has not looked at it".to_owned()));
    seen.concerns.extend(missing);
    Ok(seen)
}

/// Runs a scanner in a sandbox.
fn in_sandbox(
    engine: &Engine,
    scanner: Scanner,
    content: &[u8],
    rules: Option<&str>,
    program: &Path,
) -> Result<Verdict, Failure> {
    let empty = tempfile::tempdir().doing("a directory for the scanner cannot be made")?;
    let workspace = empty.path().canonicalize();
    let limits = LIMITS.map(|(key, value)| (key, value.to_owned()));
    let sandbox = engine.create(&CreateSandbox {
        workspace: Workspace::Directory(workspace.doing("its directory cannot be found")?),
        requested: Requested {
            profile: Some(RequestedProfile::Named("default".to_owned())),
            read_only_dirs: vec![program.to_owned()],
            limits: limits.into_iter().collect(),
            timeout: Some(TIMEOUT),
            ..Requested::default()
        },
        discard: true,
        is_attended: false,
        home: None,
        begins_with: None,
        template: None,
        frozen: None,
        made_at: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    })?;
    let command = [
        program.as_os_str(),
        SCAN_WORKER.as_ref(),
        scanner.name().as_ref(),
    ];
    let request = ExecRequest {
        command: command.map(ToOwned::to_owned).into(),
        directory: None,
        environment: Vec::new(),
        served: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    };
    let pipe = || io::pipe().doing("no pipe can be made");
    let ((input_end, mut input), (out, out_end), (err, err_end)) = (pipe()?, pipe()?, pipe()?);
    let streams = [input_end.into(), out_end.into(), err_end.into()];
    let mut exec = sandbox.start(request, streams, None)?;
    let (out, err) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| read(err));
        scope.spawn(move || {
            let rules = rules.unwrap_or_default();
            let length = (rules.len() as u64).to_le_bytes();
            // A scanner that has ended says why by its status.
            let parts: [&[u8]; 3] = [&length, rules.as_bytes(), content];
            let _ = parts.iter().try_for_each(|part| input.write_all(part));
        });
        (read(out), errors.join().unwrap_or_default())
    });
    let ending = exec.wait()?;
    drop(sandbox);
    Ok(verdict(&ending, &out, &err))
}

/// Reads what a scanner writes, up to a bound.
fn read(from: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    let mut limited = from.take(ANSWER_BYTES_MAX + 1);
    // What was cut off is no answer.
    let _ = limited.read_to_end(&mut text);
    text
}

/// Reads the answer of a scanner, which hostile content may have written.
fn verdict(ending: &Ending, out: &[u8], err: &[u8]) -> Verdict {
    if !matches!(ending, Ending::Exited { status: 0 }) {
        let said = String::from_utf8_lossy(err);
        let why = match ending {
            Ending::Exited { .. } => said.trim().to_owned(),
            other => format!("it did not come to its end ({other:?})"),
        };
        return Verdict::Failed(why.chars().take(WHY_CHARS_MAX).collect());
    }
    let answer: Answer = match serde_json::from_slice(out) {
        Ok(answer) => answer,
        Err(error) => return Verdict::Failed(format!("its answer is none: {error}")),
    };
    if answer.version != VERSION || answer.findings.len() > FINDINGS_MAX {
        return Verdict::Failed("its answer is none of this version".to_owned());
    }
    match answer.findings.is_empty() {
        true => Verdict::Clean,
        false => Verdict::Found(answer.findings),
    }
}

fn told(failure: &Failure) -> String {
    let why = failure.why.as_deref().map(|why| format!(": {why}"));
    let told = format!("{}{}", failure.what, why.unwrap_or_default());
    told.chars().take(WHY_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_says_that_nothing_was_found() {
        let done = Ending::Exited { status: 0 };
        let clean = format!("{{\"version\":{VERSION},\"findings\":[]}}");
        assert_eq!(verdict(&done, clean.as_bytes(), b""), Verdict::Clean);
        let others = [
            (Ending::Exited { status: 1 }, clean.as_str()),
            (Ending::Signalled { signal: 9 }, clean.as_str()),
            (Ending::Exited { status: 0 }, ""),
            (Ending::Exited { status: 0 }, "{}"),
            (
                Ending::Exited { status: 0 },
                "{\"version\":0,\"findings\":[]}",
            ),
            (Ending::Exited { status: 0 }, &clean[..clean.len() - 1]),
        ];
        for (ending, out) in others {
            let verdict = verdict(&ending, out.as_bytes(), b"");
            assert!(matches!(verdict, Verdict::Failed(_)), "{ending:?} {out}");
        }
    }
}
