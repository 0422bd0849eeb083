"""Generates a client from the server's OpenAPI document (PyPI `openapi-python-client`), and drives
the server with it.

Reads E2B_API_URL and E2B_API_KEY. Prints `ok NAME` or `failed NAME: why` for each check, and
exits 1 if one failed.
"""

import io
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

URL = os.environ["E2B_API_URL"]
KEPT = tempfile.TemporaryDirectory()
DIRECTORY = Path(KEPT.name)
KEY = {"X-API-Key": os.environ["E2B_API_KEY"]}


def generate(*source):
    program = [sys.executable, "-m", "openapi_python_client", "generate", *source]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [*program, "--output-path", str(DIRECTORY / "client"), "--overwrite", "--fail-on-warning"],
        capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout[:600] + ran.stderr[:600]


def the_document_is_understood():
    generate("--url", f"{URL}/v1/openapi.json")


def sandboxes_and_files():
    sys.path.insert(0, str(DIRECTORY / "client"))
    from atoll_client import AuthenticatedClient
    from atoll_client.api.files import files_download as download, files_upload as upload
    from atoll_client.api.processes import processes_run as run
    from atoll_client.api.sandboxes import sandboxes_create as create, sandboxes_delete as delete
    from atoll_client.api.sandboxes import sandboxes_get as get, sandboxes_list as list_
    from atoll_client.models import CreateAsk, CreateAskMetadata, ProblemDetails, RunBody
    from atoll_client.types import File

    client = AuthenticatedClient(URL, KEY["X-API-Key"], prefix="", auth_header_name="X-API-Key")
    metadata = CreateAskMetadata.from_dict({"by": "generated"})
    made = create.sync(client=client, body=CreateAsk(metadata=metadata, timeout_s=60)).sandbox
    ran = run.sync(made.id, client=client, body=RunBody(command=["echo", "hi"]))
    assert (ran.exit_, ran.stdout) == (0, "hi\n"), ran
    content = bytes(range(256))
    entry = upload.sync(made.id, client=client, path="a.bin", body=File(io.BytesIO(content)))
    assert (entry.kind, entry.size) == ("file", 256), entry
    answer = download.sync_detailed(made.id, client=client, path="a.bin")
    assert (answer.status_code, answer.content) == (200, content), answer
    assert made.id in [one.id for one in list_.sync(client=client).sandboxes]
    assert get.sync(made.id, client=client).metadata.to_dict() == {"by": "generated"}
    delete.sync(made.id, client=client)
    gone = get.sync(made.id, client=client)
    assert isinstance(gone, ProblemDetails) and gone.status == 404, gone


failed = False
for check in [the_document_is_understood, sandboxes_and_files]:
    try:
        check()
        print("ok", check.__name__)
    except Exception as error:
        failed = True
        traceback.print_exc()
        print(f"failed {check.__name__}: {error!r}")
sys.exit(failed)
