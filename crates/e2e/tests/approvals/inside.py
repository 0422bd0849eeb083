"""A program that looks for the socket by which its own question could be answered."""

import glob
import json
import os
import socket
import sys

STATE = sys.argv[1]
QUESTION = {"v": 1, "said": {"approvals": {}}}
found = set()
for top in (STATE, f"{STATE}/control", "/run", "/tmp", os.path.expanduser("~"), "/proc/1/root" + STATE):
    for here, _, names in os.walk(top):
        found.update(os.path.join(here, name) for name in names if name.endswith(".sock"))
found.update(glob.glob(f"/proc/*/root{STATE}/control/*.sock"))
found.update(glob.glob(f"/proc/*/cwd{STATE}/control/*.sock"))
# Its name is no secret: it is that of the run.
name = f"{STATE}/control/{os.environ['ATOLL_RUN']}.sock"
try:
    with open("/proc/net/unix") as table:
        names = [line.split()[-1] for line in table]
        found.update("\0" + one[1:] for one in names if one.startswith("@"))
except OSError:
    pass
for one in [name, *sorted(found)]:
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(5)
            line.connect(one)
            line.sendall(json.dumps(QUESTION).encode() + b"\n")
            if b'"approvals"' in line.makefile("rb").read():
                print("ANSWERED", one)
    except OSError:
        pass
open("tried", "w").close()
