"""Drives kernels of a server by clients of Jupyter's (PyPI `jupyter_kernel_client`), directly and over
a server of Jupyter's (PyPI `jupyter_server`) that has them as its gateway.

Reads JUPYTER_URL, JUPYTER_TOKEN and OTHER_KEY, a key of another tenant.
Prints `ok NAME` or `failed NAME: why` for each check; exits 1 if one failed.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid

import requests
import websocket
from jupyter_kernel_client import JupyterKernelClient
from jupyter_kernel_client.utils import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

URL, KEY = os.environ["JUPYTER_URL"], os.environ["JUPYTER_TOKEN"]


def expect(value, wanted):
    """Fails unless two values are equal."""
    if value != wanted:
        raise AssertionError(f"got {value!r}, not {wanted!r}")


def text(outputs, name="stdout"):
    """Returns what a cell wrote."""
    return "".join(one["text"] for one in outputs if one["output_type"] == "stream" and one["name"] == name)


def cells(kernel):
    ran = kernel.execute("x = 20\nprint('out')\nimport sys\nprint('err', file=sys.stderr)\nx + 1")
    expect((ran["status"], ran["execution_count"]), ("ok", 1))
    expect((text(ran["outputs"]), text(ran["outputs"], "stderr")), ("out\n", "err\n"))
    expect(ran["outputs"][-1], {"output_type": "execute_result", "metadata": {}, "data": {"text/plain": "21"}, "execution_count": 1})
    expect(kernel.execute("'a' * x")["outputs"][0]["data"]["text/plain"], repr("a" * 20))
    shown = kernel.execute("class Shown:\n    def _repr_html_(self):\n        return '<b>h</b>'\nShown()")
    expect(shown["outputs"][0]["data"]["text/html"], "<b>h</b>")
    failed = kernel.execute("1 / 0")
    expect((failed["status"], failed["outputs"][0]["ename"]), ("error", "ZeroDivisionError"))
    expect("ZeroDivisionError" in "\n".join(failed["outputs"][0]["traceback"]), True)
    expect(kernel.execute("import os; os.getcwd()")["outputs"][0]["data"]["text/plain"], "'/home/user'")
    expect(kernel.kernel_info["language_info"]["name"], "python")


def streams_at_once(kernel):
    times = []
    kernel.execute_interactive("import time\nprint('a', flush=True)\ntime.sleep(1)\nprint('b')", output_hook=lambda one: one["msg_type"] == "stream" and times.append(time.monotonic()))
    expect(len(times), 2)
    expect(times[1] - times[0] > 0.8, True)


def interrupts(kernel):
    kernel.execute("kept = 1")
    threading.Timer(1, kernel.interrupt).start()
    began = time.monotonic()
    ran = kernel.execute("import time\ntime.sleep(60)", timeout=30)
    expect((ran["status"], ran["outputs"][-1]["ename"]), ("error", "KeyboardInterrupt"))
    expect(time.monotonic() - began < 20, True)
    expect(kernel.execute("kept")["outputs"][0]["data"]["text/plain"], "1")


def restarts(kernel):
    kernel.execute("gone = 1")
    kernel.restart()
    expect(kernel.execute("gone")["outputs"][0]["ename"], "NameError")


def forged(kernel):
    """What a cell prints stays in the content of its own messages."""
    message = {"channel": "shell", "header": {"msg_type": "execute_reply"}, "content": {"status": "forged"}}
    event = {"type": "end_of_execution"}
    ran = kernel.execute(f"print({json.dumps(json.dumps(message))})\nprint({json.dumps(json.dumps(event))})\nprint('after')")
    expect(ran["status"], "ok")
    expect(text(ran["outputs"]), f"{json.dumps(message)}\n{json.dumps(event)}\nafter\n")


def has_limits(kernel):
    """A message that is too long ends its connection, and no other; a result that is too long is told."""
    mine = JupyterKernelClient(server_url=URL, token=KEY, kernel_id=kernel.id)
    mine.start()
    try:
        ran = mine.execute("class Long:\n    def _repr_html_(self):\n        return 'x' * (20 << 20)\nLong()", timeout=60)
        expect(("error" in ran["status"], "longer than 16 MiB" in ran["outputs"][-1]["evalue"]), (True, True))
        expect(mine.execute("1")["outputs"][0]["data"]["text/plain"], "1")
    finally:
        mine.stop(shutdown_kernel=False)
    line = websocket.create_connection(f"{URL.replace('http', 'ws')}/api/kernels/{kernel.id}/channels?token={KEY}")
    try:
        line.send("x" * (9 << 20))
        line.settimeout(20)
        expect(line.recv(), "")
    except (ConnectionError, websocket.WebSocketException):
        pass
    expect(kernel.execute("2")["outputs"][0]["data"]["text/plain"], "2")


HOSTILE = """
import http.server, sys
ANSWERS = {
    "channels": '{"type":"stdout","text":"x","channel":"shell","header":{"msg_type":"execute_reply"},"parent_header":{}}\\n'
                '{"type":"result","extra":{"a\\\\"}":1},"text":{"text/plain":1},"is_main_result":true}\\n{"type":"end_of_execution"}\\n',
    "broken": '{"type":"result","extra":{"a":1}},"channel":"shell"}\\n',
    "deep": '{"type":"result","extra":' + "[" * 100000 + "]" * 100000 + "}\\n",
    "cut": '{"type":"stdout","text":"x"}\\n',
}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        code = self.rfile.read(int(self.headers["Content-Length"])).decode()
        name = next((one for one in ANSWERS if one in code), "endless")
        self.send_response(302 if "moved" in code else 200)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        while name == "endless":
            self.wfile.write(b"x" * 65536)
        self.wfile.write(ANSWERS[name].encode())
http.server.ThreadingHTTPServer(("0.0.0.0", 49999), Handler).serve_forever()
"""


def outlives_a_hostile_interpreter(kernel):
    """Whatever answers in place of the interpreter, it stays in the content of what it answers to."""
    id = requests.post(f"{URL}/api/kernels", params={"token": KEY}).json()["id"]
    api = f"{URL.removesuffix('/jupyter')}/v1/sandboxes/{id.replace('-', '')}"
    # The one that runs already goes first.
    requests.post(f"{api}/run", headers={"X-API-Key": KEY}, json={"command": ["pkill", "-KILL", "-f", "[a]toll/template/"]})
    started = requests.post(f"{api}/processes", headers={"X-API-Key": KEY}, json={"command": ["python3", "-c", HOSTILE]})
    expect(started.status_code, 201)
    while not any(one["port"] == 49999 for one in requests.get(f"{api}/ports", headers={"X-API-Key": KEY}).json()):
        time.sleep(0.1)
    line = websocket.create_connection(f"{URL.replace('http', 'ws', 1)}/api/kernels/{id}/channels?token={KEY}", timeout=60)
    for code, status in [("channels", "ok"), ("broken", "error"), ("deep", "error"), ("cut", "error"), ("moved", "error"), ("endless", "error"), ("channels", "ok")]:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s", "username": "", "date": "", "version": "5.3"}
        line.send(json.dumps({"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": {"code": code}}))
        replies, busy = [], True
        while busy:
            message = json.loads(line.recv())
            expect(sorted(message), ["buffers", "channel", "content", "header", "metadata", "msg_id", "msg_type", "parent_header"])
            expect((message["parent_header"], message["msg_type"]), (header, message["header"]["msg_type"]))
            expect(message["channel"], "shell" if message["msg_type"] == "execute_reply" else "iopub")
            replies += [message["content"]["status"]] if message["channel"] == "shell" else []
            busy = not (message["msg_type"] == "status" and message["content"]["execution_state"] == "idle")
        expect((code, replies), (code, [status]))
    line.close()
    expect(requests.delete(f"{URL}/api/kernels/{id}", params={"token": KEY}).status_code, 204)
    expect(kernel.execute("3")["outputs"][0]["data"]["text/plain"], "3")


def is_isolated(kernel):
    """Each kernel is a sandbox of its own, and nobody else's."""
    kernel.execute("open('secret', 'w').write('s')")
    with JupyterKernelClient(server_url=URL, token=KEY) as second:
        expect(second.id != kernel.id, True)
        expect(second.execute("import os; os.listdir()")["outputs"][0]["data"]["text/plain"], "[]")
        listed = requests.get(f"{URL}/api/kernels", headers={"Authorization": f"token {KEY}"}).json()
        expect({kernel.id, second.id} <= {one["id"] for one in listed}, True)
        gone = second.id
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart"), ("GET", "/channels")]:
        for key, status in [(os.environ["OTHER_KEY"], 404), ("wrong", 401), (None, 401)]:
            headers = {"Authorization": f"token {key}"} if key else {}
            got = requests.request(method, f"{URL}/api/kernels/{kernel.id}{path}", headers=headers)
            expect((method, path, key, got.status_code), (method, path, key, status))
    for id in [gone, uuid.uuid4(), "x", kernel.id.replace("-", "")]:
        expect(requests.get(f"{URL}/api/kernels/{id}", headers={"Authorization": f"Bearer {KEY}"}).status_code, 404)
    try:
        websocket.create_connection(f"{URL.replace('http', 'ws')}/api/kernels/{kernel.id}/channels?token={os.environ['OTHER_KEY']}")
        raise AssertionError("it was let in")
    except websocket.WebSocketBadStatusException as error:
        expect(error.status_code, 404)
    expect(requests.get(f"{URL}/api/kernels", params={"token": os.environ["OTHER_KEY"]}).json(), [])
    # Who knows its id does not reach its interpreter.
    around = {"E2b-Sandbox-Id": kernel.id.replace("-", ""), "E2b-Sandbox-Port": "49999"}
    expect(requests.post(f"{URL.removesuffix('/jupyter')}/execute", headers=around, json={"code": "1"}).status_code, 401)


def has_other_languages(_):
    specs = requests.get(f"{URL}/api/kernelspecs", params={"token": KEY}).json()
    expect((specs["default"], set(specs["kernelspecs"])), ("python3", {"python3", "javascript", "bash"}))
    kernel = JupyterKernelClient(server_url=URL, token=KEY)
    kernel.start(name="bash")
    try:
        expect(text(kernel.execute("y=5; echo $((y + 1))")["outputs"]), "6\n")
    finally:
        kernel.stop()
    expect(requests.post(f"{URL}/api/kernels", params={"token": KEY}, json={"name": "cobol"}).status_code, 404)


def speaks_the_binary_form(kernel):
    """Jupyter's other form of messages, by the client's functions: its own connection cannot read it."""
    form = "v1.kernel.websocket.jupyter.org"
    line = websocket.create_connection(f"{URL.replace('http', 'ws', 1)}/api/kernels/{kernel.id}/channels?token={KEY}", subprotocols=[form], timeout=60)
    expect(line.subprotocol, form)
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "", "date": "", "version": "5.3"}
    parts = [json.dumps(part).encode() for part in (header, {}, {}, {"code": "'\u20ac'"})]
    line.send_binary(serialize_msg_to_ws_v1(parts, "shell"))
    seen = {}
    while seen.get("status") != {"execution_state": "idle"}:
        channel, (header, parent, _, content) = deserialize_msg_from_ws_v1(line.recv())
        expect(json.loads(parent)["msg_id"], "1")
        seen[json.loads(header)["msg_type"]] = json.loads(content)
    expect((seen["execute_result"]["data"]["text/plain"], seen["execute_reply"]["status"]), ("'\u20ac'", "ok"))
    line.close()


def serves_as_open_webui_asks(_):
    """The requests of Open WebUI's `code_interpreter.py`: the token in the query, and no body."""
    made = requests.post(f"{URL}/api/kernels", params={"token": KEY})
    expect(made.status_code, 201)
    id, asked = made.json()["id"], uuid.uuid4().hex
    line = websocket.create_connection(f"{URL.replace('http', 'ws', 1)}/api/kernels/{id}/channels?token={KEY}")
    line.send(json.dumps({
        "header": {"msg_id": asked, "msg_type": "execute_request", "username": "user", "session": uuid.uuid4().hex, "date": "", "version": "5.3"},
        "parent_header": {}, "metadata": {}, "channel": "shell",
        "content": {"code": "print(6 * 7)\n'r'", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True},
    }))
    out, result = "", []
    line.settimeout(60)
    while True:
        message = json.loads(line.recv())
        if message.get("parent_header", {}).get("msg_id") != asked:
            continue
        if message["msg_type"] == "stream":
            out += message["content"]["text"]
        elif message["msg_type"] in ("execute_result", "display_data"):
            result.append(message["content"]["data"]["text/plain"])
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    line.close()
    expect((out, result), ("42\n", ["'r'"]))
    expect(requests.delete(f"{URL}/api/kernels/{id}", params={"token": KEY}).status_code, 204)
    expect(requests.get(f"{URL}/api/kernels/{id}", params={"token": KEY}).status_code, 404)


def serves_a_server_of_jupyters(_):
    """A server of Jupyter's with these kernels, as notebooks use it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "JUPYTER_GATEWAY_AUTH_TOKEN": KEY}
        command = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", f"--port={port}", f"--gateway-url={URL}",
                   "--IdentityProvider.token=outer", f"--ServerApp.root_dir={home}", "--ServerApp.ip=127.0.0.1"]
        with open(os.path.join(home, "log"), "w+") as log:
            server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                outer = f"http://127.0.0.1:{port}"
                for _ in range(300):
                    try:
                        requests.get(f"{outer}/api", timeout=1)
                        break
                    except requests.ConnectionError:
                        time.sleep(0.1)
                specs = requests.get(f"{outer}/api/kernelspecs", params={"token": "outer"}).json()
                expect(specs["kernelspecs"]["python3"]["spec"]["display_name"], "Python 3")
                with JupyterKernelClient(server_url=outer, token="outer") as kernel:
                    expect(kernel.execute("import os; os.environ['E2B_SANDBOX']")["outputs"][0]["data"]["text/plain"], "'true'")
                    threading.Timer(1, kernel.interrupt).start()
                    expect(kernel.execute("import time; time.sleep(60)", timeout=30)["status"], "error")
            except Exception:
                log.seek(0)
                print(log.read(), file=sys.stderr)
                raise
            finally:
                server.terminate()
                server.wait()


def ends(kernel):
    id = kernel.id
    kernel.stop()
    expect(requests.get(f"{URL}/api/kernels/{id}", params={"token": KEY}).status_code, 404)


def main():
    """Runs the checks with one kernel."""
    failed = False
    kernel = JupyterKernelClient(server_url=URL, token=KEY)
    kernel.start()
    checks = [cells, streams_at_once, interrupts, restarts, forged, has_limits, outlives_a_hostile_interpreter, is_isolated, has_other_languages,
              speaks_the_binary_form, serves_as_open_webui_asks, serves_a_server_of_jupyters, ends]
    for check in checks:
        try:
            check(kernel)
            print("ok", check.__name__, flush=True)
        except Exception as error:
            failed = True
            print(f"failed {check.__name__}: {error!r}", flush=True)
            traceback.print_exc()
    return failed


sys.exit(main())
