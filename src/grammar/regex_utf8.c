/* Ranges of code points as expressions over the bytes of their UTF-8 form. */
#include "grammar/regex_store.h"

#define LAST_CODE_POINT 0x10FFFFu
#define CONTINUATION    0x80u

static ht_re byte_range(ht_regexes *s, unsigned first, unsigned last) {
    ht_byte_set set = {{0}};
    ht_byte_set_add(&set, first, last);
    return ht_re_bytes(s, &set);
}

/* n bytes that hold values first to last, of 6 bits in each but the first one, whose other bits are `base`. */
static ht_re sequence(ht_regexes *s, uint32_t first, uint32_t last, int n, unsigned base) {
    if (n == 0) return HT_RE_EMPTY;
    const int shift = 6 * (n - 1);
    const uint32_t mask = (1u << shift) - 1, head = first >> shift, tail = last >> shift;
    const bool whole_first = (first & mask) == 0, whole_last = (last & mask) == mask;
    if (head == tail)
        return ht_re_concat(s, byte_range(s, base + head, base + head),
                            sequence(s, first & mask, last & mask, n - 1, CONTINUATION));
    /* The first and the last leading byte have part of what may follow, those between have all of it. */
    ht_re part[3] = {HT_RE_NONE, HT_RE_NONE, HT_RE_NONE};
    if (!whole_first)
        part[0] = ht_re_concat(s, byte_range(s, base + head, base + head),
                               sequence(s, first & mask, mask, n - 1, CONTINUATION));
    if (!whole_last)
        part[1] =
            ht_re_concat(s, byte_range(s, base + tail, base + tail), sequence(s, 0, last & mask, n - 1, CONTINUATION));
    const uint32_t from = head + !whole_first, to = tail - !whole_last;
    if (from <= to)
        part[2] = ht_re_concat(s, byte_range(s, base + from, base + to), sequence(s, 0, mask, n - 1, CONTINUATION));
    return ht_re_alternatives(s, part, 3);
}

/* Pushes the code points of a range onto the scratch stack, those of each length in UTF-8 apart. */
static void push_range(ht_regexes *s, uint32_t first, uint32_t last) {
    static const struct {
        uint32_t first, last;
        int n;
        unsigned base;
    } lengths[] = {{0, 0x7F, 1, 0},
                   {0x80, 0x7FF, 2, 0xC0},
                   {0x800, 0xD7FF, 3, 0xE0},
                   {0xE000, 0xFFFF, 3, 0xE0},
                   {0x10000, LAST_CODE_POINT, 4, 0xF0}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !s->status; i++) {
        const uint32_t from = first > lengths[i].first ? first : lengths[i].first;
        const uint32_t to = last < lengths[i].last ? last : lengths[i].last;
        if (from <= to) ht_re_push(s, sequence(s, from, to, lengths[i].n, lengths[i].base));
    }
}

ht_re ht_re_code_points(ht_regexes *s, const ht_code_range *ranges, size_t n) {
    if (s->status) return HT_RE_NONE;
    const size_t begin = s->n_scratch;
    for (size_t i = 0; i < n; i++) push_range(s, ranges[i].first, ranges[i].last);
    return ht_re_join_scratch(s, HT_RE_KIND_ALTERNATIVES, begin);
}
