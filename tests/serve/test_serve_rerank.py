"""Reranking by `hearth serve`, in the forms of Jina, Cohere, llama-server and text-embeddings-inference: the scores that the command
gives, in the order and form that a request asks for, beside a model that chats."""

import json
import math
import subprocess
import unittest

from support import HEARTH, SCRATCH, TINY, PlainServer, ServeTest, variant

ROLES = (
    "<|im_start|>{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | default('find') }}: "
    "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>"
)
MODELS = SCRATCH / "with-reranker"
MODELS.mkdir()
RERANKER = variant(MODELS / "reranker.gguf", words=["yes", "no"], template=ROLES, context=512)
(MODELS / "tiny.gguf").write_bytes(TINY.read_bytes())
QUERY, TEXTS = "hello", ["the world", "hello", "", "hello the world"]


def by_command(*more):
    """Indices, scores and logits of the command, the best first."""
    given = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
    run = subprocess.run([HEARTH, "rerank", RERANKER, "--query", QUERY, "--documents", "-", "--json", *more], input=given, capture_output=True, check=True)
    return [(one["index"], one["score"], one["logit"]) for one in json.loads(run.stdout)["results"]]


class Rerank(ServeTest):
    model, kind = RERANKER, PlainServer

    def rank(self, path="/v1/rerank", **body):
        reply = self.server.post(path, query=QUERY, **{"documents": TEXTS, **body})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json

    def refused(self, says, status=400, server=None, **body):
        reply = (server or self.server).post("/v1/rerank", **{"query": QUERY, "documents": TEXTS, **body})
        self.assertEqual(reply.status, status, reply.text)
        self.assertIn(says, reply.json["error"]["message"])

    def test_scores(self):
        wanted = by_command()
        self.assertEqual(sorted(index for index, _, _ in wanted), [0, 1, 2, 3])
        for path in "/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking":
            reply = self.rank(path)
            self.assertEqual((reply["object"], reply["model"]), ("list", "reranker"))
            self.assertEqual([one["index"] for one in reply["results"]], [index for index, _, _ in wanted])
            for one, (_, score, logit) in zip(reply["results"], wanted, strict=True):
                self.assertEqual(list(one), ["index", "relevance_score"])
                self.assertAlmostEqual(one["relevance_score"], score, places=6)
                self.assertAlmostEqual(score, 1 / (1 + math.exp(-logit)), places=6)
        tokens = [self.rank(documents=[text])["usage"] for text in TEXTS]
        self.assertEqual(reply["usage"]["total_tokens"], sum(each["total_tokens"] for each in tokens))
        self.assertEqual(reply["usage"]["prompt_tokens"], reply["usage"]["total_tokens"])
        self.assertRegex(reply["id"], r"^rerank-\w{24}$")

    def test_forms(self):
        best = by_command()[0][0]
        # Jina's and Cohere's objects, and their texts again.
        reply = self.rank(documents=[{"text": text, "title": "ignored"} for text in TEXTS], top_n=1, return_documents=True)
        (one,) = reply["results"]
        self.assertEqual((one["index"], one["document"]), (best, {"text": TEXTS[best]}))
        # text-embeddings-inference: a list, and logits instead of scores.
        reply = self.server.post("/rerank", query=QUERY, texts=TEXTS, return_text=True, raw_scores=True).json
        self.assertEqual([one["index"] for one in reply], [index for index, _, _ in by_command()])
        for one, (index, _, logit) in zip(reply, by_command(), strict=True):
            self.assertAlmostEqual(one["score"], logit, places=5)
            self.assertEqual(one["text"], TEXTS[index])
        self.assertEqual(len(self.rank(top_n=100)["results"]), len(TEXTS))

    def test_instruction(self):
        reply = self.rank(instruction="sort")
        wanted = by_command("--instruction", "sort")
        self.assertEqual([one["index"] for one in reply["results"]], [index for index, _, _ in wanted])
        self.assertAlmostEqual(reply["results"][0]["relevance_score"], wanted[0][1], places=6)
        self.assertNotAlmostEqual(wanted[0][2], by_command()[0][2], places=4)

    def test_long_documents(self):
        long = ["hello " * 600, "hello"]
        self.refused("document 0: prompt of", documents=long)
        reply = self.server.post("/v1/rerank", query=QUERY, documents=long, truncate=True)
        self.assertIn("long documents", reply.fields["x-ignored"])
        self.assertEqual(len(reply.json["results"]), 2)
        cut = self.server.post("/v2/rerank", query=QUERY, documents=long, max_tokens_per_doc=1)
        self.assertEqual(len({one["relevance_score"] for one in cut.json["results"]}), 1)  # "hello" is one token
        self.assertIn("long documents", cut.fields["x-ignored"])

    def test_refusals(self):
        self.refused("query", query="")
        self.refused("query", query=None)
        self.refused("documents", documents=None)
        self.refused("documents", documents=[])
        self.refused("documents", documents="text")
        self.refused("documents[1]", documents=["a", 2])
        self.refused("documents[0].text", documents=[{"title": "a"}])
        self.refused("documents", texts=["a"])
        self.refused("top_n", top_n=0)
        self.refused("rank_fields", rank_fields=["title"])
        self.refused("documents", documents=["a"] * 2049)

    def test_counts(self):
        before = self.server.metric("prompt_tokens_total")
        used = self.rank()["usage"]["total_tokens"]
        self.assertEqual(self.server.metric("prompt_tokens_total"), before + used)


if __name__ == "__main__":
    unittest.main()
