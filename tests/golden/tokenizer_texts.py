"""Texts for comparing tokenizers: the same ones for the same seed, NUL-free, some of them not valid UTF-8."""
import random
import unicodedata

SCRIPTS = {
    "latin": (0x41, 0x24F), "ipa": (0x250, 0x2AF), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F),
    "armenian": (0x531, 0x58F), "hebrew": (0x591, 0x5F4), "arabic": (0x600, 0x6FF), "syriac": (0x700, 0x74F),
    "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FE), "tamil": (0xB80, 0xBFA), "telugu": (0xC00, 0xC7F),
    "thai": (0xE01, 0xE5B), "lao": (0xE81, 0xEDF), "tibetan": (0xF00, 0xFDA), "myanmar": (0x1000, 0x109F),
    "georgian": (0x10A0, 0x10FF), "jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x139F), "cherokee": (0x13A0, 0x13FF),
    "canadian": (0x1400, 0x167F), "khmer": (0x1780, 0x17F9), "mongolian": (0x1800, 0x18AA), "vedic": (0x1CD0, 0x1CFF),
    "latin_more": (0x1E00, 0x1EFF), "greek_more": (0x1F00, 0x1FFE), "punctuation": (0x2000, 0x206F),
    "superscripts": (0x2070, 0x20CF), "letterlike": (0x2100, 0x218F), "arrows": (0x2190, 0x23FF),
    "enclosed": (0x2460, 0x24FF), "boxes": (0x2500, 0x27BF), "braille": (0x2800, 0x28FF), "kana": (0x3040, 0x30FF),
    "bopomofo": (0x3105, 0x31FF), "cjk_symbols": (0x3000, 0x303F), "cjk": (0x4E00, 0x9FFF), "cjk_a": (0x3400, 0x4DBF),
    "yi": (0xA000, 0xA4C6), "hangul": (0xAC00, 0xD7A3), "private": (0xE000, 0xE100), "compat": (0xF900, 0xFAFF),
    "arabic_forms": (0xFB50, 0xFDFF), "halfwidth": (0xFF01, 0xFFEE), "specials": (0xFFF0, 0xFFFD),
    "gothic": (0x10330, 0x1034A), "cuneiform": (0x12000, 0x120FF), "music": (0x1D100, 0x1D1FF),
    "math": (0x1D400, 0x1D7FF), "emoji": (0x1F300, 0x1F64F), "emoji_more": (0x1F680, 0x1FAFF),
    "cjk_b": (0x20000, 0x200FF), "tags": (0xE0001, 0xE007F), "selectors": (0xE0100, 0xE01EF),
}  # fmt: skip
SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003",
          "\u2028", "\u2029", "\u200b", "\u202f", "\u205f", "\u3000", "\ufeff"]  # fmt: skip
PIECES = [
    "I'm", "we've", "It's", "THEY'LL", "don't", "I'D", "he'ſ", "l'été", "rock'n'roll", "'tis", "o'clock", "''", "'S",
    "100", "3.14159", "1,234,567.89", "0xDEADBEEF", "２０２４", "٣٤٥", "१२३", "½", "Ⅻ", "²³", "2024-11-21T10:00:00Z",
    "https://example.org/a?b=c&d=%20#frag", "user@example.com", "C:\\path\\to", "snake_case_name", "camelCaseName",
    "for (int i = 0; i < n; i++) {\n\tsum += a[i];\n}", "def f(x):\n    return x**2  # square\n", "<div class=\"a\">",
    "{\"key\": [1, 2.5e-3, null]}", "SELECT * FROM t WHERE a <> 'b';", "\\frac{a}{b}", "#include <stdio.h>", "=>", "!=",
    "===", "--", "...", "…", "—", "“quoted”", "(parenthesis)", "[x]", "$9.99", "€5", "№7", "50%", "C++", "&amp;",
    "e\u0301", "n\u0303o", "a\u0328\u0301", "\u1112\u1161\u11ab", "\u0915\u094d\u0937", "ก็", "שָׁלוֹם", "ﬁne", "Å", "Å",
    "👨‍👩‍👧‍👦", "👩🏽‍🚀", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "❤️", "🫠", "☺", "👍🏿", "▁", "▁▁", "▁word", "Ġ", "Ċ", "<0x0A>", "�",
    "word", "Hello", "WORLD", "straße", "naïve", "Москва", "東京", "日本語のテキスト", "中文文本", "한국어", "नमस्ते", "ไทย", "العربية",
]  # fmt: skip


def run(rng):
    char = rng.choice(list(" \n\t\r.-=*#_/a0Aé的😀▁'") + ["ab", " \n", "\n ", "=-", "\u0301", "\u0323\u0301", "ha", "🇩"])
    return char * int(2 ** rng.uniform(1, 9))


def script(rng):
    low, high = SCRIPTS[rng.choice(list(SCRIPTS))]
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))


def mixture(rng):
    parts = []
    for _ in range(rng.randint(2, 14)):
        kind = rng.random()
        parts.append(rng.choice(PIECES) if kind < 0.6 else script(rng) if kind < 0.8 else rng.choice(SPACES))
        if rng.random() < 0.6:
            parts.append(" ")
    return "".join(parts)


def spaces(rng):
    return "".join(
        rng.choice(SPACES) * rng.randint(1, 4) if rng.random() < 0.7 else rng.choice(PIECES)
        for _ in range(rng.randint(1, 12))
    )


def controls(rng):
    return "".join(chr(rng.choice([rng.randint(1, 31), rng.randint(127, 160), rng.randint(32, 126)])) for _ in range(20))


def marks(rng):
    text = ""
    for _ in range(rng.randint(1, 8)):
        text += chr(rng.choice([rng.randint(0x41, 0x7A), rng.randint(0xC0, 0x17F), rng.randint(0x391, 0x3C9)]))
        text += "".join(chr(rng.choice([rng.randint(0x300, 0x36F), rng.randint(0x5B0, 0x5BD), rng.randint(0x64B, 0x652)]))
                        for _ in range(rng.randint(0, 4)))  # fmt: skip
    return unicodedata.normalize("NFD", text) if rng.random() < 0.5 else text


def anything(rng):
    text = ""
    while len(text) < 10:
        c = rng.randint(1, 0x10FFFF) if rng.random() < 0.3 else rng.randint(1, 0xFFFF)
        if not 0xD800 <= c < 0xE000:
            text += chr(c)
    return text


def tokens(rng, vocabulary):
    return "".join(rng.choice(vocabulary) for _ in range(rng.randint(1, 10)))


def specials(rng, names):
    parts = []
    for _ in range(rng.randint(1, 6)):
        name = rng.choice(names)
        cut = rng.random()
        parts.append(name if cut < 0.7 else name[: rng.randint(1, len(name))] if cut < 0.85 else name[1:])
        parts.append(rng.choice(PIECES + SPACES + ["", "", " "]))
    return "".join(parts)


def damage(rng, text):
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        what = rng.random()
        if what < 0.4 and at < len(data):
            del data[at]
        elif what < 0.7:
            data[at:at] = bytes([rng.randint(0x80, 0xFF)])
        else:
            data[at:at] = rng.choice([b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff"])
    return bytes(data)


def make_texts(n, names, vocabulary, seed=1):
    """n byte strings. `names`: added tokens to put into texts; `vocabulary`: readable tokens to string together."""
    rng = random.Random(seed)
    texts = [b" ", b"\n", b"a", b"'", b"  ", b" a", b"a ", "▁".encode(), b"\xff", b"<"]
    makers = [mixture, mixture, spaces, run, script, controls, marks, anything]
    while len(texts) < n:
        kind = rng.random()
        if kind < 0.12 and names:
            text = specials(rng, names)
        elif kind < 0.22:
            text = tokens(rng, vocabulary)
        else:
            text = rng.choice(makers)(rng)
            if rng.random() < 0.2:
                text += run(rng) + mixture(rng)
        data = text.replace("\0", "").encode("utf-8", "replace")
        if rng.random() < 0.06:
            data = damage(rng, text).replace(b"\0", b"")
        if data:
            texts.append(data)
    return texts
