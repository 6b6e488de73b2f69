"""Files of arrays, written and read by Hearth, NumPy and MLX for each other. Run with PYTHONPATH=python and HEARTH_LIBRARY
naming the library."""

import importlib.util
import io
import os
import pathlib
import tempfile
import unittest
import warnings
import zipfile

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
        for dtype in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8"):
            big = np.arange(24).reshape(2, 3, 4).astype(">" + dtype) * 3
            for values in (big, np.asfortranarray(big), big[:0], big[0, 0, 0]):
                np.save(self.path("big.npy"), values)
                np.savez(self.path("big.npz"), a=values)
                for a in (hx.load(self.path("big.npy")), hx.load(self.path("big.npz"))["a"], hx.load(io.BytesIO(pathlib.Path(self.path("big.npy")).read_bytes()))):
                    self.assertEqual(np.array(a).dtype.str[1:], dtype)
                    self.assertEqual(a.tolist(), values.tolist())
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

    def test_npz_of_others(self):
        path, x = self.path("x.npz"), np.arange(24.0).reshape(2, 3, 4)
        np.savez_compressed(path, turned=np.asfortranarray(x), zeros=np.zeros((300, 400)), noise=np.array(["text"]))
        with zipfile.ZipFile(path, "a") as archive:
            with archive.open("wide.npy", "w", force_zip64=True) as entry:
                np.save(entry, x)
            archive.comment = b"a comment" * 99
        with np.load(path) as n:
            with self.assertRaisesRegex(hx.Error, "noise"):
                hx.load(path)
            names = ("turned", "zeros", "wide")
            with zipfile.ZipFile(self.path("y.npz"), "w") as archive:
                [archive.writestr(f"{name}.npy", zipfile.ZipFile(path).read(f"{name}.npy")) for name in names]
            ours = hx.load(self.path("y.npz"))
            for name in names:
                self.assertTrue(np.array_equal(np.array(ours[name]), n[name]), name)
        hx.savez(self.path("none.npz"))
        self.assertEqual((hx.load(self.path("none.npz")), len(np.load(self.path("none.npz")))), ({}, 0))

    def test_what_archives_are_refused(self):
        path = self.path("x.npz")
        data = io.BytesIO()
        np.save(data, np.arange(9))
        for names, how in ((["a.npy", "a.npy"], zipfile.ZIP_STORED), (["a", "a.npy"], zipfile.ZIP_STORED), (["a.npy"], zipfile.ZIP_BZIP2)):
            with warnings.catch_warnings(), zipfile.ZipFile(path, "w", how) as archive:
                warnings.simplefilter("ignore")
                [archive.writestr(name, data.getvalue()) for name in names]
            self.assertRaisesRegex(hx.Error, "twice|compressed in another way", hx.load, path)

    def test_every_damaged_byte_is_noticed(self):
        path = self.path("x.npz")
        for save in (hx.savez, hx.savez_compressed):
            save(path, hx.arange(40), b=hx.array([1.5]))
            whole = pathlib.Path(path).read_bytes()
            for i in range(len(whole)):
                damaged = bytearray(whole)
                damaged[i] ^= 0x41
                pathlib.Path(path).write_bytes(damaged)
                try:
                    loaded = hx.load(path)
                except (hx.Error, ValueError, MemoryError):
                    continue
                # What has no meaning to a reader (times, versions), or is a name.
                self.assertEqual([a.tolist() for a in loaded.values()], [list(range(40)), [1.5]], f"byte {i}")

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

    def test_saving_gguf(self):
        path = self.path("x.gguf")
        names = "int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
        given = {n: hx.arange(6).astype(getattr(hx, n)).reshape(1, 2, 3) for n in names}
        given["turned"] = hx.arange(6.0).reshape(2, 3).T
        metadata = {
            "general.architecture": "none", "texts": ["a", "", "ü"], "n": hx.array(7, hx.uint8), "big": hx.array([2**40]),
            "x": hx.array(1.5), "flags": hx.array([True, False]), "empty": [], "many": hx.arange(1000, dtype=hx.uint16),
        }  # fmt: skip
        hx.save_gguf(path, given, metadata)
        loaded, read = hx.load(path, format="gguf", return_metadata=True)
        self.assertEqual({n: (a.tolist(), a.dtype) for n, a in loaded.items()}, {n: (a.tolist(), a.dtype) for n, a in given.items()})
        for key, value in metadata.items():
            plain = value.tolist() if isinstance(value, hx.array) else value
            self.assertEqual(read[key].tolist() if isinstance(read[key], hx.array) else read[key], plain, key)
        self.assertEqual((read["n"].dtype, read["many"].dtype, read["x"].dtype), (hx.uint8, hx.uint16, hx.float32))
        known = {n: a for n, a in given.items() if n in ("int8", "int16", "int32", "float16", "float32", "turned")}
        hx.save_gguf(path, known, {"k": "v", "n": hx.array([1, 2])})
        theirs, read = mx.load(path, return_metadata=True)
        self.same(known, theirs)
        self.assertEqual((read["k"], read["n"].tolist()), ("v", [1, 2]))

    @unittest.skipUnless(importlib.util.find_spec("gguf"), "the package gguf is not installed")
    def test_saved_gguf_is_what_its_package_reads(self):
        import gguf

        path = self.path("x.gguf")
        given = {"a": hx.arange(6.0).reshape(2, 3), "b": hx.arange(3).astype(hx.int64), "c": hx.ones((5,), hx.float16)}
        hx.save_gguf(path, given, {"general.architecture": "none", "texts": ["a", "bc"], "n": hx.array([1, 2, 3])})
        reader = gguf.GGUFReader(path)
        for tensor in reader.tensors:
            self.assertEqual(tensor.data.tolist(), given[tensor.name].tolist())
        self.assertEqual(sorted(t.name for t in reader.tensors), ["a", "b", "c"])
        self.assertEqual(reader.fields["texts"].contents(), ["a", "bc"])
        self.assertEqual(reader.fields["n"].contents(), [1, 2, 3])

    def test_what_gguf_does_not_hold(self):
        path = self.path("x.gguf")
        for a in (hx.array(1.0), hx.zeros((0,)), hx.array([True]), hx.ones((1, 1, 1, 1, 1))):
            self.assertRaises(ValueError, hx.save_gguf, path, {"a": a})
        for value in (hx.ones((2, 2)), float("inf"), hx.array([1], hx.float16)):
            self.assertRaises(ValueError, hx.save_gguf, path, {"a": hx.ones(3)}, {"k": value})
        self.assertRaises(ValueError, hx.save_gguf, path, {"a": hx.ones(3)}, {"general.alignment": 8})
        self.assertEqual(os.listdir(self.directory.name), [])

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
