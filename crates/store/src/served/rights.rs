//! The rights of callers: their role, and the scopes of their credential within it.

use std::collections::BTreeSet;

/// The text before the issuer in the name of a caller with a token of an issuer: `ana@example.com
/// via https://login.example.com`. No key has a name with it.
pub const ISSUER_MARK: &str = " via ";

/// The rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything, in every tenant: keys, tenants, all sandboxes.
    Administrator,
    /// Look at and end every sandbox.
    Operator,
    /// Answer approval requests.
    Approver,
    /// Read the ledger.
    Auditor,
    /// Make and use sandboxes of the own tenant.
    User,
}

impl Role {
    /// All roles, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::Administrator,
        Self::Operator,
        Self::Approver,
        Self::Auditor,
        Self::User,
    ];

    /// Returns the name as written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::User => "user",
        }
    }

    /// Returns the role of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A part of what a role may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Look at sandboxes, their events, and the ledger.
    Read,
    /// Make sandboxes, connect to them, change and end them.
    Create,
    /// Run programs in sandboxes.
    Exec,
    /// Read and write files of sandboxes.
    Files,
    /// Reach ports of sandboxes.
    Ports,
}

impl Scope {
    /// All scopes, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Create,
        Self::Exec,
        Self::Files,
        Self::Ports,
    ];

    /// Returns the name as written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Ports => "ports",
        }
    }

    /// Returns the scope of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// The scopes of a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scopes {
    /// Everything that the role may.
    #[default]
    All,
    /// These alone; none is nothing at all.
    Only(BTreeSet<Scope>),
}

impl Scopes {
    /// Reads the names of scopes. One that is not known grants nothing.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Only(names.into_iter().filter_map(Scope::parse).collect())
    }

    /// Returns whether one of them is this one.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        match self {
            Self::All => true,
            Self::Only(scopes) => scopes.contains(&scope),
        }
    }

    /// Returns their names; `None` for everything.
    #[must_use]
    pub fn names(&self) -> Option<Vec<&'static str>> {
        match self {
            Self::All => None,
            Self::Only(scopes) => Some(scopes.iter().map(|scope| scope.name()).collect()),
        }
    }

    /// Returns them as a file has them.
    pub(super) fn text(&self) -> Option<String> {
        self.names().map(|names| names.join(" "))
    }

    /// Reads them as a file has them.
    pub(super) fn parse(text: Option<&str>) -> Self {
        text.map_or(Self::All, |text| Self::of(text.split(' ')))
    }
}
