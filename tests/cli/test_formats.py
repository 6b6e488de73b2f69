"""`hearth formats` says what the build reads, and docs/models.md says the same."""

import pathlib
import unittest

from support import CommandTest

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs/models.md"


class Formats(CommandTest):
    def test_json(self):
        value = self.succeeds("formats", "--json").json
        self.assertEqual(list(value), ["families", "gguf", "safetensors", "chat_formats"])
        self.assertIn("llama", value["families"])
        self.assertIn("Q4_K", value["gguf"])
        self.assertIn("BF16", value["safetensors"])
        self.assertNotIn("Q4_K", value["safetensors"])
        self.assertIn("chatml", value["chat_formats"])

    def test_models_page_is_not_stale(self):
        rows = self.succeeds("formats", "--markdown").text
        self.assertEqual(rows.count("\n"), 4)
        self.assertIn(rows, PAGE.read_text(), "put the output of `hearth formats --markdown` into docs/models.md")

    def test_text(self):
        self.assertIn("llama, mistral", self.succeeds("formats").text)
        self.fails(2, "formats", "x")


if __name__ == "__main__":
    unittest.main()
