//! Certificates of authorities: the deployment's own, and those of single runs.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use atoll_ledger::hex;
use atoll_model::RunId;
use atoll_model::network::{Authority, HostPattern, Network};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::{AuthorityError, seconds};

/// The time by which a certificate's validity begins before now, since clocks are set.
pub(super) const EARLIER: Duration = Duration::from_secs(60 * 60);
/// The most hosts that a run's certificate names: it is sent with every handshake.
const NAMES_MAX: usize = 64;
/// A name that nobody has (RFC 6761): the only permitted one if the rules name none.
const NOBODY: &str = "nobody.invalid";

/// An authority, as it was made.
pub(super) struct Made {
    pub(super) name: String,
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) fingerprint: String,
    pub(super) from: SystemTime,
    pub(super) until: SystemTime,
}

pub(super) fn unmade(error: rcgen::Error) -> AuthorityError {
    AuthorityError::Certificate(error.to_string())
}

/// Makes an authority of a deployment. It signs only authorities of runs.
pub(super) fn make(now: SystemTime, lasts: Duration) -> Result<Made, AuthorityError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unmade)?;
    // Nothing of the host: every program inside reads it.
    let mark = hex(&Sha256::digest(key.public_key_raw()));
    let name = format!("Atoll authority {}", mark.get(..8).unwrap_or_default());
    let (from, until) = (now - EARLIER, now + lasts);
    let mut params = named(&name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    (params.not_before, params.not_after) = (date(from)?, date(until)?);
    let made = params.self_signed(&key).map_err(unmade)?;
    Ok(Made {
        name,
        certificate: made.pem(),
        key: key.serialize_pem(),
        fingerprint: hex(&Sha256::digest(made.der())),
        from,
        until,
    })
}

/// Makes the authority of a run, which can sign for hosts that the run may reach.
pub(super) fn issue(
    name: &str,
    key: &str,
    run: &RunId,
    network: &Network,
    now: SystemTime,
    until: SystemTime,
) -> Result<Authority, AuthorityError> {
    let own = KeyPair::from_pem(key).map_err(unmade)?;
    let issuer = Issuer::new(named(name), own);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unmade)?;
    let mut params = named(&format!("Atoll run {run}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = constraints(network);
    (params.not_before, params.not_after) = (date(now - EARLIER)?, date(until)?);
    let made = params.signed_by(&key, &issuer).map_err(unmade)?;
    Ok(Authority {
        certificate: made.pem(),
        key: key.serialize_pem(),
    })
}

/// Builds the parameters that all authorities share, so that the issuer's name in a certificate is
/// the subject in the authority's own.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Returns the hosts that a run's authority can sign for (RFC 5280, 4.2.1.10): those that its rules
/// name, with their subdomains. `None` permits all hosts, if a rule says so or there are too many.
fn constraints(network: &Network) -> Option<NameConstraints> {
    let mut names = BTreeSet::new();
    let mut blocks = Vec::new();
    for rule in network.allow.iter().chain(&network.learn) {
        match &rule.to.host {
            HostPattern::Any => return None,
            HostPattern::Exact(name) | HostPattern::Beneath(name) => {
                names.insert(name.as_str().to_owned());
            }
            HostPattern::Block(block) => {
                let block = CidrSubnet::from_addr_prefix(block.first(), block.bits());
                if !blocks.contains(&block) {
                    blocks.push(block);
                }
            }
        }
    }
    if names.len() + blocks.len() > NAMES_MAX {
        return None;
    }
    // A kind of name that nothing is said of is permitted.
    if names.is_empty() {
        names.insert(NOBODY.to_owned());
    }
    let mut excluded_subtrees = Vec::new();
    if blocks.is_empty() {
        let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let all = all.map(|first| CidrSubnet::from_addr_prefix(first, 0));
        excluded_subtrees.extend(all.map(GeneralSubtree::IpAddress));
    }
    let names = names.into_iter().map(GeneralSubtree::DnsName);
    let blocks = blocks.into_iter().map(GeneralSubtree::IpAddress);
    Some(NameConstraints {
        permitted_subtrees: names.chain(blocks).collect(),
        excluded_subtrees,
    })
}

pub(super) fn date(time: SystemTime) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(seconds(time)).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|error| AuthorityError::Certificate(error.to_string()))
}
