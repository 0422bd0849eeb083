"""A person who answers a run of a database: yes to the first login for the whole run, no to
the next question. What each was about is written down in the file that is named."""

import json
import os
import subprocess
import sys
import time

ATOLL = os.environ["ATOLL"]


def atoll(*words):
    return subprocess.run([ATOLL, *words], capture_output=True, text=True)


def question():
    end = time.monotonic() + 120
    while time.monotonic() < end:
        listed = atoll("approvals", "list", "--json")
        for run in json.loads(listed.stdout or "[]"):
            for one in run["pending"]:
                return f"{run['run']}.{one['approval']}", one["call"]
        time.sleep(0.05)
    raise SystemExit("nothing is asked")


with open(sys.argv[1], "w") as file:
    for answer in (["grant", "--run"], ["deny"]):
        name, call = question()
        shown = atoll("approvals", "show", name).stdout
        words = [call["kind"], call.get("login"), call.get("credentials"), "user: app\n" in shown]
        file.write(json.dumps(words) + "\n")
        file.flush()
        atoll("approvals", answer[0], name, *answer[1:])
