"""Drives Atoll's own API, beneath /v1.

Reads URL and KEY from the environment. Prints `ok NAME` or `failed NAME: why` for each check, and
exits 1 if one failed.
"""

import base64
import http.client
import json
import os
import socket
import sys
import threading
import time
import traceback
from urllib.parse import quote, urlsplit

AT = urlsplit(os.environ["URL"])
KEY = os.environ["KEY"]


def ask(method, path, body=None, key=KEY, **headers):
    """Returns the status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        named["Authorization"] = f"Bearer {key}"
    if isinstance(body, dict):
        body = json.dumps(body)
    connection.request(method, "/v1" + path, body, named)
    answer = connection.getresponse()
    text = answer.read()
    is_json = "json" in answer.headers.get("Content-Type", "")
    return answer.status, answer.headers, json.loads(text) if is_json else text


def made(**body):
    status, _, created = ask("POST", "/sandboxes", body)
    assert status == 201, created
    return "/sandboxes/" + created["sandbox"]["id"]


def run(sandbox, script, **headers):
    status, _, ran = ask("POST", sandbox + "/run", {"command": ["sh", "-c", script]}, **headers)
    assert status == 200, ran
    return ran


def started(sandbox, script, **body):
    status, _, told = ask("POST", sandbox + "/processes", {"command": ["sh", "-c", script], **body})
    assert status == 201, told
    return f"{sandbox}/processes/{told['pid']}"


def events(text):
    """Reads server-sent events: pairs of a kind and data, with the id if there is one."""
    for event in text.decode().strip("\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.split("\n"))
        yield fields["event"], fields.get("id"), json.loads(fields["data"])


def output(text):
    parts = [data["base64"] for kind, _, data in events(text) if kind == "output"]
    return b"".join(base64.b64decode(part) for part in parts)


def port_of(url, path="/", **headers):
    """Asks a port by the host name of its link; returns the status, the headers and the body."""
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    connection.request("GET", path, headers={"Host": urlsplit(url).netloc, **headers})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def a_link_opens_one_port_for_a_time():
    status, _, created = ask("POST", "/sandboxes", {"private_ports": True})
    sandbox = "/sandboxes/" + created["sandbox"]["id"]
    for port in (8000, 8001):
        started(sandbox, f"mkdir {port}; cd {port}; echo {port} > index.html; exec python3 -m http.server {port}")
    status, _, told = ask("POST", sandbox + "/ports/8000/link", {"lasts_s": 60})
    assert status == 201, told
    at = urlsplit(told["url"])
    assert at.netloc.startswith(f"8000-{created['sandbox']['id']}.localhost:"), at
    for _ in range(50):
        status, _, text = port_of(told["url"], **{"e2b-traffic-access-token": created["port_token"]})
        if status == 200:
            break
        time.sleep(0.1)
    assert (status, text) == (200, "8000\n"), text
    # Nobody without it; with it a browser gets a cookie, and goes on without it.
    assert port_of(told["url"])[0] == 403
    status, headers, _ = port_of(told["url"], "//other.example/x?a=1&" + at.query + "&b=2")
    assert (status, headers["Location"]) == (303, "/other.example/x?a=1&b=2"), dict(headers)
    assert "HttpOnly" in headers["Set-Cookie"], headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].split(";")[0]
    assert port_of(told["url"], Cookie="own=1; " + cookie)[2] == "8000\n"
    other = told["url"].replace("//8000-", "//8001-")
    assert port_of(other, Cookie=cookie)[0] == 403
    wrong = cookie[:-4] + ("AAAA" if not cookie.endswith("AAAA") else "BBBB")
    assert port_of(told["url"], Cookie=wrong)[0] == 403
    later = cookie.replace("atoll-link=", "atoll-link=9")
    assert port_of(told["url"], Cookie=later)[0] == 403
    for body in ({"lasts_s": 0}, {"lasts_s": 10**9}):
        assert ask("POST", sandbox + "/ports/8000/link", body)[0] == 400
    assert ask("POST", sandbox + "/ports/0/link", {})[0] == 400
    ask("DELETE", sandbox)


def programs_see_no_link_and_the_host_that_is_asked_for():
    sandbox = made(port_host="app.internal:${PORT}")
    script = """from http.server import *
class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(repr(self.headers.items()).encode())
HTTPServer(("", 8000), Echo).serve_forever()"""
    started(sandbox, f"exec python3 -c '{script}'")
    _, _, told = ask("POST", sandbox + "/ports/8000/link", {})
    cookie = "own=1; " + urlsplit(told["url"]).query + "; last=2"
    for _ in range(50):
        status, _, text = port_of(told["url"], Cookie=cookie)
        if status == 200:
            break
        time.sleep(0.1)
    assert "('host', 'app.internal:8000')" in text and "own=1; last=2" in text, text
    assert "atoll-link" not in text, text
    # A wrong one, which anybody can leave behind, shuts no port that is open.
    assert port_of(told["url"], Cookie="atoll-link=1.x")[0] == 200
    assert port_of(told["url"], "/?atoll-link=1.x")[0] == 403
    assert port_of(told["url"], "/?atoll-link=18446744073709551615.x")[0] == 403
    assert ask("POST", "/sandboxes", {"port_host": "a b"})[0] == 400
    ask("DELETE", sandbox)


def the_ledger_is_read_and_proven():
    sandbox = made()
    run(sandbox, "true")
    name = ask("GET", sandbox)[2]["run"]
    status, _, told = ask("GET", f"/runs/{name}/events")
    kinds = [event["type"] for event in told["events"]]
    assert status == 200 and kinds[0] == "run.opened" and "exec.opened" in kinds, kinds
    seen, start = [], 0
    while start is not None:
        _, _, part = ask("GET", f"/ledger/events?limit=2&from={start}")
        seen += part["events"]
        start = part["next"]
    numbers = [event["number"] for event in seen]
    assert numbers == sorted(set(numbers)) and name in [event["run"] for event in seen], numbers
    status, _, proof = ask("GET", f"/ledger/events/{numbers[0]}/proof")
    assert status == 200 and proof.startswith(b"c2sp.org/tlog-proof"), proof[:80]
    status, _, signed = ask("GET", "/ledger/checkpoint")
    assert status == 200 and proof.decode().splitlines()[-1] in signed.decode(), signed
    assert ask("GET", "/ledger/events/99999/proof")[0] == 404
    for role, path, expected in [
        ("auditor", "/ledger/events", 200), ("auditor", f"/runs/{name}/events", 200), ("auditor", "/sandboxes", 200),
        ("user", "/ledger/events", 403), ("user", f"/runs/{name}/events", 200), ("operator", "/ledger/events", 403),
        ("approver", "/ledger/checkpoint", 403),
    ]:
        key = ask("POST", "/keys", {"name": role, "role": role})[2]
        assert ask("GET", path, key=key["key"])[0] == expected, (role, path)
    for body, expected in [
        ({"name": "x", "tenant": "other"}, 403), ({"name": ""}, 400), ({"name": "x", "expires_s": 5}, 400),
    ]:
        assert ask("POST", "/keys", body)[0] == expected, body
    for path in ["/ledger/events?from=x", "/ledger/events/x/proof", "/ledger/events?foo=1"]:
        status, headers, problem = ask("GET", path)
        assert status == 400 and problem["detail"], (path, problem)
    ask("DELETE", sandbox)


def paths_are_cleaned_of_dots():
    sandbox = made()
    status, _, entry = ask("POST", sandbox + "/files/directory", {"path": "./x/../y/."})
    assert (status, entry["path"]) == (201, "/home/user/y"), entry
    _, _, listed = ask("GET", sandbox + "/files?path=../user")
    assert [one["path"] for one in listed] == ["/home/user/y"], listed
    ask("DELETE", sandbox)


def sandboxes_are_made_listed_and_ended():
    sandbox = made(metadata={"a": "b"}, environment={"NAME": "value"}, timeout_s=60)
    status, _, facts = ask("GET", sandbox)
    assert status == 200 and facts["metadata"] == {"a": "b"}, facts
    assert 50_000 < facts["ends_ms"] - facts["started_ms"] <= 61_000, facts
    assert run(sandbox, "echo $NAME; echo no >&2; exit 3") == {
        "pid": 2, "exit": 3, "signal": None, "ended": None, "stdout": "value\n",
        "stderr": "no\n", "truncated": False,
    } or run(sandbox, "echo $NAME; exit 3")["exit"] == 3
    others = [made() for _ in range(3)]
    seen, cursor = [], ""
    while cursor is not None:
        _, _, part = ask("GET", f"/sandboxes?limit=2&cursor={quote(cursor)}" if cursor else "/sandboxes?limit=2")
        seen += ["/sandboxes/" + one["id"] for one in part["sandboxes"]]
        cursor = part["cursor"]
    assert seen[:3] == others[::-1] and seen.count(sandbox) == 1, seen
    assert ask("POST", sandbox + "/timeout", {"timeout_s": 600})[0] == 200
    assert ask("GET", sandbox)[2]["ends_ms"] > facts["ends_ms"]
    for one in [sandbox, *others]:
        assert ask("DELETE", one)[0] == 200
        status, headers, problem = ask("DELETE", one)
        assert status == 404 and "a caller has ended it" in problem["detail"], problem
        assert headers["Content-Type"] == "application/problem+json"
    kinds = [event["kind"] for event in ask("GET", f"/events?sandbox={sandbox[11:]}")[2]]
    assert kinds == ["killed", "updated", "created"], kinds


def output_goes_on_from_an_offset():
    sandbox = made()
    process = started(sandbox, "seq 1 5000; sleep 0.3; echo over >&2; kill -9 $$")
    status, headers, text = ask("GET", process + "/output")
    assert status == 200 and headers["Content-Type"] == "text/event-stream", text
    whole = output(text)
    assert whole == b"".join(b"%d\n" % n for n in range(1, 5001)) + b"over\n", whole[-200:]
    all = list(events(text))
    assert all[-1][2] == {"signalled": 9}, all[-1]
    ids = [int(id) for kind, id, _ in all if kind == "output"]
    assert ids[-1] == len(whole)
    for at in [0, 1, ids[0], len(whole) - 3, len(whole)]:
        again = output(ask("GET", f"{process}/output?from={at}")[2])
        assert again == whole[at:], (at, again[:50])
        by_header = output(ask("GET", process + "/output", Last_Event_ID=str(at))[2])
        assert by_header == whole[at:], at
    # What nobody reads is dropped beyond the window, and that is told.
    process = started(sandbox, "head -c 1000000 /dev/zero; echo end")
    while "end" not in [kind for kind, _, _ in events(ask("GET", process + "/output?from=99999999")[2])]:
        pass
    late = list(events(ask("GET", process + "/output")[2]))
    kept = sum(len(base64.b64decode(data["base64"])) for kind, _, data in late if kind == "output")
    assert late[0][0] == "lost" and late[0][2]["bytes"] + kept == 1_000_004, (late[0], kept)
    ask("DELETE", sandbox)


def output_waits_for_the_first_who_follows():
    sandbox = made()
    whole = b"".join(b"%d\n" % n for n in range(1, 100_001))
    process = started(sandbox, "exec seq 1 100000")
    time.sleep(1)
    assert output(ask("GET", process + "/output")[2]) == whole
    # Nobody comes: it goes on, and the last of it is there.
    process = started(sandbox, "seq 1 100000; echo over")
    time.sleep(7)
    told = output(ask("GET", process + "/output")[2])
    assert told.endswith(b"over\n") and len(told) < len(whole), len(told)
    ask("DELETE", sandbox)


def programs_are_fed_and_steered():
    sandbox = made()
    process = started(sandbox, "cat", input=True)
    for part in [b"one\n", b"two\n"]:
        assert ask("POST", process + "/input", part)[0] == 200
    listed = ask("GET", sandbox + "/processes")[2]
    assert [f"{sandbox}/processes/{one['pid']}" for one in listed] == [process], listed
    assert ask("DELETE", process + "/input")[0] == 200
    text = ask("GET", process + "/output")[2]
    assert output(text) == b"one\ntwo\n" and list(events(text))[-1][2] == {"exited": 0}
    size = {"rows": 33, "columns": 77}
    process = started(sandbox, "stty size; read x; stty size", terminal=size)
    assert ask("POST", process + "/terminal", {"rows": 44, "columns": 88})[0] == 200
    assert ask("POST", process + "/input", b"\n")[0] == 200
    seen = output(ask("GET", process + "/output")[2]).split()
    assert seen[:2] in ([b"33", b"77"], [b"44", b"88"]) and seen[-2:] == [b"44", b"88"], seen
    process = started(sandbox, "trap 'exit 5' USR1; echo up; while :; do sleep 0.05; done")
    while b"up" not in base64.b64decode(first_output(process)):
        pass
    assert ask("POST", process + "/signal", {"number": 10})[0] == 200
    assert list(events(ask("GET", process + "/output")[2]))[-1][2] == {"exited": 5}
    assert ask("POST", process + "/signal", {"number": 9})[0] == 404
    assert ask("GET", sandbox + "/processes/99999/output")[0] == 404
    ask("DELETE", sandbox)


def first_output(process):
    """Returns the first output of a program that goes on."""
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    connection.request("GET", f"/v1{process}/output", None, {"X-API-Key": KEY})
    answer, text = connection.getresponse(), b""
    while b"\n\n" not in text:
        text += answer.read1(100)
    connection.close()
    return next(events(text))[2]["base64"]


def files_are_written_read_and_watched():
    sandbox = made()
    content = os.urandom(3_000_000)
    path = sandbox + "/files/content?path=" + quote("a b/é.bin")
    status, _, entry = ask("PUT", path, content)
    assert status == 200 and entry["path"] == "/home/user/a b/é.bin" and entry["size"] == 3_000_000
    assert ask("GET", path)[2] == content
    for range, first, last in [("bytes=5-9", 5, 10), ("bytes=-7", -7, None), ("bytes=2999990-", -10, None)]:
        status, headers, part = ask("GET", path, Range=range)
        assert status == 206 and part == content[first:last], (range, status, headers)
    assert ask("POST", sandbox + "/files/move", {"from": "a b/é.bin", "to": "c"})[0] == 200
    assert ask("POST", sandbox + "/files/directory", {"path": "d/e"})[0] == 201
    assert ask("POST", sandbox + "/files/directory", {"path": "d/e"})[0] == 409
    names = [one["path"] for one in ask("GET", sandbox + "/files?path=.&depth=2")[2]]
    assert names == [f"/home/user/{name}" for name in ["a b", "c", "d", "d/e"]], names
    assert ask("GET", sandbox + "/files/stat?path=c")[2]["owner"] == "user"
    assert ask("DELETE", sandbox + "/files?path=c")[0] == 200
    assert ask("GET", sandbox + "/files/stat?path=c")[0] == 404
    connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
    connection.request("GET", f"/v1{sandbox}/files/changes?path=d&recursive=true", None, {"X-API-Key": KEY})
    answer, text = connection.getresponse(), b""
    while b"begun" not in text:
        text += answer.read1(100)
    run(sandbox, "echo x > d/e/new; rm d/e/new")
    while b"removed" not in text:
        text += answer.read1(1000)
    connection.close()
    told = [(data["kind"], data["name"]) for kind, _, data in events(text) if kind == "change"]
    assert told[0] == ("created", "e/new") and told[-1] == ("removed", "e/new"), told
    ask("DELETE", sandbox)


def a_request_with_a_name_is_carried_out_once():
    answers = []
    body = {"metadata": {"once": "yes"}}

    def create():
        answers.append(ask("POST", "/sandboxes", body, Idempotency_Key="one"))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {answer[2]["sandbox"]["id"] for answer in answers}
    assert [answer[0] for answer in answers] == [201] * 8 and len(ids) == 1, answers
    status, _, problem = ask("POST", "/sandboxes", {}, Idempotency_Key="one")
    assert status == 409 and "Idempotency-Key" in problem["detail"], problem
    sandbox = "/sandboxes/" + ids.pop()
    for _ in range(3):
        assert run(sandbox, "echo x >> count; wc -l < count", Idempotency_Key="two")["stdout"] == "1\n"
    assert run(sandbox, "echo x >> count; wc -l < count", Idempotency_Key="three")["stdout"] == "2\n"
    # Nor is it after a pause, which its program has not outlived.
    assert ask("POST", sandbox + "/pause", {"memory": False})[0] < 300
    assert ask("POST", sandbox + "/connect", {})[0] < 300
    again = {"command": ["sh", "-c", "echo x >> count; wc -l < count"]}
    status, _, problem = ask("POST", sandbox + "/run", again, Idempotency_Key="two")
    assert status == 409 and "pause" in problem["detail"], problem
    assert run(sandbox, "wc -l < count")["stdout"] == "2\n"
    ask("DELETE", sandbox)


def mistakes_are_problems():
    sandbox = made()
    for method, path, body, expected in [
        ("POST", "/sandboxes", {"unknown": 1}, 400), ("POST", "/sandboxes", {"template": "none"}, 404),
        ("GET", "/sandboxes/none", None, 404), ("GET", "/nothing", None, 404),
        ("POST", sandbox + "/run", {"command": ["/no/such"]}, 200),
        ("POST", sandbox + "/run", {"command": []}, 400),
        ("POST", sandbox + "/run", {"command": ["true"], "directory": "/none"}, 400),
        ("GET", sandbox + "/files?path=/none", None, 404), ("PUT", sandbox + "/files/content?path=/etc/x", "x", 403),
        ("GET", sandbox + "/files", None, 400), ("DELETE", "/keys/none", None, 404),
    ]:
        status, headers, problem = ask(method, path, body)
        assert status == expected, (method, path, status, problem)
    status, headers, problem = ask("GET", "/sandboxes", key=None)
    assert status == 401 and problem["title"] == "Unauthorized" and problem["advice"], problem
    made_key = ask("POST", "/keys", {"name": "mere"})[2]
    status, _, problem = ask("GET", "/keys", key=made_key["key"])
    assert status == 403 and "administrators" in problem["detail"], problem
    assert ask("DELETE", "/keys/" + made_key["facts"]["id"])[0] == 200
    assert ask("GET", "/sandboxes", key=made_key["key"])[0] == 401
    described = ask("GET", "/openapi.json")[2]
    assert described["openapi"].startswith("3.1") and len(described["paths"]) > 15
    ask("DELETE", sandbox)


def until(seen, tries=100):
    """Returns what `seen` returns, once it is something."""
    for _ in range(tries):
        found = seen()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come")


def ports_are_listed():
    sandbox = made()
    assert ask("GET", sandbox + "/ports")[2] == []
    started(sandbox, "exec python3 -m http.server 8000")
    started(sandbox, "exec python3 -m http.server 9000 --bind 127.0.0.1")
    told = until(lambda: (all := ask("GET", sandbox + "/ports")[2]) and len(all) == 2 and all)
    assert [(one["port"], one["program"]) for one in told] == [(8000, "python3"), (9000, "python3")], told
    status, _, text = until(lambda: (got := port_of(told[0]["url"]))[0] == 200 and got)
    assert "Directory listing" in text, text
    other = made()
    assert ask("GET", other + "/ports")[2] == []
    for one in (sandbox, other):
        ask("DELETE", one)
    assert ask("GET", sandbox + "/ports")[0] == 404


def logs_tell_what_happened():
    sandbox, other = made(), made()
    run(sandbox, "exit 3")
    run(other, "echo other")
    lines = ask("GET", sandbox + "/logs")[2]["lines"]
    told = [(line["level"], line["message"]) for line in lines]
    # One that was made ahead is assigned, which is told too.
    told = [one for one in told if not one[1].startswith("sandbox assigned")]
    assert told == [
        ("info", "sandbox opened: allow"), ("info", "exec 1: sh -c exit 3"), ("info", "exec 1 ended: exited 3"),
    ], told
    ask("DELETE", sandbox)
    last = until(lambda: (all := ask("GET", sandbox + "/logs")[2]["lines"])[-1]["message"].startswith("sandbox ended") and all)
    # In parts they are the same.
    seen, start = [], 0
    while start is not None:
        part = ask("GET", f"{sandbox}/logs?limit=2&from={start}")[2]
        assert len(part["lines"]) <= 2
        seen += part["lines"]
        start = part["next"]
    assert seen == last, (seen, last)
    assert ask("GET", "/sandboxes/none/logs")[0] == 404
    ask("DELETE", other)


def sizes_are_what_was_asked_for():
    wanted = {"memory_mib": 64, "disk_mib": 40, "processes": 30}
    if "MEMORY_IS_HELD" in os.environ:
        wanted["cpus"] = 1
    sandbox = made(**wanted)
    facts = ask("GET", sandbox)[2]
    assert {name: facts[name] for name in wanted} == wanted, facts
    held = run(sandbox, "python3 -c 'bytearray(40 << 20)'; echo $?")
    assert held["stdout"] == "0\n", held
    if "MEMORY_IS_HELD" in os.environ:
        held = run(sandbox, "python3 -c 'bytearray(150 << 20)'; echo $?")
        assert held["stdout"] != "0\n", held
    forks = """import os, time
n = 0
try:
    while n < 60:
        if os.fork() == 0: time.sleep(2); os._exit(0)
        n += 1
except OSError: pass
print(n)"""
    begun = int(run(sandbox, f"exec python3 -c '{forks}'")["stdout"])
    assert 5 < begun < 30, begun
    process = started(sandbox, "exec dd if=/dev/zero of=big bs=1M count=200")
    ask("GET", process + "/output")
    told = until(lambda: (got := ask("GET", sandbox))[0] == 404 and got)
    assert "disk" in told[2]["detail"], told
    for wrong in ({"cpus": 0}, {"cpus": 10**6}, {"memory_mib": 0}, {"disk_mib": 2**60}, {"processes": 0}):
        status, _, problem = ask("POST", "/sandboxes", wrong)
        assert status == 400 and list(wrong)[0] in problem["detail"], (wrong, problem)


def sizes_change_while_it_lives():
    if "MEMORY_IS_HELD" not in os.environ:
        return
    sandbox = made(cpus=1, memory_mib=100)
    takes = "python3 -c 'bytearray(200 << 20)'; echo $?"
    assert run(sandbox, takes)["stdout"] != "0\n"
    sandbox = made(cpus=1, memory_mib=100)
    process = started(sandbox, "sleep 60")
    status, _, told = ask("PUT", sandbox + "/resources", {"cpus": 2, "memory_mib": 400})
    assert status == 200, told
    assert run(sandbox, takes)["stdout"] == "0\n"
    facts = ask("GET", sandbox)[2]
    assert (facts["cpus"], facts["memory_mib"]) == (2, 400), facts
    held = started(sandbox, "exec python3 -c 'x = bytearray(200 << 20); print(1, flush=True); input()'", input=True)
    first_output(held)
    status, _, problem = ask("PUT", sandbox + "/resources", {"memory_mib": 100})
    assert status >= 400 and "in use" in problem["detail"], problem
    assert len(ask("GET", sandbox + "/processes")[2]) == 2, process
    assert ask("PUT", sandbox + "/resources", {"memory_mib": 300})[0] == 200
    for wrong in ({"cpus": 0}, {"cpus": 999}, {"memory_mib": 0}, {"disk_mib": 5}):
        assert ask("PUT", sandbox + "/resources", wrong)[0] == 400, wrong
    kinds = [event["type"] for event in ask("GET", f"/runs/{facts['run']}/events")[2]["events"]]
    assert kinds.count("limits.changed") == 3, kinds
    ask("DELETE", sandbox)


def a_session_is_a_log_of_its_own():
    first = made(session="fix-1", metadata={"n": "1"})
    assert ask("GET", first)[2]["session"] == "fix-1"
    run(first, "true")
    status, _, noted = ask("POST", "/sessions/fix-1/notes", {"note": {"step": 1, "plan": ["a", "b"]}})
    assert status == 201, noted
    ask("DELETE", first)
    second, other = made(session="fix-1"), made(session="fix-2")
    run(second, "exit 2")
    run(other, "echo other")
    told = ask("GET", "/sessions/fix-1/events")[2]["events"]
    kinds = [event["type"] for event in told]
    assert kinds.count("run.opened") == 2 and kinds.count("exec.opened") == 2, kinds
    notes = [event for event in told if event["type"] == "session.noted"]
    assert notes[0]["number"] == noted["number"] and notes[0]["body"]["note"]["step"] == 1, notes
    assert "echo other" not in json.dumps(told)
    only = ask("GET", "/sessions/fix-1/events?type=session")[2]["events"]
    assert [event["type"] for event in only] == ["session.noted"], only
    all = {one["name"]: one for one in ask("GET", "/sessions")[2]}
    ids = ["/sandboxes/" + id for id in all["fix-1"]["sandboxes"]]
    assert ids == [first, second] and all["fix-1"]["notes"] == 1 and all["fix-2"]["notes"] == 0, all
    for name, body, expected in [
        ("no name", {"note": 1}, 400), ("x" * 41, {"note": 1}, 400), ("fix-1", {}, 400),
        ("fix-1", {"note": "x" * 70_000}, 400),
    ]:
        assert ask("POST", f"/sessions/{quote(name)}/notes", body)[0] == expected, (name, expected)
    assert ask("POST", "/sandboxes", {"session": "../x"})[0] == 400
    assert ask("GET", "/sessions/none/events")[0] == 404
    auditor = ask("POST", "/keys", {"name": "auditor", "role": "auditor"})[2]["key"]
    assert ask("POST", "/sessions/fix-1/notes", {"note": 1}, key=auditor)[0] == 403
    assert ask("GET", "/sessions", key=auditor)[0] == 200
    for one in (second, other):
        ask("DELETE", one)


class Socket:
    """A WebSocket of a client (RFC 6455)."""

    def __init__(self, path, key=KEY):
        self.stream = socket.create_connection((AT.hostname, AT.port), timeout=60)
        nonce = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall((
            f"GET /v1{path} HTTP/1.1\r\nHost: {AT.netloc}\r\nX-API-Key: {key}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n\r\n"
        ).encode())
        self.reader = self.stream.makefile("rb")
        self.status = int(self.reader.readline().split()[1])
        while self.reader.readline().strip():
            pass

    def send(self, kind, content):
        mask = os.urandom(4)
        length = len(content)
        head = bytes([0x80 | kind])
        head += bytes([0x80 | length]) if length < 126 else bytes([0xFE]) + length.to_bytes(2, "big")
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))
        self.stream.sendall(head + mask + masked)

    def input(self, content):
        self.send(2, b"\0" + content)

    def control(self, value):
        self.send(1, json.dumps(value).encode())

    def next(self):
        """Returns the next message: its kind and content; None at the end."""
        head = self.reader.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        length = head[1] & 127
        if length > 125:
            length = int.from_bytes(self.reader.read(2 if length == 126 else 8), "big")
        return head[0] & 15, self.reader.read(length)

    def told(self):
        """Reads all to the end: the output, standard error, and what was text."""
        parts = {1: b"", 2: b""}
        texts = []
        while (message := self.next()) is not None:
            kind, content = message
            if kind == 1:
                texts.append(json.loads(content))
            elif kind == 2:
                parts[content[0]] += content[1:]
        return parts[1], parts[2], texts


def programs_are_used_over_a_websocket():
    sandbox = made()
    process = started(sandbox, "cat; echo no >&2; exit 4", input=True)
    joined = Socket(process + "/socket")
    assert joined.status == 101
    block = os.urandom(40_000)
    for _ in range(20):
        joined.input(block)
    joined.control("close_input")
    out, error, texts = joined.told()
    assert out == block * 20 and error == b"no\n", (len(out), error)
    assert texts == [{"at": 0, "lost": 0}, {"end": {"exited": 4}}], texts
    again = Socket(process + "/socket?from=799990").told()
    assert again[0] == block[-10:] and again[2][0]["at"] == 799_990, again
    # A terminal, its size, a signal; and what is not understood ends nothing.
    process = started(sandbox, "stty size; read x; stty size; trap 'exit 5' USR1; echo up; sleep 60 & wait",
                      input=True, terminal={"rows": 33, "columns": 77})
    joined = Socket(process + "/socket")
    seen = b""
    while b"33 77" not in seen:
        seen += joined.next()[1]
    joined.control({"resize": {"rows": 44, "columns": 88}})
    joined.control({"nonsense": 1})
    joined.input(b"\n")
    while b"up" not in seen:
        seen += joined.next()[1]
    assert b"44 88" in seen and b"not understood" in seen, seen
    joined.control({"signal": 10})
    assert joined.told()[2][-1] == {"end": {"exited": 5}}
    assert Socket(process + "/socket", key="none").status == 401
    assert Socket(sandbox + "/processes/99999/socket").status == 404
    assert ask("GET", process + "/socket")[0] == 400
    ask("DELETE", sandbox)


CHECKS = [
    sizes_change_while_it_lives, a_session_is_a_log_of_its_own, ports_are_listed, logs_tell_what_happened, sizes_are_what_was_asked_for, programs_are_used_over_a_websocket,
    sandboxes_are_made_listed_and_ended, output_goes_on_from_an_offset,
    output_waits_for_the_first_who_follows, programs_are_fed_and_steered,
    files_are_written_read_and_watched, a_request_with_a_name_is_carried_out_once, mistakes_are_problems,
    a_link_opens_one_port_for_a_time, programs_see_no_link_and_the_host_that_is_asked_for,
    paths_are_cleaned_of_dots, the_ledger_is_read_and_proven,
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
