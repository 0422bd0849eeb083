"""Uses keys with each scope for each request.

Reads URL and KEY (an administrator's) from the environment. Prints `ok NAME` or `failed NAME: why`
for each check, and exits 1 if one failed.
"""

import http.client
import json
import os
import sys
import traceback
from urllib.parse import urlsplit

AT = urlsplit(os.environ["URL"])
KEY = os.environ["KEY"]
SCOPES = ["read", "create", "exec", "files", "ports"]


def ask(method, path, body=None, key=KEY, **headers):
    """Returns the status and the body of an answer."""
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        named["X-API-Key"] = key
    text = json.dumps(body) if isinstance(body, (dict, list)) else body
    connection.request(method, path, text, named)
    answer = connection.getresponse()
    text = answer.read()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def key_with(*scopes, role="administrator"):
    body = {"name": "scoped", "role": role, "scopes": list(scopes)}
    status, told = ask("POST", "/v1/keys", body)
    assert status == 201 and told["facts"]["scopes"] == sorted(scopes, key=SCOPES.index), told
    return told["key"]


def requests(sandbox, run):
    """Returns requests, each with the scopes one of which it takes."""
    of = f"/v1/sandboxes/{sandbox}"
    return [
        ("GET", "/v1/sandboxes", None, ["read"]),
        ("GET", "/v2/sandboxes", None, ["read"]),
        ("GET", of, None, ["read"]),
        ("GET", of + "/metrics", None, ["read"]),
        ("GET", "/v1/events", None, ["read"]),
        ("GET", f"/v1/runs/{run}/events", None, ["read"]),
        ("GET", "/v1/ledger/events", None, ["read"]),
        ("GET", "/v1/ledger/checkpoint", None, ["read"]),
        ("GET", "/v1/approvals", None, ["read"]),
        ("GET", of + "/processes", None, ["read", "exec"]),
        ("POST", of + "/timeout", {"timeout_s": 100}, ["create"]),
        ("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 100}, ["create"]),
        ("PUT", f"/sandboxes/{sandbox}/network", {"allow_internet_access": False}, ["create"]),
        ("POST", of + "/ports/8000/link", {}, ["create", "ports"]),
        ("POST", of + "/run", {"command": ["true"]}, ["exec"]),
        ("POST", of + "/processes/4000000/signal", {"number": 9}, ["exec"]),
        ("GET", of + "/files?path=/home/user", None, ["files"]),
        ("PUT", of + "/files/content?path=a", "content", ["files"]),
        ("GET", of + "/files/content?path=a", None, ["files"]),
        ("DELETE", of + "/files?path=a", None, ["files"]),
        ("GET", "/v1/keys", None, []),
        ("POST", "/v1/keys", {"name": "more"}, []),
        ("POST", of + "/approvals/1", {"digest": "0", "grant": True}, []),
    ]


def each_scope_is_good_for_its_requests_alone():
    status, created = ask("POST", "/v1/sandboxes", {})
    assert status == 201, created
    sandbox = created["sandbox"]
    keys = {scope: key_with(scope) for scope in SCOPES}
    for method, path, body, takes in requests(sandbox["id"], sandbox["run"]):
        for scope, key in keys.items():
            status, told = ask(method, path, body, key)
            is_refused = status == 403 and "scope" in json.dumps(told)
            assert is_refused == (scope not in takes), (scope, method, path, status, told)
        # The control: whatever comes of it, no scope is in the way of a key without them.
        status, told = ask(method, path, body)
        assert status != 401 and not (status == 403 and "scope" in json.dumps(told)), (path, told)
    assert ask("DELETE", f"/v1/sandboxes/{sandbox['id']}", None, keys["read"])[0] == 403
    assert ask("DELETE", f"/v1/sandboxes/{sandbox['id']}", None, keys["create"])[0] == 200


def what_a_scope_refuses_says_nothing_about_what_is_there():
    key = key_with("files")
    status, created = ask("POST", "/v1/sandboxes", {})
    there = ask("GET", f"/v1/sandboxes/{created['sandbox']['id']}", None, key)
    missing = ask("GET", "/v1/sandboxes/i00000000000000000000", None, key)
    assert there[0] == missing[0] == 403, (there, missing)
    assert there[1]["detail"] == missing[1]["detail"], (there, missing)
    ask("DELETE", f"/v1/sandboxes/{created['sandbox']['id']}")


def access_tokens_go_to_who_may_use_them():
    for scopes, has_token, has_port_token in [
        (["create"], False, False), (["create", "exec"], False, False),
        (["create", "files"], False, False), (["create", "exec", "files"], True, False),
        (["create", "ports"], False, True), (SCOPES, True, True),
    ]:
        key = key_with(*scopes)
        status, created = ask("POST", "/v1/sandboxes", {"private_ports": True}, key)
        assert status == 201, created
        sandbox = created["sandbox"]["id"]
        assert bool(created["token"]) == has_token, (scopes, created)
        assert bool(created["port_token"]) == has_port_token, (scopes, created)
        status, connected = ask("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 100}, key)
        assert status == 200, connected
        assert bool(connected["envdAccessToken"]) == has_token, (scopes, connected)
        assert bool(connected["trafficAccessToken"]) == has_port_token, (scopes, connected)
        # An empty one opens nothing.
        status, told = ask(
            "POST", "/filesystem.Filesystem/Stat", {"path": "/"}, None,
            E2b_Sandbox_Id=sandbox, X_Access_Token="", Content_Type="application/json",
        )
        assert status == 401, (status, told)
        ask("DELETE", f"/v1/sandboxes/{sandbox}")


def an_answer_that_is_given_again_is_for_who_asks():
    create = lambda key: ask("POST", "/v1/sandboxes", {}, key, Idempotency_Key="the same")
    status, whole = create(KEY)
    assert status == 201 and whole["token"], whole
    status, again = create(key_with("create"))
    assert status == 201 and again["sandbox"]["id"] == whole["sandbox"]["id"], again
    assert again["token"] == "", again
    assert create(KEY)[1]["token"] == whole["token"]
    ask("DELETE", f"/v1/sandboxes/{whole['sandbox']['id']}")


def values_of_variables_go_to_who_runs_programs():
    status, created = ask("POST", "/v1/sandboxes", {})
    of = f"/v1/sandboxes/{created['sandbox']['id']}"
    program = {"command": ["sleep", "1000"], "environment": {"NAME": "value"}}
    assert ask("POST", of + "/processes", program)[0] == 201
    for key, value in [
        (KEY, "value"), (key_with("exec", role="user"), "value"), (key_with("read"), ""),
        (key_with("read", "exec", role="operator"), ""),
    ]:
        status, told = ask("GET", of + "/processes", None, key)
        assert status == 200 and told[0]["started"]["environment"]["NAME"] == value, told
    way = {"E2b_Sandbox_Id": created["sandbox"]["id"], "Content_Type": "application/json"}
    status, told = ask("POST", "/process.Process/List", {}, None, X_Access_Token=created["token"], **way)
    assert status == 200 and told["processes"][0]["config"]["envs"]["NAME"] == "value", told
    ask("DELETE", of)


def scopes_widen_no_role():
    key = key_with(*SCOPES, role="auditor")
    assert ask("POST", "/v1/sandboxes", {}, key)[0] == 403
    assert ask("GET", "/v1/ledger/events", None, key)[0] == 200


def scopes_that_are_none_are_refused():
    for scopes in [["all"], ["read", "Exec"], [], ["atoll:read"]]:
        status, told = ask("POST", "/v1/keys", {"name": "x", "scopes": scopes})
        assert status == 400 and "create" in json.dumps(told), (scopes, told)
    assert ask("POST", "/v1/keys", {"name": "x", "scopes": "read"})[0] == 400
    status, told = ask("POST", "/v1/keys", {"name": "x"})
    assert status == 201 and told["facts"]["scopes"] is None, told
    # A name that looks like that of a caller with a token.
    status, told = ask("POST", "/v1/keys", {"name": "ana via https://login.example.com"})
    assert status == 400, told


CHECKS = [
    each_scope_is_good_for_its_requests_alone,
    what_a_scope_refuses_says_nothing_about_what_is_there, access_tokens_go_to_who_may_use_them,
    an_answer_that_is_given_again_is_for_who_asks, values_of_variables_go_to_who_runs_programs,
    scopes_widen_no_role,
    scopes_that_are_none_are_refused,
]


def main():
    failed = False
    for check in CHECKS:
        try:
            check()
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}"[:600], flush=True)
    sys.exit(failed)


main()
