//! Files and variables in the sandbox by which programs learn the authority to trust. A convenience
//! for programs, never an enforcement.

/// The directory in the sandbox that has the files.
pub const TRUST_DIRECTORY: &str = "/run/atoll/trust";

/// The bundle: the host's trusted certificates, and the authority, PEM.
pub const TRUST_BUNDLE: &str = "ca-certificates.crt";

/// The authority alone, PEM: for programs that add it to a list of their own.
pub const TRUST_AUTHORITY: &str = "authority.pem";

/// The bundle for Java, a JKS.
pub const TRUST_JAVA: &str = "cacerts";

/// Variables that name a file of certificates, to replace a program's own or to extend them.
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

/// The variable from which Java reads options of its command line. Java reports its use on standard
/// error, so that it is set only where a JDK's own store cannot be replaced.
pub const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// Returns the variables, with the files in this directory.
pub fn trust_variables(directory: &str) -> impl Iterator<Item = (&'static str, String)> {
    let named = NAMED
        .iter()
        .map(move |(name, file)| (*name, format!("{directory}/{file}")));
    let java = format!("-Djavax.net.ssl.trustStore={directory}/{TRUST_JAVA}");
    named.chain(std::iter::once((JAVA_VARIABLE, java)))
}

/// Returns the variable by which libpq finds the authorities for database servers. It reads no
/// other file, and verifies a server if this one exists, so it is set only where Atoll stands in
/// for a server.
#[must_use]
pub fn database_trust_variable(directory: &str) -> (&'static str, String) {
    ("PGSSLROOTCERT", format!("{directory}/{TRUST_BUNDLE}"))
}
