"""One tenant takes all that it can, of everything; another one notices nothing.

Reads URL, KEY, OTHER_KEY and SERVER, the server's process, from the environment. The server may have
few descriptors. Prints `ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import http.client
import json
import os
import re
import select
import socket
import sys
import time
import traceback
from urllib.parse import urlsplit

AT = urlsplit(os.environ["URL"])
MANY = 1000
# Connections that are kept open.
KEPT = []


class Tenant:
    def __init__(self, key):
        self.key = key

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(AT.hostname, AT.port, timeout=60)
        sent = {"X-API-Key": self.key} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, json.dumps(body) if body is not None else None, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text

    def made(self):
        status, told = self.ask("POST", "/v1/sandboxes", {})
        assert status == 201, told
        return told["sandbox"]["id"], told["token"]

    def run(self, id, script, **headers):
        ask = {"command": ["sh", "-c", script]}
        status, told = self.ask("POST", f"/v1/sandboxes/{id}/run", ask, **headers)
        assert status == 200, (status, told)
        return told["stdout"]

    def held(self, method, path, body=b"", length=None, **headers):
        """Makes a request of which no end comes; returns its status, or None where none comes."""
        connection = socket.create_connection((AT.hostname, AT.port), timeout=60)
        names = {"Host": "a", "X-API-Key": self.key, "Content-Length": len(body) if length is None else length}
        names |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        KEPT.append(connection)
        return connection


HOG, OTHER = Tenant(os.environ["KEY"]), Tenant(os.environ["OTHER_KEY"])
SANDBOX, TOKEN = HOG.made()
OLD, _ = OTHER.made()


def others_notice_nothing():
    assert OTHER.run(OLD, "echo there") == "there\n"
    id, _ = OTHER.made()
    assert OTHER.run(id, "echo new") == "new\n"
    assert OTHER.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def until_refused(take):
    """Takes one after the other until that is refused: clearly, and for this tenant alone."""
    for number in range(MANY):
        status, told = take(number)
        if status == 429:
            text = told.get("detail") or told.get("message")
            assert "tenant" in text, told
            others_notice_nothing()
            return number
        assert status < 300, (number, status, told)
    raise AssertionError(f"{MANY} were not refused")


def opened(connection):
    """Returns the status of a stream that has begun, and its text where it is a refusal."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, json.loads(answer.read()) if answer.status >= 300 else None


def close_all():
    for connection in KEPT:
        connection.close()
    KEPT.clear()


def descriptors():
    return len(os.listdir(f"/proc/{os.environ['SERVER']}/fd"))


def execs_that_have_ended_take_nothing():
    HOG.run(SANDBOX, "true")
    others_notice_nothing()
    for number in range(150):
        HOG.run(SANDBOX, "true")
        HOG.run(SANDBOX, "echo kept", Idempotency_Key=f"name-{number}")
    others_notice_nothing()
    # Their outcome is still there.
    assert HOG.run(SANDBOX, "echo kept", Idempotency_Key="name-0") == "kept\n"


def programs_have_a_share():
    def start(number):
        return HOG.ask("POST", f"/v1/sandboxes/{SANDBOX}/processes", {"command": ["sleep", "1000"]})

    until_refused(start)
    status, told = HOG.ask("POST", f"/v1/sandboxes/{SANDBOX}/run", {"command": ["true"]})
    assert status == 429 and "advice" in told, (status, told)
    # Ending one makes room.
    first = HOG.ask("GET", f"/v1/sandboxes/{SANDBOX}/processes")[1][0]["pid"]
    status, told = HOG.ask("POST", f"/v1/sandboxes/{SANDBOX}/processes/{first}/signal", {"number": 9})
    assert status == 200, told


def terminals_have_a_share():
    def start(number):
        terminal = {"rows": 20, "columns": 80}
        ask = {"command": ["sleep", "1000"], "terminal": terminal}
        return HOG.ask("POST", f"/v1/sandboxes/{SANDBOX}/processes", ask)

    until_refused(start)


DEAF = """
import socket
server = socket.create_server(("", 8000))
kept = []
while True:
    kept.append(server.accept())
"""


def visitors_of_a_port_take_no_place_of_a_key():
    ask = {"command": ["python3", "-c", DEAF]}
    pid = HOG.ask("POST", f"/v1/sandboxes/{SANDBOX}/processes", ask)[1]["pid"]
    while 8000 not in {one["port"] for one in HOG.ask("GET", f"/v1/sandboxes/{SANDBOX}/ports")[1]}:
        pass
    before, visitor = descriptors(), Tenant("")
    for _ in range(100):
        visitor.held("GET", "/", Host=f"8000-{SANDBOX}.localhost")
    # Those beyond its places are told.
    refused = select.select(KEPT, [], [], 60)[0]
    assert refused and opened(refused[0])[0] == 429
    assert HOG.run(SANDBOX, "echo there") == "there\n"
    assert HOG.ask("GET", "/v1/sandboxes")[0] == 200
    close_all()
    # The program still has them all; a few are of other things meanwhile.
    end = time.monotonic() + 60
    while descriptors() > before + 10:
        assert time.monotonic() < end, (descriptors(), before)
        time.sleep(0.1)
    HOG.ask("POST", f"/v1/sandboxes/{SANDBOX}/processes/{pid}/signal", {"number": 9})


def requests_that_wait_leave_places_to_look_and_to_end():
    id, _ = HOG.made()
    pid = HOG.ask("POST", f"/v1/sandboxes/{id}/processes", {"command": ["sleep", "1000"]})[1]["pid"]
    for _ in range(100):
        HOG.held("GET", f"/v1/sandboxes/{id}/processes/{pid}/output")
    assert HOG.ask("POST", f"/v1/sandboxes/{id}/run", {"command": ["true"]})[0] == 429
    assert HOG.ask("GET", "/v1/sandboxes")[0] == 200
    assert HOG.ask("GET", f"/v1/sandboxes/{id}")[0] == 200
    assert HOG.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
    close_all()


def stalled_uploads_are_given_up():
    for number in range(3):
        HOG.held("PUT", f"/v1/sandboxes/{SANDBOX}/files/content?path=stalled", b"begin", 100)
        signed = {"E2b_Sandbox_Id": SANDBOX, "X_Access_Token": TOKEN}
        HOG.held("POST", "/files?path=stalled", b"begin", 100, **signed)
        form = {"Content_Type": "multipart/form-data; boundary=x"}
        HOG.held("POST", "/files?path=stalled", b"--x\r\nContent-Dispo", 100, **signed, **form)
    for connection in KEPT:
        connection.settimeout(120)
        status, told = opened(connection)
        # Of a part's head, whichever of two times is over first.
        why = "nothing of the body|head of a part did not come"
        assert status == 504 and re.search(why, json.dumps(told)), (status, told)
    close_all()


def watchers_have_a_share():
    def watch(number):
        of = {"E2b_Sandbox_Id": SANDBOX, "X_Access_Token": TOKEN, "Content_Type": "application/json"}
        return HOG.ask("POST", "/filesystem.Filesystem/CreateWatcher", {"path": "/home/user"}, **of)

    until_refused(watch)


def uploads_have_a_share():
    for number in range(100):
        path = f"/v1/sandboxes/{SANDBOX}/files/content?path=stalled{number}"
        HOG.held("PUT", path, b"begin", 100)
    # Of those that are taken nothing comes.
    answered = select.select(KEPT, [], [], 60)[0]
    status, told = opened(answered[0])
    assert status == 429 and "tenant" in told["detail"] and "advice" in told, (status, told)
    others_notice_nothing()
    close_all()


def follows_have_a_share():
    pid = HOG.ask("GET", f"/v1/sandboxes/{SANDBOX}/processes")[1][-1]["pid"]

    def follow(number):
        return opened(HOG.held("GET", f"/v1/sandboxes/{SANDBOX}/processes/{pid}/output"))

    until_refused(follow)


def sandboxes_have_a_share():
    # Room for a few requests.
    for connection in KEPT[:4]:
        connection.close()
    end = time.monotonic() + 30

    def make(number):
        status, told = HOG.ask("POST", "/v1/sandboxes", {})
        # What was closed just now may still be counted.
        while status == 429 and "as many requests" in told["detail"] and time.monotonic() < end:
            status, told = HOG.ask("POST", "/v1/sandboxes", {})
        return status, told

    assert until_refused(make) > 5


def others_live_on_beside_all_that():
    before = descriptors()
    for _ in range(10):
        others_notice_nothing()
    assert OTHER.ask("GET", f"/v1/sandboxes/{OLD}")[1]["state"] == "running"
    limit = next(line for line in open(f"/proc/{os.environ['SERVER']}/limits") if "open files" in line)
    most = int(limit.split()[3])
    assert before < most, (before, most)
    print(f"{before} of {most} descriptors", file=sys.stderr)


CHECKS = [
    visitors_of_a_port_take_no_place_of_a_key,
    requests_that_wait_leave_places_to_look_and_to_end,
    execs_that_have_ended_take_nothing,
    uploads_have_a_share,
    watchers_have_a_share,
    terminals_have_a_share,
    programs_have_a_share,
    follows_have_a_share,
    sandboxes_have_a_share,
    others_live_on_beside_all_that,
]


def main():
    failed = 0
    for check in [stalled_uploads_are_given_up] if "STALLED" in os.environ else CHECKS:
        try:
            check()
            print(f"ok {check.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"failed {check.__name__}: {traceback.format_exc()}", flush=True)
    sys.exit(1 if failed else 0)


main()
