"""Compares the backend `mlx_lm`, which runs mlx-lm in a child process, with this library on the same checkpoints.

    PYTHONPATH=python HEARTH_LIBRARY=build/release/lib/libhearth.so python tests/golden/mlx_backend.py [HEARTH]

The interpreter that runs this is the child's, too. Checkpoints are some of tests/golden/tiny, and one
with the tokenizer of tests/cli/tiny_model.py. Compared are greedy answers, answers sampled with every option in many orders
(the same seed draws the same tokens), conversations with a reused cache, stop strings, adapters with a scale, keys and values
(with those that mlx-lm computes here); cancelled in the middle are calls whose successors must be right; then mistakes.
HEARTH is the command, which has to print the same answer with either backend. Needs mlx and mlx-lm.
"""

import ctypes
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_void_p

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import mlx.core as mx  # noqa: E402
import mlx_stand_in  # noqa: E402
import numpy as np  # noqa: E402
import tiny_model  # noqa: E402
from hearth import _library as lib  # noqa: E402
from hearth import _structs as s  # noqa: E402

TINY, ADAPTERS = HERE / "tiny", HERE / "adapters"
FAMILIES = ["llama-f32", "qwen2-f32", "qwen3-f32", "qwen3-mlx5-f32", "gemma3-f32"]  # f32: others are rounded otherwise
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "token_embd": "model.embed_tokens", "output_norm": "model.norm",
}  # fmt: skip
TEXT = CFUNCTYPE(c_bool, c_void_p, c_size_t, c_void_p)
ANSWER = CFUNCTYPE(c_bool, POINTER(s.ht_answer_piece), c_void_p)
KEYS = CFUNCTYPE(c_bool, POINTER(s.ht_backend_keys), c_void_p)


def declare(name, *arguments):
    return lib.declare(name, c_int, *arguments, POINTER(s.ht_error))


load_model = declare("ht_backend_load", c_char_p, c_char_p, c_void_p, POINTER(c_void_p))
close_model = lib.declare("ht_backend_close", None, c_void_p)
generate = declare("ht_backend_generate", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
chat = declare("ht_backend_chat", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
get_info = declare("ht_backend_get_info", c_void_p, c_void_p)
inspect = declare("ht_backend_inspect", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
chat_from_json = declare("ht_chat_from_json", c_char_p, c_size_t, POINTER(c_void_p))
chat_free = lib.declare("ht_chat_free", None, c_void_p)
request_cancel = lib.declare("ht_cancel_request", None, c_void_p)


def write_checkpoint(folder):
    """The tiny model of the command's tests as safetensors with config.json and tokenizer.json."""
    weights, vocabulary = {}, tiny_model.vocabulary()
    for name, shape, numbers in tiny_model.tensors():
        parts = name.removesuffix(".weight").split(".")
        place = LAYER[parts[-1]] if len(parts) == 1 else f"model.layers.{parts[1]}.{LAYER[parts[2]]}"
        weights[place + ".weight"] = mx.array(np.array(numbers, np.float32).reshape(shape[::-1]))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": tiny_model.HIDDEN,
        "intermediate_size": tiny_model.FEED_FORWARD, "num_hidden_layers": tiny_model.LAYERS,
        "num_attention_heads": tiny_model.HEADS, "num_key_value_heads": tiny_model.KV_HEADS, "rms_norm_eps": 1e-5,
        "vocab_size": len(vocabulary), "max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "eos_token_id": 2, "bos_token_id": 1, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    mlx_stand_in.write_tokenizer(folder)


GREEDY = {"temperature": 0, "top_p": 1, "min_p": 0}  # only what a test sets is on


class Model:
    """A model of a backend. The native one computes as exactly as it can."""

    def __init__(self, backend, path, adapter=None, scale=1.0):
        exact = lib.options(s.ht_model_options, precision=s.HT_PRECISION_REFERENCE, kv_dtype=s.HT_F32)
        adapters = (c_char_p * 1)(str(adapter).encode())
        scales = (ctypes.c_float * 1)(scale)
        how = lib.options(s.ht_backend_options, python=sys.executable.encode())
        if backend == "native":
            how.model = ctypes.pointer(exact)
        if adapter:
            how.adapters, how.adapter_scales, how.n_adapters = adapters, ctypes.addressof(scales), 1
        self.handle = c_void_p()
        lib.check(load_model, backend.encode(), str(path).encode(), byref(how), byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        close_model(self.handle)

    def generate(self, prompt, stop=(), on_text=None, sampler=None, cancel=None, **options):
        """(ids, text, metrics) of the answer to a text or ids; text without a reader is that of ids alone."""
        sampler = lib.options(s.ht_sampler_options, **{**GREEDY, **(sampler or {})})
        stops = (c_char_p * len(stop))(*[text.encode() for text in stop])
        how = lib.options(s.ht_generate_options, **{"max_tokens": 24, **options})
        how.sampler, how.stop, how.n_stop = ctypes.pointer(sampler), stops, len(stop)
        if cancel:
            how.cancel = ctypes.pointer(cancel)
        ids, pieces, metrics = (c_int32 * how.max_tokens)(), [], s.ht_metrics()
        is_text = isinstance(prompt, str)
        given = None if is_text else (c_int32 * len(prompt))(*prompt)
        ask = s.ht_backend_prompt(text=prompt.encode()) if is_text else s.ht_backend_prompt(ids=ctypes.addressof(given), n_ids=len(prompt))

        def read(text, n, _):
            pieces.append(ctypes.string_at(text, n).decode())
            return on_text is None or on_text(pieces)

        reader = TEXT(read) if is_text else None
        lib.check(generate, self.handle, byref(ask), byref(how), reader, None, ids, byref(metrics))
        return ids[: metrics.generated_tokens], "".join(pieces), metrics

    def chat(self, messages, **options):
        how, pieces, metrics = lib.options(s.ht_generate_options, **{"max_tokens": 24, **options}), [], s.ht_metrics()
        greedy = lib.options(s.ht_sampler_options, **GREEDY)
        how.sampler = ctypes.pointer(greedy)
        data, conversation = json.dumps({"messages": messages}).encode(), c_void_p()
        lib.check(chat_from_json, data, len(data), byref(conversation))

        def read(piece, _):
            pieces.append(ctypes.string_at(piece[0].text, piece[0].n).decode())
            return True

        lib.check(chat, self.handle, conversation, byref(how), ANSWER(read), None, byref(metrics))
        chat_free(conversation)
        return "".join(pieces), metrics

    def keys(self, ids):
        """[(layer, head, keys, values)] of a prompt."""
        given, found = (c_int32 * len(ids))(*ids), []

        def read(k, _):
            shape = (k[0].n_tokens, k[0].head_dim)
            numbers = [np.ctypeslib.as_array(ctypes.cast(p, POINTER(ctypes.c_float)), shape).copy() for p in (k[0].keys, k[0].values)]
            found.append((k[0].layer, k[0].head, *numbers))
            return True

        ask = s.ht_backend_prompt(ids=ctypes.addressof(given), n_ids=len(ids))
        lib.check(inspect, self.handle, byref(ask), None, KEYS(read), None)
        return found

    def info(self):
        info = s.ht_backend_info()
        lib.check(get_info, self.handle, byref(info))
        return info


def draw_sampler(numbers):
    """Any options of the sampler, some of them off, in any order."""
    names = ["repeat_penalty", "temperature", "top_p", "top_k", "min_p"]
    options = {
        "temperature": numbers.choice([0.5, 1.0, 1.7]),
        "top_k": numbers.choice([0, 0, 3, 20, 1000]),
        "top_p": numbers.choice([0, 0, 0.3, 0.9, 1]),
        "min_p": numbers.choice([0, 0, 0.02, 0.3]),
        "repeat_penalty": numbers.choice([1, 0.7, 1.3, 2]),
        "repeat_window": numbers.choice([0, 4, 64, -1]),
        "presence_penalty": numbers.choice([0, 0, 0.6, -1.5]),
        "frequency_penalty": numbers.choice([0, 0, 0.4, -0.3, 2]),
        "seed": numbers.choice([0, 7, 2**63 + 11, 2**64 - 1]),
        "order": ",".join(numbers.sample(names, numbers.randint(1, 5))).encode(),
    }
    if numbers.random() < 0.15:
        options["temperature"] = 0
    if numbers.random() < 0.4:
        ids = numbers.sample(range(20), numbers.randint(1, 9))
        options["n_logit_bias"] = len(ids)
        options["logit_bias"] = ctypes.pointer((s.ht_logit_bias * len(ids))(*((i, numbers.choice([-100, -1.5, 2.5])) for i in ids))[0])
    return options


class Backend(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.scratch.name)
        write_checkpoint(cls.path)
        cls.mlx, cls.native = Model("mlx_lm", cls.path), Model("native", cls.path)

    @classmethod
    def tearDownClass(cls):
        close_model(cls.mlx.handle)
        close_model(cls.native.handle)
        cls.scratch.cleanup()

    def both(self, method, *arguments, **options):
        mine, expected = (getattr(m, method)(*arguments, **options) for m in (self.mlx, self.native))
        self.assertEqual(mine[:-1], expected[:-1], f"{arguments} {options}")
        for name in ["generated_tokens", "prompt_tokens", "reused_tokens", "finish", "stop", "stop_id"]:
            self.assertEqual(getattr(mine[-1], name), getattr(expected[-1], name), name)
        return mine

    def test_info(self):
        info, expected = self.mlx.info(), self.native.info()
        for name in ["architecture", "context", "vocab", "n_layers", "chat_format"]:
            self.assertEqual(getattr(info, name), getattr(expected, name), name)
        self.assertRegex(info.engine.decode(), r"^mlx-lm [\d.]+, mlx [\d.]+")
        self.assertIn(info.device, [b"cpu", b"gpu"])
        self.assertGreater(info.memory_bytes, 100000)

    def test_greedy_answers(self):
        for prompt in ["hello world", "", "the the the", "<|im_start|>user\nh\u00e9llo \U0001f600<|im_end|>\n"]:
            if prompt:
                self.both("generate", prompt, max_tokens=60)
        _, _, metrics = self.both("generate", "hello", max_tokens=1)
        self.assertEqual(metrics.finish, s.HT_FINISH_LENGTH)

    def test_families(self):
        numbers = random.Random(5)
        for name in FAMILIES:
            with self.subTest(name), Model("mlx_lm", TINY / name) as mlx, Model("native", TINY / name) as native:
                for length in [1, 7, 60]:
                    ids = [numbers.randrange(3, native.info().vocab) for _ in range(length)]
                    self.assertEqual(mlx.generate(ids)[0], native.generate(ids)[0], length)

    def test_sampled_answers(self):
        numbers = random.Random(3)
        for _ in range(60):
            self.both("generate", "hello the world", sampler=draw_sampler(numbers), ignore_eos=numbers.random() < 0.5)

    def test_sampling_depends_on_the_seed_alone(self):
        answers = [self.mlx.generate("hello", sampler={"temperature": 1.5, "seed": seed})[0] for seed in [1, 2, 1]]
        self.assertEqual(answers[0], answers[2])
        self.assertNotEqual(answers[0], answers[1])

    def test_stop_strings(self):
        _, whole, _ = self.both("generate", "hello world")
        for stop in [[whole[2:5]], [whole[7:9], "never"], [whole[-1]]]:
            _, text, metrics = self.both("generate", "hello world", stop=stop)
            self.assertTrue(whole.startswith(text) and stop[0] not in text)
            self.assertEqual(metrics.finish, s.HT_FINISH_STOP)

    def test_stop_ids(self):
        """An answer that ends by itself: the seed is one whose answer does."""
        for seed in range(200):
            sampler = {"temperature": 2.0, "seed": seed}
            ids, _, metrics = self.mlx.generate("hello", sampler=sampler, max_tokens=100)
            if metrics.finish == s.HT_FINISH_STOP:
                break
        self.assertEqual(metrics.finish, s.HT_FINISH_STOP)
        self.both("generate", "hello", sampler=sampler, max_tokens=100)
        longer, _, _ = self.both("generate", "hello", sampler=sampler, max_tokens=100, ignore_eos=True)
        self.assertEqual(len(longer), 100)
        self.assertEqual(longer[: len(ids)], ids)

    def test_conversations_go_on_from_the_cache(self):
        messages = [{"role": "user", "content": "hello <|im_end|> world"}]
        for turn in range(4):
            text, metrics = self.mlx.chat(messages)
            expected, _ = self.native.chat(messages)
            self.assertEqual(text, expected, turn)
            self.assertEqual(metrics.reused_tokens > 0, turn > 0)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "the world " * turn}]
        text, metrics = self.mlx.chat(messages[:1])  # shorter than what is held
        self.assertEqual(text, self.native.chat(messages[:1])[0])
        self.assertEqual(metrics.prompt_tokens, 1)
        text, _ = self.mlx.chat([{"role": "user", "content": "other"}])
        self.assertEqual(text, self.native.chat([{"role": "user", "content": "other"}])[0])

    def test_cancelled_in_the_middle(self):
        _, expected, _ = self.native.generate("hello world", max_tokens=40)
        for pieces in [1, 3, 10]:
            flag = s.ht_cancel()

            def cancel(read, pieces=pieces, flag=flag):
                if len(read) >= pieces:
                    request_cancel(byref(flag))
                return True

            with self.assertRaisesRegex(lib.Error, "cancelled"):
                self.mlx.generate("hello world", on_text=cancel, cancel=flag, max_tokens=2000)
            self.assertEqual(self.mlx.generate("hello world", max_tokens=40)[1], expected)
        _, text, metrics = self.mlx.generate("hello world", on_text=lambda read: len(read) < 4, max_tokens=2000)
        self.assertEqual(metrics.finish, s.HT_FINISH_CALLBACK)
        self.assertTrue(text and expected.startswith(text))
        self.assertEqual(self.mlx.generate("hello world", max_tokens=40)[1], expected)

    def test_context(self):
        ids = [5] * 2040
        self.both("generate", ids, max_tokens=100, ignore_eos=True)
        for model in self.mlx, self.native:
            with self.assertRaisesRegex(lib.Error, "2048"):
                model.generate([5] * 2048)

    def test_keys_and_values(self):
        from mlx_lm.models.cache import make_prompt_cache
        from mlx_lm.utils import load_model as load_here

        ids = [5, 9, 70, 200, 31, 8]
        model, _ = load_here(self.path)
        cache = make_prompt_cache(model)
        model(mx.array(ids)[None], cache=cache)
        found = self.mlx.keys(ids)
        self.assertEqual([f[:2] for f in found], [(i, h) for i in range(tiny_model.LAYERS) for h in range(tiny_model.KV_HEADS)])
        for mine, of_hearth in zip(found, self.native.keys(ids), strict=True):
            self.assertEqual(mine[:2], of_hearth[:2])
            np.testing.assert_allclose(mine[2:], of_hearth[2:], rtol=1e-4, atol=1e-5)
        for layer, head, keys, values in found:
            for numbers, expected in (keys, cache[layer].keys), (values, cache[layer].values):
                np.testing.assert_allclose(numbers, np.array(expected[0, head, : len(ids)]), rtol=1e-5, atol=1e-5)

    def test_adapters(self):
        base, adapter, ids = TINY / "llama-f32", ADAPTERS / "mlx-llama", [3, 17, 40, 8, 21]
        answers = {}
        for scale in [1.0, 0.25, -2.0]:
            with Model("mlx_lm", base, adapter, scale) as mlx, Model("native", base, adapter, scale) as native:
                answers[scale] = mlx.generate(ids)[0]
                self.assertEqual(answers[scale], native.generate(ids)[0], scale)
        self.assertEqual(len(set(map(tuple, answers.values()))), 3)
        with self.assertRaisesRegex(lib.Error, "is an adapter of PEFT: .*--to mlx"):
            Model("mlx_lm", base, ADAPTERS / "peft-llama")
        with self.assertRaises(OSError):
            Model("mlx_lm", base, ADAPTERS / "none-there")

    def test_mistakes(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            with self.assertRaisesRegex(OSError, "config.json"):
                Model("mlx_lm", folder)
            (folder / "model.safetensors").write_bytes((self.path / "model.safetensors").read_bytes())
            (folder / "config.json").write_text('{"model_type": "abacus"}')
            with self.assertRaisesRegex(lib.Error, "abacus not supported"):
                Model("mlx_lm", folder)
            config = json.loads((self.path / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
            with self.assertRaisesRegex(lib.Error, "mlx_lm: .*shape"):
                Model("mlx_lm", folder)

    def test_a_logit_that_is_no_number(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            weights = dict(mx.load(str(self.path / "model.safetensors")))
            weights["model.norm.weight"] = weights["model.norm.weight"] * mx.array(float("nan"))
            mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
            (folder / "config.json").write_text((self.path / "config.json").read_text())
            with Model("mlx_lm", folder) as mlx:
                for sampler in {}, {"temperature": 1.0, "top_p": 0.5}:
                    with self.assertRaisesRegex(lib.Error, "a logit is not a number"):
                        mlx.generate([1, 2, 3], sampler=sampler)

    def test_command(self):
        words = [HEARTH, "run", self.path, "hello world", "-n", "20", "--temperature", "1", "--seed", "5", "-q"]
        mine, expected = (
            subprocess.run([*words, *more], check=True, capture_output=True).stdout
            for more in (["--backend", "mlx_lm", "--python", sys.executable], ["--precision", "reference", "--kv", "f32"])
        )
        self.assertEqual(mine, expected)


if __name__ == "__main__":
    HEARTH = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build/release/bin/hearth").resolve()
    mx.set_default_device(mx.cpu)
    unittest.main()
