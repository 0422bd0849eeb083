"""A person outside who issues, narrows and revokes tokens and starts runs that hold them.

The argument is the name of a scene; what came of each step is printed."""

import os
import subprocess
import sys
import time

ATOLL = os.environ["ATOLL"]
CURL = "curl -s -m 20 --noproxy '*' -o answer -w '%{http_code}\\n'"
ALLOWED = ["--allow", "example.com", "--allow", "example.com:7", "--allow", "93.184.216.35"]
TUNNEL = """import socket
one = socket.create_connection(("example.com", 7))
one.sendall(b"x"); assert one.recv(1) == b"x"
open("open", "w").close()
try: print("tunnel ended", one.recv(1) == b"", flush=True)
except OSError: print("tunnel ended", True, flush=True)
"""


def say(*words):
    print(*words, flush=True)


def atoll(*words, **more):
    return subprocess.run([ATOLL, *words], capture_output=True, text=True, **more)


def token(name, *words):
    done = atoll("token", *words)
    if done.returncode:
        say(name, "failed", done.stderr)
        raise SystemExit(1)
    with open(name, "w") as file:
        file.write(done.stdout)
    return name


def run(tokens, script, *more):
    given = [word for one in tokens for word in ("--token", one)]
    command = [ATOLL, "run", "--live", *ALLOWED, *given, *more, "--", "sh", "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(what, running):
    out, error = running.communicate()
    # How a program fails that is let go nowhere is its own business.
    status = running.returncode if running.returncode in (0, 126) else "failed"
    say(what, status, *out.split())
    return error


def until(name):
    end = time.monotonic() + 60
    while not os.path.exists(name):
        if time.monotonic() > end:
            say("never", name)
            raise SystemExit(1)
        time.sleep(0.02)


def carried():
    wide = token("wide", "issue", "--allow", "request * http://example.com/ok/*", "--allow", "connect 93.184.216.35:80",
                 "--allow", "connect example.org:80", "--until", "1h")
    narrow = token("narrow", "attenuate", wide, "--allow", "request GET http://example.com/*",
                   "--allow", "connect example.com:7")
    other = token("other", "issue", "--allow", "connect *:80")
    asks = (f"{CURL} http://example.com/ok/1; {CURL} http://example.com/no; {CURL} -d x http://example.com/ok/2; "
            f"{CURL} http://93.184.216.35/ok/3")
    told("without", run([], asks))
    told("wide", run([wide], asks))
    told("narrow", run([narrow], asks))
    told("both", run([wide, other], asks))
    told("unruled", run([wide], f"{CURL} http://example.org/ok/4"))
    told("why", run([narrow], f"{CURL} -x http://proxy.atoll.internal:3128 http://example.com/no; cat answer"))
    told("port", run([wide], "true", "--publish", "3000"))
    published = token("published", "issue", "--allow", "publish 3000")
    told("published", run([published], "true", "--publish", "0:3000"))
    say("ledger", open(wide).read().strip() in atoll("ledger", "query").stdout)


def replayed():
    bound = token("bound", "issue", "--allow", "connect example.com:80", "--session", "one")
    there = token("there", "issue", "--allow", "connect example.com:80", "--workspace", ".")
    ask = f"{CURL} http://example.com/"
    told("session", run([bound], ask, "--session", "one"))
    told("another", run([bound], ask, "--session", "two"))
    told("none", run([bound], ask))
    told("workspace", run([there], ask))
    os.mkdir("elsewhere")
    told("elsewhere", run([there], ask, "--workspace", "elsewhere"))
    state = dict(os.environ, XDG_STATE_HOME=os.path.abspath("../other-state"))
    theirs = atoll("token", "issue", "--allow", "connect *:*", env=state).stdout
    open("theirs", "w").write(theirs)
    told("other-key", run(["theirs"], ask))
    text = open(bound).read().strip()
    open("changed", "w").write(text[:40] + ("A" if text[40] != "A" else "B") + text[41:])
    told("changed", run(["changed"], ask))
    open("huge", "w").write("A" * 100000)
    told("huge", run(["huge"], ask))


def ended():
    open("tunnel.py", "w").write(TUNNEL)
    short = token("short", "issue", "--allow", "connect example.com:*", "--until", "20s")
    ask = f"{CURL} http://example.com/"
    told("ended", run([short], f"{ask}; python3 tunnel.py; {ask}"))
    error = told("again", run([short], ask))
    say("said", "it has ended" in error)
    why = atoll("why", "last").stdout
    say("why", "given up" in why and "network, by the end of its token at 2" in why, "(atoll token list)" in why)


def revoked():
    open("tunnel.py", "w").write(TUNNEL)
    first = token("first", "issue", "--allow", "connect example.com:*")
    second = token("second", "attenuate", first, "--until", "1h")
    beside = token("beside", "issue", "--allow", "connect example.com:*")
    ask = f"{CURL} http://example.com/"
    script = f"{ask}; python3 tunnel.py; {ask}"
    running = run([second], script, "--session", "one")
    until("open")
    say("revoke", atoll("token", "revoke", first).returncode)
    told("revoked", running)
    error = told("again", run([second], ask))
    say("said", "it is revoked" in error)
    # Another token of the same session counts as before.
    told("beside", run([beside], ask, "--session", "one"))
    say("shown", atoll("token", "show", second).returncode, atoll("token", "show", beside).returncode)


def lasting():
    first = token("first", "issue", "--allow", "connect example.com:*")
    beside = token("beside", "issue", "--allow", "connect example.com:*")
    ask = f"{CURL} http://example.com/"
    running = run([first], "touch open; until test -e go; do sleep 0.1; done", "--session", "one")
    until("open")
    atoll("token", "revoke", first)
    end = time.monotonic() + 60
    while "rights.given-up" not in atoll("ledger", "show", "--json", "last").stdout and time.monotonic() < end:
        time.sleep(0.2)
    # A person gives up what the token carries no more: that is new, and lasts.
    given = atoll("restrict", "last", "--no-network")
    say("given", given.returncode, "given up before" in given.stdout + given.stderr)
    open("go", "w").close()
    told("first", running)
    told("later", run([beside], ask, "--session", "one"))
    told("control", run([beside], ask, "--session", "two"))


{"carried": carried, "replayed": replayed, "ended": ended, "revoked": revoked, "lasting": lasting}[sys.argv[1]]()
