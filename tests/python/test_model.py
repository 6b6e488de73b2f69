"""hearth.load: text and logits of models from Python. Needs HEARTH_LIBRARY and PYTHONPATH=python, nothing else."""

import contextlib
import json
import math
import os
import pathlib
import struct
import tempfile
import threading
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

from with_tiny_model import ROOT, WithTinyModel, write_adapter  # which makes the package and tests/cli importable

import hearth
import tiny_model

GOLDEN = ROOT / "tests" / "golden" / "tiny"
MODELS = os.environ.get("HEARTH_TEST_MODELS")


class Libraries(unittest.TestCase):
    def test_another_interface_is_refused(self):
        class Other:
            def ht_abi_version(self):
                return 999

        with self.assertRaisesRegex(ImportError, "other.so has version 999 of the interface, and this package needs"):
            hearth._library._check_version(Other(), "other.so")
        self.assertRaisesRegex(ImportError, "old.so has version 0", hearth._library._check_version, object(), "old.so")


class Texts(WithTinyModel):
    def test_tokens_and_back(self):
        ids = self.model.tokenize("hello world")
        self.assertEqual(self.model.detokenize(ids), "hello world")
        self.assertEqual(self.model.detokenize(self.model.tokenize("Größe 👋\0")), "Größe 👋\0")
        self.assertEqual(self.model.tokenize(""), [])
        self.assertRaises(ValueError, self.model.detokenize, [10**6])

    def test_generating(self):
        answer = self.model.generate("hello", max_tokens=12, ignore_eos=True)
        pieces = list(answer)
        self.assertEqual(answer.metrics["finish"], "length")
        self.assertEqual(answer.metrics["generated_tokens"], 12)
        self.assertEqual(list(answer), [])
        again = self.model.generate(self.model.tokenize("hello"), max_tokens=12, ignore_eos=True)
        self.assertEqual("".join(again), "".join(pieces))

    def test_packed_weights_are_kept(self):
        place = self.work / "cache" / "hearth" / "packed"
        expected = "".join(self.model.generate("hello", max_tokens=12, ignore_eos=True))
        with unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.work / "cache")):
            for where in (True, place, True):
                kept = hearth.load(self.work / "tiny.gguf", threads=2, packed_cache=where)
                self.assertEqual("".join(kept.generate("hello", max_tokens=12, ignore_eos=True)), expected)
                self.assertEqual(len(list(place.iterdir())), 1)
        with self.assertRaisesRegex(OSError, "chmod 700"):
            place.chmod(0o755)
            hearth.load(self.work / "tiny.gguf", packed_cache=place)

    def test_devices(self):
        path = self.work / "tiny.gguf"
        expected = "".join(self.model.generate("hello", max_tokens=12, ignore_eos=True))
        self.assertEqual("".join(hearth.load(path, device="cpu").generate("hello", max_tokens=12, ignore_eos=True)), expected)
        for name in ("abacus", "cuda:9999"):
            self.assertRaises(hearth.Error, hearth.load, path, device=name)
        self.assertRaises(TypeError, hearth.load, path, device=1)

    def test_values_that_are_left_out(self):
        path = self.work / "plain.gguf"
        tiny_model.write(path, sampling={"top_k": 9})
        model = hearth.load(path, threads=2)
        self.assertEqual(model.sampling["top_k"], (9, "GGUF metadata"))
        self.assertEqual(model.sampling["temperature"], (0.7, "default"))
        self.assertEqual(self.model.sampling["temperature"], (0, "GGUF metadata"))
        text = lambda **how: "".join(model.generate("hello", max_tokens=40, ignore_eos=True, **how))  # noqa: E731
        named = {"temperature": 0.7, "top_p": 0.95, "min_p": 0.05, "top_k": 9, "repeat_penalty": 1, "seed": 11}
        self.assertEqual(text(), text(**named))
        self.assertEqual(text(temperature=None, seed=None), text(**named))
        self.assertEqual(text(temperature=3.0, min_p=0, top_k=0), text(**{**named, "temperature": 3.0, "min_p": 0, "top_k": 0}))
        self.assertNotEqual(text(), text(temperature=0))

    def test_a_repeat_window_of_no_tokens(self):
        def text(**options):
            return "".join(self.model.generate("hello", max_tokens=40, ignore_eos=True, **options))

        self.assertNotEqual(text(repeat_penalty=50), text())
        self.assertEqual(text(repeat_penalty=50, repeat_window=0), text())

    def test_chat(self):
        self.assertEqual(self.model.chat_format, "template")
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(self.model.format_chat(messages), text)
        with self.model.session() as session:
            answer = "".join(session.chat(messages, max_tokens=8))
            self.assertEqual(answer, "".join(self.model.chat(messages, max_tokens=8)))
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Why?"}]
            following = session.chat(messages, max_tokens=8)
            text = "".join(following)
            self.assertGreater(following.metrics["reused_tokens"], 0)
            self.assertEqual(text, "".join(self.model.chat(messages, max_tokens=8)))

    def test_what_a_template_is_given(self):
        text = "<|im_start|>user\nHi<|im_end|>\n"
        closed = self.model.format_chat("Hi", variables={"add_generation_prompt": False}, tools=[{"name": "f"}], thinking=True)
        self.assertEqual(closed, text)
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}]
        self.assertIn("<|im_start|>tool\nx<|im_end|>", self.model.format_chat(messages))
        answer = self.model.chat(messages, tools=[{"name": "f"}], thinking=False, max_tokens=4)
        list(answer)
        self.assertEqual((answer.thinking, answer.tool_calls), ("", []))

    def test_messages_spell_no_special_tokens(self):
        spelled, plain = "a <|im_start|> b", "a < b"
        def tokens(text, **options):
            with self.model.session() as session:
                list(session.chat(text, max_tokens=1, ignore_eos=True, **options))
                return len(session)

        self.assertGreater(tokens(spelled), tokens(spelled, parse_special=True))
        self.assertEqual(tokens(plain), tokens(plain, parse_special=True))

    def test_content_in_parts(self):
        def text(content):
            return self.model.format_chat([{"role": "user", "content": content}])

        parts = [{"type": "text", "text": "a\n"}, "b", {"text": " c"}]
        self.assertEqual(text(parts), text("a\nb c"))
        for empty in None, [], "", ():
            self.assertEqual(text(empty), text(""))
        for content, kind, says in [
            ([{"type": "image_url", "image_url": {"url": "x"}}], ValueError, "'image_url', expected"),
            ([{"type": "text"}], ValueError, "'text', expected"),
            ([3], ValueError, "'int', expected"),
            (3, TypeError, "int, expected a text or a list of parts"),
        ]:
            self.assertRaisesRegex(kind, says, text, content)

    def test_failures_are_exceptions(self):
        for call, kind, says in [
            (lambda: hearth.load("/nowhere.gguf"), OSError, "nowhere"),
            (lambda: hearth.load(GOLDEN / "llama-f32", precision="best"), ValueError, "best"),
            (lambda: hearth.load(GOLDEN / "llama-f32", kv_dtype=hearth.int32), ValueError, "int32"),
            (lambda: list(self.model.chat([{"role": "sister", "content": "x"}])), ValueError, "sister"),
            (lambda: list(self.model.chat([{"role": "user"}])), KeyError, "content"),
            (lambda: list(self.model.chat("x", tools=[float("nan")])), ValueError, "JSON"),
            (lambda: list(self.model.chat("x", variables=[1])), RuntimeError, "chat_template_kwargs"),
            (lambda: list(self.model.generate("x", max_tokens=-1)), ValueError, "max_tokens"),
            (lambda: list(self.model.generate("a\0b")), ValueError, "NUL"),
            (lambda: self.model.generate("x", heat=1), TypeError, "heat"),
            (lambda: self.model.logits([]), ValueError, "no tokens"),
            (lambda: self.model.logits([10**6]), ValueError, "1000000"),
            (lambda: hearth.load(GOLDEN / "llama-f32").tokenize("x"), hearth.Error, "no tokenizer"),
        ]:
            with self.assertRaises(kind) as caught:
                call()
            self.assertIn(says, str(caught.exception))


    def test_integers_that_do_not_fit_are_exceptions(self):
        m, load = self.model, lambda **options: hearth.load(GOLDEN / "llama-f32", **options)
        huge = [2**31, 2**32 + 1, 2**63, 2**64, 10**30, -(2**31) - 1, -(2**64) + 1]
        calls = {"max_tokens": [0, *huge], "top_k": huge, "repeat_window": huge, "seed": [-1, 2**64, 2**64 + 3, 10**30]}
        for name, numbers in calls.items():
            for number in numbers:
                for call in (m.generate, m.chat, m.session().generate, m.session().chat):
                    self.assertRaisesRegex(ValueError, f"{name} is {number}", call, "hello", **{name: number})
            self.assertRaisesRegex(TypeError, f"{name} is a float", m.generate, "hello", **{name: 1.5})
        for name, numbers in {"threads": huge, "slots": huge, "context": [2**63, 2**64 + 64, -(2**63) - 1]}.items():
            for number in numbers:
                self.assertRaisesRegex(ValueError, f"{name} is {number}", load, **{name: number})
        for i in huge:
            for call in (m.detokenize, m.generate, m.logits):
                self.assertRaisesRegex(ValueError, f"token id is {i}", call, [28, i])
        seed = {"temperature": 1.5, "max_tokens": 4, "ignore_eos": True}
        self.assertTrue("".join(m.generate("hello", seed=2**64 - 1, **seed)))
        self.assertTrue("".join(m.generate("hello", repeat_penalty=1.1, repeat_window=-1, **seed)))


class GuessesAndProbes(WithTinyModel):
    HOW = {"max_tokens": 60, "ignore_eos": True}

    def test_guesses_change_nothing(self):
        for how in ({}, {"temperature": 0.8, "seed": 3}):
            expected = "".join(self.model.generate("hello hello hello", **self.HOW, **how))
            for guessing in ({"lookup": True, "draft_tokens": 5}, {"draft": self.model, "draft_tokens": 3}, {"lookup": True, "draft": self.model}):
                answer = self.model.generate("hello hello hello", **self.HOW, **how, **guessing)
                self.assertEqual("".join(answer), expected)
                self.assertGreaterEqual(answer.metrics["guessed_tokens"], answer.metrics["accepted_tokens"])
        answer = self.model.generate("hello", draft=self.model, draft_tokens=3, **self.HOW)
        list(answer)
        self.assertGreater(answer.metrics["accepted_tokens"], 20)  # the draft draws as the model does

    def test_what_is_no_guess(self):
        self.assertRaisesRegex(TypeError, "the draft is a str", self.model.generate, "hello", draft="smollm2")
        with self.assertRaisesRegex(ValueError, "99 draft tokens per step"):
            list(self.model.generate("hello", lookup=True, draft_tokens=99))

    def test_probes(self):
        seen = []
        session = self.model.session()
        answer = "".join(session.generate("hello", on_probe=seen.append, **self.HOW))
        self.assertEqual(answer, "".join(self.model.generate("hello", **self.HOW)))
        names = ["token", "top", "entropy", "cache", "memory", "residual", "logprob"]  # there are no experts
        self.assertEqual([p["probe"] for p in seen], names * 60)
        self.assertEqual([p["index"] for p in seen], [i for i in range(60) for _ in names])
        token, top, entropy, cache, memory, residual, logprob = seen[-7:]
        self.assertEqual(token["token"], top["top"][0][0])
        logits = self.model.logits(self.model.tokenize("hello"), last=True).tolist()
        self.assertEqual(seen[1]["top"], [(i, logits[i]) for i in sorted(range(len(logits)), key=lambda i: -logits[i])[:8]])
        self.assertEqual(cache["positions"], cache["context"] * cache["pressure"])
        self.assertEqual(len(residual["norms"]), 2)
        self.assertEqual((logprob["token"], logprob["top"]), (token["token"], []))
        self.assertGreater(memory["peak"], 0)
        self.assertGreater(entropy["entropy"], 0)

    def test_what_is_no_probe(self):
        for wrong, error in (({"probes": "top"}, "there is no on_probe"), ({"on_probe": print, "probes": ["heat"]}, "'heat' is no probe; token, top"),
                             ({"on_probe": 7}, "on_probe is a int")):  # fmt: skip
            self.assertRaisesRegex((TypeError, ValueError), error, self.model.generate, "hello", **wrong)

    def test_what_a_probe_raises(self):
        def fail(probe):
            raise KeyError(f"at {probe['index']}")

        with self.assertRaisesRegex(KeyError, "at 0"):
            list(self.model.generate("hello", on_probe=fail, max_tokens=500_000, ignore_eos=True))


class Ending(WithTinyModel):
    LONG = {"max_tokens": 500_000, "ignore_eos": True}

    def test_closing_an_answer(self):
        session = self.model.session()
        answer = session.generate("hello", **self.LONG)
        first = [next(answer), next(answer)]
        self.assertRaisesRegex(RuntimeError, "busy", session.logits, "x")
        answer.close()
        answer.close()
        self.assertEqual(list(answer), [])
        self.assertEqual(answer.metrics["finish"], "closed")
        self.assertLess(len(session), 500_000)
        self.assertEqual("".join(first), "".join(self.model.generate("hello", max_tokens=500))[: len("".join(first))])
        session.reset()
        self.assertEqual(len(session), 0)
        self.assertTrue(list(session.generate("hello", max_tokens=4, ignore_eos=True)))

    def test_closing_an_answer_in_other_threads(self):
        """While one of them reads: it comes to the end, and the session is given back once."""
        failures = []
        with unittest.mock.patch("threading.excepthook", failures.append):
            for i in range(12):
                session = self.model.session()
                answer = session.generate("hello", **self.LONG)
                reader = threading.Thread(target=list, args=(answer,))
                threads = [reader, *(threading.Thread(target=answer.close) for _ in range(3))]
                for thread in threads:
                    thread.start()
                    if thread is reader and i % 2:
                        next(answer, None)
                for thread in threads:
                    thread.join()
                self.assertEqual((failures, answer.metrics["finish"], list(answer)), ([], "closed", []))
                with session._taken(), self.assertRaisesRegex(RuntimeError, "busy"):
                    len(session)

    def test_closing_an_answer_in_a_callback(self):
        """The thread that computes does not wait for itself."""
        with self.model.session() as session:
            answer = session.generate("hello", on_probe=lambda _: answer.close(), **self.LONG)
            list(answer)
            self.assertEqual((answer.metrics["finish"], len(session) > 0), ("closed", True))

    def test_dropping_an_answer(self):
        session = self.model.session()
        for piece in session.generate("hello", **self.LONG):
            break
        self.assertLess(len(session), 500_000)

    def test_an_answer_that_was_never_begun(self):
        session = self.model.session()
        answer = session.generate("hello")
        answer.close()
        self.assertEqual((len(session), list(answer)), (0, []))

    def test_a_session_in_a_file(self):
        """Saved and loaded, and forked, sessions go on alike."""
        with tempfile.TemporaryDirectory() as folder, self.model.session() as session, self.model.session() as other:
            path = pathlib.Path(folder) / "half.state"
            how = {"max_tokens": 6, "temperature": 1.2, "seed": 4, "ignore_eos": True}
            list(session.generate("hello world", **how))
            session.save(path)
            other.load(path)
            with session.fork() as fork:
                self.assertEqual([len(s) for s in (session, other, fork)], [len(session)] * 3)
                rest = ["".join(s.generate("", **how)) for s in (session, other, fork)]
            self.assertEqual(rest, [rest[0]] * 3)
            path.write_bytes(path.read_bytes()[:-1])
            self.assertRaises(hearth.Error, other.load, path)

    def test_closing_the_session(self):
        with self.model.session() as session:
            answer = session.generate("hello", **self.LONG)
            next(answer)
        self.assertEqual(list(answer), [])
        self.assertRaisesRegex(ValueError, "closed", len, session)

    def test_an_interrupted_close_is_taken_up_again(self):
        session = self.model.session()
        answer = session.generate("hello", **self.LONG)
        next(answer)
        wait, answer._answer.done.wait = answer._answer.done.wait, unittest.mock.Mock(side_effect=KeyboardInterrupt)
        self.assertRaises(KeyboardInterrupt, answer.close)
        with contextlib.suppress(KeyboardInterrupt):  # none where the cancelled answer has ended by now
            session.close()
        answer._answer.done.wait = wait
        # closed: the cancelled answer has ended by now
        self.assertRaisesRegex((RuntimeError, ValueError), "busy|closed", len, session)
        session.close()
        self.assertRaisesRegex(ValueError, "closed", len, session)

    def test_a_session_that_is_closed_during_a_call(self):
        session = self.model.session()
        with session._taken():
            session.close()
            self.assertTrue(session._handle)
        self.assertFalse(session._handle)
        session.close()

    def test_python_runs_meanwhile(self):
        """A long prompt is computed while another thread counts."""
        counted, done = 0, threading.Event()

        def compute():
            self.model.logits(self.model.tokenize("hello world " * 4000), last=True)
            done.set()

        thread = threading.Thread(target=compute)
        thread.start()
        while not done.is_set():
            counted += 1
            time.sleep(0.0005)
        thread.join()
        self.assertGreater(counted, 10)


class Adapters(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = hearth.load(GOLDEN / "llama-f32", threads=2)

    def adapter(self, value):
        write_adapter(self.folder.name, 48, value)
        return self.model.load_adapter(self.folder.name)

    def test_sessions_with_adapters(self):
        one, other, ids = self.adapter(0.5), self.adapter(-0.25), [3, 14, 15, 9]
        base, moved = (self.model.logits(ids, adapters=a).tolist() for a in ([], one))
        self.assertNotEqual(moved, base)
        self.assertIsNone(one.warning)
        undone = self.model.logits(ids, adapters=(one, (other, 2))).tolist()
        for found, wanted in zip(sum(undone, []), sum(base, []), strict=True):
            self.assertAlmostEqual(found, wanted, places=4)
        with self.model.session(one) as session:
            self.assertEqual(session.logits(ids).tolist(), moved)
            session.reset()
            self.assertEqual(session.logits(ids).tolist(), moved)

    def test_inspections_and_embeddings(self):
        adapter = self.model.load_adapter(GOLDEN.parent / "adapters" / "peft-llama")
        for values in (lambda a: self.model.inspect([1, 2, 3], adapters=a)["layer.1.k"],
                       lambda a: self.model.embed([[1, 2, 3]], adapters=a)):  # fmt: skip
            plain, adapted, none = (values(a).tolist() for a in ((), adapter, [(adapter, 0.0)]))
            self.assertNotEqual(plain, adapted)
            self.assertEqual(plain, none)

    def test_what_is_no_adapter_is_an_exception(self):
        self.assertRaisesRegex(TypeError, "expected an Adapter", self.model.session, ["lora"])
        self.assertRaisesRegex(ValueError, "finite", self.model.session, [(self.adapter(1), float("inf"))])
        self.assertRaises(OSError, self.model.load_adapter, "/nowhere")


class Inspections(WithTinyModel):
    def test_arrays_by_name(self):
        found = self.model.inspect("hello world", values=True, queries=True, attention=[1])
        n = len(self.model.tokenize("hello world"))
        self.assertEqual(found.tokens, self.model.tokenize("hello world"))
        self.assertEqual(found["tokens"].tolist(), found.tokens)
        self.assertEqual(found.owners, list(range(len(found.owners))))
        names = {f"layer.{i}.{what}" for i in range(len(found.owners)) for what in "kvq"}
        self.assertEqual(set(found), {"tokens", "layer.1.attention"} | names)
        heads, rows, size = found["layer.1.q"].shape
        self.assertEqual(rows, n)
        self.assertEqual(found["layer.1.attention"].shape, (heads, n, n))
        for row, weights in enumerate(found["layer.1.attention"][0].tolist()):
            self.assertAlmostEqual(sum(weights), 1, delta=1e-5)
            self.assertEqual(weights[row + 1 :], [0.0] * (n - row - 1))

    def test_what_is_asked_for(self):
        ids = [1, 2, 3, 4]
        whole = self.model.inspect(ids)
        part = self.model.inspect(ids, layers=[1])
        self.assertEqual(set(part), {"tokens", "layer.1.k"})
        self.assertEqual(part["layer.1.k"].tolist(), whole["layer.1.k"].tolist())
        weights = self.model.inspect(ids, layers=[], attention=(i for i in (0, 1)))
        self.assertEqual(set(weights), {"tokens", "layer.0.attention", "layer.1.attention"})
        self.assertNotIn("layer.0.k", weights)
        with self.assertRaises(KeyError):
            weights["layer.0.k"]

    def test_files_and_pictures(self):
        found = self.model.inspect("a <b>", attention=[0])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "k.npz"
            found.save(path)
            again = hearth.load(str(path))
            self.assertEqual({k: v.tolist() for k, v in again.items()}, {k: v.tolist() for k, v in found.items()})
            self.assertRaises(OSError, found.save, pathlib.Path(folder) / "no" / "k.npz")
        picture = xml.etree.ElementTree.fromstring(found.svg(0, 1))
        self.assertTrue(any("<" in t.text for t in picture.iter("{http://www.w3.org/2000/svg}text")))
        self.assertRaisesRegex(ValueError, "does not hold the attention weights of layer 1", found.svg, 1, 0)
        self.assertRaises(ValueError, found.svg, 0, 10**10)

    def test_shared_keys(self):
        model = hearth.load(GOLDEN / "gemma4-shared-bf16", threads=2)
        found = model.inspect([1, 2, 3])
        self.assertEqual(found.owners, [0, 1, 2, 1, 1, 2])
        self.assertEqual(set(found), {"tokens", "layer.0.k", "layer.1.k", "layer.2.k"})

    def test_failures_are_exceptions(self):
        for given, kind, says in [
            (dict(prompt=[]), ValueError, "no tokens"),
            (dict(prompt=[10**6]), ValueError, "outside the vocabulary"),
            (dict(prompt=[1], layers=[99]), ValueError, "no layer 99"),
            (dict(prompt=[1], layers=[]), ValueError, "neither"),
            (dict(prompt=[1], layers=["1"]), TypeError, "a layer is a str"),
            (dict(prompt=[1] * (self.model.context + 1)), hearth.Error, "does not fit the context"),
            (dict(prompt=[1], adapters=["x"]), TypeError, "an adapter is a str"),
        ]:
            self.assertRaisesRegex(kind, says, self.model.inspect, **given)


class Embeddings(WithTinyModel):
    def test_vectors(self):
        texts = ["hello world", [1, 2, 3], "a"]
        for pooling in ("last", "mean"):
            found = self.model.embed(texts, pooling=pooling)
            raw = self.model.embed(texts, pooling=pooling, normalize=False)
            self.assertEqual(found.shape, raw.shape)
            self.assertEqual(found.shape[0], 3)
            self.assertEqual(found.dtype, hearth.float32)
            for vector, long, text in zip(found.tolist(), raw.tolist(), texts):
                length = math.sqrt(sum(x * x for x in long))
                self.assertAlmostEqual(sum(x * x for x in vector), 1, delta=1e-5)
                for a, b in zip(vector, long):
                    self.assertAlmostEqual(a, b / length, delta=1e-6)
                self.assertEqual(self.model.embed([text], pooling=pooling)[0].tolist(), vector)
        self.assertNotEqual(self.model.embed("hello world", pooling="mean").tolist(), self.model.embed("hello world").tolist())
        self.assertEqual(self.model.embed("a").tolist(), self.model.embed(["a"])[0].tolist())
        self.assertEqual(self.model.embed([]).shape, (0, found.shape[1]))

    def test_failures_are_exceptions(self):
        for given, kind, says in [
            (dict(texts=["a", []]), ValueError, "text 1: the prompt is empty"),
            (dict(texts=[[1], [10**6]]), ValueError, "text 1: token id 1000000"),
            (dict(texts=[[1] * (self.model.context + 1)]), hearth.Error, "does not fit the context"),
            (dict(texts=["a"], pooling="rank"), ValueError, "pooling is 'rank', expected one of last, mean, cls, none, max"),
            (dict(texts=["a"], prompt="query"), ValueError, "has no prompt `query`"),
            (dict(texts=["a"], dimensions=65), ValueError, "65 dimensions, expected at most 64"),
            (dict(texts=["a", "b\0"]), ValueError, "NUL"),
            (dict(texts=["a"], adapters=["x"]), TypeError, "an adapter is a str"),
            (dict(texts=[1, 2]), TypeError, "int"),
        ]:
            self.assertRaisesRegex(kind, says, self.model.embed, **given)


    def test_vectors_of_tokens(self):
        """The last one is that of the text; texts and ids may be mixed."""
        texts = ["hello world", [1, 2, 3], "a"]
        found = self.model.embed(texts, pooling="none", normalize=False)
        self.assertEqual([len(one.tolist()) for one in found], [len(self.model.tokenize(texts[0])), 3, len(self.model.tokenize("a"))])
        last = self.model.embed(texts, pooling="last", normalize=False).tolist()
        self.assertEqual([one.tolist()[-1] for one in found], last)
        self.assertEqual(self.model.embed("a", pooling="none").tolist(), self.model.embed(["a"], pooling="none")[0].tolist())

    def test_dimensions(self):
        whole, cut = self.model.embed("hello", normalize=False).tolist(), self.model.embed("hello", dimensions=5).tolist()
        length = math.sqrt(sum(x * x for x in whole[:5]))
        self.assertEqual(len(cut), 5)
        for a, b in zip(whole, cut):
            self.assertAlmostEqual(a / length, b, delta=1e-6)

    def test_prompts_and_long_texts(self):
        """Prompts of a file beside the model."""
        folder = self.work / "prompted"
        folder.mkdir()
        (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "find: ", "none": ""}, "default_prompt_name": "query"}')
        tiny_model.write(folder / "tiny.gguf", context=64)
        model = hearth.load(folder / "tiny.gguf", threads=1)
        self.assertEqual(model.prompts, {"query": "find: ", "none": ""})
        self.assertEqual(self.model.prompts, {})
        for prompt, wanted in ((None, "find: a"), ("query", "find: a"), ("none", "a"), ("", "a")):
            self.assertEqual(model.embed("a", prompt=prompt).tolist(), model.embed(wanted, prompt="").tolist())
        ids = model.tokenize("hello " * 100)[:64]
        self.assertRaisesRegex(hearth.Error, "does not fit the context", model.embed, "hello " * 100)
        self.assertEqual(model.embed("hello " * 100, truncate=True, prompt="").tolist(), model.embed([ids])[0].tolist())


class Reranking(unittest.TestCase):
    TEMPLATE = ("<|im_start|>{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | default('find') }}: "
                "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
                "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>")  # fmt: skip

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        vocabulary = tiny_model.vocabulary
        with unittest.mock.patch.object(tiny_model, "vocabulary", lambda: vocabulary() + ["yes", "no"]):
            tiny_model.write(f"{folder.name}/reranker.gguf", template=cls.TEMPLATE, context=64)
        cls.model = hearth.load(f"{folder.name}/reranker.gguf", threads=2, precision="reference")

    def test_scores(self):
        """The logits of "yes" and "no" after the prompt."""
        texts = ["the world", "hello", "a"]
        found = self.model.rerank("hello", texts)
        self.assertEqual(sorted(one.document for one in found), [0, 1, 2])
        self.assertEqual([one.logit for one in found], sorted((one.logit for one in found), reverse=True))
        yes, no = self.model.vocab_size - 2, self.model.vocab_size - 1
        for one in found:
            ids = self.model.tokenize(f"<|im_start|>find: hello\n{texts[one.document]}<|im_end|>")
            logits = self.model.logits(ids, last=True).tolist()
            self.assertAlmostEqual(one.logit, logits[yes] - logits[no], delta=1e-4)
            self.assertAlmostEqual(one.score, 1 / (1 + math.exp(-one.logit)), delta=1e-12)
            self.assertEqual(one.tokens, len(ids))
        self.assertEqual(self.model.rerank("hello", texts, top_n=2), found[:2])
        self.assertNotEqual(self.model.rerank("hello", texts, instruction="sort"), found)
        self.assertEqual(self.model.rerank("hello", []), [])

    def test_long_documents(self):
        texts = ["hello " * 100, "hello"]
        self.assertRaisesRegex(hearth.Error, "document 0: .* does not fit the context", self.model.rerank, "a", texts)
        self.assertEqual(max(one.tokens for one in self.model.rerank("a", texts, truncate=True)), 64)
        self.assertEqual(len({one.tokens for one in self.model.rerank("a", texts, document_tokens=1)}), 1)

    def test_text_encoder(self):
        """A cross-encoder, as float32 transformers scores pairs (tests/golden/make_rerankers.py)."""
        directory = GOLDEN.parent / "rerankers/xlm_roberta"
        golden = json.loads((directory / "reference.json").read_text())
        cases = [case for case in golden["cases"] if not case["most"] and "logit" in case]
        model = hearth.load(directory, threads=2, precision="reference")
        found = model.rerank(golden["query"], [case["document"] for case in cases])
        self.assertEqual([one.document for one in found], sorted(range(len(cases)), key=lambda i: -cases[i]["logit"]))
        for one in found:
            self.assertAlmostEqual(one.logit, cases[one.document]["logit"], delta=1e-4)
            self.assertEqual(one.tokens, len(cases[one.document]["ids"]))
        self.assertRaisesRegex(hearth.Error, "take no instruction", model.rerank, "a", ["b"], instruction="find")
        self.assertRaisesRegex(hearth.Error, "not embeddings", model.embed, "a")

    def test_failures_are_exceptions(self):
        for given, kind, says in [
            (dict(query="a", documents="text"), TypeError, "expected a list"),
            (dict(query="a", documents=[1]), TypeError, "document is a int"),
            (dict(query=1, documents=["a"]), TypeError, "query is a int"),
            (dict(query="a", documents=["a"], top_n=0), ValueError, "top_n is 0"),
        ]:
            self.assertRaisesRegex(kind, says, self.model.rerank, **given)


class Logits(unittest.TestCase):
    def test_as_the_reference(self):
        """Rows that float32 transformers gives, as tests/golden/make_tiny.py stored them."""
        for name in ["llama-f32", "gemma4-experts-mlx4-router8-bf16"]:
            golden = json.loads((GOLDEN / name / "reference.json").read_text())
            model = hearth.load(GOLDEN / name, precision="reference", kv_dtype=hearth.float32)
            logits = model.logits(golden["ids"])
            self.assertEqual(logits.shape, (len(golden["ids"]), model.vocab_size))
            rows = logits.tolist()
            for position, expected in golden["rows"].items():
                for found, wanted in zip(rows[int(position)], expected, strict=True):
                    self.assertAlmostEqual(found, wanted, delta=1e-3 * golden["std"])
            last = model.logits(golden["ids"], last=True)
            self.assertEqual(last.shape, (model.vocab_size,))
            self.assertEqual(struct.pack(f"{model.vocab_size}f", *last.tolist()), struct.pack(f"{model.vocab_size}f", *rows[-1]))


@unittest.skipUnless(MODELS, "HEARTH_TEST_MODELS names no directory of real models")
class RealModels(unittest.TestCase):
    def test_answering_a_question(self):
        model = hearth.load(f"{MODELS}/smollm2-135m.gguf")
        answer = model.chat("What is the capital of Germany?", max_tokens=24, temperature=0)
        self.assertIn("Berlin", "".join(answer))
        self.assertGreater(answer.metrics["decode_seconds"], 0)
        self.assertEqual(model.tokenize("hello world"), [28120, 905])


if __name__ == "__main__":
    unittest.main()
