"""A person outside a run that asks: starts it, answers it, and prints what came of that.

Arguments: the state directory, the options of the run as one text, the program's script, and
the name of a scene below."""

import glob
import json
import os
import shlex
import socket
import subprocess
import sys
import time

STATE, OPTIONS, SCRIPT, SCENE = sys.argv[1:5]
ATOLL = os.environ["ATOLL"]


def atoll(*words):
    done = subprocess.run([ATOLL, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def pending():
    status, out, error = atoll("approvals", "list", "--json")
    assert status == 0, error
    return [(run["run"], one) for run in json.loads(out) for one in run["pending"]]


def leases():
    return [one for run in json.loads(atoll("approvals", "list", "--json")[1]) for one in run["leases"]]


def until(what, condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"never: {what}")


def asked(path):
    """The name and the content of the question about a path."""
    def find():
        for run, one in pending():
            if one["call"].get("request", {}).get("path") == path:
                return f"{run}.{one['approval']}", one
    return until(path, find)


def say(*words):
    print(*words, flush=True)


def answered():
    name, one = asked("/a")
    body = one["call"]["request"]["body"]
    say("asked", one["call"]["host"], one["call"]["request"]["method"], body["bytes"], body["beginning"])
    status, text, _ = atoll("approvals", "show", name)
    say("shown", status, 'body begins: "first' in text, "credentials: " in text)
    say("another digest", atoll("approvals", "grant", name, "--digest", "0" * 64)[0])
    say("reached before", reached())
    # Two answers at once: one counts.
    both = [subprocess.Popen([ATOLL, "approvals", "grant", name], stderr=subprocess.PIPE) for _ in range(2)]
    statuses = sorted(one.wait() for one in both)
    errors = b"".join(one.stderr.read() for one in both)
    say("granted", statuses, b"already" in errors or b"no question" in errors or b"is open" in errors)
    name, _ = asked("/denied")
    say("denied", atoll("approvals", "deny", name)[0], atoll("approvals", "grant", name)[0])
    name, _ = asked("/lease")
    say("for longer", atoll("approvals", "grant", name, "--for", "10m")[0])
    until("it is used", lambda: [one for one in leases() if one["uses"] == 3])
    say("revoked", atoll("approvals", "revoke", name)[0], atoll("approvals", "revoke", name)[0], leases())
    open("revoked", "w").close()
    left, _ = asked("/lease")
    until("who left is not asked for", lambda: left not in [f"{run}.{one['approval']}" for run, one in pending()])
    name, one = asked("/last")
    say("number", name.rsplit(".", 1)[1] == str(one["approval"]))
    say("by its number", atoll("approvals", "grant", str(one["approval"]))[0])


def reached():
    with open(os.path.join(os.environ["INTERNET"], "first")) as file:
        return "POST /a" in file.read()


def itself():
    """The program tries to answer itself; then somebody who may asks the same."""
    name, one = asked("/a")
    until("the program has tried", lambda: os.path.exists("tried"))
    say("still waits", [one["approval"] for _, one in pending()])
    run, number = name.rsplit(".", 1)
    question = {"v": 1, "said": {"approval": {"approval": int(number)}}}
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(glob.glob(f"{STATE}/control/{run}.sock")[0])
        line.sendall(json.dumps(question).encode() + b"\n")
        say("the control", b'"host":"example.com"' in line.makefile("rb").read())
    say("denied", atoll("approvals", "deny", name)[0])


def ended():
    name, _ = asked("/a")
    say("stopped", atoll("approvals", "deny", name, "--stop")[0])


def copied():
    """Of two calls that differ in a header a yes to one is none to the other."""
    end = time.monotonic() + 60
    names = {}
    while len(names) < 2 and time.monotonic() < end:
        for run, one in pending():
            name = f"{run}.{one['approval']}"
            shown = json.loads(atoll("approvals", "show", name, "--json")[1])["pending"]["call"]["request"]
            names[shown["telling_headers"][-1]["value"]] = name
        time.sleep(0.05)
    say("asked", sorted(names))
    text = atoll("approvals", "show", names["/a/private"])[1]
    say("shown", 'header: x-amz-copy-source: "/a/private"' in text)
    say("granted", atoll("approvals", "grant", names["/a/public"], "--run")[0])
    say("denied", atoll("approvals", "deny", names["/a/private"])[0])


def later():
    """A yes comes when policies allow it no more."""
    name, _ = asked("/later")
    while time.time() < float(os.environ["UNTIL"]) + 1:
        time.sleep(0.2)
    say("granted", atoll("approvals", "grant", name)[0])


def bound():
    """What goes out with a credential in its body is asked about without it."""
    name, one = asked("/v1/put")
    shown = atoll("approvals", "show", name)[1] + atoll("approvals", "list", "--json")[1]
    say("hidden", os.environ["GITHUB_TOKEN"] not in shown, shown.count("client_secret=ghp_") == 2)
    say("named", one["call"]["credentials"])
    say("granted", atoll("approvals", "grant", name)[0])


def credential():
    """What a credential is put into waits, and nothing else; a lease is for the same."""
    name, one = asked("/v1/first")
    say("named", one["call"]["credentials"], "policy uses" in one["call"]["rule"])
    say("alone", len(pending()))
    say("granted", atoll("approvals", "grant", name, "--for", "10m")[0])
    name, _ = asked("/v1/second")
    say("used", [one["uses"] for one in leases()])
    say("denied", atoll("approvals", "deny", name)[0])


def unasked():
    """Nobody is there."""


run = subprocess.Popen([ATOLL, "run", *shlex.split(OPTIONS), "--", "sh", "-c", SCRIPT])
{"answered": answered, "itself": itself, "ended": ended, "bound": bound, "copied": copied, "credential": credential, "later": later, "unasked": unasked}[SCENE]()
say("ended", run.wait())
