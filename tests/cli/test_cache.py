"""Models in the cache: hearth list, hearth rm, and their names in the place of paths."""

import os
import shutil
import unittest

from support import TINY, CommandTest, hearth, tiny_model


class Cache(CommandTest):
    def setUp(self):
        super().setUp()
        self.models = self.folder / "hearth" / "models"
        self.env = {"XDG_CACHE_HOME": str(self.folder), "HOME": str(self.folder)}

    def put(self, *names):
        for name in names:
            path = self.models / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(TINY, path)

    def names(self):
        value = self.succeeds("list", "--json", env=self.env).json
        return [each["model"] for each in value["checkpoints"]]

    def test_names(self):
        self.assertIn("no models", self.succeeds("list", env=self.env).text)
        self.put("b.gguf", "people/a.gguf")
        tiny_model.write(self.models / "vocabulary.gguf", with_weights=False)
        self.assertEqual(self.names(), ["b", "people/a"])
        text = self.succeeds("list", env=self.env).text
        self.assertRegex(text, r"llama .* b\n.*people/a\n")

    def test_a_name_is_a_model(self):
        self.put("b.gguf", "people/a.gguf")
        for name in ("b", "people/a", "b.gguf"):
            text = self.succeeds("tokenize", name, "hello", env=self.env).text
            self.assertEqual(text, self.succeeds("tokenize", TINY, "hello").text)
        here = self.write("b", "no model")
        result = hearth("tokenize", "b", "hello", env=self.env, cwd=self.folder)  # a file that is there goes first
        self.assertEqual(result.status, 1)
        self.assertIn("nowhere", self.fails(1, "tokenize", "nowhere", "hello", env=self.env).err)

    def test_removal(self):
        outside = self.folder / "outside.gguf"
        shutil.copy(TINY, outside)
        self.put("b.gguf", "people/a.gguf", "c.gguf", "c.gguf.part", "d/model-00001-of-00002.gguf",
                 "d/model-00002-of-00002.gguf")  # fmt: skip
        (self.models / "d" / "notes.txt").write_text("stay")
        self.succeeds("rm", "people/a", "b", env=self.env)
        self.assertFalse((self.models / "people").exists())
        self.assertFalse((self.models / "b.gguf").exists())
        for name in ("nothing", "../../outside", str(outside), "../outside", ".", ""):
            self.fails(1, "rm", name, says="there is no model", env=self.env)
        self.assertTrue(outside.exists())
        for name in self.names():
            self.succeeds("rm", name, env=self.env)
        left = sorted(str(path.relative_to(self.models)) for path in self.models.rglob("*"))
        self.assertEqual(left, ["c.gguf.part", "d", "d/notes.txt"])
        self.fails(2, "rm", says="needed", env=self.env)

    def test_a_directory_goes_as_a_whole(self):
        source = os.path.join(os.path.dirname(__file__), "..", "golden", "tiny", "llama-llama3-f16-shards")
        shutil.copytree(source, self.models / "org" / "m")
        (self.models / "org" / "m" / "link").symlink_to(self.folder)
        self.assertEqual(self.names(), ["org/m"])
        self.succeeds("rm", "org/m", env=self.env)
        self.assertFalse((self.models / "org").exists())
        self.assertTrue(self.folder.exists())


class FirstWords(CommandTest):
    def test_without_arguments_it_says_what_to_type(self):
        env = {"XDG_CACHE_HOME": str(self.folder)}
        result = hearth(env=env)
        self.assertEqual(result.status, 2)
        self.assertIn("scripts/fetch-model", result.err)
        default = self.folder / "hearth" / "models" / "smollm2-135m.gguf"
        default.parent.mkdir(parents=True)
        shutil.copy(TINY, default)
        self.assertIn("hearth chat default", hearth(env=env).err)


if __name__ == "__main__":
    unittest.main()
