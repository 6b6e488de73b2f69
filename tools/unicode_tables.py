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
PAGE = 64
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


def as_ranges(members):
    ranges = []
    for c in members:
        if ranges and ranges[-1][1] == c:
            ranges[-1][1] = c + 1
        else:
            ranges.append([c, c + 1])
    return ranges


def main():
    flags = bytearray(0x110000)
    for bit, members in enumerate(CLASSES):
        for c in members:
            flags[c] |= 1 << bit
    pages, first = [], []
    for start in range(0, TABLE_END, PAGE):
        page = bytes(flags[start : start + PAGE])
        if page not in pages:
            pages.append(page)
        first.append(pages.index(page))
    ranges, c = [], TABLE_END
    while c < 0x110000:
        end = c
        while end < 0x110000 and flags[end] == flags[c]:
            end += 1
        if flags[c]:
            ranges.append((c, end, flags[c]))
        c = end
    out = sys.stdout
    out.write(f"/* Unicode character classes, made by tools/unicode_tables.py from tokenizers {__version__}; do not edit. */\n")
    out.write('#include "tokenizer/unicode.h"\n\n/* clang-format off */\n')
    out.write(f"const uint16_t ht_unicode_page[{len(first)}] = {{\n")
    for i in range(0, len(first), 24):
        out.write("    " + ",".join(map(str, first[i : i + 24])) + ",\n")
    out.write(f"}};\nconst uint8_t ht_unicode_class_table[{len(pages)}][{PAGE}] = {{\n")
    for page in pages:
        out.write("    {" + ",".join(map(str, page)) + "},\n")
    out.write("};\nconst ht_unicode_range ht_unicode_far[] = {\n")
    for begin, end, value in ranges:
        out.write(f"    {{{begin:#x}, {end:#x}, {value}}},\n")
    out.write(f"}};\nconst size_t ht_unicode_n_far = {len(ranges)};\n")
    newer = as_ranges(newer_marks())
    out.write("const ht_unicode_range ht_unicode_newer_marks[] = {\n")
    for begin, end in newer:
        out.write(f"    {{{begin:#x}, {end:#x}, 0}},\n")
    out.write(f"}};\nconst size_t ht_unicode_n_newer_marks = {len(newer)};\n")


main()
