"""A model that has its answers ready, under the name of a real one, and a host that
nobody is to reach. First turn: a command, from COMMAND; then a last word. Arguments: the
directory, then the command to run while it is there."""
import http.server, json, os, ssl, subprocess, sys, threading

PLACE = sys.argv[1]
COMMAND = os.environ["COMMAND"]
LAST = "ALL IS DONE"
lock = threading.Lock()


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

    def do_GET(self):
        note(f"GET {self.headers['Host']} {self.path}")
        self.told("application/json", b'{"data": [], "models": []}')

    def do_POST(self):
        body = json.loads(self.body())
        note(f"POST {self.headers['Host']} {self.path} {self.headers['Authorization']}")
        tools = [tool.get("name") or tool.get("function", {}).get("name") for tool in body.get("tools") or []]
        if self.path.endswith("/responses"):
            self.by_responses(body, tools)
        else:
            self.by_completions(body, tools)

    def by_responses(self, body, tools):
        outputs = [one for one in body["input"] if one.get("type") == "function_call_output"]
        if outputs or "exec_command" not in tools:
            note("output " + json.dumps(outputs))
            text = [{"type": "output_text", "text": LAST}]
            item = {"type": "message", "role": "assistant", "id": "m1", "content": text}
        else:
            words = json.dumps({"cmd": COMMAND})
            item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "exec_command", "arguments": words}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
        self.events([
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r1", "output": [item], "usage": usage}},
        ], True)

    def by_completions(self, body, tools):
        outputs = [one for one in body["messages"] if one.get("role") == "tool"]
        if outputs or "bash" not in tools:
            if outputs:
                note("output " + json.dumps(outputs))
            delta, reason = {"role": "assistant", "content": LAST}, "stop"
        else:
            words = json.dumps({"command": COMMAND, "description": "the work"})
            call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "bash", "arguments": words}}
            delta, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.events([
            {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
            "[DONE]",
        ], False)


listener = http.server.ThreadingHTTPServer(("93.184.216.37", 443), Model)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{PLACE}/api.openai.com.pem", f"{PLACE}/api.openai.com.key")
listener.socket = context.wrap_socket(listener.socket, server_side=True)
threading.Thread(target=listener.serve_forever, daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
