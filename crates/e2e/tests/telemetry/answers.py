"""A collector that answers as it is told: each argument is a status, the last one for ever.

It prints its port, then the path, the type and a header of each request. What each says goes, a line
each, into the file that RECORD names, if any.
"""

import http.server
import os
import sys

answers = [int(one) for one in sys.argv[1:]]


class Answering(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = answers.pop(0) if len(answers) > 1 else answers[0]
        print(status, self.path, self.headers["content-type"], self.headers["x-key"], len(body), flush=True)
        if "RECORD" in os.environ:
            with open(os.environ["RECORD"], "ab") as record:
                record.write(body + b"\n")
        self.send_response(status)
        said = b'{"message": "\\u001b[31mno such tenant"}' if status == 400 else b"{}"
        if status == 503:
            self.send_header("retry-after", "0")
        if status == 302:
            self.send_header("location", "http://127.0.0.1:1/v1/traces")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
print("port", server.server_port, flush=True)
server.serve_forever()
