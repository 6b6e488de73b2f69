/* Radix sort and selection of one item type. Included once per type, with
 *   ITEM     the type
 *   KEY(x)   the sort key, a uint64_t of n_bits significant bits
 *   NAME(f)  the name of function f for this type
 *
 * Least significant digit first, which makes the sort stable. */

static inline void NAME(insertion)(ITEM *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        ITEM x = a[i];
        int64_t j = i;
        for (; j > 0 && KEY(x) < KEY(a[j - 1]); j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

/* Scatters items by one digit; next[digit] is the next free position of each digit value. */
static inline void NAME(scatter_by_digit)(const ITEM *restrict from, ITEM *restrict to, int64_t n, int shift,
                                          uint64_t mask, uint32_t *restrict next) {
    for (int64_t i = 0; i < n; i++) to[next[KEY(from[i]) >> shift & mask]++] = from[i];
}

/* Sorts a[0 .. n). `spare` has n items, `count` the counters of all digits. */
static inline void NAME(sort)(ITEM *a, ITEM *spare, int64_t n, int n_bits, uint32_t *count) {
    if (n <= SMALL_SORT) {
        NAME(insertion)(a, n);
        return;
    }
    const int digit = digit_bits(n), n_digits = (n_bits + digit - 1) / digit;
    const uint64_t mask = ((uint64_t)1 << digit) - 1;
    memset(count, 0, ((size_t)n_digits << digit) * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = KEY(a[i]);
        for (int d = 0; d < n_digits; d++, key >>= digit) count[((uint64_t)d << digit) + (key & mask)]++;
    }
    ITEM *from = a, *to = spare;
    for (int d = 0; d < n_digits; d++) {
        uint32_t *next = count + ((size_t)d << digit), sum = 0;
        const int shift = d * digit;
        if (next[KEY(from[0]) >> shift & mask] == n) continue; /* a single digit value */
        for (uint64_t i = 0; i <= mask; i++) {
            uint32_t here = next[i];
            next[i] = sum;
            sum += here;
        }
        NAME(scatter_by_digit)(from, to, n, shift, mask, next);
        ITEM *done = from;
        from = to;
        to = done;
    }
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}

/* Partitions a[0 .. n) around rank kth, most significant digit first: each pass continues within the digit that
 * contains rank kth. */
static inline void NAME(select)(ITEM *a, ITEM *spare, int64_t n, int64_t kth, int n_bits, uint32_t *count) {
    int top = n_bits;
    while (n > SMALL_SORT && top > 0) {
        const int digit = digit_bits(n) < top ? digit_bits(n) : top, shift = top - digit;
        const uint64_t mask = ((uint64_t)1 << digit) - 1;
        memset(count, 0, (mask + 1) * sizeof *count);
        for (int64_t i = 0; i < n; i++) count[KEY(a[i]) >> shift & mask]++;
        uint64_t bucket = 0;
        int64_t before = 0;
        while (before + count[bucket] <= kth) before += count[bucket++];
        const int64_t inside = count[bucket];
        top = shift;
        if (inside == n) continue;
        int64_t next[3] = {0, before, before + inside};
        for (int64_t i = 0; i < n; i++) {
            const uint64_t key = KEY(a[i]) >> shift & mask;
            spare[next[(key >= bucket) + (key > bucket)]++] = a[i];
        }
        memcpy(a, spare, (size_t)n * sizeof *a);
        a += before;
        kth -= before;
        n = inside;
    }
    if (top > 0) NAME(insertion)(a, n);
}
