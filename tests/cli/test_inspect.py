"""What `hearth inspect` writes: arrays by name, their attention weights computed again in Python, pictures that are XML."""

import math
import pathlib
import unittest
import xml.etree.ElementTree as xml
import zipfile

from files import Npy
from support import TINY, CommandTest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
SHARED = GOLDEN / "tiny" / "gemma4-shared-bf16"
IDS = "5,17,3,40,22,9,31,2,8,60,11"
SVG = "{http://www.w3.org/2000/svg}"


class Array(Npy):
    """Of [heads, rows, columns], or of a single axis."""

    def row(self, head, at):
        return self.rows()[head * self.shape[1] + at]


def read_npz(path):
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        return {name.removesuffix(".npy"): Array(file.read(name)) for name in file.namelist()}


def softmax(scores):
    top = max(scores)
    weights = [math.exp(x - top) for x in scores]
    return [w / sum(weights) for w in weights]


class Inspect(CommandTest):
    def inspect(self, *words, **more):
        path = self.folder / "k.npz"
        said = self.succeeds("inspect", *words, "--out", path, "--json", "--force", **more).json
        return read_npz(path), said

    def test_keys(self):
        arrays, said = self.inspect(TINY, "hello world", "--raw")
        n = len(said["tokens"])
        layers = said["n_layers"]
        self.assertEqual(set(arrays), {"tokens"} | {f"layer.{i}.k" for i in range(layers)})
        self.assertEqual(list(arrays["tokens"].values), said["tokens"])
        self.assertEqual([x["layer"] for x in said["layers"]], list(range(layers)))
        for i, layer in enumerate(said["layers"]):
            self.assertEqual(layer["kv_layer"], i)
            self.assertEqual(list(layer["arrays"]), ["k"])
            self.assertEqual(list(arrays[f"layer.{i}.k"].shape), layer["arrays"]["k"])
            self.assertEqual(layer["arrays"]["k"][1], n)
        self.assertEqual(said["bytes"], sum(4 * len(a.values) for name, a in arrays.items() if name != "tokens"))
        self.assertEqual(self.succeeds("inspect", TINY, "hello world", "--raw", "--out", self.folder / "k.npz", "--force").out, b"")

    def test_attention(self):
        """Softmax of what q and k say, for every head and row."""
        arrays, said = self.inspect(TINY, "--ids", IDS, "--q", "--v", "--attention", "0-1", "--kv", "f32")
        for layer in range(2):
            q, k, weights = (arrays[f"layer.{layer}.{what}"] for what in ("q", "k", "attention"))
            self.assertEqual(arrays[f"layer.{layer}.v"].shape, k.shape)
            heads, n, size = q.shape
            self.assertEqual(weights.shape, (heads, n, n))
            for head in range(heads):
                keys = [k.row(head // (heads // k.shape[0]), at) for at in range(n)]
                for at in range(n):
                    query = q.row(head, at)
                    scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(size) for key in keys[: at + 1]]
                    for found, wanted in zip(weights.row(head, at), softmax(scores) + [0.0] * (n - at - 1)):
                        self.assertAlmostEqual(found, wanted, delta=1e-5)

    def test_prompts(self):
        """The ids of `hearth run`: of the text, or in the chat format; of --ids as they are."""
        raw = self.inspect(TINY, "hello <|im_end|>", "--raw")[1]["tokens"]
        tokens = self.succeeds("tokenize", TINY, "hello <|im_end|>", "--add-special").text.split()
        self.assertEqual(raw, [int(i) for i in tokens])
        self.assertEqual(self.inspect(TINY, "--raw", stdin=b"hello <|im_end|>")[1]["tokens"], raw)
        messages = self.write("messages", '[{"role": "user", "content": "hello"}]')
        text = self.succeeds("template", TINY, "--messages", messages).out.decode()
        chat = [int(i) for i in self.succeeds("tokenize", TINY, stdin=text.encode()).text.split()]
        self.assertEqual(self.inspect(TINY, "hello")[1]["tokens"], chat)
        self.assertEqual(self.inspect(TINY, stdin=b"hello\n")[1]["tokens"], chat)
        self.assertEqual(self.inspect(TINY, "--ids", "-", stdin=b"1, 2\n3")[1]["tokens"], [1, 2, 3])

    def draw(self, *words, **more):
        path = self.folder / "head.svg"
        self.succeeds("inspect", *words, "--svg", path, "--force", **more)
        return xml.parse(path).getroot()

    def test_picture(self):
        root = self.draw(TINY, "a <b> & \"c\"\n\x01\u202e \udcff", "--raw", "--head", "1.2")
        self.assertEqual(root.tag, SVG + "svg")
        self.assertEqual(root.get("role"), "img")
        title = root.find(SVG + "title")
        self.assertEqual(title.text, "Attention weights of layer 1, head 2")
        self.assertIn(title.get("id"), root.get("aria-labelledby").split())
        labels = [t.text for t in root.iter(SVG + "text")]
        for part in ("<", ">", "&", '"', "\u2423", "\u21b5", "\\u0001", "masked", "0.25"):
            self.assertTrue(any(part in label for label in labels), (part, labels))
        self.assertTrue(any(label.startswith("\\x") for label in labels), labels)

    def test_picture_of_ids_alone(self):
        """A checkpoint without a tokenizer: the labels are numbers."""
        labels = [t.text for t in self.draw(SHARED, "--ids", IDS, "--head", "4.0").iter(SVG + "text")]
        for i in IDS.split(","):
            self.assertEqual(labels.count(f"#{i}"), 2)
        self.fails(1, "inspect", SHARED, "hello", "--out", self.folder / "k.npz", says="give the prompt as --ids")

    def test_large_picture(self):
        """Some hundred tokens: a picture of a sensible size, with labels that have room."""
        ids = ",".join(str(i % 250) for i in range(400))
        root = self.draw(TINY, "--ids", ids, "--head", "0.0")
        self.assertLess(float(root.get("width")), 1400)
        self.assertLess(float(root.get("height")), 1400)
        self.assertLess((self.folder / "head.svg").stat().st_size, 2_000_000)
        rows = [float(t.get("y")) for t in root.findall(f"{SVG}g[@text-anchor='end']/{SVG}text")]
        self.assertGreater(len(rows), 50)
        self.assertGreater(min(b - a for a, b in zip(rows, rows[1:])), 9)

    def test_both_results(self):
        arrays, said = self.inspect(TINY, "--ids", IDS, "--layers", "0", "--svg", self.folder / "x.svg", "--head", "1.0")
        self.assertEqual(set(arrays), {"tokens", "layer.0.k", "layer.1.attention"})
        self.assertEqual(said["svg"], str(self.folder / "x.svg"))
        xml.parse(self.folder / "x.svg")

    def test_usage(self):
        out = ("--out", self.folder / "k.npz")
        for words, says in [
            ((TINY, "hello"), "--out FILE.npz or --svg FILE is needed"),
            ((TINY, "hello", "--svg", "x.svg"), "--svg needs --head"),
            ((TINY, "hello", "--head", "0.0", *out), "--head is of --svg"),
            ((TINY, "hello", "--svg", "x.svg", "--head", "0"), "as in 3.0"),
            ((TINY, "hello", "--svg", "x.svg", "--head", "0.0x"), "as in 3.0"),
            ((TINY, "hello", "--ids", "1", *out), "exclude each other"),
            ((TINY, "--raw", "--ids", "1", *out), "exclude each other"),
            ((TINY, "--ids", "1,x", *out), "--ids:"),
            ((TINY, "--ids", "", *out), "the list is empty"),
            ((TINY, "", *out), "the prompt is empty"),
            ((TINY, "hello", "--layers", "3-1", *out), "--layers is a list"),
            ((TINY, "hello", "--layers", "1,", *out), "--layers is a list"),
            ((TINY, "hello", "--layers", "0-99999999999", *out), "--layers is a list"),
            ((TINY, "hello", "--attention", "all", *out), "--attention is a list"),
        ]:
            self.fails(2, "inspect", *words, says=says)
        self.assertFalse((self.folder / "k.npz").exists())

    def test_failures(self):
        out = ("--out", self.folder / "k.npz")
        for words, says in [
            ((TINY, "hello", "--layers", "2", *out), "no layer 2: its layers are 0 to 1"),
            ((TINY, "hello", "--attention", "0,7", *out), "no layer 7"),
            ((TINY, "hello", "--svg", "x.svg", "--head", "0.64"), "layer 0 has no head 64"),
            ((TINY, "--ids", "1,99999", *out), "token id 99999 at place 1"),
            ((TINY, "--ids", IDS, "--context", "4", *out), "does not fit the context of 4"),
            ((TINY, "hello", "--out", self.folder / "no" / "k.npz"), "k.npz"),
            ((TINY, "hello", "--head", "0.0", "--svg", self.folder / "no" / "x.svg"), "x.svg cannot be written"),
        ]:
            self.fails(1, "inspect", *words, says=says)
        self.assertFalse((self.folder / "k.npz").exists())


if __name__ == "__main__":
    unittest.main()
