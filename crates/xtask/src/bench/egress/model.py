"""A model that demands its key and answers at once, by HTTPS: first with a command, then with
a last word, once it has heard what the command said. Arguments: the directory with the
certificate, the address, the key. Each conversation that came to its end is a line in `ended`."""
import http.server, json, os, ssl, sys

PLACE, ADDRESS, KEY = sys.argv[1:]
COMMAND = "echo made by an agent > made.txt; cat made.txt"
LAST = "ALL IS DONE"


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # As models' servers do: else a client that acknowledges late adds 40 ms here and there.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def told(self, status, kind="", data=b""):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.told(200, "application/json", b'{"data": [], "models": []}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer " + KEY:
            return self.told(401)
        outputs = [one for one in body["input"] if one.get("type") == "function_call_output"]
        if not outputs:
            words = json.dumps({"cmd": COMMAND, "yield_time_ms": 30000})
            item = {"type": "function_call", "id": "f0", "call_id": "c0", "name": "exec_command", "arguments": words}
        elif "made by an agent" not in json.dumps(outputs):
            return self.told(400)
        else:
            item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": LAST}]}
            with open(os.path.join(PLACE, "ended"), "a") as to:
                to.write("ended\n")
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
        begun = {"id": "r1", "created_at": 1, "model": body.get("model")}
        text = ""
        for event in (
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
            {"type": "response.completed", "response": {**begun, "output": [item], "usage": usage}},
        ):
            text += f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        self.told(200, "text/event-stream", text.encode())


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(PLACE, "server.pem"), os.path.join(PLACE, "server.key"))
listener = http.server.ThreadingHTTPServer((ADDRESS, 443), Model)
listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
listener.serve_forever()
