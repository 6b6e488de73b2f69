"""What `hearth embed` writes: the same vectors as text, JSON and NumPy file, for words and lines of a file."""

import json
import pathlib
import shutil
import struct
import unittest

from files import Npy
from support import TINY, CommandTest, hearth

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
TEXTS = ["hello world", "a <b> & c", "one more"]


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class Embed(CommandTest):
    def json(self, *words, **more):
        return self.succeeds("embed", TINY, "--json", *words, **more).json

    def test_forms_agree(self):
        for pooling in ("last", "mean"):
            said = self.json(*TEXTS, "--pooling", pooling)
            self.assertEqual((said["pooling"], said["normalized"]), (pooling, True))
            vectors = [[float32(x) for x in t["embedding"]] for t in said["texts"]]
            for text, one in zip(TEXTS, said["texts"]):
                ids = self.succeeds("tokenize", TINY, text, "--add-special").text.split()
                self.assertEqual(one["tokens"], len(ids))
                self.assertEqual(len(one["embedding"]), said["hidden"])
                self.assertAlmostEqual(sum(x * x for x in one["embedding"]), 1, delta=1e-5)
            lines = self.succeeds("embed", TINY, *TEXTS, "--pooling", pooling).text.splitlines()
            self.assertEqual([[float32(float(x)) for x in line.split()] for line in lines], vectors)
            path = self.folder / "v.npy"
            said = self.json(*TEXTS, "--pooling", pooling, "--out", path, "--force")
            self.assertEqual(said["out"], str(path))
            self.assertEqual([list(t) for t in said["texts"]], [["tokens"]] * 3)
            self.assertEqual(Npy(path.read_bytes()).rows(), vectors)
            self.assertEqual(self.succeeds("embed", TINY, *TEXTS, "--out", path, "--force").out, b"")

    def test_files(self):
        """A text a line; blank lines are none, and the last one needs no newline."""
        wanted = self.json(*TEXTS)["texts"]
        content = f"{TEXTS[0]}\r\n\n  \n{TEXTS[1]}\n{TEXTS[2]}".encode()
        self.assertEqual(self.json("--prompts", self.write("texts", content))["texts"], wanted)
        self.assertEqual(self.json("--prompts", "-", stdin=content)["texts"], wanted)
        self.fails(1, "embed", TINY, "--prompts", self.write("texts", "a\nb\0c\n"), says="line 2: it holds a NUL byte")
        self.fails(1, "embed", TINY, "--prompts", self.write("texts", "\n \n"), says="holds no prompt")
        self.fails(1, "embed", TINY, "--prompts", self.folder / "none", says="none")

    def test_jsonl(self):
        """Objects, whose "id" comes back, are not read as text."""
        wanted = [{"id": i, **t} for i, t in enumerate(self.json(*TEXTS)["texts"])]
        lines = [json.dumps({"prompt": text, "id": i}) for i, text in enumerate(TEXTS)]
        self.assertEqual(self.json("--prompts", "-", stdin="\n".join(lines).encode())["texts"], wanted)
        ids = [self.succeeds("tokenize", TINY, text, "--add-special").text.split() for text in TEXTS]
        path = self.write("ids", "".join(f'{{"ids": [{",".join(i)}]}}\n' for i in ids))
        found = self.json("--prompts", path)["texts"]
        self.assertEqual(found, [{k: t[k] for k in ("tokens", "embedding")} for t in wanted])
        for bad, says in [
            ("{", "line 2, column 2: expected"), ('{"ids": [5]}', "both texts and ids"), ('{"messages": []}', "embeddings do not use"),
        ]:  # fmt: skip
            self.fails(1, "embed", TINY, "--prompts", "-", stdin=f"{lines[0]}\n{bad}".encode(), says=says)

    def test_ids(self):
        ids = self.succeeds("tokenize", TINY, TEXTS[0], "--add-special").text.split()
        wanted = self.json(TEXTS[0])["texts"]
        self.assertEqual(self.json("--ids", ",".join(ids))["texts"], wanted)
        self.assertEqual(self.json("--ids", "-", stdin="\n".join(ids).encode())["texts"], wanted)
        self.fails(1, "embed", TINY, "--ids", "1,x", says=["--ids", "x"])
        result = hearth("embed", TINY, "--ids", "1,99999")
        self.assertEqual((result.status, result.out), (1, b"\n"))
        self.assertIn("outside the vocabulary", result.err)

    def test_vectors_of_tokens(self):
        """A line for each token; the last one is that of the text."""
        said = self.json(*TEXTS, "--pooling", "none", "--no-normalize")
        rows = [row for text in said["texts"] for row in text["embedding"]]
        self.assertEqual([len(text["embedding"]) for text in said["texts"]], [text["tokens"] for text in said["texts"]])
        last = self.json(*TEXTS, "--no-normalize")["texts"]
        self.assertEqual([text["embedding"][-1] for text in said["texts"]], [text["embedding"] for text in last])
        lines = self.succeeds("embed", TINY, *TEXTS, "--pooling", "none", "--no-normalize").text.splitlines()
        self.assertEqual([[float(x) for x in line.split()] for line in lines], rows)
        path = self.folder / "v.npy"
        self.succeeds("embed", TINY, *TEXTS, "--pooling", "none", "--no-normalize", "--out", path)
        self.assertEqual(Npy(path.read_bytes()).rows(), [[float32(x) for x in row] for row in rows])

    def test_dimensions(self):
        whole, cut = (self.json("hello", *how)["texts"][0]["embedding"] for how in (["--no-normalize"], ["--dimensions", "5", "--normalize"]))
        length = sum(x * x for x in whole[:5]) ** 0.5
        self.assertEqual(len(cut), 5)
        for a, b in zip(whole, cut):
            self.assertAlmostEqual(a / length, b, places=6)
        self.fails(1, "embed", TINY, "a", "--dimensions", "65", says="65 dimensions, expected at most 64")

    def test_prompts(self):
        """Those of config_sentence_transformers.json beside the model."""
        folder = self.folder / "model"
        self.write("model/config_sentence_transformers.json", json.dumps({"prompts": {"query": "find: "}, "default_prompt_name": None}))
        self.tiny("model/model.gguf")
        embed = lambda *words: self.succeeds("embed", folder, "--json", *words).json["texts"]  # noqa: E731
        self.assertEqual(embed("hello", "--prompt-name", "query"), embed("find: hello"))
        self.fails(1, "embed", folder, "a", "--prompt-name", "document", says="no prompt `document`")
        self.fails(2, "embed", folder, "--ids", "1", "--prompt-name", "query", says="exclude each other")

    def tells(self, *words):
        """The command fails with a line about the second text, and gives what there is."""
        result = hearth(*words)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.err.count("\n"), 1, result.err)
        self.assertIn("text 2: prompt of 399 tokens does not fit the context of 40", result.err)
        return result

    def test_one_fails(self):
        """The others go on, and its line is empty."""
        long = " ".join(["hello"] * 200)
        path = self.folder / "v.npy"
        words = ("embed", TINY, "one", long, "two", "--context", "40")
        done = self.tells(*words)
        lines = done.text.splitlines()
        self.assertEqual([bool(line) for line in lines], [True, False, True])
        said = self.tells(*words, "--json").json["texts"]
        self.assertEqual([list(t) for t in said], [["tokens", "embedding"], ["error"], ["tokens", "embedding"]])
        self.assertEqual(self.tells(*words, "--out", path).out, b"")
        rows = Npy(path.read_bytes()).rows()
        self.assertEqual([any(row) for row in rows], [True, False, True])
        self.assertEqual(rows[2], [float32(x) for x in said[2]["embedding"]])
        self.assertIn("--truncate drops its end", done.err)
        cut = self.succeeds(*words, "--truncate", "--json").json["texts"]
        self.assertEqual((cut[0], cut[1]["tokens"], cut[2]), (said[0], 40, said[2]))

    def test_usage(self):
        for words, says in [
            ((TINY,), "TEXT or --prompts FILE is needed"),
            ((TINY, "a", "--prompts", "x"), "--prompts and TEXT exclude each other"),
            ((TINY, "a", "--pooling", "rank"), "--pooling"),
            ((TINY, "a", "--ids", "1"), "--ids and TEXT exclude each other"),
            ((TINY, "a", "--normalize", "--no-normalize"), "exclude each other"),
        ]:
            self.fails(2, "embed", *words, says=says)
        self.fails(1, "embed", GOLDEN / "tiny" / "gemma4-shared-bf16", "a", says="no tokenizer")
        self.fails(1, "embed", TINY, "a", "--out", self.folder / "no" / "v.npy", says="v.npy")

    def test_encoders_generate_nothing(self):
        """Every command that needs logits says the same of a text encoder."""
        model = self.folder / "bert"
        shutil.copytree(GOLDEN / "encoders/bert", model)
        self.write("bert/vocab.txt", "".join(f"{word}\n" for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(97, 123)))))
        text = self.write("text", "a b c\n")
        pairs = self.write("pairs", '{"prompt": "a", "completion": "b", "continuations": ["b"]}\n')
        for command in [("run", model, "a"), ("chat", model), ("classify", model, "--prompts", text, "--labels", "a,b"),
                        ("score", model, "--prompts", pairs), ("logits", model, "--ids", "5", "--out", self.folder / "l"),
                        ("inspect", model, "a", "--out", self.folder / "i.npz"), ("eval", model, "--text", text), ("bench", model),
                        ("imatrix", model, "--text", text, "--out", self.folder / "i.gguf"),
                        ("finetune", model, "--data", pairs, "--out", self.folder / "a")]:  # fmt: skip
            self.fails(1, *command, says="is a text encoder (bert): it generates no text and has no logits")
        info = self.succeeds("info", model).text
        self.assertIn("attention to both sides\n", info)
        for absent in "sampling", "chat format", "KV cache", "output head":
            self.assertNotIn(absent, info)


if __name__ == "__main__":
    unittest.main()
