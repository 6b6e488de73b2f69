"""What `hearth rerank` writes: documents in the order of their scores, as text and JSON; and what it refuses."""

import json
import math
import pathlib
import unittest

import tiny_model
from support import TINY, CommandTest, hearth

TEMPLATE = (
    "<|im_start|>{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | default('find') }}: "
    "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>"
)
TEXTS = ["the world", "hello", "hello the world", "or"]


class Rerank(CommandTest):
    def setUp(self):
        super().setUp()
        vocabulary = tiny_model.vocabulary
        tiny_model.vocabulary = lambda: vocabulary() + ["yes", "no"]
        self.addCleanup(setattr, tiny_model, "vocabulary", vocabulary)
        self.tiny("reranker.gguf", template=TEMPLATE, context=128)
        self.model = self.folder / "reranker.gguf"
        self.documents = self.write("documents", "".join(f"{text}\n" for text in TEXTS))

    def rank(self, *more, documents=None, **how):
        return self.succeeds("rerank", self.model, "--query", "hello", "--documents", documents or self.documents, *more, **how)

    def test_forms_agree(self):
        said = self.rank("--json").json
        self.assertEqual((said["query"], said["failed"]), ("hello", []))
        results = said["results"]
        self.assertEqual(sorted(one["index"] for one in results), [0, 1, 2, 3])
        self.assertEqual([one["score"] for one in results], sorted((one["score"] for one in results), reverse=True))
        for one in results:
            self.assertEqual(one["text"], TEXTS[one["index"]])
            self.assertAlmostEqual(one["score"], 1 / (1 + math.exp(-one["logit"])), places=6)
        lines = [f"{one['score']:.4f}\t{one['index']}\t{one['text']}" for one in results]
        self.assertEqual(self.rank().text.splitlines(), lines)
        self.assertEqual(self.rank("--top-n", "2").text.splitlines(), lines[:2])
        self.assertEqual(self.rank("--json", documents="-", stdin=self.documents.read_bytes()).json["results"], results)

    def test_one_document_has_the_score_of_many(self):
        for one in self.rank("--json").json["results"]:
            (alone,) = self.rank("--json", documents=self.write("one", one["text"])).json["results"]
            self.assertEqual((alone["logit"], alone["tokens"]), (one["logit"], one["tokens"]))

    def test_jsonl(self):
        """Objects, whose "id" comes back, and whose other fields do not matter."""
        lines = "".join(json.dumps({"text": text, "id": f"d{i}", "title": [i]}) + "\n" for i, text in enumerate(TEXTS))
        wanted = [{**one, "id": f"d{one['index']}"} for one in self.rank("--json").json["results"]]
        self.assertEqual(self.rank("--json", documents=self.write("d.jsonl", lines)).json["results"], wanted)
        for bad in '{"title": "a"}', '{"text": 1}':
            path = self.write("d.jsonl", lines + bad + "\n")
            self.fails(1, "rerank", self.model, "--query", "a", "--documents", path, says=["line 5", '"text" must be a string'])

    def test_instruction(self):
        plain, other = (self.rank("--json", *how).json["results"] for how in ((), ("--instruction", "sort")))
        self.assertNotEqual([one["logit"] for one in plain], [one["logit"] for one in other])
        self.assertEqual(self.rank("--json", "--instruction", "find").json["results"], plain)

    def test_one_fails(self):
        """The others go on."""
        path = self.write("documents", f"{TEXTS[0]}\n{'hello ' * 200}\n{TEXTS[1]}\n")
        words = ("rerank", self.model, "--query", "hello", "--documents", path)
        result = hearth(*words, "--json")
        self.assertEqual(result.status, 1)
        self.assertIn("document 1: prompt of", result.err)
        self.assertIn("--truncate", result.err)
        self.assertEqual([one["index"] for one in result.json["failed"]], [1])
        self.assertEqual(len(result.json["results"]), 2)
        self.assertEqual(hearth(*words).text.count("\n"), 2)
        cut = self.succeeds(*words, "--truncate", "--json").json["results"]
        self.assertEqual({one["index"]: one["tokens"] for one in cut}[1], 128)
        self.assertEqual([one for one in cut if one["index"] != 1], result.json["results"])

    def test_usage(self):
        for words, says in [
            ((TINY, "--query", "a"), "--documents FILE is needed"),
            ((TINY, "--documents", "a"), "--query TEXT is needed"),
            ((TINY, "--query", "a", "--documents", "b", "--top-n", "0"), "--top-n"),
            ((TINY, "--query", "a", "--documents", "b", "--pooling", "mean"), "--pooling"),
        ]:
            self.fails(2, "rerank", *words, says=says)
        self.fails(1, "rerank", TINY, "--query", "a", "--documents", self.documents, says="the model is no reranker")
        self.fails(1, "rerank", self.model, "--query", "a", "--documents", self.folder / "none", says="none")

    def test_text_encoder(self):
        """A cross-encoder, as it is and quantized: documents as transformers orders them, and what it does not take."""
        encoder = pathlib.Path(__file__).resolve().parents[1] / "golden/rerankers/bert"
        golden = json.loads((encoder / "reference.json").read_text())
        whole = [case for case in golden["cases"] if not case["most"] and "logit" in case and case["document"]]
        documents = self.write("pairs", "".join(f"{case['document']}\n" for case in whole))
        order = sorted(range(len(whole)), key=lambda i: -whole[i]["logit"])
        quantized = self.folder / "q8.gguf"
        self.succeeds("quantize", encoder, quantized, "--to", "Q8_0")
        for model in encoder, quantized:
            words = "rerank", model, "--query", golden["query"], "--documents", documents
            results = self.succeeds(*words, "--json").json["results"]
            self.assertEqual([one["index"] for one in results], order)
            for one in results:
                self.assertAlmostEqual(one["logit"], whole[one["index"]]["logit"], delta=0.03)
                self.assertEqual(one["tokens"], len(whole[one["index"]]["ids"]))
            self.fails(1, *words, "--instruction", "find", says="text encoders take no instruction")
            self.fails(1, "embed", model, "a", says="gives scores for reranking, not embeddings; choose one")
            self.fails(1, "run", model, "a", says="text encoder")


if __name__ == "__main__":
    unittest.main()
