/* Sets of numbers, as expressions of their decimal spellings: bounds, multiples, single numbers. */
#include "grammar/schema.h"

/* Digits of a bound at most, before and after the point. */
enum { DIGITS_MOST = 1000 };

/* ---- decimals ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool ht_decimal_read(ht_schema *s, const ht_tree_value *v, ht_decimal *out) {
    const char *at = v->text, *end = v->text + v->n_text;
    int64_t exponent = 0, written = 0;
    size_t n = 0, zeros = 0;
    bool behind = false;
    char *digits = ht_schema_take(s, v->n_text, 1);
    *out = (ht_decimal){.is_negative = *at == '-'};
    if (!digits) return false;
    for (at += *at == '-'; at < end && (is_digit(*at) || *at == '.'); at++) {
        if (*at == '.') {
            behind = true;
            continue;
        }
        exponent -= behind;
        if (*at == '0' && !n) continue;
        digits[n++] = *at;
    }
    if (at < end) {
        const bool is_negative = at[1] == '-';
        for (at += is_digit(at[1]) ? 1 : 2; at < end; at++)
            if (written < INT32_MAX) written = written * 10 + (*at - '0');
        exponent += is_negative ? -written : written;
    }
    while (n && digits[n - 1] == '0') {
        n--;
        zeros++;
    }
    exponent = n ? exponent + (int64_t)zeros : 0;
    if (n > DIGITS_MOST || exponent > DIGITS_MOST || exponent < -DIGITS_MOST)
        return ht_schema_fail_at(s, v, HT_ERR_LIMIT, "a number of more than %d digits", DIGITS_MOST), false;
    out->is_negative = out->is_negative && n;
    out->digits = digits;
    out->n = n;
    out->exponent = (int32_t)exponent;
    return true;
}

bool ht_decimal_whole(const ht_decimal *d, uint64_t most, uint64_t *out) {
    uint64_t value = 0;
    if (d->is_negative || d->exponent < 0) return false;
    for (size_t i = 0; i < d->n + (size_t)d->exponent; i++) {
        value = value * 10 + (i < d->n ? (uint64_t)(d->digits[i] - '0') : 0);
        if (value > most) value = most;
    }
    *out = value;
    return true;
}

/* Digits before and after the point; for zero "0" and "". */
typedef struct plain {
    char whole[2 * DIGITS_MOST + 2], part[2 * DIGITS_MOST + 2];
    size_t n_whole, n_part;
} plain;

static void spell(const ht_decimal *d, plain *out) {
    out->n_whole = out->n_part = 0;
    const int64_t n = (int64_t)d->n, point = n + d->exponent; /* digits before the point */
    for (int64_t i = 0; i < point; i++) out->whole[out->n_whole++] = i < n ? d->digits[i] : '0';
    for (int64_t i = point < 0 ? point : 0; i < 0 && n; i++) out->part[out->n_part++] = '0';
    for (int64_t i = point < 0 ? 0 : point; i < n; i++) out->part[out->n_part++] = d->digits[i];
    if (!out->n_whole) out->whole[out->n_whole++] = '0';
}

/* ---- pieces of spellings ---- */

static ht_re digits_between(ht_regexes *re, char first, char last) {
    return ht_re_byte_range(re, (unsigned char)first, (unsigned char)last);
}

static ht_re any_digits(ht_regexes *re, uint32_t least, uint32_t most) {
    return ht_re_repeat(re, digits_between(re, '0', '9'), least, most);
}

static ht_re zeros(ht_regexes *re, uint32_t least) {
    return ht_re_repeat(re, digits_between(re, '0', '0'), least, HT_RE_UNBOUNDED);
}

static ht_re point(ht_regexes *re) { return ht_re_text(re, ".", 1); }
static ht_re minus(ht_regexes *re, ht_re a) { return ht_re_concat(re, ht_re_text(re, "-", 1), a); }

/* Nothing, or a point and at most `most` digits. */
static ht_re part_of(ht_regexes *re, uint32_t most) {
    return ht_re_either(re, HT_RE_EMPTY, ht_re_concat(re, point(re), any_digits(re, 1, most)));
}
static ht_re any_part(ht_regexes *re) { return part_of(re, HT_RE_UNBOUNDED); }

static ht_re no_part(ht_regexes *re) {
    return ht_re_either(re, HT_RE_EMPTY, ht_re_concat(re, point(re), zeros(re, 1)));
}

/* Whole numbers of at most `more` digits after the first. */
static ht_re whole_of(ht_regexes *re, uint32_t more) {
    const ht_re some = ht_re_concat(re, digits_between(re, '1', '9'), any_digits(re, 0, more));
    return ht_re_either(re, ht_re_text(re, "0", 1), some);
}

static ht_re any_whole(ht_regexes *re) { return whole_of(re, HT_RE_UNBOUNDED); }
static ht_re any_plain(ht_regexes *re) { return ht_re_concat(re, any_whole(re), any_part(re)); }
static ht_re signed_or_not(ht_regexes *re, ht_re a) { return ht_re_either(re, a, minus(re, a)); }

/* ---- bounds of numbers without a sign ---- */

/* After the whole part of the bound: fractions above or below that of the bound. */
static ht_re part_beyond(ht_regexes *re, const plain *b, bool above, bool included) {
    const ht_re any = any_digits(re, 0, HT_RE_UNBOUNDED);
    const ht_re nonzero = ht_re_concat(re, zeros(re, 0), ht_re_concat(re, digits_between(re, '1', '9'), any));
    if (!b->n_part)
        return above      ? (included ? any_part(re) : ht_re_concat(re, point(re), nonzero))
               : included ? no_part(re)
                          : HT_RE_NONE;
    /* From the last digit to the first: what follows equal ones. */
    ht_re r = above ? (included ? any : nonzero) : included ? zeros(re, 0) : HT_RE_NONE;
    for (size_t i = b->n_part; i-- > 0;) {
        const char d = b->part[i];
        const ht_re other = above ? digits_between(re, (char)(d + 1), '9') : digits_between(re, '0', (char)(d - 1));
        r = ht_re_either(re, ht_re_concat(re, ht_re_text(re, &d, 1), r), ht_re_concat(re, other, any));
        /* Fewer digits are less: the last one of the bound is not 0. */
        if (!above && i) r = ht_re_either(re, HT_RE_EMPTY, r);
    }
    r = ht_re_concat(re, point(re), r);
    return above ? r : ht_re_either(re, HT_RE_EMPTY, r);
}

/* Spellings without a sign of numbers above or below the bound. */
static ht_re beyond(ht_regexes *re, const plain *b, bool above, bool included) {
    const uint32_t n = (uint32_t)b->n_whole;
    /* As many digits before the point: from the last to the first. */
    ht_re r = part_beyond(re, b, above, included);
    for (uint32_t i = n; i-- > 0;) {
        const char d = b->whole[i], least = i == 0 && n > 1 ? '1' : '0';
        const ht_re other = above ? digits_between(re, (char)(d + 1), '9') : digits_between(re, least, (char)(d - 1));
        const ht_re rest = ht_re_concat(re, any_digits(re, n - 1 - i, n - 1 - i), any_part(re));
        r = ht_re_either(re, ht_re_concat(re, ht_re_text(re, &d, 1), r), ht_re_concat(re, other, rest));
    }
    if (above) {
        const ht_re longer = ht_re_concat(re, digits_between(re, '1', '9'), any_digits(re, n, HT_RE_UNBOUNDED));
        return ht_re_either(re, r, ht_re_concat(re, longer, any_part(re)));
    }
    if (n == 1) return r;
    return ht_re_either(re, r, ht_re_concat(re, whole_of(re, n - 2), any_part(re)));
}

/* ---- sets ---- */

static ht_number_set same(ht_re r) { return (ht_number_set){r, r}; }

ht_number_set ht_numbers_bounded(ht_schema *s, const ht_decimal *d, bool above, bool included) {
    plain b;
    ht_regexes *re = s->re;
    spell(d, &b);
    /* Away from zero or towards it; beyond zero, -0 is 0. */
    const ht_re near = beyond(re, &b, above != d->is_negative, included);
    if (!d->n) {
        const ht_re zero = included ? ht_re_concat(re, ht_re_text(re, "0", 1), no_part(re)) : HT_RE_NONE;
        const ht_re all = beyond(re, &b, true, included);
        return same(above ? ht_re_either(re, all, minus(re, zero)) : ht_re_either(re, minus(re, all), zero));
    }
    if (d->is_negative) return same(above ? ht_re_either(re, any_plain(re), minus(re, near)) : minus(re, near));
    return same(above ? near : ht_re_either(re, near, minus(re, any_plain(re))));
}

ht_number_set ht_numbers_integers(ht_schema *s) {
    const ht_re whole = any_whole(s->re);
    return (ht_number_set){signed_or_not(s->re, ht_re_concat(s->re, whole, no_part(s->re))),
                           signed_or_not(s->re, whole)};
}

ht_number_set ht_numbers_one(ht_schema *s, const ht_decimal *d) {
    plain b;
    ht_regexes *re = s->re;
    spell(d, &b);
    const ht_re whole = ht_re_text(re, b.whole, b.n_whole), part = ht_re_text(re, b.part, b.n_part);
    const ht_re behind = b.n_part ? ht_re_concat(re, point(re), part) : HT_RE_EMPTY;
    const ht_re written = ht_re_concat(re, whole, behind);
    const ht_re all = ht_re_concat(re, written, b.n_part ? zeros(re, 0) : no_part(re));
    if (!d->n) return (ht_number_set){signed_or_not(re, all), written};
    return d->is_negative ? (ht_number_set){minus(re, all), minus(re, written)} : (ht_number_set){all, written};
}

bool ht_numbers_multiple(ht_schema *s, const ht_decimal *d, ht_number_set *out) {
    const uint64_t limit = UINT64_C(1) << 59;
    const uint32_t places = d->exponent < 0 ? (uint32_t)-d->exponent : 0;
    ht_decimal whole = *d;
    uint64_t divisor;
    if (places) whole.exponent = 0;
    if (!ht_decimal_whole(&whole, limit, &divisor) || divisor == limit) return false;
    const ht_re r = ht_re_multiple(s->re, divisor, places);
    const ht_re all = signed_or_not(s->re, ht_re_both(s->re, any_plain(s->re), r));
    *out = same(all);
    /* Multiples of a whole number are whole. */
    if (!places) out->written = signed_or_not(s->re, ht_re_both(s->re, any_whole(s->re), r));
    return true;
}

ht_number_set ht_numbers_both(ht_schema *s, ht_number_set a, ht_number_set b) {
    return (ht_number_set){ht_re_both(s->re, a.all, b.all), ht_re_both(s->re, a.written, b.written)};
}

ht_number_set ht_numbers_either(ht_schema *s, ht_number_set a, ht_number_set b) {
    return (ht_number_set){ht_re_either(s->re, a.all, b.all), ht_re_either(s->re, a.written, b.written)};
}

ht_number_set ht_numbers_not(ht_schema *s, ht_number_set a) {
    if (a.all == HT_RE_ALL) return same(HT_RE_NONE);
    if (a.all == HT_RE_NONE) return same(HT_RE_ALL);
    return same(ht_re_both(s->re, signed_or_not(s->re, any_plain(s->re)), ht_re_not(s->re, a.all)));
}

/* Digits of written numbers before and after the point: enough for 64 bits. Models could write endless zeros. */
enum { SHORT_MOST = 20 };

static ht_re short_whole(ht_regexes *re) { return whole_of(re, SHORT_MOST - 1); }
static ht_re short_plain(ht_regexes *re) { return ht_re_concat(re, short_whole(re), part_of(re, SHORT_MOST)); }

/* Nothing, or an exponent of at most `most` digits. */
static ht_re exponent(ht_regexes *re, uint32_t most) {
    ht_byte_set e = {{0}}, sign = {{0}};
    ht_byte_set_add(&e, 'E', 'E');
    ht_byte_set_add(&e, 'e', 'e');
    ht_byte_set_add(&sign, '+', '+');
    ht_byte_set_add(&sign, '-', '-');
    const ht_re power =
        ht_re_concat(re, ht_re_either(re, ht_re_bytes(re, &sign), HT_RE_EMPTY), any_digits(re, 1, most));
    return ht_re_either(re, HT_RE_EMPTY, ht_re_concat(re, ht_re_bytes(re, &e), power));
}

ht_re ht_numbers_written(ht_schema *s, ht_number_set a) {
    ht_regexes *re = s->re;
    if (s->options.every_spelling)
        return a.all != HT_RE_ALL ? a.all
                                  : ht_re_concat(re, signed_or_not(re, any_plain(re)), exponent(re, HT_RE_UNBOUNDED));
    if (a.written == HT_RE_ALL) return ht_re_concat(re, signed_or_not(re, short_plain(re)), exponent(re, 2));
    if (a.written == ht_numbers_integers(s).written) return signed_or_not(re, short_whole(re));
    if (!ht_re_is_endless(re, a.written)) return a.written;
    const ht_re some = ht_re_both(re, a.written, signed_or_not(re, short_plain(re)));
    return ht_schema_is_live(s, some) ? some : a.written;
}
