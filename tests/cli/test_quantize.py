"""`hearth quantize` writes checkpoints of every type that answer nearly as their base does, whole or not at all."""

import itertools
import json
import math
import os
import pathlib
import shutil
import struct
import time
import unittest
from random import Random
from unittest import mock

import tiny_model
from files import BLOCKS, Gguf, safetensors, write_safetensors
from support import SCRATCH, TINY, CommandTest, cases

GOLDEN = pathlib.Path(__file__).parent.parent / "golden/tiny"
LLAMA, MLX = GOLDEN / "llama-f32", GOLDEN / "llama-mlx4-bf16"


class Repeated:
    """Numbers of a normal distribution, the same ones again and again: quick to make."""

    def __init__(self, seed):
        source = Random(seed)
        self.next = itertools.cycle([source.gauss(0, 1) for _ in range(9973)]).__next__

    def gauss(self, mean, deviation):
        return mean + deviation * self.next()


def write_model(path, hidden, feed_forward, layers=2):
    """The tiny model in another size."""
    sizes = {"HIDDEN": hidden, "FEED_FORWARD": feed_forward, "LAYERS": layers}
    with mock.patch.multiple(tiny_model, **sizes), mock.patch.object(tiny_model.random, "Random", Repeated):
        tiny_model.write(path)
    return path


WIDE = write_model(SCRATCH / "wide.gguf", 256, 256)


class Quantize(CommandTest):
    def difference(self, model, base):
        """Root mean square of the difference of logits, in units of theirs."""
        got, want = self.logits(model), self.logits(base)
        self.assertEqual(len(got), len(want))
        self.assertTrue(all(map(math.isfinite, got)))
        return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want))

    def quantize(self, model, out, to, *options):
        return self.succeeds("quantize", model, out, "--to", to, "--json", "--errors", "-q", "--force", *options).json

    def check_report(self, report, out, to_bytes):
        self.assertEqual((report["out"], report["bytes"], report["rounded"]), (str(out), to_bytes, len(report["tensors"])))

    # ---- GGUF ----

    def test_types(self):
        for kind, (size, elements, error) in BLOCKS.items():
            with self.subTest(kind):
                out = self.folder / "out.gguf"
                report = self.quantize(WIDE, out, kind.lower(), "--pure")
                file = Gguf(out)
                self.assertEqual(set(file.types().values()), {kind})
                self.check_report(report, out, sum(len(data) for _, _, data in file.tensors.values()))
                if kind != "F32":
                    self.assertAlmostEqual(report["bits"], 8 * size / elements, places=3)
                    worst = max(t["error"] for t in report["tensors"])
                    self.assertLess(worst, error)
                    self.assertGreater(worst, error / 3)
                    self.assertLess(self.difference(out, WIDE), 5 * error)
                types = {t["type"] for t in self.succeeds("info", out, "--json").json["tensor_types"]}
                self.assertEqual(types, {kind, "F32"})
                self.assertEqual(Gguf(out).values["tokenizer.ggml.merges"], tiny_model.MERGES)
                score = self.succeeds("eval", out, "--text", "-", "--json", "-q", stdin=b"hello world " * 20).json
                self.assertTrue(any(isinstance(v, float) and v > 0 for v in score.values()), score)

    def test_mixes(self):
        """A model of 8 layers, so that every rule has a layer."""
        deep = write_model(self.folder / "deep.gguf", 256, 256, 8)
        sensitive = {0, 3, 6, 7}  # first and last eighth, and every third between them
        rules = {  # of attn_v, ffn_down, attn_output by layer, and the others
            "Q2_K": (lambda i: "Q3_K", lambda i: "Q3_K", "Q3_K", "Q2_K", 10),
            "Q2_K_S": (lambda i: "Q2_K", lambda i: "Q4_K" if i < 1 else "Q2_K", "Q2_K", "Q2_K", 21),
            "Q3_K_S": (lambda i: "Q3_K", lambda i: "Q3_K", "Q3_K", "Q3_K", 11),
            "Q3_K_M": (lambda i: "Q5_K" if i < 2 else "Q4_K", lambda i: "Q4_K", "Q4_K", "Q3_K", 12),
            "Q3_K_L": (lambda i: "Q5_K", lambda i: "Q5_K", "Q5_K", "Q3_K", 13),
            "Q4_K_S": (lambda i: "Q5_K" if i < 4 else "Q4_K", lambda i: "Q5_K" if i < 1 else "Q4_K", "Q4_K", "Q4_K", 14),
            "Q4_K_M": (lambda i: "Q6_K" if i in sensitive else "Q4_K",) * 2 + ("Q4_K", "Q4_K", 15),
            "Q5_K_S": (lambda i: "Q5_K", lambda i: "Q5_K", "Q5_K", "Q5_K", 16),
            "Q5_K_M": (lambda i: "Q6_K" if i in sensitive else "Q5_K",) * 2 + ("Q5_K", "Q5_K", 17),
            "q4_k": (lambda i: "Q6_K" if i in sensitive else "Q4_K",) * 2 + ("Q4_K", "Q4_K", 15),
        }
        for mix, (value, down, output, others, number) in rules.items():
            with self.subTest(mix):
                out = self.folder / "out.gguf"
                self.quantize(deep, out, mix)
                file = Gguf(out)
                self.assertEqual((file.values["general.file_type"], file.values["general.quantization_version"]), (number, 2))
                for name, kind in file.types().items():
                    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
                    want = ("Q6_K" if layer < 0 else value(layer) if "attn_v" in name else down(layer) if "ffn_down" in name
                            else output if "attn_output" in name else others)  # fmt: skip
                    self.assertEqual(kind, want, name)

    def test_rows_that_are_no_whole_blocks(self):
        """Of 64 and 96 columns there is no block of 256; of 48 none of 32."""
        odd = write_model(self.folder / "odd.gguf", 48, 64)
        out = self.folder / "out.gguf"
        others = {"Q2_K": "IQ4_NL", "Q3_K_S": "IQ4_NL", "Q4_K_S": "Q5_0", "Q5_K_S": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
        for kind, other in others.items():
            with self.subTest(kind):
                self.quantize(TINY, out, kind, "--pure")
                self.assertEqual(set(Gguf(out).types().values()), {other})
        self.quantize(odd, out, "Q4_0", "--pure")
        for name, kind in Gguf(out).types().items():
            self.assertEqual(kind, "Q4_0" if "ffn_down" in name else "F16", name)
        self.assertLess(self.difference(out, odd), 0.2)

    def test_again(self):
        """A weight of the type already stays bit for bit; a written file is replaced, and is a model like another."""
        out, again = self.folder / "out.gguf", self.folder / "again.gguf"
        self.quantize(WIDE, out, "Q6_K", "--pure")
        self.assertEqual(self.quantize(out, again, "Q6_K", "--pure")["rounded"], 0)
        self.assertEqual(again.read_bytes(), out.read_bytes())
        self.quantize(out, again, "Q8_0")
        self.assertLess(self.difference(again, out), 0.02)
        self.quantize(out, again, "f32")
        self.assertLess(self.difference(again, out), 1e-5)
        self.assertEqual(Gguf(again).values["general.file_type"], 0)

    def test_experts(self):
        """Routers stay as they are."""
        out = self.folder / "out.gguf"
        for name in "qwen3-moe-q4_1.gguf", "gemma4-experts-q8_0.gguf":
            self.quantize(GOLDEN / name, out, "Q5_1")
            types, base = Gguf(out).types(), Gguf(GOLDEN / name).types()
            for name, kind in types.items():
                self.assertEqual(kind, base[name] if "ffn_gate_inp" in name else "Q8_0" if name == "token_embd.weight" else "Q5_1", name)

    def test_same_bits(self):
        outs = [self.folder / f"{i}.gguf" for i in range(3)]
        for kind in "Q4_K_M", "Q3_K_M", "MXFP4":
            for out, threads in zip(outs, (1, 2, 3)):
                self.quantize(WIDE, out, kind, "-t", threads)
            self.assertEqual(outs[0].read_bytes(), outs[1].read_bytes())
            self.assertEqual(outs[0].read_bytes(), outs[2].read_bytes())

    def test_output(self):
        out = self.folder / "out.gguf"
        result = self.succeeds("quantize", WIDE, out, "--to", "Q4_K_M")
        for part in f"out            {out}", "rounded        15 tensors, to ", " bits a weight":
            self.assertIn(part, result.text)
        self.assertEqual(result.text.count("\n"), 3)
        lines = self.succeeds("quantize", WIDE, out, "--to", "Q4_K_M", "--errors", "-q", "--force")
        self.assertEqual((lines.text.count(" error "), lines.text.count("\n"), lines.err), (15, 18, ""))
        self.assertIn("blk.0.attn_q.weight", lines.text)
        self.assertNotIn("tensors", self.succeeds("quantize", WIDE, out, "--to", "Q4_K_M", "--json", "--force").json)
        parts = self.quantize(WIDE, out, "Q4_K_M")["tensors"]
        self.assertEqual({t["from"] for t in parts}, {"F32"})
        sizes = {name: len(data) for name, (_, _, data) in Gguf(out).tensors.items()}
        self.assertEqual({t["name"]: (t["to"], t["bytes"]) for t in parts},
                         {name: (kind, sizes[name]) for name, kind in Gguf(out).types().items()})  # fmt: skip

    # ---- importance ----

    def test_importance(self):
        text, matrix = b"hello world, the hello of the world: the hold of the wold" * 8, self.folder / "imatrix.gguf"
        self.succeeds("imatrix", WIDE, "--text", "-", "--out", matrix, "-q", stdin=text)
        plain, weighted = self.folder / "plain.gguf", self.folder / "weighted.gguf"
        self.quantize(WIDE, plain, "Q3_K_S", "--pure")
        report = self.quantize(WIDE, weighted, "Q3_K_S", "--pure", "--imatrix", matrix)
        self.assertNotEqual(plain.read_bytes(), weighted.read_bytes())
        self.assertEqual(plain.stat().st_size, weighted.stat().st_size)
        self.assertLess(max(t["error"] for t in report["tensors"]), 0.25)
        out = self.folder / "out.gguf"
        says = "`token_embd.weight` has 256 columns", "the model's has 64", "another model"
        self.fails(1, "quantize", TINY, out, "--to", "Q4_0", "--imatrix", matrix, "-q", says=says)
        self.fails(1, "quantize", WIDE, out, "--to", "Q4_0", "--imatrix", WIDE, "-q", says=str(WIDE))
        self.fails(1, "quantize", WIDE, out, "--to", "Q4_0", "--imatrix", self.folder / "none", "-q", says="none")
        self.assertFalse(out.exists())

    def test_importance_of_groups(self):
        matrix, out, plain = self.folder / "imatrix.gguf", self.folder / "out", self.folder / "plain"
        self.succeeds("imatrix", MLX, "--ids", "1,5,9,2,7,3", "--out", matrix, "-q")
        self.quantize(MLX, plain, "3:32")
        self.quantize(MLX, out, "3:32", "--imatrix", matrix)
        self.assertNotEqual((plain / "model.safetensors").read_bytes(), (out / "model.safetensors").read_bytes())

    # ---- MLX ----

    def check_groups(self, out, base, bits, group, mode):
        config = json.loads((out / "config.json").read_text())
        before = json.loads((base / "config.json").read_text())
        tensors, n = safetensors(out / "model.safetensors"), 0
        settings = config["quantization"]
        self.assertEqual(config["quantization_config"], settings)
        for name, (_, shape, _) in tensors.items():
            module = name.removesuffix(".scales")
            if module == name:
                continue
            how = settings.get(module, settings)
            self.assertEqual((how["bits"], how["group_size"], how.get("mode", "affine")), (bits, group, mode), name)
            columns = shape[1] * group
            self.assertEqual(tensors[module + ".weight"][:2], ("U32", [shape[0], columns * bits // 32]))
            self.assertEqual((module + ".biases" in tensors), mode == "affine")
            n += 1
        for key in set(before) - {"quantization", "quantization_config"}:
            self.assertEqual(config[key], before[key], key)
        return n

    def test_groups(self):
        """Of floats to groups of every kind; rows of other lengths stay floats."""
        base = self.folder / "base"  # as floats: rows of 64 and 128
        self.quantize(MLX, base, "f32")
        self.assertNotIn("quantization", json.loads((base / "config.json").read_text()))
        self.assertLess(self.difference(base, MLX), 1e-5)
        errors = {2: 0.4, 3: 0.2, 4: 0.1, 5: 0.05, 6: 0.025, 8: 0.01}
        for bits, error in errors.items():
            for group in 32, 64, 128:
                with self.subTest(f"{bits}:{group}"):
                    out = self.folder / "out"
                    report = self.quantize(base, out, f"{bits}:{group}" if group != 64 else str(bits))
                    # 14 projections, the table and the head; of 128 columns only those down
                    self.assertEqual(self.check_groups(out, base, bits, group, "affine"), 2 if group == 128 else 16)
                    self.check_report(report, out, sum(len(data) for _, _, data in safetensors(out / "model.safetensors").values()))
                    self.assertLess(max(t["error"] for t in report["tensors"]), error)
                    self.assertLess(self.difference(out, base), 4 * error)
        self.quantize(base, self.folder / "out", "mxfp4")
        self.assertEqual(self.check_groups(self.folder / "out", base, 4, 32, "mxfp4"), 16)
        self.assertLess(self.difference(self.folder / "out", base), 0.4)

    def test_groups_of_experts(self):
        """A directory whose experts are tensors of their own gets them stacked as mlx-lm reads them, in one step."""
        base, out = self.folder / "base", self.folder / "out"
        self.succeeds("convert", GOLDEN / "qwen3-moe-mlx4-bf16", base, "--to", "safetensors", "--dtype", "bf16", "-q")
        one = "model.layers.1.mlp.experts.{}.gate_proj.weight"
        self.assertEqual(safetensors(base / "model.safetensors")[one.format(0)][:2], ("BF16", [64, 64]))
        for to, parts in ("8:32", ("weight", "scales", "biases")), ("mxfp4", ("weight", "scales")):
            report = self.quantize(base, out, to)
            tensors = safetensors(out / "model.safetensors")
            self.assertFalse([name for name in tensors if ".experts." in name])
            self.assertEqual([name for name in sorted(tensors) if "layers.1" in name and "switch_mlp.gate_proj" in name],
                             sorted("model.layers.1.mlp.switch_mlp.gate_proj." + part for part in parts))  # fmt: skip
            self.check_report(report, out, sum(len(data) for _, _, data in tensors.values()))
            settings = json.loads((out / "config.json").read_text())["quantization"]
            self.assertEqual((settings["bits"], settings["group_size"]), (4 if to == "mxfp4" else 8, 32))
        self.assertEqual(self.quantize(out, self.folder / "again", "mxfp4")["rounded"], 0)

    def test_groups_again(self):
        """Of MLX's groups to others, and to floats; config.json's dtype is that of the scales."""
        for to, (bits, group, mode) in {"8:32": (8, 32, "affine"), "6": (6, 64, "affine"), "mxfp4": (4, 32, "mxfp4")}.items():
            with self.subTest(to):
                out = self.folder / "out"
                self.quantize(MLX, out, to)
                self.assertEqual(self.check_groups(out, MLX, bits, group, mode), 16)
                settings = json.loads((out / "config.json").read_text())["quantization"]
                self.assertEqual(settings, {"bits": bits, "group_size": group, "mode": mode})
                kinds = {kind for name, (kind, _, _) in safetensors(out / "model.safetensors").items() if name.endswith(".scales")}
                self.assertEqual(kinds, {"U8" if mode == "mxfp4" else "BF16"})
                self.assertLess(self.difference(out, MLX), 0.4 if mode == "mxfp4" else 0.1)
        for to, name in ("bf16", "bfloat16"), ("F16", "float16"), ("f32", "float32"):
            out = self.folder / to
            self.quantize(MLX, out, to)
            self.assertEqual(json.loads((out / "config.json").read_text())["dtype"], name)
            self.assertEqual({kind for kind, _, _ in safetensors(out / "model.safetensors").values()}, {to.upper()})
            self.assertLess(self.difference(out, MLX), 0.02)

    def test_rows_that_are_no_whole_groups(self):
        out = self.folder / "out"  # rows of 48 and 60
        self.assertEqual(self.quantize(LLAMA, out, "4")["rounded"], 0)
        self.assertEqual(list(self.logits(out)), list(self.logits(LLAMA)))
        self.assertEqual(sorted(p.name for p in out.iterdir()), sorted(p.name for p in LLAMA.iterdir()))

    # ---- mistakes ----

    def test_mistakes(self):
        out = self.folder / "out"
        self.fails(2, "quantize", TINY, out, says="--to TYPE is needed")
        self.fails(2, "quantize", TINY, "--to", "Q4_0", says="MODEL OUT --to TYPE")
        self.fails(2, "quantize", TINY, out, "more", "--to", "Q4_0", says='too many arguments: "more"')
        self.fails(1, "quantize", TINY, self.folder / "out.gguf", "--to", "Q9_9", "-q", says=["`Q9_9`", "Q4_0", "Q5_K_M", "MXFP4", "BF16"])
        self.fails(1, "quantize", TINY, self.folder / "out.gguf", "--to", "4:32", "-q", says=["`4:32`", "GGUF", "Q4_K_M"])
        self.fails(1, "quantize", MLX, out, "--to", "7", "-q", says=["`7`", "2, 3, 4, 5, 6 and 8 bits", ":128", "mxfp4"])
        self.fails(1, "quantize", MLX, out, "--to", "4:48", "-q", says="`4:48`")
        self.fails(1, "quantize", MLX, out, "--to", "4:", "-q", says="`4:`")
        self.fails(1, "quantize", MLX, out, "--to", "Q4_K_M", "-q", says=["`Q4_K_M`", "GGUF's"])
        self.fails(1, "quantize", MLX, self.folder / "out.gguf", "--to", "4", "-q", says=["`4`", "GGUF", "Q4_K_M"])
        self.fails(1, "quantize", self.folder / "none.gguf", out, "--to", "Q4_0", "-q", says="none.gguf")
        self.fails(1, "quantize", TINY, self.folder / "no" / "out.gguf", "--to", "Q4_0", "-q", says="cannot be written")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_places(self):
        """Nobody's files are replaced, the model least of all."""
        model = self.folder / "model.gguf"
        shutil.copy(TINY, model)
        self.fails(1, "quantize", model, model, "--to", "Q4_0", "-q", says="is not replaced")
        (self.folder / "link.gguf").symlink_to(model)
        self.fails(1, "quantize", model, self.folder / "link.gguf", "--to", "Q4_0", "-q", says="is not replaced")
        self.assertEqual(model.read_bytes(), TINY.read_bytes())
        ours = self.folder / "ours.gguf"
        self.quantize(model, ours, "Q8_0")
        before = ours.read_bytes()
        self.fails(1, "quantize", ours, ours, "--to", "Q4_0", "-q", says="the checkpoint that is read")
        os.link(ours, self.folder / "same.gguf")
        self.fails(1, "quantize", ours, self.folder / "same.gguf", "--to", "Q4_0", "-q", says="the checkpoint that is read")
        self.assertEqual(ours.read_bytes(), before)
        letter = self.write("letter.gguf", "Dear reader")
        self.fails(1, "quantize", model, letter, "--to", "Q4_0", "-q", "--force", says="is not replaced")
        self.assertEqual(letter.read_text(), "Dear reader")
        self.fails(1, "quantize", model, self.folder, "--to", "Q4_0", "-q", "--force", says="is a directory")
        self.fails(1, "quantize", MLX, MLX, "--to", "8", "-q", says="is not replaced")
        inside = shutil.copytree(MLX, self.folder / "mlx") / "inside"
        self.fails(1, "quantize", inside.parent, inside, "--to", "8", "-q", says="inside of it")
        out = self.folder / "out"
        self.quantize(MLX, out, "8")
        (out / "notes.txt").write_text("mine")
        self.fails(1, "quantize", MLX, out, "--to", "6", "-q", "--force", says="notes.txt")
        self.assertEqual((out / "notes.txt").read_text(), "mine")

    def test_places_that_cannot_be_written(self):
        place = self.folder / "place"
        place.mkdir(0o500)
        places = [pathlib.Path("/proc")] if pathlib.Path("/proc/self").exists() else []
        places += [place] if os.geteuid() else []  # root may write anywhere else
        for place in places:
            self.fails(1, "quantize", TINY, place / "out.gguf", "--to", "Q4_0", "-q", says="cannot be written")
            self.fails(1, "quantize", MLX, place / "out", "--to", "8", "-q", says="cannot be written")
            self.assertFalse((place / "out").exists())

    # ---- damage ----

    def check_damage(self, model, out, to, says):
        before = sorted(self.folder.iterdir())
        self.fails(1, "quantize", model, out, "--to", to, "-q", says=says)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_no_numbers(self):
        """A number that is none is said with its tensor, row and column."""
        out = self.folder / "out.gguf"
        for value in math.nan, math.inf, -math.inf:
            for name in "blk.1.ffn_up.weight", "token_embd.weight":
                model = self.damage_file(WIDE, name, 4 * (256 * 101 + 77), struct.pack("<f", value))
                for kind in "Q4_K_M", "Q8_0":
                    self.check_damage(model, out, kind, [f"tensor `{name}`", "row 101, column 77", "nan" if math.isnan(value) else "inf"])

    def damage_file(self, path, name, at, value):
        """A copy of a GGUF file in which a tensor has `value` at a byte."""
        whole, at = path.read_bytes(), at + Gguf(path).begin[name]
        return self.write("model.gguf", whole[:at] + value + whole[at + len(value) :])

    def damage_tensor(self, directory, name, at, value):
        """A copy of a directory in which a tensor has `value` at a byte."""
        copy = self.folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        tensors = safetensors(copy / "model.safetensors")
        kind, shape, data = tensors[name]
        tensors[name] = kind, shape, data[:at] + value + data[at + len(value) :]
        write_safetensors(copy / "model.safetensors", tensors)
        return copy

    def test_damage_of_what_is_copied(self):
        """Tensors that have the type already, vectors, and scales of groups; floats that become floats."""
        sound, out = self.folder / "q8.gguf", self.folder / "out.gguf"
        self.quantize(WIDE, sound, "Q8_0", "--pure")
        for name, at, value, row, column in (
            ("blk.0.ffn_gate.weight", 34 * (8 * 50 + 3), struct.pack("<H", 0x7E00), 50, 96),  # a row has 8 blocks
            ("blk.1.ffn_down.weight", 0, struct.pack("<H", 0xFC00), 0, 0),
            ("blk.1.ffn_norm.weight", 4 * 255, struct.pack("<f", math.nan), 0, 255),
        ):
            model = self.damage_file(sound, name, at, value)
            for kind in "Q8_0", "F16":
                self.check_damage(model, out, kind, [f"model.gguf: tensor `{name}`", f"row {row}, column {column}", "may be damaged"])
        scales, norm = "model.layers.1.mlp.up_proj.scales", "model.layers.1.input_layernorm.weight"
        self.check_damage(self.damage_tensor(MLX, scales, 2 * 20, b"\xc0\x7f"), self.folder / "out", "4",
                          [f"tensor `{scales}`", "row 20, column 0", "nan"])  # fmt: skip
        self.check_damage(self.damage_tensor(MLX, norm, 2 * 9, b"\x80\xff"), self.folder / "out", "8",
                          [f"tensor `{norm}`", "row 0, column 9", "-inf"])  # fmt: skip
        self.quantize(MLX, self.folder / "powers", "mxfp4")
        powers = self.damage_tensor(self.folder / "powers", scales, 5, b"\xff")  # a row has two
        self.check_damage(powers, self.folder / "out", "mxfp4", [f"tensor `{scales}`", "row 2, column 1", "nan"])

    def test_damage_of_experts(self):
        """It is said where it is stored: in an expert's own tensor, or in that of all of them."""
        name = "model.layers.1.mlp.experts.3.up_proj.weight"
        copy = self.damage_tensor(GOLDEN / "qwen3-moe-f32", name, 4 * (44 * 11 + 7), struct.pack("<f", math.inf))
        self.check_damage(copy, self.folder / "out", "4", [f"model.safetensors: tensor `{name}`", "row 11, column 7", "inf"])
        name = "model.layers.1.experts.gate_up_proj"  # [6, 40, 36]: expert 2's row 25 is one of up
        copy = self.damage_tensor(GOLDEN / "gemma4-experts-bf16", name, 2 * (36 * (2 * 40 + 25) + 35), b"\xc0\x7f")
        self.check_damage(copy, self.folder / "out", "4", [f"tensor `{name}`", "row 105, column 35", "nan"])

    def test_bounds_without_end(self):
        """Bounds of a tower's activations may be infinite, and are no numbers only by damage."""
        base = shutil.copytree(LLAMA, self.folder / "base")
        names = "model.vision_tower.proj.input_min", "model.vision_tower.proj.output_max"
        tensors = safetensors(base / "model.safetensors")
        for values, good in ((-math.inf, math.inf), True), ((math.nan, 1), False):
            tensors.update({name: ("F32", [], struct.pack("<f", value)) for name, value in zip(names, values)})
            write_safetensors(base / "model.safetensors", tensors)
            for to in "4:32", "f16":
                if good:
                    self.quantize(base, self.folder / to, to)
                    self.assertEqual(len(safetensors(self.folder / to / "model.safetensors")), len(tensors))
                else:
                    self.check_damage(base, self.folder / "out", to, [f"tensor `{names[0]}`", "nan"])

    def test_converting_keeps_what_there_is(self):
        name = "model.layers.1.input_layernorm.weight"
        copy = self.damage_tensor(LLAMA, name, 8, struct.pack("<f", math.nan))
        out = self.folder / "out"
        self.succeeds("convert", copy, out, "--to", "safetensors", "-q")
        self.assertEqual(safetensors(out / "model.safetensors"), safetensors(copy / "model.safetensors"))

    def test_too_large(self):
        out = self.folder / "out.gguf"
        for value in 1e12, -3e38:
            model = self.damage_file(WIDE, "blk.1.ffn_up.weight", 4 * 5000, struct.pack("<f", value))
            for kind in "Q4_K_M", "Q4_0", "Q6_K", "Q3_K_S", "IQ4_XS", "F16":
                says = f"tensor `blk.1.ffn_up.weight` holds {value:g}", "more than"
                self.check_damage(model, out, kind, says)

    def test_cut_short(self):
        model, out = self.folder / "model.gguf", self.folder / "out.gguf"
        whole = WIDE.read_bytes()
        for n in len(whole) - 1, len(whole) // 2, 5000, 20, 0:
            model.write_bytes(whole[:n])
            self.check_damage(model, out, "Q4_0", "model.gguf")
        copy = shutil.copytree(MLX, self.folder / "mlx")
        whole = (MLX / "model.safetensors").read_bytes()
        (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        self.check_damage(copy, self.folder / "out", "8", "model.safetensors")

    # ---- ends in the middle ----

    def large(self):
        """A model that takes a while."""
        path = SCRATCH / "large.gguf"
        return path if path.exists() else write_model(path, 256, 1024, 6)

    def check_killed(self, model, out, to, n):
        """Killed after any share of the time that it takes, it leaves nothing under the name, or what it wrote before."""
        begin = time.monotonic()
        self.quantize(model, out, to)
        took, numbers = time.monotonic() - begin, Random(3)
        whole = self.contents(out)
        for i in range(n):
            if out.exists() and i % 2:
                shutil.rmtree(out) if out.is_dir() else out.unlink()
            elif not out.exists() and not i % 2:
                self.quantize(model, out, to)
            self.kills("quantize", model, out, "--to", to, "-t", "1", "-q", after=numbers.random() * 1.2 * took)
            if out.exists():
                self.assertEqual(self.contents(out), whole)
            else:
                self.assertTrue(i % 2)
        self.quantize(model, out, to)
        self.assertEqual(self.contents(out), whole)

    def contents(self, path):
        return path.read_bytes() if path.is_file() else {p.name: p.read_bytes() for p in path.iterdir()}

    def test_killed(self):
        n = cases(6, 150)
        self.check_killed(self.large(), self.folder / "out.gguf", "Q4_K_M", n)
        self.check_killed(MLX, self.folder / "out", "6", n)

    def test_interrupted(self):
        """Ctrl-C says that nothing was written, and nothing is."""
        for command, name, to in ("quantize", "out.gguf", "Q4_K_M"), ("convert", "out", "safetensors"):
            with self.subTest(command):
                out = self.folder / name
                shown, error = self.interrupts(command, self.large(), out, "--to", to, "-t", "1", "-q", when=lambda: any(self.folder.iterdir()))
                self.assertEqual((shown, error), (b"", f"hearth: interrupted: {out} was not written\n"))
                self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
