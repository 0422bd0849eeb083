"""Servers that are killed at any moment of a pause, a resume, a fork, a snapshot or a roll back:
nothing that was acknowledged is lost, and nothing is left behind.

Starts servers itself, see kept.py. Prints `ok NAME` or `failed NAME: why` for each check.
"""

import http.client
import os
import random
import signal
import sys
import threading
import time
import traceback

from kept import Server, layers, state, until

ROUNDS = 8
SEED = random.randrange(1 << 32)
# No sandbox is made ahead: what is left is what was lost.
TOML = "[warm]\nsandboxes = 0\n"


class Killed:
    """A server that is killed in the midst of a request, and followed by another."""

    def __init__(self, key):
        self.random = random.Random(SEED)
        self.server = Server(TOML, key)

    def during(self, path, body, longest_s):
        """Asks, and kills the server at some moment; returns the status of the answer, if one came."""
        answered = []

        def ask():
            try:
                answered.append(self.server.ask("POST", path, body)[0])
            except (OSError, http.client.HTTPException):
                pass

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(self.random.uniform(0, longest_s))
        self.server.end(signal.SIGKILL)
        asking.join()
        self.server = Server(TOML, self.server.key)
        return answered[0] if answered else None

    def state_of(self, id):
        return self.server.ask("GET", f"/v1/sandboxes/{id}")[2].get("state", "gone")

    def goes_on(self, id, expected):
        """Has a paused sandbox go on, whose file says this."""
        assert self.server.ask("POST", f"/v1/sandboxes/{id}/connect", {})[0] == 201, id
        assert self.server.run(id, "cat file") == expected, id

    def is_clean(self):
        """Removes all that there is, and checks that nothing is left."""
        for one in self.server.ask("GET", "/v1/sandboxes?paused=true")[2]["sandboxes"]:
            assert self.server.ask("DELETE", f"/v1/sandboxes/{one['id']}")[0] == 200
        for one in self.server.ask("GET", "/v1/snapshots")[2]:
            assert self.server.ask("DELETE", f"/v1/snapshots/{one['id']}")[0] == 200
        until(lambda: layers() == [] and os.listdir(os.path.join(state(), "homes")) == [])


def made(killed, text):
    id, _ = killed.server.made()
    killed.server.run(id, f"echo {text} > file; seq 100 | split -l 1 - part")
    return id


def a_pause(killed, memory):
    id = made(killed, "kept")
    told = killed.during(f"/v1/sandboxes/{id}/pause", {"memory": memory}, 0.05)
    seen = killed.state_of(id)
    assert seen == "paused" if told == 200 else seen in ("paused", "gone"), (told, seen)
    if seen == "paused":
        killed.goes_on(id, "kept\n")


def a_resume(killed, memory):
    id = made(killed, "kept")
    assert killed.server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": memory})[0] == 200
    told = killed.during(f"/v1/sandboxes/{id}/connect", {}, 0.05)
    seen = killed.state_of(id)
    # Once it has gone on it ends with its server.
    assert seen in ("paused", "gone"), (told, seen)
    if seen == "paused":
        killed.goes_on(id, "kept\n")


def a_copy(killed, what, memory):
    id = made(killed, "kept")
    assert killed.server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": memory})[0] == 200
    told = killed.during(f"/v1/sandboxes/{id}/{what}", {}, 0.05)
    assert killed.state_of(id) == "paused", told
    snapshots = [one for one in killed.server.ask("GET", "/v1/snapshots")[2] if one["sandbox"] == id]
    assert len(snapshots) == 1 or what == "fork" or told != 201, (told, snapshots)
    for one in snapshots:
        copy, _ = killed.server.made(template=one["id"])
        assert killed.server.run(copy, "cat file; ls | wc -l") == "kept\n101\n"
    killed.goes_on(id, "kept\n")


def a_roll_back(killed):
    id = made(killed, "before")
    status, _, told = killed.server.ask("POST", f"/v1/sandboxes/{id}/snapshots", {})
    assert status == 201, told
    killed.server.run(id, "echo after > file")
    killed.during(f"/v1/sandboxes/{id}/rollback", {"snapshot": told["id"]}, 0.05)
    copy, _ = killed.server.made(template=told["id"])
    assert killed.server.run(copy, "cat file; ls | wc -l") == "before\n101\n"


KINDS = {
    "pauses_with_memory": lambda killed: a_pause(killed, True),
    "pauses_of_files": lambda killed: a_pause(killed, False),
    "resumes_of_memory": lambda killed: a_resume(killed, True),
    "resumes_of_files": lambda killed: a_resume(killed, False),
    "forks_of_memory": lambda killed: a_copy(killed, "fork", True),
    "forks_of_files": lambda killed: a_copy(killed, "fork", False),
    "snapshots_of_memory": lambda killed: a_copy(killed, "snapshots", True),
    "snapshots_of_files": lambda killed: a_copy(killed, "snapshots", False),
    "roll_backs": a_roll_back,
}


def main():
    failed = False
    server = Server(TOML)
    key = server.key
    server.end()
    killed = Killed(key)
    for name, kind in KINDS.items():
        try:
            for _ in range(ROUNDS):
                kind(killed)
            killed.is_clean()
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {name}: seed {SEED}: {error!r}"[:600], flush=True)
    killed.server.end()
    sys.exit(failed)


if __name__ == "__main__":
    main()
