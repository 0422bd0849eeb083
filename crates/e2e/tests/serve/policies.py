"""Policies that decide by who calls a server and for whom, on a small internet: creates, execs and
requests, each with one that is allowed beside it.

Reads ATOLL and CONFIG (where policies go) from the environment. Prints `ok NAME` or
`failed NAME: why` for each check, and exits 1 if one failed.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
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


failed = False
for check in [who_calls_and_for_whom_is_known]:
    try:
        check()
        print("ok", check.__name__, flush=True)
    except Exception as error:
        failed = True
        traceback.print_exc()
        print(f"failed {check.__name__}: {error!r}"[:600], flush=True)
sys.exit(failed)
