"""An agent that logs in as many do: a browser is sent to the issuer and comes back to a port,
what it brings is exchanged for tokens, and these are written into a file."""
import http.server, json, os, subprocess, sys, urllib.parse

PORT = 14555


class Back(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        form = urllib.parse.urlencode({"grant_type": "authorization_code", "code": query["code"], "code_verifier": "v" * 43})
        words = ["curl", "-sS", "-m", "20", "--noproxy", "*", "-d", form, "https://example.com/oauth/token"]
        answer = subprocess.run(words, capture_output=True).stdout
        print("answer", answer.decode())
        given = json.loads(answer)
        tokens = {"access": given["access_token"], "refresh": given["refresh_token"], "expires": 1900000000}
        with open(os.path.expanduser("~/.agent/auth.json"), "w") as to:
            json.dump({"mode": "chat", "key": None, "tokens": tokens}, to)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"in\n")


server = http.server.HTTPServer(("127.0.0.1", PORT), Back)
print(f"https://example.com/oauth/authorize?state=s1&redirect_uri=http%3A%2F%2Flocalhost%3A{PORT}%2Fcallback", flush=True)
server.handle_request()
