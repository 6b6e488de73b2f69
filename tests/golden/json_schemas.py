"""Whether Hearth's JSON Schemas have the texts that they should have.

    python tests/golden/json_schemas.py CHECK suite TESTS [--draft draft2020-12] [--refused FILE]
    python tests/golden/json_schemas.py CHECK random [--schemas 1000] [--seed 1]

CHECK is the test program schema_check. suite: the cases of the JSON-Schema-Test-Suite, whose directory `tests` is TESTS (the source
package of jsonschema has it as json/tests). FILE lists the groups that are refused, with the keyword, as it is printed; others
are an error. random: made-up schemas; instances that Python's jsonschema finds valid are texts, others are not, and texts
that are drawn by chance from the grammar are valid.
"""

import argparse
import collections
import json
import math
import pathlib
import random
import subprocess
import sys
from decimal import Decimal

IGNORE_FORMATS, ORDERED, ANY_SPACE, CLOSED = 1, 2, 4, 16


class Checker:
    def __init__(self, program):
        self.program = program
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, text="", number=0):
        data = text.encode("utf-8", "surrogatepass")
        self.process.stdin.write(b"%s %d %d\n%s\n" % (kind.encode(), len(data), number, data))
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().rstrip("\n")
        if not answer:
            raise SystemExit(f"{self.program} ended with {self.process.wait()}: {kind} {text}")
        return answer


def number_text(value):
    """Numbers as they are written where a schema says something of them: without exponent."""
    return format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value)


def text_of(value, indent=None, comma=", ", colon=": ", depth=0):
    """JSON as json.dumps writes it, with number_text and characters as they are."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_text(value)
    if not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    line = "\n" + " " * indent * (depth + 1) if indent is not None else ""
    last = "\n" + " " * indent * depth if indent is not None else ""
    below = [text_of(v, indent, comma, colon, depth + 1) for v in (value.values() if begin == "{" else value)]
    if begin == "{":
        below = [json.dumps(k, ensure_ascii=False) + colon + v for k, v in zip(value, below)]
    separator = comma if indent is None else comma.rstrip() + line
    return begin + (line + separator.join(below) + last if below else "") + end


# ---- the suite ----


def run_suite(checker, tests, draft, refused_file):
    counts, refused, wrong = collections.Counter(), [], []
    files = sorted((tests / draft).rglob("*.json"))
    if not files:
        raise SystemExit(f"{tests / draft} has no cases")
    for path in files:
        name = path.relative_to(tests / draft).as_posix()
        # Formats say nothing in the draft itself.
        options = IGNORE_FORMATS if name == "format.json" else 0
        for group in json.loads(path.read_text()):
            answer = checker.ask("S", json.dumps(group["schema"]), options)
            where = f"{name}: {group['description']}"
            if answer.startswith("error") and not (
                "no valid value" in answer and not any(t["valid"] for t in group["tests"])
            ):
                counts["refused"] += len(group["tests"])
                pointer = answer.split("JSON Schema, ")[-1].split(": ")[0]
                refused.append(f"{where}: {pointer}")
                continue
            for test in group["tests"]:
                valid = "no" if answer.startswith("error") else checker.ask("I", text_of(test["data"]))
                right = valid == ("yes" if test["valid"] else "no")
                counts["right" if right else "wrong"] += 1
                if not right:
                    wrong.append(f"{where}: {test['description']}: {valid}")
    total = sum(counts.values())
    for line in wrong:
        print("wrong:", line)
    expected = [line for line in refused_file.read_text().split("\n") if line] if refused_file else refused
    for line in refused:
        if not refused_file or line not in expected:
            print("refused:", line)
    for line in expected:
        if line not in refused:
            print("no longer refused:", line)
    print(f"{draft}: {counts['right']} of {total} right ({counts['right'] / total:.1%}), {counts['refused']} refused, {counts['wrong']} wrong")
    return not wrong and sorted(expected) == sorted(refused)


# ---- random schemas ----

NAMES = ["a", "b", "ab", "", "é\n\"x"]
PATTERNS = ["^a", "b$", "^.?$", "[^a]", "^(?!a)", "(ab)+"]
VALUES = [None, False, True, 0, 1, 2, -1, 1.5, 10, 100, "", "a", "ab", "b", "x\"y\\\n", "é😀", [], [1], ["a", 1], {}, {"a": 1}, {"b": "a"}]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def few(self, values, least=0, most=3):
        return self.r.sample(values, min(len(values), self.r.randint(least, most)))

    def schema(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.08:
            return r.choice([True, False, {}, {"type": r.choice(["string", "integer", "object", "array"])}, {"const": r.choice(VALUES)}])
        s = {}
        for _ in range(r.choice([1, 1, 2, 2, 3])):
            r.choice([self.types, self.values, self.numbers, self.strings, self.arrays, self.arrays, self.objects, self.objects,
                      self.objects, self.logic, self.logic, self.reference])(s, depth - 1)  # fmt: skip
        return s

    def types(self, s, depth):
        names = ["null", "boolean", "integer", "number", "string", "array", "object"]
        s["type"] = self.r.choice(names) if self.r.random() < 0.5 else self.few(names, 1, 4)

    def values(self, s, depth):
        if self.r.random() < 0.4:
            s["const"] = self.r.choice(VALUES)
        else:
            s["enum"] = self.few(VALUES, 1, 6)

    def numbers(self, s, depth):
        key = self.r.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
        s[key] = self.r.choice([0.5, 1, 2, 3, 7]) if key == "multipleOf" else self.r.choice([-10, -1, 0, 0.5, 1, 1.5, 3, 10, 99])

    def strings(self, s, depth):
        key = self.r.choice(["minLength", "maxLength", "pattern"])
        s[key] = self.r.choice(PATTERNS) if key == "pattern" else self.r.randint(0, 3)

    def arrays(self, s, depth):
        r = self.r
        for key in self.few(["prefixItems", "items", "minItems", "maxItems", "contains", "unevaluatedItems", "uniqueItems"], 1, 3):
            if key == "prefixItems":
                s[key] = [self.schema(depth) for _ in range(r.randint(1, 2))]
            elif key == "uniqueItems":
                s[key] = True
                s["items"] = {"enum": self.few(VALUES[:12], 1, 4)}
            elif key in ["minItems", "maxItems"]:
                s[key] = r.randint(0, 3)
            else:
                s[key] = self.schema(depth)
        if "contains" in s and r.random() < 0.5:
            s[r.choice(["minContains", "maxContains"])] = r.randint(0, 2)

    def objects(self, s, depth):
        r = self.r
        keys = ["properties", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
                "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "unevaluatedProperties"]  # fmt: skip
        for key in self.few(keys, 1, 3):
            if key == "properties" or key == "dependentSchemas":
                s[key] = {n: self.schema(depth) for n in self.few(NAMES, 1, 3)}
            elif key == "patternProperties":
                s[key] = {p: self.schema(depth) for p in self.few(PATTERNS, 1, 2)}
            elif key == "required":
                s[key] = self.few(NAMES, 1, 2)
            elif key == "dependentRequired":
                s[key] = {n: self.few(NAMES, 0, 2) for n in self.few(NAMES, 1, 2)}
            elif key in ["minProperties", "maxProperties"]:
                s[key] = r.randint(0, 3)
            elif key == "propertyNames":
                s[key] = r.choice([{"pattern": r.choice(PATTERNS)}, {"maxLength": 1}, {"enum": self.few(NAMES, 1, 3)}, {"not": {"const": "a"}}])
            else:
                s[key] = self.schema(depth)

    def logic(self, s, depth):
        key = self.r.choice(["allOf", "anyOf", "oneOf", "oneOf", "not", "if"])
        if key == "if":
            for k in ["if"] + self.few(["then", "else"], 1, 2):
                s[k] = self.schema(depth)
        elif key == "not":
            s[key] = self.schema(depth)
        else:
            s[key] = [self.schema(depth) for _ in range(self.r.randint(1, 3))]

    def reference(self, s, depth):
        s["$ref"] = self.r.choice(["#/$defs/x", "#/$defs/y"])

    def document(self):
        s = self.schema(3)
        if isinstance(s, dict) and "$ref" in json.dumps(s):
            s["$defs"] = {"x": self.schema(2), "y": self.schema(2)}
        return s

    def instance(self, depth=3):
        r = self.r
        x = r.random()
        if depth <= 0 or x < 0.45:
            return r.choice(VALUES)
        if x < 0.55:
            return r.choice([r.randint(-12, 105), r.randint(-20, 20) / 2, "".join(r.choice("abé\"") for _ in range(r.randint(0, 4)))])
        if x < 0.75:
            return [self.instance(depth - 1) for _ in range(r.randint(0, 4))]
        return {r.choice([*NAMES, "c", "bb", "aab"]): self.instance(depth - 1) for _ in range(r.randint(0, 4))}

    def write(self, value):
        return text_of(value, *self.r.choice([(None,), (2,), (None, ",", ":"), (4,)]))


def no_repeats(pairs):
    """Keys that no schema names may come twice in a text: what they say then is not asked."""
    if len(dict(pairs)) < len(pairs):
        raise KeyError
    return dict(pairs)


def short(convert):
    """Numbers that Python's doubles do not hold exactly are not asked about."""

    def read(text):
        if len(text) > 15:
            raise KeyError
        value = convert(text)
        if value in (math.inf, -math.inf):  # jsonschema divides it
            raise KeyError
        return value

    return read


def wrong(counts, schema, what):
    counts["wrong"] += 1
    print(f"wrong: {what}: {json.dumps(schema, ensure_ascii=False)}")


def compare(checker, validator, maker, schema, counts):
    for _ in range(60):
        value = maker.instance()
        answer = checker.ask("I", maker.write(value))
        valid = validator.is_valid(value)
        counts["valid" if valid else "invalid"] += 1
        if answer != ("yes" if valid else "no"):
            wrong(counts, schema, f"{answer} for {json.dumps(value, ensure_ascii=False)}")


# Ends of lines as JSON writes them, which Python's `.` takes but for one, and whose last its `$` passes over; ECMA-262's do not.
LINE_ENDS = ["\\n", "\\r", "\\u2028", "\\u2029"]


def draw(checker, validator, maker, schema, counts):
    for _ in range(4):
        text = checker.ask("G", number=maker.r.getrandbits(31))
        if text == "long":
            counts["long"] += 1
        elif not text.startswith('"'):
            wrong(counts, schema, text)
        else:
            try:
                value = json.loads(json.loads(text), object_pairs_hook=no_repeats, parse_int=short(int), parse_float=short(float))
                if any(end in json.dumps(value) for end in LINE_ENDS):
                    raise KeyError
                counts["drawn"] += 1
                if not validator.is_valid(value):
                    wrong(counts, schema, f"drawn {text}")
            except KeyError:
                counts["drawn and left out"] += 1


def run_random(checker, n, seed):
    from jsonschema import Draft202012Validator

    counts = collections.Counter()
    for i in range(n):
        maker = Maker(seed * 1000003 + i)
        schema = maker.document()
        answer = checker.ask("S", json.dumps(schema), ANY_SPACE if i % 2 else 0)
        validator = Draft202012Validator(schema)
        try:
            if answer == "ok":
                counts["schemas"] += 1
                compare(checker, validator, maker, schema, counts)
                draw(checker, validator, maker, schema, counts)
                for how in ORDERED, CLOSED, ORDERED | CLOSED:
                    again = checker.ask("S", json.dumps(schema), how)
                    if again == "ok":
                        draw(checker, validator, maker, schema, counts)
                    elif "no valid value" in again:
                        wrong(counts, schema, f"{again} with options {how}")
            elif "no valid value" in answer:
                counts["empty"] += 1
                for value in [maker.instance() for _ in range(60)]:
                    if validator.is_valid(value):
                        wrong(counts, schema, f"empty, but {json.dumps(value)}")
            else:
                counts["refused"] += 1
                counts[answer.split(": ")[-1][:70]] += 1
        except BaseException as e:  # Python's validator, at a schema that refers to itself for the same value
            if type(e).__name__ not in ["RecursionError", "PanicException"]:
                raise
            counts["endless"] += 1
    print(", ".join(f"{k} {v}" for k, v in counts.items()))
    return not counts["wrong"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("check")
    parser.add_argument("what", choices=["suite", "random"])
    parser.add_argument("tests", nargs="?", type=pathlib.Path)
    parser.add_argument("--draft", default="draft2020-12")
    parser.add_argument("--refused", type=pathlib.Path)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    checker = Checker(a.check)
    good = run_suite(checker, a.tests, a.draft, a.refused) if a.what == "suite" else run_random(checker, a.schemas, a.seed)
    sys.exit(not good)


if __name__ == "__main__":
    main()
