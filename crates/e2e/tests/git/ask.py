"""Asks the agent at SSH_AUTH_SOCK for what no honest program asks for, and says what came."""
import os, socket, struct


def text(data):
    return struct.pack(">I", len(data)) + data


def ask(*messages):
    """The answers to these, on one connection."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(os.environ["SSH_AUTH_SOCK"])
        answers = []
        for message in messages:
            try:
                line.sendall(text(message))
                head = line.recv(4, socket.MSG_WAITALL)
            except (ConnectionResetError, BrokenPipeError):
                head = b""
            if len(head) < 4:
                return answers + [b""]
            answers.append(line.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL))
        return answers


def key_in(answer):
    length = struct.unpack(">I", answer[5:9])[0]
    return answer[9 : 9 + length]


def said(what, answer):
    print(what, "refused" if answer[:1] == b"\x05" else f"answered {answer[:1]!r}")


listed = ask(b"\x0b")[0]
key = key_in(listed)
sign = lambda data: b"\x0d" + text(key) + text(data) + struct.pack(">I", 0)
login = text(b"s" * 32) + b"\x32" + text(b"server") + text(b"ssh-connection") + text(b"publickey") + b"\x01" + text(b"ssh-ed25519") + text(key)
bind = lambda host: b"\x1b" + text(b"session-bind@openssh.com") + text(host) + text(b"s" * 32) + text(text(b"ssh-ed25519") + text(b"\0" * 64)) + b"\0"
with open(os.path.join(os.path.dirname(os.environ["SSH_AUTH_SOCK"]), "known_hosts")) as known:
    import base64

    host = base64.b64decode(known.read().split()[2])
said("raw", ask(sign(b"anything"))[0])
said("login unbound", ask(sign(login))[0])
said("bind of another", ask(bind(key), sign(login))[1])
said("bind forged", ask(bind(host), sign(login))[1])
said("add", ask(b"\x11" + text(b"ssh-ed25519") + text(key[-32:]) + text(b"\0" * 64) + text(b"c"))[0])
said("lock", ask(b"\x16" + text(b"password"))[0])
print("long", "closed" if ask(b"\x0d" + b"\0" * 70000) == [b""] else "answered")
print("list", struct.unpack(">I", listed[1:5])[0])
