"""Model.engine: many requests from threads and from asyncio. Needs HEARTH_LIBRARY and PYTHONPATH=python, nothing else."""

import asyncio
import gc
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock
import weakref

from with_tiny_model import ROOT, WithTinyModel, run_threads, write_adapter  # which makes the package and tests/cli importable

import hearth
import tiny_model

LONG = {"max_tokens": 500_000, "ignore_eos": True}


def n_threads():
    return len(os.listdir("/proc/self/task"))


class WithEngines(WithTinyModel):
    def engine(self, **options):
        engine = self.model.engine(**options)
        self.addCleanup(engine.close)
        return engine

    def wait_for(self, condition):
        """What other threads do soon; a test that waits for good is one that fails."""
        while not condition():
            time.sleep(0.001)

    def wait_until_idle(self, engine):
        def idle():
            figures = engine.statistics()
            return figures["running"] + figures["waiting"] == 0 and not engine._asked

        self.wait_for(idle)

    def tearDown(self):
        self.doCleanups()
        self.assertEqual(hearth._engine._asked, {})


def questions(n):
    """Prompts and options of many kinds."""
    rng = random.Random(n)
    for i in range(n):
        words = [rng.choice(["hello", " world", " the", "x", " of", "\n"]) for _ in range(rng.randrange(1, 400))]
        how = {"max_tokens": rng.randrange(1, 30), "ignore_eos": i % 4 > 0, "seed": i, "temperature": (i % 3) * 0.7}
        yield "".join(words), {**how, "top_k": (i % 2) * 20, "repeat_penalty": 1.0 + (i % 5) / 10}


class Answers(WithEngines):
    def test_as_without_an_engine(self):
        """Read one after the other, by threads, and by asyncio."""
        asked = list(questions(40))
        expected = ["".join(self.model.generate(prompt, **how)) for prompt, how in asked]
        engine = self.engine(sequences=6, step_tokens=128)
        requests = [engine.submit(prompt, **how) for prompt, how in asked]
        self.assertEqual(["".join(r) for r in requests], expected)
        self.assertEqual([list(r) for r in requests], [[]] * len(asked))
        found = {}

        def read(i, prompt, how):
            found[i] = engine.submit(self.model.tokenize(prompt), **how).result()

        run_threads([threading.Thread(target=read, args=(i, *q)) for i, q in enumerate(asked)])
        self.assertEqual([found[i] for i in range(len(asked))], expected)

        async def pieces(prompt, how):
            return "".join([piece async for piece in engine.submit(prompt, **how)])

        async def main():
            return await asyncio.gather(*(pieces(*q) for q in asked))

        self.assertEqual(asyncio.run(main()), expected)
        figures = engine.statistics()
        self.assertEqual((figures["submitted"], figures["ended"]), (3 * len(asked),) * 2)
        self.assertGreater(figures["prefix_hits"], 0)

    def test_the_cache_in_a_file(self):
        """Another engine goes on with what was kept; what is no such file is refused."""
        path, prompt = self.work / "kept.cache", "hello world " * 50
        engine = self.engine()
        expected = engine.submit(prompt, max_tokens=8).result()
        engine.save_cache(path)
        other = self.engine()
        other.load_cache(path)
        request = other.submit(prompt, max_tokens=8)
        self.assertEqual(request.result(), expected)
        self.assertGreater(request.reuse["reused"], 100)
        kept = other.statistics()["prefix_tokens"]
        self.assertEqual((other.clear_cache(), other.clear_cache()), (kept, 0))
        request = other.submit(prompt, max_tokens=8)
        self.assertEqual((request.result(), request.reuse["reused"]), (expected, 0))
        with open(path, "wb") as f:
            f.write(b"nothing of the kind")
        self.assertRaisesRegex(hearth.Error, "state file", other.load_cache, path)

    def test_conversations(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
        engine = self.engine()
        for how in ({}, {"tools": [{"name": "f"}], "thinking": False}, {"variables": {"x": 1}, "parse_special": True}, {"continue_final_message": True}):
            request = engine.submit(messages, max_tokens=9, ignore_eos=True, **how)
            alone = self.model.chat(messages, max_tokens=9, ignore_eos=True, **how)
            text = "".join(alone)
            self.assertEqual("".join(request), text)
            self.assertEqual((request.thinking, request.tool_calls), (alone.thinking, alone.tool_calls))
        continued = self.model.format_chat(messages, continue_final_message=True)
        self.assertTrue(continued.endswith("Hi"), continued)
        self.assertEqual("".join(self.model.generate(continued, max_tokens=9, ignore_eos=True)), text)

    def test_thoughts_and_calls_are_no_pieces(self):
        parts = iter([("thinking", "I see. "), ("text", "Yes"), ("call", {"name": "f", "arguments": {}, "id": None})])
        with unittest.mock.patch.object(hearth._model, "part_of", lambda piece: next(parts, ("text", "!"))):
            request = self.engine().submit("hello", max_tokens=12, ignore_eos=True)
            text = request.result()
        self.assertEqual((text[:4], request.thinking), ("Yes!", "I see. "))
        self.assertEqual(request.tool_calls, [{"name": "f", "arguments": {}, "id": None}])

    def test_several_answers(self):
        how = {"max_tokens": 12, "temperature": 1.0, "ignore_eos": True}
        prompt = "hello world " * 100
        request = self.engine().submit(prompt, n=5, seed=7, **how)
        expected = ["".join(self.model.generate(prompt, seed=7 + i, **how)) for i in range(5)]
        self.assertIs(request.answers[0], request)
        self.assertEqual([a.result() for a in request.answers], expected)
        self.assertEqual(sum(a.reuse["computed"] for a in request.answers), len(self.model.tokenize(prompt)) + 4)

    def test_figures_of_an_answer(self):
        engine = self.engine()
        warmed = engine.warm("hello world " * 40)
        n = len(self.model.tokenize("hello world " * 40))
        self.assertEqual((warmed["reused"], warmed["computed"], warmed["end"]), (0, n, "new"))
        prompt = "hello world " * 20 + "x the x"
        ids, kept = self.model.tokenize(prompt), self.model.tokenize("hello world " * 40)
        place = next(i for i, pair in enumerate(zip(ids, kept, strict=False)) if pair[0] != pair[1])
        request = engine.submit(prompt, max_tokens=5, ignore_eos=True)
        self.assertEqual(request.result(), "".join(self.model.generate(prompt, max_tokens=5, ignore_eos=True)))
        expected = {"cached": place, "reused": place, "computed": len(ids) - place, "end": "differs", "place": place}
        self.assertEqual(request.reuse, {**expected, "token": ids[place], "kept_token": kept[place]})
        self.assertEqual(request.metrics["finish"], "length")
        self.assertEqual(request.metrics["generated_tokens"], len(request.tokens))
        self.assertGreater(request.metrics["first_token_seconds"], request.metrics["queue_seconds"])
        other = engine.submit("hello world " * 40, max_tokens=1, salt="another's")
        self.assertTrue(other.wait())
        self.assertEqual(other.reuse["end"], "new")
        off = self.engine(prefix_bytes=0).submit("hello", max_tokens=1)
        off.wait()
        self.assertEqual(off.reuse["end"], "off")

    def test_result_is_what_was_not_iterated_over(self):
        request = self.engine().submit("hello", max_tokens=12, ignore_eos=True)
        whole = "".join(self.model.generate("hello", max_tokens=12, ignore_eos=True))
        first = next(request) + next(request)
        self.assertEqual(first + request.result(), whole)
        self.assertEqual(first + request.result(), whole)

    def adapter(self, value):
        with tempfile.TemporaryDirectory() as folder:
            write_adapter(folder, tiny_model.HIDDEN, value)
            return self.model.load_adapter(folder)

    def test_guesses_and_probes(self):
        how = {"max_tokens": 40, "ignore_eos": True, "temperature": 0.7}
        engine, seen = self.engine(), []
        expected = ["".join(self.model.generate("hello hello", seed=seed, **how)) for seed in (5, 6)]
        requests = [engine.submit("hello hello", n=2, seed=5, **how, **more)
                    for more in ({"lookup": True, "draft_tokens": 4}, {"on_probe": seen.append, "probes": ["token", "residual"]})]  # fmt: skip
        self.assertEqual([[a.result() for a in r.answers] for r in requests], [expected] * 2)
        for i, answer in enumerate(requests[1].answers):
            mine = [p for p in seen if p["answer"] == i]
            self.assertEqual([p["token"] for p in mine if p["probe"] == "token"], answer.tokens)
            self.assertEqual([p["index"] for p in mine], [k // 2 for k in range(80)])
        self.assertRaisesRegex(hearth.Error, "draft model", engine.submit, "hello", draft=self.model)

    def test_adapters(self):
        one, prompt, how = self.adapter(0.5), "hello world the x", {"max_tokens": 10, "ignore_eos": True}
        given = [(), one, [(one, 0.5), (self.adapter(-1.0), 2)]]
        expected = ["".join(self.model.generate(prompt, adapters=a, **how)) for a in given]
        self.assertEqual(len(set(expected)), 3)
        engine = self.engine()
        for _ in range(3):
            requests = [engine.submit(prompt, adapters=a, **how) for a in given]
            self.assertEqual([r.result() for r in requests], expected)
        self.assertRaisesRegex(TypeError, "expected an Adapter", engine.submit, "x", adapters=["lora"])


class Failures(WithEngines):
    def test_what_is_wrong_is_said_at_once(self):
        engine = self.engine(kv_bytes=1 << 20)
        for given, kind, says in [
            (dict(prompt=[]), ValueError, "empty"),
            (dict(prompt=[10**6]), ValueError, "outside the vocabulary"),
            (dict(prompt="a\0b"), ValueError, "NUL"),
            (dict(prompt="a", salt="\0"), ValueError, "NUL"),
            (dict(prompt="a", max_tokens=0), ValueError, "max_tokens is 0"),
            (dict(prompt="a", top_p=3), ValueError, "top_p"),
            (dict(prompt="a", n=0), ValueError, "n is 0"),
            (dict(prompt="a", n=2000), ValueError, "2000 answers"),
            (dict(prompt="a", priority=2**40), ValueError, "priority is"),
            (dict(prompt="a", deadline=-1.0), ValueError, "deadline of -1"),
            (dict(prompt="a", tools=[{"name": "f"}]), ValueError, "for conversations"),
            (dict(prompt=[{"role": "nobody", "content": ""}]), ValueError, "nobody"),
            (dict(prompt="x" * 10**5), hearth.Error, "can never fit"),
            (dict(prompt="a", colour="red"), TypeError, "colour"),
        ]:
            with self.subTest(given), self.assertRaisesRegex(kind, says):
                engine.submit(**given)
        for given in (dict(sequences=0), dict(queue=0), dict(step_tokens=-1), dict(prefill_budget=0.5), dict(sequences=2**40), dict(kv_bytes=-1)):
            with self.subTest(given), self.assertRaises(ValueError):
                self.model.engine(**given)
        self.assertRaises(hearth.Error, self.model.engine, kv_bytes=10)
        self.assertEqual(engine.statistics()["submitted"], 0)

    def test_a_full_queue(self):
        engine = self.engine(sequences=1, queue=2)
        first = engine.submit("hello", **LONG)
        self.wait_for(lambda: engine.statistics()["running"])
        waiting = [engine.submit("hello", max_tokens=3, ignore_eos=True) for _ in range(2)]
        with self.assertRaisesRegex(hearth.Busy, "2 answers wait already and 1 are under way; 2 may wait"):
            engine.submit("hello")
        self.assertEqual(engine.statistics()["refused"], 1)
        first.cancel()
        self.assertEqual(len({w.result() for w in waiting}), 1)

    def test_a_deadline(self):
        engine = self.engine(sequences=1)
        request, late = engine.submit("hello", deadline=0.1, **LONG), engine.submit("hello", deadline=1e-6, **LONG)
        with self.assertRaisesRegex(hearth.Error, "the deadline of 0.1 seconds has passed after [1-9]"):
            for _ in request:
                pass
        self.assertRaisesRegex(hearth.Error, "the deadline of 1e-06 seconds has passed after 0", late.result)

    def test_what_a_callback_raises(self):
        fails = unittest.mock.Mock(side_effect=KeyError("arguments"))
        with unittest.mock.patch.object(hearth._model, "part_of", fails):
            request = self.engine().submit("hello", **LONG)
            self.assertRaisesRegex(KeyError, "arguments", request.result)

    def test_what_a_probe_raises(self):
        request = self.engine().submit("hello", on_probe=unittest.mock.Mock(side_effect=KeyError("probe")), **LONG)
        self.assertRaisesRegex(KeyError, "probe", request.result)


class Ending(WithEngines):
    def test_cancelling(self):
        engine = self.engine()
        request = engine.submit("hello", **LONG)
        next(request)
        request.cancel()
        request.cancel()
        self.assertEqual(list(request), [])
        self.assertTrue(request.wait())
        self.assertEqual(request.metrics["finish"], "closed")
        self.assertRaisesRegex(hearth.Error, "was cancelled after [1-9]", request.result)
        self.assertEqual(engine.statistics()["cancelled"], 1)
        short = engine.submit("hello", max_tokens=3, ignore_eos=True)
        short.wait()
        short.cancel()
        self.assertEqual(short.metrics["finish"], "length")
        self.assertTrue(short.result())

    def test_leaving_a_with_block_and_dropping(self):
        engine = self.engine()
        with engine.submit("hello", **LONG) as request:
            next(request)
        self.assertTrue(request.wait())
        for _ in engine.submit("hello", **LONG):
            break
        self.wait_until_idle(engine)
        self.assertLess(engine.statistics()["generated_tokens"], LONG["max_tokens"])

    def test_one_of_several_answers(self):
        engine = self.engine()
        first, second, third = engine.submit("hello", n=3, temperature=1.0, **LONG).answers
        next(first), next(second)
        second.cancel()
        self.assertTrue(second.wait())
        self.assertFalse(first.wait(0))
        self.assertTrue(next(first))
        del third, first
        self.wait_until_idle(engine)

    def test_a_reader_that_is_behind(self):
        """Pieces that nobody reads are not kept without end, and hold up nobody else."""
        engine = self.engine(sequences=4)
        slow = [engine.submit("hello", max_tokens=4000, ignore_eos=True, temperature=1.0, seed=i) for i in range(3)]
        self.wait_for(lambda: all(len(s._answer.pieces) == hearth._engine.MOST_PIECES for s in slow))
        self.assertTrue(engine.submit("hello", max_tokens=2000, ignore_eos=True).result())
        self.assertEqual([len(s._answer.pieces) for s in slow], [hearth._engine.MOST_PIECES] * 3)
        text = "".join(self.model.generate("hello", max_tokens=4000, ignore_eos=True, temperature=1.0, seed=0))
        self.assertEqual("".join(slow[0]), text)
        slow[1].cancel()
        self.assertTrue(slow[1].wait())
        self.assertTrue(slow[2].result())

    def test_closing_while_somebody_reads(self):
        engine = self.engine(sequences=2)
        requests = [engine.submit("hello", **LONG) for _ in range(4)]
        failures = []

        def read(request):
            try:
                for _ in request:
                    pass
            except hearth.Error as e:
                failures.append(str(e))

        def close():
            self.wait_for(lambda: engine.statistics()["generated_tokens"] or engine.statistics()["steps"] > 20)
            engine.close()

        run_threads([threading.Thread(target=read, args=(r,)) for r in requests], close)
        self.assertEqual(len(failures), 4)
        for says in failures:
            self.assertRegex(says, "the engine was closed after [0-9]+ tokens")
        engine.close()
        for call in (lambda: engine.submit("hello"), lambda: engine.warm("hello"), engine.statistics):
            self.assertRaisesRegex(ValueError, "the engine is closed", call)
        self.assertRaisesRegex(hearth.Error, "the engine was closed", requests[0].result)

    def test_closing_while_pieces_wait(self):
        """Nobody has read: the engine's threads are inside callbacks."""
        engine = self.engine()
        request = engine.submit("hello", **LONG)
        self.wait_for(lambda: len(request._answer.pieces) == hearth._engine.MOST_PIECES)
        engine.close()
        with self.assertRaisesRegex(hearth.Error, "the engine was closed"):
            for _ in request:
                pass

    def test_closing_during_calls(self):
        """Threads that submit, warm, cancel and wait, while another closes."""
        for i in range(20):
            engine, seen, rng = self.model.engine(sequences=2, queue=4), [], random.Random(i)

            def work(seed, engine=engine, seen=seen):
                rng = random.Random(seed)
                try:
                    while True:
                        try:
                            if rng.random() < 0.2:
                                engine.warm("hello world " * rng.randrange(1, 400))
                            request = engine.submit("hello", max_tokens=rng.randrange(1, 50), n=rng.randrange(1, 3))
                            rng.choice([request.cancel, request.result, request.wait, lambda: None])()
                        except hearth.Busy:
                            pass
                except (ValueError, hearth.Error) as e:
                    seen.append(str(e))

            def close(engine=engine, rng=rng):
                time.sleep(rng.random() / 50)
                engine.close()

            run_threads([threading.Thread(target=work, args=(10 * i + k,)) for k in range(5)], close)
            self.assertEqual(len(seen), 5)
            for says in seen:
                self.assertRegex(says, "the engine (is|was) closed|cancelled")

    def test_dropping_an_engine(self):
        engine = self.model.engine()
        reference, request = weakref.ref(engine), engine.submit("hello", max_tokens=20, ignore_eos=True)
        del engine
        self.assertTrue(request.result())
        del request
        self.wait_for(lambda: gc.collect() is None or reference() is None)

    def test_closing_on_a_thread_of_the_engine(self):
        """As a finalizer may that runs inside a callback."""
        engine, part_of = self.model.engine(), hearth._model.part_of

        def drop(piece):
            engine.close()
            return part_of(piece)

        with unittest.mock.patch.object(hearth._model, "part_of", drop):
            request = engine.submit("hello", **LONG)
            self.assertRaisesRegex(hearth.Error, "the engine was closed", request.result)
        self.wait_for(lambda: engine._gone)

    def test_nothing_is_left_behind(self):
        def use():
            with self.model.engine() as engine:
                requests = [engine.submit("hello", max_tokens=5, n=2) for _ in range(10)]
                requests[3].cancel()
                for request in requests[:3]:
                    request.result()

        use()
        gc.collect()
        threads, memory = n_threads(), hearth.get_active_memory()
        for _ in range(200):
            use()
        gc.collect()
        self.assertEqual((n_threads(), hearth.get_active_memory()), (threads, memory))
        self.assertEqual([o for o in gc.get_objects() if isinstance(o, (hearth.Request, hearth.Engine))], [])
        self.assertEqual(hearth._engine._asked, {})


class Asyncio(WithEngines):
    def test_leaving_a_loop_cancels(self):
        engine = self.engine()

        async def leave_by(how):
            request = engine.submit("hello", **LONG)
            try:
                async for _ in request:
                    if how == "break":
                        break
                    raise KeyError(how)
            except KeyError:
                pass
            while not request.metrics:  # nobody else ends it: the request is held here
                await asyncio.sleep(0.001)
            self.assertEqual([piece async for piece in request], [])
            return request.metrics["finish"]

        async def main():
            return await asyncio.gather(*map(leave_by, ["break", "raise"] * 10))

        self.assertEqual(asyncio.run(main()), ["closed"] * 20)
        self.assertEqual(engine.statistics()["cancelled"], 20)

    def test_cancelled_tasks(self):
        """Whether they iterate or wait for the text, and also where their exceptions are kept."""
        engine, requests, kept = self.engine(sequences=3), [], []

        async def iterate(request):
            try:
                async for _ in request:
                    pass
            except asyncio.CancelledError as e:
                kept.append(e)
                raise

        async def wait(request):
            return await request

        async def main():
            requests.extend(engine.submit("hello", **LONG) for _ in range(12))
            tasks = [asyncio.create_task((iterate if i % 2 else wait)(r)) for i, r in enumerate(requests)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual({type(e) for e in found}, {asyncio.CancelledError})
            while any(not r.metrics for r in requests):
                await asyncio.sleep(0.001)

        asyncio.run(main())
        self.assertTrue(kept)
        self.assertEqual({r.metrics["finish"] for r in requests}, {"closed"})

    def test_single_pieces_and_timeouts(self):
        """A wait for a piece that is given up loses none."""
        engine = self.engine(sequences=1)
        expected = "".join(self.model.generate("hello", max_tokens=30, ignore_eos=True))

        async def main():
            first = engine.submit("hello", **LONG)
            await anext(first)
            request = engine.submit("hello", max_tokens=30, ignore_eos=True)
            for _ in range(3):
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(request), 0.01)
            self.assertEqual(request._answer.waiting, [])
            first.cancel()
            text = await anext(request)
            return text + "".join([piece async for piece in request])

        self.assertEqual(asyncio.run(main()), expected)

    def test_failures(self):
        engine = self.engine(sequences=1)

        async def main():
            request, late = engine.submit("hello", deadline=0.05, **LONG), engine.submit("hello", deadline=0.05, **LONG)
            with self.assertRaisesRegex(hearth.Error, "deadline"):
                async for _ in request:
                    pass
            with self.assertRaisesRegex(hearth.Error, "deadline"):
                await late
            task = asyncio.ensure_future(engine.submit("hello", **LONG))
            await asyncio.sleep(0.01)
            await asyncio.to_thread(engine.close)
            with self.assertRaisesRegex(hearth.Error, "the engine was closed"):
                await task

        asyncio.run(main())

    def test_a_loop_that_ends_first(self):
        engine = self.engine()

        async def main():
            asyncio.create_task(anext(engine.submit("hello" * 2000, **LONG)))
            await asyncio.sleep(0)

        for _ in range(10):
            asyncio.run(main())
        self.wait_until_idle(engine)

    def test_the_loop_runs_meanwhile(self):
        engine = self.engine()

        async def main():
            counted, task = 0, asyncio.ensure_future(engine.submit("hello world " * 4000, max_tokens=10, ignore_eos=True))
            while not task.done():
                counted += 1
                await asyncio.sleep(0.0005)
            return counted, await task

        counted, text = asyncio.run(main())
        self.assertGreater(counted, 10)
        self.assertTrue(text)


class Processes(WithEngines):
    def run_program(self, program):
        text = "import hearth, os, sys, time\nmodel = hearth.load(sys.argv[1], threads=2)\n" + textwrap.dedent(program)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        path = str(self.work / "tiny.gguf")
        done = subprocess.run([sys.executable, "-c", text, path], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_the_end_of_the_program(self):
        """With answers under way, pieces that wait, and an engine that nobody closed."""
        for last in ("pass", "del engine", "sys.exit(0)", "print(next(requests[0]) != '')"):
            self.run_program(f"""
                engine = model.engine()
                requests = [engine.submit("hello", max_tokens=500_000, ignore_eos=True) for _ in range(30)]
                next(requests[5])
                {last}
                """)

    def test_the_end_of_daemons(self):
        """Threads that compute when the program ends go with it, without a word."""
        for call in ("''.join(model.generate('hello', **how))", "model.chat('hello', on_probe=seen.append, **how).close()",
                     "engine.submit('hello', **how).result()", "engine.warm('hello ' * 40)"):  # fmt: skip
            self.run_program(f"""
                import threading
                engine, seen, how = model.engine(), [], {{"max_tokens": 2000, "ignore_eos": True}}
                begun = threading.Event()
                def compute():
                    while True:
                        {call}
                        begun.set()
                for _ in range(2):
                    threading.Thread(target=compute, daemon=True).start()
                begun.wait()
                """)

    def test_a_fork(self):
        """The child has no engine, and ends; the parent's goes on. At the fork no thread is on its way into Python, where one would
        keep a lock that Python 3.11 takes in the child: the answer stands still, as nobody reads it."""
        found = self.run_program("""
            engine = model.engine()
            request = engine.submit("hello", max_tokens=2000, ignore_eos=True)
            next(request)
            while request._answer.report is None and len(request._answer.pieces) < hearth._engine.MOST_PIECES:
                time.sleep(0.001)
            time.sleep(0.05)
            child = os.fork()
            if not child:
                try:
                    engine.submit("hello")
                except ValueError as e:
                    print(e, flush=True)
                try:
                    request.result()
                except hearth.Error as e:
                    print(e, flush=True)
                engine.close()
                del request, engine
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            print(len(request.result()) > 100)
            """)
        self.assertEqual(found.splitlines(), ["the engine is closed", "the engine is one of the process before the fork", "True"])


class Soak(WithEngines):
    def test_random_uses(self):
        """What is left is nothing, and every answer is a beginning of the right one."""
        cases = 6000 if os.environ.get("HEARTH_SOAK") else 300
        rng, prompts = random.Random(5), ["hello", "hello world " * 30, "the world " * 60]
        expected = {p: "".join(self.model.generate(p, max_tokens=40, ignore_eos=True)) for p in prompts}
        engine = self.engine(sequences=5, queue=400, step_tokens=64)

        async def one(i):
            await asyncio.sleep(rng.random() / 10)
            prompt, n = rng.choice(prompts), rng.randrange(1, 41)
            request = engine.submit(prompt, max_tokens=n, ignore_eos=True, priority=rng.randrange(3), deadline=rng.choice([None, 0.02, 60]))
            text, leave = "", rng.choice([None, None, 1, 5])
            try:
                async for piece in request:
                    text += piece
                    leave = leave and leave - 1
                    if leave == 0:
                        break
            except hearth.Error as e:
                self.assertIn("deadline", str(e))
            self.assertTrue(expected[prompt].startswith(text.rstrip("\ufffd")), (i, text))
            return await asyncio.to_thread(request.wait) if i % 7 == 0 else True

        async def main():
            for _ in range(0, cases, 300):
                self.assertEqual(set(await asyncio.gather(*map(one, range(300)))), {True})

        asyncio.run(main())
        self.wait_until_idle(engine)
        figures = engine.statistics()
        self.assertEqual(figures["submitted"], figures["ended"] + figures["cancelled"])
        self.assertEqual((figures["failed"], figures["kv_bytes"]), (0, figures["prefix_bytes"]))


if __name__ == "__main__":
    unittest.main()
