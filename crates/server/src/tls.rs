//! TLS: the identity of a server, the acceptance of connections by it, and what a client trusts.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The identity of a server that speaks TLS, as PEM: a certificate with those above it, and its
/// key. Not shown.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The certificates.
    pub certificates: String,
    /// The key.
    pub key: String,
}

impl Identity {
    /// Checks that it is one.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn check(&self) -> io::Result<()> {
        acceptor(self).map(drop)
    }
}

/// Prepares the acceptance of connections.
pub(crate) fn acceptor(identity: &Identity) -> io::Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_slice_iter(identity.certificates.as_bytes());
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    let key = key.map_err(io::Error::other)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_no_client_auth();
    let config = builder.with_single_cert(certificates, key);
    let mut config = config.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns how TLS is spoken to others: with the certificates that this machine trusts, or those
/// of `SSL_CERT_FILE`.
#[must_use]
pub fn of_clients() -> TlsConfig {
    let trusted = rustls_native_certs::load_native_certs().certs;
    let trusted = trusted
        .iter()
        .map(|one| Certificate::from_der(one).to_owned());
    let trusted: Vec<Certificate<'static>> = trusted.collect();
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .root_certs(RootCerts::from(trusted))
        .build()
}
