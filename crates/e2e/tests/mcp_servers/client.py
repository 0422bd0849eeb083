"""Speaks MCP with `atoll mcp` as a client without any SDK, and prints what it hears as JSON."""
import json
import os
import subprocess
import time

server = subprocess.Popen([os.environ["ATOLL"], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
heard, last = [], 0


def say(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def ask(method, **params):
    global last
    last += 1
    say({"id": last, "method": method, "params": params})
    while True:
        message = json.loads(server.stdout.readline())
        if message.get("id") == last:
            return message["result"] if "result" in message else message["error"]
        heard.append(message)


info = {"name": "client", "version": "1"}
able = ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)["capabilities"]
say({"method": "notifications/initialized"})
said = {
    "capabilities": able,
    "tools": ask("tools/list"),
    "prompts": ask("prompts/list"),
    "resources": ask("resources/list"),
    "templates": ask("resources/templates/list"),
    "prompt": ask("prompts/get", name="bad__greet", arguments={"who": "Ada"}),
    "no_prompt": ask("prompts/get", name="bad__nosuch"),
    "resource": ask("resources/read", uri="note://one"),
    "made": ask("resources/read", uri="note://made/7"),
    "no_resource": ask("resources/read", uri="note://made/7/8"),
    "denied": ask("resources/read", uri="note://secret"),
}
call = {"name": "bad__work", "arguments": {"steps": 3}}
said["silent"] = ask("tools/call", **call)
assert not heard, heard
said["work"] = ask("tools/call", **call, _meta={"progressToken": "mine"})
said["progress"] = heard[:]
heard.clear()
flood = {"name": "bad__work", "arguments": {"steps": 500}}
ask("tools/call", **flood, _meta={"progressToken": "mine"})
said["flood"] = len(heard)
heard.clear()
open("words", "w").write("other")
ask("tools/call", name="bad__change", arguments={})
until = time.monotonic() + 20
while time.monotonic() < until and len(heard) < 1:
    ask("ping")
    time.sleep(0.1)
said["changes"] = heard[:]
said["after"] = ask("prompts/list")
said["held"] = ask("tools/call", name="bad__prompt-greet", arguments={"who": "Ada"})
server.stdin.close()
server.wait()
print(json.dumps(said))
