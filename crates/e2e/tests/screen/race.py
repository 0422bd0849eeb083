"""Two persons who answer each question at once, one with yes and one with no, by commands, or only
by the first of them where somebody at a terminal answers too. Arguments: how many questions, and
`both` or `grant`. Prints which commands said that it was theirs."""

import json
import os
import subprocess
import sys
import time

ATOLL = os.environ["ATOLL"]
count, who = int(sys.argv[1]), sys.argv[2]
commands = ["grant", "deny"] if who == "both" else ["grant"]
seen = set()
end = time.monotonic() + 240
while len(seen) < count and time.monotonic() < end:
    listed = subprocess.run([ATOLL, "approvals", "list", "--json"], capture_output=True, text=True)
    for run in json.loads(listed.stdout or "[]"):
        for one in run["pending"]:
            name = f"{run['run']}.{one['approval']}"
            if name in seen:
                continue
            seen.add(name)
            # Who begins changes with each.
            order = commands if len(seen) % 2 else commands[::-1]
            started = [
                (what, subprocess.Popen([ATOLL, "approvals", what, name], stdout=-3, stderr=-3)) for what in order
            ]
            done = sorted(what for what, process in started if process.wait() == 0)
            print("answered", one["approval"], *done, flush=True)
    time.sleep(0.02)
