//! `[[issuer]]` of `serve.toml`: whose tokens callers may come with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use atoll_store::{FIRST_TENANT, Role};
use axum::http::Uri;
use serde::Deserialize;

/// The longest address of an issuer, bytes.
const URL_BYTES_MAX: usize = 200;
/// The longest name of a tenant, bytes.
const TENANT_BYTES_MAX: usize = 64;

/// An issuer of tokens: an OpenID provider, or a file of keys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The `iss` of its tokens, exactly; its keys come from what it publishes beneath.
    pub url: String,
    /// The value that has to be among the `aud` of a token.
    pub audience: String,
    /// A file of its keys (JWKS), in place of asking it.
    pub keys: Option<PathBuf>,
    /// The tenant of its callers; the first one without it and without `tenant_claim`.
    pub tenant: Option<String>,
    /// The claim that names the tenant.
    pub tenant_claim: Option<String>,
    /// The claim that says which roles a caller has; without it all are users.
    pub roles_claim: Option<String>,
    /// The role for each value of that claim.
    #[serde(default)]
    pub roles: BTreeMap<String, String>,
}

/// A mistake in what is configured of an issuer.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// No address, or one whose answers anybody could change.
    #[error(
        "issuer.url = {0:?} is no address of an issuer: it begins with https://, or with http:// \
         on the loopback, has no user, query or fragment, and at most {URL_BYTES_MAX} bytes"
    )]
    Url(String),
    /// One issuer that is there twice.
    #[error("issuer.url = {0:?} is there twice")]
    Twice(String),
    /// Without an audience, tokens for anybody would do.
    #[error("issuer.audience of {0:?} is empty: it is what tokens for this server have as aud")]
    Audience(String),
    /// Two words on the same thing.
    #[error("issuer.tenant and issuer.tenant_claim of {0:?} exclude each other")]
    TwoTenants(String),
    /// A name that no tenant has.
    #[error(
        "issuer.tenant = {0:?} is no name of a tenant: it has 1 to {TENANT_BYTES_MAX} letters, \
         digits, '.', '_' and '-'"
    )]
    Tenant(String),
    /// Roles without the claim that says them, or the claim without roles.
    #[error("issuer.roles_claim and [issuer.roles] of {0:?} go together")]
    Half(String),
    /// A role that is not there.
    #[error("issuer.roles has {0:?}; the roles are {all}", all = Role::ALL.map(Role::name).join(", "))]
    Role(String),
}

impl Issuer {
    /// Returns the tenant of all its callers, if no claim names it.
    pub(crate) fn fixed_tenant(&self) -> Option<&str> {
        match (&self.tenant, &self.tenant_claim) {
            (Some(tenant), _) => Some(tenant),
            (None, Some(_)) => None,
            (None, None) => Some(FIRST_TENANT),
        }
    }

    /// Returns whether it is on this machine, and asked in the clear.
    pub(crate) fn is_in_the_clear(&self) -> bool {
        self.url.starts_with("http://")
    }
}

/// Checks what no type holds.
pub(super) fn check(issuers: &[Issuer]) -> Result<(), IssuerError> {
    let mut urls = BTreeSet::new();
    for issuer in issuers {
        let url = || issuer.url.clone();
        if issuer.url.len() > URL_BYTES_MAX
            || issuer.url.contains(['?', '#'])
            || !is_safe(&issuer.url, true)
        {
            return Err(IssuerError::Url(url()));
        }
        if !urls.insert(&issuer.url) {
            return Err(IssuerError::Twice(url()));
        }
        if issuer.audience.is_empty() {
            return Err(IssuerError::Audience(url()));
        }
        match (&issuer.tenant, &issuer.tenant_claim) {
            (Some(_), Some(_)) => return Err(IssuerError::TwoTenants(url())),
            (Some(tenant), None) if !is_tenant(tenant) => {
                return Err(IssuerError::Tenant(tenant.clone()));
            }
            _ => {}
        }
        if issuer.roles_claim.is_some() == issuer.roles.is_empty() {
            return Err(IssuerError::Half(url()));
        }
        let mut roles = issuer.roles.values();
        if let Some(role) = roles.find(|role| Role::parse(role).is_none()) {
            return Err(IssuerError::Role(role.clone()));
        }
    }
    Ok(())
}

/// Returns whether nobody on the way can change what an address answers: it is of https, or of
/// http on the loopback where that may be.
pub(crate) fn is_safe(url: &str, loopback_may_be_clear: bool) -> bool {
    let Ok(address) = url.parse::<Uri>() else {
        return false;
    };
    let host = address.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback =
        bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is_whole = !host.is_empty()
        && address
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'));
    // As written: the parser takes other spellings of a scheme too.
    let is_protected = url.starts_with("https://")
        || url.starts_with("http://") && is_loopback && loopback_may_be_clear;
    is_whole && is_protected
}

/// Returns whether a text can be the name of a tenant.
pub(crate) fn is_tenant(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=TENANT_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}
