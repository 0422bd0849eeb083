"""Origins that write down every line of every request's head and of its trailers, and answer with
headers that not everybody is to see. Arguments: the directory, then the command to run while they
are there."""
import os, socketserver, ssl, subprocess, sys, threading

PLACE = sys.argv[1]
HEAD = b"HTTP/1.1 200 OK\r\nX-Inner: SECRET-INNER\r\nx-inner: SECRET-INNER-2\r\nSet-Cookie: SECRET-COOKIE\r\nX-Fine: fine\r\n"
WHOLE = HEAD + b"Content-Length: 8\r\n\r\nwelcome\n"
IN_CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\nTrailer: x-inner, x-last\r\n\r\n8\r\nwelcome\n\r\n0\r\nX-Inner: SECRET-TRAILER\r\nX-Last: last\r\n\r\n"
lock = threading.Lock()


class Origin(socketserver.StreamRequestHandler):
    def lines(self):
        """Up to an empty one."""
        while (line := self.rfile.readline().strip()):
            yield line

    def handle(self):
        while (head := list(self.lines())):
            came = list(head)
            if b"transfer-encoding: chunked" in [line.lower() for line in head]:
                while int(size := self.rfile.readline().strip() or b"0", 16):
                    self.rfile.read(int(size, 16) + 2)
                came += [b"trailer " + line for line in self.lines()]
            with lock, open(os.path.join(PLACE, "came"), "ab") as to:
                to.write(b"\n".join(came) + b"\n\n")
            self.wfile.write(IN_CHUNKS if b"/chunks" in head[0] else WHOLE)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


for port in 80, 443:
    server = Server(("", port), Origin)
    if port == 443:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{PLACE}/example.com.pem", f"{PLACE}/example.com.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
