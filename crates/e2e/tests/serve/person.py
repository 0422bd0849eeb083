"""Calls a server with tokens of an OpenID provider (provider.mjs).

Reads URL, KEY (an administrator's, of the tenant team-a) and ISSUER from the environment. Prints
`ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import sys
import traceback
import urllib.parse
import urllib.request
from urllib.parse import urlsplit

AT = urlsplit(os.environ["URL"])
KEY, ISSUER = os.environ["KEY"], os.environ["ISSUER"]


def token(of, audience="atoll", scope=""):
    form = {
        "grant_type": "client_credentials", "client_id": of, "client_secret": f"secret of {of}",
        "resource": f"urn:{audience}", "scope": scope,
    }
    body = urllib.parse.urlencode({name: value for name, value in form.items() if value}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{ISSUER}/token", body, timeout=30) as answer:
        return json.loads(answer.read())["access_token"]


def ask(method, path, credential, body=None, header="Authorization"):
    """Returns the status and the body of an answer."""
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    value = f"Bearer {credential}" if header == "Authorization" else credential
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {header: value})
    answer = connection.getresponse()
    text = answer.read()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def made(credential):
    status, created = ask("POST", "/v1/sandboxes", credential, {})
    assert status == 201, created
    assert created["token"], created
    return created["sandbox"]


def refused(credential, status, *words):
    for header in ["Authorization", "X-API-Key"]:
        found, told = ask("GET", "/v1/sandboxes", credential, header=header)
        assert found == status, (found, told)
        for word in words:
            assert word in json.dumps(told, ensure_ascii=False), (word, told)


def parts(token):
    decoded = [base64.urlsafe_b64decode(part + "==") for part in token.split(".")]
    return json.loads(decoded[0]), json.loads(decoded[1]), decoded[2]


def encoded(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def a_token_makes_a_sandbox_and_runs_programs():
    ana = token("ana")
    sandbox = made(ana)
    path = f"/v1/sandboxes/{sandbox['id']}"
    status, ran = ask("POST", path + "/run", ana, {"command": ["echo", "hello"]}, "X-API-Key")
    assert status == 200 and "hello" in json.dumps(ran), ran
    # E2B's API too.
    status, listed = ask("GET", "/v2/sandboxes", ana, header="X-API-Key")
    assert status == 200 and [one["sandboxID"] for one in listed] == [sandbox["id"]], listed
    status, told = ask("GET", f"/v1/runs/{sandbox['run']}/events", ana)
    assert status == 200 and f"ana via {ISSUER}" in json.dumps(told), told
    assert ask("DELETE", path, ana)[0] == 200


def each_callers_tenant_is_the_one_of_their_token():
    ana, ben = token("ana"), token("ben")
    path = f"/v1/sandboxes/{made(ana)['id']}"
    assert ask("GET", path, ben)[0] == 404
    assert ask("GET", path, KEY)[0] == 200
    assert ask("DELETE", path, ana)[0] == 200
    refused(token("lost"), 403, "org", "tenant")


def roles_come_from_groups():
    refused(token("guest"), 403, "groups", "role")
    assert ask("GET", "/v1/keys", token("ana"))[0] == 403
    status, keys = ask("GET", "/v1/keys", token("admin"))
    assert status == 200 and {key["tenant"] for key in keys} == {"team-a"}, keys


def scopes_narrow():
    reads = token("ana", scope="atoll:read")
    assert ask("GET", "/v1/sandboxes", reads)[0] == 200
    status, told = ask("POST", "/v1/sandboxes", reads, {})
    assert status == 403 and "create" in json.dumps(told), told


def tokens_for_somebody_else_are_refused():
    refused(token("ana", audience="other"), 401, "atoll", "aud")


def forged_tokens_are_refused():
    good = token("ana")
    header, claims, signature = parts(good)
    other = {**claims, "org": "team-b", "groups": ["atoll-admins"]}
    refused(f"{encoded(header)}.{encoded(other)}.{encoded(signature)}", 401, "signature")
    refused(f"{encoded({'alg': 'none'})}.{encoded(claims)}.", 401)
    refused(f"{encoded({**header, 'crit': ['exp']})}.{encoded(claims)}.{encoded(signature)}", 401, "crit")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    keys = opener.open(f"{ISSUER}/jwks", timeout=30).read()
    message = f"{encoded({'alg': 'HS256', 'kid': header['kid']})}.{encoded(claims)}"
    tag = hmac.new(keys, message.encode(), hashlib.sha256).digest()
    refused(f"{message}.{encoded(tag)}", 401, "HS256")
    elsewhere = {**claims, "iss": "https://evil.example"}
    refused(f"{encoded(header)}.{encoded(elsewhere)}.{encoded(signature)}", 401, "evil.example")
    refused("a.b.c", 401)
    refused("x" * 20_000 + ".b.c", 401)
    # The control.
    assert ask("GET", "/v1/sandboxes", good)[0] == 200


CHECKS = [
    a_token_makes_a_sandbox_and_runs_programs, each_callers_tenant_is_the_one_of_their_token,
    roles_come_from_groups, scopes_narrow, tokens_for_somebody_else_are_refused,
    forged_tokens_are_refused,
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
    # For whoever goes on without the provider.
    with open("token", "w") as file:
        file.write(token("ana"))
    sys.exit(failed)


main()
