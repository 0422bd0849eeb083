"""Webhooks of a server, with a receiver of its own: what is delivered, signed, retried and refused,
and that nothing is lost with a server that is killed.

Reads ATOLL and CONFIG (where serve.toml goes) from the environment. Prints `ok NAME` or
`failed NAME: why` for each check, and exits 1 if one failed.
"""

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

ATOLL = os.environ["ATOLL"]
TOML = os.path.join(os.environ["CONFIG"], "atoll/serve.toml")
SECRET = "a secret of these tests"
TYPES = ["sandbox.lifecycle." + kind for kind in ("created", "updated", "killed")]
LOST = "the server had ended without ending it"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what it gets. `/fails…` refuses a delivery twice, `/held…` answers once it may."""

    got = []
    may_answer = threading.Event()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        headers["path"] = self.path
        self.got.append((headers, body))
        if self.path.startswith("/held"):
            self.may_answer.wait(60)
        tries = [one for one, _ in self.got if one["e2b-delivery-id"] == headers["e2b-delivery-id"]]
        status = 204
        if self.path.startswith("/fails") and len(tries) < 3:
            status = 500
        if self.path.startswith("/moved"):
            status = 302
        try:
            self.send_response(status)
            self.send_header("location", f"http://127.0.0.1:{PORT}/elsewhere")
            self.end_headers()
        except OSError:
            pass

    def do_GET(self):
        self.got.append(({"path": "GET " + self.path}, b""))

    def log_message(self, *_):
        pass


RECEIVER = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
PORT = RECEIVER.server_address[1]
threading.Thread(target=RECEIVER.serve_forever, daemon=True).start()


def got(path, count, within=30):
    """Waits until so many deliveries have come to a path; returns all of them."""
    for _ in range(within * 20):
        all = [one for one in list(Receiver.got) if one[0]["path"] == path]
        if len(all) >= count:
            return all
        time.sleep(0.05)
    raise AssertionError(f"{len(all)} of {count} to {path}: {all}")


class Server:
    """A server that may send to the receiver, and an administrator's key."""

    def __init__(self):
        os.makedirs(os.path.dirname(TOML), exist_ok=True)
        with open(TOML, "w") as to:
            to.write(f"webhooks = ['127.0.0.1:{PORT}']\n")
        self.key = key("administrator")
        self.process = subprocess.Popen(
            [ATOLL, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "E2B_API_URL=" in line:
                self.at = line.strip().split("//")[1]
            if "Ctrl-C" in line:
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            assert self.process.wait() == 0

    def ask(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection(self.at, timeout=120)
        body = None if body is None else json.dumps(body)
        connection.request(method, path, body, {"X-API-Key": key or self.key})
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(text) if is_json else text

    def hook(self, path, events=TYPES, **fields):
        """Makes a webhook to a path of the receiver."""
        body = {"name": "hook", "url": f"http://127.0.0.1:{PORT}{path}", "events": events,
                "signatureSecret": SECRET, **fields}
        status, made = self.ask("POST", "/events/webhooks", body)
        assert status == 201, (status, made)
        return made

    def made(self, **body):
        status, made = self.ask("POST", "/v2/sandboxes", {"templateID": "base", **body})
        assert status == 201, made
        return made["sandboxID"]

    def remove(self, hook):
        assert self.ask("DELETE", f"/events/webhooks/{hook['id']}")[0] == 200


def key(role, tenant="default"):
    create = [ATOLL, "serve", "keys", "create", "--name", role, "--role", role, "--tenant", tenant]
    return subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()


def signed(headers, body, hook):
    """Checks the headers of a delivery; returns its payload."""
    digest = hashlib.sha256(SECRET.encode() + body).digest()
    assert headers["e2b-signature"] == base64.b64encode(digest).decode().rstrip("="), headers
    assert headers["e2b-signature-version"] == "v1" and headers["e2b-webhook-id"] == hook["id"], headers
    at = headers["atoll-timestamp"]
    assert abs(int(at) - time.time()) < 60, headers
    mac = hmac.new(SECRET.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["atoll-signature"] == "v1=" + mac, headers
    assert headers["content-type"] == "application/json", headers
    return json.loads(body)


def counted(server, outcome, count):
    """Waits until so many deliveries have had an outcome."""
    for _ in range(100):
        numbers = server.ask("GET", "/metrics")[1]
        if f'atoll_webhook_deliveries_total{{outcome="{outcome}"}} {count}\n' in numbers:
            return
        time.sleep(0.05)
    raise AssertionError(numbers)


def events_are_delivered_and_signed(server):
    hook = server.hook("/ok")
    assert hook["enabled"] and hook["events"] == TYPES and hook["teamId"] == hook["teamID"] == "default", hook
    assert SECRET not in json.dumps(hook) and hook["createdAt"].endswith("Z"), hook
    only = server.hook("/only", ["sandbox.lifecycle.killed"])
    off = server.hook("/off", enabled=False)
    sandbox = server.made(metadata={"of": "test"})
    assert server.ask("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 600})[0] == 204
    assert server.ask("DELETE", f"/sandboxes/{sandbox}")[0] == 204
    all = [signed(*one, hook) for one in got("/ok", 3)]
    assert [one["type"] for one in all] == TYPES, all
    assert len({one[0]["e2b-delivery-id"] for one in got("/ok", 3)}) == 3
    for one in all:
        assert (one["version"], one["sandboxId"], one["sandboxTeamId"]) == ("v2", sandbox, "default"), one
        assert one["sandboxTemplateId"] == "base" and one["sandboxExecutionId"], one
        assert one["eventData"]["sandbox_metadata"] == {"of": "test"}, one
        assert one["timestamp"].endswith("Z") and one["id"], one
    execution = all[2]["eventData"]["execution"]
    assert execution["vcpu_count"] > 0 and execution["memory_mb"] == 1024, execution
    assert execution["execution_time"] > 0 and execution["started_at"].endswith("Z"), execution
    assert "execution" not in all[0]["eventData"], all[0]
    # The list has the same.
    listed = server.ask("GET", f"/events/sandboxes/{sandbox}?orderAsc=true")[1]
    assert listed == all, (listed, all)
    assert [signed(*one, only)["type"] for one in got("/only", 1)] == TYPES[2:]
    assert not got("/off", 0)
    counted(server, "delivered", 4)
    # What is changed holds from then on.
    other = f"http://127.0.0.1:{PORT}/changed"
    status, changed = server.ask("PATCH", f"/events/webhooks/{only['id']}", {"url": other})
    assert status == 200 and changed == {**only, "url": other}, changed
    assert server.ask("GET", f"/events/webhooks/{only['id']}")[1] == changed
    server.remove(hook)
    server.remove(off)
    assert server.ask("GET", "/events/webhooks")[1] == [changed]
    assert server.ask("DELETE", f"/sandboxes/{server.made()}")[0] == 204
    got("/changed", 1)
    assert len(got("/ok", 3)) == 3 and len(got("/only", 1)) == 1
    server.remove(only)


def one_that_fails_is_sent_again_as_the_same(server):
    hooks = [server.hook("/fails", TYPES[:1]), server.hook("/moved", TYPES[:1])]
    sandbox = server.made()
    all = got("/fails", 3, within=60)
    assert len({headers["e2b-delivery-id"] for headers, _ in all}) == 1, all
    assert len({body for _, body in all}) == 1, all
    times = [int(headers["atoll-timestamp"]) for headers, _ in all]
    assert all[0][0]["atoll-signature"] != all[2][0]["atoll-signature"], all
    assert times[1] - times[0] >= 9 and times[2] - times[1] >= 9, times
    for headers, body in all:
        signed(headers, body, hooks[0])
    # A redirect is a failure, and leads nowhere.
    got("/moved", 4, within=60)
    counted(server, "given_up", 1)
    assert not [one for one, _ in Receiver.got if "elsewhere" in one["path"]], Receiver.got
    for hook in hooks:
        server.remove(hook)
    server.ask("DELETE", f"/sandboxes/{sandbox}")


def targets_that_are_not_named_are_refused(server):
    hook = server.hook("/kept", TYPES[:1], enabled=False)
    before = len(Receiver.got)
    number = int.from_bytes(bytes([127, 0, 0, 1]), "big")
    for url, expected in [
        ("http://169.254.169.254/latest/meta-data", 403), ("https://169.254.169.254/", 403),
        (f"http://127.0.0.1:{PORT + 1}/", 403), (f"https://127.0.0.1:{PORT + 1}/", 403),
        (f"http://localhost:{PORT}/", 403), (f"https://localhost:{PORT}/", 403),
        (f"https://[::1]:{PORT}/", 403), ("https://10.0.0.1/", 403), ("https://100.64.0.1/", 403),
        ("https://[::ffff:10.0.0.1]/", 403), ("https://[64:ff9b::a9fe:a9fe]/", 403),
        ("http://93.184.216.34/", 403), ("https://93.184.216.34:22/", 403),
        (f"https://{number}:{PORT}/", 400), (f"http://0x7f000001:{PORT}/", 400),
        (f"http://127.1:{PORT}/", 400), (f"http://user@127.0.0.1:{PORT}/", 400),
        (f"http://127.0.0.1:{PORT}/#x", 400), (f"http://127.0.0.1:{PORT}/" + "a" * 2048, 400),
        ("file:///etc/passwd", 400), ("", 400),
    ]:
        body = {"name": "x", "url": url, "events": TYPES, "signatureSecret": SECRET}
        for method, path in [("POST", "/events/webhooks"), ("PATCH", f"/events/webhooks/{hook['id']}")]:
            status, told = server.ask(method, path, body)
            assert status == expected, (method, url, status, told)
            if expected == 403:
                assert "not allowed" in told["message"] and "webhooks = [" in told["message"], told
    for wrong in [{"signatureSecret": "short"}, {"signatureSecret": "x" * 257}, {"events": []},
                  {"events": ["created"]}, {"name": ""}]:
        status, told = server.ask("PATCH", f"/events/webhooks/{hook['id']}", wrong)
        assert status == 400, (wrong, told)
    url = hook["url"]
    for lacking in [{"name": "x", "url": url, "events": TYPES}, {"name": "x", "url": url}, {}]:
        assert server.ask("POST", "/events/webhooks", lacking)[0] == 400, lacking
    assert server.ask("GET", "/events/webhooks")[1] == [hook]
    further = [server.hook("/kept") for _ in range(15)]
    body = {"name": "x", "url": url, "events": TYPES, "signatureSecret": SECRET}
    assert server.ask("POST", "/events/webhooks", body)[0] == 429
    for one in [hook, *further]:
        server.remove(one)
    assert len(Receiver.got) == before, Receiver.got[before:]


def others_see_nothing(server):
    hook = server.hook("/own")
    other, user = key("administrator", "other"), key("user")
    at = f"/events/webhooks/{hook['id']}"
    assert server.ask("GET", "/events/webhooks", key=other) == (200, [])
    for method in ("GET", "PATCH", "DELETE"):
        assert server.ask(method, at, {"enabled": False}, key=other)[0] == 404, method
        assert server.ask(method, at, {"enabled": False}, key=user)[0] == 403, method
        assert server.ask(method, at, {"enabled": False}, key="e2b_none")[0] == 401, method
    assert server.ask("GET", "/events/webhooks", key=user)[0] == 403
    assert server.ask("GET", at)[1] == hook
    status, made = server.ask("POST", "/v2/sandboxes", {"templateID": "base"}, key=other)
    assert status == 201, made
    assert server.ask("DELETE", f"/sandboxes/{made['sandboxID']}", key=other)[0] == 204
    time.sleep(1)
    assert not got("/own", 0)
    server.remove(hook)


def nothing_is_lost_with_a_server_that_is_killed(server):
    hook = server.hook("/held")
    sandbox, ended = server.made(), server.made()
    assert server.ask("DELETE", f"/sandboxes/{ended}")[0] == 204
    before = got("/held", 1)
    # The receiver has one and has not answered; the others were never sent.
    server.process.kill()
    server.process.wait()
    assert len(got("/held", 1)) == len(before) == 1
    Receiver.may_answer.set()
    with Server() as server:
        all = got("/held", 5)
        told = [(payload["sandboxId"], payload["type"]) for payload in (signed(*one, hook) for one in all)]
        first = (sandbox, TYPES[0])
        assert told[:2] == [first, first], told
        assert all[0][0]["e2b-delivery-id"] == all[1][0]["e2b-delivery-id"], all
        assert sorted(told[2:]) == sorted([(ended, TYPES[0]), (ended, TYPES[2]), (sandbox, TYPES[2])]), told
        last = [json.loads(body) for _, body in all if json.loads(body)["type"] == TYPES[2]]
        assert [one["eventData"]["why"] for one in last if one["sandboxId"] == sandbox] == [LOST], last
        listed = server.ask("GET", f"/v1/events?sandbox={sandbox}")[1]
        assert [one["kind"] for one in listed] == ["killed", "created"], listed
        assert listed[0]["facts"]["why"] == LOST, listed
        # A second one would not know which sandboxes live.
        second = subprocess.run([ATOLL, "serve", "--listen", "127.0.0.1:0"], capture_output=True, text=True)
        assert second.returncode == 125 and "another server" in second.stderr, second
    # One that ends as it should leaves nothing to tell, and has told what came at its end.
    with Server() as server:
        last = server.made()
    assert [json.loads(body)["type"] for _, body in got("/held", 7)
            if json.loads(body)["sandboxId"] == last] == [TYPES[0], TYPES[2]]
    with Server() as server:
        listed = server.ask("GET", f"/v1/events?sandbox={last}")[1]
        assert [one["kind"] for one in listed] == ["killed", "created"], listed
        time.sleep(1)
        assert len(got("/held", 7)) == 7
        server.remove(hook)


CHECKS = [
    events_are_delivered_and_signed, one_that_fails_is_sent_again_as_the_same,
    targets_that_are_not_named_are_refused, others_see_nothing,
    nothing_is_lost_with_a_server_that_is_killed,
]


def main():
    wanted, failed = sys.argv[1:], False
    for check in CHECKS:
        if wanted and check.__name__ not in wanted:
            continue
        try:
            with Server() as server:
                check(server)
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}"[:900], flush=True)
    sys.exit(failed)


main()
