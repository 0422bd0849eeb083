//! The certificate of a server, and the authority that signs it: one that can sign for the server's
//! domain alone, so that whoever trusts it trusts it for nothing else.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use atoll_ledger::StateDir;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PKCS_ECDSA_P256_SHA256, SanType,
};
use serde::{Deserialize, Serialize};

use super::certificate::{EARLIER, date, unmade};
use super::{AuthorityError, FILE_BYTES_MAX, Place, days, seconds};

const FILE: &str = "serving.json";
/// The authority as others take it, PEM.
const SHOWN: &str = "serving.pem";
const VERSION: u32 = 1;
/// The validity of the authority, and of a certificate: one is made at each start of a server.
const AUTHORITY_LASTS: Duration = days(3653);
const LASTS: Duration = days(365);

/// The authority as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u32,
    domain: String,
    addresses: Vec<IpAddr>,
    /// PEM, as the key.
    certificate: String,
    key: String,
    until_s: u64,
}

/// The certificate of a server. It holds the key, so it is never shown.
pub struct ServerCertificate {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its key, PKCS #8 as PEM.
    pub key: String,
    /// The file of the authority that clients trust.
    pub authority: PathBuf,
}

impl ServerCertificate {
    /// Makes one for a domain, all names below it, and addresses; the authority too, if there is
    /// none for them.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn make(
        state: &StateDir,
        domain: &str,
        addresses: &[IpAddr],
        now: SystemTime,
    ) -> Result<Self, AuthorityError> {
        let Place(directory) = Place::of(state)?;
        let _lock = directory.lock()?;
        let found = directory.read(FILE, FILE_BYTES_MAX)?;
        let found = found.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let fits = |kept: &Kept| {
            kept.v == VERSION
                && kept.domain == domain
                && kept.addresses == addresses
                && kept.until_s > seconds(now + LASTS)
        };
        let kept = match found.filter(fits) {
            Some(kept) => kept,
            None => {
                let kept = authority(domain, addresses, now)?;
                let bytes = serde_json::to_vec_pretty(&kept)
                    .map_err(|error| AuthorityError::Certificate(error.to_string()))?;
                directory.replace(FILE, &bytes)?;
                kept
            }
        };
        directory.replace(SHOWN, kept.certificate.as_bytes())?;
        let issuer = KeyPair::from_pem(&kept.key).map_err(unmade)?;
        let issuer = Issuer::new(named(domain), issuer);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unmade)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, domain);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let name = |name: String| name.try_into().map(SanType::DnsName).map_err(unmade);
        params.subject_alt_names = vec![name(domain.to_owned())?, name(format!("*.{domain}"))?];
        let addresses = addresses.iter().copied().map(SanType::IpAddress);
        params.subject_alt_names.extend(addresses);
        (params.not_before, params.not_after) = (date(now - EARLIER)?, date(now + LASTS)?);
        let made = params.signed_by(&key, &issuer).map_err(unmade)?;
        Ok(Self {
            certificate: made.pem(),
            key: key.serialize_pem(),
            authority: directory.path().join(SHOWN),
        })
    }
}

fn authority(domain: &str, addresses: &[IpAddr], now: SystemTime) -> Result<Kept, AuthorityError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unmade)?;
    let until = now + AUTHORITY_LASTS;
    let mut params = named(domain);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let single = |address: &IpAddr| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits))
    };
    let names = std::iter::once(GeneralSubtree::DnsName(domain.to_owned()));
    let mut excluded_subtrees = Vec::new();
    if addresses.is_empty() {
        let all = ["0.0.0.0", "::"].map(|first| first.parse::<IpAddr>());
        let all = all.into_iter().flatten();
        let all = all.map(|first| CidrSubnet::from_addr_prefix(first, 0));
        excluded_subtrees.extend(all.map(GeneralSubtree::IpAddress));
    }
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: names.chain(addresses.iter().map(single)).collect(),
        excluded_subtrees,
    });
    (params.not_before, params.not_after) = (date(now - EARLIER)?, date(until)?);
    let made = params.self_signed(&key).map_err(unmade)?;
    Ok(Kept {
        v: VERSION,
        domain: domain.to_owned(),
        addresses: addresses.to_vec(),
        certificate: made.pem(),
        key: key.serialize_pem(),
        until_s: seconds(until),
    })
}

fn named(domain: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let name = format!("Atoll server {domain}");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}
