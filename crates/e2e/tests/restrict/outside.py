"""A person outside of runs that give rights up: starts them, restricts them, and prints what came.

Arguments: the options of the run as one text, the program's script, and the name of a scene."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

OPTIONS, SCRIPT, SCENE = sys.argv[1:4]
ATOLL = os.environ["ATOLL"]


def atoll(*words):
    done = subprocess.run([ATOLL, *words], capture_output=True, text=True)
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


def start(*more):
    return subprocess.Popen([ATOLL, "run", *shlex.split(OPTIONS), *more, "--", "sh", "-c", SCRIPT])


def outside():
    run = start()
    until("open")
    say("nothing", atoll("restrict", "last")[0])
    say("port", atoll("restrict", "last", "--deny-host", "example.com:80")[0])
    say("host", atoll("restrict", "last", "--deny-host", "example.com")[0])
    say(atoll("restrict", "last", "--deny-host", "example.com")[2])
    touch("restricted")
    until("second")
    say("until", atoll("restrict", "last", "--until", "1ms")[0])
    touch("closed")
    say("ended", run.wait())


def inside():
    atoll = "atoll-inside"
    shutil.copy(os.environ["ATOLL_BIN"], atoll)
    say("ended", start().wait())


def session():
    run = start("--session", "one")
    until("given")
    run.send_signal(signal.SIGKILL)
    run.wait()
    for more in (["--session", "one"], []):
        say("session" if more else "none", start(*more).wait())


{"outside": outside, "inside": inside, "session": session}[SCENE]()
