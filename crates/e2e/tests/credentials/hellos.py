"""Says a placeholder in the beginnings of connections, where no request is. Arguments: the
placeholder. Prints for each row how it ended."""
import socket, ssl, sys

KEY = sys.argv[1].encode()


def hello(name, protocols=()):
    """The first bytes of TLS for a name."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    came, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = context.wrap_bio(came, sent, server_hostname=name)
    try:
        wrapped.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def random(bytes_):
    """The record's head, the message's, and its version stand before it."""
    return bytes_[:11] + KEY[:32] + bytes_[43:]


def session(bytes_):
    assert bytes_[43] == 32
    return bytes_[:44] + KEY[:32] + bytes_[76:]


def rows(host):
    yield "own", hello(host)
    yield "name", hello(f"{KEY.decode()}.{host}")
    yield "labels", hello(f"{KEY[:15].decode()}.{KEY[15:].decode()}.{host}")
    yield "protocol", hello(host, [KEY.decode(), "http/1.1"])
    yield "random", random(hello(host))
    yield "session", session(hello(host))
    yield "text", b"Authorization: Bearer " + KEY + b"\r\n\r\n"


for host, port in (("example.com", 9443), ("tunnel.example", 9444)):
    for row, first in rows(host):
        with socket.create_connection((host, port), 20) as one:
            one.settimeout(20)
            answer = b""
            try:
                one.sendall(first)
                one.shutdown(socket.SHUT_WR)
                while block := one.recv(4096):
                    answer += block
            except OSError as error:
                # What is no answer of TLS ends so once it has come.
                answer = answer or type(error).__name__.encode()
        print(host, row, "got it" if answer == b"got it" else "not")
