//! The facts about a call of a tool.

use std::collections::{HashMap, HashSet};

use atoll_model::{Argument, ArgumentValue, CallTool};
use cedar_policy::{Entity, EntityUid, RestrictedExpression};

use super::members::{text, truth};
use super::{Kind, Needs, TEXT_BYTES_MAX, Vocabulary, id};

/// The most arguments that policies are asked about, and members of lists among them.
const ARGUMENTS_MAX: usize = 1_024;

/// Each entity that holds arguments, by the context's name for it.
const HOLDERS: [(&str, Kind); 4] = [
    ("text", Kind::Texts),
    ("number", Kind::Numbers),
    ("flag", Kind::Flags),
    ("list", Kind::Lists),
];

fn holder(words: &Vocabulary, kind: Kind) -> Result<EntityUid, String> {
    id(words, kind, "arguments")
}

/// Returns the entities that hold the arguments of a call, by their types.
pub(super) fn arguments(words: &Vocabulary, call: &CallTool) -> Result<Vec<Entity>, String> {
    let mut count = 0;
    let mut tags: [HashMap<String, RestrictedExpression>; 4] = Default::default();
    for Argument { path, value } in &call.arguments {
        let (kind, value, values) = match value {
            ArgumentValue::Text(text) => (Kind::Texts, string(text)?, 1),
            ArgumentValue::Number(number) => {
                (Kind::Numbers, RestrictedExpression::new_long(*number), 1)
            }
            ArgumentValue::Flag(flag) => (Kind::Flags, RestrictedExpression::new_bool(*flag), 1),
            ArgumentValue::List(list) => {
                let all = list.iter().map(|one| string(one));
                let all = all.collect::<Result<Vec<_>, String>>()?;
                (Kind::Lists, RestrictedExpression::new_set(all), list.len())
            }
        };
        count += values;
        if count > ARGUMENTS_MAX {
            return Err(format!("it has more than {ARGUMENTS_MAX} arguments"));
        }
        let at = HOLDERS.iter().position(|(_, one)| *one == kind);
        if let Some(tags) = at.and_then(|at| tags.get_mut(at)) {
            tags.insert(path.clone(), value);
        }
    }
    let entities = HOLDERS.iter().zip(tags).map(|((_, kind), tags)| {
        let uid = holder(words, *kind)?;
        let made = Entity::new_with_tags(uid, HashMap::new(), HashSet::new(), tags);
        made.map_err(|error| error.to_string())
    });
    entities.collect()
}

fn string(text: &str) -> Result<RestrictedExpression, String> {
    match text.len() > TEXT_BYTES_MAX {
        true => Err(format!("an argument is longer than {TEXT_BYTES_MAX} bytes")),
        false => Ok(RestrictedExpression::new_string(text.to_owned())),
    }
}

/// Adds the members of the context.
pub(super) fn members(
    words: &Vocabulary,
    call: &CallTool,
    needs: Needs,
    to: &mut Vec<(String, RestrictedExpression)>,
) -> Result<(), String> {
    to.push(text("kind", call.kind.name()));
    to.push(text("effect", call.effect.name()));
    to.push(truth("idempotent", call.idempotent));
    to.push(text("undo", call.undo.name()));
    if needs.arguments {
        let members = HOLDERS.iter().map(|(name, kind)| {
            let uid = holder(words, *kind)?;
            Ok((
                (*name).to_owned(),
                RestrictedExpression::new_entity_uid(uid),
            ))
        });
        let members = members.collect::<Result<Vec<_>, String>>()?;
        let record = RestrictedExpression::new_record(members);
        let record = record.map_err(|error| error.to_string())?;
        to.push(("arguments".to_owned(), record));
    }
    Ok(())
}
