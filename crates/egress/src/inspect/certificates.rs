//! Certificates presented in place of the origins of inspected connections: one for each, signed by
//! the authority that the sandbox trusts.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use atoll_model::network::{Authority, HostPart};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions};

/// The ALPN protocols offered to programs, best first.
pub(crate) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The ALPN protocol of PostgreSQL (registered with IANA for RFC 7301).
pub(crate) const DATABASE: &[u8] = b"postgresql";

/// The time by which a certificate's validity begins before its making: clocks differ.
const BEFORE: Duration = Duration::from_secs(24 * 3600);
/// A certificate's validity from its making.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// The age at which a certificate is replaced.
const RENEWAL: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most hosts whose certificates are kept; beyond it the cache is cleared.
const HOSTS_MAX: usize = 4096;
/// The most TLS sessions kept for resumption.
const SESSIONS_MAX: usize = 1024;
/// The longest common name, bytes (RFC 5280, appendix A.1); a longer host is in the alternative
/// name alone.
const COMMON_NAME_BYTES_MAX: usize = 64;

/// Issues and caches certificates.
pub(crate) struct Certificates {
    signer: RwLock<Arc<Signer>>,
    /// The key of every certificate; it never leaves this process.
    key: KeyPair,
    provider: Arc<CryptoProvider>,
    sessions: Arc<dyn StoresServerSessions>,
    known: Mutex<HashMap<HostPart, CachedConfig>>,
}

/// The run's authority.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Signer {
    fn read(authority: &Authority) -> Result<Self, CertificateError> {
        let unread = |error: &dyn fmt::Display| CertificateError::Authority(error.to_string());
        let certificate = CertificateDer::from_pem_slice(authority.certificate.as_bytes())
            .map_err(|error| unread(&error))?;
        let key = KeyPair::from_pem(&authority.key).map_err(|error| unread(&error))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| unread(&error))?;
        Ok(Self {
            issuer,
            certificate,
        })
    }
}

struct CachedConfig {
    config: Arc<ServerConfig>,
    made: SystemTime,
}

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// The authority cannot be read.
    #[error("what the sandbox trusts cannot be read: {0}")]
    Authority(String),
    /// A certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Making(String),
}

fn making(error: impl fmt::Display) -> CertificateError {
    CertificateError::Making(error.to_string())
}

impl fmt::Debug for Certificates {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Builds an empty cache of certificates by this authority.
    pub(crate) fn new(
        authority: &Authority,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, CertificateError> {
        Ok(Self {
            signer: RwLock::new(Arc::new(Signer::read(authority)?)),
            key: KeyPair::generate().map_err(making)?,
            provider: Arc::clone(provider),
            sessions: ServerSessionMemoryCache::new(SESSIONS_MAX),
            known: Mutex::default(),
        })
    }

    /// Signs by another authority from here on, which may sign for further hosts.
    pub(crate) fn sign_by(&self, authority: &Authority) -> Result<(), CertificateError> {
        let signer = Arc::new(Signer::read(authority)?);
        *self.signer.write().unwrap_or_else(PoisonError::into_inner) = signer;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        Ok(())
    }

    /// Returns the TLS configuration for a host.
    pub(crate) fn of(&self, host: &HostPart) -> Result<Arc<ServerConfig>, CertificateError> {
        let now = SystemTime::now();
        let is_fresh = |known: &&CachedConfig| {
            now.duration_since(known.made)
                .is_ok_and(|age| age < RENEWAL)
        };
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(host).filter(is_fresh) {
            return Ok(Arc::clone(&known.config));
        }
        let signer = self.signer();
        let config = Arc::new(self.make(&signer, host, now)?);
        let mut known = lock();
        // Another one signs by now: the next connection asks that.
        if !Arc::ptr_eq(&signer, &self.signer()) {
            return Ok(config);
        }
        if known.len() >= HOSTS_MAX {
            known.clear();
        }
        let kept = CachedConfig {
            config: Arc::clone(&config),
            made: now,
        };
        known.insert(host.clone(), kept);
        Ok(config)
    }

    /// Returns the TLS configuration for a database on a host.
    pub(crate) fn of_database(
        &self,
        host: &HostPart,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        let mut config = ServerConfig::clone(&*self.of(host)?);
        config.alpn_protocols = vec![DATABASE.to_vec()];
        // No connection to another kind of server is taken up again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.signer.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn make(
        &self,
        signer: &Signer,
        host: &HostPart,
        now: SystemTime,
    ) -> Result<ServerConfig, CertificateError> {
        let mut parameters = CertificateParams::default();
        parameters.not_before = (now - BEFORE).into();
        parameters.not_after = (now + LIFETIME).into();
        parameters.serial_number = Some(self.serial_number()?);
        parameters.distinguished_name = DistinguishedName::new();
        parameters.subject_alt_names = vec![match host {
            HostPart::Name(name) => SanType::DnsName(name.as_str().try_into().map_err(making)?),
            HostPart::Address(address) => SanType::IpAddress(*address),
        }];
        // An address is no name: programs would hold one to what the authority may name.
        if let HostPart::Name(name) = host
            && name.as_str().len() <= COMMON_NAME_BYTES_MAX
        {
            let names = &mut parameters.distinguished_name;
            names.push(DnType::CommonName, name.as_str());
        }
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let leaf = parameters.signed_by(&self.key, &signer.issuer);
        let leaf = leaf.map_err(making)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(self.key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(making)?
            .with_no_client_auth()
            .with_single_cert(vec![leaf, signer.certificate.clone()], key)
            .map_err(making)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        config.session_storage = Arc::clone(&self.sessions);
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    /// Returns a serial number that no other certificate of the authority has: some programs refuse
    /// a repeated one.
    fn serial_number(&self) -> Result<SerialNumber, CertificateError> {
        let mut bytes = [0; 16];
        let filled = self.provider.secure_random.fill(&mut bytes);
        filled.map_err(|_| making("no random numbers"))?;
        // Positive, and not zero (RFC 5280, 4.1.2.2).
        let [first, ..] = &mut bytes;
        *first = *first & 0x7f | 0x40;
        Ok(SerialNumber::from_slice(&bytes))
    }
}
