"""Policies that decide by who calls a server and for whom, on a small internet: creates, execs and
requests, each with one that is allowed beside it; and sandboxes and execs that wait for an approver.

Usage: policies.py CHECK... Reads ATOLL and CONFIG (where policies go) from the environment. Prints
`ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import contextlib
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
CONFIG = os.path.join(os.environ["CONFIG"], "atoll")


def key(name, tenant="team-a", role="user"):
    create = [ATOLL, "serve", "keys", "create", "--name", name, "--tenant", tenant, "--role", role]
    return subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()


class Server:
    """A server of sandboxes with the internet, under these policies."""

    def __init__(self, policies):
        os.makedirs(CONFIG, exist_ok=True)
        with open(os.path.join(CONFIG, "own.cedar"), "w") as to:
            to.write(policies)
        key("first")
        self.process = subprocess.Popen(
            [ATOLL, "serve", "--listen", "127.0.0.1:0", "--network", "internet"],
            stdout=subprocess.PIPE, text=True)
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

    def ask(self, key, method, path, body=None):
        with contextlib.closing(http.client.HTTPConnection(self.at, timeout=200)) as connection:
            body = None if body is None else json.dumps(body)
            connection.request(method, "/v1" + path, body, {"X-API-Key": key})
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

    def make(self, key, **notes):
        return self.ask(key, "POST", "/sandboxes", {"metadata": notes})

    def made(self, key, **notes):
        status, told = self.make(key, **notes)
        assert status == 201, told
        return told["sandbox"]["id"]

    def run(self, key, sandbox, *command):
        return self.ask(key, "POST", f"/sandboxes/{sandbox}/run", {"command": command})


def is_denied(answer, policy):
    status, told = answer
    assert status == 403 and policy in json.dumps(told), answer


def is_run(answer):
    status, told = answer
    assert status == 200 and told["exit"] == 0, answer
    return told["stdout"]


FACTS = """
@id("b-makes-none-for-ml") forbid(principal, action == Action::"run", resource)
when { context has served && context.served.tenant == "team-b"
    && context.served.metadata.contains("team=ml") };
@id("b-asks-not-who-it-is") forbid(principal, action == Action::"exec", resource in Program::"id")
when { context has served && context.served.tenant == "team-b" };
@id("guest-asks-not-where") forbid(principal, action == Action::"exec", resource in Program::"uname")
when { context has served.caller && context.served.caller == "guest" };
@id("b-reads-no-example") forbid(principal, action == Action::"request", resource == Host::"example.com")
when { context has served && context.served.tenant == "team-b" };
"""


def who_calls_and_for_whom_is_known():
    one, guest, other = key("maker"), key("guest"), key("maker", "team-b")
    with Server(FACTS) as server:
        # Made: by tenant and by what the caller notes.
        is_denied(server.make(other, team="ml"), "b-makes-none-for-ml")
        own, others = server.made(one, team="ml"), server.made(other, team="web")
        # Executed: by tenant, and by who starts it in a sandbox that another one has made.
        is_denied(server.run(other, others, "id"), "b-asks-not-who-it-is")
        assert "user" in is_run(server.run(one, own, "id"))
        is_run(server.run(other, others, "uname"))
        is_denied(server.run(guest, own, "uname"), "guest-asks-not-where")
        is_run(server.run(one, own, "uname"))
        # Requested: in the process that carries connections.
        curl = ["curl", "-sS", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}"]
        get = lambda key, sandbox, host: is_run(server.run(key, sandbox, *curl, f"http://{host}/"))
        assert get(one, own, "example.com") == "200"
        assert get(other, others, "example.com") == "403"
        assert get(other, others, "other.example") == "200"


ASK = """
permit(principal, action == Action::"run", resource);
@id("ml-asks") @approve("person") permit(principal, action == Action::"run", resource)
when { context has served && context.served.metadata.contains("team=ml") };
permit(principal, action == Action::"exec", resource);
@id("id-asks") @approve("person") permit(principal, action == Action::"exec", resource in Program::"id")
when { context has served && context.served.tenant == "team-a" };
"""


def decided(server, approver, work, grant, others):
    """Returns the answer of `work` once what it asks about was decided, and what that was."""
    got = []
    waits = threading.Thread(target=lambda: got.append(work()))
    waits.start()
    for _ in range(300):
        status, waiting = server.ask(approver, "GET", "/approvals")
        if waiting:
            break
        time.sleep(0.1)
    assert (status, len(waiting)) == (200, 1) and not got, (waiting, got)
    one = waiting[0]
    at = f"/sandboxes/{one['sandbox']}/approvals/{one['approval']}"
    decision = {"digest": one["digest"], "grant": grant}
    # Neither who asks nor another tenant's approver, and nothing but what was shown.
    for key in others:
        assert server.ask(key, "POST", at, decision)[0] in (403, 404)
    wrong = {"digest": "0" * len(one["digest"]), "grant": True}
    assert server.ask(approver, "POST", at, wrong)[0] == 400
    lasting = {"digest": one["digest"], "grant": True, "lasting": True}
    assert server.ask(approver, "POST", at, lasting)[0] == 400
    assert not got
    status, told = server.ask(approver, "POST", at, decision)
    assert status == 200, told
    waits.join()
    return got[0], one


def sandboxes_and_execs_wait_for_an_approver():
    user, approver = key("asks"), key("approves", role="approver")
    others = [user, key("approves", "team-b", "approver")]
    with Server(ASK) as server:
        own = server.made(user)
        # The control: what no policy asks about waits for nobody.
        is_run(server.run(user, own, "uname"))
        work = lambda: server.run(user, own, "id")
        answer, one = decided(server, approver, work, True, others)
        assert "user" in is_run(answer)
        assert one["call"]["action"] == "exec" and one["call"]["caller"] == "asks", one
        assert one["call"]["request"]["command"] == ["id"], one
        # An approval is for once.
        answer, _ = decided(server, approver, work, False, others)
        is_denied(answer, "id-asks")
        assert "role approver" in json.dumps(answer), answer
        make = lambda: server.make(user, team="ml")
        (status, told), one = decided(server, approver, make, True, others)
        assert status == 201 and told["sandbox"]["id"] == one["sandbox"], told
        is_run(server.run(user, one["sandbox"], "uname"))
        answer, _ = decided(server, approver, make, False, others)
        is_denied(answer, "ml-asks")
        run = server.ask(user, "GET", f"/sandboxes/{own}")[1]["run"]
        _, told = server.ask(user, "GET", f"/runs/{run}/events")
        kinds = [one["type"] for one in told["events"]]
        assert kinds.count("approval.asked") == 2, kinds
        assert kinds.count("approval.granted") == kinds.count("approval.denied") == 1, kinds
        # Nothing is opened before there is an answer, and what was denied is on record.
        assert kinds.count("exec.opened") == 3 and kinds.count("exec.denied") == 1, kinds


failed = False
CHECKS = [who_calls_and_for_whom_is_known, sandboxes_and_execs_wait_for_an_approver]
for check in [one for one in CHECKS if one.__name__ in sys.argv]:
    try:
        check()
        print("ok", check.__name__, flush=True)
    except Exception as error:
        failed = True
        traceback.print_exc()
        print(f"failed {check.__name__}: {error!r}"[:600], flush=True)
sys.exit(failed)
