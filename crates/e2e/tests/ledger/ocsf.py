"""Checks events on standard input, one JSON object a line, against the OCSF schema.

ocsf.py WHEEL VERSION

WHEEL is that of the package ocsf-json-schema, which holds the schema as its makers publish it.
"""

import json
import sys
import zipfile

wheel, version = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    schema = json.loads(archive.read(f"ocsf_json_schema/ocsf/{version}.json"))
CLASSES = {one["uid"]: one for one in schema["classes"].values()}
NUMBERS = {"integer_t", "long_t", "port_t", "timestamp_t"}


def check(value, attributes, constraints, profiles, where):
    for name, attribute in attributes.items():
        wanted = attribute.get("requirement") == "required"
        of_profile = attribute.get("profile")
        if wanted and (of_profile is None or of_profile in profiles):
            assert name in value, f"{where}: {name} is missing"
    for name, one in value.items():
        assert name in attributes, f"{where}: {name} is unknown"
        attribute = attributes[name]
        of_profile = attribute.get("profile")
        assert of_profile is None or of_profile in profiles, f"{where}: {name} is of {of_profile}"
        items = one if attribute.get("is_array") else [one]
        assert isinstance(items, list), f"{where}: {name} is no list"
        for item in items:
            check_one(item, attribute, profiles, f"{where}.{name}")
    for kind, names in (constraints or {}).items():
        count = sum(name in value for name in names)
        fits = count == 1 if kind == "just_one" else count >= 1
        assert fits, f"{where}: {kind} of {names}"


def check_one(value, attribute, profiles, where):
    kind = attribute["type"]
    if kind == "object_t":
        assert isinstance(value, dict), f"{where}: no object"
        if attribute["object_type"] != "object":
            one = schema["objects"][attribute["object_type"]]
            check(value, one["attributes"], one.get("constraints"), profiles, where)
    elif kind == "json_t":
        pass
    elif kind in NUMBERS:
        assert isinstance(value, int) and not isinstance(value, bool), f"{where}: no number"
    elif kind == "boolean_t":
        assert isinstance(value, bool), f"{where}: neither true nor false"
    elif kind != "float_t":
        assert isinstance(value, str), f"{where}: no text"
    if "enum" in attribute:
        assert str(value) in attribute["enum"], f"{where}: {value} is no word of it"


count = 0
for line in sys.stdin:
    event = json.loads(line)
    one = CLASSES.get(event["class_uid"]) or schema["base_event"]
    profiles = set(event["metadata"].get("profiles", []))
    where = f"{event['metadata']['event_code']} as {one['name']}"
    check(event, one["attributes"], one.get("constraints"), profiles, where)
    type_uid = event["class_uid"] * 100 + event["activity_id"]
    assert event["type_uid"] == type_uid, f"{where}: type_uid"
    count += 1
print(count, "events")
