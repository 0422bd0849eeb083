"""Drives the E2B sandboxes of OpenAI's Agents SDK (PyPI `openai-agents[e2b]`), without a language
model. One of its defaults is changed: it works below the home.
Reads E2B's variables. Prints `ok NAME` or `failed NAME: why` for each check; 1 if one failed."""

import asyncio, io, os, sys, tempfile, traceback
from pathlib import Path

import httpx
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import LocalSnapshotSpec, Manifest
from agents.sandbox.entries import File
from e2b import AsyncSandbox

CLIENT = E2BSandboxClient()
ROOT = "/home/user/workspace"

async def create(snapshot=None, **more):
    entries = {"readme.md": File(content=b"read me\n")}
    manifest = Manifest(root=ROOT, entries=entries, environment={"value": {"FROM": "manifest"}})
    options = E2BSandboxClientOptions("e2b", timeout=300, **more)
    session = await CLIENT.create(snapshot=snapshot, manifest=manifest, options=options)
    await session.start()
    return session

async def commands(session):
    ran = await session.exec("pwd; echo $FROM $OPTION; cat readme.md; echo err >&2; exit 3")
    assert ran.stdout.decode() == f"{ROOT}\nmanifest option\nread me\n", ran.stdout
    assert (ran.stderr, ran.exit_code) == (b"err\n", 3), (ran.stderr, ran.exit_code)

async def files(session):
    path, data = Path("a/b/c.bin"), bytes(range(256)) * 1000
    await session.mkdir(path.parent, parents=True)
    await session.write(path, io.BytesIO(data))
    assert (await session.read(path)).read() == data
    listed = {Path(one.path).name: (one.is_dir(), one.size) for one in await session.ls("a/b")}
    assert listed["c.bin"] == (False, len(data)), listed
    await session.rm("a", recursive=True)
    assert (await session.exec("test -e a")).exit_code == 1

async def terminal(session):
    begun = await session.pty_exec_start("read x; echo got-$x", tty=True, yield_time_s=1)
    typed = await session.pty_write_stdin(session_id=begun.process_id, chars="word\n")
    output = typed.output
    # It tells what came in a moment; a busy machine takes longer.
    for _ in range(50):
        if b"got-word" in output or typed.exit_code is not None:
            break
        typed = await session.pty_write_stdin(session_id=begun.process_id, chars="")
        output += typed.output
    assert b"got-word" in output, output
    await session.pty_terminate_all()

async def port(session):
    await session.exec("python3 -m http.server 8000 >/dev/null 2>&1 & sleep 1")
    end = await session.resolve_exposed_port(8000)
    assert end.host.startswith(f"8000-{session.state.sandbox_id}.") and not end.tls, end
    url, host = f"{os.environ['E2B_API_URL']}/readme.md", f"{end.host}:{end.port}"
    got = httpx.get(url, headers={"Host": host})
    assert (got.status_code, got.text) == (200, "read me\n"), got

async def resumed_and_restored(_):
    """Takes a session up while its sandbox lives, and from its archive when that is gone."""
    with tempfile.TemporaryDirectory() as directory:
        first = await create(LocalSnapshotSpec(base_path=Path(directory)))
        await first.exec("echo kept > kept")
        ids = [first.state.sandbox_id]
        state = CLIENT.serialize_session_state(first.state)
        for _ in range(2):
            other = await CLIENT.resume(CLIENT.deserialize_session_state(state))
            await other.start()
            ids.append(other.state.sandbox_id)
            assert (await other.exec("cat kept")).stdout == b"kept\n"
            await other.aclose()
        assert ids[0] == ids[1] != ids[2], ids

async def close(session):
    assert await session.running()
    await session.aclose()
    assert not await session.running()
    listed = await AsyncSandbox.list().next_items()
    assert session.state.sandbox_id not in [one.sandbox_id for one in listed]

async def main():
    failed = False
    session = await create(envs={"OPTION": "option"}, exposed_ports=(8000,))
    for check in [commands, files, terminal, port, resumed_and_restored, close]:
        try:
            await check(session)
            print("ok", check.__name__)
        except Exception as error:
            failed = True
            print(f"failed {check.__name__}: {error!r}")
            traceback.print_exc()
    return failed

sys.exit(asyncio.run(main()))
