//! Whole files, by plain HTTP, in the form of E2B's service: what a signed link is for.

use axum::http::Method;

use super::dialect::*;
use super::files::{Packed, fetch, put, unpacked};
use super::form::parts_of;
use super::senders::{named_user, token};

/// The parts of a link.
#[derive(Debug, Default)]
struct Link {
    path: String,
    user: String,
    signature: Option<String>,
    expires_s: Option<u64>,
}

impl Link {
    fn read(query: &str) -> Result<Self, Refusal> {
        let mut link = Self::default();
        for (name, value) in pairs(query) {
            match name.as_ref() {
                "path" => link.path = value,
                "username" => link.user = value,
                "signature" => link.signature = Some(value),
                "signature_expiration" => {
                    let wrong = |_| Refusal::invalid("signature_expiration is no time");
                    link.expires_s = Some(value.parse().map_err(wrong)?);
                }
                _ => {}
            }
        }
        Ok(link)
    }

    fn credential(&self, headers: &HeaderMap) -> Credential {
        match (token(headers), &self.signature) {
            (token @ Credential::Token(_), _) => token,
            (_, Some(signature)) => Credential::Signature {
                signature: signature.clone(),
                user: self.user.clone(),
                path: self.path.clone(),
                expires_s: self.expires_s,
            },
            (none, None) => none,
        }
    }
}

/// Returns the credential of a request about a file.
pub(super) fn credential(headers: &HeaderMap, uri: &Uri) -> Credential {
    let link = Link::read(uri.query().unwrap_or_default());
    link.map_or(Credential::Nothing, |link| link.credential(headers))
}

/// Answers a request about a file, of a sandbox or of the one that the signature finds.
pub(crate) async fn answer(
    front: &Arc<Front>,
    sandbox: Option<&str>,
    request: Request<Body>,
) -> Response {
    let (parts, body) = request.into_parts();
    let answered = match parts.method {
        Method::GET => download(front, sandbox, &parts).await,
        Method::POST => {
            let upload = async |body| upload(front, sandbox, &parts, body).await;
            drained(body, upload).await
        }
        _ => Err(Refusal::invalid("/files takes GET and POST")),
    };
    answered.unwrap_or_else(|refusal| match sandbox {
        Some(sandbox) => Dialect::E2b.refused_in(sandbox, &refusal),
        None => Dialect::E2b.refused(&refusal),
    })
}

async fn download(front: &Arc<Front>, sandbox: Option<&str>, parts: &Parts) -> Answered {
    let link = Link::read(parts.uri.query().unwrap_or_default())?;
    named_user(&link.user)?;
    let caller = Caller::new(front, link.credential(&parts.headers));
    fetch(&caller, sandbox, link.path, &parts.headers).await
}

async fn upload(front: &Arc<Front>, sandbox: Option<&str>, parts: &Parts, body: Body) -> Answered {
    let link = Link::read(parts.uri.query().unwrap_or_default())?;
    named_user(&link.user)?;
    let caller = Caller::new(front, link.credential(&parts.headers));
    let mut packed = match header_of(&parts.headers, "content-encoding") {
        None | Some("identity") => Packed::Not,
        Some("gzip") => Packed::gzip(),
        Some(_) => {
            return Err(Refusal::invalid("Content-Encoding is gzip, or nothing"));
        }
    };
    check_before(&link, &parts.headers)?;
    let mut written = Vec::new();
    let kind = header_of(&parts.headers, "content-type").unwrap_or_default();
    let Ok(boundary) = multer::parse_boundary(kind) else {
        if link.path.is_empty() {
            let what = "path says where the file goes, and is missing";
            return Err(Refusal::invalid(what));
        }
        let entry = put(&caller, sandbox, &link.path, body, &mut packed).await?;
        return ok(&[described(&link.path, &entry)]);
    };
    // The parts are packed together.
    let body = match packed {
        Packed::Gzip(_) => unpacked(body, packed),
        Packed::Not => body,
    };
    let mut all = parts_of(body, boundary).await?;
    while let Some(part) = all.next().await? {
        let path = match (&*link.path, part.file_name()) {
            ("", Some(name)) => name.to_owned(),
            ("", None) => return Err(Refusal::invalid("a part has no file name")),
            (path, _) => path.to_owned(),
        };
        let content = content_of(part);
        let entry = put(&caller, sandbox, &path, content, &mut Packed::Not).await?;
        written.push(described(&path, &entry));
    }
    ok(&written)
}

/// Refuses what can be refused before anything of the body is read.
fn check_before(link: &Link, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut names = headers.keys();
    if names.any(|name| name.as_str().starts_with("x-metadata-")) {
        let what = "files have no metadata on this server";
        return Err(Refusal::new(Kind::Forbidden, what));
    }

    match (&link.signature, link.expires_s) {
        (Some(_), Some(expires_s)) if expires_s <= now_ms() / 1000 => {
            let what = "signature is already expired";
            Err(Refusal::new(Kind::Unauthenticated, what))
        }
        _ => Ok(()),
    }
}

/// Describes a file that was written, as E2B's SDKs read it.
fn described(path: &str, entry: &EntryFacts) -> Value {
    let at = if entry.path.is_empty() {
        path
    } else {
        &entry.path
    };
    let name = at.rsplit('/').next().unwrap_or_default();
    json!({ "path": at, "name": name, "type": "file" })
}
