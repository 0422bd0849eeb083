"""Pauses that keep memory: programs stand still where they are and go on, or, where that cannot be,
files alone are kept.

Starts servers itself, see kept.py. Prints `ok NAME` or `failed NAME: why` for each check.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback

from kept import Server, home_of, state, until

COUNTER = """
import os, time
n = 0
while True:
    n += 1
    with open('next', 'w') as file:
        file.write(f'{n}')
    os.replace('next', 'count')
    time.sleep(0.01)
"""
# Others count beside it.
COUNTER += f"# {os.getpid()} {time.time()}\n"
# Continues itself twice a second, whoever stops it.
RESTLESS = """
import ctypes, time
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('signal', ctypes.c_int), ('notify', ctypes.c_int), ('rest', ctypes.c_char * 48)]
class Times(ctypes.Structure):
    _fields_ = [('each_s', ctypes.c_long), ('each_ns', ctypes.c_long), ('first_s', ctypes.c_long), ('first_ns', ctypes.c_long)]
libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
assert libc.timer_create(1, ctypes.byref(Event(signal=18)), ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, ctypes.byref(Times(0, 500000000, 0, 500000000)), None) == 0
while True:
    open('awake', 'w').write(str(time.time()))
    time.sleep(0.1)
"""


def begun(server, script, **more):
    """Makes a sandbox with a Python program in it; returns its id and the program's pid."""
    id, _ = server.made(**more)
    command = ["python3", "-c", script]
    pid = server.ask("POST", f"/v1/sandboxes/{id}/processes", {"command": command})[2]["pid"]
    until(lambda: file_of(id, "count") or file_of(id, "awake"))
    return id, pid


def pause(server, id, memory=True, asked=None):
    status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/pause", asked or {})
    assert (status, told["memory_kept"]) == (200, memory), (status, told)
    facts = server.ask("GET", f"/v1/sandboxes/{id}")[2]
    assert (facts["state"], facts["memory_kept"]) == ("paused", memory), facts


def go_on(server, id, **body):
    status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/connect", body)
    assert status == 201, (status, told)
    return told["sandbox"]


def file_of(id, name):
    """Returns the text of a file in a home, as the host sees it."""
    try:
        with open(os.path.join(home_of(id), name)) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def count(id):
    return int(until(lambda: file_of(id, "count").strip()))


def whys(server, id):
    return [one["facts"].get("why", "") for one in server.ask("GET", f"/v1/events?sandbox={id}")[2]]


def programs_and_sockets_go_on(server):
    id, pid = begun(server, COUNTER)
    server.run(id, "echo there > file; nohup python3 -m http.server 8000 >/dev/null 2>&1 &")
    ask = lambda: server.ask("GET", "/file", E2b_Sandbox_Id=id, E2b_Sandbox_Port="8000")
    until(lambda: ask()[0] == 200)
    before = server.ask("GET", f"/v1/sandboxes/{id}")[2]
    seen = []
    follow = threading.Thread(target=lambda: seen.append(server.ask("GET", f"/v1/sandboxes/{id}/processes/{pid}/output")[2]))
    follow.start()
    count(id)
    time.sleep(0.2)
    pause(server, id)
    # Who follows a program is told.
    follow.join(10)
    assert b"it is paused, with its memory" in seen[0], seen
    at = count(id)
    time.sleep(1)
    assert count(id) == at, "it counts on"
    for path, headers in (("/health", {}), ("/file", {"E2b_Sandbox_Port": "8000"})):
        assert server.ask("GET", path, E2b_Sandbox_Id=id, X_API_Key=None, **headers)[0] in (401, 502), path
    assert server.ask("POST", f"/v1/sandboxes/{id}/run", {"command": ["true"]})[0] == 404
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {})[0] == 409
    after = go_on(server, id)
    assert after["run"] == before["run"], "it is another run"
    until(lambda: count(id) > at)
    assert [one["pid"] for one in server.ask("GET", f"/v1/sandboxes/{id}/processes")[2]] == [pid]
    assert ask()[2] == b"there\n"
    # Files are written as before.
    status, _, told = server.ask("PUT", f"/v1/sandboxes/{id}/files/content?path=own", {})
    assert status in (200, 201), (status, told)
    assert server.run(id, "cat file; pgrep -c python3") == "there\n2\n"
    kinds = [one["kind"] for one in server.ask("GET", f"/v1/events?sandbox={id}")[2]]
    assert [kind for kind in kinds if kind != "updated"] == ["resumed", "paused", "created"], kinds
    events = server.ask("GET", f"/v1/runs/{before['run']}/events")[2]["events"]
    stood = [one for one in events if one["type"] in ("run.paused", "run.resumed")]
    assert [one["type"] for one in stood] == ["run.paused", "run.resumed"], events
    assert all(one["body"]["caller"] for one in stood), stood
    # Files alone, where that is asked for.
    pause(server, id, memory=False, asked={"memory": False})
    assert go_on(server, id)["run"] != before["run"]
    assert server.run(id, "cat file; pgrep -c python3") == "there\n0\n"
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def it_ends_at_its_time_once_it_has_gone_on(server):
    id, _ = begun(server, COUNTER)
    for _ in range(3):
        pause(server, id)
        go_on(server, id, timeout_s=60)
    at = count(id)
    until(lambda: count(id) > at)
    pause(server, id)
    go_on(server, id, timeout_s=1)
    until(lambda: server.ask("GET", f"/v1/sandboxes/{id}")[0] == 404)
    # Nobody finds it from then on; that it has ended is noted once it has.
    until(lambda: whys(server, id)[0] == "its time was over")
    until(lambda: not os.path.exists(home_of(id)))


def others_begin_with_its_files(server):
    id, _ = begun(server, COUNTER)
    server.run(id, "echo there > file")
    pause(server, id)
    status, headers, told = server.ask("POST", f"/v1/sandboxes/{id}/fork", {"count": 2})
    assert (status, headers["atoll-files"]) == (201, "copied"), told
    status, _, snapshot = server.ask("POST", f"/v1/sandboxes/{id}/snapshots", {})
    assert status == 201, snapshot
    others = [one["created"]["sandbox"]["id"] for one in told] + [server.made(template=snapshot["id"])[0]]
    for one in others:
        assert server.run(one, "cat file; pgrep -c python3") == "there\n0\n"
    at = count(id)
    assert server.ask("GET", f"/v1/sandboxes/{id}")[2]["memory_kept"]
    go_on(server, id)
    until(lambda: count(id) > at)
    for one in others + [id]:
        assert server.ask("DELETE", f"/v1/sandboxes/{one}")[0] == 200
    assert server.ask("DELETE", f"/v1/snapshots/{snapshot['id']}")[0] == 200


def the_time_of_a_program_stands_still_too(server):
    id, _ = server.made()
    command = {"command": ["sh", "-c", "while :; do sleep 0.1; done"], "timeout_ms": 3000}
    late = server.ask("POST", f"/v1/sandboxes/{id}/processes", command)[2]["pid"]
    kept = server.ask("POST", f"/v1/sandboxes/{id}/processes", {"command": ["sleep", "100"]})[2]["pid"]
    pause(server, id)
    # Longer than its time, and than it takes to see who does not stand still.
    time.sleep(8)
    assert server.ask("GET", f"/v1/sandboxes/{id}")[2]["memory_kept"], whys(server, id)
    go_on(server, id)
    running = lambda: [one["pid"] for one in server.ask("GET", f"/v1/sandboxes/{id}/processes")[2]]
    assert sorted(running()) == sorted([late, kept]), running()
    until(lambda: running() == [kept])
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def many_pause_and_go_on_beside_each_other(server):
    made = [begun(server, COUNTER)[0] for _ in range(6)]
    wrong = []

    def turn(id):
        try:
            for _ in range(10):
                pause(server, id)
                server.ask("GET", "/v1/snapshots")
                go_on(server, id)
                server.ask("GET", "/v1/sandboxes?paused=true")
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=turn, args=[id]) for id in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong, wrong
    for id in made:
        at = count(id)
        until(lambda: count(id) > at)
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def it_ends_while_it_stands_still(server):
    id, _ = begun(server, COUNTER)
    count(id)
    pause(server, id)
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
    assert server.ask("POST", f"/v1/sandboxes/{id}/connect", {})[0] == 404
    assert not os.path.exists(home_of(id))
    assert firsts() == [], firsts()


def firsts():
    """Returns the first processes of the sandboxes in which Python counts."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if COUNTER.encode() not in open(f"/proc/{pid}/cmdline", "rb").read():
                continue
            while True:
                status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line)
                if status["NSpid"].split()[-1] == "1":
                    break
                pid = status["PPid"]
            found.add(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return sorted(found)


def what_ends_by_itself_leaves_its_files(server):
    id, _ = begun(server, COUNTER)
    server.run(id, "echo there > file")
    pause(server, id)
    [first] = firsts()
    os.kill(first, signal.SIGKILL)
    until(lambda: firsts() == [])
    assert server.ask("GET", f"/v1/sandboxes/{id}")[2]["state"] == "paused"
    go_on(server, id)
    assert server.run(id, "cat file; pgrep -c python3") == "there\n0\n"
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def who_does_not_stand_still_is_ended(server):
    id, _ = begun(server, RESTLESS)
    server.run(id, "echo there > file")
    pause(server, id)
    at = file_of(id, "awake")
    until(lambda: file_of(id, "awake") != at)
    until(lambda: whys(server, id)[0].startswith("a program of it went on by itself"))
    at = file_of(id, "awake")
    time.sleep(1)
    assert file_of(id, "awake") == at
    go_on(server, id)
    assert server.run(id, "cat file; pgrep -c python3") == "there\n0\n"
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def memory_is_kept_for_a_time(key):
    server = Server("[pause]\nmemory_s = 2\n[quota]\nsandboxes = 2\n", key)
    made = [begun(server, COUNTER)[0] for _ in range(2)]
    for id in made:
        server.run(id, "echo there > file")
        pause(server, id)
    # As many as the tenant may have alive, and no more.
    third, _ = server.made()
    pause(server, third, memory=False)
    for id in made:
        until(lambda: whys(server, id)[0].startswith("its time was over"))
        assert not server.ask("GET", f"/v1/sandboxes/{id}")[2]["memory_kept"]
        go_on(server, id)
        assert server.run(id, "cat file; pgrep -c python3") == "there\n0\n"
    for id in made + [third]:
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
    server.end()
    server = Server("[pause]\nmemory_s = 0\n", key)
    id, _ = server.made()
    pause(server, id, memory=False)
    server.end()
    server = Server("", key)
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
    server.end()


def servers_that_end_leave_files(key):
    for how in (signal.SIGINT, signal.SIGKILL):
        server = Server("", key)
        made = [begun(server, COUNTER)[0] for _ in range(3)]
        for id in made:
            server.run(id, f"echo {id} > file")
            pause(server, id)
        # One that goes on is no more paused.
        gone_on = made.pop()
        go_on(server, gone_on)
        server.end(how)
        until(lambda: firsts() == [])
        server = Server("", key)
        assert server.ask("GET", f"/v1/sandboxes/{gone_on}")[0] == 404
        for id in made:
            facts = server.ask("GET", f"/v1/sandboxes/{id}")[2]
            assert (facts["state"], facts["memory_kept"]) == ("paused", False), facts
            go_on(server, id)
            assert server.run(id, "cat file; pgrep -c python3") == f"{id}\n0\n"
            assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
        until(lambda: os.listdir(os.path.join(state(), "homes")) == [])
        server.end()


CHECKS = [
    programs_and_sockets_go_on, it_ends_at_its_time_once_it_has_gone_on, others_begin_with_its_files,
    the_time_of_a_program_stands_still_too, many_pause_and_go_on_beside_each_other,
    it_ends_while_it_stands_still, what_ends_by_itself_leaves_its_files, who_does_not_stand_still_is_ended,
]


def main():
    failed = False

    def one(check, argument):
        nonlocal failed
        try:
            check(argument)
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}"[:600], flush=True)

    # Those that are made ahead have homes of their own.
    server = Server("[warm]\nsandboxes = 0\n")
    for check in CHECKS:
        one(check, server)
    one(lambda server: until(lambda: os.listdir(os.path.join(state(), "homes")) == []), server)
    server.end()
    for check in (memory_is_kept_for_a_time, servers_that_end_leave_files):
        one(check, server.key)
    sys.exit(failed)


if __name__ == "__main__":
    main()
