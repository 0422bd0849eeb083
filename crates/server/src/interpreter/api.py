"""HTTP routes of Atoll's code interpreter, with the JSON of E2B's."""
import json
import socket
import sys
import time

# http.client imports ssl, which takes long and is not used here.
sys.modules.setdefault("ssl", None)
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contexts import REGISTRY, RequestError, execute, prepare, set_variables

MAX_BODY = 8 << 20
KEEPALIVE_SECONDS = 5
ALIASES = {
    "python": "python", "python3": "python", "py": "python",
    "javascript": "javascript", "js": "javascript", "node": "javascript",
    "typescript": "typescript", "ts": "typescript",
    "bash": "bash", "sh": "bash", "r": "r", "java": "java",
}


class EventStream:
    """The chunked NDJSON answer to one /execute request."""

    def __init__(self, handler):
        self.sock = handler.connection
        self.chunked = handler.request_version != "HTTP/1.0"
        self.closed = False
        self.keeps_quotes = False
        self.next_keepalive = time.monotonic() + KEEPALIVE_SECONDS
        handler.close_connection = handler.close_connection or not self.chunked
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Cache-Control", "no-cache")
        handler.send_header(*(("Transfer-Encoding", "chunked") if self.chunked else ("Connection", "close")))
        self.head = b"".join(handler._headers_buffer) + b"\r\n"
        handler._headers_buffer = []

    def send(self, event):
        """Sends one event at once; does nothing after the client has gone."""
        line = json.dumps(event).encode() + b"\n"
        self._write(b"%x\r\n%s\r\n" % (len(line), line) if self.chunked else line)

    def finish(self):
        """Ends the answer."""
        self._write(b"0\r\n\r\n" if self.chunked else b"")

    def _write(self, data):
        if self.closed:
            return
        data, self.head = self.head + data, b""
        try:
            self.sock.sendall(data)
        except OSError:
            self.closed = True

    def keepalive(self):
        """Sends a keepalive event if one is due."""
        if time.monotonic() >= self.next_keepalive:
            self.next_keepalive = time.monotonic() + KEEPALIVE_SECONDS
            self.send({"type": "keepalive"})

    def client_gone(self):
        """Returns whether the client has closed the connection."""
        if not self.closed:
            try:
                self.closed = self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                pass
            except OSError:
                self.closed = True
        return self.closed

    def still_wanted(self):
        """Keeps a waiting client informed; returns whether it is still there."""
        self.keepalive()
        return not self.client_gone()


def parse_execute(body):
    """Checks an /execute request; returns its context and its parts."""
    code, context_id, language = body.get("code"), body.get("context_id"), body.get("language")
    env = body.get("env_vars") or {}
    if not isinstance(code, str):
        raise RequestError(400, "the request needs `code`, a string")
    if context_id and language:
        raise RequestError(400, "Only one of context_id or language can be provided")
    check_variables("env_vars", env)
    language = parse_language(language)
    context = REGISTRY.find(context_id) if context_id else REGISTRY.default(language)
    return context, {"code": code, "env": env, "language": None if context_id else language}


def check_variables(member, variables):
    """Raises a 400 unless these can be variables."""
    fits = isinstance(variables, dict) and all(
        isinstance(v, str) and "\0" not in k + v and k and "=" not in k for k, v in variables.items())
    if not fits:
        raise RequestError(400, f"`{member}` must map names to strings")


def parse_language(language):
    """Resolves a language's aliases; none means Python."""
    name = ALIASES.get(str(language or "python").lower())
    if not name:
        raise RequestError(400, f"unknown language {language!r}. Use one of {', '.join(sorted(set(ALIASES.values())))}")
    return name


class Handler(BaseHTTPRequestHandler):
    """The HTTP routes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version = "atoll-interpreter"
    sys_version = ""

    def log_message(self, *_):
        """Logs nothing."""

    def do_GET(self):
        """Answers GET."""
        self._route("GET")

    def do_POST(self):
        """Answers POST."""
        self._route("POST")

    def do_DELETE(self):
        """Answers DELETE."""
        self._route("DELETE")

    def _route(self, method):
        try:
            body = self._read_body()
            path = self.path.split("?")[0].rstrip("/").split("/")[1:]
            handler = ROUTES.get((method, path[0], len(path), *path[2:]) if path else None)
            if not handler:
                raise RequestError(404, f"no route {method} {self.path}")
            handler(self, path, body)
        except RequestError as error:
            self._reply(error.code, {"message": str(error), "code": error.code})
        except OSError as error:
            self.close_connection = True
            self._reply(500, {"message": str(error), "code": 500})

    def send_error(self, code, message=None, explain=None):
        """Answers a malformed request with JSON."""
        self.close_connection = True
        self._reply(code, {"message": message or "bad request", "code": int(code)})

    def _reply(self, code, value):
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
            if code != 204:
                self.send_header("Content-Length", str(len(data)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data if code != 204 else b"")
        except OSError:
            self.close_connection = True

    def _read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit():
            self._too_bad(400, "bad Content-Length")
        if int(length) > MAX_BODY:
            self._skip(min(int(length), 8 * MAX_BODY))
            self._too_bad(413, f"the body has {length} bytes; the limit is {MAX_BODY}")
        return self.rfile.read(int(length))

    def _read_chunks(self):
        parts, total = [], 0
        while True:
            line = self.rfile.readline(100).split(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                size = -1
            if size < 0:
                self._too_bad(400, "bad chunk size")
            total += size
            if total > MAX_BODY:
                self._skip(min(size, 8 * MAX_BODY))
                self._too_bad(413, f"the body has more than {MAX_BODY} bytes")
            if size == 0:
                while self.rfile.readline(65536).strip():
                    pass
                return b"".join(parts)
            parts.append(self.rfile.read(size))
            self.rfile.readline(10)

    def _skip(self, length):
        while length > 0:
            data = self.rfile.read(min(length, 65536))
            length = length - len(data) if data else 0

    def _too_bad(self, code, message):
        self.close_connection = True
        raise RequestError(code, message)

    def health(self, _path, _body):
        """Reports that the server answers."""
        self._reply(200, "OK")

    def run_cell(self, _path, body):
        """Executes a cell and streams its events."""
        body = parse_json(body)
        context, request = parse_execute(body)
        stream = EventStream(self)
        stream.keeps_quotes = body.get("keeps_quotes") is True
        execute(context, request, stream)

    def prepare(self, _path, body):
        """Imports modules in Python's default context, ahead of its first cell."""
        modules = parse_json(body).get("modules")
        if not isinstance(modules, list) or not all(isinstance(one, str) for one in modules):
            raise RequestError(400, "the request needs `modules`, a list of names")
        prepare(REGISTRY.default("python"), modules)
        self._reply(204, "")

    def set_variables(self, _path, body):
        """Sets variables of all contexts."""
        variables = parse_json(body).get("variables")
        check_variables("variables", variables)
        set_variables(REGISTRY.default("python"), variables)
        self._reply(204, "")

    def list_contexts(self, _path, _body):
        """Lists the contexts."""
        for language in ("python", "javascript"):
            REGISTRY.default(language)
        self._reply(200, [context.describe() for context in list(REGISTRY.contexts.values())])

    def create_context(self, _path, body):
        """Creates a context."""
        body = parse_json(body or b"{}")
        cwd = body.get("cwd")
        if cwd is not None and not (isinstance(cwd, str) and "\0" not in cwd):
            raise RequestError(400, "`cwd` must be a string")
        self._reply(200, REGISTRY.create(parse_language(body.get("language")), cwd).describe())

    def remove_context(self, path, _body):
        """Removes a context."""
        REGISTRY.remove(path[1])
        self._reply(204, "")

    def restart_context(self, path, _body):
        """Restarts a context's kernel."""
        REGISTRY.find(path[1]).restart("the context was restarted")
        self._reply(204, "")

    def interrupt_context(self, path, _body):
        """Interrupts the cell that a context executes."""
        REGISTRY.find(path[1]).interrupt()
        self._reply(204, "")


ROUTES = {
    ("GET", "health", 1): Handler.health,
    ("POST", "execute", 1): Handler.run_cell,
    ("POST", "prepare", 1): Handler.prepare,
    ("POST", "variables", 1): Handler.set_variables,
    ("GET", "contexts", 1): Handler.list_contexts,
    ("POST", "contexts", 1): Handler.create_context,
    ("DELETE", "contexts", 2): Handler.remove_context,
    ("POST", "contexts", 3, "restart"): Handler.restart_context,
    ("POST", "contexts", 3, "interrupt"): Handler.interrupt_context,
}


def parse_json(body):
    """Parses a JSON object, or raises a 400."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(400, "the body must be a JSON object")
    return value


class Server(ThreadingHTTPServer):
    """The HTTP server, over a listener that its supervisor holds."""

    daemon_threads = True

    def __init__(self, listener):
        super().__init__(listener.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request, client_address):
        """Ignores a connection that broke."""
