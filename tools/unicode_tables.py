#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_table.c: the character classes that pre-tokenisers ask for.

The classes are read out of the `tokenizers` package itself, one code point at a time, because that is what Hearth has to
agree with: its regular expressions know one version of Unicode, its Digits step another, its Punctuation step a third.

    python3 tools/unicode_tables.py > src/tokenizer/unicode_table.c        (made with tokenizers 0.23.3)
"""
import sys

from tokenizers import Regex, __version__
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
    out.write(f"/* Made by tools/unicode_tables.py from tokenizers {__version__}; do not edit. */\n")
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


main()
