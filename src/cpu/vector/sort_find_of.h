/* The number that sorting would put at a place, and elements parted by it. Included by sort_lanes_of.h for each width. */

/* Of so many registers as numbers those above `first` and below `last`, to `to` behind `kept` others. Gives `kept` with them;
 * *under grows by how many are not above `first`. */
static inline __attribute__((always_inline)) int64_t NAMED(keep_registers_between)(const ITEM *x, int count,
                                                                                   const NAMED(forms) * as, REG first,
                                                                                   REG last, ITEM *to, int64_t kept,
                                                                                   int64_t *under) {
    REG v[NAMED(AT_ONCE)];
    NAMED(load_numbers)(x, count, as, v);
    HT_UNROLL
    for (int k = 0; k < count; k++) {
        const NAMED(mask) before = AT_MOST(COMPARED(v[k]), first);
        const NAMED(mask) here = BELOW(COMPARED(v[k]), last) & (NAMED(mask)) ~before;
        *under += __builtin_popcount(before);
        STORE(to + kept, PACK(here, v[k]));
        kept += __builtin_popcount(here);
    }
    return kept;
}

/* Of numbers x[0 .. n) as elements those above `low` and below `high` go to `to`, which may be x: gives how many; `under` gets
 * how many are not above `low`. */
static int64_t NAMED(keep_between)(const ITEM *x, const NAMED(forms) * as, ITEM *to, int64_t n, ITEM low, ITEM high,
                                   int64_t *under) {
    const REG first = COMPARED(SET1(low)), last = COMPARED(SET1(high));
    int64_t kept = 0, not_above = 0, i = 0;
    for (; i + NAMED(AT_ONCE) * LANES <= n; i += NAMED(AT_ONCE) * LANES)
        kept = NAMED(keep_registers_between)(x + i, NAMED(AT_ONCE), as, first, last, to, kept, &not_above);
    for (; i + LANES <= n; i += LANES)
        kept = NAMED(keep_registers_between)(x + i, 1, as, first, last, to, kept, &not_above);
    if (i < n) {
        const NAMED(mask) there = FIRST(n - i);
        const REG v = NAMED(numbers)(as, LOAD_SOME(SET1(low), there, x + i));
        const NAMED(mask) before = AT_MOST(COMPARED(v), first) & there;
        const NAMED(mask) here = BELOW(COMPARED(v), last) & there & (NAMED(mask)) ~before;
        const int some = __builtin_popcount(here);
        not_above += __builtin_popcount(before);
        STORE_FIRST(to + kept, n - kept, some, PACK(here, v));
        kept += some;
    }
    *under = not_above;
    return kept;
}

/* How many of numbers x[0 .. n) as elements equal the number. */
static int64_t NAMED(count_equal)(const ITEM *x, const NAMED(forms) * as, int64_t n, ITEM number) {
    const REG one = SET1(number);
    int64_t equal = 0, i = 0;
    for (; i + LANES <= n; i += LANES) equal += __builtin_popcount(EQUAL(NAMED(numbers)(as, LOAD(x + i)), one));
    const NAMED(mask) there = NAMED(lanes_left)(n - i);
    return equal + __builtin_popcount(EQUAL(NAMED(numbers)(as, LOAD_SOME(one, there, x + i)), one) & there);
}

/* Two numbers of a sample between which the one at kth of n should lie; `wide` times further apart, or the same one if 0. */
static void NAMED(choose)(const ITEM *sample, int of, int64_t kth, int64_t n, int wide, ITEM *low, ITEM *high) {
    const int at = (int)((double)kth / (double)n * of);
    const int away = wide * (2 + (int)(2.5F * sqrtf((float)at * (float)(of - at) / (float)of)));
    *low = at < away ? 0 : sample[at - away];
    *high = at + away >= of ? (ITEM)-1 : sample[at + away];
}

/* What sorting would put at kth of n <= BASE_SORT numbers, or of more, by digits. */
static NAMED(placed) NAMED(find_in)(ITEM *x, ITEM *room, int64_t n, int64_t kth, uint32_t *count) {
    NAMED(placed) found = {0};
    if (n <= NAMED(BASE_SORT))
        NAMED(sort_base)(x, x, n, &NAMED(plain));
    else
        NAMED(select)(x, room, n, kth, 0, WIDTH, count);
    found.number = x[kth];
    for (int64_t i = 0; i < n; i++) {
        found.below += x[i] < found.number;
        found.equal += x[i] == found.number;
    }
    return found;
}

/* What sorting would put at kth of elements x[0 .. n), with room for as many twice. What lies between two numbers of a sample
 * is kept, until it is little; where kth is not there it is one of the two, as in few different numbers, or what is below or
 * above them is asked. */
static NAMED(placed) NAMED(find)(const ITEM *x, const NAMED(form) * form, ITEM *room, ITEM *other, int64_t n,
                                 int64_t kth, int depth, uint32_t *count) {
    NAMED(forms) as = NAMED(forms_of)(form);
    int64_t outside = 0;
    bool one = false;
    while (n > NAMED(BASE_SORT) && depth-- > 0) {
        ITEM sample[NAMED(MOST_SAMPLED)], low, high;
        const int of = NAMED(sample_of)(x, &as, n, sample);
        NAMED(choose)(sample, of, kth, n, one ? 0 : 1, &low, &high);
        int64_t under, kept = NAMED(keep_between)(x, &as, room, n, low, high, &under);
        for (int wider = 4; kth < under || kth >= under + kept; wider = of) {
            ITEM first, last;
            NAMED(choose)(sample, of, kth, n, wider, &first, &last);
            if (kth < under) {
                const int64_t equal = NAMED(count_equal)(x, &as, n, low), below = under - equal;
                if (kth >= below) return (NAMED(placed)){low, outside + below, equal};
                high = low, low = first < low ? first : 0;
            } else {
                const int64_t equal = low == high ? 0 : NAMED(count_equal)(x, &as, n, high);
                if (kth < under + kept + equal) return (NAMED(placed)){high, outside + under + kept, equal};
                low = high, high = last > high ? last : (ITEM)-1;
            }
            kept = NAMED(keep_between)(x, &as, room, n, low, high, &under);
        }
        outside += under;
        kth -= under;
        one = kept > n / 2;
        n = kept;
        x = room;
        room = other;
        other = (ITEM *)(uintptr_t)x;
        as = NAMED(forms_of)(&NAMED(plain));
    }
    for (int64_t i = 0; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        STORE_SOME(room + i, here, NAMED(numbers)(&as, LOAD_SOME(as.top, here, x + i)));
    }
    NAMED(placed) found = NAMED(find_in)(room, other, n, kth, count);
    found.below += outside;
    return found;
}

/* So many registers of numbers: what is below the middle to *low, what is above it to *high, which move on. */
static inline __attribute__((always_inline)) void NAMED(part_registers)(const ITEM *x, int count, REG middle,
                                                                        const NAMED(forms) * as,
                                                                        const NAMED(forms) * made, ITEM **low,
                                                                        ITEM **high) {
    REG v[NAMED(AT_ONCE)];
    NAMED(load_numbers)(x, count, as, v);
    HT_UNROLL
    for (int k = 0; k < count; k++) {
        const NAMED(mask) below = BELOW(COMPARED(v[k]), middle), above = BELOW(middle, COMPARED(v[k]));
        const REG e = NAMED(elements)(made, v[k]);
        STORE(*low, PACK(below, e));
        STORE(*high, PACK(above, e));
        *low += __builtin_popcount(below);
        *high += __builtin_popcount(above);
    }
}

/* Elements x[0 .. n) parted by what is at a place: what is below it, what equals it, the others. */
static void NAMED(part_elements)(const ITEM *x, const NAMED(form) * form, ITEM *to, const NAMED(form) * made, int64_t n,
                                 const NAMED(placed) * at) {
    const NAMED(forms) as = NAMED(forms_of)(form), out = NAMED(forms_of)(made);
    const REG middle = COMPARED(SET1(at->number));
    ITEM *low = to, *high = to + at->below + at->equal;
    const ITEM *const end_low = to + at->below, *const end = to + n;
    int64_t i = 0;
    /* Until whole registers might go beyond the end of either side. */
    enum { SOME = NAMED(AT_ONCE) * LANES };
    for (; i + SOME <= n && low + SOME <= end_low && high + SOME <= end; i += SOME)
        NAMED(part_registers)(x + i, NAMED(AT_ONCE), middle, &as, &out, &low, &high);
    for (; i + LANES <= n && low + LANES <= end_low && high + LANES <= end; i += LANES)
        NAMED(part_registers)(x + i, 1, middle, &as, &out, &low, &high);
    for (; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        const REG v = NAMED(numbers)(&as, LOAD_SOME(as.top, here, x + i)), e = NAMED(elements)(&out, v);
        const NAMED(mask) below = BELOW(COMPARED(v), middle) & here, above = BELOW(middle, COMPARED(v)) & here;
        const int lows = __builtin_popcount(below), highs = __builtin_popcount(above);
        if (lows) STORE_FIRST(low, end_low - low, lows, PACK(below, e));
        if (highs) STORE_FIRST(high, end - high, highs, PACK(above, e));
        low += lows;
        high += highs;
    }
    NAMED(fill)(to + at->below, at->equal, at->number, made);
}

/* Numbers of a sample between which the one at kth should lie, where little else does. */
static bool NAMED(bounds_of)(const ITEM *x, const NAMED(forms) * as, int64_t n, int64_t kth, ITEM bound[2]) {
    ITEM sample[NAMED(MOST_SAMPLED)], low, high;
    if (n < NAMED(WORTH_SAMPLING)) return false;
    const int of = NAMED(sample_of)(x, as, n, sample);
    NAMED(choose)(sample, of, kth, n, 1, &low, &high);
    int between = 0;
    for (int i = 0; i < of; i++) between += sample[i] >= low && sample[i] <= high;
    bound[0] = low;
    bound[1] = high == (ITEM)-1 ? high : (ITEM)(high + 1);
    return 2 * between < of && low < high;
}

/* Elements x[0 .. n) parted by what sorting would put at kth, with room for as many, and in `other`, which may be x. Of many
 * one pass deals what lies below and above two numbers, and only what lies between them is looked through. */
static void NAMED(part_at)(const ITEM *x, const NAMED(form) * form, ITEM *to, const NAMED(form) * made, ITEM *room,
                           ITEM *other, int64_t n, int64_t kth, int depth, uint32_t *count) {
    const NAMED(forms) as = NAMED(forms_of)(form), out = NAMED(forms_of)(made);
    ITEM bound[2];
    if (NAMED(bounds_of)(x, &as, n, kth, bound)) {
        int64_t parts[3];
        NAMED(split_in_three)(x, to, room, to + n, n, bound, &as, &out, parts);
        if (kth >= parts[0] && kth < parts[0] + parts[1]) {
            to += parts[0];
            const NAMED(placed) at =
                NAMED(find)(room, &NAMED(plain), to, other, parts[1], kth - parts[0], depth, count);
            NAMED(part_elements)(room, &NAMED(plain), to, made, parts[1], &at);
            return;
        }
    } else if (NAMED(sort_values)(x, &as, to, n, made))
        return;
    const NAMED(placed) at = NAMED(find)(x, form, to, room, n, kth, depth, count);
    NAMED(part_elements)(x, form, to, made, n, &at);
}
