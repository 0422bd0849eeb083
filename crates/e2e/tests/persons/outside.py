"""Persons beside a run that two of them have to say yes to.

Arguments: the user whose run it is, the directory of the homes, the program's script, and `alone`
where nobody else can be played: root plays all of them."""

import atexit
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time

OWNER, HOMES, SCRIPT = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ATOLL = os.environ["ATOLL"]
ALONE = sys.argv[4] == "alone"
SECOND, THIRD, STRANGER = 61235, 61236, 61299


def words(user, *words):
    """The command line of a program as that user, with a home of their own."""
    home = f"{HOMES}/{user}"
    own = [f"HOME={home}", f"XDG_CONFIG_HOME={home}/config", f"XDG_STATE_HOME={home}/state"]
    change = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--"]
    return ["env", *own, *([] if ALONE else change), *words]


def atoll(user, *said, within=()):
    done = subprocess.run(words(user, *within, ATOLL, *said), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def until(what, condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit(f"never: {what}")


def listed(user, *of):
    status, out, error = atoll(user, "approvals", "list", "--json", *of)
    assert status == 0, error
    return json.loads(out)


def asked(path):
    def find():
        for run in listed(OWNER):
            for one in run["pending"]:
                if one["call"]["request"]["path"] == path:
                    return f"{run['run']}.{one['approval']}"
    return until(path, find)


def say(*words):
    print(*words, flush=True)


def reached(path):
    """Whether anything of this path has arrived; before the first of all there is no file."""
    try:
        with open(os.path.join(os.environ["INTERNET"], "first")) as file:
            return path in file.read()
    except FileNotFoundError:
        return False


OF = ("--of", str(OWNER))
TOLD = f"{HOMES}/{OWNER}/told"


def told(text):
    """Whether who started the run was told this at its terminal."""
    with open(TOLD) as file:
        return text in file.read()


started = words(OWNER, ATOLL, "run", "--live", "--ask", "example.com", "--", "sh", "-c", SCRIPT)
run = subprocess.Popen(started, stderr=open(TOLD, "w"))
atexit.register(run.kill)
name = asked("/lease")
first = atoll(OWNER, "approvals", "grant", name, "--run")
command = f"atoll approvals grant {name} --run --of {OWNER}"
say("first", first[0], "two persons" in first[2], f"once 61235 or 61236 says the same" in first[2] and command in first[2])
until("it is told at the terminal", lambda: told(f"{OWNER} agreed; it waits") and told(f"61235 or 61236: `{command}`"))
again = atoll(OWNER, "approvals", "grant", name, "--for", "10m")
say("again", again[0], "another one has to" in again[2])
# Whoever is root of a namespace of their own is the same person outside.
mapped = atoll(OWNER, "approvals", "grant", name, "--run", within=["unshare", "--user", "--map-root-user"])
say("mapped", mapped[0] != 0, [one["leases"] for one in listed(OWNER)])
shown = atoll(OWNER, "approvals", "show", name)[1]
say("shown", "it takes another person too" in shown and "persons: what lasts" in shown)
say("reached before", reached("/lease"))
# A run that is deaf holds nobody up: it is named, and the others are listed.
deaf = subprocess.Popen(words(OWNER, ATOLL, "run", "--live", "--", "sleep", "600"))
atexit.register(deaf.kill)
sockets = f"{HOMES}/{OWNER}/state/atoll/control/*.sock"
until("both can be asked", lambda: len(glob.glob(sockets)) == 2)
os.kill(deaf.pid, signal.SIGSTOP)
beside = atoll(OWNER, "approvals", "list")
say("beside a deaf one", beside[0], name in beside[1], "does not answer, and is left out" in beside[2])
if not ALONE:
    beside = atoll(SECOND, "approvals", "list", "--of", str(OWNER))
    say("for the other one", beside[0], name in beside[1], "does not answer, and is left out" in beside[2])
os.kill(deaf.pid, signal.SIGCONT)
say("it hears again", atoll(OWNER, "stop", "last")[0], deaf.wait() != 0)
if ALONE:
    say("denied", atoll(OWNER, "approvals", "deny", name)[0])
    name = asked("/once")
    say("once", atoll(OWNER, "approvals", "grant", name)[0])
    say("ended", run.wait())
    sys.exit()
say("a stranger", listed(STRANGER, *OF), atoll(STRANGER, "approvals", "grant", name, "--run", *OF)[0])
# Root may answer the run, and is no person of its own.
number = int(name.rsplit(".", 1)[1])
digest = listed(OWNER)[0]["pending"][0]["digest"]
grant = {"grant": {"scope": {"for": "run"}, "breadth": "same"}}
question = {"v": 1, "said": {"decide": {"approval": number, "digest": digest, "decision": grant}}}
with socket.socket(socket.AF_UNIX) as line:
    line.connect(f"{HOMES}/{OWNER}/state/atoll/control/{name.rsplit('.', 1)[0]}.sock")
    line.sendall(json.dumps(question).encode() + b"\n")
    said = line.makefile("rb").read().decode()
say("root", "is none of those who count" in said)
show = [atoll(user, "approvals", "show", name, "--json", *of) for user, of in [(OWNER, ()), (SECOND, OF)]]
both = [json.loads(one[1])["pending"] for one in show]
say("the same is shown", both[0]["digest"] == both[1]["digest"], both[0]["call"] == both[1]["call"])
once = atoll(SECOND, "approvals", "grant", name, *OF)
say("once is the owner's", once[0], "whose run it is" in once[2])
stop = atoll(SECOND, "approvals", "deny", name, "--stop", *OF)
say("so is the end", stop[0], run.poll())
say("still before", reached("/lease"))
second = atoll(SECOND, "approvals", "grant", name, "--for", "10m", *OF)
say("second", second[0], "Granted" in second[2])
until("the second yes is told", lambda: told(f"{SECOND} said yes to question .{number}, after a yes of {OWNER}: it is granted for 600 s"))
lease = until("it is used", lambda: [one for run in listed(OWNER) for one in run["leases"] if one["uses"] == 2])
say("the narrower", lease[0]["left_seconds"] <= 600, lease[0]["by"]["uid"])
# Whoever says no ends it for all, also after a yes.
name = asked("/no")
say("yes", atoll(SECOND, "approvals", "grant", name, "--run", *OF)[0])
say("no", atoll(THIRD, "approvals", "deny", name, *OF)[0], atoll(OWNER, "approvals", "grant", name, "--run")[0])
until("a no after a yes is told", lambda: told(f"{THIRD} said no to question .{name.rsplit('.', 1)[1]}, after a yes of {SECOND}: it is denied"))
# Of two at once one is the first and the other the second.
name = asked("/race")
said = [(OWNER, ()), (SECOND, OF)]
racing = [
    subprocess.Popen(words(user, ATOLL, "approvals", "grant", name, "--run", *of), stderr=subprocess.PIPE, text=True)
    for user, of in said
]
told = sorted(one.communicate()[1].split(":")[0] for one in racing)
say("race", told, sorted(one.returncode for one in racing))
# The same person by two processes is one.
name = asked("/twice")
racing = [subprocess.Popen(words(OWNER, ATOLL, "approvals", "grant", name, "--run"), stderr=subprocess.PIPE) for _ in range(2)]
statuses = sorted(one.wait() for one in racing)
say("twice", statuses[0], statuses[1] != 0, reached("/twice"))
say("by others alone", atoll(THIRD, "approvals", "grant", name, "--run", *OF)[0], until("sent", lambda: reached("/twice")))
port = name.rsplit(".", 1)[0], "3000", "--to", "3999"
first = atoll(OWNER, "publish", *port)
say("port", first[0], "two persons" in first[2], atoll(OWNER, "publish", *port)[0] != 0)
listings = atoll(OWNER, "approvals", "list")[1], atoll(SECOND, "approvals", "list", *OF)[1]
command = f"atoll publish {port[0]} 3000 --to 3999 --of {OWNER}"
waits = ["port 3000 waits for a second person" in one and command in one for one in listings]
say("the port waits", *waits, command in first[2], json.loads(atoll(SECOND, "approvals", "list", "--json", *OF)[1])[0]["port"]["by"]["uid"])
say("published", atoll(SECOND, "publish", "last", *port[1:], *OF)[1].strip())
until("the second yes to a port is told", lambda: f"{SECOND} said yes to port 3000, after a yes of {OWNER}: it is at http://127.0.0.1:3999" in open(TOLD).read())
wider = atoll(OWNER, "policy", "reload", port[0])
say("reload", wider[0], "may allow more take two persons" in wider[2])
with open(f"{HOMES}/{OWNER}/work/over", "w"):
    pass
say("ended", run.wait())
events = [json.loads(line) for line in atoll(OWNER, "ledger", "show", "--json", port[0])[1].splitlines()]
bodies = {one["type"]: one["body"] for one in events if one["type"].startswith("port.")}
say("recorded", bodies["port.agreed"]["uid"], bodies["port.published"]["first_uid"], bodies["port.published"]["uid"])
why = atoll(OWNER, "why", port[0])[1].replace("\n            ", " ")
by = f"by {SECOND}, after a yes of {OWNER}, "
say("why", "3000 inside was published at 127.0.0.1:3999 for programs of" in why, by in why, "(the run ended)" in why)
[door] = json.loads(atoll(OWNER, "why", port[0], "--json")[1])["published"]
say("for machines", door["inside"], door["port"], door["by"], door["after"], door["since"] < door["until"])
