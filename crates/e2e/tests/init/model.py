"""A model with its answers ready, at a port of the loopback that it prints: it calls the tool whose
name ends as its first argument does, with each of the others in turn, prints what comes back, and
says that it is done."""
import http.server, json, sys

WANTED, CALLS = sys.argv[1], sys.argv[2:]


def named(tools, space=""):
    """The tools by their whole names, those of a name space too."""
    for tool in tools or []:
        yield from named(tool.get("functionDeclarations"))
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
        path = self.path.split("?")[0]
        if path.endswith("/responses"):
            self.by_responses(body, found)
        elif path.endswith("/messages"):
            self.by_messages(body, found)
        elif "enerateContent" in path:
            self.by_contents(body, found)
        else:
            self.by_completions(body, found)

    def next(self, told, found):
        """The next call; none where all were made, or there is no such tool."""
        if found and len(told) < len(CALLS):
            return CALLS[len(told)]
        if told:
            print("told", json.dumps(told), flush=True)

    def by_responses(self, body, found):
        told = [one for one in body["input"] if one.get("type", "").endswith("call_output")]
        arguments = self.next(told, found)
        if arguments is None:
            item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "done"}]}
        else:
            name, space = found[0]
            item = {"type": "function_call", "id": f"f{len(told)}", "call_id": f"c{len(told)}", "name": name, "arguments": arguments}
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
        arguments = self.next(told, found)
        if arguments is None:
            delta, reason = {"role": "assistant", "content": "done"}, "stop"
        else:
            call = {"index": 0, "id": f"c{len(told)}", "type": "function", "function": {"name": found[0][0], "arguments": arguments}}
            delta, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.events([
            {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
            "[DONE]",
        ])

    def by_messages(self, body, found):
        blocks = [block for one in body["messages"] if isinstance(one["content"], list) for block in one["content"]]
        told = [block for block in blocks if block.get("type") == "tool_result"]
        arguments = self.next(told, found)
        if arguments is None:
            block, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn"
        else:
            block = {"type": "tool_use", "id": f"toolu_{len(told)}", "name": found[0][0], "input": {}}
            delta, reason = {"type": "input_json_delta", "partial_json": arguments}, "tool_use"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"type": "message", "id": "m1", "role": "assistant", "model": body.get("model"), "content": [], "usage": usage}
        message |= {"stop_reason": None, "stop_sequence": None}
        if not body.get("stream"):
            return self.say("application/json", json.dumps({**message, "content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}).encode())
        self.events([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ])

    def by_contents(self, body, found):
        parts = [part for one in body.get("contents", []) for part in one.get("parts", [])]
        told = [part for part in parts if "functionResponse" in part]
        arguments = self.next(told, found)
        part = {"text": "done"}
        if arguments is not None:
            part = {"functionCall": {"name": found[0][0], "args": json.loads(arguments)}}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        whole = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
        if "stream" in self.path:
            return self.events([whole])
        self.say("application/json", json.dumps(whole).encode())

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
