//! Documents that are hostile, and operations that are no tools.

use serde_json::{Value, json};

use super::{compiled, document, only, read_value, request, with_parameters};
use crate::openapi::dialect::SCHEMA_BYTES_MAX;
use crate::openapi::read;

#[test]
fn unsupported_operations_are_skipped() {
    let parameter = |more: Value| {
        let mut one = json!({ "name": "p", "in": "query", "required": true, "schema": {} });
        let members = one.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        json!({ "parameters": [one] })
    };
    let body = |content: Value| json!({ "requestBody": { "required": true, "content": content } });
    let schema = |schema: Value| parameter(json!({ "schema": schema }));
    let huge = json!({ "enum": vec!["x".repeat(100); SCHEMA_BYTES_MAX / 100] });
    let wide = json!({ "allOf": vec![json!({}); SCHEMA_BYTES_MAX] });
    for (path, operation, why) in [
        ("/a", parameter(json!({ "in": "cookie" })), "cookie"),
        ("/a", parameter(json!({ "content": {} })), "content"),
        ("/a", parameter(json!({ "style": "matrix" })), "matrix"),
        (
            "/{p}",
            parameter(json!({ "in": "path", "style": "label" })),
            "label",
        ),
        (
            "/a",
            parameter(json!({ "in": "header", "name": "a b" })),
            "not a valid header name",
        ),
        (
            "/a",
            json!({ "parameters": [{ "name": "p", "in": "query" }] }),
            "`schema` is missing",
        ),
        (
            "/a",
            json!({ "parameters": [{ "in": "query" }] }),
            "lacks `name`",
        ),
        (
            "/a",
            json!({ "parameters": [{ "$ref": "#/nowhere" }] }),
            "leads nowhere",
        ),
        (
            "/a",
            schema(json!({ "$ref": "file:///etc/passwd" })),
            "out of the document",
        ),
        (
            "/a",
            schema(json!({ "$ref": "http://127.0.0.1/a#/b" })),
            "out of the document",
        ),
        (
            "/a",
            schema(json!({ "$ref": "other.yaml#/components" })),
            "out of the document",
        ),
        (
            "/a",
            schema(json!({ "$ref": "#anchor" })),
            "out of the document",
        ),
        (
            "/a",
            schema(json!({ "items": { "$ref": "#/components/schemas/C" } })),
            "leads nowhere",
        ),
        (
            "/a",
            json!({ "parameters": [{ "$ref": "#/components/schemas/Self" }] }),
            "a chain",
        ),
        (
            "/a",
            schema(json!({ "properties": { "a": { "$dynamicRef": "#x" } } })),
            "$dynamicRef",
        ),
        ("/a", schema(json!({ "$id": "http://h/" })), "$id"),
        ("/a", schema(json!([1])), "an object or a boolean"),
        ("/a", schema(huge), "longer than"),
        ("/a", schema(wide), "longer than"),
        (
            "/a",
            body(json!({ "text/plain": {} })),
            "neither JSON nor a form",
        ),
        (
            "/a",
            body(json!({ "application/json\r\nX: 1": {} })),
            "neither JSON nor a form",
        ),
        (
            "/a",
            body(json!({ "application/x-www-form-urlencoded": { "schema": {} } })),
            "neither",
        ),
        (
            "/a",
            json!({ "servers": [{ "url": "https://evil.example" }] }),
            "overrides `servers`",
        ),
        ("/a/{b}", json!({}), "no parameter describes {b}"),
        ("/a/{b", json!({}), "is not a valid path"),
        ("/a?b=c", json!({}), "is not a valid path"),
        ("/a#b", json!({}), "is not a valid path"),
        ("/a/../b", json!({}), "\"..\""),
        ("/a/%2e%2e/b", json!({}), "\"..\""),
        (
            "/a/%{p}",
            parameter(json!({ "in": "path" })),
            "is not a valid path",
        ),
    ] {
        let all = read_value(&document(path, "post", operation));
        assert_eq!(all.operations.len(), 0, "{why}");
        assert!(all.skipped[0].1.contains(why), "{why}: {:?}", all.skipped);
    }
    let body =
        json!({ "requestBody": { "required": true, "content": { "application/json": {} } } });
    let skipped = read_value(&document("/a", "get", body)).skipped;
    assert!(skipped[0].1.contains("its body"));
    let item = json!({ "openapi": "3.1.0", "paths": { "/a": { "$ref": "a.yaml" }, "x-a": { "get": {} } } });
    assert_eq!(read_value(&item).skipped.len(), 1);
}

#[test]
fn references_to_themselves_stay_finite() {
    let schema = json!({ "$ref": "#/components/schemas/Self" });
    let parameters = json!([{ "name": "p", "in": "query", "schema": schema }]);
    let operation = only(with_parameters("/a", parameters));
    let circle = json!({ "Self": { "$ref": "#/$defs/Self" } });
    assert_eq!(operation.arguments["$defs"], circle);
    request(&operation, json!({ "p": 1 })).unwrap();
    let escaped = json!({ "$ref": "#/paths/~1a%2F/get/parameters/0/schema" });
    let other = json!({ "$ref": "#/components/schemas/B/anyOf/0" });
    let one = |name: &str, schema: Value| json!({ "name": name, "in": "query", "schema": schema });
    let all = json!([one("p", json!({ "items": escaped })), one("q", other)]);
    let text = document("/a/", "get", json!({ "parameters": all })).to_string();
    let operation = only(read(&text.replace("~1a%2F", "~1a~1")).unwrap());
    let definitions = operation.arguments["$defs"].as_object().unwrap();
    assert_eq!(
        definitions.keys().collect::<Vec<_>>(),
        ["schema", "0", "A", "B"]
    );
    compiled(&operation);
}

#[test]
fn hostile_documents_are_refused() {
    let bomb = (1..12).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(),
        |text, at| {
            let of = vec![format!("*a{}", at - 1); 9].join(", ");
            format!("{text}a{at}: &a{at} [{of}]\n")
        },
    );
    let large = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(99)
    );
    let deep = |depth: usize| {
        format!(
            "openapi: 3.0.0\nx: {}{}",
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(read(&deep(47)).is_ok());
    let block: String = (0..2_000)
        .map(|at| format!("{}a:\n", " ".repeat(at)))
        .collect();
    let operation = json!({ "get": {}, "put": {}, "post": {} });
    let many: serde_json::Map<String, Value> = (0..700)
        .map(|at| (format!("/{at}"), operation.clone()))
        .collect();
    for (text, why) in [
        (String::new(), "`openapi` is missing"),
        ("[1]".to_owned(), "`openapi` is missing"),
        ("swagger: '2.0'".to_owned(), "`openapi` is missing"),
        ("openapi: 3.2.0".to_owned(), "3.2.0 is not supported"),
        ("openapi: 3.00".to_owned() + "1", "not supported"),
        ("openapi: 3.0.0\nopenapi: 3.0.1".to_owned(), "duplicate"),
        (
            r#"{"openapi": "3.0.0", "paths": {"/a": 1, "/a": 2}}"#.to_owned(),
            "duplicate",
        ),
        ("openapi: 3.0.0\n---\na: 1".to_owned(), "multiple"),
        (bomb, "alias replay limit"),
        (large, "budget"),
        (block, "budget"),
        ("[".repeat(100_000), "limit"),
        ("{\"a\":".repeat(100_000), "budget"),
        ("- ".repeat(100_000), "budget"),
        (deep(48), "budget"),
        ("a: &a [*a]".to_owned(), "recursive"),
        ("\0\u{1}".to_owned(), ""),
        ("x".repeat(17 << 20), "longer than"),
        (
            json!({ "openapi": "3.0.0", "paths": many }).to_string(),
            "more than 2000",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    let scheme =
        r##"{"openapi": "3.0.0", "components": {"securitySchemes": {"a": {"$ref": "b.yaml"}}}}"##;
    assert!(read(scheme).unwrap_err().contains("security scheme"));
    assert!(read("openapi: 3.1").unwrap().operations.is_empty());
}

#[test]
fn schemas_of_all_operations_are_bounded() {
    let schema = json!({ "enum": vec!["x".repeat(100); 500] });
    let reference =
        json!({ "name": "p", "in": "query", "schema": { "$ref": "#/components/schemas/A" } });
    let paths: serde_json::Map<String, Value> = (0..1_000)
        .map(|at| {
            (
                format!("/{at}"),
                json!({ "get": { "parameters": [reference] } }),
            )
        })
        .collect();
    let components = json!({ "schemas": { "A": schema } });
    let all = read_value(&json!({ "openapi": "3.1.0", "paths": paths, "components": components }));
    let bytes: usize = all
        .operations
        .iter()
        .map(|one| one.arguments.to_string().len())
        .sum();
    assert!(bytes <= 16 << 20, "{bytes}");
    assert!(all.operations.len() > 300);
    assert!(all.skipped[0].1.contains("all operations together"));
}

#[test]
fn repeated_parts_are_bounded() {
    let text = "x".repeat(256 << 10);
    let long = |at: usize| (format!("{at:01000}"), json!({}));
    let encoding: serde_json::Map<String, Value> = (0..100).map(long).collect();
    let parameter = |at: usize| json!({ "name": format!("{at}"), "in": "query", "schema": {} });
    let many: Vec<Value> = (0..1_000).map(parameter).collect();
    for (item, why) in [
        (
            json!({ "get": { "description": text } }),
            "all operations together",
        ),
        (
            json!({ "get": { "parameters": many } }),
            "more than 200 parameters",
        ),
        (
            json!({ "get": { "operationId": text }, "put": 1 }),
            "another operation",
        ),
        (
            json!({ "get": { "parameters": [{ "$ref": text }] } }),
            "$ref",
        ),
        (
            json!({ "post": { "requestBody": { "content": { "application/x-www-form-urlencoded": {
                "schema": { "type": "object" }, "encoding": encoding,
            } } } } }),
            "longer than",
        ),
    ] {
        let paths: serde_json::Map<String, Value> = (0..500)
            .map(|at| (format!("/{at}"), json!({ "$ref": "#/x" })))
            .collect();
        let all = read_value(&json!({ "openapi": "3.1.0", "x": item, "paths": paths }));
        assert!(all.skipped.iter().any(|one| one.1.contains(why)), "{why}");
        assert!(all.skipped.iter().all(|one| one.1.len() <= 300));
        let texts = all.operations.iter().map(|one| one.description.len());
        assert!(texts.sum::<usize>() <= 16 << 20);
    }
    let scheme = json!({ "type": "apiKey", "in": "header", "name": "a" });
    let schemes: serde_json::Map<String, Value> = (0..201)
        .map(|at| (format!("{at}"), scheme.clone()))
        .collect();
    let components = json!({ "securitySchemes": schemes });
    let error = read(&json!({ "openapi": "3.1.0", "components": components }).to_string());
    assert!(
        error
            .unwrap_err()
            .contains("more than 200 security schemes")
    );
}
