#include "generate/row.h"

#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* Sums and maxima run in LANES separate lanes, which are joined at the end: a fixed order on every machine. The vectors
 * are the compiler's own, of the size that every 64-bit processor has. */
enum { WIDTH = 4, PARTS = 4, LANES = WIDTH * PARTS };
typedef float vec __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t vec_mask __attribute__((vector_size(WIDTH * sizeof(int32_t))));
typedef uint32_t vec_bits __attribute__((vector_size(WIDTH * sizeof(uint32_t))));

static inline vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store(float *p, vec v) { memcpy(p, &v, sizeof v); }
static inline vec splat(float x) { return (vec){x, x, x, x}; }
static inline vec keep(vec_mask m, vec a) { return (vec)((vec_mask)a & m); }
static inline vec select(vec_mask m, vec a, vec b) { return (vec)(((vec_mask)a & m) | ((vec_mask)b & ~m)); }

static int32_t block_length(const ht_row *row, int32_t block) {
    int32_t rest = row->n - block * HT_ROW_BLOCK;
    return rest < HT_ROW_BLOCK ? rest : HT_ROW_BLOCK;
}

/* The values of a block, filled up with the lowest float, whose weight is zero, in `padded` when it is a short one. */
static const float *block_values(const ht_row *row, int32_t block, float *padded) {
    const float *x = row->x + (ptrdiff_t)block * HT_ROW_BLOCK;
    int32_t n = block_length(row, block);
    if (n == HT_ROW_BLOCK) return x;
    memcpy(padded, x, (size_t)n * sizeof *x);
    for (int32_t i = n; i < HT_ROW_BLOCK; i++) padded[i] = -FLT_MAX;
    return padded;
}

/* ---- the largest value ---- */

/* Maximum of a block. *bad becomes NaN when a value is not finite: 0 * x is 0 only for finite x. */
static float scan_block(const float *x, float *bad) {
    vec max[PARTS], poison[PARTS];
    for (int j = 0; j < PARTS; j++) max[j] = splat(-FLT_MAX), poison[j] = splat(0);
    for (int i = 0; i < HT_ROW_BLOCK; i += LANES)
        for (int j = 0; j < PARTS; j++) {
            vec v = load(x + i + j * WIDTH);
            max[j] = select(v > max[j], v, max[j]);
            poison[j] += v * 0.0f;
        }
    float highest = -FLT_MAX;
    for (int j = 0; j < PARTS; j++)
        for (int k = 0; k < WIDTH; k++) {
            highest = max[j][k] > highest ? max[j][k] : highest;
            *bad += poison[j][k];
        }
    return highest;
}

bool ht_row_scan(ht_row *row) {
    float bad = 0, padded[HT_ROW_BLOCK];
    row->n_blocks = ht_row_blocks(row->n);
    row->max = -FLT_MAX;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        float max = scan_block(block_values(row, b, padded), &bad);
        row->block_max[b] = max;
        row->max = max > row->max ? max : row->max;
    }
    return bad == 0;
}

int32_t ht_row_find_bad(const ht_row *row) {
    for (int32_t i = 0; i < row->n; i++)
        if (!isfinite(row->x[i])) return i;
    return -1;
}

int32_t ht_row_argmax(const ht_row *row) {
    int32_t b = 0;
    while (row->block_max[b] != row->max) b++;
    int32_t i = b * HT_ROW_BLOCK;
    while (row->x[i] != row->max) i++;
    return i;
}

/* ---- cuts ---- */

ht_cut ht_cut_none(void) { return (ht_cut){-FLT_MAX, INT32_MAX}; }

ht_cut ht_cut_min(ht_cut a, ht_cut b) {
    if (a.value != b.value) return a.value > b.value ? a : b;
    return a.last < b.last ? a : b;
}

/* ---- weights ---- */

/* exp by y = k ln 2 + r with |r| <= ln 2 / 2 and the Taylor polynomial of degree 7 in r, whose remainder is 5e-9. */
static inline vec weigh(vec x, vec max, vec scale) {
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    vec y = (x - max) * scale;
    vec_mask counts = y > splat(-87.0f);
    y = select(counts, y, splat(-87.0f));
    vec rounded = y * 1.44269504f + to_integer;
    vec k = rounded - to_integer;
    vec r = (y - k * 0.693359375f) + k * 2.12194440e-4f;
    vec p = splat(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vec power = (vec)(((vec_bits)rounded << 23) + 0x3F800000u); /* 2^k */
    return keep(counts, p * power);
}

void ht_row_weights(const float *x, int32_t n, float max, float scale, float *w) {
    int32_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) store(w + i, weigh(load(x + i), splat(max), splat(scale)));
    if (i == n) return;
    float rest[WIDTH] = {0};
    memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
    store(rest, weigh(load(rest), splat(max), splat(scale)));
    memcpy(w + i, rest, (size_t)(n - i) * sizeof *x);
}

static double join(const vec *lane) {
    double total = 0;
    for (int j = 0; j < PARTS; j++)
        for (int k = 0; k < WIDTH; k++) total += (double)lane[j][k];
    return total;
}

/* Sum of the weights of a block that are at or, when `strict`, above `from`; `weight`, when not NULL, holds them. */
static double block_sum(const float *x, const float *weight, float max, float scale, float from, bool strict) {
    vec lane[PARTS];
    for (int j = 0; j < PARTS; j++) lane[j] = splat(0);
    for (int i = 0; i < HT_ROW_BLOCK; i += LANES)
        for (int j = 0; j < PARTS; j++) {
            vec v = load(x + i + j * WIDTH);
            vec w = weight ? load(weight + i + j * WIDTH) : weigh(v, splat(max), splat(scale));
            lane[j] += keep(strict ? v > splat(from) : v >= splat(from), w);
        }
    return join(lane);
}

/* Of the block in which the cut's last index lies, all that is cut off, as the lowest float. */
static const float *cut_values(const float *x, int32_t first, ht_cut cut, float *copy) {
    for (int32_t i = 0; i < HT_ROW_BLOCK; i++) copy[i] = ht_cut_keeps(cut, x[i], first + i) ? x[i] : -FLT_MAX;
    return copy;
}

static double cut_block_sum(const ht_row *row, int32_t block, float scale, ht_cut cut) {
    float padded[HT_ROW_BLOCK], copy[HT_ROW_BLOCK];
    int32_t first = block * HT_ROW_BLOCK;
    bool strict = first > cut.last;
    const float *x = block_values(row, block, padded);
    if (!strict && first + HT_ROW_BLOCK - 1 > cut.last) x = cut_values(x, first, cut, copy);
    return block_sum(x, NULL, row->max, scale, cut.value, strict);
}

double ht_row_mass(const ht_row *row, float scale, ht_cut cut, double *block_mass) {
    double total = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        double mass = row->block_max[b] < cut.value ? 0 : cut_block_sum(row, b, scale, cut);
        if (block_mass) block_mass[b] = mass;
        total += mass;
    }
    return total;
}

int32_t ht_row_draw(const ht_row *row, float scale, ht_cut cut, const double *block_mass, double mass, double u) {
    double target = u * mass, before = 0;
    int32_t b = 0, last = 0;
    for (int32_t i = 0; i < row->n_blocks; i++) { /* the block in which the target falls */
        if (block_mass[i] <= 0) continue;
        b = i;
        if (before + block_mass[i] > target) break;
        before += block_mass[i];
    }
    float w[HT_ROW_BLOCK];
    int32_t first = b * HT_ROW_BLOCK, n = block_length(row, b);
    ht_row_weights(row->x + first, n, row->max, scale, w);
    for (int32_t i = 0; i < n; i++) {
        if (w[i] <= 0 || !ht_cut_keeps(cut, row->x[first + i], first + i)) continue;
        last = first + i;
        before += (double)w[i];
        if (before > target) break;
    }
    return last; /* rounding may leave the target just past the end: then the last one kept */
}

/* ---- ranks ---- */

ht_ranked ht_rank(float x, int32_t index) {
    uint32_t bits = ht_float_bits(x + 0.0f); /* -0 ties with 0 */
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)key << 32 | (uint32_t)~index;
}

float ht_ranked_value(ht_ranked r) {
    uint32_t key = (uint32_t)(r >> 32);
    return ht_float_from_bits(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

static void swap(ht_ranked *a, ht_ranked *b) {
    ht_ranked t = *a;
    *a = *b;
    *b = t;
}

/* Splits r[0..n), n >= 3, around the median of its first, middle and last; returns the pivot's place. */
static int32_t partition(ht_ranked *r, int32_t n) {
    ht_ranked *mid = &r[n / 2], *end = &r[n - 1];
    if (*mid > r[0]) swap(mid, &r[0]);
    if (*end > r[0]) swap(end, &r[0]);
    if (*end > *mid) swap(end, mid);
    swap(mid, &r[n - 2]);
    ht_ranked pivot = r[n - 2];
    int32_t place = 0;
    for (int32_t i = 0; i < n - 2; i++) { /* no branch on the data: half of such would be mispredicted */
        ht_ranked v = r[i];
        r[i] = r[place];
        r[place] = v;
        place += v > pivot;
    }
    swap(&r[place], &r[n - 2]);
    return place;
}

static void sift_down(ht_ranked *r, int32_t root, int32_t n) {
    for (int32_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && r[child + 1] < r[child]) child++;
        if (r[root] <= r[child]) return;
        swap(&r[root], &r[child]);
    }
}

static void heap_sort(ht_ranked *r, int32_t n) {
    for (int32_t i = n / 2; i-- > 0;) sift_down(r, i, n);
    for (int32_t i = n; i-- > 1;) {
        swap(&r[0], &r[i]);
        sift_down(r, 0, i);
    }
}

static void insertion_sort(ht_ranked *r, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        ht_ranked v = r[i];
        int32_t j = i;
        for (; j > 0 && r[j - 1] < v; j--) r[j] = r[j - 1];
        r[j] = v;
    }
}

static void sort_within(ht_ranked *r, int32_t n, int depth) {
    while (n > 16) {
        if (depth-- == 0) {
            heap_sort(r, n); /* an unlucky order may not cost quadratic time */
            return;
        }
        int32_t p = partition(r, n);
        if (p < n - p - 1) {
            sort_within(r, p, depth);
            r += p + 1;
            n -= p + 1;
        } else {
            sort_within(r + p + 1, n - p - 1, depth);
            n = p;
        }
    }
    insertion_sort(r, n);
}

static int depth_limit(int32_t n) {
    int depth = 4;
    while (n >>= 1) depth += 2;
    return depth;
}

void ht_ranked_sort(ht_ranked *r, int32_t n) { sort_within(r, n, depth_limit(n)); }

/* Moves the k highest to the front, in any order. */
static void select_top(ht_ranked *r, int32_t n, int32_t k) {
    for (int depth = depth_limit(n); k > 0 && k < n && n > 16;) {
        if (depth-- == 0) break;
        int32_t p = partition(r, n);
        if (p >= k)
            n = p;
        else {
            r += p + 1;
            n -= p + 1;
            k -= p + 1;
        }
    }
    if (k > 0 && k < n) sort_within(r, n, depth_limit(n));
}

/* ---- selections ---- */

static int32_t collect(const ht_row *row, float from, ht_cut cut, ht_ranked *out) {
    int32_t count = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        if (row->block_max[b] < from) continue;
        int32_t first = b * HT_ROW_BLOCK, n = block_length(row, b);
        for (int32_t i = first; i < first + n; i++)
            if (row->x[i] >= from && ht_cut_keeps(cut, row->x[i], i)) out[count++] = ht_rank(row->x[i], i);
    }
    return count;
}

/* The k-th highest block maximum (k <= n_blocks): at least k values of the row are as high. */
static float block_bound(const ht_row *row, int32_t k, ht_ranked *work) {
    for (int32_t b = 0; b < row->n_blocks; b++) work[b] = ht_rank(row->block_max[b], b);
    select_top(work, row->n_blocks, k);
    ht_ranked lowest = work[0];
    for (int32_t i = 1; i < k; i++) lowest = work[i] < lowest ? work[i] : lowest;
    return ht_ranked_value(lowest);
}

void ht_row_top(const ht_row *row, int32_t k, ht_ranked *out) {
    float from = k <= row->n_blocks ? block_bound(row, k, out) : -FLT_MAX;
    int32_t count = collect(row, from, ht_cut_none(), out);
    select_top(out, count, k);
    ht_ranked_sort(out, k);
}

int32_t ht_row_above(const ht_row *row, float value, ht_cut cut, ht_ranked *out) {
    int32_t count = collect(row, value, cut, out);
    ht_ranked_sort(out, count);
    return count;
}

/* ---- nucleus ---- */

/* Walks sorted candidates from mass `before`; true when the target is reached, *cut then ends there. */
static bool reach(const ht_row *row, const ht_ranked *sorted, int32_t n, float scale, double before, double target,
                  ht_cut *cut) {
    float x[HT_ROW_BLOCK], w[HT_ROW_BLOCK];
    for (int32_t first = 0; first < n; first += HT_ROW_BLOCK) {
        int32_t count = n - first < HT_ROW_BLOCK ? n - first : HT_ROW_BLOCK;
        for (int32_t i = 0; i < count; i++) x[i] = ht_ranked_value(sorted[first + i]);
        ht_row_weights(x, count, row->max, scale, w);
        for (int32_t i = 0; i < count; i++) {
            *cut = (ht_cut){x[i], ht_ranked_index(sorted[first + i])};
            before += (double)w[i];
            if (before >= target) return true;
        }
    }
    return false;
}

/* Those with low <= x < high that `within` keeps. */
static int32_t collect_between(const ht_row *row, float low, float high, ht_cut within, ht_ranked *out, int32_t limit) {
    int32_t count = 0;
    for (int32_t b = 0; b < row->n_blocks && count <= limit; b++) {
        if (row->block_max[b] < low) continue;
        int32_t first = b * HT_ROW_BLOCK, n = block_length(row, b);
        for (int32_t i = first; i < first + n; i++)
            if (row->x[i] >= low && row->x[i] < high && ht_cut_keeps(within, row->x[i], i))
                out[count++] = ht_rank(row->x[i], i);
    }
    return count;
}

static void weigh_all(const ht_row *row, float scale, float *weight) {
    for (int32_t b = 0; b < row->n_blocks; b++)
        ht_row_weights(row->x + (ptrdiff_t)b * HT_ROW_BLOCK, block_length(row, b), row->max, scale,
                       weight + (ptrdiff_t)b * HT_ROW_BLOCK);
}

/* Sum of the stored weights of values >= from. */
static double mass_above(const ht_row *row, const float *weight, float from) {
    double total = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        if (row->block_max[b] < from) continue;
        const float *x = row->x + (ptrdiff_t)b * HT_ROW_BLOCK, *w = weight + (ptrdiff_t)b * HT_ROW_BLOCK;
        int32_t n = block_length(row, b);
        if (n == HT_ROW_BLOCK)
            total += block_sum(x, w, 0, 0, from, false);
        else
            for (int32_t i = 0; i < n; i++) total += x[i] >= from ? (double)w[i] : 0;
    }
    return total;
}

ht_cut ht_row_nucleus(const ht_row *row, float scale, ht_cut within, double target, float *weight, ht_ranked *work) {
    enum { FEW = 512, SMALL = 4096 };
    /* Mostly some hundred candidates are enough. */
    ht_cut cut = within;
    int32_t few = row->n_blocks / 4 < FEW ? row->n_blocks / 4 : FEW;
    float high = few >= 4 ? block_bound(row, few, work) : -FLT_MAX;
    int32_t n = ht_row_above(row, high, within, work);
    if (reach(row, work, n, scale, 0, target, &cut) || high <= within.value) return cut;

    /* Else halve the range of values in which the end lies until few are left in it: the values >= high have less than
     * the target, the values >= low all there is. */
    weigh_all(row, scale, weight);
    float low = row->max - 88 / scale; /* weights end at e^-87 */
    if (low < within.value) low = within.value;
    double above = mass_above(row, weight, high);
    while ((n = collect_between(row, low, high, within, work, SMALL)) > SMALL) {
        float mid = low + (high - low) * 0.5f;
        if (!(mid > low && mid < high)) break; /* neighbours: all that is left has one value */
        double mass = mass_above(row, weight, mid);
        if (mass < target) {
            high = mid;
            above = mass;
        } else {
            low = mid;
        }
    }
    n = collect_between(row, low, high, within, work, INT32_MAX);
    ht_ranked_sort(work, n);
    reach(row, work, n, scale, above, target, &cut);
    return cut;
}
