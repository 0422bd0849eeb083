"""What served sandboxes reach, on a small internet: as the word for the network says, and no more;
and a call that waits for an approver.

Reads ATOLL and CONFIG (where serve.toml goes) from the environment. Prints `ok NAME` or
`failed NAME: why` for each check, and exits 1 if one failed.
"""

import http.client
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


class Server:
    """A server with this serve.toml, and an administrator's key."""

    def __init__(self, toml):
        os.makedirs(os.path.dirname(TOML), exist_ok=True)
        with open(TOML, "w") as to:
            to.write(toml)
        self.key = keys("administrator")
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
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait() == 0

    def ask(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection(self.at, timeout=120)
        body = None if body is None else json.dumps(body)
        connection.request(method, "/v1" + path, body, {"X-API-Key": key or self.key})
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = "json" in answer.headers["Content-Type"]
        return answer.status, json.loads(text) if is_json else text

    def made(self, **body):
        status, told = self.ask("POST", "/sandboxes", body)
        assert status == 201, told
        return told["sandbox"]

    def curl(self, sandbox, url):
        """Returns the status that a program in it gets, `000` for none."""
        command = ["curl", "-sS", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}", url]
        status, ran = self.ask("POST", f"/sandboxes/{sandbox['id']}/run", {"command": command})
        assert status == 200, ran
        return ran["stdout"]


def keys(role):
    create = [ATOLL, "serve", "keys", "create", "--name", role, "--role", role]
    return subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()


PRIVATE = ["http://10.1.2.3/", "http://169.254.169.254/", "http://private.example/",
           "http://metadata.example/", "http://mixed.example/", "http://mapped.example/"]


def a_closed_one_reaches_nothing():
    with Server("") as server:
        sandbox = server.made()
        for url in ["http://example.com/", "http://93.184.216.34/", *PRIVATE]:
            assert server.curl(sandbox, url) == "000", url


def an_open_one_reaches_public_addresses_alone():
    with Server("network = 'internet'\n") as server:
        sandbox = server.made()
        assert server.curl(sandbox, "http://example.com/") == "200"
        assert server.curl(sandbox, "http://93.184.216.35/") == "200"
        for url in PRIVATE:
            assert server.curl(sandbox, url) in ("000", "403", "502"), url
        closed = server.made(network={"internet": False})
        assert server.curl(closed, "http://example.com/") == "000"
        named = server.made(network={"allow": ["example.com"], "deny": ["0.0.0.0/0"]})
        assert server.curl(named, "http://example.com/") == "200"
        assert server.curl(named, "http://other.example/") in ("000", "403")
        # Each connection is on record, and of this tenant.
        _, told = server.ask("GET", f"/runs/{sandbox['run']}/events?type=flow.opened")
        hosts = [event["body"]["host"] for event in told["events"]]
        assert "example.com" in hosts, told


def one_of_registries_reaches_these_to_read():
    with Server("network = 'registries'\n") as server:
        sandbox = server.made()
        for url in ["http://example.com/", "http://93.184.216.35/", *PRIVATE]:
            assert server.curl(sandbox, url) in ("000", "403"), url
        status, ran = server.ask("POST", f"/sandboxes/{sandbox['id']}/run", {
            "command": ["curl", "-sS", "-m", "30", "-d", "x", "-o", "/dev/null", "-w", "%{http_code}",
                        "https://pypi.org/simple/"]})
        assert ran["stdout"] in ("000", "403"), ran


def a_call_waits_for_an_approver():
    with Server("network = 'registries'\nask = ['example.com']\n") as server:
        approver, user, auditor = keys("approver"), keys("user"), keys("auditor")
        sandbox = server.made()
        for path, grant, expected in [("/a", True, "200"), ("/b", False, "403")]:
            got = []
            work = lambda: got.append(server.curl(sandbox, "http://example.com" + path))
            waits = threading.Thread(target=work)
            waits.start()
            for _ in range(300):
                status, waiting = server.ask("GET", "/approvals", key=approver)
                if waiting:
                    break
                time.sleep(0.1)
            assert (status, len(waiting)) == (200, 1), waiting
            one = waiting[0]
            assert one["sandbox"] == sandbox["id"] and one["call"]["host"] == "example.com", one
            at = f"/sandboxes/{sandbox['id']}/approvals/{one['approval']}"
            decision = {"digest": one["digest"], "grant": grant}
            # Who makes a request does not approve it, and nothing but what was shown is approved.
            assert server.ask("POST", at, decision, key=user)[0] in (403, 404)
            assert server.ask("POST", at, decision, key=auditor)[0] in (403, 404)
            wrong = {"digest": "0" * len(one["digest"]), "grant": True}
            assert server.ask("POST", at, wrong, key=approver)[0] != 200
            assert not got
            status, told = server.ask("POST", at, decision, key=approver)
            assert status == 200, told
            waits.join()
            assert got == [expected], got
        _, told = server.ask("GET", f"/runs/{sandbox['run']}/events?type=approval")
        kinds = [event["type"] for event in told["events"]]
        assert kinds.count("approval.granted") == kinds.count("approval.denied") == 1, kinds
        callers = [event["body"]["caller"] for event in told["events"] if event["type"] == "approval.caller"]
        assert callers and set(callers) == {"approver"}, told
        assert server.ask("GET", "/approvals", key=user)[0] == 403
        assert server.ask("GET", "/approvals", key=auditor)[0] == 403


def the_network_of_a_living_one_is_replaced():
    with Server("network = 'internet'\n") as server:
        sandbox = server.made()

        def put(sandbox, body):
            connection = http.client.HTTPConnection(server.at, timeout=60)
            path = f"/sandboxes/{sandbox['id']}/network"
            connection.request("PUT", path, json.dumps(body), {"X-API-Key": server.key})
            answer = connection.getresponse()
            return answer.status, answer.read()

        one, other = "http://example.com/", "http://other.example/"
        for body, expected in [
            ({"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}, ("200", "403")),
            ({"allow_internet_access": False}, ("403", "403")),
            ({}, ("200", "200")),
            ({"allowOut": ["other.example"], "denyOut": ["0.0.0.0/0"]}, ("403", "200")),
        ]:
            status, told = put(sandbox, body)
            assert status == 204, told
            got = server.curl(sandbox, one), server.curl(sandbox, other)
            closed = tuple("403" if code == "000" else code for code in got)
            assert closed == expected, (body, got)
            for url in PRIVATE:
                assert server.curl(sandbox, url) in ("000", "403", "502"), url
        # A program that goes on is held to it too.
        command = ["sh", "-c", "while sleep 0.1; do curl -s -m 5 -o /dev/null -w '%{http_code}\\n' "
                   "http://other.example/ >> log; done"]
        status, _ = server.ask("POST", f"/sandboxes/{sandbox['id']}/processes", {"command": command})
        assert status == 201
        time.sleep(1)
        assert put(sandbox, {"allow_internet_access": False})[0] == 204
        run = lambda *words: server.ask(
            "POST", f"/sandboxes/{sandbox['id']}/run", {"command": list(words)})[1]["stdout"]
        before = run("sh", "-c", "wc -l < log; grep -c 200 log")
        time.sleep(2)
        lines = [int(one) for one in before.split()] + [int(run("grep", "-c", "200", "log"))]
        assert lines[1] > 0 and lines[2] <= lines[1] + 1, lines
        _, told = server.ask("GET", f"/runs/{sandbox['run']}/events?type=network.replaced")
        assert [one["body"]["caller"] for one in told["events"]] == ["administrator"] * 5, told
        # A refusal by policies is on record, and changes nothing.
        own = os.path.join(os.environ["CONFIG"], "atoll", "own.cedar")
        with open(own, "w") as file:
            file.write('forbid(principal, action == Action::"run", resource);')
        status, told = put(sandbox, {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]})
        os.remove(own)
        assert status == 403 and b"own.cedar" in told, (status, told)
        assert server.curl(sandbox, one) in ("403", "000")
        _, told = server.ask("GET", f"/runs/{sandbox['run']}/events?type=network.refused")
        bodies = [one["body"] for one in told["events"]]
        assert [(one["verdict"], one["caller"]) for one in bodies] == [("deny", "administrator")], told
        assert bodies[0]["wanted"]["allow"], told
        closed = server.made(network={"internet": False})
        status, told = put(closed, {})
        assert status in (403, 503) and b"without a network" in told, told
        assert put(sandbox, {"dnsServers": ["1.1.1.1"]})[0] == 403
        assert put({"id": "i" + "0" * 20}, {})[0] == 404


failed = False
for check in [a_closed_one_reaches_nothing, an_open_one_reaches_public_addresses_alone,
              one_of_registries_reaches_these_to_read, a_call_waits_for_an_approver,
              the_network_of_a_living_one_is_replaced]:
    try:
        check()
        print("ok", check.__name__, flush=True)
    except Exception as error:
        failed = True
        traceback.print_exc()
        print(f"failed {check.__name__}: {error!r}"[:600], flush=True)
sys.exit(failed)
