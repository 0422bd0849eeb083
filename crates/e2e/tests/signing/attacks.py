"""Requests that are signed with placeholders in ways that nobody may send, made by AWS's own
library and changed afterwards. Prints a line for each: its name, its status, and why."""
import base64, datetime, hashlib, os, subprocess, sys, http.client, json, zlib

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEY = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_SESSION_TOKEN"])
S3 = "s3.eu-west-1.amazonaws.com"
DYNAMODB = "dynamodb.eu-west-1.amazonaws.com"


def send(name, method, host, target, headers, body=b""):
    connection = http.client.HTTPSConnection(host, timeout=30)
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", host)
    for one, value in headers:
        connection.putheader(one, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body or None)
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    try:
        text = json.loads(text)["why"]
    except (ValueError, KeyError, TypeError):
        text = text.split("\n")[0]
    print(name, answer.status, text, flush=True)
    return text, answer.headers


def signed(method, host, target, service="s3", region="eu-west-1", body=b"", key=KEY, more={}, before=None):
    kind = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    request = AWSRequest(method=method, url=f"https://{host}{target}", data=body, headers=dict(more))
    auth = kind(key, service, region)
    if before:
        now = botocore.auth.get_current_datetime
        botocore.auth.get_current_datetime = lambda *a, **k: now(*a, **k) - datetime.timedelta(minutes=before)
        auth.add_auth(request)
        botocore.auth.get_current_datetime = now
    else:
        auth.add_auth(request)
    return [(name, value) for name, value in request.headers.items()]


def presigned(host, target, expires=60, key=KEY):
    request = AWSRequest(method="GET", url=f"https://{host}{target}")
    botocore.auth.S3SigV4QueryAuth(key, "s3", "eu-west-1", expires=expires).add_auth(request)
    return request.url.split(host, 1)[1]


def changed(headers, name, change):
    return [(one, change(value) if one.lower() == name else value) for one, value in headers]


def without(headers, name):
    return [(one, value) for one, value in headers if one.lower() != name]


def in_pieces(name, data, size, trailer=True, length=None, key=KEY):
    """The headers of a request with a body in pieces of this size, and those pieces."""
    content = b"".join(data)
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
    headers = {"X-Amz-Decoded-Content-Length": str(len(content) if length is None else length), "Content-Encoding": "aws-chunked"}
    if trailer:
        headers["X-Amz-Trailer"] = "x-amz-checksum-crc32"
    request = AWSRequest(method="PUT", url=f"https://{S3}/bucket/{name}", headers=headers)
    auth = botocore.auth.S3SigV4Auth(key, "s3", "eu-west-1")
    auth.payload = lambda _: kind
    auth.add_auth(request)
    last = request.headers["Authorization"].split("Signature=")[1]
    digest = lambda of: hashlib.sha256(of).hexdigest()

    def signature(part, *of):
        return auth.signature("\n".join((f"AWS4-HMAC-SHA256-{part}", request.context["timestamp"], auth.credential_scope(request), last) + of), request)

    pieces = []
    for one in [content[at : at + size] for at in range(0, len(content), size)] + [b""]:
        last = signature("PAYLOAD", digest(b""), digest(one))
        pieces.append(f"{len(one):x};chunk-signature={last}\r\n".encode() + (one + b"\r\n" if one or not trailer else b""))
    if trailer:
        line = "x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
        pieces.append(f"{line}\r\nx-amz-trailer-signature:{signature('TRAILER', digest((line + chr(10)).encode()))}\r\n\r\n".encode())
    return list(request.headers.items()), pieces


if sys.argv[1:]:
    # A long one alone, of so many bytes.
    headers, long = in_pieces("long", (b"x" * int(sys.argv[1]),), 65536)
    sys.exit(send(sys.argv[0], "PUT", S3, "/bucket/long", headers, b"".join(long))[0] or None)
get = lambda name: signed("GET", S3, f"/bucket/{name}")
# The controls: what is signed right is sent.
send("control-header", "GET", S3, "/bucket/control-header", get("control-header"))
send("control-query", "GET", S3, presigned(S3, "/bucket/control-query"), [])
body = b'{"ExclusiveStartTableName": "control"}'
send("control-body", "POST", DYNAMODB, "/control-body", signed("POST", DYNAMODB, "/control-body", "dynamodb", body=body), body)
send("control-beside", "GET", S3, "/bucket/control-beside", get("control-beside") + [("X-Other", "unsigned")])
send("control-coding", "GET", S3, "/bucket/control-coding", signed("GET", S3, "/bucket/control-coding", more={"Accept-Encoding": "br, lzma"}))
text, headers = send("control-masked", "GET", S3, "/bucket/control-masked", get("control-masked"))
print("comes-back", text == f"{KEY.access_key} {KEY.secret_key} {KEY.token}", headers["X-Echo"] == KEY.access_key)


def in_parts(bytes):
    """What tells of the key, asked for in parts of so many bytes."""
    connection, text, ranges = http.client.HTTPSConnection(S3, timeout=30), b"", []
    for at in range(0, len(TELLS), bytes):
        headers = dict(signed("GET", S3, "/bucket/masked", more={"Range": f"bytes={at}-{at + bytes - 1}", "If-Range": '"1"'}))
        connection.request("GET", "/bucket/masked", headers=headers)
        answer = connection.getresponse()
        text += answer.read()
        ranges.append((answer.status, answer.headers["Content-Range"].split("/")[0]))
        assert ranges[-1] == (206, f"bytes {at}-{min(at + bytes, len(TELLS)) - 1}"), ranges
    return text.decode() == TELLS


TELLS = f"{KEY.access_key} {KEY.secret_key} {KEY.token}"
print("comes-in-parts", in_parts(1000), in_parts(40), in_parts(7), in_parts(1), flush=True)
# Attacks.
send("other-region", "GET", S3, "/bucket/other-region", signed("GET", S3, "/bucket/other-region", region="us-east-1"))
send("other-service", "GET", S3, "/bucket/other-service", signed("GET", S3, "/bucket/other-service", "iam"))
send("other-host", "GET", "other.example", "/bucket/other-host", signed("GET", "other.example", "/bucket/other-host"))
send("other-path", "GET", S3, "/bucket/other-path", get("else"))
send("other-method", "DELETE", S3, "/bucket/other-method", get("other-method"))
send("other-query", "GET", S3, "/bucket/other-query?acl", get("other-query"))
send("other-body", "POST", DYNAMODB, "/other-body", signed("POST", DYNAMODB, "/other-body", "dynamodb", body=body), body + b" ")
send("other-digest", "PUT", S3, "/bucket/other-digest", changed(signed("PUT", S3, "/bucket/other-digest", body=b"a"), "x-amz-content-sha256", lambda _: hashlib.sha256(b"b").hexdigest()), b"b")
send("other-secret", "GET", S3, "/bucket/other-secret", signed("GET", S3, "/bucket/other-secret", key=Credentials(KEY.access_key, "another-secret-of-some-forty-characters!", KEY.token)))
send("other-header", "GET", S3, "/bucket/other-header", changed(signed("GET", S3, "/bucket/other-header", more={"X-Amz-Acl": "private"}), "x-amz-acl", lambda _: "public-read"))
send("further-header", "GET", S3, "/bucket/further-header", get("further-header") + [("X-Amz-Acl", "public-read")])
send("same-header", "GET", S3, "/bucket/same-header", signed("GET", S3, "/bucket/same-header", more={"X-Amz-Meta-A": "1"}) + [("X-Amz-Meta-A", "2")])
send("two-authorizations", "GET", S3, "/bucket/two-authorizations", get("two-authorizations") + [("Authorization", "Bearer other")])
send("both-forms", "GET", S3, presigned(S3, "/bucket/both-forms"), get("both-forms"))
send("old", "GET", S3, "/bucket/old", signed("GET", S3, "/bucket/old", before=20))
send("early", "GET", S3, "/bucket/early", signed("GET", S3, "/bucket/early", before=-20))
send("other-date", "GET", S3, "/bucket/other-date", changed(get("other-date"), "x-amz-date", lambda value: value[:-3] + ("00Z" if value[-3:] != "00Z" else "01Z")))
send("no-host", "GET", S3, "/bucket/no-host", changed(get("no-host"), "authorization", lambda value: value.replace("SignedHeaders=host;", "SignedHeaders=")))
send("no-date", "GET", S3, "/bucket/no-date", without(get("no-date"), "x-amz-date"))
send("longer-query", "GET", S3, presigned(S3, "/bucket/longer-query").replace("Expires=60", "Expires=600000"), [])
send("too-long-query", "GET", S3, presigned(S3, "/bucket/too-long-query", expires=604801), [])
send("moved-query", "GET", S3, presigned(S3, "/bucket/else").replace("/else?", "/moved-query?"), [])
send("secret-in-query", "GET", S3, f"/bucket/secret-in-query?key={KEY.secret_key}", get("secret-in-query"))
send("secret-in-header", "GET", S3, "/bucket/secret-in-header", get("secret-in-header") + [("X-Key", KEY.secret_key)])
send("id-elsewhere", "GET", S3, "/bucket/id-elsewhere", [("X-Key", KEY.access_key)])
send("version-2", "GET", S3, "/bucket/version-2", [("Authorization", f"AWS {KEY.access_key}:c2lnbmF0dXJl")])
send("token-alone", "GET", S3, "/bucket/token-alone", [("X-Amz-Security-Token", KEY.token)])
send("version-4a", "GET", S3, "/bucket/version-4a", changed(get("version-4a"), "authorization", lambda value: value.replace("HMAC-SHA256", "ECDSA-P256-SHA256", 1)))
of_events = lambda _: "STREAMING-AWS4-HMAC-SHA256-EVENTS"
send("events", "PUT", S3, "/bucket/events", changed(signed("PUT", S3, "/bucket/events", body=b"a"), "x-amz-content-sha256", of_events), b"a")
KEY_PARTS = [("id", KEY.access_key), ("secret", KEY.secret_key), ("token", KEY.token)]
# Who is given a credential may be told what stands for it, and nobody else.
for part, value in KEY_PARTS:
    send(f"control-{part}-in-body", "PUT", S3, f"/bucket/control-{part}-in-body", signed("PUT", S3, f"/bucket/control-{part}-in-body", body=value.encode()), value.encode())
    send(f"{part}-in-other-body", "POST", "other.example", f"/{part}-in-other-body", [], value.encode())
other = os.environ["FIELD_KEY"]
send("field-in-object", "PUT", S3, "/bucket/field-in-object", signed("PUT", S3, "/bucket/field-in-object", body=other.encode()), other.encode())
long = json.dumps({"ExclusiveStartTableName": "x" * 200000 + other}).encode()
send("field-in-long-body", "POST", DYNAMODB, "/field-in-long-body", signed("POST", DYNAMODB, "/field-in-long-body", "dynamodb", body=long), long)
field = json.dumps({"key": os.environ["FIELD_KEY"]}).encode()
send("field-in-body", "POST", DYNAMODB, "/field-in-body", signed("POST", DYNAMODB, "/field-in-body", "dynamodb", body=field, more={"Content-Type": "application/json"}), field)


def chunks(body):
    for at in range(0, len(body), 7000):
        yield body[at : at + 7000]


def put_send(name, how, signed_body, body):
    """Sends a body where the digest of one was signed: by HTTP/1.1 with its length or in chunks, by
    HTTP/2 with its length or without."""
    put(name, how, signed("PUT", S3, f"/bucket/{name}", body=signed_body), body)


def put(name, how, headers, body):
    target = f"/bucket/{name}"
    if how == "length":
        return send(name, "PUT", S3, target, headers, body)
    if how == "chunked":
        connection = http.client.HTTPSConnection(S3, timeout=30)
        connection.request("PUT", target, chunks(body), dict(headers), encode_chunked=True)
        answer = connection.getresponse()
        status, text = answer.status, answer.read()
    else:
        with open("sent", "wb") as to:
            to.write(body)
        words = ["curl", "-sS", "-m", "30", "--noproxy", "*", "--http2", "-X", "PUT", "-o", "came", "-w", "%{http_code} %{http_version}", "-H", "Expect:"]
        words += [word for one, value in headers for word in ("-H", f"{one}: {value}")]
        words += {"two": ["--data-binary", "@sent", "-H", "Content-Type:"], "two-open": ["-T", "-"]}[how]
        with open("sent", "rb") as given:
            told = subprocess.run(words + [f"https://{S3}{target}"], stdin=given, capture_output=True, text=True).stdout
        status, version = told.split()
        assert version == "2", told
        text = open("came", "rb").read() if os.path.exists("came") else b""
        if os.path.exists("came"):
            os.unlink("came")
    try:
        text = json.loads(text)["why"]
    except (ValueError, KeyError, TypeError):
        text = text.decode(errors="replace").split("\n")[0]
    print(name, status, text, flush=True)


SMALL, LARGE = b"a small body", b"a large body" * 25000
put_send("control-told-length", "length", SMALL, SMALL)
put_send("control-told-large", "length", LARGE, LARGE)
put_send("control-told-chunked", "chunked", SMALL, SMALL)
put_send("control-told-large-chunked", "chunked", LARGE, LARGE)
put_send("control-told-two", "two", SMALL, SMALL)
put_send("control-told-large-two", "two", LARGE, LARGE)
put_send("control-told-two-open", "two-open", SMALL, SMALL)
put_send("control-told-large-two-open", "two-open", LARGE, LARGE)
put_send("told-length", "length", SMALL, SMALL[:-1] + b"!")
put_send("told-large", "length", LARGE, LARGE[:-1] + b"!")
put_send("told-begins-so", "length", LARGE, b"!" + LARGE[1:])
put_send("told-longer", "length", LARGE, LARGE + b"!")
put_send("told-shorter", "length", LARGE, LARGE[:-1])
put_send("told-and-empty", "length", SMALL, b"")
put_send("told-chunked", "chunked", SMALL, SMALL + b"!")
put_send("told-large-chunked", "chunked", LARGE, LARGE[:-1] + b"!")
put_send("told-two", "two", SMALL, SMALL + b"!")
put_send("told-large-two", "two", LARGE, LARGE[:-1] + b"!")
put_send("told-two-open", "two-open", SMALL, SMALL + b"!")
put_send("told-large-two-open", "two-open", LARGE, LARGE[:-1] + b"!")


def pieces_send(name, how, change=lambda pieces: pieces, data=(SMALL,), size=5, **more):
    headers, pieces = in_pieces(name, data, size, **more)
    put(name, how, headers, b"".join(change(pieces)))


def at(place, change):
    return lambda pieces: pieces[:place] + [change(pieces[place])] + pieces[place:][1:]


BIG = {"data": (LARGE,), "size": 65536}
OTHER = Credentials(KEY.access_key, "another-secret-of-some-forty-characters!", KEY.token)
pieces_send("control-pieces", "length", trailer=False)
pieces_send("control-pieces-trailer", "length")
pieces_send("control-pieces-empty", "length", data=())
pieces_send("control-pieces-large", "length", trailer=False, **BIG)
pieces_send("control-pieces-large-trailer", "length", **BIG)
pieces_send("control-pieces-chunked", "chunked", **BIG)
pieces_send("control-pieces-two", "two", **BIG)
pieces_send("control-pieces-two-open", "two-open", **BIG)
pieces_send("pieces-altered", "length", at(1, lambda one: one[:-3] + b"!\r\n"))
pieces_send("pieces-large-altered", "length", at(1, lambda one: one[:-3] + b"!\r\n"), **BIG)
pieces_send("pieces-reordered", "length", lambda all: [all[1], all[0]] + all[2:])
pieces_send("pieces-large-reordered", "two", lambda all: [all[0], all[2], all[1]] + all[3:], **BIG)
pieces_send("pieces-twice", "length", lambda all: all[:1] + all)
pieces_send("pieces-left-out", "length", lambda all: all[:1] + all[2:])
pieces_send("pieces-cut", "length", lambda all: all[:-2])
pieces_send("pieces-large-cut", "chunked", lambda all: all[:-2], **BIG)
pieces_send("pieces-large-cut-two", "two-open", lambda all: all[:2], **BIG)
pieces_send("pieces-cut-within", "length", at(-1, lambda one: one[:20]))
pieces_send("pieces-and-more", "length", lambda all: all + all[-1:])
pieces_send("pieces-unsigned", "length", at(1, lambda one: one.replace(one[1:82], b"", 1)))
pieces_send("pieces-large-unsigned", "length", at(1, lambda one: one.replace(one[5:86], b"", 1)), **BIG)
pieces_send("pieces-other-secret", "length", lambda all: in_pieces("pieces-other-secret", (SMALL,), 5, key=OTHER)[1])
pieces_send("pieces-of-another", "length", lambda all: in_pieces("else", (SMALL,), 5)[1])
pieces_send("pieces-trailer-altered", "length", at(-1, lambda one: one.replace(b"crc32:", b"crc32:A", 1)))
pieces_send("pieces-large-trailer-altered", "length", at(-1, lambda one: one.replace(b"crc32:", b"crc32:A", 1)), **BIG)
pieces_send("pieces-trailer-renamed", "length", at(-1, lambda one: one.replace(b"checksum-crc32:", b"meta-other:", 1)))
pieces_send("pieces-trailer-left-out", "length", at(-1, lambda one: b"\r\n"))
pieces_send("pieces-longer", "length", length=len(SMALL) - 1)
pieces_send("pieces-shorter", "length", length=len(SMALL) + 1)
pieces_send("pieces-large-longer", "length", length=len(LARGE) - 1, **BIG)
pieces_send("pieces-large-shorter", "two-open", length=len(LARGE) + 1, **BIG)
pieces_send("pieces-told-otherwise", "length", lambda all: [SMALL])
