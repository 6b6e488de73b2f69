"""Makes json.txt, which test_json_value reads: pairs of lines, a text and what json.dumps makes of it, or "!" for what json.loads
refuses. Random texts, most of them damaged.

    python3 tests/golden/make_json.py > tests/golden/json.txt"""
import json
import random
import sys

random.seed(61)
ALPHABET = 'ab"\\\t\u00e9\u2581\U0001f600\x7f/{}[],:'
DAMAGE = b'"\\{}[],:0-.eEntfu \x80\xff1'


def value(depth):
    kind = random.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return random.choice([True, False, None])
    if kind == 1:
        return random.randint(-(10 ** random.randrange(1, 25)), 10 ** random.randrange(1, 25))
    if kind == 2:
        return random.choice([random.random(), random.random() * 10.0 ** random.randint(-300, 300), 5e-324, 1e16, -0.0])
    if kind < 6:
        return "".join(random.choice(ALPHABET) for _ in range(random.randrange(8)))
    if kind < 8:
        return [value(depth + 1) for _ in range(random.randrange(5))]
    return {"".join(random.choice("abc\u00e9") for _ in range(random.randrange(4))): value(depth + 1) for _ in range(random.randrange(5))}


def damaged(text):
    bytes_ = bytearray(text)
    for _ in range(random.randrange(1, 3)):
        at = random.randrange(len(bytes_))
        bytes_[at:at + random.randrange(2)] = bytes([random.choice(DAMAGE)][:random.randrange(2)])
    return bytes(bytes_)


for _ in range(150):
    text = json.dumps(value(0), ensure_ascii=random.random() < 0.5, separators=random.choice([(",", ":"), (", ", ": ")])).encode()
    if random.random() < 0.6:
        text = damaged(text)
    try:
        result = json.dumps(json.loads(text.decode()))
    except ValueError:
        result = "!"
    if not any(word in result for word in ("\\ud", "inf", "Inf", "NaN")) or "\\ud83d\\ude00" in result:
        sys.stdout.buffer.write(text + b"\n" + result.encode() + b"\n")
