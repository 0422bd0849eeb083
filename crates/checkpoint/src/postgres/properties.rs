//! The properties of a database that are no part of its content, and that no copy carries.

use serde::{Deserialize, Serialize};

use super::client::{Client, identifier, literal};
use crate::Error;

/// Settings whose values are lists of quoted names: they are written as they are.
const LISTS: [&str; 6] = [
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Properties {
    pub owner: String,
    pub encoding: String,
    pub collate: String,
    pub ctype: String,
    connection_limit: i64,
    comment: Option<String>,
    /// `None` for the rights that every new database has.
    grants: Option<Vec<Grant>>,
    settings: Vec<Setting>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Grant {
    /// The role; `None` for all.
    role: Option<String>,
    right: String,
    can_grant: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Setting {
    /// The role; `None` for all.
    role: Option<String>,
    /// `name=value`.
    text: String,
}

impl Properties {
    pub fn read(client: &Client<'_>, name: &str) -> Result<Self, Error> {
        let sql = format!(
            "SELECT json_build_object(
                'owner', pg_get_userbyid(datdba), 'encoding', pg_encoding_to_char(encoding),
                'collate', datcollate, 'ctype', datctype, 'connection_limit', datconnlimit,
                'comment', shobj_description(d.oid, 'pg_database'),
                'grants', CASE WHEN datacl IS NOT NULL THEN (SELECT coalesce(json_agg(
                    json_build_object('role', r.rolname, 'right', a.privilege_type,
                    'can_grant', a.is_grantable) ORDER BY r.rolname, a.privilege_type), '[]')
                    FROM aclexplode(datacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee) END,
                'settings', (SELECT coalesce(json_agg(json_build_object('role', r.rolname,
                    'text', s.text) ORDER BY r.rolname, s.text), '[]')
                    FROM pg_db_role_setting g CROSS JOIN unnest(g.setconfig) s(text)
                    LEFT JOIN pg_roles r ON r.oid = g.setrole WHERE g.setdatabase = d.oid))
            FROM pg_database d WHERE datname = {}",
            literal(name)
        );
        let text = client.ask(&sql)?;
        let fault = |error: serde_json::Error| crate::program::failure("psql", &error.to_string());
        serde_json::from_str(&text).map_err(fault)
    }

    /// Gives them to a database that has none yet but its owner.
    pub fn apply(&self, client: &Client<'_>, name: &str) -> Result<(), Error> {
        let database = identifier(name);
        let mut sql = Vec::new();
        if self.connection_limit != -1 {
            let limit = self.connection_limit;
            sql.push(format!(
                "ALTER DATABASE {database} CONNECTION LIMIT {limit}"
            ));
        }
        if let Some(comment) = &self.comment {
            sql.push(format!(
                "COMMENT ON DATABASE {database} IS {}",
                literal(comment)
            ));
        }
        if let Some(grants) = &self.grants {
            let owner = identifier(&self.owner);
            sql.push(format!(
                "REVOKE ALL ON DATABASE {database} FROM PUBLIC, {owner}"
            ));
            sql.extend(grants.iter().map(|grant| {
                let role = grant
                    .role
                    .as_deref()
                    .map_or("PUBLIC".to_owned(), identifier);
                let end = if grant.can_grant {
                    " WITH GRANT OPTION"
                } else {
                    ""
                };
                format!(
                    "GRANT {} ON DATABASE {database} TO {role}{end}",
                    grant.right
                )
            }));
        }
        for setting in &self.settings {
            let (key, value) = setting.text.split_once('=').unwrap_or((&setting.text, ""));
            let value = match LISTS.contains(&key) && !value.is_empty() {
                true => value.to_owned(),
                false => literal(value),
            };
            let subject = match &setting.role {
                Some(role) => format!("ROLE {} IN DATABASE {database}", identifier(role)),
                None => format!("DATABASE {database}"),
            };
            let key: Vec<String> = key.split('.').map(identifier).collect();
            sql.push(format!("ALTER {subject} SET {} TO {value}", key.join(".")));
        }
        match sql.is_empty() {
            true => Ok(()),
            false => client.run(&sql.join("; ")),
        }
    }

    pub fn text(&self) -> String {
        format!("{self:?}")
    }
}
