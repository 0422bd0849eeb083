"""A coding agent: its model and its loop run here, its tools in Atoll: python3 agent.py TRANSCRIPT"""

import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import urllib.request

sys.path.insert(0, "..")
import harness

WORK = pathlib.Path("work")


class Model(http.server.BaseHTTPRequestHandler):
    """A stand-in for a model of the Responses API: for each request the next step of a transcript."""

    steps = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = sum(one.get("type") == "function_call_output" for one in body["input"])
        answer = json.dumps({"output": self.output(done)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def output(self, done):
        if done == len(self.steps):
            return [{"type": "message", "content": [{"type": "output_text", "text": "I am done."}]}]
        step = self.steps[done]
        text = {"type": "message", "content": [{"type": "output_text", "text": step.get("say", "")}]}
        arguments = json.dumps(step["arguments"])
        call = {"type": "function_call", "call_id": f"c{done}", "name": step["call"], "arguments": arguments}
        return [text, call] if "say" in step else [call]


def ask_model(address, conversation, tools):
    body = {"model": "scripted", "input": conversation, "tools": tools}
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["output"]


def function(tool):
    """Describes a tool of MCP to the model."""
    named = {"type": "function", "name": tool["name"], "description": tool.get("description", "")}
    return {**named, "parameters": tool["inputSchema"]}


def work(address, task):
    """The agent's loop: the model names calls, Atoll makes them, until the model names none."""
    session = harness.Session(str(WORK))
    tools = [function(tool) for tool in session.tools()]
    conversation = [{"role": "user", "content": task}]
    while True:
        output = ask_model(address, conversation, tools)
        conversation += output
        for item in output:
            if item["type"] == "message":
                print(f"# {item['content'][0]['text']}", flush=True)
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            break
        for item in calls:
            text, _ = session.call(item["name"], json.loads(item["arguments"]))
            conversation.append({"type": "function_call_output", "call_id": item["call_id"], "output": text})
    session.close()


if __name__ == "__main__":
    if not WORK.exists():
        shutil.copytree("project", WORK)
        subprocess.run(["git", "init", "--quiet", str(WORK)], check=True)
    Model.steps = harness.read(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    work(f"http://127.0.0.1:{server.server_port}/v1/responses", "Make the tests pass.")
