"""The client that the official suite starts: `atoll mcp`, with the suite's server as its upstream, and
before it a client that calls whatever there is. The last argument is the server's address."""
import json, os, subprocess, sys, tempfile
from urllib.parse import urlsplit

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ATOLL = os.environ["ATOLL"]
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
VALUES = {"string": "test", "integer": 1, "number": 1, "boolean": True}

at = urlsplit(sys.argv[-1])
place = f"host.atoll.internal:{at.port}"
top = tempfile.mkdtemp(prefix="client-", dir=os.environ["CLIENTS"])
for name in ("CONFIG", "STATE"):
    os.environ[f"XDG_{name}_HOME"] = f"{top}/{name.lower()}"
os.makedirs(f"{top}/config/atoll")
os.makedirs(f"{top}/work")
os.chdir(f"{top}/work")
with open(f"{top}/config/atoll/tools.toml", "w") as to:
    to.write(f'[upstream.it]\nurl = "http://{place}{at.path}"\nallow = ["{place}"]\ntimeout = "20s"\n')
pin = subprocess.run([ATOLL, "tools", "pin", "it", "--yes"], stdout=sys.stderr)
if pin.returncode:
    sys.exit(pin.returncode)
server = subprocess.Popen([ATOLL, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
last = 0


def say(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def ask(method, **params):
    global last
    last += 1
    say({"id": last, "method": method, "params": params})
    while True:
        message = json.loads(server.stdout.readline())
        if message.get("method") == "elicitation/create":
            answer = {"action": "accept", "content": {"confirmed": True}}
            say({"id": message["id"], "result": answer})
        elif message.get("id") == last and "method" not in message:
            print(method, params, message, file=sys.stderr)
            return message.get("result") or {"failed": message["error"]}


info = {"name": "client", "version": "1"}
ask("initialize", protocolVersion="2025-11-25", capabilities={"elicitation": {}}, clientInfo=info)
say({"method": "notifications/initialized"})
tools = [one for one in ask("tools/list")["tools"] if one["name"].startswith("it__")]
calls = CONTEXT.get("toolCalls")
if calls is None:
    calls = []
    for tool in tools:
        name, wanted = tool["name"].removeprefix("it__"), tool["inputSchema"].get("properties", {})
        values = {key: VALUES.get(of.get("type"), "test") for key, of in wanted.items()}
        calls.append({"name": name, "arguments": ARGUMENTS.get(name, values)})
answers = [ask("tools/call", name=f"it__{one['name']}", arguments=one["arguments"]) for one in calls]
for one in ask("prompts/list")["prompts"]:
    arguments = {of["name"]: "test" for of in one.get("arguments") or []}
    answers.append(ask("prompts/get", name=one["name"], arguments=arguments))
for one in ask("resources/list")["resources"]:
    answers.append(ask("resources/read", uri=one["uri"]))
server.stdin.close()
server.wait()
sys.exit(any("failed" in one or one.get("isError") for one in answers))
