"""A model with its answers ready, at a port of the loopback that it prints: it calls the tool whose
name ends as its argument does, prints what comes back, and says that it is done."""
import http.server, json, sys

WANTED, ARGUMENTS = sys.argv[1], sys.argv[2]


def named(tools, space=""):
    """The tools by their whole names, those of a name space too."""
    for tool in tools or []:
        name = tool.get("name") or tool.get("function", {}).get("name") or ""
        if "tools" in tool:
            yield from named(tool["tools"], name)
        yield name, space


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.say("application/json", b'{"models": [], "data": []}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        found = [(name, space) for name, space in named(body.get("tools")) if name.endswith(WANTED)]
        if self.path.endswith("/responses"):
            self.by_responses(body, found)
        else:
            self.by_completions(body, found)

    def by_responses(self, body, found):
        told = [one for one in body["input"] if one.get("type", "").endswith("call_output")]
        if told or not found:
            print("told", json.dumps(told), flush=True)
            item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "done"}]}
        else:
            name, space = found[0]
            item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": name, "arguments": ARGUMENTS}
            item |= {"namespace": space} if space else {}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
        begun = {"id": "r1", "created_at": 1, "model": body.get("model")}
        self.events([
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
            {"type": "response.completed", "response": {**begun, "output": [item], "usage": usage}},
        ])

    def by_completions(self, body, found):
        told = [one for one in body["messages"] if one.get("role") == "tool"]
        if told or not found:
            if told or body.get("tools"):
                print("told", json.dumps(told), flush=True)
            delta, reason = {"role": "assistant", "content": "done"}, "stop"
        else:
            call = {"index": 0, "id": "c1", "type": "function", "function": {"name": found[0][0], "arguments": ARGUMENTS}}
            delta, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.events([
            {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
            "[DONE]",
        ])

    def events(self, all):
        lines = []
        for one in all:
            kind = f"event: {one['type']}\n" if isinstance(one, dict) and "type" in one else ""
            lines.append(kind + "data: " + (one if isinstance(one, str) else json.dumps(one)) + "\n\n")
        self.say("text/event-stream", "".join(lines).encode())

    def say(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print("port", server.server_port, "", flush=True)
server.serve_forever()
