"""A server that a test starts itself, and the checks of it.

Reads ATOLL, CONFIG, STATE and the environment that the server begins with.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from urllib.parse import urlsplit

CONFIG = os.path.join(os.environ["CONFIG"], "atoll")
CHECKS = []


def check(function):
    """Registers a check."""
    CHECKS.append(function)
    return function


def key(name, tenant="default"):
    """Makes a key."""
    create = [os.environ["ATOLL"], "serve", "keys", "create", "--name", name, "--tenant", tenant]
    create += ["--role", "administrator"]
    return subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()


class Server:
    """A server under these policies, and what it is asked by the caller `maker`."""

    def __init__(self, policies="", toml=""):
        os.makedirs(CONFIG, exist_ok=True)
        for name, text in (("own.cedar", policies), ("serve.toml", 'network = "closed"\n' + toml)):
            with open(os.path.join(CONFIG, name), "w") as file:
                file.write(text)
        self.key = key("maker")
        self.process = subprocess.Popen(
            [os.environ["ATOLL"], "serve", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = ""
        while "Ctrl-C" not in told:
            line = self.process.stdout.readline()
            assert line, told
            told += line
        url = re.search(r"E2B_API_URL=(\S+)", told)[1]
        self.at = urlsplit(url)
        os.environ.update(E2B_API_URL=url, E2B_SANDBOX_URL=url, E2B_API_KEY=self.key)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait() == 0

    def ask(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=60)
        body = None if body is None else json.dumps(body)
        connection.request(method, path, body, {"X-API-Key": key or self.key})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if text[:1] in ("{", "[") else text

    def number(self, name):
        """Returns one of the server's numbers."""
        told = self.ask("GET", "/metrics")[1]
        return int(re.search(rf"^atoll_sandboxes_{name} (\d+)$", told, re.M)[1])

    def until_warm(self, count):
        """Waits until so many are ready."""
        until = time.monotonic() + 90
        while self.number("warm") != count:
            assert time.monotonic() < until, f"{self.number('warm')} are warm, not {count}"
            time.sleep(0.1)

    def made_ahead(self, make):
        """Makes a sandbox; returns whether it was one made ahead, and what it is."""
        before = self.number("assigned_total")
        made = make()
        return self.number("assigned_total") > before, made

    def events(self, sandbox, kind=None):
        """Returns the events of a sandbox's run."""
        _, told = self.ask("GET", f"/v1/sandboxes/{sandbox}")
        _, told = self.ask("GET", f"/v1/runs/{told['run']}/events")
        return [one["body"] for one in told["events"] if kind in (None, one["type"])]


def out(box, script):
    """Runs a shell script in a sandbox."""
    return box.commands.run(script).stdout


def run_all():
    """Runs the checks, or those that are named; prints `ok NAME` or `failed NAME: why`, and exits."""
    failed = False
    for one in [one for one in CHECKS if len(sys.argv) < 2 or one.__name__ in sys.argv]:
        try:
            one()
            print("ok", one.__name__, flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {one.__name__}: {error!r}"[:800], flush=True)
    sys.exit(failed)
