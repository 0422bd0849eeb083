"""Asks a server for what is another tenant's, and for what nobody may.

Reads URL, KEY, OTHER_KEY and OTHER_ADMINISTRATOR (of another tenant) from the environment. Prints `ok NAME` or
`failed NAME: why` for each check, and exits 1 if one failed.
"""

import base64
import hashlib
import http.client
import json
import os
import resource
import select
import signal
import socket
import threading
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from urllib.parse import quote, urlsplit

AT = urlsplit(os.environ["URL"])
KEY, OTHER = os.environ["KEY"], os.environ["OTHER_KEY"]
OTHER_ADMINISTRATOR = os.environ["OTHER_ADMINISTRATOR"]


def ask(method, path, body=None, **headers):
    """Returns the status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=30)
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
        headers.setdefault("content_type", "application/json")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def control(method, path, body=None, key=KEY):
    return ask(method, path, body, X_API_Key=key)


def made(**body):
    status, _, text = control("POST", "/v2/sandboxes", {"templateID": "base", **body})
    assert status == 201, (status, text)
    created = json.loads(text)
    return created["sandboxID"], created["envdAccessToken"]


def envelope(message):
    text = json.dumps(message).encode()
    return b"\0" + len(text).to_bytes(4, "big") + text


def within(sandbox, path, body, token=None, method="POST", **headers):
    if token:
        headers["X_Access_Token"] = token
    return ask(method, path, body, E2b_Sandbox_Id=sandbox, **headers)


def run(sandbox, token, script, **headers):
    message = {"process": {"cmd": "/bin/bash", "args": ["-c", script]}, "stdin": False}
    return within(
        sandbox, "/process.Process/Start", envelope(message), token,
        Content_Type="application/connect+json", **headers,
    )


def output(sandbox, token, script):
    """Returns what a script writes."""
    status, _, text = run(sandbox, token, script)
    assert status == 200, (status, text)
    written = b""
    while text:
        length = int.from_bytes(text[1:5], "big")
        message, text = json.loads(text[5:5 + length]), text[5 + length:]
        data = message.get("event", {}).get("data", {})
        written += base64.b64decode(data.get("stdout", ""))
    return written.decode()


# Every route of the control API, with what it takes.
CONTROL = [
    ("GET", "", None), ("POST", "/timeout", {"timeout": 1}), ("POST", "/refreshes", {"duration": 9}),
    ("POST", "/connect", {"timeout": 9}), ("DELETE", "", None),
]
# Every route of a sandbox's own services, with what it takes.
INSIDE = [
    ("/process.Process/List", {}), ("/process.Process/SendInput", {"process": {"pid": 1}}),
    ("/process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGKILL"}),
    ("/process.Process/CloseStdin", {"process": {"pid": 1}}),
    ("/process.Process/Update", {"process": {"pid": 1}}),
    ("/filesystem.Filesystem/Stat", {"path": "/"}),
    ("/filesystem.Filesystem/ListDir", {"path": "/"}),
    ("/filesystem.Filesystem/MakeDir", {"path": "/tmp/x"}),
    ("/filesystem.Filesystem/Move", {"source": "/tmp/a", "destination": "/tmp/b"}),
    ("/filesystem.Filesystem/Remove", {"path": "/tmp/x"}),
    ("/filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}),
    ("/filesystem.Filesystem/GetWatcherEvents", {"watcherId": "x"}),
    ("/filesystem.Filesystem/RemoveWatcher", {"watcherId": "x"}),
]


def another_tenant_reaches_nothing():
    sandbox, token = made()
    for key, expected in [(OTHER, 404), ("e2b_" + "0" * 40, 401), ("", 401)]:
        for method, path, body in CONTROL:
            status, _, text = control(method, f"/sandboxes/{sandbox}{path}", body, key)
            assert status == expected, (key, method, path, status, text)
            if method == "POST" and path == "/connect":
                status, _, _ = control(method, f"/v2/sandboxes/{sandbox}{path}", body, key)
                assert status == expected, (key, path, status)
    # A sandbox of theirs has a token of theirs, which is none here.
    status, _, text = control("POST", "/v2/sandboxes", {"templateID": "base"}, OTHER)
    assert status == 201, text
    theirs = json.loads(text)
    listed = json.loads(control("GET", "/v2/sandboxes", None, OTHER)[2])
    assert [one["sandboxID"] for one in listed] == [theirs["sandboxID"]], listed
    for wrong in [None, "", token[:-1], token + "a", theirs["envdAccessToken"], KEY]:
        for path, body in INSIDE:
            status, _, text = within(sandbox, path, body, wrong)
            assert status == 401, (wrong, path, status, text)
        status, _, text = run(sandbox, wrong, "true")
        assert b"unauthenticated" in text and b"start" not in text, (status, text)
        for method in ["GET", "POST"]:
            status, _, text = within(sandbox, "/files?path=/etc/passwd", "x", wrong, method)
            assert status == 401, (wrong, method, status, text)
    # The positive control.
    assert within(sandbox, "/filesystem.Filesystem/Stat", {"path": "/"}, token)[0] == 200
    assert control("GET", f"/sandboxes/{sandbox}")[0] == 200
    control("DELETE", f"/sandboxes/{theirs['sandboxID']}", None, OTHER)
    control("DELETE", f"/sandboxes/{sandbox}")


def keys_and_the_ledger_are_each_tenants_own():
    own, other = (lambda *ask: control(*ask)), (lambda *ask: control(*ask, key=OTHER_ADMINISTRATOR))
    sandbox, token = made()
    output(sandbox, token, "true")
    run_of = json.loads(own("GET", f"/v1/sandboxes/{sandbox}")[2])["run"]
    keys = json.loads(own("GET", "/v1/keys")[2])
    events = json.loads(own("GET", "/v1/ledger/events")[2])["events"]
    assert run_of in [event["run"] for event in events]
    theirs = json.loads(other("GET", "/v1/keys")[2])
    assert theirs and {key["tenant"] for key in theirs} == {"other"}, theirs
    assert other("DELETE", f"/v1/keys/{keys[0]['id']}")[0] == 404
    for tenant in ["default", "new"]:
        body = {"name": "x", "tenant": tenant, "role": "administrator"}
        assert other("POST", "/v1/keys", body)[0] == 403, tenant
    assert other("GET", f"/v1/runs/{run_of}/events")[0] == 404
    seen = json.loads(other("GET", "/v1/ledger/events?limit=1000")[2])["events"]
    assert run_of not in [event["run"] for event in seen]
    for event in events[:5]:
        assert other("GET", f"/v1/ledger/events/{event['number']}/proof")[0] == 404
    # The control: of their own they are all there.
    assert json.loads(other("POST", "/v1/keys", {"name": "x"})[2])["facts"]["tenant"] == "other"
    assert own("GET", f"/v1/ledger/events/{events[0]['number']}/proof")[0] == 200


def guessed_names_are_not_there():
    for guess in ["i" + "0" * 20, "x", "..", "%2e%2e", "i" * 4000, "é", "' OR 1=1 --"]:
        status, _, text = control("GET", f"/sandboxes/{quote(guess)}")
        assert status == 404 and json.loads(text)["code"] == 404, (guess, status, text)
        try:
            name = guess.encode("latin-1").decode("latin-1")
            status, _, text = ask("GET", "/health", None, E2b_Sandbox_Id=name)
        except UnicodeError:
            continue
        assert status in (502, 404), (guess, status, text)


def signatures_count_for_what_was_signed():
    sandbox, token = made()
    within(sandbox, "/files?path=/home/user/a", b"content", token,
           Content_Type="application/octet-stream")

    def signed(path, operation="read", user="", expires=None, said=None, of=None):
        text = f"{path}:{operation}:{user}:{of or token}"
        query = f"path={quote(said or path)}"
        if user:
            query += f"&username={quote(user)}"
        if expires is not None:
            text += f":{expires}"
            query += f"&signature_expiration={expires}"
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        return "/files?" + query + "&signature=" + quote("v1_" + digest, safe="")

    a = "/home/user/a"
    later, before = int(time.time()) + 60, int(time.time()) - 60
    good = [signed(a), signed(a, expires=later), signed(a, user="user")]
    for path in good:
        status, _, text = ask("GET", path)
        assert (status, text) == (200, b"content"), (path, status, text)
    bad = [
        signed(a, said="/etc/passwd"), signed(a, operation="write"), signed(a, expires=before),
        signed(a, of="x"), signed(a) + "&path=/etc/passwd", signed(a, user="root"),
        signed("/home/user", operation="a:read", said=a), signed(a, user="user:x"),
        signed(a).replace("v1_", "v2_"), signed(a) + "&signature_expiration=99999999999",
    ]
    for path in bad:
        status, _, text = ask("GET", path)
        assert status == 401, (path, status, text)
        status, _, text = ask("GET", path, None, E2b_Sandbox_Id=sandbox)
        assert status == 401, (path, status, text)
    # To write something else than what was signed.
    status, _, text = ask("POST", signed(a), b"changed")
    assert status == 401, (status, text)
    assert ask("GET", good[0])[2] == b"content"
    control("DELETE", f"/sandboxes/{sandbox}")
    assert ask("GET", good[0])[0] == 401


def programs_see_nothing_of_the_host():
    sandbox, token = made()
    seen = output(sandbox, token, "id; env; ls -a ~ / /home; cat /etc/passwd; ls /proc | head -400")
    home, state = os.environ["HOST_HOME"], os.environ["HOST_STATE"]
    for own in [home, state, "E2B_API_KEY", KEY, "atoll-front"]:
        assert own not in seen, (own, seen)
    assert seen.startswith("uid=1000(user) gid=1000(user) groups=1000(user)\n"), seen
    tried = output(sandbox, token, f"ls {home} {state} 2>&1; cat /etc/shadow 2>&1; echo x > /etc/x")
    assert "No such file" in tried and "root:" not in tried, tried
    # Nothing is reached, and no port of the host.
    dialled = output(
        sandbox, token,
        f"for at in 127.0.0.1/{AT.port} 1.1.1.1/53; do (exec 3<>/dev/tcp/$at) 2>/dev/null"
        " && echo reached $at; done; echo over",
    )
    assert dialled == "over\n", dialled
    control("DELETE", f"/sandboxes/{sandbox}")


def sandboxes_see_nothing_of_each_other():
    one, its = made()
    other, others = made()
    output(one, its, "echo secret > ~/mine; echo secret > /tmp/mine; (sleep 100 &) ; true")
    seen = output(other, others, "ls -a ~ /tmp; ps ax 2>/dev/null || ls /proc; cat /tmp/mine 2>&1")
    assert "mine\n" not in seen.replace("/tmp/mine", "") and "sleep" not in seen, seen
    assert output(one, its, "cat ~/mine") == "secret\n"
    for sandbox in [one, other]:
        control("DELETE", f"/sandboxes/{sandbox}")


def odd_requests_are_refused():
    sandbox, token = made()
    long = "/" + "a" * 5000
    for path, body, expected in [
        ("/filesystem.Filesystem/Stat", {"path": long}, 400),
        ("/filesystem.Filesystem/Stat", {"path": "a\0b"}, 400),
        ("/filesystem.Filesystem/Stat", "no json", 400),
        ("/filesystem.Filesystem/Nothing", {}, 404),
        ("/process.Process/SendSignal", {"process": {"pid": 1}, "signal": 99}, 400),
        ("/process.Process/SendSignal", {"process": {"pid": 999999}, "signal": 9}, 404),
        ("/nothing", {}, 404), ("/init", {}, 404), ("/freeze", {}, 404),
    ]:
        status, _, text = within(sandbox, path, body, token)
        assert status == expected, (path, body, status, text)
    for body, expected in [
        ("no json", 400), ({"templateID": 7}, 400), ({"timeout": -1}, 400), ({"timeout": 0}, 400),
        ({"timeout": 10**9}, 400), ({"templateID": "no-such"}, 404), ({"mcp": {"a": {}}}, 403),
        ({"metadata": {str(n): "" for n in range(99)}}, 400), ({"envVars": {"A=B": ""}}, 400),
        ({"network": {"denyOut": ["0.0.0.0/0"] * 300}}, 400), ({"network": {"allowOut": ["a" * 300]}}, 400),
        ({"network": {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}}, 403),
        ({"allow_internet_access": True}, 201), ({"envVars": {"LD_PRELOAD": "/x"}}, 201),
    ]:
        status, _, text = control("POST", "/v2/sandboxes", body)
        assert status == expected, (body, status, text)
        assert json.loads(text).get("message") or status == 201, text
        if status == 201:
            control("DELETE", f"/sandboxes/{json.loads(text)['sandboxID']}")
    status, _, text = run(sandbox, token, "true", Authorization="Basic cm9vdDo=")
    assert b"invalid username: 'root'" in text, text
    # It still works.
    assert output(sandbox, token, "echo there") == "there\n"
    control("DELETE", f"/sandboxes/{sandbox}")


def files_that_are_none_are_not_read():
    sandbox, token = made()
    output(sandbox, token, "mkfifo ~/pipe; ln -s /dev/zero ~/zero; ln -s /proc/self/mem ~/mem;"
           " ln -s ~/loop ~/loop; mkdir ~/d; python3 -c 'import socket;"
           " socket.socket(socket.AF_UNIX).bind(\"/home/user/socket\")'")
    for name in ["pipe", "zero", "mem", "loop", "d", "socket", "missing", "/proc/1/environ", "/dev/tty"]:
        begun = time.monotonic()
        status, _, text = within(sandbox, f"/files?path={name}", None, token, "GET")
        assert status in (400, 403, 404), (name, status, text)
        assert time.monotonic() - begun < 15, name
        if name != "missing":
            status, _, text = within(sandbox, f"/files?path={name}", b"x", token,
                                     Content_Type="application/octet-stream")
            assert status in (400, 403, 404), (name, status, text)
    assert output(sandbox, token, "echo there") == "there\n"
    control("DELETE", f"/sandboxes/{sandbox}")


SERVER = """
import http.server, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101)
            self.send_header("Upgrade", "echo")
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            self.wfile.write(self.rfile.readline().upper())
            return
        text = (self.path + "\\n" + str(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


def serving(**body):
    """Returns a sandbox in which a server listens at port 8000, and what create has told."""
    status, _, text = control("POST", "/v2/sandboxes", {"templateID": "base", **body})
    assert status == 201, text
    created = json.loads(text)
    sandbox, token = created["sandboxID"], created["envdAccessToken"]
    within(sandbox, "/files?path=server.py", SERVER.encode(), token,
           Content_Type="application/octet-stream")
    output(sandbox, token, "python3 server.py > /dev/null 2>&1 &")
    for _ in range(200):
        if output(sandbox, token, "(exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && echo up"):
            return created
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


def port(created, number=8000, path="/some?a=b", **headers):
    name = f"{number}-{created['sandboxID']}.sandboxes.example"
    return ask("GET", path, None, Host=name, **headers)


def ports_lead_to_programs_and_nowhere_else():
    created = serving()
    sandbox = created["sandboxID"]
    status, _, text = port(created, X_API_Key=KEY, X_Access_Token="secret", Own="mine")
    assert status == 200 and text.startswith(b"/some?a=b\n"), (status, text)
    assert b"own: mine" in text.lower() and KEY.encode() not in text and b"secret" not in text, text
    by_header = ask("GET", "/", None, E2b_Sandbox_Id=sandbox, E2b_Sandbox_Port="8000")
    assert by_header[0] == 200, by_header
    token = created["envdAccessToken"]
    for number, headers in [(1, {}), (22, {}), (AT.port, {}), (49999, {"X_Access_Token": token})]:
        status, _, text = port(created, number, **headers)
        assert status == 502 and b"port is not open" in text, (number, status, text)
    # An upgraded connection carries bytes both ways.
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=30)
    connection.connect()
    connection.sock.sendall(
        f"GET / HTTP/1.1\r\nHost: 8000-{sandbox}.a\r\nUpgrade: echo\r\n"
        "Connection: Upgrade\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.sock.recv(1000)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    connection.sock.sendall(b"hello\n")
    assert connection.sock.recv(100) == b"HELLO\n"
    connection.close()
    control("DELETE", f"/sandboxes/{sandbox}")
    assert port(created)[0] == 502


FULL = """
import socket, time
full = socket.socket()
full.bind(("", 8001))
full.listen(0)
time.sleep(1000)
"""


def connects_that_nobody_accepts_hold_up_no_files():
    sandbox, token = made()
    within(sandbox, "/files?path=full.py", FULL.encode(), token, Content_Type="application/octet-stream")
    output(sandbox, token, "(python3 full.py > /dev/null 2>&1 &)")
    while "8001" not in str(control("GET", f"/v1/sandboxes/{sandbox}/ports")[2]):
        pass
    lines = []
    for _ in range(30):
        line = socket.create_connection((AT.hostname, AT.port), timeout=60)
        line.sendall(f"GET / HTTP/1.1\r\nHost: 8001-{sandbox}.localhost\r\n\r\n".encode())
        lines.append(line)
    time.sleep(1)
    status, _, text = within(sandbox, "/filesystem.Filesystem/Stat", {"path": "/"}, token)
    assert status == 200, (status, text)
    answered = select.select(lines, [], [], 0)[0]
    assert len(answered) < 8, len(answered)
    for line in lines:
        line.close()
    control("DELETE", f"/sandboxes/{sandbox}")


def private_ports_take_their_token():
    created, other = serving(network={"allowPublicTraffic": False}), serving()
    token = created["trafficAccessToken"]
    assert token and other["trafficAccessToken"] is None, (created, other)
    for wrong in [{}, {"e2b_traffic_access_token": "x"}, {"X_Access_Token": other["envdAccessToken"]}]:
        status, _, text = port(created, **wrong)
        assert status == 403, (wrong, status, text)
    assert port(created, e2b_traffic_access_token=token)[0] == 200
    # The token for ports opens nothing else.
    status, _, text = within(created["sandboxID"], "/filesystem.Filesystem/Stat", {"path": "/"}, token)
    assert status == 401, (status, text)
    for one in [created, other]:
        control("DELETE", f"/sandboxes/{one['sandboxID']}")


def slow_readers_hold_up_nobody():
    sandbox, token = made()
    output(sandbox, token, "head -c 50000000 /dev/zero > big")
    slow = []
    for _ in range(150):
        connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
        connection.request("GET", "/files?path=big", None, {"E2b-Sandbox-Id": sandbox, "X-Access-Token": token})
        slow.append(connection)
    for _ in range(30):
        connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
        message = {"process": {"cmd": "/bin/cat", "args": ["/dev/zero"]}, "stdin": False}
        connection.request("POST", "/process.Process/Start", envelope(message), {
            "E2b-Sandbox-Id": sandbox, "X-Access-Token": token, "Content-Type": "application/connect+json"})
        slow.append(connection)
    begun = time.monotonic()
    other, others = made()
    assert output(other, others, "echo there") == "there\n"
    assert control("DELETE", f"/sandboxes/{other}")[0] == 204
    assert time.monotonic() - begun < 30
    # Whoever reads again gets all of it.
    assert len(slow[0].getresponse().read()) == 50_000_000
    for connection in slow:
        connection.close()
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204


def input_that_nobody_reads_holds_up_nobody():
    sandbox, token = made()
    run_it = {"process": {"cmd": "/bin/sleep", "args": ["100"]}, "stdin": True, "tag": "deaf"}
    holding = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    holding.request("POST", "/process.Process/Start", envelope(run_it), {
        "E2b-Sandbox-Id": sandbox, "X-Access-Token": token, "Content-Type": "application/connect+json"})
    holding.getresponse()
    body = json.dumps({"process": {"tag": "deaf"}, "input": {"stdin": base64.b64encode(b"x" * 300_000).decode()}})
    for _ in range(20):
        connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
        connection.request("POST", "/process.Process/SendInput", body, {
            "E2b-Sandbox-Id": sandbox, "X-Access-Token": token, "Content-Type": "application/json"})
        connection.close()
    assert output(sandbox, token, "echo there") == "there\n"
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204


def programs_that_stop_or_end_all_others_do_not_hold_the_server():
    sandbox, token = made()
    stops = "trap '' TERM; for n in 1 2 3; do kill -STOP -1 2>/dev/null; sleep 0.1; done; echo over"
    assert output(sandbox, token, stops) == "over\n"
    # Whatever became of it, an answer comes, and the next sandbox is as new.
    status, _, text = run(sandbox, token, "echo there", Connect_Timeout_Ms="20000")
    assert status in (200, 503), (status, text)
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204
    sandbox, token = made()
    run(sandbox, token, "kill -9 -1")
    status, _, text = run(sandbox, token, "echo there")
    assert status in (200, 503), (status, text)
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204
    sandbox, token = made()
    assert output(sandbox, token, "echo new") == "new\n"
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204


def long_lists_tags_and_heads_are_refused():
    sandbox, token = made()
    output(sandbox, token, "mkdir many; cd many; python3 -c 'for n in range(20000):"
           " open(f\"{n:0200}\", \"w\").close()'")
    status, _, text = within(sandbox, "/filesystem.Filesystem/ListDir", {"path": "many", "depth": 1}, token)
    assert status == 400 and b"more than can be listed" in text, (status, text[:200])
    status, _, text = within(sandbox, "/filesystem.Filesystem/ListDir", {"path": "/", "depth": 1}, token)
    assert status == 200, (status, text)
    message = {"process": {"cmd": "/bin/true"}, "stdin": False, "tag": "x" * 300}
    text = within(sandbox, "/process.Process/Start", envelope(message), token,
                  Content_Type="application/connect+json")[2]
    assert b"invalid_argument" in text and b"256" in text, text
    head = b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + b"a" * 2_000_000
    try:
        status, _, text = within(sandbox, "/files", head, token, Content_Type="multipart/form-data; boundary=x")
        assert status == 400, (status, text)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert output(sandbox, token, "echo there") == "there\n"
    control("DELETE", f"/sandboxes/{sandbox}")


def half_open_connections_hold_up_nobody():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(10_000, most - 200)
    open_ones = []
    for number in range(count):
        connection = socket.create_connection((AT.hostname, AT.port), timeout=30)
        connection.sendall(b"POST /v2/sandboxes HTTP/1.1\r\nHost: a\r\nContent-Le"[: number % 50])
        open_ones.append(connection)
    sandbox, token = made()
    assert output(sandbox, token, "echo here") == "here\n"
    for connection in open_ones:
        connection.close()
    control("DELETE", f"/sandboxes/{sandbox}")


# From the beginning on: it says nothing, and is looked at last.
SILENT = socket.create_connection((AT.hostname, AT.port), timeout=60)


def silent_connections_are_cut():
    assert SILENT.recv(1) == b""


def an_upload_ends_with_its_sandbox():
    sandbox, token = made()
    connection = socket.create_connection((AT.hostname, AT.port), timeout=20)
    connection.sendall(
        f"POST /files?path=big HTTP/1.1\r\nHost: a\r\nE2b-Sandbox-Id: {sandbox}\r\nX-Access-Token: {token}\r\n"
        "Content-Type: application/octet-stream\r\nContent-Length: 100000000000\r\n\r\n".encode())
    connection.sendall(bytes(1 << 20))
    for _ in range(100):
        _, _, text = within(sandbox, "/filesystem.Filesystem/Stat", {"path": "big"}, token)
        if b'"size"' in text:
            break
        time.sleep(0.05)
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204
    sent = 0
    try:
        while sent < 1 << 30:
            connection.sendall(bytes(1 << 20))
            sent += 1 << 20
    except OSError:
        pass
    # What still comes is thrown away for a while, so that the answer is read; none of it is written.
    assert sent < 200 << 20, sent


def names_that_change_while_files_are_asked_for_lead_nowhere():
    sandbox, token = made()
    # A file, a link to what may not be read, a pipe, a directory: each for a moment.
    swap = """import os, itertools, random, time
os.mkdir("d"); open("d/own", "w").write("own"); open("own", "w").write("own"); os.mkfifo("pipe")
for n in itertools.count():
    for make in [lambda: os.symlink("/etc/shadow", "t"), lambda: os.link("pipe", "t"), lambda: os.symlink("own", "t"),
                 lambda: os.symlink("/proc/1/environ", "t"), lambda: os.symlink("d", "t"), lambda: os.symlink("own", "t")]:
        make(); os.rename("t", "f"); time.sleep(random.random() / 1000)
"""
    within(sandbox, "/files?path=swap.py", swap.encode(), token, Content_Type="application/octet-stream")
    output(sandbox, token, "(python3 swap.py >/dev/null 2>&1 &); sleep 0.5")
    seen = set()
    for _ in range(150):
        status, _, text = within(sandbox, "/files?path=f", None, token, method="GET")
        seen.add((status, text if status == 200 else b""))
        status, _, _ = within(sandbox, "/files?path=f", b"own", token, Content_Type="application/octet-stream")
        assert status in (200, 400, 403, 404), status
    # The control: the file is read now and then.
    assert (200, b"own") in seen and {text for _, text in seen} <= {b"own", b""}, seen
    control("DELETE", f"/sandboxes/{sandbox}")


def a_sandbox_without_processes_left_holds_up_nobody():
    sandbox, token = made()
    other, its = made()
    bomb = "for n in $(seq 2000); do sleep 100 & done >/dev/null 2>&1; true"
    begun = time.monotonic()
    run(sandbox, token, bomb)
    status, _, text = run(sandbox, token, "true")
    assert status == 200 and time.monotonic() - begun < 60, (status, text)
    assert output(other, its, "echo here") == "here\n"
    assert control("DELETE", f"/sandboxes/{sandbox}")[0] == 204
    assert control("DELETE", f"/sandboxes/{other}")[0] == 204


def below(pid):
    """Returns the processes beneath one, with their names."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    text = stat.read()
            except OSError:
                continue
            name = text[text.index("(") + 1:text.rindex(")")]
            parents[int(entry)] = int(text[text.rindex(")") + 2:].split()[1]), name
    found, last = {}, {pid}
    while last:
        last = {one for one, (parent, _) in parents.items() if parent in last}
        found.update({one: parents[one][1] for one in last})
    return found


def whatever_is_killed_nothing_is_left_and_nobody_waits():
    server = int(os.environ["SERVER"])
    killed = set()
    for number in range(12):
        before = below(server)
        try:
            sandbox, token = made()
        except AssertionError:
            # The one that waited ahead was killed: whoever asks is told, and the next is made.
            sandbox, token = made()
        ended = []

        def follow():
            try:
                ended.append(run(sandbox, token, "sleep 20")[2])
            except (http.client.HTTPException, OSError) as error:
                ended.append(error)

        follows = threading.Thread(target=follow)
        follows.start()
        time.sleep(0.2)
        own = sorted((name, pid) for pid, name in below(server).items() if pid not in before)
        name, pid = own[number % len(own)]
        killed.add(name)
        os.kill(pid, signal.SIGKILL)
        follows.join(0.5)
        status, _, _ = control("DELETE", f"/sandboxes/{sandbox}")
        assert status in (204, 404), (name, status)
        follows.join(20)
        assert ended, f"whoever follows a program waits after {name} was killed"
        for _ in range(200):
            # By name: the one that waits ahead, two processes, is another one now, or was killed.
            left = Counter(below(server).values()) - Counter(before.values())
            left -= Counter({"atoll-jail": 2})
            if not left:
                break
            time.sleep(0.05)
        assert not left, (name, left)
        assert control("GET", f"/sandboxes/{sandbox}")[0] == 404
    # The launcher of all sandboxes is not among them; with it nothing could be made any more.
    assert len(killed) > 2, killed


def begun(count, key=None, path="/v2/sandboxes", method="POST"):
    """Returns connections that have sent the head of a request and a part of its body."""
    lines = []
    for _ in range(count):
        line = socket.create_connection((AT.hostname, AT.port), timeout=60)
        named = f"X-API-Key: {key}\r\n" if key else ""
        line.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n{named}Content-Length: 100\r\n\r\n{{".encode())
        lines.append(line)
    return lines


def bodies_of_nobody_are_not_waited_for():
    for path in ["/v2/sandboxes", "/v1/sandboxes", "/jupyter/api/kernels", "/librechat/exec",
                 "/opensandbox/v1/sandboxes", "/files?path=a&signature=v1_x", "/volumecontent/x/path?path=a"]:
        for key in [None, "e2b_" + "0" * 40]:
            lines = begun(40, key, path, "PATCH" if "volume" in path else "POST")
            sandbox, _ = made()
            control("DELETE", f"/sandboxes/{sandbox}")
            for line in lines:
                # Told before the rest has come, or ever would.
                answer = line.recv(1000).split(b"\r\n")[0]
                assert answer.split()[1] in (b"401", b"403", b"404"), (path, key, answer)
                line.close()


def uploads_of_nobody_are_not_read():
    sandbox, _ = made()
    for path, host in [("/files?path=x", f"49983-{sandbox}.localhost"), ("/files?path=x&signature=v1_x", "a")]:
        line = socket.create_connection((AT.hostname, AT.port), timeout=60)
        line.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {64 << 20}\r\n\r\n".encode())
        sent = 0
        try:
            while sent < 64 << 20:
                line.sendall(bytes(1 << 20))
                sent += 1 << 20
        except OSError:
            pass
        # The sockets hold some.
        assert sent < 32 << 20, (path, sent)
    control("DELETE", f"/sandboxes/{sandbox}")


def bodies_of_a_tenant_hold_up_no_other():
    lines = begun(100, OTHER)
    sandbox, token = made()
    output(sandbox, token, "true")
    answered, _, _ = select.select(lines, [], [], 0)
    assert not answered, [line.recv(1000) for line in answered]
    for line in lines:
        line.close()
    control("DELETE", f"/sandboxes/{sandbox}")


def bodies_of_nobody_are_not_understood():
    body = b"[" + b"[]," * (4 * 1024 * 1024 // 3 - 1) + b"[]]"

    told = []

    def send():
        for key in ["", "e2b_" + "0" * 40]:
            try:
                told.append(ask("POST", "/v2/sandboxes", body, X_API_Key=key)[0])
            except (OSError, http.client.HTTPException):
                pass  # Its connection was ended before it had sent all.

    senders = [threading.Thread(target=send) for _ in range(48)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert set(told) <= {401}, Counter(told)
    tasks = Path(f"/proc/{os.environ['SERVER']}/task").glob("*/children")
    children = [pid for task in tasks for pid in task.read_text().split()]
    front = next(pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "atoll-front\n")
    status = Path(f"/proc/{front}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) >> 10
    assert peak < 400, f"{peak} MiB"


CHECKS = [
    bodies_of_nobody_are_not_waited_for, bodies_of_a_tenant_hold_up_no_other,
    bodies_of_nobody_are_not_understood, uploads_of_nobody_are_not_read,
    another_tenant_reaches_nothing, keys_and_the_ledger_are_each_tenants_own, guessed_names_are_not_there, signatures_count_for_what_was_signed,
    programs_see_nothing_of_the_host, sandboxes_see_nothing_of_each_other, odd_requests_are_refused,
    files_that_are_none_are_not_read, ports_lead_to_programs_and_nowhere_else,
    connects_that_nobody_accepts_hold_up_no_files,
    private_ports_take_their_token, slow_readers_hold_up_nobody,
    input_that_nobody_reads_holds_up_nobody,
    programs_that_stop_or_end_all_others_do_not_hold_the_server,
    long_lists_tags_and_heads_are_refused,
    half_open_connections_hold_up_nobody, names_that_change_while_files_are_asked_for_lead_nowhere,
    a_sandbox_without_processes_left_holds_up_nobody, whatever_is_killed_nothing_is_left_and_nobody_waits,
    an_upload_ends_with_its_sandbox, silent_connections_are_cut,
]


def main():
    wanted, failed = sys.argv[1:], False
    for check in CHECKS:
        if wanted and check.__name__ not in wanted:
            continue
        try:
            check()
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}"[:600], flush=True)
    sys.exit(failed)


main()
