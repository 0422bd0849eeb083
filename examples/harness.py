"""A scripted agent: plays the calls of a transcript over MCP to `atoll mcp`, and prints the answers.

Each line of a transcript is a JSON object: `say`, what the agent thinks; `call` and `arguments`, the
tool that it calls; `person`, the answer ("accept") if Atoll asks a person about the call; or `do`, an
action of the example between two sessions.
"""

import json
import subprocess

LINES_SHOWN = 12


class Session:
    """One session with `atoll mcp` over a workspace."""

    def __init__(self, workspace):
        command = ["atoll", "mcp", "--workspace", workspace]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last_id = 0
        client = {"name": "harness", "version": "1"}
        capabilities = {"elicitation": {}}
        self.request("initialize", protocolVersion="2025-06-18", capabilities=capabilities, clientInfo=client)
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.server.stdin.flush()

    def request(self, method, person="decline", **parameters):
        """Sends a request and returns its result; answers what Atoll asks meanwhile."""
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": parameters})
        while True:
            message = json.loads(self.server.stdout.readline())
            if message.get("method") == "elicitation/create":
                print(f"  asked: {message['params']['message'].splitlines()[-1]}\n  person: {person}")
                answer = {"action": person, **({"content": {}} if person == "accept" else {})}
                self.send({"id": message["id"], "result": answer})
            elif message.get("id") == self.last_id:
                return message.get("result") or {"isError": True, "content": [message["error"]]}

    def tools(self):
        return self.request("tools/list")["tools"]

    def call(self, name, arguments, person="decline"):
        """Calls a tool; returns its text and whether it was stopped or failed."""
        print(f"> {name} {json.dumps(arguments)}", flush=True)
        result = self.request("tools/call", person, name=name, arguments=arguments)
        parts = result.get("content", [])
        text = "\n".join(part.get("text") or part.get("message", "") for part in parts).strip()
        lines = text.splitlines() or [""]
        mark = "  ! " if result.get("isError") else "  "
        for line in lines[:LINES_SHOWN]:
            print(mark + line)
        if len(lines) > LINES_SHOWN:
            print(f"{mark}({len(lines) - LINES_SHOWN} more lines)")
        return text, bool(result.get("isError"))

    def close(self):
        """Ends the session, and prints how to see what became of its calls."""
        self.server.stdin.close()
        self.server.wait()
        print(f"Session over. See: atoll why {last_session()}", flush=True)


def read(transcript):
    """Returns the steps of a transcript."""
    with open(transcript, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def last_session():
    """Returns the id of the last session that called a tool, by the ledger."""
    shown = subprocess.run(["atoll", "ledger", "show", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    return [event["run"] for event in events if event["type"].startswith("tool.")][-1]


def play(transcript, workspace, **actions):
    """Plays a transcript; an action ends the session, and the next call begins another."""
    session, calls, stopped = None, 0, 0
    for step in read(transcript):
        if "say" in step:
            print(f"# {step['say']}", flush=True)
        if "do" in step and session:
            session.close()
            session = None
        if "do" in step:
            actions[step["do"]]()
        if "call" in step:
            session = session or Session(workspace)
            _, is_error = session.call(step["call"], step.get("arguments", {}), step.get("person", "decline"))
            calls, stopped = calls + 1, stopped + is_error
    if session:
        session.close()
    print(f"{calls} calls, {stopped} stopped or failed (marked !)")
