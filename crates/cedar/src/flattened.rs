//! The arguments of a tool's call, as policies see them.

use atoll_model::{Argument, ArgumentValue};
use serde_json::Value;

/// Returns each scalar and list of the arguments, by the names that lead to it with `.` between. A
/// list has its scalars; where it has other members too, each is there by its index. A `null` is not
/// there.
///
/// # Errors
/// When they are no object.
pub fn flattened(arguments: &Value) -> Result<Vec<Argument>, String> {
    let Value::Object(members) = arguments else {
        return Err("the arguments of a tool are a JSON object".to_owned());
    };
    let mut all = Vec::new();
    for (name, value) in members {
        add(&escaped(name), value, &mut all);
    }
    Ok(all)
}

fn add(path: &str, value: &Value, to: &mut Vec<Argument>) {
    let value = match value {
        Value::Null => return,
        Value::Bool(flag) => ArgumentValue::Flag(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => ArgumentValue::Number(number),
            None => ArgumentValue::Text(number.to_string()),
        },
        Value::String(text) => ArgumentValue::Text(text.clone()),
        Value::Array(members) => {
            let list: Vec<String> = members.iter().filter_map(scalar).collect();
            if list.len() < members.len() {
                for (at, member) in members.iter().enumerate() {
                    add(&format!("{path}.{at}"), member, to);
                }
            }
            ArgumentValue::List(list)
        }
        Value::Object(members) => {
            for (name, member) in members {
                add(&format!("{path}.{}", escaped(name)), member, to);
            }
            return;
        }
    };
    to.push(Argument {
        path: path.to_owned(),
        value,
    });
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Escapes a name, so that no other names lead to the same path.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('.', "\\.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_scalar_has_a_path_of_its_own() {
        let all = flattened(&json!({
            "path": "a", "count": 3, "ratio": 1.5, "deep": { "er": true, "none": null },
            "list": ["x", 2], "mixed": [{ "a.b": "c" }, [1], "s"], "a.b": "d", "a": { "b": "e" },
        }));
        let all: Vec<String> = all
            .unwrap()
            .iter()
            .map(|one| format!("{} {:?}", one.path, one.value))
            .collect();
        let expected = [
            "path Text(\"a\")",
            "count Number(3)",
            "ratio Text(\"1.5\")",
            "deep.er Flag(true)",
            "list List([\"x\", \"2\"])",
            "mixed.0.a\\.b Text(\"c\")",
            "mixed.1 List([\"1\"])",
            "mixed.2 Text(\"s\")",
            "mixed List([\"s\"])",
            "a\\.b Text(\"d\")",
            "a.b Text(\"e\")",
        ];
        assert_eq!(all, expected);
        assert!(flattened(&json!([1])).is_err());
    }
}
