"""A person who says yes to the first question of any run."""

import json
import os
import subprocess
import sys
import time

ATOLL = os.environ["ATOLL"]
end = time.monotonic() + 120
while time.monotonic() < end:
    listed = subprocess.run([ATOLL, "approvals", "list", "--json"], capture_output=True, text=True)
    for run in json.loads(listed.stdout or "[]"):
        for one in run["pending"]:
            sys.exit(subprocess.call([ATOLL, "approvals", "grant", f"{run['run']}.{one['approval']}"]))
    time.sleep(0.05)
sys.exit("nothing is asked")
