//! Failures to reach an origin or to get its answer, in words.

use std::io;

use atoll_model::network::{CERTIFICATE_REFUSED, SIGNED_BY_ITSELF};
use rustls::CertificateError;

/// Returns why a request has no response, in words.
pub(crate) fn why_unanswered(error: &hyper::Error) -> String {
    let what = match error.is_parse() {
        true => "the host's answer cannot be read",
        false => "the host ended the connection",
    };
    // The library's own words alone say little of HTTP/2.
    match std::error::Error::source(error) {
        Some(cause) => format!("{what}: {error}: {cause}"),
        None => format!("{what}: {error}"),
    }
}

/// Returns whether the server was reached, and TLS with it failed.
pub(crate) fn is_of_tls(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Returns why a server could not be reached, in words.
pub fn why_not(error: &io::Error) -> String {
    let of_tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(of_tls) = of_tls else {
        return match error.kind() {
            io::ErrorKind::TimedOut => "the host does not answer".to_owned(),
            io::ErrorKind::ConnectionRefused => {
                "the host cannot be reached: nothing listens at that port of it".to_owned()
            }
            _ => format!("the host cannot be reached: {error}"),
        };
    };
    let rustls::Error::InvalidCertificate(why) = of_tls else {
        return format!("the host cannot be reached by TLS: {of_tls}");
    };
    let why = match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it does not hold yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        CertificateError::UnknownIssuer => "nobody that this host trusts has signed it".to_owned(),
        CertificateError::Other(_) => SIGNED_BY_ITSELF.to_owned(),
        other => other.to_string(),
    };
    format!("{CERTIFICATE_REFUSED}: {why}")
}
