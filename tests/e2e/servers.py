"""A web server and a bucket for captures, in this process. The first part of a path says how it behaves: as it should, or
in one of the ways in which servers, proxies and networks do not."""
import hashlib
import hmac
import http.server
import re
import threading
import urllib.parse

KEY, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-north-1"


def signature_of(method, path, headers, signed, secret, scope):
    """AWS's Signature Version 4 of a request without a body and a query, by its specification."""
    canonical = "\n".join([method, path, "", *(f"{name}:{headers[name].strip()}" for name in signed), "", ";".join(signed),
                           headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope),
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_signed(request):
    """Whether a request to a bucket is signed with KEY and SECRET, its range conditions and all."""
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8}/[a-z0-9-]+/s3/aws4_request), ?SignedHeaders=([a-z0-9;-]+), "
                         r"?Signature=([0-9a-f]{64})", request.headers.get("Authorization", ""))
    if not match or match[1] != KEY:
        return False
    headers = {name.lower(): value for name, value in request.headers.items()}
    scope, signed = match[2].split("/"), match[3].split(";")
    must = {"host", "x-amz-date"} | {name for name in headers if name.startswith("x-amz-")}
    return must <= set(signed) and scope[1] == REGION and hmac.compare_digest(
        match[4], signature_of(request.command, request.path, headers, signed, SECRET, scope))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 20 # head and body in one packet

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        server = self.server
        _, how, *rest = urllib.parse.unquote(self.path.split("?")[0]).split("/")
        data = server.files.get("/".join(rest))
        server.n_requests += 1
        server.seen.append(dict(self.headers))
        if data is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        if first >= len(data):
            return self.answer(416, Content_Range=f"bytes */{len(data)}")
        last = min(last, len(data) - 1)
        part = data[first:last + 1]
        server.n_bytes += len(part)
        about = {"ETag": '"v1"', "Content_Range": f"bytes {first}-{last}/{len(data)}"}
        getattr(self, "do_" + how.replace("-", "_"))(part, about, data)

    def do_good(self, part, about, data):
        if self.headers.get("If-Match", about["ETag"]) != about["ETag"]:
            return self.answer(412)
        self.answer(206, part, **about)

    def do_secret(self, part, about, data):
        if "sig=right" not in self.path:
            return self.answer(403)
        self.answer(206, part, **about)

    def do_bucket(self, part, about, data):
        if not is_signed(self):
            return self.answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        self.do_good(part, about, data)

    def do_public(self, part, about, data): # of the bucket "public"
        self.do_good(part, about, data)

    def do_weak(self, part, about, data):
        self.answer(206, part, **dict(about, ETag='W/"v1"'))

    def do_dated(self, part, about, data):
        del about["ETag"]
        self.answer(206, part, Last_Modified="Mon, 23 Nov 2026 10:00:00 GMT", **about)

    def do_unmarked(self, part, about, data):
        del about["ETag"]
        self.answer(206, part, **about)

    def do_whole(self, part, about, data):
        self.answer(200, data, ETag='"v1"')

    def do_changing(self, part, about, data): # the fifth answer is of a new file
        self.answer(206, part, **dict(about, ETag='"v1"' if self.server.n_requests < 5 else '"v2"'))

    def do_replaced(self, part, about, data): # the same, and the server keeps to If-Match
        version = '"v1"' if self.server.n_requests < 5 else '"v2"'
        if self.headers.get("If-Match", version) != version:
            return self.answer(412)
        self.answer(206, part, **dict(about, ETag=version))

    def do_grown(self, part, about, data):
        more = self.server.n_requests >= 5
        self.answer(206, part, **dict(about, Content_Range=about["Content_Range"] + ("0" if more else "")))

    def do_cut(self, part, about, data):
        self.answer(206, part[:len(part) // 2], length=len(part), **about)
        self.close_connection = True

    def do_cut_once(self, part, about, data):
        if self.server.n_requests % 3 == 2:
            return self.do_cut(part, about, data)
        self.answer(206, part, **about)

    def do_busy_once(self, part, about, data):
        if self.server.n_requests % 3 == 2:
            return self.answer(503, b"<Code>SlowDown</Code>")
        self.answer(206, part, **about)

    def do_busy(self, part, about, data):
        self.answer(503, b"<Code>SlowDown</Code>")

    def do_short(self, part, about, data):
        self.answer(206, part[:-1], **about)

    def do_shifted(self, part, about, data):
        self.answer(206, part, **dict(about, Content_Range=f"bytes 1-{len(part)}/{len(data)}"))

    def do_zipped(self, part, about, data):
        self.answer(206, part, Content_Encoding="gzip", **about)

    def do_refused(self, part, about, data):
        self.answer(403)

    def do_endless(self, part, about, data):
        self.send_response(206)
        for name, value in about.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                self.wfile.write(bytes(65536))
        except OSError:
            pass

    def do_slow(self, part, about, data):
        self.server.is_over.wait(20)

    def do_round(self, part, about, data):
        self.answer(302, Location=self.path)

    def do_elsewhere(self, part, about, data):
        self.answer(302, Location=self.path.replace("/elsewhere/", "/good/"))

    def do_local(self, part, about, data):
        self.answer(302, Location="file:///etc/passwd")

    def do_plain(self, part, about, data): # of a secure server: to one that is not
        self.answer(302, Location=self.server.other_url + "/good/a.h5")


class Server(http.server.ThreadingHTTPServer):
    """with Server({name: bytes}) as server: server.url + "/good/" + name."""
    daemon_threads = True

    def __init__(self, files, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.is_over, self.other_url = files, threading.Event(), None
        self.url = f"{'https' if certificate else 'http'}://localhost:{self.server_port}"
        if certificate:
            import ssl
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.forget()

    def forget(self):
        self.n_requests = self.n_bytes = 0
        self.seen = []

    def handle_error(self, *_): # clients that go away are what is tested
        pass

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.shutdown()
        self.server_close()
