"""A model that demands its key and has its answers ready, under the name of a real one, and
recorders under other names. A turn for each command of COMMANDS, then a last word; before
that the key is looked for in all processes of the run. Arguments: the directory, then the
command to run while they are there. The key is in the file `real` beside that directory."""
import glob, http.server, json, os, re, socket, ssl, subprocess, sys, threading, urllib.parse

PLACE = sys.argv[1]
TOP = os.path.dirname(PLACE)
COMMANDS = json.loads(os.environ["COMMANDS"])
REAL = open(os.path.join(TOP, "real")).read().strip()
MODELS = ["api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"]
ISSUERS = ["auth.openai.com", "platform.claude.com"]
LAST = "ALL IS DONE"
lock = threading.Lock()
searching = threading.Lock()


def note(text):
    with lock, open(os.path.join(PLACE, "requests"), "a") as to:
        to.write(text + "\n")


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def told(self, kind, data):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, events, named):
        text = ""
        for event in events:
            text += f"event: {event['type']}\n" if named else ""
            text += "data: " + (event if isinstance(event, str) else json.dumps(event)) + "\n\n"
        self.told("text/event-stream", text.encode())

    def said(self):
        """Who it says it is, by whichever header."""
        for name in ("X-Api-Key", "X-Goog-Api-Key"):
            if self.headers[name]:
                return f"{name} {self.headers[name]}"
        return self.headers["Authorization"]

    def is_granted(self):
        if self.said() in ("Bearer " + REAL, "X-Api-Key " + REAL, "X-Goog-Api-Key " + REAL):
            return True
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_GET(self):
        note(f"GET {self.headers['Host']} {self.path} {self.said()}")
        if self.headers["Sec-WebSocket-Protocol"]:
            note(f"SUBPROTOCOL {self.headers['Sec-WebSocket-Protocol']}")
        if self.path == "/v1/redirect":
            self.send_response(302)
            self.send_header("Location", "https://example.com/redirected")
        elif self.path == "/v1/echo":
            self.send_response(200)
            self.send_header("X-Echo", str(self.said()))
        elif self.headers["Upgrade"]:
            # It has no WebSockets, and says so.
            self.send_response(426)
        elif self.is_granted():
            return self.told("application/json", b'{"data": [], "models": []}')
        else:
            return
        self.send_header("Content-Length", "0")
        self.end_headers()

    def issue(self, body):
        """An issuer of logins: what it answers is in the file `renewal`."""
        try:
            asked = json.loads(body)
        except ValueError:
            asked = dict(urllib.parse.parse_qsl(body.decode()))
        note(f"RENEWAL {json.dumps(asked)}")
        if asked.get("grant_type") not in ("refresh_token", "authorization_code"):
            return self.send_error(403)
        with open(os.path.join(TOP, "renewal"), "rb") as file:
            self.told("application/json", file.read())

    def do_POST(self):
        body = self.body()
        if self.headers["Host"] in ISSUERS:
            return self.issue(body)
        body = json.loads(body)
        note(f"POST {self.headers['Host']} {self.path} {self.said()}")
        if not self.is_granted():
            return
        if self.path.endswith("/embeddings"):
            # It has none: what would remember by them goes without.
            return self.send_error(404)
        tools = [tool.get("name") or tool.get("function", {}).get("name") for tool in body.get("tools") or []]
        if self.path.endswith("/responses"):
            self.by_responses(body, tools)
        elif "enerateContent" in self.path:
            self.by_contents(body)
        elif "/messages" in self.path:
            self.by_messages(body, tools)
        else:
            self.by_completions(body, tools)

    def by_responses(self, body, tools):
        told = [one for one in body["input"] if one.get("type") == "function_call_output"]
        outputs = [one for one in told if "awaited" not in one["call_id"]]
        unfinished = re.search(r'^{"status":"waiting","runId":"([^"]+)"', str(told[-1]["output"]) if told else "")
        known = {"exec_command": "cmd", "bash": "command", "exec": "command"}
        tool = next((tool for tool in tools if tool in known), None)
        if unfinished and "wait" in tools:
            # OpenClaw hands back what takes long, and does not end while nobody asks how it ended.
            words = json.dumps({"runId": unfinished[1]})
            item = {"type": "function_call", "id": f"w{len(told)}", "call_id": f"awaited{len(told)}", "name": "wait", "arguments": words}
        elif len(outputs) >= len(COMMANDS) or tool is None:
            note(f"tools {tools} output " + json.dumps(told))
            search(outputs)
            text = [{"type": "output_text", "text": LAST}]
            item = {"type": "message", "role": "assistant", "id": "m1", "content": text}
        else:
            turn = len(outputs)
            words = {known[tool]: COMMANDS[turn]}
            words |= {"exec_command": {"yield_time_ms": 30000}, "bash": {"description": "the work"}, "exec": {"yieldMs": 30000}}[tool]
            # OpenClaw has models of its own kind write JavaScript, in which its tools are functions.
            if any("code" in properties(one) for one in body["tools"] if one.get("name") == "exec"):
                words = {"code": f"return await exec({json.dumps(words)})"}
            item = {"type": "function_call", "id": f"f{turn}", "call_id": f"c{turn}", "name": tool, "arguments": json.dumps(words)}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
        begun = {"id": "r1", "created_at": 1, "model": body.get("model")}
        empty = {**item, "arguments": ""} if "arguments" in item else {**item, "content": []}
        delta = [{"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0, "delta": LAST}]
        self.events([
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": empty},
            *(delta if "content" in item else []),
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
            {"type": "response.completed", "response": {**begun, "output": [item], "usage": usage}},
        ], True)

    def by_completions(self, body, tools):
        outputs = [one for one in body["messages"] if one.get("role") == "tool"]
        if len(outputs) >= len(COMMANDS) or "bash" not in tools:
            if outputs:
                note("output " + json.dumps(outputs))
                search(outputs)
            delta, reason = {"role": "assistant", "content": LAST}, "stop"
        else:
            turn = len(outputs)
            words = json.dumps({"command": COMMANDS[turn], "description": "the work"})
            call = {"index": 0, "id": f"c{turn}", "type": "function", "function": {"name": "bash", "arguments": words}}
            delta, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.events([
            {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
            "[DONE]",
        ], False)


    def by_messages(self, body, tools):
        if "count_tokens" in self.path:
            return self.told("application/json", b'{"input_tokens": 10}')
        blocks = [block for one in body["messages"] if isinstance(one["content"], list) for block in one["content"]]
        outputs = [block for block in blocks if block.get("type") == "tool_result"]
        if len(outputs) >= len(COMMANDS) or "Bash" not in tools:
            note("output " + json.dumps(outputs))
            search(outputs)
            block, reason = {"type": "text", "text": ""}, "end_turn"
            delta = {"type": "text_delta", "text": LAST}
        else:
            block, reason = {"type": "tool_use", "id": f"t{len(outputs)}", "name": "Bash", "input": {}}, "tool_use"
            words = json.dumps({"command": COMMANDS[len(outputs)], "description": "the work"})
            delta = {"type": "input_json_delta", "partial_json": words}
        message = {"id": "m1", "type": "message", "role": "assistant", "model": body.get("model"), "content": [], "stop_reason": None,
                   "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        if not body.get("stream"):
            message.update(content=[{"type": "text", "text": LAST}], stop_reason="end_turn")
            return self.told("application/json", json.dumps(message).encode())
        self.events([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ], True)

    def by_contents(self, body):
        parts = [part for one in body["contents"] for part in one.get("parts", [])]
        outputs = [part for part in parts if "functionResponse" in part]
        tools = [one["name"] for tool in body.get("tools") or [] for one in tool.get("functionDeclarations", [])]
        if len(outputs) >= len(COMMANDS) or "run_shell_command" not in tools:
            note("output " + json.dumps(outputs))
            search(outputs)
            # It asks first how hard the work is, to choose a model, and waits long where it hears nothing of that.
            is_asked = "json" in body.get("generationConfig", {}).get("responseMimeType", "")
            part = {"text": '{"complexity_reasoning": "one command", "complexity_score": 10}' if is_asked else LAST}
        else:
            # It takes a call that is repeated as it was for a loop, and ends.
            words = {"command": COMMANDS[len(outputs)], "description": f"part {len(outputs)} of the work"}
            part = {"functionCall": {"name": "run_shell_command", "args": words}}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        content = {"role": "model", "parts": [part]}
        answer = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
        if "stream" in self.path:
            self.events([answer], False)
        else:
            self.told("application/json", json.dumps(answer).encode())


def properties(tool):
    """What a tool's arguments are called."""
    return (tool.get("parameters") or {}).get("properties") or {}


def search(outputs):
    """Looks for the key in all that the run's processes hold, while they are there."""
    inside = [path for path in glob.glob(TOP + "/**/inside-key", recursive=True, include_hidden=True) if os.path.isfile(path)]
    with searching:
        if not outputs or not inside or os.path.exists(f"{TOP}/searched"):
            return
        with open(f"{TOP}/searched", "w") as to:
            words = [sys.executable, f"{TOP}/search.py", str(run.pid), f"{TOP}/real", inside[0]]
            subprocess.run(words, stdout=to, stderr=to)


def record(connection, port, context):
    """Writes down where it is, by which name, and all that came so far, before it answers a
    request that is whole."""
    whole, place, name = b"", connection.getsockname()[0], "-"
    try:
        connection.settimeout(5)
        if context:
            connection = context.wrap_socket(connection, server_side=True)
            name = getattr(connection, "asked_for", "-")
        while block := connection.recv(65536):
            whole += block
            with lock, open(os.path.join(PLACE, "recorded"), "ab") as to:
                to.write(f"AT {place} {port} {name}\n".encode() + whole + b"\n")
            head, end, body = whole.partition(b"\r\n\r\n")
            head = head.lower()
            length = [line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            if end and b"upgrade: websocket" in head:
                connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            elif end and b" /a.git" in head and b"authorization:" not in head:
                # Git tells who it is where it is asked.
                connection.sendall(b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="a"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
                break
            elif end and len(body) >= int(length[0] if length else 0):
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nhi\n")
                break
    except OSError:
        pass
    finally:
        connection.close()


def recorder(address, port, context):
    listener = socket.create_server((address, port), backlog=64)

    def accept():
        while True:
            threading.Thread(target=record, args=(listener.accept()[0], port, context), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def certified(*names):
    contexts = {}
    for name in names:
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")

    def chosen(socket, name, _):
        socket.asked_for = name
        socket.context = contexts.get(name, contexts[names[0]])

    contexts[names[0]].sni_callback = chosen
    return contexts[names[0]]


listener = http.server.ThreadingHTTPServer(("93.184.216.37", 443), Model)
listener.socket = certified(*MODELS, *ISSUERS).wrap_socket(listener.socket, server_side=True)
threading.Thread(target=listener.serve_forever, daemon=True).start()
# Whoever is led to the recorder by another's name finds a server of that name.
recorder("93.184.216.34", 443, certified("example.com", *MODELS))
recorder("93.184.216.35", 443, certified("other.example"))
recorder("93.184.216.37", 8443, certified(*MODELS))
recorder("93.184.216.38", 3128, None)
recorder("", 80, None)
run = subprocess.Popen(sys.argv[2:])
sys.exit(run.wait())
