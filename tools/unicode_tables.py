#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_table.c: the character classes that pre-tokenisers ask for.

The classes are read out of the `tokenizers` package itself, one code point at a time, because that is what Hearth has to
agree with: its regular expressions know one version of Unicode, its Digits step another, its Punctuation step a third.
Its normalizers know a fourth, older than utf8proc's: the marks that only utf8proc reorders or composes are listed too.

    python3 tools/unicode_tables.py > src/tokenizer/unicode_table.c        (made with tokenizers 0.23.3)
"""
import ctypes
import sys

from tokenizers import Regex, __version__, normalizers
from tokenizers import pre_tokenizers as P

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TABLE_END = 0x20000  # past this the classes are a few long ranges


def chunks(size=20000):
    for i in range(0, len(CODE_POINTS), size):
        yield CODE_POINTS[i : i + size]


def by_regex(pattern):
    split, found = P.Split(Regex(pattern), "removed"), set()
    for chunk in chunks():
        kept = set()
        for piece, _ in split.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(map(ord, piece))
        found.update(set(chunk) - kept)
    return found


def by_predicate(step):
    """Which characters are cut off from the letters around them."""
    found = set()
    for chunk in chunks():
        for piece, (begin, end) in step.pre_tokenize_str("a" + "a".join(map(chr, chunk)) + "a"):
            if end - begin == 1 and piece != "a":
                found.add(ord(piece))
    return found


CLASSES = [  # in the order of the bits in unicode.h
    by_regex(r"\p{L}"),
    by_regex(r"\p{N}"),
    by_regex(r"\p{M}"),
    by_regex(r"\p{P}"),
    by_regex(r"\p{S}"),
    by_regex(r"\s"),
    by_predicate(P.Digits(individual_digits=True)),
    by_predicate(P.Punctuation()),
]


def newer_marks():
    """Characters with a combining class in utf8proc that the reference leaves where they are."""
    library = ctypes.CDLL("libutf8proc.so.2")
    library.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_uint16)
    nfc = normalizers.NFC().normalize_str
    found = {0x11930}  # has no class, but composes with U+11935 since Unicode 13
    for c in CODE_POINTS:
        moves = library.utf8proc_get_property(c)[1] > 1  # past U+0334, whose class is 1
        if moves and nfc("\u4e00" + chr(c) + "\u0334") != "\u4e00\u0334" + nfc(chr(c)):
            found.add(c)
    return sorted(found)


def dropped_by(step):
    """Which characters a normalizer drops from between letters."""
    found = set()
    for chunk in chunks():
        text = step.normalize_str("".join("a" + chr(c) for c in chunk if chr(c) != "a")).split("a")[1:]
        single = len(text) == len([c for c in chunk if chr(c) != "a"])
        for i, c in enumerate(c for c in chunk if chr(c) != "a"):
            left = text[i] if single else step.normalize_str("b" + chr(c))[1:]
            if left == "":
                found.add(c)
    return found


def bert(**parts):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **parts})


def drops():
    """(begin, end, bits) of characters that normalizers drop, in the order of the bits in unicode.h."""
    flags = bytearray(0x110000)
    for bit, step in enumerate([bert(clean_text=True), bert(strip_accents=True), normalizers.StripAccents()]):
        for c in dropped_by(step):
            flags[c] |= 1 << bit
    return [run for run in as_runs(flags) if run[2]]


def as_ranges(members):
    ranges = []
    for c in members:
        if ranges and ranges[-1][1] == c:
            ranges[-1][1] = c + 1
        else:
            ranges.append([c, c + 1])
    return ranges


def as_runs(flags):
    """(begin, end, value) of neighbours with one value."""
    begin = 0
    for c in range(1, len(flags) + 1):
        if c == len(flags) or flags[c] != flags[begin]:
            yield begin, c, flags[begin]
            begin = c


def put(out, declaration, items):
    """A list in lines of at most 120 columns, without spaces."""
    out.write(f"{declaration} = {{\n")
    line = "   "
    for item in items:
        if len(line) + len(item) >= 120:
            out.write(line + "\n")
            line = "   "
        line += (" " if line == "   " else "") + item + ","
    out.write(line + "\n};\n")


def main():
    flags = bytearray(0x110000)
    for bit, members in enumerate(CLASSES):
        for c in members:
            flags[c] |= 1 << bit
    runs = [(end - begin, value) for begin, end, value in as_runs(flags[:TABLE_END])]
    far = [(TABLE_END + begin, TABLE_END + end, value) for begin, end, value in as_runs(flags[TABLE_END:]) if value]
    dropped = drops()
    newer = [(begin, end, 0) for begin, end in as_ranges(newer_marks())]
    out = sys.stdout
    out.write(f"/* Unicode character classes, made by tools/unicode_tables.py from tokenizers {__version__}; do not edit. */\n")
    out.write('#include "tokenizer/unicode.h"\n\n/* clang-format off */\n')
    put(out, f"const uint16_t ht_unicode_runs[{len(runs)}][2]", (f"{{{n},{value}}}" for n, value in runs))
    out.write(f"const size_t ht_unicode_n_runs = {len(runs)}, ht_unicode_n_far = {len(far)}, "
              f"ht_unicode_n_newer_marks = {len(newer)}, ht_unicode_n_drops = {len(dropped)};\n")
    for name, ranges in (("far", far), ("newer_marks", newer), ("drops", dropped)):
        put(out, f"const ht_unicode_range ht_unicode_{name}[]", (f"{{{b:#x},{e:#x},{v}}}" for b, e, v in ranges))


main()
