"""Files of arrays, written and read by Hearth, NumPy and MLX for each other. Run with PYTHONPATH=python and HEARTH_LIBRARY
naming the library."""

import io
import os
import pathlib
import tempfile
import unittest

import mlx.core as mx
import numpy as np

import hearth as hx

NAMES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32".split()


def arrays(m):
    made = {n: m.arange(6).astype(getattr(m, n)).reshape(2, 3) for n in NAMES}
    return {**made, "scalar": m.array(2.5), "empty": m.zeros((0, 3)), "turned": m.arange(6.0).reshape(2, 3).T}


class Files(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = lambda name: str(pathlib.Path(self.directory.name, name))

    def tearDown(self):
        self.directory.cleanup()

    def same(self, ours, theirs):
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, a in ours.items():
            b = theirs[name]
            self.assertEqual((name, a.tolist(), a.shape, a.dtype.name), (name, b.tolist(), b.shape, f"{b.dtype}"[9:].replace("bool", "bool_")))

    def test_npy(self):
        for name, a in arrays(hx).items():
            hx.save(self.path("ours"), a)
            self.same({name: a}, {name: mx.load(self.path("ours.npy"))})
            mx.save(self.path("theirs.npy"), arrays(mx)[name])
            self.same({name: hx.load(self.path("theirs.npy"))}, {name: arrays(mx)[name]})
        x = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
        np.save(self.path("x.npy"), x)
        self.assertEqual(hx.load(self.path("x.npy")).tolist(), x.tolist())
        hx.save(self.path("y.npy"), hx.array([[1, 2], [3, 4]]))
        self.assertEqual(np.load(self.path("y.npy")).tolist(), [[1, 2], [3, 4]])

    def test_npz(self):
        for ours, theirs in ((hx.savez, mx.savez), (hx.savez_compressed, mx.savez_compressed)):
            ours(self.path("ours.npz"), hx.array([7]), **arrays(hx))
            self.same({"arr_0": hx.array([7]), **arrays(hx)}, mx.load(self.path("ours.npz")))
            theirs(self.path("theirs.npz"), mx.array([7]), **arrays(mx))
            self.same(hx.load(self.path("theirs.npz")), {"arr_0": mx.array([7]), **arrays(mx)})
        stream = io.BytesIO()
        np.savez(stream, a=np.arange(3))
        stream.seek(0)
        self.assertEqual(hx.load(stream)["a"].tolist(), [0, 1, 2])

    def test_safetensors(self):
        hx.save_safetensors(self.path("ours"), arrays(hx), {"format": "mlx", "ü": "x"})
        loaded, metadata = mx.load(self.path("ours.safetensors"), return_metadata=True)
        self.same(arrays(hx), loaded)
        self.assertEqual(metadata, {"format": "mlx", "ü": "x"})
        mx.save_safetensors(self.path("theirs"), arrays(mx), {"a": "b"})
        loaded, metadata = hx.load(self.path("theirs.safetensors"), return_metadata=True)
        self.same(loaded, arrays(mx))
        self.assertEqual(metadata, {"a": "b"})
        hx.save_safetensors(self.path("none"), {})
        self.assertEqual(hx.load(self.path("none.safetensors")), {})

    def test_gguf(self):
        rng = np.random.default_rng(0)
        file = self.path("x.gguf")
        values = mx.array(rng.standard_normal((4, 64)).astype(np.float32))
        metadata = {"name": "x", "list": ["a", "b"], "n": mx.array(3, mx.uint32), "f": mx.array([1.5, 2.5])}
        mx.save_gguf(file, {"a.weight": values, "b": values.astype(mx.float16)}, metadata)
        ours, theirs = hx.load(file, return_metadata=True), mx.load(file, return_metadata=True)
        self.same(ours[0], theirs[0])
        self.assertEqual((ours[1]["name"], ours[1]["list"], ours[1]["n"].item(), ours[1]["f"].tolist()), ("x", ["a", "b"], 3, [1.5, 2.5]))

    @unittest.skipUnless(os.environ.get("HEARTH_TEST_MODELS"), "HEARTH_TEST_MODELS names no models")
    def test_a_quantised_gguf(self):
        file = str(pathlib.Path(os.environ["HEARTH_TEST_MODELS"], "smollm2-135m.gguf"))
        ours, theirs = hx.load(file, return_metadata=True), mx.load(file, return_metadata=True)
        self.assertEqual(sorted(ours[0]), sorted(theirs[0]))
        for name in list(theirs[0])[::7]:
            a, b = ours[0][name], theirs[0][name]
            self.assertEqual((a.shape, f"{b.dtype}"[9:]), (b.shape, a.dtype.name))
            self.assertTrue(np.array_equal(np.array(a), np.array(b)), name)
        for name, value in theirs[1].items():
            self.assertEqual(ours[1][name] if isinstance(value, (str, list)) else ours[1][name].tolist(), value if isinstance(value, (str, list)) else value.tolist(), name)

    def test_a_failed_save_leaves_the_old_file(self):
        path = self.path("a.safetensors")
        hx.save_safetensors(path, {"x": hx.array([1])})
        bad = hx.full((2**44,), 1.0)
        for save in (lambda: hx.save_safetensors(path, {"x": bad}), lambda: hx.save_safetensors(path, {"__metadata__": hx.array([1])})):
            self.assertRaises((MemoryError, ValueError), save)
        self.assertEqual(hx.load(path)["x"].tolist(), [1])
        self.assertEqual(os.listdir(self.directory.name), ["a.safetensors"])

    def test_damaged_files_are_errors(self):
        hx.save(self.path("a.npy"), hx.arange(100))
        hx.savez_compressed(self.path("a.npz"), hx.arange(100))
        hx.save_safetensors(self.path("a.safetensors"), {"x": hx.arange(100)}, {"k": "v"})
        for name in ("a.npy", "a.npz", "a.safetensors"):
            whole = pathlib.Path(self.path(name)).read_bytes()
            for n in (0, 5, 11, 60, len(whole) // 2, len(whole) - 1):
                pathlib.Path(self.path(name)).write_bytes(whole[:n])
                with self.assertRaises(Exception, msg=f"{name} cut to {n}"):
                    hx.load(self.path(name))
        self.assertRaises(OSError, hx.load, self.path("missing.npy"))
        self.assertRaises(ValueError, hx.load, self.path("a.txt"))


if __name__ == "__main__":
    unittest.main()
