"""hearth pull: names, choices, transfers that fail in every way, and what is in the cache afterwards, on a hub of the test's own."""

import email.utils
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import unittest

from hub_server import Hub, entry
from support import HEARTH, SCRATCH, TINY, CommandTest, cases, tiny_model

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tiny"
SHARDS = {path.name: path.read_bytes() for path in (GOLDEN / "llama-llama3-f16-shards").glob("[!r]*")}  # no reference.json
SINGLE = {path.name: path.read_bytes() for path in (GOLDEN / "llama-f32").iterdir()}
MODEL = TINY.read_bytes()
MODULES = json.dumps([{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                      for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])]).encode()  # fmt: skip
PATIENT = ["--retry-delay", "0"]


def variant(architecture_name):
    """Another tiny model with its own bytes."""
    path = SCRATCH / "variant.gguf"
    tiny_model.write(path, context=1024 + len(architecture_name))
    return path.read_bytes()


OTHER = variant("x")


class Pull(CommandTest):
    repositories = {}

    def setUp(self):
        super().setUp()
        self.hub = Hub(self.repositories)
        self.addCleanup(self.hub.close)
        self.models = self.folder / "cache" / "hearth" / "models"
        self.env = {"XDG_CACHE_HOME": str(self.folder / "cache"), "HOME": str(self.folder), "HF_ENDPOINT": self.hub.address,
                    "HF_TOKEN": "", "HF_HOME": "", "HF_TOKEN_PATH": "",
                    "SSL_CERT_FILE": "", "CURL_CA_BUNDLE": "", "REQUESTS_CA_BUNDLE": "", "NO_PROXY": "*", "no_proxy": "*"}  # fmt: skip

    def pull(self, *words, **more):
        return self.succeeds("pull", *words, *PATIENT, env=self.env, **more)

    def json_of(self, *words):
        return self.pull(*words, "--json", "-q").json

    def refuses(self, *words, status=1, says=(), **more):
        return self.fails(status, "pull", *words, "-q", *PATIENT, says=says, env=self.env, **more)

    def files(self, hidden=False):
        """Paths in the cache, but for the records."""
        found = (path.relative_to(self.models).as_posix() for path in self.models.rglob("*") if path.is_file())
        return sorted(name for name in found if hidden or not pathlib.PurePosixPath(name).name.startswith(".hearth-pull"))

    def listed(self):
        return [each["model"] for each in self.succeeds("list", "--json", env=self.env).json["checkpoints"]]

    def check(self, name, expected):
        """The model's directory has these files with these bytes, and nothing is left elsewhere."""
        here = {path.relative_to(self.models / name).as_posix(): path.read_bytes() for path in (self.models / name).rglob("*") if path.is_file()}
        here.pop(".hearth-pull.json")
        self.assertEqual(here, expected)
        self.assertEqual([path.name for path in self.models.glob("*/.*")], [])


class Choices(Pull):
    repositories = {
        "org/shards": {**SHARDS, "README.md": b"no", "pytorch_model.bin": b"no", "original/consolidated.pth": b"no",
                       "consolidated.safetensors": b"no", "onnx/model.onnx": b"no", "flax_model.msgpack": b"no",
                       "tokenizer.model": b"vocabulary", "adapter_model.safetensors": b"no"},
        "org/single": {**SINGLE, "tokenizer.json": b"{}", "tokenizer.model": b"no", "chat_template.jinja": b"{{ 1 }}",
                       "additional_chat_templates/tool_use.jinja": b"{{ 2 }}"},
        "org/unindexed": {name: data for name, data in SHARDS.items() if "index" not in name},
        "org/stale": {**SINGLE, "model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'},
        "org/lost": {**{name: data for name, data in SHARDS.items() if "00002" not in name}},
        "org/quants": {"tiny-Q4_K_M.gguf": MODEL, "tiny-Q8_0.gguf": OTHER, "tiny.f16.gguf": MODEL, "mmproj-tiny-F16.gguf": b"no",
                       "imatrix.gguf": b"no", "config.json": b"{}", "README.md": b"no"},
        "org/large": {"tiny-UD-Q5_K_XL.gguf": MODEL, "tiny-Q6_K.gguf": OTHER},
        "org/dynamic": {"tiny-UD-Q4_K_M.gguf": MODEL, "tiny-Q6_K.gguf": OTHER},
        "org/two": {"a-Q4_K_M.gguf": MODEL, "b-Q4_K_M.gguf": OTHER},
        "org/unlabelled": {"a.gguf": MODEL, "b.gguf": OTHER},
        "org/mixed": {"x-Q8_0.gguf": MODEL, "y-Q8_0.gguf": OTHER, "x-Q6_K.gguf": MODEL},
        "org/one": {"anything.gguf": MODEL},
        "org/parts": {**{f"Q4_K_M/m-Q4_K_M-0000{i}-of-00003.gguf": b"part %d" % i for i in (1, 2, 3)}, "Q8_0/m-Q8_0.gguf": OTHER},
        "org/part-missing": {"m-Q4_K_M-00001-of-00002.gguf": b"part 1"},
        "org/both": {**SINGLE, "tiny-Q4_K_M.gguf": MODEL},
        # Names of files beside models, as on the hub.
        "org/beside": {**{f"M-{q}.gguf": MODEL for q in ("Q4_K_M", "UD-Q4_K_XL", "Q8_0")}, **{name: b"no" for name in (
            "mmproj-model-f16.gguf", "mmproj-BF16.gguf", "M-mmproj-f16.gguf", "M.mmproj-Q8_0.gguf", "imatrix.gguf", "imatrix_unsloth.gguf",
            "imatrix_unsloth.dat", "M.imatrix", "M.imatrix.gguf", "M-imatrix.gguf", "M-draft-Q4_K_M.gguf", "M-DRAFT-BF16.gguf", "mtp-M-Q8_0.gguf",
            "M-MTP-Q4_K_M.gguf", "MTP/M-Q4_K_M.gguf", "draft/M-Q8_0.gguf", "M-eagle3-Q4_K_M.gguf", "ggml-vocab-M.gguf", "M-F16-vocab.gguf",
            "ggml-adapter-model-f16.gguf", "M-Q8_0-LoRA.gguf", "mtp.safetensors")}, "config.json": b"{}"},
        "org/one-beside": {"M.gguf": MODEL, "M-mmproj-f16.gguf": b"no", "M-MTP.gguf": b"no", "M.imatrix.gguf": b"no"},
        "org/parts-beside": {**{f"Q4_K_M/M-Q4_K_M-0000{i}-of-00002.gguf": b"part %d" % i for i in (1, 2)},
                             **{f"MTP/M-MTP-Q4_K_M-0000{i}-of-00002.gguf": b"part %d" % i for i in (1, 2)}},
        "org/only-draft": {"M-DRAFT-Q4_0.gguf": MODEL, "M-DRAFT-Q4_K_M.gguf": OTHER, "imatrix.gguf": b"no", "mmproj-F16.gguf": b"no"},
        "org/no-model": {"imatrix.gguf": b"no", "M-mmproj-F16.gguf": b"no", "ggml-adapter-model.gguf": b"no"},
        "org/weights-beside": {**{name: data for name, data in SINGLE.items() if name != "model.safetensors"},
                               "weights.safetensors": SINGLE["model.safetensors"], "mtp.safetensors": b"no", "eagle.safetensors": b"no",
                               "adapter_model.safetensors": b"no", "draft/model.safetensors": b"no"},
        "org/embedder": {**SINGLE, "modules.json": MODULES, "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
                         "1_Pooling/README.md": b"no", "onnx/model.safetensors": b"no", "2_Dense/model.safetensors": b"dense"},
        "org/pickles": {"config.json": b"{}", "pytorch_model.bin": b"no"},
        "org/adapter": {"adapter_config.json": b"{}", "adapter_model.safetensors": b"no"},
        "org/nothing": {"README.md": b"no"},
    }  # fmt: skip

    def chosen(self, name):
        return sorted(each["path"] for each in self.json_of(name, "--dry-run")["files"])

    def test_safetensors(self):
        self.assertEqual(self.chosen("org/shards"), sorted([*SHARDS, "tokenizer.model"]))
        self.assertEqual(self.chosen("org/single"),
                         ["additional_chat_templates/tool_use.jinja", "chat_template.jinja", "config.json", "generation_config.json",
                          "model.safetensors", "tokenizer.json"])  # fmt: skip
        self.assertEqual(self.chosen("org/embedder"), ["1_Pooling/config.json", "2_Dense/model.safetensors", "config.json", "generation_config.json", "model.safetensors", "modules.json"])
        self.assertEqual(self.chosen("org/unindexed"), sorted(name for name in SHARDS if "index" not in name))
        self.assertNotIn("model.safetensors.index.json", self.chosen("org/stale"))
        self.assertIn("model.safetensors", self.chosen("org/stale"))
        self.refuses("org/lost", says=["00002-of-00004", "index.json names"])
        self.assertFalse(self.models.exists())
        self.pull("org/embedder")
        self.assertIn("mean", self.succeeds("info", "org/embedder", env=self.env).text)

    def test_gguf(self):
        self.assertEqual(self.chosen("org/quants"), ["config.json", "tiny-Q4_K_M.gguf"])
        self.assertEqual(self.chosen("org/quants:q8_0"), ["config.json", "tiny-Q8_0.gguf"])
        self.assertEqual(self.chosen("org/quants:F16"), ["config.json", "tiny.f16.gguf"])
        self.assertEqual(self.chosen("org/quants/tiny-Q8_0.gguf"), ["config.json", "tiny-Q8_0.gguf"])
        self.assertEqual(self.chosen("org/quants/mmproj-tiny-F16.gguf"), ["config.json", "mmproj-tiny-F16.gguf"])
        self.assertEqual(self.chosen("org/one"), ["anything.gguf"])
        self.assertEqual(self.chosen("org/dynamic"), ["tiny-UD-Q4_K_M.gguf"])
        self.assertEqual(self.chosen("org/large:UD-Q5_K_XL"), ["tiny-UD-Q5_K_XL.gguf"])
        self.assertEqual(self.chosen("org/large:q5_k_xl"), ["tiny-UD-Q5_K_XL.gguf"])
        parts = [f"Q4_K_M/m-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
        for name in ("org/parts", "org/parts:Q4_K_M", f"org/parts/{parts[1]}"):
            self.assertEqual(self.chosen(name), parts)
        self.assertEqual(self.chosen("org/both"), ["config.json", "generation_config.json", "model.safetensors"])
        self.assertEqual(self.chosen("org/both:Q4_K_M"), ["config.json", "generation_config.json", "tiny-Q4_K_M.gguf"])

    def test_files_beside_a_model(self):
        self.assertEqual(self.chosen("org/beside"), ["M-Q4_K_M.gguf", "config.json"])
        for wanted, file in {"q8_0": "M-Q8_0.gguf", "UD-Q4_K_XL": "M-UD-Q4_K_XL.gguf", "Q4_K_XL": "M-UD-Q4_K_XL.gguf"}.items():
            self.assertEqual(self.chosen(f"org/beside:{wanted}"), [file, "config.json"])
        self.refuses("org/beside:BF16", says=["no BF16, there are Q4_K_M (", "Q8_0 (", "UD-Q4_K_XL ("])
        self.assertEqual(self.chosen("org/beside/MTP/M-Q4_K_M.gguf"), ["MTP/M-Q4_K_M.gguf"])
        self.assertEqual(self.chosen("org/one-beside"), ["M.gguf"])
        parts = [f"Q4_K_M/M-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2)]
        for name in ("org/parts-beside", "org/parts-beside:Q4_K_M"):
            self.assertEqual(self.chosen(name), parts)
        self.assertEqual(self.chosen("org/only-draft"), ["M-DRAFT-Q4_K_M.gguf"])
        self.assertEqual(self.chosen("org/only-draft:Q4_0"), ["M-DRAFT-Q4_0.gguf"])
        self.refuses("org/no-model", says="no model that Hearth reads")
        self.refuses("org/no-model:F16", says="no GGUF model")
        self.assertEqual(self.chosen("org/weights-beside"), ["config.json", "generation_config.json", "weights.safetensors"])

    def test_what_is_no_single_model(self):
        self.refuses("org/quants:Q3_K", says=["no Q3_K", "Q4_K_M (", "Q8_0 (", "F16 ("])
        self.refuses("org/large", says=["none is Q4_K_M", "Q6_K (", "UD-Q5_K_XL (", "org/large:QUANTIZATION"])
        self.refuses("org/unlabelled", says=["a.gguf (", "b.gguf (", "org/unlabelled/FILE"])
        self.refuses("org/mixed", says=["Q6_K (", "x-Q8_0.gguf (", "y-Q8_0.gguf (", "org/mixed/FILE"])
        self.refuses("org/two", says=["a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "org/two/FILE"])
        self.refuses("org/quants/tiny.gguf", says=["no file tiny.gguf", "tiny-Q8_0.gguf"])
        self.refuses("org/part-missing", says="part 2 of 2")
        self.refuses("org/pickles", says="pytorch_model.bin")
        self.refuses("org/adapter", says="adapter")
        self.refuses("org/nothing", says="no model that Hearth reads")
        self.refuses("org/single:Q4_K_M", says="no GGUF model")
        self.assertFalse(self.models.exists())

    def test_names(self):
        for name in ("", "org", "org/", "/org/quants", "./org/quants", "org/../quants", "org/quants/", "org/quants:", "org/quants@",
                     "org/quants/config.json", "org/quants:Q4@", "org/quants/../x.gguf@", "o g/quants", "org/quants@a..b", "-org/quants",
                     "org/quants:Q4_K_M:Q4_K_M", "org/quants/tiny-Q8_0.gguf:Q8_0", "ftp://huggingface.co/org/quants"):  # fmt: skip
            self.fails(2, "pull", "--", name, says="expected ORG/REPO", env=self.env)
        self.fails(2, "pull", says="hearth pull --help", env=self.env)
        expected = ["config.json", "tiny-Q8_0.gguf"]
        commit = self.hub.repositories["org/quants"].revisions["main"]
        for name in ("org/quants:Q8_0@main", f"org/quants@{commit}:Q8_0", "hf.co/org/quants:Q8_0", "https://huggingface.co/org/quants:Q8_0",
                     "https://huggingface.co/org/quants/blob/main/tiny-Q8_0.gguf",
                     "https://huggingface.co/org/quants/resolve/main/tiny-Q8_0.gguf?download=true",
                     f"{self.hub.address}/org/quants/tiny-Q8_0.gguf"):  # fmt: skip
            self.assertEqual(self.chosen(name), expected, name)
        self.assertEqual(self.chosen("https://huggingface.co/org/quants/"), ["config.json", "tiny-Q4_K_M.gguf"])

    def test_a_dry_run_leaves_nothing(self):
        text = self.pull("org/shards", "--dry-run").text
        self.assertIn("model-00004-of-00004.safetensors", text)
        self.assertFalse(self.models.exists())
        self.assertEqual(self.hub.asked("00004-of-00004"), [])


class InTheCache(Pull):
    repositories = {
        "org/quants": {"tiny-Q4_K_M.gguf": MODEL, "tiny-Q8_0.gguf": OTHER, "config.json": b'{"eos_token_id": 2}'},
        "org/shards": SHARDS,
        "org/nested": {"Q4_K_M/tiny-Q4_K_M.gguf": MODEL, "Q8_0/tiny-Q8_0.gguf": OTHER},
        "org/both": {**SINGLE, "tiny-Q4_K_M.gguf": MODEL},
    }  # fmt: skip

    def tokens(self, name, **more):
        return self.succeeds("tokenize", name, "hello world", env=self.env, **more).text

    def context(self, name):
        return self.succeeds("info", name, "--json", env=self.env).json["context"]

    def test_one_model(self):
        result = self.pull("org/quants")
        self.assertRegex(result.text, r"^model +org/quants\npath .*tiny-Q4_K_M.gguf\ncommit +[0-9a-f]{40}\nsize .*\nfetched .*B\n$")
        self.assertIn("2 files", result.err)
        self.assertRegex(result.err, r"(?m)^tiny-Q4_K_M.gguf  \d")
        self.check("org/quants", {"tiny-Q4_K_M.gguf": MODEL, "config.json": b'{"eos_token_id": 2}'})
        self.assertEqual(self.listed(), ["org/quants/tiny-Q4_K_M"])
        for name in ("org/quants", "org/quants:q4_k_m", "org/quants/tiny-Q4_K_M", "org/quants/tiny-Q4_K_M.gguf", "org/quants@main",
                     "https://huggingface.co/org/quants"):  # fmt: skip
            self.assertEqual(self.tokens(name), self.succeeds("tokenize", TINY, "hello world").text)
        self.assertTrue(self.succeeds("run", "org/quants", "-q", "-n", "3", "hello", env=self.env).text.strip())

    def test_several_quantisations(self):
        self.pull("org/quants:Q8_0")
        self.assertNotEqual(self.context("org/quants"), tiny_model.CONTEXT)  # the only one there
        self.pull("org/quants")
        self.assertEqual(self.listed(), ["org/quants/tiny-Q4_K_M", "org/quants/tiny-Q8_0"])
        self.assertEqual(self.context("org/quants"), tiny_model.CONTEXT)
        self.assertEqual(self.context("org/quants:Q8_0"), 1025)
        self.fails(1, "run", "org/quants:Q5_K_M", "hi", says=["Q5_K_M", "tiny-Q8_0.gguf", "hearth pull org/quants:Q5_K_M"], env=self.env)
        self.succeeds("rm", "org/quants:Q8_0", env=self.env)
        self.assertEqual(self.files(), ["org/quants/config.json", "org/quants/tiny-Q4_K_M.gguf"])
        self.succeeds("rm", "org/quants/tiny-Q4_K_M", env=self.env)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_directories_within(self):
        self.pull("org/nested")
        self.assertEqual(self.context("org/nested"), tiny_model.CONTEXT)
        self.pull("org/nested:Q8_0")
        self.assertEqual(self.context("org/nested:Q8_0"), 1025)
        self.assertEqual(self.context("org/nested"), tiny_model.CONTEXT)
        self.assertEqual(self.listed(), ["org/nested/Q4_K_M/tiny-Q4_K_M", "org/nested/Q8_0/tiny-Q8_0"])
        self.succeeds("rm", "org/nested", env=self.env)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_safetensors(self):
        self.pull("org/shards")
        self.check("org/shards", SHARDS)
        self.assertEqual(self.listed(), ["org/shards"])
        self.succeeds("logits", "org/shards", "--ids", "1,2", "--out", self.folder / "x.npy", env=self.env)
        self.pull("org/both")
        self.pull("org/both:Q4_K_M")
        self.assertEqual(self.context("org/both:Q4_K_M"), tiny_model.CONTEXT)
        self.assertEqual(self.context("org/both"), json.loads(SINGLE["config.json"])["max_position_embeddings"])
        self.succeeds("rm", "org/shards", "org/both", env=self.env)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_a_name_that_is_not_there(self):
        for name in ("org/quants", "org/quants:Q4_K_M"):
            self.fails(1, "run", name, "hi", says=f"hearth pull {name}", env=self.env)
        for name in ("model.gguf", "some/model.gguf", "nothing", "/org/quants", "./org/quants"):
            self.assertNotIn("hearth pull", self.fails(1, "run", name, "hi", env=self.env).err)
        for name in ("org/quants", "org/quants:Q4_K_M", "org/quants/tiny-Q4_K_M.gguf", "org/quants@main"):
            self.fails(1, "rm", name, says="there is no model", env=self.env)
        self.assertEqual(self.hub.requests, [])

    def test_a_model_that_is_there_is_not_fetched_again(self):
        self.pull("org/shards")
        self.hub.requests.clear()
        result = self.json_of("org/shards")
        self.assertEqual((result["fetched_bytes"], result["complete"], len(self.hub.requests)), (0, True, 2))
        self.assertFalse(any(each["new"] for each in result["files"]))
        self.assertIn("nothing; everything was present", self.pull("org/shards").text)
        self.check("org/shards", SHARDS)

    def test_a_new_revision_brings_what_has_changed(self):
        self.pull("org/shards")
        notes = self.models / "org" / "shards" / "notes.txt"
        notes.write_text("mine")
        before = (self.models / "org" / "shards" / "model-00001-of-00004.safetensors").stat().st_ino
        new = {**SHARDS, "config.json": SHARDS["config.json"] + b"\n"}
        del new["generation_config.json"]
        commit = self.hub.repositories["org/shards"].commit(new)
        self.hub.requests.clear()
        result = self.json_of("org/shards")
        self.assertEqual(result["commit"], commit)
        self.assertEqual([each["path"] for each in result["files"] if each["new"]], ["config.json"])
        self.assertEqual(len(self.hub.asked("/resolve/")), 1)
        self.check("org/shards", {**new, "notes.txt": b"mine"})
        self.assertEqual((self.models / "org" / "shards" / "model-00001-of-00004.safetensors").stat().st_ino, before)

    def test_a_tag(self):
        old = self.hub.repositories["org/quants"].revisions["main"]
        self.hub.repositories["org/quants"].commit({"tiny-Q4_K_M.gguf": OTHER})
        self.hub.repositories["org/quants"].revisions["refs/pr/1"] = old
        self.assertEqual(self.json_of("org/quants@refs/pr/1")["commit"], old)
        self.assertTrue(all(old in address for address in self.hub.asked("/resolve/")))
        self.assertIn("%2F", self.hub.asked("/revision/")[0])
        for name in ("org/quants", "org/quants@refs/pr/1", f"org/quants:Q4_K_M@{old}", "hf.co/org/quants"):
            self.assertEqual(self.context(name), tiny_model.CONTEXT)
        self.fails(1, "info", "org/quants@main", says="hearth pull org/quants@main", env=self.env)
        self.check("org/quants", {"tiny-Q4_K_M.gguf": MODEL, "config.json": b'{"eos_token_id": 2}'})

    def test_files_that_were_changed_here(self):
        self.pull("org/quants")
        path = self.models / "org" / "quants" / "tiny-Q4_K_M.gguf"
        path.write_bytes(MODEL[:-1] + b"?")
        os.utime(path, (1, 1))
        self.assertTrue(self.json_of("org/quants")["files"][1]["new"])
        self.assertEqual(path.read_bytes(), MODEL)
        stat = path.stat()
        path.write_bytes(MODEL[:-1] + b"?")  # with the time that it had
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        self.assertEqual(self.json_of("org/quants")["fetched_bytes"], 0)
        self.assertEqual(self.json_of("org/quants", "--verify")["fetched_bytes"], len(MODEL))
        self.assertEqual(path.read_bytes(), MODEL)
        path.with_name(".hearth-pull.json").write_text("{")
        self.assertEqual(self.json_of("org/quants")["fetched_bytes"], 0)  # they are looked into, and are right
        path.unlink()
        self.assertEqual(self.json_of("org/quants")["fetched_bytes"], len(MODEL))

    def test_a_link_to_another_disk(self):
        elsewhere = self.folder / "elsewhere" / "models" / "q"
        elsewhere.mkdir(parents=True)
        (self.models / "org").mkdir(parents=True)
        (self.models / "org" / "quants").symlink_to(elsewhere)
        self.pull("org/quants")
        self.assertTrue((self.models / "org" / "quants").is_symlink())
        self.assertEqual((elsewhere / "tiny-Q4_K_M.gguf").read_bytes(), MODEL)
        self.assertEqual(os.listdir(elsewhere.parent), ["q"])


@unittest.skipUnless(shutil.which("cc") and sys.platform == "linux", "there is no compiler to take links away with")
class WithoutLinks(InTheCache):
    """The same on a file system that has no hard links."""

    def setUp(self):
        super().setUp()
        source, library = self.folder / "no_links.c", self.folder / "no_links.so"
        source.write_text("#include <errno.h>\nint linkat(int a, const char *b, int c, const char *d, int e) { errno = EPERM; return -1; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-w", source, "-o", library], check=True)
        self.env["LD_PRELOAD"] = str(library)


class Access(Pull):
    repositories = {"org/gated": {"m-Q4_K_M.gguf": MODEL}, "org/open": {"m-Q4_K_M.gguf": MODEL}}

    def setUp(self):
        super().setUp()
        self.hub.gated.add("org/gated")

    def test_what_the_hub_refuses(self):
        self.refuses("org/gated", says=["accept them at", f"{self.hub.address}/org/gated", "HF_TOKEN"])
        self.refuses("org/none", says=["401", "misspelt", "HF_TOKEN"])
        self.hub.says_not_found = True
        self.refuses("org/none", says=["404", "check the name"])
        self.refuses("org/open@v9", says=["org/open@v9", "RevisionNotFound"])
        self.hub.inject("/resolve/", "403", 100)
        self.refuses("org/open", says="accept")
        self.assertEqual(len(self.hub.asked("org/open/resolve")), 1)  # nothing of this is repeated
        self.assertEqual(self.listed(), [])

    def test_the_token(self):
        self.env["HF_TOKEN"] = self.hub.token
        result = self.pull("org/gated")
        self.check("org/gated", {"m-Q4_K_M.gguf": MODEL})
        sent = {name: {headers.get("Authorization") for server, _, headers in self.hub.requests if server == name} for name in ("hub", "cdn")}
        self.assertEqual(sent, {"hub": {f"Bearer {self.hub.token}"}, "cdn": {None}})
        self.assertNotIn(self.hub.token, result.text + result.err)
        self.env["HF_TOKEN"] = "hf_other"
        self.succeeds("rm", "org/gated", env=self.env)
        self.assertNotIn("hf_other", self.refuses("org/gated", says="use a token that may read").err)

    def test_files_of_the_token(self):
        for name, place in (("HF_TOKEN_PATH", "a/secret"), ("HF_HOME", "b/token"), (None, "cache/huggingface/token")):
            path = self.folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f" {self.hub.token}\n")
            more = {} if not name else {name: str(path if name.endswith("PATH") else path.parent)}
            self.succeeds("pull", "org/gated", "-q", env={**self.env, **more})
            self.succeeds("rm", "org/gated", env=self.env)
            path.unlink()
        path.write_text("two\nlines")
        self.assertNotIn("lines", self.refuses("org/open", says="no token").err)

    def test_redirects(self):
        self.env["HF_TOKEN"] = self.hub.token
        loop = (302, {"Location": f"{self.hub.address}/org/open/resolve/x"}, b"")
        self.hub.inject("/resolve/", loop, 1000)
        self.refuses("org/open", says="without end")
        self.hub.faults.clear()
        for target, says in (("file:///etc/passwd", "not by http"), ("gopher://127.0.0.1/", "not by http"), ("http://", "that is none")):
            self.hub.inject("/resolve/", (302, {"Location": target}, b""))
            self.refuses("org/open", says=says)
        self.hub.inject("/resolve/", (302, {}, b""))
        self.refuses("org/open", says="without saying where")
        self.hub.inject("stored", "403", server="cdn")
        self.assertNotIn("secret", self.refuses("org/open", says=["localhost", "403"]).err)  # nor is a signature shown
        self.pull("org/open")

    def test_settings(self):
        for endpoint in ("ftp://hub", "hub", "https://", "http://user:secret@hub", "http://hub?x"):
            self.fails(1, "pull", "org/open", says="HF_ENDPOINT", env={**self.env, "HF_ENDPOINT": endpoint})
        self.env["HF_ENDPOINT"] += "/"
        self.pull("org/open")


@unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make a certificate")
class Encrypted(Pull):
    def setUp(self):
        super().setUp()
        self.certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub", "-keyout", key, "-out", self.certificate,
                        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"], check=True, capture_output=True)  # fmt: skip
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate, key)
        self.secure = Hub({"org/m": {"m-Q4_K_M.gguf": MODEL}}, tls)
        self.addCleanup(self.secure.close)
        self.env["HF_ENDPOINT"] = self.secure.address

    def test_certificates(self):
        self.assertNotIn("tries", self.refuses("org/m", says="certificate").err)
        self.assertEqual(self.secure.requests, [])
        for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            self.succeeds("pull", "org/m", env={**self.env, name: str(self.certificate)})
            self.check("org/m", {"m-Q4_K_M.gguf": MODEL})
            self.succeeds("rm", "org/m", env=self.env)
        self.env["SSL_CERT_FILE"] = str(self.folder / "none.pem")
        self.refuses("org/m", says="certificate")

    def test_redirects_stay_encrypted(self):
        self.env["SSL_CERT_FILE"] = str(self.certificate)
        self.secure.inject("/resolve/", (302, {"Location": f"{self.hub.address}/x"}, b""))
        self.refuses("org/m", says="not by https")
        self.assertEqual(self.hub.requests, [])


class Listings(Pull):
    repositories = {"org/m": {**SINGLE, "tokenizer.json": b"{}"}}

    def change(self, change):
        self.hub.change_listing = change

    def test_pages(self):
        self.hub.page_entries = 1
        self.pull("org/m")
        self.assertEqual(len(self.hub.asked("/tree/")), len(SINGLE) + 1)

    def test_names_that_leave_a_directory(self):
        for name in ("../up", "/etc/x", "a/../../b", "a\\b", "a\nb", "a//b", ".", "a/./b", "", "a\x7f", "x" * 300, "a/"):
            self.change(lambda listed, name=name: [*listed, entry(name, b"bad")])
            self.refuses("org/m", says="which no file may be named")
        self.assertFalse(self.models.exists())

    def test_listings_that_are_none(self):
        for change, says in (
            (lambda listed: {"error": "?"}, "no list of files"),
            (lambda listed: [*listed, 7], "no file and no directory"),
            (lambda listed: [*listed, {"type": "link", "path": "a"}], "no file and no directory"),
            (lambda listed: [*listed, {"type": "file", "path": "a"}], "without its size"),
            (lambda listed: [*listed, {"type": "file", "path": "a", "size": -1}], "without its size"),
            (lambda listed: [*listed, {"type": "file", "path": "a", "size": 1e30}], "without its size"),
            (lambda listed: [*listed, listed[0]], "twice"),
            (lambda listed: [{**each, "oid": "?", "lfs": {}} for each in listed], "without the hash"),
            (lambda listed: [], "no model that Hearth reads"),
        ):  # fmt: skip
            self.change(change)
            if isinstance(change([{"path": "x"}]), dict):
                self.hub.inject("/tree/", (200, {}, json.dumps(change([])).encode()))
            self.refuses("org/m", says=says)
        self.assertFalse(self.models.exists())

    def test_texts_that_are_none(self):
        for body in (b"", b"{", b"\xff", b"[" * 100000, b"{}", b'{"sha": "main"}', b'{"sha": 7}', b'{"sha": "../../x"}'):
            self.hub.inject("/revision/", (200, {}, body))
            self.refuses("org/m", says="the hub's response")
        for body in (b"", b"[{", b"[" * 100000):
            self.hub.inject("/tree/", (200, {}, body))
            self.refuses("org/m", says="the hub's listing: line 1, column ")
        self.hub.inject("/revision/", (200, {}, b" " * (65 << 20)))
        self.refuses("org/m", says="longer than 64 MB")
        more = {"Link": '<?recursive=true>; rel="next"'}
        self.hub.inject("/tree/", (200, more, b"[]"), 2000)
        self.refuses("org/m", says="more than 1000 pages")
        self.hub.faults.clear()
        self.hub.inject("/tree/", (200, {"Link": '<http://[>; rel="next"'}, b"[]"))
        self.refuses("org/m", says="an address that is none")

    def test_a_huge_listing(self):
        self.change(lambda listed: [*listed, *(entry(f"more/{i}.txt", b"x") for i in range(20000))])
        self.hub.page_entries = 10000
        self.pull("org/m")
        self.change(lambda listed: [*listed, *({"type": "file", "path": f"{i}", "size": 1} for i in range(200001))])
        self.hub.page_entries = 300000
        self.refuses("org/m", says="more than 200000 files")

    def test_an_index_that_is_none(self):
        for text, says in ((b"{", "line 1, column 2: expected"), (b"{}", "names no weights"), (b'{"weight_map": {"a": "../b"}}', "must be a safetensors file"), (b'{"weight_map": {"a": 1}}', "must be a safetensors file"), (b'{"weight_map": {"a": ".hearth-pull.json"}}', "must be a safetensors file")):  # fmt: skip
            self.hub.repositories["org/m"].commit({**SINGLE, "model.safetensors.index.json": text})
            self.refuses("org/m", says=says)
        self.assertFalse(self.models.exists())


class Faults(Pull):
    repositories = {"org/m": {"m-Q4_K_M.gguf": MODEL, "config.json": b"{}"}}

    def whole(self, *words):
        result = self.pull("org/m", *words)
        self.check("org/m", {"m-Q4_K_M.gguf": MODEL, "config.json": b"{}"})
        return result

    def again(self):
        if self.models.exists() and os.listdir(self.models):
            self.succeeds("rm", "org/m", env=self.env)
        self.hub.requests.clear()
        self.hub.faults.clear()

    def ranges(self):
        return [headers.get("Range") for server, address, headers in self.hub.requests if server == "cdn"]

    def test_an_answer_that_ends_early_goes_on(self):
        half = len(MODEL) // 2
        for fault in ("reset", "truncate", "short-length", "chunked"):
            self.hub.inject("m-Q4_K_M.gguf", fault, server="cdn")
            self.assertIn("trying again", self.whole().err)
            first, second = self.ranges()
            self.assertIsNone(first)
            self.assertLessEqual(int(re.fullmatch(r"bytes=(\d+)-", second)[1]), half)
            if fault != "reset":  # which may take bytes with it that have arrived
                self.assertEqual(second, f"bytes={half}-")
            self.assertTrue([headers["If-Range"] for _, _, headers in self.hub.requests if "Range" in headers])
            self.again()

    def test_servers_that_fail_for_a_while(self):
        for fault in ("drop", "garbage", "500", "502", "503", "408", "429", "416", "long-length"):
            self.hub.inject("m-Q4_K_M.gguf", fault, 2, server="cdn")
            self.hub.inject("/tree/", "503")
            self.hub.inject("/revision/", "drop")
            self.whole()
            self.again()
        for fault in ("bad-range", "other-total", "416", "no-range"):
            self.hub.inject("m-Q4_K_M.gguf", "truncate", server="cdn")
            self.hub.inject("m-Q4_K_M.gguf", fault, server="cdn")
            self.whole()
            self.again()

    def test_failures_without_end(self):
        self.hub.inject("m-Q4_K_M.gguf", "503", 1000, server="cdn")
        self.refuses("org/m", "--retries", "3", says=["503", "given up after 4 attempts"])
        self.assertEqual(len(self.hub.asked("stored", "cdn")), 4)
        self.hub.faults.clear()
        self.hub.inject("/revision/", "drop", 1000)
        self.refuses("org/m", "--retries", "2", says="given up after 3 attempts")
        self.hub.close()
        self.refuses("org/m", "--retries", "1", says="given up after 2 attempts")
        self.assertEqual(self.listed(), [])

    def test_bytes_that_come_make_up_for_failures(self):
        self.hub.cut = lambda n: min(n // 2, 30000)
        self.hub.inject("m-Q4_K_M.gguf", "truncate", 9, server="cdn")
        self.whole("--retries", "1")
        self.assertEqual(len(self.ranges()), 10)

    def test_no_progress_is_no_progress(self):
        """A server that always sends the same first half."""
        self.hub.ranges = False
        self.hub.inject("m-Q4_K_M.gguf", "truncate", 1000, server="cdn")
        self.refuses("org/m", "--retries", "2", says="given up")
        self.assertLessEqual(len(self.ranges()), 4)

    def test_wrong_bytes(self):
        self.hub.inject("m-Q4_K_M.gguf", "wrong", server="cdn")
        self.assertIn("fetched again", self.whole().err)
        self.again()
        for fault in ("wrong", "too-much"):
            self.hub.inject("m-Q4_K_M.gguf", fault, 1000, server="cdn")
            self.refuses("org/m", says=["m-Q4_K_M.gguf", "3 times", "nothing of it was kept"])
            self.assertEqual(len(self.ranges()), 3)
            self.assertEqual([name for name in self.files(hidden=True) if "gguf" in name], [])
            self.again()
        self.hub.inject("/resolve/", "wrong", 1000, server="hub")
        self.refuses("org/m", says=["config.json", "3 times"])
        self.again()
        self.whole()

    def test_retry_after(self):
        for value in (lambda: "1", lambda: email.utils.formatdate(time.time() + 2, usegmt=True)):
            value = value()
            self.hub.inject("m-Q4_K_M.gguf", (429, {"Retry-After": value}, b""), server="cdn")
            begin = time.monotonic()
            self.whole()
            self.assertGreater(time.monotonic() - begin, 0.9)
            self.again()
        self.hub.inject("m-Q4_K_M.gguf", (503, {"Retry-After": "100000"}, b""), server="cdn")
        self.refuses("org/m", says="come back in 100000 s")
        for value in ("-5", "soon", "nan", "1e999", "Mon, 01 Jan 1990 00:00:00 GMT"):
            self.again()
            self.hub.inject("m-Q4_K_M.gguf", (503, {"Retry-After": value}, b""), server="cdn")
            self.whole()

    def test_stalls(self):
        for fault in ("stall", "silence"):
            self.hub.inject("m-Q4_K_M.gguf", fault, server="cdn")
            self.assertIn("nothing came for 1 s", self.whole("--timeout", "1").err)
            self.again()

    def test_without_etags_and_ranges(self):
        for self.hub.etags, self.hub.ranges in ((False, True), (True, False), (False, False)):
            self.hub.cut = lambda n: n // 2
            self.hub.inject("m-Q4_K_M.gguf", "truncate", server="cdn")
            self.whole()
            self.assertEqual(len(self.ranges()), 2)
            self.again()

    def test_a_file_that_changed_between_two_calls(self):
        self.hub.inject("m-Q4_K_M.gguf", "truncate", server="cdn")
        self.refuses("org/m", "--retries", "0", says="given up")
        self.assertTrue(any(name.endswith(".part") for name in self.files()))
        self.assertEqual(self.listed(), [])
        self.hub.etag_prefix = "new"  # the same bytes under another ETag: the server sends all of them
        self.whole()
        self.again()
        self.hub.inject("m-Q4_K_M.gguf", "truncate", server="cdn")
        self.refuses("org/m", "--retries", "0", says="given up")
        self.hub.repositories["org/m"].commit({"m-Q4_K_M.gguf": OTHER})  # other bytes: none of the old ones are used
        self.pull("org/m")
        self.assertIsNone(self.ranges()[-1])
        self.check("org/m", {"m-Q4_K_M.gguf": OTHER})

    def test_parts_of_which_bytes_were_lost(self):
        self.hub.inject("m-Q4_K_M.gguf", "truncate", server="cdn")
        self.refuses("org/m", "--retries", "0")
        part = next(self.models.rglob("*.part"))
        part.write_bytes(b"\0" * part.stat().st_size)
        self.assertIn("fetched again", self.whole().err)

    def test_one_at_a_time(self):
        self.hub.pause, self.hub.piece = 0.2, 30000
        with subprocess.Popen([HEARTH, "pull", "org/m", "-q"], env={**os.environ, **self.env}, stdout=subprocess.PIPE) as first:
            self.wait_for_part(first)
            self.refuses("org/m", says="another hearth pull")
            self.fails(1, "rm", "org/m", says="another hearth pull", env=self.env)
            self.hub.pause = 0
            first.communicate()
        self.assertEqual(first.returncode, 0)
        self.check("org/m", {"m-Q4_K_M.gguf": MODEL, "config.json": b"{}"})

    def wait_for_part(self, process, least=1):
        while process.poll() is None:
            for part in self.models.rglob("*.gguf.part"):
                if part.stat().st_size >= least:
                    return
            time.sleep(0.005)
        self.fail("it ended before it could be interrupted")

    def test_interruption(self):
        for number, status in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
            self.hub.pause, self.hub.piece = 0.1, 20000
            with subprocess.Popen([HEARTH, "pull", "org/m"], env={**os.environ, **self.env}, stderr=subprocess.PIPE) as process:
                self.wait_for_part(process, 40000)
                process.send_signal(number)
                err = process.communicate()[1].decode()
            self.assertEqual(process.returncode, status)
            if number != signal.SIGKILL:
                self.assertIn("the same command goes on", err)
            self.assertEqual(self.listed(), [])
            self.fails(1, "run", "org/m", "hi", says="hearth pull org/m", env=self.env)
            self.hub.pause = 0
            self.hub.requests.clear()
            self.whole()
            self.assertGreaterEqual(int(re.fullmatch(r"bytes=(\d+)-", self.ranges()[0])[1]), 40000)
            self.again()

    def test_killed_at_any_time(self):
        """While a new revision is fetched the model is the old one as a whole, or the new one."""
        numbers = random.Random(7)
        old = {f"m-Q4_K_M-0000{i}-of-00003.gguf": numbers.randbytes(20000) for i in (1, 2, 3)}
        self.hub.repositories["org/m"].commit(old)
        self.pull("org/m")
        for _ in range(cases(10, 100)):
            new = {name: numbers.randbytes(20000) if i else data for i, (name, data) in enumerate(old.items())}
            self.hub.repositories["org/m"].commit(new)
            self.hub.pause, self.hub.piece = 0.001, 5000
            for _ in range(6):
                self.kills("pull", "org/m", "-q", *PATIENT, env=self.env, after=numbers.random() * 0.12)
                folder = self.models / "org" / "m"
                if folder.exists():  # the moment between two names
                    here = {path.name: path.read_bytes() for path in folder.glob("*.gguf")}
                    self.assertIn(here, (old, new))
            self.pull("org/m")
            self.check("org/m", new)
            old = new

    def test_what_has_come_can_be_removed(self):
        self.hub.inject("m-Q4_K_M.gguf", "truncate", server="cdn")
        self.refuses("org/m", "--retries", "0")
        self.succeeds("rm", "org/m", env=self.env)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_a_kill_while_the_directory_is_replaced(self):
        """Every state that this can leave is put in order."""
        self.whole()
        target, old, fresh = (self.models / "org" / name for name in ("m", ".m.old", ".m.new"))
        new = {"m-Q4_K_M.gguf": OTHER, "config.json": b"{}"}
        self.hub.repositories["org/m"].commit(new)
        fresh.mkdir()
        (fresh / "x").touch()
        target.rename(old)
        self.pull("org/m")
        self.check("org/m", new)
        self.hub.repositories["org/m"].commit({"m-Q4_K_M.gguf": MODEL, "config.json": b"{}"})
        old.mkdir()
        (old / "x").touch()
        self.whole()

    def test_a_full_disk(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

        self.refuses("org/m", says=["m-Q4_K_M.gguf.part cannot be written", "the same command goes on"], preexec_fn=limit)
        self.assertEqual(len(self.hub.asked("stored", "cdn")), 1)  # it is not tried again
        self.assertEqual(self.listed(), [])
        self.hub.requests.clear()
        self.whole()
        self.assertEqual(self.ranges(), ["bytes=100000-"])
        huge = [{**entry("m-Q4_K_M.gguf", MODEL), "size": 1 << 60, "lfs": {"oid": "0" * 64, "size": 1 << 60}}]
        self.hub.change_listing = lambda listed: huge
        self.again()
        self.refuses("org/m", says="free")
        self.hub.change_listing = lambda listed: [*huge, entry("config.json", b"{}"), *({**each, "path": f"m-Q8_0-0000{i}-of-00009.gguf", "size": (1 << 63) - 1, "lfs": {**each["lfs"], "size": (1 << 63) - 1}} for each in huge for i in range(1, 10))]  # fmt: skip
        self.refuses("org/m:Q8_0", says="larger than any disk")

    def test_progress_on_a_terminal(self):
        self.hub.pause, self.hub.piece = 0.3, 60000
        shown, _ = self.on_terminal("pull", "org/m", stderr=None, env={**os.environ, **self.env})
        self.assertRegex(shown.decode(), r"m-Q4_K_M.gguf +\d+ %  .*B of 322.4 kB  .*B/s  0:0\d left")
        self.assertEqual(self.pull("org/m", "-q").err, "")

    def test_names_on_the_terminal(self):
        self.hub.inject("m-Q4_K_M.gguf", (404, {"X-Error-Message": "bad \x1b[2J news"}, b""), server="cdn")
        self.assertNotIn("\x1b", self.refuses("org/m").err)


class SideBySide(Pull):
    FILES = {f"m-Q4_K_M-0000{i}-of-00008.gguf": random.Random(i).randbytes(100000 + i) for i in range(1, 9)}
    repositories = {"org/m": FILES}

    def test_several_files_at_once(self):
        for words, n in (([], 4), (["--connections", "8"], 8), (["--connections", "1"], 1)):
            self.hub.together = threading.Barrier(n, timeout=60)  # without as many no answer would come
            self.pull("org/m", *words)
            self.check("org/m", self.FILES)
            self.assertFalse(self.hub.together.broken)
            self.succeeds("rm", "org/m", env=self.env)
        self.hub.together = threading.Barrier(2, timeout=1)
        self.refuses("org/m", "--connections", "1", "--retries", "0", says="given up")
        self.assertTrue(self.hub.together.broken)

    def test_one_failure_ends_all(self):
        self.hub.inject("00003-of-00008", "404", server="cdn")
        self.hub.inject("00003-of-00008", "404", server="hub")
        self.hub.pause, self.hub.piece = 5, 10000  # the others would take minutes
        self.refuses("org/m", says="00003-of-00008")
        self.hub.stopped.set()
        self.hub.pause, self.hub.faults = 0, []
        self.pull("org/m")
        self.check("org/m", self.FILES)

    def test_all_of_them_go_on(self):
        for path in self.FILES:
            self.hub.inject(path, "truncate", server="cdn")
        self.refuses("org/m", "--retries", "0", says="given up")
        before = len(self.hub.requests)
        self.pull("org/m")
        self.check("org/m", self.FILES)
        again = [headers for server, _, headers in self.hub.requests[before:] if server == "cdn" and "Range" in headers]
        self.assertGreaterEqual(len(again), 1)


class Randomly(Pull):
    """Many faults one after the other; every file that comes out of it has the right bytes."""

    KINDS = ["reset", "truncate", "short-length", "chunked", "drop", "garbage", "500", "503", "429", "408", "416", "no-range", "bad-range",
             "other-total", "long-length", "wrong", "too-much"]  # fmt: skip
    CASES = cases(12, 60)
    LEAST = 24 if CASES == 12 else CASES * 10 // 3

    def test_faults(self):
        numbers = random.Random(20261127)
        happened = 0
        for case in range(self.CASES):
            files = {"config.json": b"{}", **{f"m-Q4_K_M-0000{i}-of-00003.gguf": numbers.randbytes(numbers.randrange(1, 200000)) for i in (1, 2, 3)}}
            name = f"org/m{case}"
            self.hub = Hub({name: files})
            self.env["HF_ENDPOINT"] = self.hub.address
            self.hub.cut = lambda n: numbers.randrange(n + 1)
            self.hub.etags, self.hub.ranges, self.hub.redirects = (numbers.random() < 0.8 for _ in range(3))
            injected = 0
            for path in files:
                kinds = [numbers.choice(self.KINDS) for _ in range(numbers.randrange(4))]
                for kind in [kind for i, kind in enumerate(kinds) if kind not in ("wrong", "too-much") or kinds[:i].count(kind) < 1]:
                    self.hub.inject(path, kind)
                    injected += 1
            for part in ("/tree/", "/revision/"):
                self.hub.inject(part, numbers.choice(["drop", "500", "429"]))
                injected += 1
            kill = numbers.random() < 0.3
            if kill:
                self.hub.pause, self.hub.piece = 0.002, 4096
                self.kills("pull", name, "-q", *PATIENT, env=self.env, after=numbers.random() / 4)
                self.hub.pause = 0
            self.pull(name, "--retries", "20")
            self.check(name, files)
            happened += injected - sum(each[3] for each in self.hub.faults)
            self.hub.close()
        self.assertGreaterEqual(happened, self.LEAST)


if __name__ == "__main__":
    unittest.main()
