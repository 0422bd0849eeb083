"""Origins of AWS that check each signature with AWS's own library, and write down every
request. Arguments: the directory, then the command to run while they are there. Beside
that directory the file `keys` has the real id, secret and session token (- for none) of each
key, a line each, and until when it holds where it ends, in seconds since 1970."""
import base64, datetime, hashlib, http.server, json, os, ssl, subprocess, sys, threading, time, urllib.parse, zlib

PLACE = sys.argv[1]
TOP = os.path.join(PLACE, "..")
sys.path.insert(0, os.path.join(TOP, "site"))
import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

# Whatever a program has signed is verified, also what this library would not sign.
botocore.auth.SIGNED_HEADERS_BLACKLIST = []
NAMES = ["s3.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com", "sts.us-east-1.amazonaws.com", "sts.eu-west-1.amazonaws.com", "other.example"]
lock = threading.Lock()
objects = {}


def known(id):
    """The key with that id, where it holds."""
    for line in open(os.path.join(TOP, "keys")):
        own, secret, token, *until = line.split()
        if own == id and all(time.time() < float(one) for one in until):
            return Credentials(own, secret, None if token == "-" else token)


def signer(service, in_query, region, key):
    kinds = {
        (True, False): botocore.auth.S3SigV4Auth,
        (True, True): botocore.auth.S3SigV4QueryAuth,
        (False, False): botocore.auth.SigV4Auth,
        (False, True): botocore.auth.SigV4QueryAuth,
    }
    return kinds[service == "s3", in_query](key, service, region)


def verify(method, host, target, headers, body):
    """None, or why the signature is not right."""
    path, _, query = target.partition("?")
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    named = dict(pairs)
    said = headers.get("authorization", "")
    in_query = "X-Amz-Signature" in named
    if in_query:
        credential, signed, signature = named["X-Amz-Credential"], named["X-Amz-SignedHeaders"], named["X-Amz-Signature"]
        at, token = named["X-Amz-Date"], named.get("X-Amz-Security-Token")
        target = path + "?" + "&".join(one for one in query.split("&") if not one.startswith("X-Amz-Signature="))
    elif said.startswith("AWS4-HMAC-SHA256 "):
        fields = dict(one.strip().split("=", 1) for one in said.split(" ", 1)[1].split(","))
        credential, signed, signature = fields["Credential"], fields["SignedHeaders"], fields["Signature"]
        at, token = headers["x-amz-date"], headers.get("x-amz-security-token")
    else:
        return "there is no signature"
    id, day, region, service, _ = credential.split("/")
    key = known(id)
    if key is None or token != key.token:
        return "it is of another key, or of one that has ended"
    made = datetime.datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if not in_query and abs((datetime.datetime.now(datetime.timezone.utc) - made).total_seconds()) > 900:
        return "it is of another time"
    request = AWSRequest(method=method, url=f"https://{host}{target}", data=body)
    for name in signed.split(";"):
        if name != "host":
            request.headers[name] = headers[name]
    told = headers.get("x-amz-content-sha256", "")
    if told and "x-amz-content-sha256" not in signed:
        request.headers["X-Amz-Content-SHA256"] = told
    if len(told) == 64 and told != hashlib.sha256(body).hexdigest():
        return "its body is another one"
    request.context["timestamp"] = at
    auth = signer(service, in_query, region, key)
    if in_query:
        auth.payload = (lambda _: "UNSIGNED-PAYLOAD") if service == "s3" else auth.payload
    canonical = auth.canonical_request(request)
    right = auth.signature(auth.string_to_sign(request, canonical), request)
    if right != signature:
        return "it is wrong:\n" + canonical
    return wrong_pieces(auth, request, headers, signature, body) if told.startswith("STREAMING-") else None


def taken_apart(body):
    """The pieces of a body in aws-chunked, each with what its line says, and what is after them."""
    pieces, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size, _, said = body[at:end].decode().partition(";")
        size, at = int(size, 16), end + 2
        pieces.append((body[at : at + size], said))
        at += size
        if not size:
            return pieces, body[at:]
        assert body[at : at + 2] == b"\r\n", body[at:][:80]
        at += 2


def wrong_pieces(auth, request, headers, signature, body):
    """None, or why a body in pieces is not right."""
    told, digest = headers["x-amz-content-sha256"], lambda of: hashlib.sha256(of).hexdigest()
    pieces, after = taken_apart(body)
    content = b"".join(data for data, _ in pieces)
    if int(headers["x-amz-decoded-content-length"]) != len(content):
        return "it is of another length"
    trailers = dict(line.split(":", 1) for line in after.decode().split("\r\n") if line)

    def next_signature(kind, *of):
        text = "\n".join((f"AWS4-HMAC-SHA256-{kind}", request.context["timestamp"], auth.credential_scope(request), signature) + of)
        return auth.signature(text, request)

    if told.startswith("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"):
        for data, said in pieces:
            signature = next_signature("PAYLOAD", digest(b""), digest(data))
            if said != f"chunk-signature={signature}":
                return f"a piece is wrong: {said}"
    if told == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER":
        own = trailers.pop("x-amz-trailer-signature", None)
        if own != next_signature("TRAILER", digest("".join(f"{name}:{value}\n" for name, value in trailers.items()).encode())):
            return "what is after the pieces is wrong"
    if sorted(trailers) != sorted(filter(None, headers.get("x-amz-trailer", "").split(","))):
        return "something else is after the pieces"
    sum = trailers.get("x-amz-checksum-crc32") or base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
    return None if base64.b64decode(sum) == zlib.crc32(content).to_bytes(4, "big") else "its checksum is another one"


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def chunks(self):
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def answer(self):
        if self.headers.get("Expect") == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        chunked = self.headers.get("Transfer-Encoding", "") == "chunked"
        length = int(self.headers.get("Content-Length", 0))
        body = self.chunks() if chunked else self.rfile.read(length)
        if not chunked and len(body) < length:
            # What is not whole is no request.
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        host = self.headers["Host"]
        wrong = verify(self.command, host, self.path, headers, body)
        with lock, open(os.path.join(PLACE, "requests"), "a") as to:
            to.write(f"{'signed' if wrong is None else 'WRONG'} {self.command} {host} {self.path} {headers} {body[:200]!r} {wrong!r}\n")
        status, kind, text, more = self.told(host, body) if wrong is None else (403, "text/plain", b"forbidden: " + wrong.encode(), {})
        if self.command == "GET" and "Range" in self.headers and status == 200:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last or len(text)), len(text) - 1)
            more, status = {**more, "Content-Range": f"bytes {first}-{last}/{len(text)}"}, 206
            text = text[first : last + 1]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def told(self, host, body):
        if host.startswith("dynamodb"):
            return 200, "application/x-amz-json-1.0", json.dumps({"TableNames": ["welcome", str(len(body))]}).encode(), {}
        if host.startswith("sts"):
            text = b"<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><GetCallerIdentityResult><Arn>arn:welcome</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>"
            return 200, "text/xml", text, {}
        path, _, query = self.path.partition("?")
        named = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if self.command == "PUT":
            if self.headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
                body = b"".join(data for data, _ in taken_apart(body)[0])
            with lock:
                objects[(path, int(named["partNumber"])) if "partNumber" in named else path] = body
            return 200, "text/plain", b"", {"ETag": '"1"'}
        if self.command == "POST" and "uploadId" in named:
            with lock:
                objects[path] = b"".join(objects.pop(one) for one in sorted(one for one in objects if one[0] == path))
            return 200, "application/xml", b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>", {}
        if self.command == "POST" and "uploads" in named:
            return 200, "application/xml", b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>", {}
        if path.endswith("masked"):
            with open(os.path.join(TOP, "keys")) as keys:
                id, secret, token = keys.read().split("\n")[-2].split()[:3]
            return 200, "text/plain", f"{id} {secret} {token}".encode(), {"X-Echo": id}
        if path.endswith("/big"):
            return 200, "text/plain", b"x" * (9 << 20), {"ETag": '"1"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
        if path.count("/") > 1:
            with lock:
                return 200, "text/plain", objects.get(path, b"welcome\n"), {"Accept-Ranges": "bytes", "ETag": '"1"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
        text = b"<ListAllMyBucketsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Buckets><Bucket><Name>welcome</Name><CreationDate>2026-01-02T03:04:05.000Z</CreationDate></Bucket></Buckets></ListAllMyBucketsResult>"
        return 200, "application/xml", text, {}

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer


contexts = {}
for name in NAMES:
    contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")


def chosen(socket, name, _):
    socket.context = contexts.get(name, contexts[NAMES[0]])


contexts[NAMES[0]].sni_callback = chosen
class Server(http.server.ThreadingHTTPServer):
    # Many connect at once: by default five wait, and others are not answered.
    request_queue_size = 512


server = Server(("", 443), Origin)
server.socket = contexts[NAMES[0]].wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
