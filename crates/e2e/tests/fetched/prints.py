#!/usr/bin/python3 -I
"""Prints a credential, and writes down each time that it is run what it was given.
Arguments: the directory of the world, and how it is to go."""
import json, os, sys, time

WORLD, HOW = sys.argv[1:]
with open(os.path.join(WORLD, "real")) as file:
    REAL = file.read().strip()


def until(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


open_here = []
for number in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        open_here.append(f"{number}={os.readlink('/proc/self/fd/' + number).split(':')[0]}")
    except OSError:
        pass
with open(os.path.join(WORLD, "runs"), "a") as to:
    facts = {"how": HOW, "user": os.getuid(), "at": os.getcwd(), "open": open_here, "environment": dict(os.environ)}
    to.write(json.dumps(facts) + "\n")


def exec_credential(seconds, token=REAL):
    status = {"token": token, "expirationTimestamp": until(seconds)}
    print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))


match HOW:
    case "kubernetes":
        time.sleep(1)
        exec_credential(3600)
    case "short":
        exec_credential(4)
    case "expired":
        exec_credential(-10)
    case "git":
        print(f"protocol=https\nhost=example.com\nusername=git\npassword={REAL}\n")
    case "plain":
        print(REAL)
    case "fails":
        print(REAL, flush=True)
        print(f"first line\nnot logged in with {REAL}: run login first", file=sys.stderr)
        sys.exit(3)
    case "hangs":
        time.sleep(600)
    case "floods":
        while True:
            sys.stdout.write(REAL * 1000)
    case "floods-errors":
        for _ in range(10_000):
            sys.stderr.write("error " * 100)
        print(REAL)
    case "silent":
        pass
    case "weak":
        print("password1")
    case "daemon":
        print(REAL, flush=True)
        if os.fork() == 0:
            time.sleep(30)
    case "lingers":
        # Until somebody has looked who has what it printed.
        print(REAL, flush=True)
        open(os.path.join(WORLD, "printed"), "w").close()
        while not os.path.exists(os.path.join(WORLD, "looked")):
            time.sleep(0.05)
    case "leaves":
        os.setpgid(0, os.getpgid(os.getppid()))
        open(os.path.join(WORLD, "has-left"), "w").close()
        time.sleep(600)
    case "killed":
        os.kill(os.getpid(), 9)
    case _:
        sys.exit("what?")
