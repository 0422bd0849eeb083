//! `[credential.NAME]`: credentials that never enter a sandbox, and their injection outside it.

mod app;
mod command;
mod kubernetes;
mod lines;
mod login;
mod others;
pub(crate) mod postgres;
mod renewal;
mod signing;
mod token;

use std::ops::Range;
use std::path::{Path, PathBuf};

use atoll_model::SecretName;
use atoll_model::network::{
    Binding, Conditions, CredentialName, Destination, HOLE, HostPattern, Part, PathPattern,
    Place as Spot, Ports, Scheme, Shape, parse_method,
};

use self::command::WrittenCommand;
use self::token::WrittenToken;
use crate::document::{Complaint, Document, Section};
use crate::named::Tables;
use crate::network::rule::{complaint_of, parse_destination, parse_scheme, texts};
use crate::origin::Sourced;
use crate::places::{Place, parse_place};
use crate::variables::check_variable;
use crate::variables::is_for_something_else;
pub use signing::{KEY_PARTS, KeySource};

pub use self::command::{CommandProgram, CommandSource};
pub use self::login::LoginSource;
pub(crate) use self::renewal::parse_field;
pub use self::token::{SecretSource, TokenSource};

const TABLES: Tables = Tables {
    key: "credential",
    table: "credential.NAME",
};
const KEYS: [&str; 10] = [
    "source", "to", "methods", "paths", "scheme", "place", "others", "variable", "shape",
    "optional",
];

/// Headers that a program does not choose, or that frame a request.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The source of a credential's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// A variable of Atoll's own environment.
    Variable(String),
    /// A file of the host, absolute: its content without the final line ending.
    File(PathBuf),
    /// A secret of the vault.
    Vault(SecretName),
    /// The values of a signing key.
    Key(KeySource),
    /// The output of a command, run when a request needs it.
    Command(CommandSource),
    /// A token that Atoll requests itself when a request needs it.
    Token(Box<TokenSource>),
    /// A field of a login file.
    Login(LoginSource),
}

impl CredentialSource {
    /// Returns the host's variables that it is read from.
    pub(crate) fn variables(&self) -> Vec<&str> {
        match self {
            Self::Variable(name) => vec![name],
            Self::Key(key) => key.variables().iter().map(String::as_str).collect(),
            Self::Token(token) => token.variables(),
            Self::File(_) | Self::Vault(_) | Self::Command(_) | Self::Login(_) => Vec::new(),
        }
    }

    /// Returns the files that it is read from.
    pub(crate) fn files(&self) -> Vec<&Path> {
        match self {
            Self::File(file) | Self::Key(KeySource::Profile { file, .. }) => vec![file],
            Self::Token(token) => token.files(),
            Self::Variable(_)
            | Self::Vault(_)
            | Self::Key(_)
            | Self::Command(_)
            | Self::Login(_) => Vec::new(),
        }
    }

    /// Returns whether the value is fetched later than at the start of a run.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        match self {
            Self::Variable(_) | Self::File(_) | Self::Vault(_) | Self::Key(_) | Self::Login(_) => {
                false
            }
            Self::Command(_) | Self::Token(_) => true,
        }
    }
}

/// A credential of these rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The binding: the requests that the credential is injected into.
    pub binding: Binding,
    /// The source of its value.
    pub source: CredentialSource,
    /// The variables in the sandbox that hold its placeholders, each with its part.
    pub variables: Vec<(Part, String)>,
    /// The shape of the placeholder of a single fetched value; [`Shape::opaque`] by default.
    pub shape: Option<Shape>,
    /// True if a run goes on without it when its source is missing.
    pub optional: bool,
}

impl Credential {
    /// Describes why its value is missing.
    #[must_use]
    pub fn absence(&self) -> String {
        let names = self.source.variables();
        match self.source.files().first() {
            Some(file) => format!("nothing usable is in {}", file.display()),
            None if names.is_empty() => "its value was not read".to_owned(),
            None => format!("{} is not usable or not set", names.join(", ")),
        }
    }
}

/// A credential as written: a file's path may be relative to the home directory.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) binding: Binding,
    source: WrittenSource,
    pub(crate) variables: Vec<(Part, String)>,
    pub(crate) shape: Option<Shape>,
    pub(crate) optional: bool,
}

#[derive(Clone, Debug)]
enum WrittenSource {
    Variable(String),
    File(Place),
    Vault(SecretName),
    Key(signing::Written),
    Command(WrittenCommand),
    Token(Box<WrittenToken>),
    Login(LoginSource),
}

impl WrittenSource {
    /// Returns the default variables in the sandbox.
    fn variables(&self) -> Option<Vec<(Part, String)>> {
        match self {
            Self::Variable(name) => Some(vec![(Part::Whole, name.clone())]),
            Self::Key(key) => Some(key.variables()),
            // It stands in the file.
            Self::Login(_) => Some(Vec::new()),
            Self::File(_) | Self::Vault(_) | Self::Command(_) | Self::Token(_) => None,
        }
    }

    /// Returns whether the value is fetched later than at the start of a run.
    fn is_fetched(&self) -> bool {
        match self {
            Self::Variable(_) | Self::File(_) | Self::Vault(_) | Self::Key(_) | Self::Login(_) => {
                false
            }
            Self::Command(_) | Self::Token(_) => true,
        }
    }
}

impl Written {
    pub(crate) fn resolved(self, home: &Path) -> Credential {
        Credential {
            source: match self.source {
                WrittenSource::Variable(name) => CredentialSource::Variable(name),
                WrittenSource::File(place) => CredentialSource::File(place.resolve(home)),
                WrittenSource::Vault(secret) => CredentialSource::Vault(secret),
                WrittenSource::Key(key) => CredentialSource::Key(key.resolved(home)),
                WrittenSource::Command(command) => {
                    CredentialSource::Command(command.resolved(home))
                }
                WrittenSource::Token(token) => {
                    CredentialSource::Token(Box::new(token.resolved(home)))
                }
                WrittenSource::Login(login) => CredentialSource::Login(login),
            },
            binding: self.binding,
            variables: self.variables,
            shape: self.shape,
            optional: self.optional,
        }
    }
}

/// Reads all `[credential.NAME]` tables.
pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Vec<Sourced<Written>> {
    TABLES.read(document, top, read_one)
}

fn read_one(
    document: &mut Document,
    mut section: Section<'_>,
    at: &Range<usize>,
    name: CredentialName,
) -> Option<Sourced<Written>> {
    let before = document.problem_count();
    let source = read_source(document, &mut section);
    let to = if section.holds_text("to") {
        let one = document.text(&mut section, "to", parse_destination);
        one.map(|one| vec![one.value])
    } else {
        texts(document, &mut section, "to", at, parse_destination)
    };
    let method = |text: &str| parse_method(text).map_err(|error| complaint_of(text, &error));
    let methods = texts(document, &mut section, "methods", at, method);
    let path = |text: &str| {
        PathPattern::try_from(text.to_owned()).map_err(|error| complaint_of(text, &error))
    };
    let paths = texts(document, &mut section, "paths", at, path);
    let scheme = document.text(&mut section, "scheme", parse_scheme);
    let is_about_requests = methods.is_some() || paths.is_some() || scheme.is_some();
    let place = read_place(document, &mut section);
    let others = others::read(document, &mut section, place.as_ref());
    let variables = read_variables(document, &mut section, at);
    let shape = read_shape(document, &mut section, source.as_ref(), place.as_ref());
    let optional = read_optional(document, &mut section, source.as_ref());
    document.end(section, &KEYS);
    if document.problem_count() > before {
        return None;
    }
    let (source, to, place) = complete(document, at, &name, (source, to, place))?;
    let signs_in = matches!(place, Spot::Postgres(_));
    if signs_in && is_about_requests {
        let what =
            "`methods`, `paths` and `scheme` are about requests, of which PostgreSQL knows none";
        document.report(at, format!("[credential.{name}]: {what}"), None);
        return None;
    }
    let scheme = scheme.map_or(Scheme::Https, |scheme| scheme.value);
    let usual = match signs_in {
        true => Ports::Listed(vec![(postgres::PORT, postgres::PORT)]),
        false => Ports::of(scheme),
    };
    let to = settle_places(document, at, to, &usual)?;
    let variables = variables.or_else(|| usual_variables(&source, &place));
    let variables = settle_variables(document, at, &name, variables, &source, &place)?;
    let requests = Conditions {
        scheme: (!signs_in).then_some(scheme),
        methods: methods.unwrap_or_default(),
        paths: paths.unwrap_or_default(),
        packages: None,
    };
    let written = Written {
        binding: Binding {
            name,
            to,
            requests,
            place,
            others,
        },
        source,
        variables,
        shape,
        optional,
    };
    Some(Sourced::new(written, document.origin(at)))
}

/// Returns the destinations, each with its ports.
fn settle_places(
    document: &mut Document,
    at: &Range<usize>,
    to: Vec<Destination>,
    usual: &Ports,
) -> Option<Vec<Destination>> {
    let to = to.into_iter().map(|to| bound(to, usual));
    match to.collect::<Result<Vec<_>, Complaint>>() {
        Ok(to) => Some(to),
        Err(complaint) => {
            let Complaint { what, hint } = complaint;
            document.report(at, what, hint);
            None
        }
    }
}

/// Returns the variables in the sandbox where a file names none.
fn usual_variables(source: &WrittenSource, place: &Spot) -> Option<Vec<(Part, String)>> {
    let signs = matches!(place, Spot::SigV4(_));
    match source {
        WrittenSource::Command(_) if signs => Some(signing::usual_variables()),
        source => source.variables(),
    }
}

/// Returns the variables in the sandbox, if source and place fit together.
fn settle_variables(
    document: &mut Document,
    at: &Range<usize>,
    name: &CredentialName,
    variables: Option<Vec<(Part, String)>>,
    source: &WrittenSource,
    place: &Spot,
) -> Option<Vec<(Part, String)>> {
    let signs = matches!(place, Spot::SigV4(_));
    let Some(variables) = variables else {
        let what = format!("[credential.{name}] needs `variable`: what holds it inside");
        document.report(at, what, None);
        return None;
    };
    let gives = match source {
        WrittenSource::Key(_) => signing::Gives::Key,
        WrittenSource::Command(_) => signing::Gives::Command,
        WrittenSource::Variable(_)
        | WrittenSource::File(_)
        | WrittenSource::Vault(_)
        | WrittenSource::Token(_)
        | WrittenSource::Login(_) => signing::Gives::Value,
    };
    if let Some((what, hint)) = signing::mismatch(gives, signs, &variables) {
        document.report(at, format!("[credential.{name}]: {what}"), Some(hint));
        return None;
    }
    Some(variables)
}

/// Reads the variables in the sandbox, if they are named.
fn read_variables(
    document: &mut Document,
    section: &mut Section<'_>,
    at: &Range<usize>,
) -> Option<Vec<(Part, String)>> {
    if section.holds_list("variable") {
        return signing::read_variables(document, section, at);
    }
    let name = document.text(section, "variable", parse_variable)?;
    Some(vec![(Part::Whole, name.value)])
}

/// Returns the required parts, if they are all there and fit together.
fn complete(
    document: &mut Document,
    at: &Range<usize>,
    name: &CredentialName,
    parts: (
        Option<WrittenSource>,
        Option<Vec<Destination>>,
        Option<Spot>,
    ),
) -> Option<(WrittenSource, Vec<Destination>, Spot)> {
    let missing = match &parts {
        (None, _, _) => "`source`: where its value comes from, as { environment = \"TOKEN\" }",
        (_, None, _) => "`to`: the host that it is for, as \"api.example.com\"",
        (_, _, None) => "`place`: where it stands, as { header = \"authorization\" }",
        (Some(_), Some(_), Some(_)) => "",
    };
    let (Some(source), Some(to), Some(place)) = parts else {
        document.report(at, format!("[credential.{name}] needs {missing}"), None);
        return None;
    };
    if let (false, Spot::Refresh(_)) = (matches!(source, WrittenSource::Login(_)), &place) {
        let what = format!(
            "[credential.{name}]: `refresh` is for what renews a login, which is a field of its file"
        );
        let hint = "write source = { login = \"NAME\", field = \"tokens.refresh_token\" }";
        document.report(at, what, Some(hint.to_owned()));
        return None;
    }
    let fetched = match &source {
        WrittenSource::Command(_) => Some("a command"),
        WrittenSource::Token(_) => Some("a token"),
        WrittenSource::Login(login) if login.renew.is_some() => Some("a login that is renewed"),
        WrittenSource::Variable(_)
        | WrittenSource::File(_)
        | WrittenSource::Vault(_)
        | WrittenSource::Login(_)
        | WrittenSource::Key(_) => None,
    };
    if let (WrittenSource::Login(login), Spot::Refresh(_)) = (&source, &place)
        && login.renew.is_some()
    {
        let what = format!(
            "[credential.{name}]: `renew` is for the access token of a login, not for what it is renewed by"
        );
        document.report(at, what, None);
        return None;
    }
    // A body is looked through before it is decided, and what is fetched is after that.
    if let (Some(fetched), Spot::Body(_)) = (fetched, &place) {
        let what = format!(
            "[credential.{name}] has {fetched} as its source, which no field of a body can have"
        );
        document.report(at, what, Some("use a header or a parameter".to_owned()));
        return None;
    }
    let is_command = matches!(source, WrittenSource::Command(_));
    if let (Some(fetched), Spot::SigV4(_), false) = (fetched, &place, is_command) {
        let what = format!(
            "[credential.{name}] has {fetched} as its source, which gives one value: `sigv4` signs with a key of \
             two values or three"
        );
        let hint = format!("write `source` as one of: {}", signing::SOURCES);
        document.report(at, what, Some(hint));
        return None;
    }
    Some((source, to, place))
}

/// Reads `optional`. A secret of the vault was put there by name, and a command is run when needed:
/// if one is missing, it is an error, so neither is optional.
fn read_optional(
    document: &mut Document,
    section: &mut Section<'_>,
    source: Option<&WrittenSource>,
) -> bool {
    let Some((flag, at)) = document.flag(section, "optional") else {
        return false;
    };
    let has_to_be = match source {
        Some(WrittenSource::Vault(_) | WrittenSource::Command(_) | WrittenSource::Token(_)) => true,
        Some(WrittenSource::Key(key)) => key.is_of_vault(),
        Some(WrittenSource::Variable(_) | WrittenSource::File(_) | WrittenSource::Login(_))
        | None => false,
    };
    if flag.value && has_to_be {
        let what = "`optional` is for a variable or a file: a secret of the vault and a command \
                    have to be there, and so has what a token takes";
        document.report(&at, what.to_owned(), None);
    }
    flag.value
}

/// Checks that a destination names its hosts, and fills in the usual ports if it names none.
fn bound(mut to: Destination, usual: &Ports) -> Result<Destination, Complaint> {
    let is_named = match &to.host {
        HostPattern::Exact(_) | HostPattern::Beneath(_) => true,
        HostPattern::Block(block) => to_one(block.bits(), block.is_6()),
        HostPattern::Any => false,
    };
    if !is_named {
        return Err(Complaint::new(
            format!("`to`: a credential is for hosts that it names, not for {to}"),
            "name the host, as \"api.example.com\"",
        ));
    }
    if matches!(&to.host, HostPattern::Exact(name) if name.is_this_host()) {
        return Err(Complaint::new(
            format!("`to`: a credential is not for {to}: a program can listen there in its place"),
            "run the service where the program is not, and name that host",
        ));
    }
    match to.ports {
        Ports::Web => to.ports = usual.clone(),
        Ports::All => {
            return Err(Complaint::new(
                format!("`to`: a credential is for ports that it names, not for {to}"),
                "leave the port out for the usual one, or name it",
            ));
        }
        Ports::Listed(_) => {}
    }
    Ok(to)
}

fn to_one(bits: u8, is_6: bool) -> bool {
    bits == if is_6 { 128 } else { 32 }
}

/// Parses the name of a variable that can hold a placeholder; programs give other meanings to some.
fn parse_variable(text: &str) -> Result<String, Complaint> {
    check_variable(text, "")?;
    if is_for_something_else(text) {
        return Err(format!("{text} steers programs: a placeholder in it would break them").into());
    }
    Ok(text.to_owned())
}

fn read_source(document: &mut Document, within: &mut Section<'_>) -> Option<WrittenSource> {
    let (at, mut section) = document.placed(within, "source", "credential.NAME.source")?;
    let before = document.problem_count();
    let key = signing::read_source(document, &mut section, &at);
    let variable = document.text(&mut section, "environment", parse_variable);
    let file = document.text(&mut section, "file", parse_place);
    let secret = document.text(&mut section, "vault", parse_secret);
    let command = command::read(document, &mut section);
    let token = token::read(document, &mut section);
    let app = app::read(document, &mut section);
    let kubernetes = kubernetes::read(document, &mut section);
    let login = login::read(document, &mut section);
    document.end(
        section,
        &[
            "environment",
            "file",
            "vault",
            "aws-profile",
            "command",
            "timeout",
            "oauth",
            "github-app",
            "kubernetes",
            "login",
            "field",
            "renew",
        ],
    );
    let all = [
        variable.map(|name| WrittenSource::Variable(name.value)),
        file.map(|place| WrittenSource::File(place.value)),
        secret.map(|secret| WrittenSource::Vault(secret.value)),
        key.map(WrittenSource::Key),
        command.map(WrittenSource::Command),
        token.map(Box::new).map(WrittenSource::Token),
        app.map(Box::new).map(WrittenSource::Token),
        kubernetes.map(Box::new).map(WrittenSource::Token),
        login.map(WrittenSource::Login),
    ];
    let mut all = all.into_iter().flatten();
    match (all.next(), all.next()) {
        (Some(one), None) => Some(one),
        (_, _) if document.problem_count() > before => None,
        (_, _) => {
            let what = "`source` is one of: { environment = \"TOKEN\" }, { file = \"~/token\" }, \
                        { vault = \"token\" }, { command = [\"PROGRAM\", …] }, { oauth = … }, { \
                        github-app = … }, { kubernetes = … }, { aws-profile = \"default\" }, { login \
                        = \"NAME\", field = \"tokens.access_token\" }";
            document.report(&at, what.to_owned(), None);
            None
        }
    }
}

fn parse_secret(text: &str) -> Result<SecretName, Complaint> {
    let secret = text.parse::<SecretName>();
    secret.map_err(|error| Complaint::from(format!("{text:?}: {error}")))
}

/// Reads `shape`: the form of the placeholder of a value that is not known yet. A known value
/// determines its own.
fn read_shape(
    document: &mut Document,
    within: &mut Section<'_>,
    source: Option<&WrittenSource>,
    place: Option<&Spot>,
) -> Option<Shape> {
    let is_known = source.is_some_and(|source| !source.is_fetched());
    if let (false, Some(Spot::SigV4(_))) = (is_known, place) {
        let what = "what stands for a key that signs has the shape of AWS's";
        document.refuse(within, "shape", what);
        return None;
    }
    if is_known {
        document.refuse(
            within,
            "shape",
            "the value is known, and what stands for it has its shape",
        );
        return None;
    }
    let shape = document.text(within, "shape", |text| {
        text.parse::<Shape>()
            .map_err(|error| complaint_of(text, &error))
    });
    shape.map(|shape| shape.value)
}

fn read_place(document: &mut Document, within: &mut Section<'_>) -> Option<Spot> {
    let (at, mut section) = document.placed(within, "place", "credential.NAME.place")?;
    let before = document.problem_count();
    let header = document.text(&mut section, "header", parse_header);
    let form = document.text(&mut section, "form", parse_form);
    let basic = document.text(&mut section, "basic", parse_user);
    let query = document.text(&mut section, "query", parse_parameter);
    let body = document.text(&mut section, "body", parse_parameter);
    let refresh = document.text(&mut section, "refresh", parse_parameter);
    let scope = signing::read_scope(document, &mut section);
    let postgres = postgres::read(document, &mut section);
    document.end(
        section,
        &[
            "header", "form", "basic", "query", "body", "refresh", "sigv4", "postgres",
        ],
    );
    let form = form.map(|form| form.value);
    let is_formed = form.is_some();
    let header = header.map(|header| Spot::Header {
        name: header.value,
        form,
    });
    let all = [
        header,
        basic.map(|user| Spot::Basic(user.value)),
        query.map(|key| Spot::Query(key.value)),
        body.map(|field| Spot::Body(field.value)),
        refresh.map(|field| Spot::Refresh(field.value)),
        scope.map(Spot::SigV4),
        postgres.map(Spot::Postgres),
    ];
    let mut all = all.into_iter().flatten();
    match (all.next(), all.next()) {
        (Some(place @ Spot::Header { .. }), None) => Some(place),
        (Some(place), None) if !is_formed => Some(place),
        (_, _) if document.problem_count() > before => None,
        (_, _) => {
            let what = "`place` is one of: { header = \"authorization\" }, { header = …, form = \
                        \"Bearer {}\" }, { basic = \"user\" }, { query = \"key\" }, { body = \"field\" }, \
                        { refresh = \"field\" }, \
                        { sigv4 = { region = \"eu-west-1\", service = \"s3\" } }, \
                        { postgres = { user = \"app\", database = \"shop\" } }";
            document.report(&at, what.to_owned(), None);
            None
        }
    }
}

fn parse_header(text: &str) -> Result<String, Complaint> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let name = text.to_ascii_lowercase();
    if !(1..=64).contains(&name.len()) || !name.bytes().all(is_of_name) {
        return Err(format!("{text:?} is not a header's name").into());
    }
    if FRAMING.contains(&name.as_str()) || name.starts_with("proxy-") {
        return Err(format!("{text:?} says how a request is sent: it holds no credential").into());
    }
    Ok(name)
}

fn parse_form(text: &str) -> Result<String, Complaint> {
    let is_value = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_value && text.len() <= 256 && text.matches(HOLE).count() == 1 {
        return Ok(text.to_owned());
    }
    Err(Complaint::new(
        format!("{text:?} is no form of a header's value"),
        "write it with {} once, where the credential stands, as \"Bearer {}\"",
    ))
}

fn parse_user(text: &str) -> Result<String, Complaint> {
    let is_user = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b':';
    if text.len() <= 256 && text.bytes().all(is_user) {
        return Ok(text.to_owned());
    }
    Err(Complaint::new(
        format!("{text:?} is no user's name of basic authentication"),
        "write it as the program sends it, or \"*\" for any",
    ))
}

fn parse_parameter(text: &str) -> Result<String, Complaint> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no name of a parameter: letters, digits, `-._~`").into())
}

/// Returns remarks on restrictions of a file's credentials that the target itself does not enforce,
/// for a check of the file.
pub(crate) fn remarks(written: &[Sourced<Written>]) -> Vec<(u32, String)> {
    let remark = |one: &Sourced<Written>| {
        if let WrittenSource::Token(token) = &one.value.source {
            let name = &one.value.binding.name;
            let remark = token.remark()?;
            return Some((one.origin.line(), format!("credential {name}: {remark}")));
        }
        let binding = &one.value.binding;
        let requests = &binding.requests;
        let is_bound = !requests.methods.is_empty() || !requests.paths.is_empty();
        let further = match !is_bound && requests.scheme.is_some() {
            true => "; `methods` and `paths` bind it to some requests",
            false => "",
        };
        let kind = match &binding.place {
            Spot::SigV4(_) => signing::remark(&one.value.source),
            Spot::Postgres(access) => postgres::remark(access),
            Spot::Header { .. }
            | Spot::Basic(_)
            | Spot::Query(_)
            | Spot::Body(_)
            | Spot::Refresh(_) => "",
        };
        let text = format!(
            "credential {} is used as it is: Atoll holds it to {binding}, and cannot ask the \
             target for a narrower one{further}{kind}",
            binding.name
        );
        Some((one.origin.line(), text))
    };
    written.iter().filter_map(remark).collect()
}
