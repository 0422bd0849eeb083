"""A person outside of a run who changes policies while it goes on, and prints what came.

Arguments: the options of the run as one text, the program's script, and the name of a scene."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

OPTIONS, SCRIPT, SCENE = sys.argv[1:4]
ATOLL = os.environ["ATOLL"]
OWN = os.path.join(os.environ["XDG_CONFIG_HOME"], "atoll", "own.cedar")


def atoll(*words, before=()):
    done = subprocess.run([*before, ATOLL, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def until(what):
    end = time.monotonic() + 60
    while not os.path.exists(what):
        if time.monotonic() > end:
            print("never", what, flush=True)
            raise SystemExit(1)
        time.sleep(0.02)


def touch(name):
    open(name, "w").close()


def say(*words):
    print(*words, flush=True)


def write(text, name=OWN):
    """As editors do: whoever reads finds the old text or the new one."""
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name + "~", "w") as file:
        file.write(text)
    os.rename(name + "~", name)


def forbid(name, action, when):
    return f'@id("{name}") forbid(principal, action == Action::"{action}", resource) when {{ {when} }};\n'


def path(path):
    return forbid("path" + path[1:], "request", f'context.loose.path == "{path}"')


def start():
    return subprocess.Popen([ATOLL, "run", *shlex.split(OPTIONS), "--", "sh", "-c", SCRIPT])


def refused(what, text):
    write(text)
    status, _, told = atoll("policy", "reload", "last")
    say(what, status, "own.cedar" in told, "keeps the policies" in told)
    return told


def changed():
    before = path("/never")
    write(before)
    run = start()
    until("open")
    status, _, told = atoll("policy", "reload", "last")
    say("same", status, "nothing is different" in told)
    told = refused("broken", before + "forbid(principal, action, resource) when { context.nonsense };\n")
    say("where", "own.cedar:2:" in told)
    refused("long", before + "//" + "x" * (1 << 20) + "\n")
    refused("half", before + "@id(\"a\") forbid(principal, act")
    write(before + forbid("labels", "request", 'context has labels && context.labels.contains("x")'))
    status, _, told = atoll("policy", "reload", "last")
    say("labels", status, "noted none" in told)
    if os.geteuid() == 0:
        other = ("setpriv", "--reuid", "61234", "--clear-groups", "--")
        say("other user", atoll("policy", "reload", "last", before=other)[0] != 0)
    touch("kept")
    until("kept too")
    write(path("/after") + forbid("echo", "connect", "context.port == 7"))
    status, _, told = atoll("policy", "reload", "last")
    say("changed", status, "decides from now on" in told)
    touch("reloaded")
    until("second")
    write(before)
    say("back", atoll("policy", "reload", "--all")[0])
    touch("third")
    say("ended", run.wait())


def first():
    """None when it began, and nothing was carried yet."""
    run = start()
    until("open")
    write(path("/after"))
    say("first", atoll("policy", "reload", "last")[0])
    touch("reloaded")
    until("second")
    os.remove(OWN)
    say("none", atoll("policy", "reload", "last")[0])
    touch("third")
    say("ended", run.wait())


def storm():
    """Two versions by turns, asked for by many of whom some are killed, while requests go out."""
    texts = [path("/a"), path("/b")]
    write(texts[0])
    run = start()
    until("open")
    for turn in range(100):
        write(texts[(turn + 1) % 2])
        if turn % 4 == 1:
            hurried = subprocess.Popen([ATOLL, "policy", "reload", "last"], stderr=subprocess.DEVNULL)
            time.sleep(0.004 * (turn % 7))
            hurried.send_signal(signal.SIGKILL)
            hurried.wait()
        elif atoll("policy", "reload", "last")[0] != 0:
            say("not reloaded", turn)
    touch("calm")
    say("ended", run.wait())


def question():
    """A yes to what other policies deny by then."""
    run = start()
    end = time.monotonic() + 60
    name = ""
    while not name and time.monotonic() < end:
        asked = json.loads(atoll("approvals", "list", "--json")[1] or "[]")
        all = [(one["run"], question) for one in asked for question in one["pending"]]
        name = next((f"{run}.{question['approval']}" for run, question in all), "")
        time.sleep(0.05)
    write(path(os.environ["FORBIDDEN"]))
    say("reloaded", atoll("policy", "reload", "last")[0])
    say("granted", atoll("approvals", "grant", name)[0])
    say("ended", run.wait())


def project():
    """A project's file that is not what was trusted any more takes nothing away."""
    write(path("/after"), os.path.abspath("atoll.cedar"))
    say("trusted", atoll("trust", ".")[0])
    run = start()
    until("open")
    for text in (path("/other"), None):
        if text is None:
            os.remove("atoll.cedar")
        else:
            write(text, os.path.abspath("atoll.cedar"))
        status, _, told = atoll("policy", "reload", "last")
        say("untrusted", status, "has counted so far" in told)
    touch("reloaded")
    until("second")
    write(path("/other"), os.path.abspath("atoll.cedar"))
    say("trusted", atoll("trust", ".")[0])
    say("project", atoll("policy", "reload", "--session", "fix-login")[0])
    touch("third")
    say("ended", run.wait())


def spoken(run, question):
    """What a run answers to a question as it is sent."""
    place = os.path.join(os.environ["XDG_STATE_HOME"], "atoll", "control", f"{run}.sock")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(place)
        line.sendall(json.dumps({"v": 1, "said": question}).encode() + b"\n")
        answer = b"".join(iter(lambda: line.recv(1 << 16), b""))
    return json.loads(answer)["said"]


def proof():
    """Whether more is allowed is proven where that can be, and never guessed."""
    tightened = ("policy", "reload", "last", "--only-tightening")
    write(path("/never"))
    run = start()
    until("open")
    write(path("/never") + path("/after"))
    status, _, told = atoll(*tightened)
    say("tighter", status)
    write(path("/never") + path("/after") + path("/more"))
    status, _, told = atoll("policy", "reload", "last")
    say("proven", status, "proven that nothing more" in told)
    write(path("/never"))
    status, _, told = atoll(*tightened)
    say("wider", status, "allow more" in told, "request" in told)
    solver = os.environ.pop("CVC5")
    os.environ["CVC5"] = "/nonexistent"
    status, _, told = atoll(*tightened)
    say("unknown", status, "is not known" in told, "try: install" in told)
    os.environ["CVC5"] = solver
    name = os.listdir(os.path.join(os.environ["XDG_STATE_HOME"], "atoll", "control"))[0].removesuffix(".sock")
    compared = spoken(name, {"compare": {"at": 0}})["compared"]
    say("compared", "path" in compared["text"], len(compared["text"]) == compared["bytes"])
    say("further", "refused" in spoken(name, {"compare": {"at": compared["bytes"] + 1}}))
    for which in ("from", "to"):
        only = compared["versions"] | {which: "sha256:" + "0" * 64}
        other = spoken(name, {"reload": {"only": only}})
        say("another", which, "was proven" in other["refused"]["why"])
    status, _, told = atoll("policy", "reload", "last")
    say("told", status, "more is allowed than before" in told)
    permit = '@id("own") {} permit(principal, action == Action::"request", resource);\n'
    redact = permit.format('@redact("header:x-internal")')
    write(path("/never") + redact)
    say("redacted", atoll(*tightened)[0])
    write("// The same.\n" + path("/never") + redact)
    say("again", atoll(*tightened)[0])
    write(path("/never") + permit.format(""))
    status, _, told = atoll(*tightened)
    say("seen", status, "allow more" in told, '@redact("header:x-internal")' in told)
    write(path("/never") + permit.format('@redact("authorization")'))
    say("denied", atoll(*tightened)[0])
    write(path("/never") + redact)
    status, _, told = atoll(*tightened)
    say("sent", status, "allow more" in told, "is not carried out" in told)
    write(path("/a") + ("// " + "x" * 80 + "\n") * 500)
    status, _, told = atoll(*tightened)
    say("in parts", status, "allow more" in told)
    web = '@id("web") permit(principal, action in [Action::"resolve", Action::"connect", Action::"request"], resource{});\n'
    write(web.format(' in Host::"*.example.com"'), os.path.abspath("web.cedar"))
    say("checked", atoll("policy", "check", "web.cedar", "--prove")[0])
    write(web.format(" is Host"), os.path.abspath("web.cedar"))
    say("not so", atoll("policy", "check", "web.cedar", "--prove")[0], atoll("policy", "check", "web.cedar")[0])
    touch("done")
    say("ended", run.wait())


def inside():
    shutil.copy(os.environ["ATOLL_BIN"], "atoll-inside")
    write(path("/never"))
    run = start()
    until("tried")
    write(path("/always"))
    say("outside", atoll("policy", "reload", "last")[0])
    touch("done")
    say("ended", run.wait())


{
    "changed": changed,
    "first": first,
    "storm": storm,
    "question": question,
    "project": project,
    "proof": proof,
    "inside": inside,
}[SCENE]()
