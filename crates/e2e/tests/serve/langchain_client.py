"""Drives LangChain's sandbox for deep agents (PyPI `langchain-e2b`), without a language model.

Reads E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Prints `ok NAME` or `failed NAME: why` for
each check, and exits 1 if one failed. Not to be called langchain.py: that would hide the package.
"""

import asyncio
import sys
import traceback

from deepagents.backends.sandbox import BaseSandbox
from e2b import AsyncSandbox, Sandbox
from langchain_e2b import AsyncE2BSandbox, E2BSandbox

HOME = "/home/user"


def id_and_execute(box):
    assert isinstance(box, BaseSandbox) and box.id, box
    ran = box.execute("echo out; echo err >&2; pwd; exit 3")
    assert (ran.exit_code, ran.output) == (3, f"out\n{HOME}\n\nerr\n"), ran
    assert box.execute("echo hello").output == "hello\n"


def execute_times_out(box):
    ran = box.execute("sleep 30", timeout=1)
    assert ran.exit_code == 124 and "timed out after 1 s" in ran.output, ran
    assert box.execute("true").exit_code == 0


def upload_and_download(box):
    files = [(f"{HOME}/a/b.bin", bytes(range(256)) * 1000), (f"{HOME}/ä c.txt", b""), ("x", b"")]
    assert [file.error for file in box.upload_files(files)] == [None, None, "invalid_path"]
    got = box.download_files([path for path, _ in files] + [f"{HOME}/none", HOME])
    assert [file.content for file in got[:2]] == [content for _, content in files[:2]]
    errors = [file.error for file in got[2:]]
    assert errors == ["invalid_path", "file_not_found", "is_directory"], errors
    assert box.upload_files([(HOME, b"")])[0].error == "is_directory"


def write_read_edit(box):
    path = f"{HOME}/poem.txt"
    assert box.write(path, "one\ntwo\nthree\n").error is None
    assert "already exists" in box.write(path, "again").error
    assert box.read(path, offset=1, limit=1).file_data["content"].strip() == "two"
    assert box.edit(path, "two", "zwei").occurrences == 1
    # Beyond 50 kB an edit goes by two temporary files.
    assert box.edit(path, "zwei", "z" * 100_000).error is None
    content = box.download_files([path])[0].content
    assert content == b"one\n" + b"z" * 100_000 + b"\nthree\n", len(content)
    assert box.read(f"{HOME}/none").error


def ls_glob_grep(box):
    box.upload_files([(f"{HOME}/d/one.py", b"needle = 1\n"), (f"{HOME}/d/two.txt", b"hay\n")])
    listed = {entry["path"]: entry["is_dir"] for entry in box.ls(f"{HOME}/d").entries}
    assert listed == {f"{HOME}/d/one.py": False, f"{HOME}/d/two.txt": False}, listed
    assert box.ls(f"{HOME}/none").error
    assert [one["path"] for one in box.glob("**/*.py", path=HOME).matches] == ["d/one.py"]
    found = box.grep("needle", path=f"{HOME}/d").matches
    assert found == [{"path": f"{HOME}/d/one.py", "line": 1, "text": "needle = 1"}], found


def asynchronous(box):
    async def drive():
        other = AsyncE2BSandbox(sandbox=await AsyncSandbox.connect(box.id))
        assert other.id == box.id
        assert (await other.aexecute("echo $((6 * 7))")).output == "42\n"
        assert (await other.aupload_files([(f"{HOME}/async", b"1")]))[0].error is None
        assert (await other.adownload_files([f"{HOME}/async"]))[0].content == b"1"

    asyncio.run(drive())


failed = False
with Sandbox.create(timeout=300) as sandbox:
    for check in [id_and_execute, execute_times_out, upload_and_download, write_read_edit,
                  ls_glob_grep, asynchronous]:
        try:
            check(E2BSandbox(sandbox=sandbox))
            print("ok", check.__name__)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}")
sys.exit(failed)
