"""The checks of E2B's desktop SDK, unmodified, in the template that is shipped: a screen, a mouse and a
keyboard, windows, a stream, a browser.

Starts the server itself: reads ATOLL, CONFIG and the environment that it begins with. Prints `ok NAME`
or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import base64
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import traceback
import zlib
from urllib.parse import urlsplit

CONFIG = os.path.join(os.environ["CONFIG"], "atoll", "serve.toml")
PAGE = "<body style='background:#00ff00'><a id=to href='other.html' style='font-size:400px'>link</a>"
OTHER = "<body style='background:#ff00ff'>"


def start():
    """Starts a server; sets what the SDK and the command line read."""
    os.makedirs(os.path.dirname(CONFIG), exist_ok=True)
    with open(CONFIG, "w") as file:
        file.write("network = 'registries'\n")
    process = subprocess.Popen(
        [os.environ["ATOLL"], "serve", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    told = ""
    while "Ctrl-C" not in told:
        line = process.stdout.readline()
        assert line, told
        told += line
    os.environ.update(re.findall(r"export (\w+)=(\S+)", told))
    return process


def atoll(*words):
    done = subprocess.run([os.environ["ATOLL"], *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def pixels(content):
    """Returns the width and the rows of a PNG, which is RGB or RGBA and has 8 bits a channel."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n", content[:8]
    at, packed = 8, b""
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at:at + 8])
        data = content[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", data[:10])
            channels = {2: 3, 6: 4}[colour]
            assert depth == 8
        elif kind == b"IDAT":
            packed += data
        at += 12 + length
    raw, rows, above = zlib.decompress(packed), [], bytearray(width * channels)
    for row in range(height):
        begin = row * (width * channels + 1)
        how, line = raw[begin], bytearray(raw[begin + 1:begin + 1 + width * channels])
        for i in range(len(line)):
            left = line[i - channels] if i >= channels else 0
            up = above[i]
            corner = above[i - channels] if i >= channels else 0
            line[i] = (line[i] + (0, left, up, (left + up) // 2, paeth(left, up, corner))[how]) & 255
        rows.append([bytes(line[i:i + 3]) for i in range(0, len(line), channels)])
        above = line
    return width, rows


def paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))


def share(desktop, colour):
    """Returns the part of the screen that has a colour."""
    _, rows = pixels(bytes(desktop.screenshot()))
    return sum(row.count(colour) for row in rows) / sum(len(row) for row in rows)


def until(what, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        if found := what():
            return found
        time.sleep(0.5)
    raise AssertionError("it does not come")


def it_is_built_once(_):
    status, _, told = atoll("sandbox", "create", "--template", "desktop")
    assert status == 125 and "atoll template build desktop" in told, told
    status, id, told = atoll("template", "build", "desktop")
    assert status == 0, told[-2000:]
    status, listed, _ = atoll("template", "list", "--json")
    names = {one["id"]: one["name"] for one in json.loads(listed)}
    assert names[id.strip()] == "desktop" and "atoll/debian" in names.values(), names
    status, _, told = atoll("template", "build", "desktop", "vim")
    assert status == 125 and "from_template" in told, told


def the_screen_is_seen(desktop):
    width, rows = pixels(bytes(desktop.screenshot()))
    assert (width, len(rows)) == (1024, 768) == desktop.get_screen_size()
    assert len({colour for row in rows for colour in row}) > 1


def mouse_and_keyboard_reach_programs(desktop):
    desktop.move_mouse(300, 200)
    assert desktop.get_cursor_position() == (300, 200)
    desktop.launch("xfce4-terminal")
    window = until(lambda: windows(desktop, "xfce4-terminal"))[0]
    assert "Terminal" in desktop.get_window_title(window)
    until(lambda: desktop.get_current_window_id() == window)
    time.sleep(2)
    desktop.write("cat > typed; echo done > over")
    desktop.press("enter")
    desktop.write("Hello, 'World' 42")
    desktop.press("enter")
    desktop.press(["ctrl", "d"])
    until(lambda: desktop.files.exists("over"))
    assert desktop.files.read("typed") == "Hello, 'World' 42\n"
    # What a program has put into the clipboard is pasted.
    desktop.commands.run("printf clipped | xclip -selection clipboard")
    desktop.write("cat > pasted; echo done > over2")
    desktop.press("enter")
    desktop.press(["ctrl", "shift", "v"])
    desktop.press("enter")
    desktop.press(["ctrl", "d"])
    until(lambda: desktop.files.exists("over2"))
    assert desktop.files.read("pasted") == "clipped\n"


def windows(desktop, name):
    try:
        return [one for one in desktop.get_application_windows(name) if one]
    except Exception:
        return []


def the_browser_shows_pages(desktop):
    desktop.files.write("page.html", PAGE)
    desktop.files.write("other.html", OTHER)
    desktop.launch("google-chrome", "file:///home/user/page.html")
    until(lambda: share(desktop, b"\x00\xff\x00") > 0.3, 120)
    # The link fills the page: the mouse follows it.
    desktop.left_click(500, 400)
    until(lambda: share(desktop, b"\xff\x00\xff") > 0.3, 120)
    desktop.open("/home/user/page.html")
    until(lambda: share(desktop, b"\x00\xff\x00") > 0.3, 120)
    # One that the network leads to, over TLS that is looked into.
    with open(os.path.join(os.environ["MIRROR"], "page.html"), "w") as file:
        file.write("<body style='background:#0000ff'>")
    desktop.open("https://deb.debian.org/page.html")
    until(lambda: share(desktop, b"\x00\x00\xff") > 0.3, 120)


def the_stream_is_shown_through_the_gateway(desktop):
    desktop.stream.start()
    url = urlsplit(desktop.stream.get_url())
    assert url.path == "/vnc.html", url
    server = urlsplit(os.environ["E2B_API_URL"])
    connection = http.client.HTTPConnection(server.hostname, server.port, timeout=60)
    for path in ("/vnc.html", "/app/ui.js", "/core/rfb.js"):
        connection.request("GET", path, headers={"Host": url.netloc})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200 and content, (path, answer.status)
    # The first words of RFB (RFC 6143, 7.1 to 7.3): what is shown is the screen.
    with Frames((server.hostname, server.port), url.netloc) as frames:
        assert frames.read(12) == b"RFB 003.008\n"
        frames.write(b"RFB 003.008\n")
        count = frames.read(1)[0]
        assert 1 in frames.read(count)
        frames.write(b"\x01")
        assert frames.read(4) == bytes(4)
        frames.write(b"\x01")
        width, height = struct.unpack(">HH", frames.read(4))
        assert (width, height) == (1024, 768)
    desktop.stream.stop()
    desktop.stream.start(require_auth=True)
    key = desktop.stream.get_auth_key()
    assert f"password={key}" in desktop.stream.get_url(auth_key=key)
    # It takes a password now, and nobody without one.
    with Frames((server.hostname, server.port), url.netloc) as frames:
        assert frames.read(12) == b"RFB 003.008\n"
        frames.write(b"RFB 003.008\n")
        count = frames.read(1)[0]
        assert frames.read(count) == b"\x02"


class Frames:
    """A WebSocket (RFC 6455), as far as it is needed."""

    def __init__(self, at, host):
        self.socket = socket.create_connection(at, timeout=60)
        nonce = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((
            f"GET /websockify HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: binary\r\n\r\n").encode())
        self.raw = self.socket.makefile("rb")
        status = self.raw.readline()
        assert b" 101 " in status, status
        while self.raw.readline() != b"\r\n":
            pass
        self.held = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self, count):
        while len(self.held) < count:
            kind, length = self.raw.read(2)
            if length == 126:
                length, = struct.unpack(">H", self.raw.read(2))
            elif length == 127:
                length, = struct.unpack(">Q", self.raw.read(8))
            content = self.raw.read(length)
            assert kind == 0x82, (kind, content)
            self.held += content
        found, self.held = self.held[:count], self.held[count:]
        return found

    def write(self, content):
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(content))
        self.socket.sendall(bytes([0x82, 0x80 | len(content)]) + mask + masked)


CHECKS = [it_is_built_once, the_screen_is_seen, mouse_and_keyboard_reach_programs,
          the_browser_shows_pages, the_stream_is_shown_through_the_gateway]
failed = False
server = start()
desktop = None
try:
    from e2b_desktop import Sandbox

    for check in CHECKS:
        try:
            if check is not it_is_built_once and desktop is None:
                desktop = Sandbox.create(timeout=900)
            check(desktop)
            print("ok", check.__name__, flush=True)
        except BaseException as error:
            failed = True
            print(f"failed {check.__name__}: {error}")
            traceback.print_exc()
    if desktop:
        desktop.kill()
finally:
    server.terminate()
    server.wait(60)
sys.exit(failed)
