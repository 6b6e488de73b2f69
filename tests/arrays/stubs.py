"""The typed stubs say what the package is, and programs check against them. mypy is used where it is installed. Run from the
repository root with PYTHONPATH=python and HEARTH_LIBRARY naming the library."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import hearth

SUBMODULES = ("random", "fast", "linalg", "losses", "optimizers")
PACKAGE = pathlib.Path("python/hearth")
WRONG = """import hearth as mx
a = mx.zeros((2, 3))
a.sum(axis="rows")
mx.reshape(a)
b: str = a + 1
mx.exp(a, stream="cpu")
mx.random.normal(shape="3")
"""


class Stubs(unittest.TestCase):
    def test_they_are_what_the_tool_writes(self):
        done = subprocess.run([sys.executable, "tools/python_stubs.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_and_signatures_are_the_package_s(self):
        for name, module in [("__init__", hearth), *((name, getattr(hearth, name)) for name in SUBMODULES)]:
            tree = ast.parse((PACKAGE / f"{name}.pyi").read_text())
            functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
            classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
            constants = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
            public = {n for n in module.__all__ if not inspect.ismodule(getattr(module, n))}
            self.assertEqual(functions.keys() | classes | (constants - {"ArrayLike", "StreamOrDevice"}), public)
            for function, node in functions.items():
                with self.subTest(f"{name}.{function}"):
                    a = node.args
                    stub = [x.arg for x in [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg] if x]
                    self.assertEqual(stub, list(inspect.signature(getattr(module, function)).parameters))
                    self.assertEqual(len(a.defaults), sum(
                        p.default is not p.empty and p.kind is not p.KEYWORD_ONLY
                        for p in inspect.signature(getattr(module, function)).parameters.values()
                    ))  # fmt: skip


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class Checked(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as work:
            for name, text in files.items():
                (pathlib.Path(work) / name).write_text(text)
            command = [sys.executable, "-m", "mypy", "--check-untyped-defs", "--cache-dir", f"{work}/cache", *files]
            environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent.resolve())}
            done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def test_the_example_programs(self):
        page = pathlib.Path("docs/arrays.md").read_text()
        programs = {p.name: p.read_text() for p in pathlib.Path("examples/python").glob("*.py")}
        programs["page.py"] = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)[0]
        page = pathlib.Path("docs/finetune.md").read_text()
        programs |= {f"finetune{i}.py": t for i, t in enumerate(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))}
        programs = {n: t.replace("import mlx.core as mx", "import hearth as mx") for n, t in programs.items()}
        status, text = self.check(programs)
        self.assertEqual(status, 0, text)

    def test_mistakes_are_found(self):
        status, text = self.check({"wrong.py": WRONG})
        self.assertEqual(status, 1, text)
        self.assertEqual({int(n) for n in re.findall(r"wrong.py:(\d+): error", text)}, {3, 4, 5, 6, 7}, text)


if __name__ == "__main__":
    unittest.main()
