"""Asks a server for what nobody may who knows a sandbox's id alone: an id is public.

Reads URL and KEY (an administrator's) and OTHER_KEY (of another tenant) from the environment. Prints
`ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import http.client
import json
import os
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import urlsplit

AT = urlsplit(os.environ["URL"])
KEY, OTHER = os.environ["KEY"], os.environ["OTHER_KEY"]
# What listens in a sandbox: it tells whoever asks that code was run.
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ran " + self.path.encode())
    do_GET = do_POST
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
"""


def ask(method, path, body=None, key=None, **headers):
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


def made(*ports, **body):
    """Returns what create tells of a sandbox in which a server listens at each of these ports."""
    status, created = ask("POST", "/v2/sandboxes", {"templateID": "base", **body}, KEY)
    assert status == 201, created
    of = f"/v1/sandboxes/{created['sandboxID']}"
    for port in ports:
        ask("POST", of + "/processes", {"command": ["python3", "-c", SERVER, str(port)]}, KEY)
    for _ in range(300):
        listed = {one["port"] for one in ask("GET", of + "/ports", None, KEY)[1]}
        if set(ports) <= listed:
            return created
        time.sleep(0.1)
    raise AssertionError("nothing listens")


def names(sandbox, port):
    """Returns the ways to name a port of a sandbox."""
    return [
        {"Host": f"{port}-{sandbox}.localhost"},
        {"Host": f"{port}-{sandbox}.localhost:{AT.port}"},
        {"Host": f"0{port}-{sandbox}.example.com"},
        {"E2b_Sandbox_Id": sandbox, "E2b_Sandbox_Port": str(port)},
        {"E2b_Sandbox_Id": f"{sandbox}-atoll", "E2b_Sandbox_Port": f"0{port}"},
        {"Host": f"8000-{sandbox}.localhost", "E2b_Sandbox_Id": sandbox, "E2b_Sandbox_Port": str(port)},
    ]


def ran(answer):
    return answer[0] == 200 or b"ran" in (answer[1] if isinstance(answer[1], bytes) else b"")


def an_id_runs_no_code():
    created, theirs = made(8000, 49999), made()
    sandbox, token = created["sandboxID"], created["envdAccessToken"]
    nothings = [
        {}, {"X_Access_Token": ""}, {"X_Access_Token": token[:-1]}, {"X_API_Key": ""},
        {"X_Access_Token": theirs["envdAccessToken"]}, {"X_Access_Token": KEY}, {"X_API_Key": token},
        {"X_API_Key": OTHER}, {"e2b_traffic_access_token": "x"}, {"Authorization": "Bearer x"},
        {"Cookie": "atoll-link=99999999999.x"}, {"Content_Type": "text/plain", "Origin": "https://evil.example"},
    ]
    for way in names(sandbox, 49999):
        for nothing in nothings:
            answer = ask("POST", "/execute", '{"code": "1"}', **way, **nothing)
            assert not ran(answer) and answer[0] in (401, 403, 404, 502), (way, nothing, answer)
        for right in [{"X_Access_Token": token}, {"X_API_Key": KEY}]:
            answer = ask("POST", "/execute", '{"code": "1"}', **way, **right)
            assert ran(answer), (way, right, answer)
    # A program's own ports are public.
    for way in names(sandbox, 8000)[:5]:
        assert ran(ask("GET", "/", None, **way)), way
    for one in [created, theirs]:
        ask("DELETE", f"/sandboxes/{one['sandboxID']}", None, KEY)


def roles_and_scopes_hold_on_ports():
    created = made(49999)
    way = names(created["sandboxID"], 49999)[0]
    for role, scopes, may in [
        ("auditor", None, False), ("operator", None, False), ("approver", None, False),
        ("user", None, True), ("user", ["read"], False), ("user", ["create"], False),
        ("user", ["files"], False), ("user", ["ports"], False), ("user", ["exec"], True),
        ("auditor", ["exec", "files", "ports"], False), ("operator", ["exec"], False),
    ]:
        wanted = {"name": "narrow", "role": role, **({"scopes": scopes} if scopes else {})}
        status, told = ask("POST", "/v1/keys", wanted, KEY)
        assert status == 201, told
        answer = ask("POST", "/execute", '{"code": "1"}', told["key"], **way)
        assert ran(answer) == may, (role, scopes, answer)
    ask("DELETE", f"/sandboxes/{created['sandboxID']}", None, KEY)


def links_lead_to_programs_alone():
    created = made(8000, 49999)
    sandbox = created["sandboxID"]
    for port in (49983, 49999):
        status, told = ask("POST", f"/v1/sandboxes/{sandbox}/ports/{port}/link", {}, KEY)
        assert status == 400, (port, told)
    status, told = ask("POST", f"/v1/sandboxes/{sandbox}/ports/8000/link", {}, KEY)
    assert status == 201, told
    link = urlsplit(told["url"]).query
    for way in names(sandbox, 49999):
        for answer in [
            ask("POST", "/execute", '{"code": "1"}', Cookie=link, **way),
            ask("POST", f"/execute?{link}", '{"code": "1"}', **way),
        ]:
            assert not ran(answer), (way, answer)
    ask("DELETE", f"/sandboxes/{sandbox}", None, KEY)


def a_token_for_ports_runs_no_code():
    created = made(8000, 49999, network={"allowPublicTraffic": False})
    sandbox, token = created["sandboxID"], created["trafficAccessToken"]
    assert ran(ask("GET", "/", None, E2b_Traffic_Access_Token=token, **names(sandbox, 8000)[0]))
    for way in names(sandbox, 49999):
        answer = ask("POST", "/execute", '{"code": "1"}', E2b_Traffic_Access_Token=token, **way)
        assert not ran(answer), (way, answer)
    ask("DELETE", f"/sandboxes/{sandbox}", None, KEY)


def the_interpreter_takes_what_the_sdk_sends():
    """The SDK sends the access token with cells, and the one for ports alone with all else."""
    for network in [{}, {"network": {"allowPublicTraffic": False}}]:
        status, created = ask("POST", "/v2/sandboxes", {"templateID": "code-interpreter-v1", **network}, KEY)
        assert status == 201, created
        way = names(created["sandboxID"], 49999)[3]
        status, told = ask("GET", "/contexts", None, **way)
        assert status == 401, (status, told)
        token = created["trafficAccessToken"]
        status, told = ask("GET", "/contexts", None, E2b_Traffic_Access_Token=token, **way)
        assert status == 200, (status, told)
        # It opens none of the other services.
        status, told = ask("POST", "/filesystem.Filesystem/Stat", {"path": "/"},
                           E2b_Sandbox_Id=created["sandboxID"], X_Access_Token=token)
        assert status == 401, (status, told)
        # Who may not run code does not get it.
        status, told = ask("POST", "/v1/keys", {"name": "narrow", "scopes": ["create", "ports"]}, KEY)
        status, connected = ask("POST", f"/sandboxes/{created['sandboxID']}/connect", {"timeout": 60}, told["key"])
        assert status == 200 and connected["trafficAccessToken"] != token, connected
        answer = ask("GET", "/contexts", None,
                     E2b_Traffic_Access_Token=connected["trafficAccessToken"] or "", **way)
        assert answer[0] == 401, answer
        ask("DELETE", f"/sandboxes/{created['sandboxID']}", None, KEY)


def what_is_paused_is_woken_by_no_id():
    created = made(network={"allowPublicTraffic": False}, autoPause=True, autoResume={"enabled": True})
    sandbox = created["sandboxID"]
    assert ask("POST", f"/sandboxes/{sandbox}/pause", {"memory": False}, KEY)[0] == 204
    for more in [{}, {"E2b_Traffic_Access_Token": created["trafficAccessToken"]}]:
        status, told = ask("POST", "/execute", "{}", **names(sandbox, 49999)[0], **more)
        assert status == 502 and "not found" in told["message"], (status, told)
    status, told = ask("GET", f"/v1/sandboxes/{sandbox}", None, KEY)
    assert told["state"] == "paused", told
    ask("DELETE", f"/sandboxes/{sandbox}", None, KEY)


def local_users_see_no_id():
    """Whatever any user of the host reads of the server's processes, no id is in it."""
    created = [made(), made()]
    ids = [one["sandboxID"] for one in created]
    ask("POST", f"/sandboxes/{ids[1]}/pause", {}, KEY)
    found, looked = [], 0
    for name in ["mountinfo", "mounts", "cgroup", "cmdline", "comm", "status", "net/unix"]:
        for file in Path("/proc").glob(f"[0-9]*/{name}"):
            try:
                text = file.read_bytes().decode(errors="replace")
            except OSError:
                continue
            looked += 1
            found += [(str(file), id) for id in ids if id in text]
    assert looked > 10 and not found, found
    for id in ids:
        ask("DELETE", f"/sandboxes/{id}", None, KEY)


CHECKS = [
    an_id_runs_no_code, roles_and_scopes_hold_on_ports, links_lead_to_programs_alone,
    a_token_for_ports_runs_no_code, the_interpreter_takes_what_the_sdk_sends,
    what_is_paused_is_woken_by_no_id, local_users_see_no_id,
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
