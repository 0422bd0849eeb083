"""Drives unmodified SDKs of OpenSandbox (PyPI `opensandbox`, `opensandbox-code-interpreter`) against a server.

Reads OPEN_SANDBOX_DOMAIN, OPEN_SANDBOX_API_KEY and OTHER_KEY, a key of another tenant.
Prints `ok NAME` or `failed NAME: why` for each check; exits 1 if one failed.
"""
import asyncio
import os
import sys
import time
import traceback
from datetime import timedelta

import httpx
import threading
from code_interpreter import CodeInterpreter, CodeInterpreterSync
from opensandbox import Sandbox, SandboxManager, SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfig
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.filesystem import (
    ContentReplaceEntry, DirectoryListEntry, MoveEntry, SearchEntry, SetPermissionEntry, WriteEntry)
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule, SandboxFilter, SnapshotFilter


def expect(value, wanted):
    """Fails unless two values are equal."""
    if value != wanted:
        raise AssertionError(f"got {value!r}, not {wanted!r}")


def refused(status, function, *words):
    """Fails unless a call is refused with this status, and these words."""
    try:
        function()
    except SandboxApiException as error:
        expect(error.status_code, status)
        for word in words:
            expect(word in str(error), True)
        return
    raise AssertionError("it was not refused")


def described(box):
    info = box.get_info()
    expect((info.id, info.status.state, info.metadata), (box.id, "Running", {"a b": "c&d"}))
    expect(290 < (info.expires_at - info.created_at).total_seconds() < 310, True)
    expect(box.is_healthy(), True)
    metrics = box.get_metrics()
    expect((metrics.cpu_count, metrics.memory_total_in_mib), (1.0, 512.0))


def commands(box):
    ran = box.commands.run("echo out; echo err >&2; echo $FROM $OWN; pwd", opts=RunCommandOpts(envs={"OWN": "own"}, working_directory="/tmp"))
    expect((ran.exit_code, ran.text), (0, "out\nsandbox own\n/tmp"))
    expect("".join(one.text for one in ran.logs.stderr), "err\n")
    expect(box.commands.run("exit 3").exit_code, 3)
    expect(box.commands.run(["printf", "%s", "a b"]).text, "a b")
    seen = []
    box.commands.run("echo a; sleep 1; echo \u20ac", handlers=ExecutionHandlersSync(on_stdout=lambda one: seen.append((one.text.strip(), time.monotonic()))))
    expect([text for text, _ in seen], ["a", "\u20ac"])
    expect(seen[1][1] - seen[0][1] > 0.8, True)
    late = box.commands.run("sleep 60", opts=RunCommandOpts(timeout=timedelta(seconds=1)))
    expect("time was over" in late.error.value, True)
    refused(403, lambda: box.commands.run("id", opts=RunCommandOpts(uid=0)), "every program is user")


def background(box):
    ran = box.commands.run("echo begun; sleep 2; echo done; exit 5", opts=RunCommandOpts(background=True))
    time.sleep(0.5)
    expect(box.commands.get_command_status(ran.id).running, True)
    first = box.commands.get_background_command_logs(ran.id)
    expect(first.content, "begun\n")
    time.sleep(2.5)
    status = box.commands.get_command_status(ran.id)
    expect((status.running, status.exit_code), (False, 5))
    expect(box.commands.get_background_command_logs(ran.id, cursor=first.cursor).content, "done\n")
    ran = box.commands.run("sleep 60", opts=RunCommandOpts(background=True))
    box.commands.interrupt(ran.id)
    time.sleep(0.5)
    expect(box.commands.get_command_status(ran.id).running, False)
    refused(404, lambda: box.commands.get_command_status("999999"))


def files(box):
    data = bytes(range(256)) * 4096
    box.files.write_file("/home/user/a/b.bin", data, mode=600)
    expect(box.files.read_bytes("/home/user/a/b.bin"), data)
    expect(b"".join(box.files.read_bytes_stream("/home/user/a/b.bin", range_header="bytes=1-3")), b"\x01\x02\x03")
    info = box.files.get_file_info(["/home/user/a/b.bin"])["/home/user/a/b.bin"]
    expect((info.size, info.mode, info.owner, info.entry_type), (len(data), 600, "user", "file"))
    box.files.write_files([WriteEntry(path="one.txt", data="one", mode=644), WriteEntry(path="/home/user/two.sh", data="echo two")])
    expect(box.commands.run("./two.sh; cat one.txt").text, "two\none")
    box.files.replace_contents([ContentReplaceEntry(path="one.txt", old_content="one", new_content="three")])
    expect(box.files.read_file("one.txt"), "three")
    box.files.set_permissions([SetPermissionEntry(path="one.txt", mode=400)])
    box.files.move_files([MoveEntry(src="one.txt", dest="a/c.txt")])
    box.files.create_directories([WriteEntry(path="/home/user/d/e", mode=700)])
    found = box.files.search(SearchEntry(path="/home/user", pattern="*.txt"))
    expect([(one.path, one.mode) for one in found], [("/home/user/a/c.txt", 400)])
    listed = box.files.list_directory(DirectoryListEntry(path="/home/user/a"))
    expect(sorted(one.path for one in listed), ["/home/user/a/b.bin", "/home/user/a/c.txt"])
    box.files.delete_files(["/home/user/a/b.bin"])
    box.files.delete_directories(["/home/user/d"])
    expect(box.commands.run("ls /home/user").text, "a\ntwo.sh")
    refused(404, lambda: box.files.read_bytes("/home/user/nothing"))
    refused(403, lambda: box.files.write_file("x", "x", owner="root"), "every file is of user")


def ports(box):
    box.commands.run("echo page > index.html; python3 -m http.server 8000", opts=RunCommandOpts(background=True))
    end = box.get_endpoint(8000)
    for _ in range(100):
        got = httpx.get(f"http://{end.endpoint}/index.html", headers=end.headers)
        if got.status_code == 200:
            break
        time.sleep(0.1)
    expect(got.text, "page\n")
    bare = {name: value for name, value in end.headers.items() if "token" not in name}
    expect(httpx.get(f"http://{end.endpoint}/", headers=bare).status_code, 403)


def life(box):
    with SandboxManagerSync.create() as manager:
        find = lambda **filters: [one.id for one in manager.list_sandbox_infos(SandboxFilter(**filters)).sandbox_infos]
        expect(find(metadata={"a b": "c&d"}), [box.id])
        expect(find(states=["Paused"]), [])
        left = box.renew(timedelta(minutes=20)).expires_at - box.get_info().created_at
        expect(left.total_seconds() > 1000, True)
        box.commands.run("echo kept > kept")
        box.pause()
        expect(find(states=["Paused"]), [box.id])
        refused(409, lambda: SandboxSync.connect(box.id), "is paused")
        again = SandboxSync.resume(box.id)
        expect(again.commands.run("cat kept").text, "kept")
        kept = again.create_snapshot("first")
        expect((kept.sandbox_id, kept.status.state), (box.id, "Ready"))
        expect([one.id for one in manager.list_snapshots(SnapshotFilter(name="first")).snapshot_infos], [kept.id])
        copy = SandboxSync.create(snapshot_id=kept.id, timeout=timedelta(minutes=5), resource={"cpu": "1", "memory": "512Mi"})
        expect(copy.commands.run("cat kept").text, "kept")
        copy.kill()
        manager.delete_snapshot(kept.id)


def network(box):
    expect(box.get_egress_policy().default_action, "deny")
    refused(403, lambda: box.patch_egress_rules([NetworkRule(action="allow", target="example.com")]), "network")
    policy = NetworkPolicy(defaultAction="deny", egress=[])
    closed = SandboxSync.create("base", timeout=timedelta(minutes=5), network_policy=policy)
    expect(closed.get_egress_policy().egress, [])
    closed.kill()


def refusals(box):
    refused(401, lambda: SandboxSync.create("base", connection_config=ConnectionConfigSync(api_key="wrong")))
    other = ConnectionConfigSync(api_key=os.environ["OTHER_KEY"])
    refused(404, lambda: SandboxSync.connect(box.id, connection_config=other), "there is no sandbox")
    with SandboxManagerSync.create(other) as manager:
        expect(manager.list_sandbox_infos(SandboxFilter()).sandbox_infos, [])
        refused(404, lambda: manager.kill_sandbox(box.id))
    end = box.get_endpoint(44772)
    for headers in [{}, {"x-execd-access-token": "0" * 40}, {"open-sandbox-api-key": "wrong"}]:
        got = httpx.post(f"http://{end.endpoint}/command", headers=headers, json={"command": "id"})
        expect(got.status_code, 401)
    got = httpx.get(f"http://{end.endpoint}/files/info?path=/", headers={"open-sandbox-api-key": os.environ["OTHER_KEY"]})
    expect((got.status_code, got.json()["code"]), (404, "SANDBOX_NOT_FOUND"))
    refused(404, lambda: SandboxSync.create("no/such:image"), "no/such:image")
    refused(400, lambda: SandboxSync.create("base", extensions={"a": "b"}), "extensions", "does not offer")
    refused(400, lambda: SandboxSync.create("base", timeout=None), "every sandbox has an end")
    refused(400, lambda: SandboxSync.create("base", entrypoint=["nginx"]), "entrypoint")
    expect(SandboxSync.connect(box.id, connection_config=ConnectionConfigSync(use_server_proxy=True)).commands.run("echo by key").text, "by key")


def code(_):
    box = SandboxSync.create("opensandbox/code-interpreter:v1.0.1", timeout=timedelta(minutes=5))
    codes = CodeInterpreterSync.create(sandbox=box).codes
    seen = []
    handlers = ExecutionHandlersSync(on_stdout=lambda message: seen.append(message.text))
    ran = codes.run("x = 20\nprint('out')\nx + 1", handlers=handlers)
    expect(([one.text for one in ran.result], "".join(seen).strip(), ran.error, ran.execution_count), (["21"], "out", None, 1))
    expect(ran.complete is not None, True)
    own = codes.create_context("python")
    expect(codes.run("'x' in globals()", context=own).result[0].text, "False")
    expect(codes.run("x * 2").result[0].text, "40")
    failed = codes.run("1 / 0", context=own)
    expect((failed.error.name, failed.error.value), ("ZeroDivisionError", "division by zero"))
    expect("1 / 0" in failed.error.traceback[0], True)
    expect(codes.run("console.log(6 * 7)", language="javascript").logs.stdout[0].text.strip(), "42")
    expect(own.id in [one.id for one in codes.list_contexts("python")], True)
    expect(codes.get_context(own.id).language, "python")
    # An execution is interrupted by its id, and its context goes on.
    started = threading.Event()
    ids = []
    begun = ExecutionHandlersSync(on_init=lambda one: ids.append(one.id), on_stdout=lambda _: started.set())
    told = []
    loop = "import time\nkept = 1\nprint('on', flush=True)\nwhile True: time.sleep(0.1)"
    thread = threading.Thread(target=lambda: told.append(codes.run(loop, context=own, handlers=begun)))
    thread.start()
    expect(started.wait(20), True)
    codes.interrupt(ids[0])
    thread.join(20)
    expect(told[0].error.name, "KeyboardInterrupt")
    expect(codes.run("kept", context=own).result[0].text, "1")
    codes.delete_context(own.id)
    refused(404, lambda: codes.get_context(own.id))
    refused(404, lambda: codes.run("1", context=own))
    refused(400, lambda: codes.create_context("cobol"))
    refused(404, lambda: codes.delete_context("..%2f..%2fvariables"))
    box.kill()


def asynchronous(_):
    async def check():
        box = await Sandbox.create("opensandbox/code-interpreter:v1.0.1", entrypoint=["/opt/opensandbox/code-interpreter.sh"],
                                   timeout=timedelta(minutes=5), connection_config=ConnectionConfig())
        ran = await box.commands.run("echo $E2B_SANDBOX_ID")
        expect(ran.text, box.id)
        interpreter = await CodeInterpreter.create(sandbox=box)
        expect((await interpreter.codes.run("40 + 2")).result[0].text, "42")
        await box.files.write_file("a.txt", "text")
        expect(await box.files.read_file("a.txt"), "text")
        await box.kill()
        expect(await box.is_healthy(), False)
        await box.close()
        manager = await SandboxManager.create(ConnectionConfig())
        expect(box.id in [one.id for one in (await manager.list_sandbox_infos(SandboxFilter())).sandbox_infos], False)
        await manager.close()
    asyncio.run(check())


def main():
    """Runs the checks in one sandbox."""
    failed = False
    box = SandboxSync.create("base", timeout=timedelta(minutes=5), env={"FROM": "sandbox"}, metadata={"a b": "c&d"},
                             resource={"cpu": "1", "memory": "512Mi"}, secure_access=True)
    for check in [described, commands, background, files, ports, network, code, refusals, life, asynchronous]:
        try:
            check(box)
            print("ok", check.__name__, flush=True)
        except Exception as error:
            failed = True
            print(f"failed {check.__name__}: {error!r}", flush=True)
            traceback.print_exc()
    SandboxSync.connect(box.id).destroy()
    return failed


sys.exit(main())
