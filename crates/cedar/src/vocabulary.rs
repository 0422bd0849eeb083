//! The names of the schema, read once.

use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema};

use crate::{Action, SCHEMA};

/// An entity type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Person,
    Session,
    Program,
    Path,
    Host,
    Credential,
    Port,
    Run,
    Tool,
    Texts,
    Numbers,
    Flags,
    Lists,
}

const KINDS: [(Kind, &str); 13] = [
    (Kind::Person, "Person"),
    (Kind::Session, "Session"),
    (Kind::Program, "Program"),
    (Kind::Path, "Path"),
    (Kind::Host, "Host"),
    (Kind::Credential, "Credential"),
    (Kind::Port, "Port"),
    (Kind::Run, "Run"),
    (Kind::Tool, "Tool"),
    (Kind::Texts, "Texts"),
    (Kind::Numbers, "Numbers"),
    (Kind::Flags, "Flags"),
    (Kind::Lists, "Lists"),
];

/// The schema and its names, in the form in which they are compared; parsing them would otherwise
/// dominate the time of a question.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) schema: Schema,
    kinds: Vec<EntityTypeName>,
    actions: Vec<EntityUid>,
}

impl Vocabulary {
    /// # Errors
    /// When the schema that ships is invalid; a test ensures that it is not.
    pub(crate) fn read() -> Result<Arc<Self>, String> {
        static READ: OnceLock<Result<Arc<Vocabulary>, String>> = OnceLock::new();
        READ.get_or_init(|| Self::new().map(Arc::new)).clone()
    }

    fn new() -> Result<Self, String> {
        let schema = Schema::from_cedarschema_str(SCHEMA).map_err(|error| error.to_string())?;
        let kind = |name: &str| EntityTypeName::from_str(name).map_err(|error| error.to_string());
        let action = kind("Action")?;
        let kinds = KINDS.iter().map(|(_, name)| kind(name));
        let id = |one: Action| {
            EntityUid::from_type_name_and_id(action.clone(), EntityId::new(one.name()))
        };
        Ok(Self {
            schema: schema.0,
            kinds: kinds.collect::<Result<_, _>>()?,
            actions: Action::ALL.into_iter().map(id).collect(),
        })
    }

    pub(crate) fn id(&self, kind: Kind, id: &str) -> Option<EntityUid> {
        let kind = self.kinds.get(kind as usize)?;
        let id = EntityId::new(id);
        Some(EntityUid::from_type_name_and_id(kind.clone(), id))
    }

    pub(crate) fn action(&self, action: Action) -> Option<&EntityUid> {
        self.actions.get(action.number())
    }
}
