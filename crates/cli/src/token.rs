//! `atoll token`: the rights of a run in a token that its holder can narrow.

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::tokens::{
    ID_SHOWN, NO_KEY, UNUSABLE, before, file_told, issue_token, issued, look, narrowing, now_s,
    public_key, revoke, text_in, without_nothing, worth,
};
use atoll_model::{SessionName, parse_duration};
use atoll_policy::mistyped_method;
use atoll_store::TokenFiles;
use atoll_tokens::{Part, Right, Terms, attenuate, read_time};
use serde_json::{Value, json};

use crate::arguments::{
    AttenuateTokenArguments, IssueTokenArguments, ListTokensArguments, RevokeTokenArguments,
    ShowTokenArguments, TermsArguments, TokenAction, TokenArguments,
};
use crate::output::Output;

/// The status of a token that does not count.
const STATUS_COUNTS_NOT: u8 = 1;
/// The note that a token is valid from a little before it was issued.
const BEFORE: &str = " (a minute before it was issued: a clock may be set back so far)";

/// Issues, narrows, shows and revokes tokens.
///
/// # Errors
/// When an argument is no token, or the deployment's token files cannot be used.
pub fn token(arguments: &TokenArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.action {
        TokenAction::Issue(arguments) => issue_one(arguments, output),
        TokenAction::Attenuate(arguments) => narrow(arguments, output),
        TokenAction::Show(arguments) => show(arguments, output),
        TokenAction::Revoke(arguments) => revoke_one(arguments, output),
        TokenAction::List(arguments) => list(arguments, output),
        TokenAction::Key(_) => key(output),
    }
}

fn issue_one(arguments: &IssueTokenArguments, output: &Output) -> Result<u8, Failure> {
    let terms = terms(&arguments.terms, now_s())?;
    let has_end = terms.until_s.is_some();
    let text = issue_token(terms)?;
    if !has_end {
        output.warn(
            "the token has no end: with --until 2h it has one; atoll token revoke ends it at once",
        );
    }
    output.result(&format!("{text}\n"));
    Ok(0)
}

fn narrow(arguments: &AttenuateTokenArguments, output: &Output) -> Result<u8, Failure> {
    let text = text_in(&arguments.token)?;
    let terms = terms(&arguments.terms, now_s())?;
    if terms.is_empty() {
        return Err(
            Failure::new("nothing is said by which it would be narrower")
                .advise("atoll token attenuate TOKEN --until 10m")
                .advise("atoll token attenuate --help shows what else narrows one"),
        );
    }
    let unmade = format!(
        "the token in {} is not narrowed",
        file_told(&arguments.token)
    );
    let narrower = attenuate(&text, &terms).doing(&unmade)?;
    for told in narrowing::told(&before(&text), &terms) {
        output.warn(&told);
    }
    output.result(&format!("{narrower}\n"));
    Ok(0)
}

fn revoke_one(arguments: &RevokeTokenArguments, output: &Output) -> Result<u8, Failure> {
    let revoked = revoke(&arguments.token)?;
    let shown = shown_id(&revoked.id);
    output.say(&match revoked.is_new {
        true => format!("{shown} is revoked, with all that was made from it.\n"),
        false => format!("{shown} was revoked before.\n"),
    });
    Ok(0)
}

fn show(arguments: &ShowTokenArguments, output: &Output) -> Result<u8, Failure> {
    let text = text_in(&arguments.token)?;
    let (why_not, token) = look(&text)?;
    let unshown = format!(
        "the token in {} cannot be shown",
        file_told(&arguments.token)
    );
    let parts = match &token {
        Some(token) => token.parts().doing(&unshown)?,
        None => Vec::new(),
    };
    let worth = match why_not {
        Some(why) => Err(why),
        None => worth::worth(&parts, now_s()),
    };
    let status = match worth {
        Ok(_) => 0,
        Err(_) => STATUS_COUNTS_NOT,
    };
    if arguments.json {
        let blocks: Vec<Value> = parts.iter().map(part_json).collect();
        let carries = worth.as_ref().ok().and_then(|worth| worth.rights.as_ref());
        let why = worth.as_ref().err();
        let counts = worth.is_ok();
        let shown = json!({ "counts": counts, "why": why, "carries": carries, "blocks": blocks });
        output.json(&without_nothing(shown));
        return Ok(status);
    }
    for (number, part) in parts.iter().enumerate() {
        output.result(&part_lines(number, part));
    }
    let is_narrowed = parts.iter().any(|part| part.terms.is_none());
    let told = match worth {
        Ok(worth) => worth.told(is_narrowed),
        Err(why) => format!("It does not count: {why}."),
    };
    output.result(&format!("{}\n", printable(told.as_bytes())));
    Ok(status)
}

fn part_json(part: &Part) -> Value {
    let words = part.terms.as_ref().and_then(|terms| terms.words().ok());
    let lines = words.map(|words| words.lines().map(str::to_owned).collect::<Vec<_>>());
    without_nothing(json!({ "id": part.id, "words": lines, "datalog": part.source }))
}

fn part_lines(number: usize, part: &Part) -> String {
    let what = match number {
        0 => "issued",
        _ => "narrowed",
    };
    let mut text = format!("{what} ({})\n", shown_id(&part.id));
    let words = part.terms.as_ref().and_then(|terms| terms.words().ok());
    // What somebody else's program has appended is shown as it is.
    for line in words.as_ref().unwrap_or(&part.source).lines() {
        let why = match number == 0 && words.is_some() && line.starts_with("from ") {
            true => BEFORE,
            false => "",
        };
        text.push_str(&format!("  {}{why}\n", printable(line.as_bytes())));
    }
    text
}

fn list(arguments: &ListTokensArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let (issued, revoked) = match places.state.exists() {
        true => {
            let state = places.read_state()?;
            let files = TokenFiles::open(&state, false).doing(UNUSABLE)?;
            let revoked = files.map(|files| files.revoked()).transpose();
            (
                issued(&state)?,
                revoked.doing(UNUSABLE)?.unwrap_or_default(),
            )
        }
        false => Default::default(),
    };
    let is_revoked = |one: &Value| {
        let id = one.get("id").and_then(Value::as_str);
        id.is_some_and(|id| revoked.contains(id))
    };
    if arguments.json {
        let all = issued.into_iter().map(|mut one| {
            let revoked = is_revoked(&one);
            if let Some(members) = one.as_object_mut() {
                members.insert("revoked".to_owned(), json!(revoked));
            }
            one
        });
        output.json(&json!({ "tokens": all.collect::<Vec<_>>() }));
        return Ok(0);
    }
    if issued.is_empty() {
        output.say("No token was issued. atoll token issue --allow RIGHT issues one.\n");
    }
    for one in &issued {
        let text = |member: &str| one.get(member).and_then(Value::as_str).unwrap_or_default();
        let end = read_time(text("until")).ok();
        let state = match (is_revoked(one), end.is_some_and(|end| end <= now_s())) {
            (true, _) => "  revoked",
            (false, true) => "  ended",
            (false, false) => "",
        };
        let words = text("words").trim_end().replace('\n', ", ");
        let line = format!("{}{state}  {words}", shown_id(text("id")));
        output.result(&format!("{}\n", printable(line.as_bytes())));
    }
    Ok(0)
}

fn key(output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let files = match places.state.exists() {
        true => TokenFiles::open(&places.read_state()?, false).doing(UNUSABLE)?,
        false => None,
    };
    let files = files.ok_or_else(|| {
        Failure::new("there is no key of tokens")
            .because(NO_KEY)
            .advise("atoll token issue --allow RIGHT makes it with the first one")
    })?;
    let key = public_key(&files)?;
    output.result(&format!("{}\n", key.to_hex()));
    Ok(0)
}

/// Reads the terms of a new token.
fn terms(arguments: &TermsArguments, now_s: u64) -> Result<Terms, Failure> {
    let right = |text: &String| {
        let what = format!("--allow {} is not usable", printable(text.as_bytes()));
        let right = text.parse::<Right>().doing(&what)?;
        let mistyped = match &right {
            Right::Request { method, .. } => method.as_deref(),
            Right::Resolve(_)
            | Right::Connect { .. }
            | Right::UseCredential(_)
            | Right::Publish(_)
            | Right::Call(_) => None,
        };
        match mistyped.and_then(|method| Some((method, mistyped_method(method)?))) {
            None => Ok(right),
            Some((method, known)) => Err(Failure::new(what)
                .because(format!("there is no method {method}"))
                .advise(format!("did you mean {known}?"))),
        }
    };
    let session = arguments.session.as_deref().map(SessionName::parse);
    let workspace = arguments.workspace.as_deref().map(|path| {
        let shown = printable(path.as_os_str().as_encoded_bytes());
        let what = format!("--workspace {shown} is not usable");
        let real = path.canonicalize().doing(&what)?;
        let text = real.to_str().map(str::to_owned);
        text.ok_or_else(|| Failure::new(what).because("its path is no text"))
    });
    Ok(Terms {
        rights: arguments
            .allow
            .iter()
            .map(right)
            .collect::<Result<_, _>>()?,
        from_s: None,
        until_s: arguments
            .until
            .as_deref()
            .map(|text| until(text, now_s))
            .transpose()?,
        session: session.transpose().doing("--session is not usable")?,
        workspace: workspace.transpose()?,
        once: arguments.once,
    })
}

fn until(text: &str, now_s: u64) -> Result<u64, Failure> {
    match parse_duration(text) {
        Ok(time) => Ok(now_s.saturating_add(time.as_secs())),
        Err(_) => read_time(text).doing("--until is not usable"),
    }
}

pub(crate) fn shown_id(id: &str) -> &str {
    id.get(..ID_SHOWN).unwrap_or(id)
}
