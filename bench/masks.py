"""Token masks of JSON Schemas: Hearth and llguidance, in turns.

    python3 bench/masks.py [--program PATH] [--rounds 5] [--each] [--json] VOCABULARY.gguf

Both get the same vocabulary, that of the GGUF, the same schemas, and texts of them, token by token, as Hearth's tokenizer cuts them. A
round is a process of each: it compiles every schema, and walks its texts one after the other, so that a round meets every state for
the first time. Of each mask the fastest round counts, as others use the machine, too. Printed are, for all masks together, median, mean, 99th
percentile and largest, and medians of the first mask and of compiling; --each has a line for every schema. llguidance gets its slices
for JSON; it takes members in the order of the schema, Hearth in any order.

Needs llguidance and numpy, in the Python that runs this or that --python names.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards make toxic brew for the evil queen and jack, "
         "whose château in Köln was “sold”, and then rebuilt with naïve hopes").split()


def prose(draw, n):
    return " ".join(draw.choice(WORDS) for _ in range(n))


def described(properties, **more):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False, **more}


def cases():
    """Names, schemas and texts of each."""
    draw = random.Random(1)
    text, whole = {"type": "string"}, {"type": "integer"}
    word = {"type": "string", "maxLength": 40}
    person = described({"name": text, "age": {"type": "integer", "minimum": 0, "maximum": 130}, "email": {"type": "string", "format": "email"},
                        "tags": {"type": "array", "items": text}})
    yield "person", person, [{"name": prose(draw, 3), "age": 7 * i, "email": f"ada{i}@example.org", "tags": WORDS[i:i + 4]} for i in range(3)]
    order = described({
        "id": {"type": "string", "pattern": "^[A-Z]{2}-\\d{6}$"}, "placed": {"type": "string", "format": "date-time"},
        "state": {"enum": ["open", "paid", "sent", "returned"]},
        "lines": {"type": "array", "minItems": 1, "maxItems": 20, "items": described({
            "article": word, "count": {"type": "integer", "minimum": 1, "maximum": 999}, "price": {"type": "number", "minimum": 0}})},
        "note": {"type": "string", "maxLength": 200}})
    yield "order", order, [{
        "id": f"KX-{100000 + i}", "placed": f"2024-0{i + 1}-17T08:30:00Z", "state": ["open", "paid", "sent"][i],
        "lines": [{"article": prose(draw, 2), "count": k + 1, "price": 9.5 * k + 0.25} for k in range(4)], "note": prose(draw, 12)} for i in range(3)]
    tree = {"$defs": {"node": described({"name": text, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}})}, "$ref": "#/$defs/node"}

    def branch(depth):
        return {"name": prose(draw, 1), "children": [branch(depth - 1) for _ in range(2)] if depth else []}
    yield "tree", tree, [branch(2), branch(3)]
    call = {"anyOf": [described({"tool": {"const": name}, "arguments": described(fields)}) for name, fields in {
        "search": {"query": text, "limit": whole}, "weather": {"city": text, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "mail": {"to": {"type": "string", "format": "email"}, "subject": word, "body": text}, "now": {}}.items()]}
    yield "calls", call, [{"tool": "search", "arguments": {"query": prose(draw, 5), "limit": 20}},
                          {"tool": "mail", "arguments": {"to": "bob@example.com", "subject": prose(draw, 4), "body": prose(draw, 25)}},
                          {"tool": "weather", "arguments": {"city": "Köln", "unit": "celsius"}}]
    yield "anything", {}, [{"a": [1, 2.5, -3e4, None, True], prose(draw, 2): {"x": prose(draw, 9)}}, [[[]], {}, "…", 12345.678]]
    yield "map", {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}}, [
        {prose(draw, 2): [round(draw.uniform(-99, 99), 3) for _ in range(6)] for _ in range(5)} for _ in range(2)]
    formats = described({f: {"type": "string", "format": f} for f in ("date", "time", "ipv4", "ipv6", "uuid", "hostname", "uri")})
    yield "formats", formats, [{"date": "2023-11-05", "time": "12:34:56Z", "ipv4": "192.168.10.254", "ipv6": "2001:db8::ff00:42:8329",
                                "uuid": "123e4567-e89b-12d3-a456-426614174000", "hostname": "mail.example.org",
                                "uri": "https://example.org/a/b?c=d#e"}]
    countries = [prose(draw, 2) + f" {i}" for i in range(300)]
    yield "enum of 300", described({"country": {"enum": countries}, "other": {"enum": countries}}), [
        {"country": countries[i], "other": countries[299 - i]} for i in (0, 150, 299)]
    lengths = described({f"text_{n}": {"type": "string", "minLength": n // 2, "maxLength": n} for n in (5, 20, 80, 320)})
    yield "lengths", lengths, [{f"text_{n}": prose(draw, n)[:n - 1] for n in (5, 20, 80, 320)} for _ in range(2)]
    patterns = described({"sku": {"type": "string", "pattern": "^[a-z]+(-[a-z0-9]+){2,4}$"}, "phone": {"type": "string", "pattern": "^\\+\\d{1,3} \\d{3,14}$"},
                          "color": {"type": "string", "pattern": "^#[0-9a-f]{6}$"}, "words": {"type": "string", "pattern": "^(\\w+ ){3,8}\\w+$"}})
    yield "patterns", patterns, [{"sku": "shoe-x1-red", "phone": "+49 2211234567", "color": "#ff8800", "words": "one two three four five"}]
    optional = {"type": "object", "properties": {f"{w}_{i}": {"type": ["string", "null"]} for i, w in enumerate(WORDS[:16])}, "additionalProperties": False}
    yield "16 optional members", optional, [
        {k: prose(draw, 2) if i % 3 else None for i, k in enumerate(optional["properties"]) if (i + n) % 2} for n in range(2)]
    many = described({f"property_{i}_{WORDS[i % 30].strip(',')}": text if i % 2 else whole for i in range(100)})
    yield "100 members", many, [{k: prose(draw, 2) if v is text else draw.randrange(1000) for k, v in many["properties"].items()}]
    deep = whole
    for i in range(10):
        deep = described({f"level_{i}": deep, "note": word})
    value = 42
    for i in range(10):
        value = {f"level_{i}": value, "note": prose(draw, 2)}
    yield "10 levels", deep, [value]


# Of the peer, in a process of its own: questions and answers are JSON on standard input and output.
PEER = """
import json, sys, time
import numpy
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
class Vocabulary:
    def __init__(self, tokens, eos):
        self.tokens, self.eos_token_id, self.bos_token_id = tokens, eos, None
        self.special_token_ids = [i for i, t in enumerate(tokens) if not t]
    def __call__(self, text):
        return self.greedy(text)
question = json.load(sys.stdin)
tokens = [bytes.fromhex(line) for line in open(question["tokens"]).read().split("\\n")[:-1]]
tokens = [t or b"\\xff<special_%d>" % i for i, t in enumerate(tokens)]
vocabulary = Vocabulary(tokens, question["eos"])
vocabulary.special_token_ids = [i for i, t in enumerate(tokens) if t.startswith(b"\\xff<special_")]
longest = max(map(len, tokens))
number = {t: i for i, t in reversed(list(enumerate(tokens)))}
def greedy(text):
    out, at = [], 0
    while at < len(text):
        n = next(n for n in range(min(longest, len(text) - at), 0, -1) if text[at:at + n] in number)
        out.append(number[text[at:at + n]])
        at += n
    return out
vocabulary.greedy = greedy
tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), slices=LLTokenizer.json_slices())
clock = time.perf_counter_ns
mask = numpy.zeros((len(tokens) + 31) // 32, numpy.uint32)
at, size = mask.ctypes.data, mask.nbytes
answers = []
for case in question["cases"]:
    begin = clock()
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(case["schema"]))
    compile = clock() - begin
    texts = []
    for ids in case["texts"]:
        masks, accepts, allowed = [], [], []
        for i in range(len(ids) + 1):
            begin = clock()
            matcher.unsafe_compute_mask_ptr(at, size)
            made = clock()
            if i < len(ids):
                if not matcher.consume_token(ids[i]): sys.exit(f"{case['name']}: token {i} is not allowed: {matcher.get_error()}")
                accepts.append(clock() - made)
            masks.append(made - begin)
            allowed.append(int(numpy.unpackbits(mask.view(numpy.uint8)).sum()))
        matcher.reset()
        texts.append({"mask": masks, "accept": accepts, "allowed": allowed})
    answers.append({"compile": compile / 1e9, "texts": texts})
json.dump(answers, sys.stdout)
"""


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def hearth(program, vocabulary, files):
    arguments = [argument for paths in files for argument in ("--", *paths)][1:]
    return [json.loads(line) for line in run([program, vocabulary, *arguments]).splitlines()][1:]


def flat(answer, what="mask"):
    return [ns for text in answer["texts"] for ns in text[what]]


def summary(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    return {"median": at(0.5), "mean": statistics.mean(values), "p99": at(0.99), "most": values[-1]}


def figures(rounds):
    """Of rounds of one case: each mask's time, the first mask's, and that of compiling, in microseconds."""
    masks = [min(ns) / 1e3 for ns in zip(*map(flat, rounds))]
    accepts = [min(ns) / 1e3 for ns in zip(*(flat(r, "accept") for r in rounds))]
    return {"masks": masks, "accepts": accepts, "first": masks[0], "compile": 1e6 * min(r["compile"] for r in rounds)}


def line(name, ours, theirs):
    parts = []
    for key in ("median", "mean", "p99", "most"):
        parts.append(f"{key} {summary(ours['masks'])[key]:8.1f} {summary(theirs['masks'])[key]:8.1f}")
    parts += [f"{key} {ours[key]:7.0f} {theirs[key]:7.0f}" for key in ("first", "compile")]
    parts.append(f"accept {statistics.mean(ours['accepts']):5.1f} {statistics.mean(theirs['accepts']):5.1f}")
    return f"{name:20} " + "  ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vocabulary")
    parser.add_argument("--program", default="build/release/bin/bench_masks")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", action="store_true", help="a line for every schema, too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tokens").write_text(run([arguments.program, arguments.vocabulary]))
        n_tokens = len((folder / "tokens").read_text().split("\n")) - 1
        all_cases, files = list(cases()), []
        for i, (_, schema, texts) in enumerate(all_cases):
            paths = [folder / f"{i}.schema", *(folder / f"{i}.{k}" for k in range(len(texts)))]
            paths[0].write_text(json.dumps(schema))
            for path, text in zip(paths[1:], texts):
                path.write_text(json.dumps(text, ensure_ascii=False))
            files.append(paths)
        ours, theirs, ids = [], [], None
        for _ in range(arguments.rounds):
            ours.append(hearth(arguments.program, arguments.vocabulary, files))
            ids = ids or [[text["ids"] for text in answer["texts"]] for answer in ours[0]]
            question = {"tokens": str(folder / "tokens"), "eos": n_tokens - 1, "cases": [
                {"name": name, "schema": json.dumps(schema), "texts": ids[i]} for i, (name, schema, _) in enumerate(all_cases)]}
            theirs.append(json.loads(run([arguments.python, "-c", PEER], input=json.dumps(question))))
    rows = []
    for i, (name, _, _) in enumerate(all_cases):
        rows.append((name, figures([r[i] for r in ours]), figures([r[i] for r in theirs])))
    total = [{"masks": [m for row in rows for m in row[k]["masks"]], "accepts": [m for row in rows for m in row[k]["accepts"]],
              **{key: statistics.median(row[k][key] for row in rows) for key in ("first", "compile")}} for k in (1, 2)]
    if arguments.json:
        print(json.dumps({name: {"hearth": a, "llguidance": b} for name, a, b in [*rows, ("all", *total)]}))
        return
    print("microseconds, Hearth and llguidance")
    for name, a, b in rows if arguments.each else []:
        print(line(name, a, b))
    print(line(f"all {len(total[0]['masks'])} masks", *total))


main()
