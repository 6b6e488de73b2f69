"""A hub of models on this machine, as Hugging Face's answers, and the ways in which a network fails.

A fault is given for a part of an address, and happens as often as is asked for: `hub.inject("model.gguf", "reset", times=2)`.
"""

import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse

TEXTS = {".json", ".jinja", ".txt", ".md"}  # in git itself; other files in its large file storage


def blob_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """Revisions of a set of files: name -> {path: bytes}."""

    def __init__(self, files):
        self.commits = {}
        self.revisions = {}
        self.commit(files)

    def commit(self, files, revision="main"):
        digest = hashlib.sha1(b"".join(path.encode() + b"\0" + hashlib.sha1(data).digest() for path, data in sorted(files.items())))
        self.commits[digest.hexdigest()] = dict(files)
        self.revisions[revision] = digest.hexdigest()
        return digest.hexdigest()

    def files(self, name):
        return self.commits.get(self.revisions.get(name, name))


def entry(path, data):
    listed = {"type": "file", "path": path, "size": len(data), "oid": blob_hash(data)}
    if pathlib.PurePosixPath(path).suffix not in TEXTS:
        listed["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return listed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *words):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError, TimeoutError, threading.BrokenBarrierError):
            super().handle()

    # ---- answers ----

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code="", message=""):
        more = {"X_Error_Code": code, "X_Error_Message": message} if code else {}
        self.answer(status, b"no", **more)

    def do_GET(self):
        hub = self.server.hub
        address = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(address.path)
        with hub.lock:
            hub.requests.append((self.server.name, self.path, dict(self.headers)))
            fault = hub.take_fault(self.server.name, path)
        if fault and self.fail_early(fault):
            return
        if self.server.name == "cdn":
            return self.send_file(hub.stored[path], fault)
        for pattern, action in (
            (r"/api/models/([^/]+/[^/]+)/revision/(.+)", self.send_revision),
            (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self.send_tree),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.send_resolved),
        ):
            found = re.fullmatch(pattern, path)
            if found:
                return action(*found.groups(), fault)
        self.refuse(404)

    def find(self, name, revision):
        hub = self.server.hub
        if name not in hub.repositories:
            self.refuse(404 if hub.says_not_found else 401, "RepoNotFound", "Repository not found")
            return None
        files = hub.repositories[name].files(revision)
        if files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return files

    def send_revision(self, name, revision, fault):
        if self.find(name, revision) is not None:
            repository = self.server.hub.repositories[name]
            sha = repository.revisions.get(revision, revision)
            self.answer(200, json.dumps({"id": name, "sha": sha}).encode(), Content_Type="application/json")

    def send_tree(self, name, revision, fault):
        files = self.find(name, revision)
        if files is None:
            return
        hub = self.server.hub
        listed = [entry(path, data) for path, data in sorted(files.items())]
        folders = sorted({path.rpartition("/")[0] for path in files if "/" in path})
        listed += [{"type": "directory", "path": folder, "size": 0, "oid": "0" * 40} for folder in folders]
        listed = hub.change_listing(listed)
        begin = int(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("cursor", ["0"])[0])
        page = listed[begin : begin + hub.page_entries]
        more = {}
        if begin + hub.page_entries < len(listed):
            next_page = f"{self.path.partition('?')[0]}?recursive=true&cursor={begin + hub.page_entries}"
            more["Link"] = f'<{hub.address}{next_page}>; rel="next", <{hub.address}/>; rel="first"'
        self.answer(200, json.dumps(page).encode(), **more)

    def send_resolved(self, name, revision, path, fault):
        hub = self.server.hub
        files = self.find(name, revision)
        if files is None:
            return
        if path not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        if name in hub.gated and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
        data = files[path]
        if hub.redirects and pathlib.PurePosixPath(path).suffix not in TEXTS:
            stored = f"/stored/{hashlib.sha256(data).hexdigest()}"
            hub.stored[stored] = data
            return self.answer(302, Location=f"{hub.cdn_address}{stored}?Signature=secret", X_Linked_Size=len(data))
        self.send_file(data, fault)

    # ---- bodies ----

    def send_file(self, data, fault):
        hub = self.server.hub
        etag = f'"{hub.etag_prefix}{hashlib.md5(data).hexdigest()}"'
        begin, status, more = 0, 200, {"ETag": etag} if hub.etags else {}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        unchanged = self.headers.get("If-Range", etag) == etag
        if asked and unchanged and hub.ranges and fault != "no-range":
            begin, status = int(asked[1]), 206
            if begin >= len(data):
                return self.answer(416, Content_Range=f"bytes */{len(data)}")
            more["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        if fault == "wrong":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault == "bad-range" and status == 206:
            more["Content_Range"] = f"bytes {begin + 1}-{len(data) - 1}/{len(data)}"
        if fault == "other-total" and status == 206:
            more["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data) + 7}"
        if fault == "short-length":
            body = body[: len(body) // 2]
        if fault == "too-much":
            body += b"more than there should be"
        length = len(body) + (50 if fault == "long-length" else 0)
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        if fault == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.send_body(body, fault)

    def send_body(self, body, fault):
        hub = self.server.hub
        if hub.together and self.server.name == "cdn":
            hub.together.wait()
        half = hub.cut(len(body))
        if fault == "chunked":  # and never the chunk that ends it
            self.wfile.write(b"%x\r\n" % half + body[:half] + b"\r\n")
            self.close_connection = True
        elif fault in ("truncate", "reset", "stall"):
            self.wfile.write(body[:half])
            self.wfile.flush()
            self.close_connection = True
            if fault == "reset":
                time.sleep(0.02)  # or the bytes would go, too
                self.reset()
            if fault == "stall":
                hub.stopped.wait(60)
        else:
            if fault == "long-length":
                self.close_connection = True
            for at in range(0, len(body), hub.piece):
                self.wfile.write(body[at : at + hub.piece])
                if hub.pause:
                    self.wfile.flush()
                    hub.stopped.wait(hub.pause)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def fail_early(self, fault):
        """What goes wrong before there is an answer, or in place of it."""
        hub = self.server.hub
        if isinstance(fault, tuple):  # an answer by itself: status, headers, body
            status, headers, body = fault
            self.answer(status, body, **headers)
        elif fault == "drop":
            self.close_connection = True
            self.reset()
        elif fault == "silence":
            self.close_connection = True
            hub.stopped.wait(60)
        elif fault == "garbage":
            self.close_connection = True
            self.wfile.write(b"\0\1\2 no HTTP\r\n\r\n")
        elif re.fullmatch(r"\d{3}", str(fault)):
            self.answer(int(fault), b"busy")
        else:
            return False
        return True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub, name, tls=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.name = hub, name
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # those of TLS are some, too
            super().handle_error(request, client_address)


class Hub:
    """The hub, and beside it another host, "cdn", where large files are."""

    def __init__(self, repositories=None, tls=None):
        self.lock = threading.RLock()
        self.stopped = threading.Event()
        self.repositories = {name: Repository(files) for name, files in (repositories or {}).items()}
        self.requests = []  # (server, address, headers)
        self.faults = []  # [server or None, part of the address, fault, times]
        self.stored = {}
        self.gated, self.token = set(), "hf_secret"
        self.redirects = self.etags = self.ranges = True
        self.says_not_found = False
        self.etag_prefix = ""
        self.page_entries = 1000
        self.piece, self.pause = 1 << 16, 0  # bytes at a time, and seconds between them
        self.together = None  # a barrier for bodies of large files
        self.change_listing = lambda listed: listed
        self.cut = lambda n: n // 2
        self.scheme = "https" if tls else "http"
        self.servers = {name: Server(self, name, tls) for name in ("hub", "cdn")}
        self.address = self.address_of("hub")
        self.cdn_address = self.address_of("cdn").replace("127.0.0.1", "localhost")

    def address_of(self, name):
        return f"{self.scheme}://127.0.0.1:{self.servers[name].server_address[1]}"

    def inject(self, part, fault, times=1, server=None):
        with self.lock:
            self.faults.append([server, part, fault, times])

    def take_fault(self, server, path):
        for each in self.faults:
            if each[0] in (None, server) and each[3] > 0 and (each[1] in path or each[1] in self.path_of(path)):
                each[3] -= 1
                return each[2]
        return None

    def path_of(self, stored):
        """Names under which the bytes of another host's address are known."""
        data = self.stored.get(stored)
        if data is None:
            return ""
        names = (path for each in self.repositories.values() for files in each.commits.values() for path, other in files.items() if other is data)
        return " ".join(names)

    def asked(self, part, server=None):
        """The addresses of requests that hold this."""
        with self.lock:
            return [address for name, address, _ in self.requests if part in address and server in (None, name)]

    def close(self):
        self.stopped.set()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()
