//! Hosts, addresses and rules for network access.
//!
//! Everything that decides on a destination uses these types: a text that cannot be read as one of
//! them is no destination.

mod asking;
mod asks;
mod block;
mod credential;
mod endpoint;
mod fetched;
mod flow;
mod given_up;
mod host;
mod http;
mod issue;
mod letters;
mod limits;
mod listening;
mod lock;
mod login;
mod meant;
mod package;
mod pattern;
mod publish;
mod release;
mod renewal;
mod rules;
mod ssh;
mod target;
mod telling;
mod this_host;
mod token;
mod trust;
mod upstream;

pub use asking::{
    ASKED_HEADERS_MAX, ASKED_SHORT_BYTES_MAX, ASKED_TEXT_BYTES_MAX, ASKING_MAX, ASKING_PATIENCE,
    ApprovalScope, AskedBody, AskedCall, AskedHeader, AskedRequest, CallDigest, Consent,
    InvalidDigest, LEASE_SECONDS_MAX, NoConsent, Scope,
};
pub use block::{Block, Special, is_private, special, within};
pub use credential::{
    Binding, CREDENTIAL_BYTES_MAX, CREDENTIALS_MAX, CredentialName, HOLE, InvalidCredentialName,
    Others, Part, Place, Placeholder, PostgresAccess, Reach, ServerTls, SignatureScope,
};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use fetched::{
    COMMAND_OUTPUT_BYTES_MAX, COMMAND_PATIENCE, COMMAND_PATIENCE_MAX, CommandEnd, Fetch, Fetched,
    InvalidShape, SHAPE_HOLE, Shape,
};
pub use flow::{
    ALLOWANCES_MAX, Authority, CARRIAGE_BYTES_MAX, CERTIFICATE_REFUSED, DENIED_BY, EgressConfig,
    FLOW_MESSAGE_BYTES_MAX, Flow, FlowEnd, FlowKind, FlowLogin, FlowOrder, FlowReport, FlowRequest,
    LiveRule, NO_NAME_SERVER, NO_RULE, SIGNED_BY_ITSELF, UNLOCKED_STATUS, UNNAMED,
};
pub use given_up::{
    GIVEN_UP, GIVEN_UP_AT_ONCE_MAX, GIVEN_UP_MAX, GivenUp, GivenUpBy, GivenUpHost, GivenUps,
    GivingUp, InvalidGivenUpHost, InvalidGivingUp, NoNetwork, Restriction, TOKEN_OVER,
    TooMuchGivenUp,
};
pub use host::{HostName, HostPart, InvalidHost, NAME_BYTES_MAX};
pub use http::{Conditions, InvalidMethod, METHODS, Request, Scheme, Way, parse_method};
pub use issue::{CAUGHT_BYTES_MAX, Issue, IssuedToken};
pub use limits::{
    CONNECTIONS_MAX, Frequency, InvalidFrequency, Limit, NetworkLimits, Per, RuleLimits,
};
pub use listening::{Listener, ListensAt};
pub use lock::{
    InvalidLockFile, LOCKED_BYTES_MAX, LOCKED_MAX, LOCKS_MAX, Lock, LockFile, LockKind, Locks,
    Unlocked, normal_version,
};
pub use login::{FieldPath, InvalidFieldPath, LOGIN_FILE_BYTES_MAX};
pub use meant::{Denying, InvalidRule, Meant, Sense};
pub use package::{InvalidPackage, PackagePattern, Packages, Registry};
pub use pattern::{InvalidPath, PathPattern, Reading, Segment};
pub use publish::{InvalidPublishedPort, PUBLISHED_MAX, Published, PublishedPort};
pub use release::{Demand, Project, ReleaseFile, Unaged, age_variables, age_words, audit_variable};
pub use renewal::{
    KeptSaid, KeptToken, LoginTokens, PublishedSecret, Renewal, RenewalForm, RenewalRequest,
    RenewalSaid, Renewed,
};
pub use rules::{
    Destination, HostPattern, InvalidDestination, Look, Network, NetworkRule, Ports, Unreachable,
};
pub use ssh::{
    SIGNING_BYTES_MAX, SSH_AGENT, SSH_CONFIGURATION, SSH_DIRECTORY, SSH_GRANTS_MAX,
    SSH_KEY_BYTES_MAX, SSH_KEYS_MAX, Signed, Signer, Signing, SigningPurpose, SshAlgorithm,
    SshGrant, SshHash, SshKey, SshKeys,
};
pub use target::{InvalidTarget, TARGET_BYTES_MAX, Target, liberal};
pub use telling::place;
pub use this_host::{HOST_PORTS_MAX, SANDBOX_NAME, THIS_HOST, THIS_HOST_ADDRESSES};
pub use token::{
    AppRequest, ClientAuthentication, Ingredient, KubernetesRequest, OAuthRequest, Permission,
    TOKEN_PATIENCE_S, TokenGrant, TokenRequest,
};
pub use trust::{
    JAVA_VARIABLE, TRUST_AUTHORITY, TRUST_BUNDLE, TRUST_DIRECTORY, TRUST_JAVA,
    database_trust_variable, trust_variables,
};
pub use upstream::{InvalidProxy, Upstream, UpstreamProxy};
