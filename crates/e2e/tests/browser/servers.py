"""A page of one colour at https://example.com/, and what nobody is to see beneath /denied.
Arguments: the directory with the certificates, then the command to run while it is there."""
import http.server, os, ssl, subprocess, sys, threading

PLACE = sys.argv[1]


class Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        with open(os.path.join(PLACE, "requests"), "a") as to:
            to.write(f"{self.path}\n")
        text = b"<body style='margin:0;background:#0a64c8'>a page of the outside</body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


server = http.server.ThreadingHTTPServer(("", 443), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(PLACE, "example.com.pem"), os.path.join(PLACE, "example.com.key"))
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
