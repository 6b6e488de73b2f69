"""Grammars, matchers, budgets of thoughts, penalties, biases of logits, and what ended an answer. Needs HEARTH_LIBRARY and PYTHONPATH=python."""

import asyncio
import gc
import json
import re
import unittest

from with_tiny_model import WithTinyModel  # which makes the package importable

import hearth
import tiny_model

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["a", "b"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


class Grammars(WithTinyModel):
    def draw(self, grammar, seed=0, **options):
        how = {"max_tokens": 64, "temperature": 1.0, "seed": seed, "grammar": grammar, **options}
        answer = self.model.generate("hello", **how)
        return "".join(answer), answer.metrics

    def takes(self, grammar, text):
        matcher = grammar.matcher()
        return all(matcher.accept(token) for token in self.model.tokenize(text, add_special=False))

    def test_answers_are_texts_of_the_grammar(self):
        pattern = "[a-c]{2,5}-\\d+(\\.\\d)?"
        gbnf = 'root ::= "<" pair ">"\npair ::= "()" | "(" pair ")"'
        for seed in range(6):
            text, _ = self.draw(hearth.Grammar.from_regex(self.model, pattern), seed)
            self.assertTrue(re.match("[a-c]{2,5}-\\d", text), text)
            text, metrics = self.draw(hearth.Grammar.from_gbnf(self.model, gbnf), seed)
            if metrics["finish"] == "stop":
                self.assertTrue(re.fullmatch(r"<\(+\)+>", text) and text.count("(") == text.count(")"), text)
            for schema in SCHEMA, json.dumps(SCHEMA):
                text, metrics = self.draw(hearth.Grammar.from_json_schema(self.model, schema, space="none", ordered=True), seed)
                self.assertEqual((metrics["finish"], metrics["stop"], metrics["stop_id"]), ("stop", None, None))
                value = json.loads(text)
                self.assertEqual(list(value), ["name", "count"])
                self.assertIn(value["name"], ("a", "b"))
                self.assertIn(value["count"], range(100))
        # Objects have the members that are described, in their order, unless others are asked for.
        described = {"properties": {"b": {"enum": [1]}, "a": {"enum": [2]}}, "required": ["a", "b"], "type": "object"}
        text, _ = self.draw(hearth.Grammar.from_json_schema(self.model, described))
        self.assertEqual(list(json.loads(text).items()), [("b", 1), ("a", 2)])
        allows = lambda text, **how: self.takes(hearth.Grammar.from_json_schema(self.model, described, **how), text)  # noqa: E731
        other, turned = '{"b": 1, "a": 2, "c"', '{"a": 2, "b": 1}'
        self.assertEqual([allows(other), allows(other, closed=False), allows(turned), allows(turned, ordered=False)], [False, True, False, True])
        text, _ = self.draw(hearth.Grammar.from_json_schema(self.model, {"const": "\u00e9\U0001f600"}))
        self.assertEqual(json.loads(text), "\u00e9\U0001f600")

    def test_every_way_to_ask(self):
        grammar = hearth.Grammar.from_regex(self.model, "(yes|no)")
        how = {"temperature": 1.0, "seed": 4, "grammar": grammar}
        expected = "".join(self.model.generate("hello", **how))
        self.assertIn(expected, ("yes", "no"))
        self.assertEqual("".join(self.model.generate("hello", lookup=True, **how)), expected)
        self.assertIn("".join(self.model.chat("hello", **how)), ("yes", "no"))
        self.assertEqual(self.model.batch(["hello", {"prompt": "hello", **how}], max_tokens=3, **how)[1].text, expected)
        with self.model.engine() as engine:
            requests = [engine.submit("hello", n=2, **how) for _ in range(3)]
            del how["grammar"], grammar  # requests hold it
            gc.collect()
            for request in requests:
                self.assertEqual(request.result(), expected)
                self.assertIn(request.answers[1].result(), ("yes", "no"))
                self.assertEqual((request.metrics["stop"], request.metrics["stop_id"]), (None, None))

    def test_beside_tools(self):
        path = self.work / "tools.gguf"
        tiny_model.write(path, template="{% for m in messages %}{{ m.content }}{% endfor %}{# <tool_call> #}")
        model = hearth.load(path, threads=2)
        cities = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
        tools = [{"name": "weather", "parameters": cities}, {"name": "stop"}]
        grammar = hearth.Grammar.from_regex(model, "[xyz]{2}")

        def answer(seed, **options):
            how = {"max_tokens": 800, "temperature": 2.0, "seed": seed, "grammar": grammar, "tools": tools, **options}
            made = model.chat("hello", **how)
            text = "".join(made)
            with model.engine() as engine:
                request = engine.submit([{"role": "user", "content": "hello"}], **how)
                self.assertEqual((request.result(), request.tool_calls), (text, made.tool_calls))
            return text, made.tool_calls, made.metrics["finish"]

        self.assertEqual(answer(0, tool_choice="auto"), answer(0))
        for seed in range(3):
            self.assertRegex(answer(seed, tool_choice="none")[0], "^[xyz]{2}$")
            text, calls, _ = answer(seed, tool_choice="stop", parallel_tool_calls=False)
            self.assertEqual((text, [call["name"] for call in calls]), ("", ["stop"]))
        for wrong, kind in [("other", ValueError), (3, TypeError)]:
            with self.assertRaises(kind):
                list(model.chat("hello", tools=tools, tool_choice=wrong))

    def test_a_matcher(self):
        grammar = hearth.Grammar.from_regex(self.model, "ab*c")
        a, b, c = (self.model.tokenize(x, add_special=False)[0] for x in "abc")
        end = self.model.tokenize("<|im_end|>", add_special=False)[0]
        matcher = grammar.matcher()
        del grammar  # the matcher holds it
        mask = matcher.mask()
        self.assertEqual((mask.format, mask.shape), ("?", (self.model.vocab_size,)))
        allowed = [i for i, may in enumerate(mask) if may]
        self.assertIn(a, allowed)
        self.assertTrue(all(self.model.detokenize([i]).startswith("a") for i in allowed))
        self.assertEqual((len(matcher), matcher.ending), (0, "not"))
        self.assertFalse(matcher.accept(b))
        self.assertFalse(matcher.accept(end))
        for i, token in enumerate([a, b, b, c]):
            self.assertTrue(matcher.mask()[token])
            self.assertTrue(matcher.accept(token))
            self.assertEqual(len(matcher), i + 1)
        self.assertEqual(matcher.ending, "must")
        self.assertEqual({i for i, may in enumerate(matcher.mask()) if may} & {a, b, c, end}, {end})
        self.assertTrue(matcher.accept(end))
        self.assertEqual(len(matcher), 4)
        matcher.truncate(2)
        self.assertEqual((len(matcher), matcher.ending), (2, "not"))
        self.assertTrue(matcher.accept(c))
        self.assertRaises(ValueError, matcher.truncate, 7)
        self.assertTrue(mask[a] and not mask[c])  # it is the caller's: later calls do not change it
        self.assertEqual(hearth.Grammar.from_regex(self.model, "x*").matcher().ending, "may")

    def test_a_mask_agrees_with_generation(self):
        """A loop of one's own draws what generate() does."""
        grammar = hearth.Grammar.from_json_schema(self.model, SCHEMA)
        matcher, session, ids = grammar.matcher(), self.model.session(), self.model.tokenize("hello")
        tokens = []
        while matcher.ending != "must":
            logits = session.logits(tokens[-1:] or ids, last=True).tolist()
            mask = matcher.mask()
            tokens.append(max((i for i in range(len(logits)) if mask[i]), key=lambda i: (logits[i], -i)))
            if not matcher.accept(tokens[-1]) or len(tokens) == 64 or len(matcher) < len(tokens):
                break
        with self.model.engine() as engine:
            request = engine.submit(ids, grammar=grammar, max_tokens=64)
            request.wait()
        self.assertEqual(request.tokens, tokens[: len(matcher)])

    def test_what_is_no_grammar(self):
        for make, wrong, error, says in (
            (hearth.Grammar.from_regex, "(", hearth.Error, ""),
            (hearth.Grammar.from_regex, 7, TypeError, "the pattern is a int"),
            (hearth.Grammar.from_gbnf, "root ::= other", hearth.Error, "other"),
            (hearth.Grammar.from_json_schema, {"type": "nothing"}, hearth.Error, "type"),
            (hearth.Grammar.from_json_schema, "{", hearth.Error, ""),
            (hearth.Grammar.from_json_schema, {"const": float("nan")}, ValueError, ""),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(error, says):
                make(self.model, wrong)
        with self.assertRaisesRegex(ValueError, "expected one of lines, none, any"):
            hearth.Grammar.from_json_schema(self.model, SCHEMA, space="many")
        self.assertRaisesRegex(TypeError, "for a str, expected a model", hearth.Grammar.from_regex, "model", "a")
        self.assertRaisesRegex(TypeError, "is made by", hearth.Grammar)
        self.assertRaisesRegex(TypeError, "a matcher of a str", hearth.Matcher, "a")
        self.assertRaisesRegex(TypeError, "the grammar is a str", self.model.generate, "hello", grammar="a")
        self.assertRaises(TypeError, hearth.Grammar.from_regex(self.model, "a").matcher().accept, "a")
        self.assertRaises((ValueError, hearth.Error), hearth.Grammar.from_regex(self.model, "a").matcher().truncate, 1)


class Sampling(WithTinyModel):
    HOW = {"max_tokens": 24, "ignore_eos": True}

    def ids(self, **options):
        seen = []
        list(self.model.generate("hello", on_probe=seen.append, probes="token", **{**self.HOW, **options}))
        return [p["token"] for p in seen]

    def test_biases_and_penalties(self):
        plain = self.ids()
        self.assertEqual(set(self.ids(logit_bias={10: 1000})), {10})
        self.assertEqual(set(self.ids(logit_bias=[(10, 1000), (11, 1100.5)])), {11})
        self.assertNotIn(plain[0], self.ids(logit_bias={plain[0]: -100}))
        self.assertEqual(self.ids(logit_bias={}), plain)
        self.assertEqual(self.ids(logit_bias=None), plain)
        once = self.ids(presence_penalty=1000, max_tokens=16)
        self.assertEqual(len(set(once)), 16)
        counted = self.ids(frequency_penalty=1000, logit_bias={10: 1500, 11: 1500}, max_tokens=4)
        self.assertEqual(sorted(counted), [10, 10, 11, 11])
        with self.model.engine() as engine:
            request = engine.submit("hello", **self.HOW, frequency_penalty=1000, logit_bias={10: 1500, 11: 1500})
            request.wait()
            self.assertEqual(request.tokens[:4], counted)
        for wrong, error, says in (
            ({"logit_bias": {99999: 1}}, ValueError, "logit_bias of token 99999"),
            ({"logit_bias": [(1, 2), (1, 3)]}, ValueError, "token 1 twice"),
            ({"logit_bias": {"a": 1}}, TypeError, "a token id of logit_bias is a str"),
            ({"logit_bias": {1: "a"}}, TypeError, ""),
            ({"logit_bias": {1: float("inf")}}, ValueError, "expected a finite number"),
            ({"presence_penalty": float("nan")}, ValueError, "presence_penalty is nan"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(error, says):
                list(self.model.generate("hello", **wrong))

    def test_logprobs(self):
        seen = []
        ids = self.model.tokenize("hello")
        list(self.model.generate(ids, on_probe=seen.append, probes="logprob", top_logprobs=3, temperature=1.0, **self.HOW))
        tokens = [p["token"] for p in seen]
        (score,) = self.model.score([(ids, [tokens])], top_k=3)
        for probe, expected in zip(seen, score.continuations[0].tokens, strict=True):
            self.assertEqual((probe["token"], probe["logprob"]), (expected.id, expected.log_probability))
            self.assertEqual([tuple(t) for t in probe["top"]], [tuple(t) for t in expected.top])
        found = []
        with self.model.engine() as engine:
            engine.submit(ids, on_probe=found.append, probes="logprob", top_logprobs=3, temperature=1.0, **self.HOW).wait()
        self.assertEqual([{k: v for k, v in p.items() if k != "answer"} for p in found], seen)
        with self.assertRaisesRegex(ValueError, "top_logprobs is 21, expected 0 to 20"):
            list(self.model.generate("hello", on_probe=print, probes="logprob", top_logprobs=21))
        self.assertRaisesRegex(ValueError, "there is no on_probe", self.model.generate, "hello", top_logprobs=2)

    def test_what_ended_an_answer(self):
        whole = "".join(self.model.generate("hello", **self.HOW))
        stops = ["never", whole[5:7], whole[5:6]]
        end = self.model.tokenize("<|im_end|>", add_special=False)[0]
        with self.model.engine() as engine:

            def metrics(**options):
                answer = self.model.generate("hello", **options)
                self.assertEqual((answer.metrics["stop"], answer.metrics["stop_id"]), (None, None))  # it has not begun
                text = "".join(answer)
                request = engine.submit("hello", **options)
                self.assertEqual(request.result(), text)
                (batched,) = self.model.batch(["hello"], **options)[0].answers
                found = [(m["finish"], m["stop"], m["stop_id"]) for m in (answer.metrics, request.metrics, batched._asdict())]
                self.assertEqual(found, [found[0]] * 3)
                return found[0]

            self.assertEqual(metrics(**self.HOW), ("length", None, None))
            self.assertEqual(metrics(**self.HOW, stop=stops[:2]), ("stop", 1, None))
            self.assertEqual(metrics(**self.HOW, stop=stops[2]), ("stop", 0, None))
            self.assertEqual(metrics(max_tokens=5, logit_bias={end: 1000}, stop=["x"]), ("stop", None, end))

            async def cancelled():
                request = engine.submit("hello", max_tokens=100_000, ignore_eos=True)
                async for _ in request:
                    break
                request.wait()
                return request.metrics

            ended = asyncio.run(cancelled())
            self.assertEqual((ended["finish"], ended["stop"], ended["stop_id"]), ("closed", None, None))


class Thoughts(WithTinyModel):
    def test_budgets(self):
        path = self.work / "thinks.gguf"
        tiny_model.write(path, template="{% for m in messages %}{{ m.content }}{% endfor %}<think>\n")
        model = hearth.load(path, threads=2)
        # No end, and no token twice: the model never ends a thought of its own.
        how = {"max_tokens": 40, "presence_penalty": 1000, "logit_bias": {0: -1000, 2: -1000}}

        def chat(**options):
            answer = model.chat("hello", **how, **options)
            return "".join(answer), answer.thinking, answer.metrics["thought_ended"]

        free = chat()
        self.assertEqual((free[0], free[2], chat(max_thinking_tokens=40)), ("", False, free))
        for budget in 0, 5:
            text, thinking, ended = found = chat(max_thinking_tokens=budget)
            self.assertTrue(text and ended)
            self.assertTrue(free[1].startswith(thinking.rstrip("\ufffd")))
            self.assertEqual(bool(thinking), budget > 0)
            (answers,) = model.batch([[{"role": "user", "content": "hello"}]], max_thinking_tokens=budget, **how)
            (answer,) = answers.answers
            self.assertEqual((answer.text, answer.thinking, answer.thought_ended), found)
            with model.engine() as engine:
                request = engine.submit([{"role": "user", "content": "hello"}], max_thinking_tokens=budget, **how)
                request.wait()
                self.assertEqual(request.metrics["thought_ended"], True)
        for wrong, error, says in (-2, ValueError, "max_thinking_tokens is -2"), ("1", TypeError, "max_thinking_tokens"):
            with self.assertRaisesRegex(error, says):
                list(model.chat("hello", max_thinking_tokens=wrong))


if __name__ == "__main__":
    unittest.main()
