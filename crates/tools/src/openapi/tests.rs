mod hostile;
mod requests;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Value, json};

use super::document::Document;
use super::document::parse;
use super::{HttpRequest, Operation, read};

const PETSTORE: &str = r##"
openapi: 3.0.3
info: { title: Pets, version: "1" }
servers:
  - url: /relative
  - url: https://{region}.pets.example:8443/{version}/
    variables: { region: { default: eu }, version: { default: v1, enum: [v1, v2] } }
paths:
  /pets/{petId}:
    parameters:
      - { name: petId, in: path, required: true, description: Its number., schema: { type: integer, format: int64 } }
      - { name: verbose, in: query, schema: { type: boolean } }
    get:
      operationId: getPet
      summary: Gets a pet
      description: Gets a pet by its number.
      responses: { 200: { description: A pet. } }
    put:
      operationId: putPet
      parameters:
        - { name: petId, in: path, required: true, schema: { type: string } }
      requestBody:
        required: true
        content: { application/json: { schema: { $ref: "#/components/schemas/Pet" } } }
      responses: {}
    options: { responses: {} }
  /pets:
    get:
      summary: Lists pets
      parameters:
        - { name: tags, in: query, schema: { type: array, items: { type: string } } }
        - { name: country, in: query, schema: { type: string, enum: [no, se] } }
      responses: {}
components:
  schemas:
    Pet:
      type: object
      required: [id, name, created, updated]
      properties:
        id: { type: integer, readOnly: true }
        created: { $ref: "#/components/schemas/Stamp" }
        updated: { $ref: "#/components/schemas/Kind", readOnly: true }
        name: { type: string, nullable: true, example: Rex, xml: { name: n } }
        parent: { $ref: "#/components/schemas/Pet" }
        weight: { type: number, minimum: 0, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false }
        kind: { nullable: true, allOf: [{ $ref: "#/components/schemas/Kind" }] }
      discriminator: { propertyName: kind }
    Kind: { type: string, enum: [cat, dog], deprecated: true }
    Stamp: { type: string, readOnly: true }
    Unused: { type: string }
"##;

/// Returns a document of one operation at a path, with members of its own.
fn document(path: &str, method: &str, operation: Value) -> Value {
    json!({
        "openapi": "3.1.0",
        "paths": { path: { method: operation } },
        "components": {
            "securitySchemes": {
                "key": { "type": "apiKey", "in": "header", "name": "X-Key" },
                "query": { "type": "apiKey", "in": "query", "name": "api_key" },
            },
            "schemas": {
                "A": { "type": "object", "properties": { "b": { "$ref": "#/components/schemas/B" } } },
                "B": { "anyOf": [{ "$ref": "#/components/schemas/A" }, { "type": "null" }] },
                "Self": { "$ref": "#/components/schemas/Self" },
            },
        },
    })
}

fn read_value(document: &Value) -> Document {
    read(&document.to_string()).unwrap()
}

fn with_parameters(path: &str, parameters: Value) -> Document {
    read_value(&document(path, "get", json!({ "parameters": parameters })))
}

fn only(document: Document) -> Operation {
    assert_eq!(document.skipped, []);
    document.operations.into_iter().next().unwrap()
}

fn compiled(operation: &Operation) -> Validator {
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    let options = options.with_pattern_options(PatternOptions::regex());
    options.build(&operation.arguments).unwrap()
}

fn request(operation: &Operation, arguments: Value) -> Result<HttpRequest, String> {
    assert!(compiled(operation).is_valid(&arguments), "{arguments}");
    operation.request("https://h.example/api", &arguments)
}

#[test]
fn petstore_becomes_tools_in_yaml_and_json() {
    let yaml = read(PETSTORE).unwrap();
    let of_json = read_value(&parse(PETSTORE).unwrap());
    assert_eq!(format!("{yaml:?}"), format!("{of_json:?}"));
    assert_eq!(
        yaml.server.as_deref(),
        Some("https://eu.pets.example:8443/v1")
    );
    let ids: Vec<&str> = yaml.operations.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["getPet", "putPet", "GET_pets"]);
    let why = "OPTIONS is not supported".to_owned();
    assert_eq!(yaml.skipped, [("OPTIONS /pets/{petId}".to_owned(), why)]);

    let [get, put, list] = &yaml.operations[..] else {
        panic!("{yaml:?}")
    };
    assert_eq!(get.title.as_deref(), Some("Gets a pet"));
    assert_eq!(get.description, "Gets a pet by its number.");
    assert_eq!(list.description, "Lists pets");
    assert_eq!(put.description, "PUT /pets/{petId}");
    assert_eq!(
        get.arguments,
        json!({
            "type": "object",
            "properties": {
                "petId": { "type": "integer", "format": "int64", "description": "Its number." },
                "verbose": { "type": "boolean" },
            },
            "required": ["petId"],
            "additionalProperties": false,
            "$defs": {},
        })
    );
    assert_eq!(
        put.arguments["$defs"],
        json!({
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": { "type": ["string", "null"] },
                    "parent": { "$ref": "#/$defs/Pet" },
                    "weight": { "type": "number", "exclusiveMinimum": 0, "maximum": 9 },
                    "kind": { "anyOf": [{ "allOf": [{ "$ref": "#/$defs/Kind" }] }, { "type": "null" }] },
                },
            },
            "Kind": { "type": "string", "enum": ["cat", "dog"] },
        })
    );
    assert_eq!(
        list.arguments["properties"]["country"]["enum"],
        json!(["no", "se"])
    );

    let schema = compiled(put);
    for (body, is_valid) in [
        (json!({ "name": null, "kind": null, "weight": 0.1 }), true),
        (
            json!({ "name": "a", "parent": { "name": "b", "kind": "cat" } }),
            true,
        ),
        (json!({ "name": "a", "parent": { "name": 1 } }), false),
        (json!({ "name": "a", "weight": 0 }), false),
        (json!({ "id": 1 }), false),
    ] {
        let arguments = json!({ "petId": "1", "body": body });
        assert_eq!(schema.is_valid(&arguments), is_valid, "{arguments}");
    }
    assert!(!schema.is_valid(&json!({ "petId": "1", "body": { "name": "a" }, "more": 1 })));
    assert!(!schema.is_valid(&json!({ "petId": "1" })));

    let made = request(
        put,
        json!({ "petId": "a b", "verbose": true, "body": { "name": "é" } }),
    );
    let made = made.unwrap();
    assert_eq!(made.method, "PUT");
    assert_eq!(made.url, "https://h.example/api/pets/a%20b?verbose=true");
    assert_eq!(
        made.headers,
        [("Content-Type".to_owned(), "application/json".to_owned())]
    );
    assert_eq!(made.body.as_deref(), Some(r#"{"name":"é"}"#));
}

#[test]
fn schemas_of_31_are_kept_as_they_are() {
    let operation = json!({
        "operationId": "a",
        "requestBody": { "description": "Its text.", "content": {
            "text/plain": { "schema": { "type": "string" } },
            "application/merge-patch+json; v=1": { "schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": "x", "x-a": 1,
                "type": ["object", "null"],
                "properties": {
                    "$ref": { "type": "string" },
                    "__proto__": { "const": { "readOnly": true, "$ref": 1 } },
                    "recursive": { "$ref": "#/components/schemas/A", "description": "Kept." },
                    "list": { "type": "array", "prefixItems": [true], "items": false },
                },
                "patternProperties": { "^x-": {} },
                "dependentRequired": { "list": ["recursive"] },
                "if": { "required": ["list"] }, "then": { "minProperties": 2 },
            } },
        } },
    });
    let made = only(read_value(&document("/a", "delete", operation)));
    let body = &made.arguments["properties"]["body"];
    assert_eq!(
        *body,
        json!({
            "type": ["object", "null"],
            "properties": {
                "$ref": { "type": "string" },
                "__proto__": { "const": { "readOnly": true, "$ref": 1 } },
                "recursive": { "$ref": "#/$defs/A", "description": "Kept." },
                "list": { "type": "array", "prefixItems": [true], "items": false },
            },
            "patternProperties": { "^x-": {} },
            "dependentRequired": { "list": ["recursive"] },
            "if": { "required": ["list"] }, "then": { "minProperties": 2 },
            "description": "Its text.",
        })
    );
    let definitions = made.arguments["$defs"].as_object().unwrap();
    assert_eq!(definitions.keys().collect::<Vec<_>>(), ["A", "B"]);
    let made = request(
        &made,
        json!({ "body": { "recursive": { "b": { "b": null } } } }),
    )
    .unwrap();
    assert_eq!(made.headers[0].1, "application/merge-patch+json; v=1");
    let none = request(&only(with_parameters("/a", json!([]))), json!({})).unwrap();
    assert_eq!((none.body, none.headers), (None, vec![]));
}

#[test]
fn credentials_and_framing_are_no_arguments() {
    let names = [
        "Accept",
        "content-type",
        "Authorization",
        "Cookie",
        "HOST",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Proxy-Authorization",
        "X-Forwarded-For",
        "Forwarded",
        "TE",
        "Trailer",
        "Upgrade",
        "x-key",
        "X-HTTP-Method-Override",
        "X-Original-URL",
        "X_Key",
        "content_length",
    ];
    let headers =
        names.map(|name| json!({ "name": name, "in": "header", "required": true, "schema": {} }));
    let mut all = headers.to_vec();
    all.push(json!({ "name": "API_key", "in": "query", "schema": {} }));
    all.push(json!({ "name": "api_key", "in": "header", "schema": {} }));
    all.push(json!({ "name": "X-Key", "in": "query", "schema": {} }));
    all.push(json!({ "name": "session", "in": "cookie", "schema": {} }));
    all.push(json!({ "name": "filter", "in": "query", "content": { "application/json": {} } }));
    all.push(json!({ "name": "unused", "in": "path", "required": true, "schema": {} }));
    all.push(json!({ "name": "__proto__", "in": "query", "schema": { "type": "string" } }));
    let operation = only(with_parameters("/a", json!(all)));
    let properties = operation.arguments["properties"].as_object().unwrap();
    assert_eq!(
        properties.keys().collect::<Vec<_>>(),
        ["api_key", "X-Key", "__proto__"]
    );
    let made = request(&operation, json!({ "__proto__": "x", "api_key": "y" })).unwrap();
    assert_eq!(made.url, "https://h.example/api/a?__proto__=x");
    assert_eq!(made.headers, [("api_key".to_owned(), "y".to_owned())]);
}

#[test]
fn names_in_two_places_get_the_place() {
    let one = |name: &str, place: &str| json!({ "name": name, "in": place, "schema": {}, "required": true });
    let all = json!([one("id", "path"), one("id", "query"), one("body", "query")]);
    let operation = json!({
        "parameters": all,
        "requestBody": { "content": { "application/json": {} } },
    });
    let operation = only(read_value(&document("/a/{id}", "post", operation)));
    let arguments = json!({ "id": 1, "id_query": 2, "body_query": 3, "body": [4] });
    let made = request(&operation, arguments).unwrap();
    assert_eq!(made.url, "https://h.example/api/a/1?id=2&body=3");
    assert_eq!(made.body.as_deref(), Some("[4]"));
    let all = json!([
        one("id_query", "query"),
        one("id", "header"),
        one("id", "query")
    ]);
    assert!(
        with_parameters("/a", all).skipped[0]
            .1
            .contains("another argument has its name")
    );
}

#[test]
fn ids_are_names_of_tools() {
    let long = "x".repeat(70);
    let cut = "x".repeat(48);
    let paths: serde_json::Map<String, Value> = [
        "repos/get",
        "repos get",
        "repos_get",
        "repos_get",
        &long,
        "é",
        "",
        "a.b-c_D",
    ]
    .iter()
    .enumerate()
    .map(|(at, id)| (format!("/{at}"), json!({ "get": { "operationId": id } })))
    .collect();
    let all = read_value(&json!({ "openapi": "3.0.0", "paths": paths }));
    let ids: Vec<&str> = all.operations.iter().map(|one| &*one.id).collect();
    assert_eq!(
        ids,
        [
            "repos_get_2",
            "repos_get_3",
            "repos_get",
            &cut,
            "_2",
            "_3",
            "a_b-c_D"
        ]
    );
    assert_eq!(all.skipped[0].0, "GET /3");
}
