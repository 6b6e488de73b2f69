"""What `hearth discover` finds, and that nothing under a directory stops it."""

import json
import os
import pathlib
import shutil
import unittest

from support import TINY, CommandTest, tiny_model

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tiny"


class Discover(CommandTest):
    def discover(self, folder=None):
        value = self.succeeds("discover", folder or self.folder, "--json").json
        paths = [each["path"] for each in value["checkpoints"]]
        return paths, value

    def put(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(TINY, path)

    def test_what_a_find_says(self):
        self.put("a.gguf")
        shutil.copytree(GOLDEN / "llama-llama3-f16-shards", self.folder / "b")
        paths, value = self.discover()
        self.assertEqual(paths, [f"{self.folder}/a.gguf", f"{self.folder}/b"])
        one, sharded = value["checkpoints"]
        expected = {
            "architecture": "llama",
            "name": "tiny",
            "format": "gguf",
            "runs": True,
            "quantization": "F32",
            "file_bytes": TINY.stat().st_size,
            "files": 1,
            "context": tiny_model.CONTEXT,
        }
        self.assertEqual({key: one[key] for key in expected}, expected)
        shards = list((self.folder / "b").glob("*.safetensors"))
        self.assertEqual((sharded["format"], sharded["quantization"]), ("safetensors", "F16"))
        self.assertEqual((sharded["files"], sharded["file_bytes"]), (len(shards), sum(s.stat().st_size for s in shards)))
        self.assertGreater(len(shards), 1)

    def test_order_and_what_is_skipped(self):
        self.put("z.gguf", "m/b.gguf", "m/a.gguf", "m/deep/er/c.gguf", "n.gguf")
        self.put(".hidden/a.gguf", ".b.gguf", "m/.c.gguf", "mmproj-vision.gguf")
        (self.folder / "notes.txt").write_text("nothing")
        weights = self.folder / "m" / "imatrix.gguf"
        self.succeeds("imatrix", TINY, "--ids", "1,2,3", "--out", weights)
        self.fails(1, "info", weights, says=["imatrix.gguf", "`general.type` is `imatrix`", "this is no model"])
        self.write("lora/adapter_model.safetensors", "no model")
        paths, value = self.discover()
        names = [path[len(str(self.folder)) + 1 :] for path in paths]
        self.assertEqual(names, ["n.gguf", "z.gguf", "m/a.gguf", "m/b.gguf", "m/deep/er/c.gguf"])
        self.assertEqual(value["broken"], [])

    def test_a_hidden_folder_may_be_named(self):
        self.put(".cache/a.gguf")
        self.assertEqual(len(self.discover(self.folder / ".cache")[0]), 1)

    def test_links(self):
        self.put("in/a.gguf")
        (self.folder / "in" / "circle").symlink_to(self.folder)
        (self.folder / "in" / "self").symlink_to("self")
        (self.folder / "other").symlink_to("in")
        (self.folder / "file.gguf").symlink_to(TINY)
        (self.folder / "gone.gguf").symlink_to("nowhere")
        paths, value = self.discover()
        self.assertEqual(paths, [f"{self.folder}/file.gguf", f"{self.folder}/in/a.gguf"])
        self.assertEqual([each["path"] for each in value["broken"]], [f"{self.folder}/gone.gguf"])

    def test_broken_ones_are_reported(self):
        self.put("good.gguf")
        (self.folder / "cut.gguf").write_bytes(TINY.read_bytes()[:5200])
        (self.folder / "empty.gguf").write_bytes(b"")
        os.mkfifo(self.folder / "pipe.gguf")
        for name, keep in [("no-config", "*.safetensors"), ("no-weights", "*.json")]:
            (self.folder / name).mkdir()
            for file in (GOLDEN / "llama-llama3-f16-shards").glob(keep):
                shutil.copy(file, self.folder / name)
        other = self.folder / "other-family"
        shutil.copytree(GOLDEN / "llama-f32", other)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, "model_type": "quux"}))
        fewer = self.folder / "fewer-tensors"
        shutil.copytree(GOLDEN / "llama-f32", fewer)
        (fewer / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
        paths, value = self.discover()
        self.assertEqual(paths, [f"{self.folder}/good.gguf"])
        reasons = {each["path"][len(str(self.folder)) + 1 :]: each["problem"] for each in value["broken"]}
        names = ["cut.gguf", "empty.gguf", "fewer-tensors", "no-config", "no-weights", "other-family", "pipe.gguf"]
        self.assertEqual(sorted(reasons), names)
        self.assertIn("no config.json", reasons["no-config"])
        self.assertIn("quux", reasons["other-family"])
        self.assertIn("`model.layers.2.input_layernorm.weight` is missing", reasons["fewer-tensors"])
        self.assertIn("pipe", reasons["pipe.gguf"])
        text = self.succeeds("discover", self.folder).text
        for reason in reasons.values():
            self.assertIn(reason, text)

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_unreadable_folders(self):
        self.put("a.gguf", "secret/b.gguf")
        (self.folder / "secret").chmod(0)
        paths, value = self.discover()
        (self.folder / "secret").chmod(0o700)
        self.assertEqual(paths, [f"{self.folder}/a.gguf"])
        self.assertEqual([each["path"] for each in value["broken"]], [f"{self.folder}/secret"])

    def test_other_families_and_vocabularies(self):
        tiny_model.write(self.folder / "a.gguf", architecture="quux")
        tiny_model.write(self.folder / "b.gguf", with_weights=False)
        paths, value = self.discover()
        self.assertEqual([each["runs"] for each in value["checkpoints"]], [False, False])
        text = self.succeeds("discover", self.folder).text
        self.assertIn("cannot run", text)
        self.assertIn("no weights", text)

    def test_file_types(self):
        """A mix is called by its name, not by the type that most of its bytes have."""
        tiny_model.write(self.folder / "a.gguf", file_type=15)
        one = self.discover()[1]["checkpoints"][0]
        self.assertEqual((one["file_type"], one["quantization"]), ("Q4_K_M", "F32"))
        self.assertRegex(self.succeeds("discover", self.folder).text, r"(?m)^llama .* MB +Q4_K_M ")

    def test_parts_count_once(self):
        self.put("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b-00001-of-00002.gguf", "b.gguf")
        names = [path[len(str(self.folder)) + 1 :] for path in self.discover()[0]]
        self.assertEqual(names, ["a-00001-of-00002.gguf", "b-00001-of-00002.gguf", "b.gguf"])

    def test_deep_trees(self):
        path = self.folder
        for _ in range(300):
            path = path / "d"
        path.mkdir(parents=True)
        os.link(TINY, path / "a.gguf")
        self.assertEqual(self.discover()[0], [str(path / "a.gguf")])

    def test_text(self):
        self.assertEqual(self.succeeds("discover", self.folder).text, "no checkpoints\n")
        self.put("a\n.gguf")
        lines = self.succeeds("discover", self.folder).text.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1], r"^llama +0\.\d MB +F32 +1 +1048576 +.*/a\?\.gguf$")

    def test_mistakes(self):
        self.fails(2, "discover", says="directory")
        self.fails(1, "discover", self.folder / "none", says=["none", "cannot be read"])
        self.fails(1, "discover", TINY, says="cannot be read")
        self.fails(2, "discover", self.folder, self.folder)

    def test_finds_all_committed_checkpoints(self):
        paths, value = self.discover(GOLDEN)
        self.assertEqual(value["broken"], [])
        expected = [str(p) for p in GOLDEN.iterdir() if p.suffix == ".gguf" or p.is_dir()]
        self.assertEqual(sorted(paths), sorted(expected))


if __name__ == "__main__":
    unittest.main()
