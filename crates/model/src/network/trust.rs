//! How programs learn whose certificates they are to trust: files inside, and variables
//! that name them. Convenience for programs, never what holds one.

/// The directory inside that holds the files.
pub const TRUST_DIRECTORY: &str = "/run/atoll/trust";

/// What the host trusts, and the authority: certificates as PEM.
pub const TRUST_BUNDLE: &str = "ca-certificates.crt";

/// The authority alone, as PEM: for what adds it to a list of its own.
pub const TRUST_AUTHORITY: &str = "authority.pem";

/// The bundle for Java, a JKS.
pub const TRUST_JAVA: &str = "cacerts";

/// Variables that name a file of certificates in the place of a program's own, or beside
/// them.
const NAMED: [(&str, &str); 12] = [
    // OpenSSL, and what follows it: Go, Ruby, Rust, Python's ssl.
    ("SSL_CERT_FILE", TRUST_BUNDLE),
    ("NIX_SSL_CERT_FILE", TRUST_BUNDLE),
    ("CURL_CA_BUNDLE", TRUST_BUNDLE),
    ("GIT_SSL_CAINFO", TRUST_BUNDLE),
    // Python's requests, pip.
    ("REQUESTS_CA_BUNDLE", TRUST_BUNDLE),
    ("PIP_CERT", TRUST_BUNDLE),
    ("CARGO_HTTP_CAINFO", TRUST_BUNDLE),
    ("AWS_CA_BUNDLE", TRUST_BUNDLE),
    // Before a file that the system's or a person's settings name.
    ("npm_config_cafile", TRUST_BUNDLE),
    ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", TRUST_BUNDLE),
    // Beside the ones that they bring themselves.
    ("NODE_EXTRA_CA_CERTS", TRUST_AUTHORITY),
    ("DENO_CERT", TRUST_AUTHORITY),
];

/// What Java reads from its command line, and from this variable.
const JAVA: &str = "JAVA_TOOL_OPTIONS";

/// The variables, with the files in this directory.
pub fn trust_variables(directory: &str) -> impl Iterator<Item = (&'static str, String)> {
    let named = NAMED
        .iter()
        .map(move |(name, file)| (*name, format!("{directory}/{file}")));
    let java = format!("-Djavax.net.ssl.trustStore={directory}/{TRUST_JAVA}");
    named.chain(std::iter::once((JAVA, java)))
}

/// The variable by which libpq finds whose certificates a database server may have. It looks at
/// no other file, and holds a server to this one where there is one: it is set only where Atoll
/// stands for a server.
#[must_use]
pub fn database_trust_variable(directory: &str) -> (&'static str, String) {
    ("PGSSLROOTCERT", format!("{directory}/{TRUST_BUNDLE}"))
}
