"""Text encoders in `hearth serve`: their vectors in each API, what they are refused for, and their life beside models that chat."""

import json
import subprocess
import threading
import time
import unittest

from support import HEARTH, ROOT, SCRATCH, TINY, PlainServer, ServeTest, text_encoder, together, until
from test_serve_rerank import QUERY, RERANKER, TEXTS

ENCODER = text_encoder(SCRATCH / "encoder")
MODELS = SCRATCH / "beside"
MODELS.mkdir()
for file in TINY, RERANKER:
    (MODELS / file.name).symlink_to(file)
HELLO = [{"role": "user", "content": "hello"}]
INPUTS = ["hello the world", "the", "hello"]
# Endpoints that generate, or prepare it.
GENERATING = [
    ("/v1/chat/completions", {"messages": HELLO}), ("/v1/chat/completions", {"messages": HELLO, "stream": True}),
    ("/v1/completions", {"prompt": "hello"}), ("/v1/completions", {"prompt": "hello", "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("/v1/responses", {"input": "hello"}), ("/v1/responses/input_tokens", {"input": "hello"}), ("/apply-template", {"messages": HELLO}),
    ("/completion", {"prompt": "hello", "n_predict": 0}), ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 3}), ("/v1/messages/count_tokens", {"messages": HELLO}),
    ("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "hello"}), ("/api/generate", {}),
]  # fmt: skip


def by_command(*more):
    """Vectors of INPUTS by the command."""
    run = subprocess.run([HEARTH, "embed", ENCODER, *INPUTS, "--json", "-q", *more], capture_output=True, check=True)
    return [text["embedding"] for text in json.loads(run.stdout)["texts"]]


class Alone(ServeTest):
    model, kind = ENCODER, PlainServer

    def assert_vectors(self, got, wanted):
        for one, other in zip(got, wanted, strict=True):
            for x, y in zip(one, other, strict=True):
                self.assertAlmostEqual(x, y, places=5)

    def refused(self, path, says, **body):
        reply = self.server.post(path, **body)
        self.assertEqual(reply.status, 400, reply.text)
        error = reply.json["error"]
        self.assertIn(says, error if isinstance(error, str) else error["message"])
        return error

    def test_what_it_says(self):
        said = [line for line in self.server.err if not line.startswith("hearth: ")]
        self.assertEqual(len(said), 2, said)  # no page: there is nothing to chat with
        self.assertTrue(said[1].endswith("""/v1/embeddings -d '{"input": ["Hello"]}'"""), said)
        self.assertEqual(self.server.get("/v1/models").json["data"][0]["capabilities"], ["embedding"])
        show = self.server.post("/api/show", model="encoder").json
        self.assertEqual((show["capabilities"], show["parameters"]), (["embedding"], ""))
        self.assertEqual(self.server.get("/props").json["default_generation_settings"]["n_ctx"], 40)

    def test_vectors(self):
        wanted = by_command()
        reply = self.server.post("/v1/embeddings", input=INPUTS).json
        self.assert_vectors([one["embedding"] for one in reply["data"]], wanted)
        self.assert_vectors(self.server.post("/api/embed", model="encoder:latest", input=INPUTS).json["embeddings"], wanted)
        self.assert_vectors([one["embedding"][0] for one in self.server.post("/embedding", content=INPUTS).json], wanted)
        ids = [self.server.post("/tokenize", content=text, add_special=True).json["tokens"] for text in INPUTS]
        self.assertEqual(sum(map(len, ids)), reply["usage"]["prompt_tokens"])
        self.assertEqual(self.server.post("/v1/embeddings", input=ids).json, reply)  # ids are taken as they are
        with_empty = self.server.post("/api/embed", input=["", INPUTS[0]]).json  # which has special tokens here
        self.assertEqual((len(with_empty["embeddings"]), with_empty["prompt_eval_count"]), (2, 2 + len(ids[0])))
        (alone,) = self.server.post("/v1/embeddings", input=INPUTS[0]).json["data"]
        self.assertEqual(alone["embedding"], reply["data"][0]["embedding"])
        (states,) = self.server.post("/embedding", content=INPUTS[0], pooling="none").json
        self.assertEqual(len(states["embedding"]), len(ids[0]))

    def test_it_does_not_generate(self):
        for path, body in GENERATING:
            with self.subTest(path):
                error = self.refused(path, 'the model "encoder" generates no text: it is a text encoder, for /v1/embeddings', **body)
                if path.startswith("/v1/c"):
                    self.assertEqual(error["param"], "model")
        self.refused("/v1/rerank", "no classification head", query="hello", documents=["a"])

    def test_limits(self):
        long = "hello " * 50
        self.refused("/v1/embeddings", "input 1: prompt of 52 tokens does not fit the context of 40; \"truncate\": true drops its end", input=["a", long])
        self.refused("/api/embed", "does not fit", input=long, truncate=False)
        for path, body in ("/v1/embeddings", {"input": long, "truncate": True}), ("/api/embed", {"input": long}), ("/embedding", {"content": long, "truncate": True}):
            reply = self.server.post(path, **body)
            self.assertEqual((reply.status, reply.fields.get("x-ignored")), (200, "input beyond the context"), path)
        error = self.refused("/v1/embeddings", "list 1 has the token id 64, expected 0 to 63; send texts", input=[[5], [63, 64]])
        self.assertEqual(error["param"], "input")
        self.refused("/v1/embeddings", "1 to 2048", input=["a"] * 2049)
        self.refused("/embedding", "more than 8192 tokens", content=["hello " * 30] * 300, pooling="none")
        self.refused("/v1/embeddings", '"dimensions" is 33', input="a", dimensions=33)


class Heads(ServeTest):
    def test_encoders_with_a_head(self):
        folder = ROOT / "tests/golden/encoders"
        with PlainServer(folder / "xlm_roberta-score.gguf", "--models", folder) as server:
            said = [line for line in server.err if line.startswith("  ")]
            can = {model["id"]: model["capabilities"] for model in server.get("/v1/models").json["data"]}
            self.assertEqual([can[name] for name in ("bert", "bert-labels", "xlm_roberta-score")], [["embedding"], [], ["rerank"]])
            self.assertEqual(server.post("/api/show", model="xlm_roberta-score").json["capabilities"], ["rerank"])
            for name, says in ("xlm_roberta-score", ", for /v1/rerank"), ("bert-labels", " with a head that classifies"):
                reply = server.post("/v1/completions", model=name, prompt="hello")
                self.assertEqual((reply.status, reply.json["error"]["message"]), (400, f'the model "{name}" generates no text: it is a text encoder{says}'))
            self.assertEqual(server.post("/v1/embeddings", input=[5, 6]).json["model"], "bert")
            self.assertIn("/v1/embeddings", said[0])


class Beside(ServeTest):
    """The encoder is the first model of a folder."""

    def beside(self, *options):
        return PlainServer(ENCODER, "--models", MODELS, *options)

    def loaded(self, server):
        return {model["name"].removesuffix(":latest") for model in server.get("/api/ps").json["models"]}

    def test_a_request_without_a_model_gets_one_that_can_answer_it(self):
        with self.beside() as server:
            can = {model["id"]: model["capabilities"] for model in server.get("/v1/models").json["data"]}
            self.assertEqual(can, {"encoder": ["embedding"], "reranker": ["completion", "embedding"], "tiny": ["completion", "embedding"]})
            self.assertEqual(server.post("/v1/embeddings", input="hello").json["model"], "encoder")
            self.assertEqual(server.post("/v1/completions", prompt="hello", max_tokens=2).json["model"], "reranker")
            self.assertEqual(server.post("/v1/embeddings", model="tiny", input="hello").json["model"], "tiny")
            self.assertEqual(server.post("/v1/rerank", model="reranker", query=QUERY, documents=TEXTS).status, 200)
            refused = server.post("/v1/rerank", model="tiny", query=QUERY, documents=TEXTS)
            self.assertIn("no reranker", refused.json["error"]["message"])
            self.assertEqual(server.post("/api/chat", model="encoder", messages=HELLO).status, 400)
            self.assertEqual(self.loaded(server), {"encoder", "reranker", "tiny"})
            unloading = server.post("/api/embed", model="encoder", input="hello", keep_alive=0)
            self.assertEqual(len(unloading.json["embeddings"][0]), 32)
            until(lambda: self.loaded(server) == {"reranker", "tiny"})

    def test_unknown_names_are_as_none(self):
        with self.beside("--any-model") as server:
            self.assertEqual(server.post("/v1/embeddings", model="text-embedding-3-small", input="hello").json["model"], "encoder")
            self.assertEqual(server.post("/v1/completions", model="gpt-5", prompt="hello", max_tokens=2).json["model"], "reranker")

    def test_an_encoder_needs_no_memory_for_keys_and_values(self):
        options = ["--kv-memory", "8M", "--context", "512"]
        with PlainServer(TINY, *options) as server:
            one = server.metric("memory_bytes")
        with self.beside(*options, "--memory", str(int(one * 1.5))) as server:
            self.assertEqual(server.post("/v1/completions", model="tiny", prompt="hello", max_tokens=2).status, 200)
            self.assertEqual(server.post("/v1/embeddings", input="hello").status, 200)
            self.assertEqual(self.loaded(server), {"encoder", "tiny"})

    def test_many_at_once_beside_a_stream(self):
        with self.beside() as server:
            asked = {"model": "tiny", "prompt": "hello", "max_tokens": 300, "seed": 3, "ignore_eos": True}
            whole = server.post("/v1/completions", **asked).json["choices"][0]["text"]
            alone = [server.post("/v1/embeddings", input=INPUTS[i % 3 :]).json["data"] for i in range(3)]
            found, streamed = {}, []

            def stream():
                streamed.extend(data for _, data in server.events("/v1/completions", {**asked, "stream": True}))

            def embed(i):
                found[i] = server.post("/v1/embeddings", input=INPUTS[i % 3 :]).json["data"]

            thread = threading.Thread(target=stream)
            thread.start()
            together(embed, range(40))
            thread.join()
            self.assertEqual("".join(data["choices"][0]["text"] for data in streamed[:-1]), whole)
            self.assertEqual(found, {i: alone[i % 3] for i in range(40)})

    def test_a_client_that_leaves_cancels(self):
        """More of them than there are threads for embeddings."""
        tokens = 60000
        with self.beside() as server:
            self.assertEqual(server.post("/v1/embeddings", model="tiny", input="hello").status, 200)
            before = server.metric("prompt_tokens_total")
            clients = [server.begin("/v1/embeddings", {"model": "tiny", "input": "hello" * tokens}) for _ in range(10)]
            time.sleep(0.5)
            for client in clients:
                client.close()
            self.assertEqual(server.post("/v1/embeddings", model="tiny", input="hello").status, 200)
            self.assertLess(server.metric("prompt_tokens_total"), before + tokens)


if __name__ == "__main__":
    unittest.main()
