"""Commands in the documents exist, and so do their options; the generated pages link to each other."""

import functools
import pathlib
import re
import shlex
import sys
import unittest

from support import HEARTH, CommandTest, hearth

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
import docs  # noqa: E402


def commands(text):
    """Command lines of hearth in the code of a document, as words."""
    for block in re.findall(r"^```(?:text|sh)?\n(.*?)^```|((?:^    .*\n)+)", text, re.M | re.S):
        code = "".join(block).replace("\\\n", " ")
        for line in re.findall(r"^ *(?:\$ )?(?:\S*/)?hearth (.*)$", code, re.M):
            yield shlex.split(re.sub(r"\s(&&|\||[<>]) .*", "", line), comments=True)


@functools.cache
def options_of(command):
    """The options that --help lists; None for a command that does not exist."""
    done = hearth(command, "--help")
    return None if done.status else set(re.findall(r"(?:^|[ ,])(--?[a-z][\w-]*)(?=[ ,\n])", done.text))


class Documents(CommandTest):
    def test_commands(self):
        n = 0
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "python/README.md", ROOT / "bench/README.md"]:
            for command, *words in commands(path.read_text()):
                with self.subTest(f"{path.relative_to(ROOT)}: hearth {' '.join([command, *words])}"):
                    known = options_of(command)
                    self.assertIsNotNone(known, "a command that does not exist")
                    used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
                    self.assertLessEqual(used, known | {"--help"})
                    n += 1
        self.assertGreater(n, 50)

    def test_pages(self):
        docs.write_pages(HEARTH, self.folder)
        self.assertIn("## hearth run\n", (self.folder / "cli.md").read_text())
        for page in self.folder.rglob("*.md"):
            for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                self.assertTrue("://" in target or (page.parent / target).exists(), f"{page.name} links to {target}")


if __name__ == "__main__":
    unittest.main()
