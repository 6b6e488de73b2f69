"""hearth serve as it is run: who may ask, where it listens, signals, logs, several models, adapters, service managers."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import unittest

from support import HANG, HEARTH, SCRATCH, TINY, NotServing, Server, ServeTest, speaking_model, tiny_model, together, until, write_lora

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = {"prompt": "hello", "max_tokens": 1 << 18, "temperature": 0, "ignore_eos": True}


def short(**more):
    return {"prompt": "hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True, **more}


def write_adapter(folder, seed):
    """A LoRA adapter of TINY with random weights."""
    numbers = random.Random(seed)
    a, b = ([numbers.gauss(0, 1) for _ in range(4 * n)] for n in (tiny_model.FEED_FORWARD, tiny_model.HIDDEN))
    write_lora(folder, {f"model.layers.{i}.mlp.down_proj": (a, b) for i in range(tiny_model.LAYERS)}, 4, lora_alpha=8, target_modules=["down_proj"])


class Entry(ServeTest):
    """Who may ask."""

    def test_keys(self):
        with Server(TINY, keys=["first-key", "second-key"]) as server:
            for headers in [{}, {"Authorization": "Bearer second-key"}, {"Authorization": "", "x-api-key": "second-key"}]:
                self.assertEqual(server.post(COMPLETIONS, short(), headers)[0], 200)
            for headers in [{"Authorization": "Bearer wrong"}, {"Authorization": ""}, {"Authorization": "Basic first-key"}, {"Authorization": "Bearer first-ke"}]:
                error = self.refused(401, COMPLETIONS, short(), says="key", headers=headers, server=server)
                self.assertEqual(error["type"], "authentication_error")
                for path in ["/v1/models", "/metrics"]:
                    self.assertEqual(server.get(path, headers)[0], 401)
                for path in ["/health", "/"]:
                    self.assertEqual(server.get(path, headers)[0], 200)
            self.assertNotIn("first-key", "\n".join(server.err))

    def test_other_machines_are_served_with_keys_alone(self):
        for host in ["0.0.0.0", "::", "", "127.0.0.1.example", "128.0.0.1", "localhost.example"]:
            with self.assertRaises(NotServing) as caught:
                Server(TINY, "--host", host, "--port", "0")
            self.assertIn("--api-key-file", caught.exception.err)
            self.assertEqual(len(caught.exception.err.splitlines()), 1)
        with Server(TINY, "--host", "0.0.0.0", "--port", "0", keys=["k"]) as server:
            server.host = "127.0.0.1"
            self.assertEqual(server.get("/v1/models")[0], 200)
        (self.folder / "empty").write_text("# nothing\n")
        with self.assertRaises(NotServing) as caught:
            Server(TINY, "--api-key-file", self.folder / "empty")
        self.assertIn("empty", caught.exception.err)

    def test_hosts(self):
        with Server(TINY, "--allow-host", "models.example", "--allow-host", "*.inner.example") as server:
            for host, status in [("127.0.0.1", 200), ("localhost:1", 200), ("a.localhost", 200), ("models.example", 200), ("x.inner.example", 200),
                                 ("evil.example", 403), ("inner.example", 403), ("models.example.evil.example", 403)]:
                for path in ["/health", "/", "/v1/models"]:
                    self.assertEqual(server.get(path, {"Host": host})[0], status, host)
            for host, name in [("evil.example:8080", "evil.example"), ("[2001:db8::1]:80", "[2001:db8::1]"), ("x" * 300, "x" * 128)]:
                message = server.get("/v1/models", {"Host": host})[2]["error"]["message"]
                self.assertIn(f'"{name}"', message)
                self.assertIn(f"`--allow-host {name}`", message)
            self.assertIn("--allow-host evil.example", server.get("/api/tags", {"Host": "evil.example"})[2]["error"])

    def test_origins(self):
        with Server(TINY, "--allow-origin", "https://app.example") as server:
            for origin, status in [("https://app.example", 200), (server.url, 200), ("https://evil.example", 403), ("null", 403)]:
                got, fields, _ = server.post(COMPLETIONS, short(), {"Origin": origin})
                self.assertEqual(got, status, origin)
                self.assertEqual(fields.get("access-control-allow-origin"), origin if "app" in origin else None)
                if "app" in origin:
                    exposed = fields["access-control-expose-headers"].lower().split(", ")
                    self.assertLessEqual({"x-request-id", "request-id", "x-seed", "x-ignored", "retry-after"}, set(exposed))
            refused = server.post(COMPLETIONS, short(), {"Origin": "https://evil.example"})[2]["error"]["message"]
            self.assertIn("`--allow-origin https://evil.example`", refused)
            asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
            status, fields, _ = server.request("OPTIONS", CHAT, None, asked)
            self.assertEqual((status, fields["access-control-allow-origin"]), (204, "https://app.example"))
            self.assertIn("POST", fields["access-control-allow-methods"])
            self.assertEqual(fields["access-control-allow-headers"], "authorization,content-type")
            status, fields, _ = server.request("OPTIONS", CHAT, None, {**asked, "Origin": "https://evil.example"})
            self.assertEqual((status, "access-control-allow-methods" in fields), (403, False))


class Defaults(ServeTest):
    """What requests that say nothing have by the options of the command line."""

    def test_all_dialects(self):
        hello = [{"role": "user", "content": "hello"}]
        chats = [(CHAT, {"messages": hello}), ("/api/chat", {"messages": hello, "stream": False}), ("/v1/responses", {"input": "hello"}),
                 ("/v1/messages/count_tokens", {"messages": hello})]  # fmt: skip

        def counts(answer):
            """Tokens of the prompt and of the answer."""
            usage = answer.get("usage", answer)
            names = [("prompt_tokens", "completion_tokens"), ("prompt_eval_count", "eval_count"), ("input_tokens", "output_tokens")]
            return next((usage[prompt], usage.get(answered)) for prompt, answered in names if prompt in usage)

        with Server(TINY, "--context", "64") as server:
            plain = [counts(server.answer(path, body))[0] for path, body in chats]
        with Server(TINY, "--system", "be brief", "--max-tokens", "3", "--seed", "5", "--temperature", "1.5") as server:
            for (path, body), before in zip(chats, plain):
                prompt, answered = counts(server.answer(path, body))
                self.assertGreater(prompt, before, path)
                self.assertIn(answered, (3, None), path)
            own = [{"role": "system", "content": "x"}, *hello]
            self.assertEqual(counts(server.answer(CHAT, {"messages": own, "max_tokens": 5}))[1], 5)
            self.assertLess(counts(server.answer(CHAT, {"messages": own}))[0], counts(server.answer(CHAT, {"messages": hello}))[0])
            self.assertEqual(counts(server.answer(COMPLETIONS, {"prompt": "hello"}))[1], 3)
            self.assertEqual(server.answer("/completion", {"prompt": "hello"})["tokens_predicted"], 3)
            fields = [server.post(COMPLETIONS, {"prompt": "hello", **more})[1]["x-seed"] for more in ({}, {"seed": 7}, {"seed": -1})]
            self.assertEqual(fields[:2], ["5", "7"])
            self.assertNotEqual(fields[2], "5")

    def test_stop(self):
        body = {"prompt": "hello", "max_tokens": 24, "temperature": 0}
        with Server(TINY) as server:
            text = server.answer(COMPLETIONS, body)["choices"][0]["text"]
        stop = text[5:7]
        with Server(TINY, "--stop", stop) as server:
            choice = server.answer(COMPLETIONS, body)["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (text[: text.index(stop)], "stop"))
            self.assertEqual(server.answer(COMPLETIONS, {**body, "stop": []})["choices"][0]["text"], text)
            self.assertEqual(server.answer(COMPLETIONS, {**body, "stop": "no such text"})["choices"][0]["text"], text)


class Places(ServeTest):
    """Where it listens."""

    def test_a_unix_socket(self):
        path = self.folder / "socket"
        with Server(TINY, "--host", f"unix:{path}") as server:
            self.assertEqual(server.url, f"unix:{path}")
            self.assertEqual(server.answer(COMPLETIONS, short())["usage"]["completion_tokens"], 4)
            self.assertIn("--unix-socket", "\n".join(server.err))
        self.assertFalse(path.exists())

    def test_a_port_that_is_taken(self):
        with Server(TINY) as server, self.assertRaises(NotServing) as caught:
            Server(TINY, "--port", str(server.port))
        self.assertIn(str(server.port), caught.exception.err)
        self.assertNotEqual(caught.exception.status, 0)

    def test_the_line_that_it_prints_works(self):
        if not shutil.which("curl"):
            self.skipTest("skipped: there is no curl")
        with Server(TINY) as server:
            line = server.wait_line(r"^  (curl .*)$").group(1)
            done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            self.assertEqual(json.loads(done.stdout)["choices"][0]["message"]["role"], "assistant")

    @unittest.skipUnless(shutil.which("openssl"), "skipped: there is no openssl to make a certificate with")
    def test_tls(self):
        names = self.folder / "a.pem", self.folder / "a.key"

        def make(name):
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", names[1], "-out", names[0]],
                check=True, capture_output=True)  # fmt: skip
            return ssl.create_default_context(cafile=names[0])

        first = make("first")
        with Server(TINY, "--tls-certificate", names[0], "--tls-key", names[1], tls=first) as server:
            self.assertTrue(server.url.startswith("https://"))
            self.assertEqual(server.answer(COMPLETIONS, short())["usage"]["completion_tokens"], 4)
            self.assertEqual(list(server.events(COMPLETIONS, short(stream=True)))[-1], (None, "[DONE]"))
            old = server.connect()
            old.connect()
            second = make("second")
            server.send_signal(signal.SIGHUP)

            def renewed():
                server.tls = second
                try:
                    return server.get("/health")[0] == 200
                except ssl.SSLError:
                    return False

            until(renewed)
            old.request("GET", "/health")
            self.assertEqual(old.getresponse().status, 200)  # what is open stays
            old.close()
            names[1].write_text("junk")
            server.send_signal(signal.SIGHUP)
            server.wait_line("a.key")
            self.assertEqual(server.get("/health")[0], 200)  # with what it had


class Life(ServeTest):
    """Signals and logs."""

    def test_a_stream_under_way_ends_well(self):
        server = Server(TINY, "--drain", "600")
        events = server.events(COMPLETIONS, {**LONG, "max_tokens": 4000, "stream": True, "stream_options": {"include_usage": True}})
        next(events)
        server.send_signal(signal.SIGTERM)
        *_, usage, done = [data for _, data in events]
        self.assertEqual((done, usage["usage"]["completion_tokens"]), ("[DONE]", 4000))
        self.assertEqual(server.wait(), 0)

    def test_an_interrupt_ends_it_too(self):
        server = Server(None, "--models", SCRATCH)
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)

    def test_logs_are_opened_anew(self):
        log, old = self.folder / "log", self.folder / "log.1"
        with Server(TINY, "--log", log) as server:
            server.get("/health", {"X-Request-Id": "mine-1"})
            server.get("/v1/nothing?secret=1")
            until(lambda: log.read_text().count("\n") == 2)
            log.rename(old)
            server.send_signal(signal.SIGHUP)
            until(log.exists)
            server.answer(COMPLETIONS, short())
            until(lambda: log.read_text().count("\n") == 1)
        first, second = map(json.loads, old.read_text().splitlines())
        self.assertEqual(set(first), {"time", "id", "remote", "method", "path", "status", "bytes", "milliseconds", "complete"})
        self.assertEqual((first["id"], first["remote"], first["method"], first["path"], first["status"]), ("mine-1", "127.0.0.1", "GET", "/health", 200))
        self.assertEqual((second["path"], second["status"], second["complete"]), ("/v1/nothing", 404, True))
        self.assertRegex(first["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(json.loads(log.read_text())["method"], "POST")

    def test_many_at_once_get_what_each_gets_alone(self):
        with Server(TINY, "--parallel", "4") as server:
            bodies = [short(prompt="hello" * (i % 5 + 1), max_tokens=40, temperature=1, seed=i) for i in range(24)]
            alone = [server.answer(COMPLETIONS, body)["choices"] for body in bodies]
            at_once = [None] * len(bodies)

            def ask(i):
                at_once[i] = server.answer(COMPLETIONS, bodies[i])["choices"]

            together(ask, range(len(bodies)))
            self.assertEqual(at_once, alone)

    def test_more_than_may_wait_are_told_to_come_again(self):
        with Server(TINY, "--parallel", "1", "--queue", "1") as server:
            first = server.events(COMPLETIONS, {**LONG, "stream": True})
            next(first)  # it is under way
            second = server.stream(COMPLETIONS, {**LONG, "stream": True})  # it waits
            error = self.refused(503, COMPLETIONS, short(), says="1 may wait", server=server)
            self.assertEqual(error["type"], "unavailable_error")
            self.assertIn("retry-after", server.post(COMPLETIONS, short())[1])
            first.close()
            second.close()
            until(lambda: server.post(COMPLETIONS, short())[0] == 200)


class Names(ServeTest):
    """Models, adapters and their names."""

    @classmethod
    def setUpClass(cls):
        cls.models = pathlib.Path(SCRATCH / "many")
        (cls.models / "org").mkdir(parents=True)
        tiny_model.write(cls.models / "a.gguf", context=512)
        speaking_model(cls.models / "org/b.gguf", "B")  # which has a token more
        cls.bias = {str(len(tiny_model.vocabulary())): 100}
        tiny_model.write(cls.models / "c.gguf", context=512)

    def loaded(self, server):
        return server.metric("models_loaded")

    def test_the_cache_without_a_model(self):
        cache = self.folder / "hearth" / "models"
        with self.assertRaises(NotServing) as caught:
            Server(None, env={"XDG_CACHE_HOME": str(self.folder)})
        self.assertRegex(caught.exception.err, "nothing to serve: .*/hearth/models .*hearth pull")
        shutil.copytree(self.models, cache)
        with Server(None, env={"XDG_CACHE_HOME": str(self.folder)}) as server:
            self.assertEqual(sorted(model["id"] for model in server.get("/v1/models")[2]["data"]), ["a", "c", "org/b"])
            self.assertEqual(sorted(server.name.split(", ")), ["a", "c", "org/b"])
            page = server.wait_line(r"^  Page: (\S+)$")[1]
            self.assertEqual(page, f"{server.url}/")
            self.assertEqual(server.get("/")[0], 200)

    def test_every_model_of_a_directory(self):
        with Server(None, "--models", self.models, "--kv-memory", "8M") as server:
            names = [model["id"] for model in server.get("/v1/models")[2]["data"]]
            self.assertEqual(sorted(names), ["a", "c", "org/b"])
            self.assertEqual(self.loaded(server), 0)
            for name in names:
                got = server.answer(COMPLETIONS, short(model=name))
                self.assertEqual(got["model"], name)
                for address in [f"/v1/models/{name}", f"/v1/models/{name.replace('/', '%2F')}"]:
                    self.assertEqual(server.get(address)[2]["id"], name)
            self.assertEqual(self.loaded(server), 3)
            self.assertEqual(server.answer(COMPLETIONS, short(model="org/b", logit_bias=self.bias))["choices"][0]["text"], "BBBB")
            self.refused(400, COMPLETIONS, short(model="a", logit_bias=self.bias), "logit_bias", server=server)

    def tight(self):
        """Options by which one model with its cache fits, and not two."""
        options = ["--models", self.models, "--kv-memory", "8M", "--context", "512"]
        with Server(None, *options) as server:
            server.answer(COMPLETIONS, short(model="a"))
            one = server.metric("memory_bytes")
        return [*options, "--memory", str(int(one * 1.7))]

    def test_a_budget_of_memory_makes_room(self):
        with Server(None, *self.tight()) as server:
            answers = {}
            for name in ["a", "c", "a", "org/b", "c", "a"]:
                got = server.answer(COMPLETIONS, short(model=name))["choices"][0]["text"]
                self.assertEqual(answers.setdefault(name, got), got)
                self.assertEqual(self.loaded(server), 1)

    def test_models_in_use_stay(self):
        with Server(None, *self.tight()) as server:
            body = {"prompt": "hello", "temperature": 0, "ignore_eos": True, "max_tokens": 400, "model": "a"}
            expected = server.answer(COMPLETIONS, body)["choices"]
            results = {}

            def ask(i):
                results[i] = server.answer(COMPLETIONS, {**body, "model": "ac"[i % 2]})["choices"]

            together(ask, range(12))
            self.assertEqual([results[i] for i in range(0, 12, 2)], [expected] * 6)

    def test_adapters_by_name(self):
        for i, name in enumerate(["one", "two"]):
            write_adapter(self.folder / name, i)
        options = ["--adapter", f"tuned={self.folder / 'one'}", "--adapter", f"{self.folder / 'two'}@0.5", "--alias", "short=tuned", "--alias", "base"]
        with Server(TINY, *options) as server:
            listed = {model["id"]: model.get("parent") for model in server.get("/v1/models")[2]["data"]}
            self.assertEqual(listed, {"tiny": None, "tuned": "tiny", "two": "tiny", "short": "tiny", "base": None})
            texts = {}
            for name, given in [("tiny", []), ("tuned", ["--adapter", self.folder / "one"]), ("two", ["--adapter", f"{self.folder / 'two'}@0.5"])]:
                body = {"prompt": "hello", "max_tokens": 12, "temperature": 0, "model": name}
                got = server.answer(COMPLETIONS, body)
                self.assertEqual(got["model"], name)
                texts[name] = got["choices"][0]["text"]
                done = subprocess.run([HEARTH, "run", TINY, "hello", "--raw", "--max-tokens", "12", "--temperature", "0", "--json", "-q", *given], stdout=subprocess.PIPE, check=True)
                self.assertEqual(json.loads(done.stdout)["text"], texts[name])
            self.assertEqual(len(set(texts.values())), 3)
            for name, of in [("short", "tuned"), ("base", "tiny")]:
                got = server.answer(COMPLETIONS, {"prompt": "hello", "max_tokens": 12, "temperature": 0, "model": name})
                self.assertEqual((got["model"], got["choices"][0]["text"]), (of, texts[of]))

    def test_names_that_are_taken_or_are_of_nothing(self):
        write_adapter(self.folder / "x", 0)
        for options, says in [(["--alias", "tiny"], "tiny"), (["--alias", "a=absent"], "absent"), (["--alias", "a", "--alias", "a"], '"a"'),
                              (["--adapter", f"tiny={self.folder / 'x'}"], "tiny"), (["--adapter", f"y={self.folder / 'absent'}"], "absent")]:
            with self.subTest(options), self.assertRaises(NotServing) as caught:
                Server(TINY, *options)
            self.assertIn(says, caught.exception.err)

    def test_any_name(self):
        with Server(TINY, "--any-model") as server:
            self.assertEqual(server.answer(COMPLETIONS, short(model="gpt-anything"))["model"], "tiny")

    def test_a_first_model_that_cannot_be_loaded(self):
        broken = self.folder / "broken.gguf"
        broken.write_bytes(TINY.read_bytes()[:5200])
        for path in [broken, self.folder / "absent.gguf"]:
            with self.assertRaises(NotServing) as caught:
                Server(path)
            self.assertNotEqual(caught.exception.status, 0)
            self.assertIn(path.name, caught.exception.err)

    def test_another_model_that_cannot_be_loaded(self):
        folder = self.folder / "models"
        folder.mkdir()
        for name in ["good", "bad"]:
            shutil.copy(TINY, folder / f"{name}.gguf")
        with Server(None, "--models", folder) as server:
            (folder / "bad.gguf").write_bytes(TINY.read_bytes()[:5200])
            for _ in range(2):
                status, _, body = server.post(COMPLETIONS, short(model="bad"))
                self.assertEqual(status, 500, body)
                self.assertIn('"bad"', body["error"]["message"])
            server.wait_line("^hearth: bad: ")
            server.answer(COMPLETIONS, short(model="good"))
            shutil.copy(TINY, folder / "bad.gguf")
            server.answer(COMPLETIONS, short(model="bad"))

    def test_files_that_cannot_be_used_from_the_start(self):
        folder = self.folder / "models"
        (folder / "sub").mkdir(parents=True)
        shutil.copy(TINY, folder / "good.gguf")
        (folder / "cut.gguf").write_bytes(TINY.read_bytes()[:5200])
        (folder / "sub/bad.gguf").write_bytes(b"GGUFxxxx")
        (folder / "odd\n.gguf").write_bytes(b"GGUFxxxx")
        tiny_model.write(folder / "other.gguf", architecture="unheard")
        tiny_model.write(folder / "words.gguf", with_weights=False)
        why = {"cut": "cannot hold", "sub/bad": "is GGUF version", "other": 'architecture "unheard"'}
        with Server(None, "--models", folder) as server:
            for name, reason in why.items():
                server.wait_line(f"^hearth: {folder}/{name}.gguf: .*{reason}")
            told = [line.split(": ")[1] for line in server.err if line.startswith("hearth: ")]
            self.assertEqual(sorted(told), [f"{folder}/{name}.gguf" for name in ("cut", "odd?", "other", "sub/bad")])
            for name, reason in {**why, "words": "without weights"}.items():
                for path in (COMPLETIONS, "/api/show", "/api/generate", "/api/pull", "/v1/messages"):
                    for asked in (name, f"{name}:latest"):
                        body = {"max_tokens": 2, "messages": [{"role": "user", "content": "a"}]} if "messages" in path else {"prompt": "a"}
                        status, _, body = server.post(path, {"model": asked, **body})
                        error = body["error"] if path.startswith("/api/") else body["error"]["message"]
                        self.assertEqual(status, 404, (path, body))
                        self.assertRegex(error, f'"{asked}" cannot be used: .*{reason}')
            status, _, body = server.get("/v1/models/cut")
            self.assertEqual((status, body["error"]["code"]), (404, "model_not_found"))
            self.assertIn(why["cut"], body["error"]["message"])
            self.assertEqual([model["id"] for model in server.get("/v1/models")[2]["data"]], ["good"])
            self.assertIn("not found", server.post(COMPLETIONS, short(model="cu"))[2]["error"]["message"])

    def test_quiet_about_files_that_cannot_be_used(self):
        (self.folder / "cut.gguf").write_bytes(TINY.read_bytes()[:5200])
        for options, warned in [((), True), (("--quiet",), False)]:
            with self.assertRaises(NotServing) as caught:
                Server(None, "--models", self.folder, *options)
            self.assertIn("nothing to serve", caught.exception.err)
            self.assertEqual("cut.gguf" in caught.exception.err, warned)


class Manager(ServeTest):
    """What a service manager such as systemd expects."""

    def listener(self, name):
        path = self.folder / name
        box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        box.settimeout(HANG)
        box.bind(str(path))
        self.addCleanup(box.close)
        return path, box

    def test_it_is_told_when_requests_are_taken_and_when_not(self):
        path, box = self.listener("notify")
        with Server(TINY, env={"NOTIFY_SOCKET": str(path)}) as server:
            self.assertEqual(box.recv(100), b"READY=1")
            self.assertEqual(server.get("/health")[0], 200)
            server.stop()
            self.assertEqual(box.recv(100), b"STOPPING=1")

    def test_a_socket_that_it_has_opened(self):
        with socket.create_server(("127.0.0.1", 0)) as inherited:
            port = inherited.getsockname()[1]
            # The shell's process becomes the server: the variable names it.
            script = 'exec 3<&"$FD"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve "$@"'
            process = subprocess.Popen(["sh", "-c", script, HEARTH, TINY, "--port", "1"], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                       pass_fds=[inherited.fileno()], env={**os.environ, "FD": str(inherited.fileno())})
        with process:
            try:
                line = process.stderr.readline()
                self.assertIn(f":{port}", line)
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    answer = b"".join(iter(lambda: client.recv(4096), b""))
                self.assertIn(b" 200 ", answer.splitlines()[0])
                process.send_signal(signal.SIGTERM)
                rest = process.stderr.read()
                self.assertEqual(process.wait(HANG), 0, rest)
            finally:
                process.kill()


if __name__ == "__main__":
    unittest.main()
