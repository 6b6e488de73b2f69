#include "generate/row.h"

#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static int32_t block_length(const ht_row *row, int32_t block) {
    int32_t rest = row->n - block * HT_ROW_BLOCK;
    return rest < HT_ROW_BLOCK ? rest : HT_ROW_BLOCK;
}

/* ---- the largest value ---- */

bool ht_row_scan(ht_row *row) {
    row->n_blocks = ht_row_blocks(row->n);
    bool finite = row->ops->maxima(row->x, row->n, row->block_max);
    row->max = -FLT_MAX;
    for (int32_t b = 0; b < row->n_blocks; b++) row->max = row->block_max[b] > row->max ? row->block_max[b] : row->max;
    return finite;
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

/* The block in which the cut's last index lies, with all that is cut off as the lowest float. */
static void cut_values(const float *x, int32_t n, int32_t first, ht_cut cut, float *copy) {
    for (int32_t i = 0; i < n; i++) copy[i] = ht_cut_keeps(cut, x[i], first + i) ? x[i] : -FLT_MAX;
}

static double cut_block_mass(const ht_row *row, int32_t block, float scale, ht_cut cut) {
    float copy[HT_ROW_BLOCK];
    int32_t first = block * HT_ROW_BLOCK, n = block_length(row, block);
    bool strict = first > cut.last;
    const float *x = row->x + first;
    if (!strict && first + n - 1 > cut.last) {
        cut_values(x, n, first, cut, copy);
        x = copy;
    }
    return row->ops->mass(x, n, row->max, scale, cut.value, strict);
}

double ht_row_mass(const ht_row *row, float scale, ht_cut cut, double *block_mass) {
    double total = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        double mass = row->block_max[b] < cut.value ? 0 : cut_block_mass(row, b, scale, cut);
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
    row->ops->weights(row->x + first, n, row->max, scale, w);
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
        row->ops->weights(x, count, row->max, scale, w);
        for (int32_t i = 0; i < count; i++) {
            *cut = (ht_cut){x[i], ht_ranked_index(sorted[first + i])};
            before += (double)w[i];
            if (before >= target) return true;
        }
    }
    return false;
}

/* Those with low <= x < high that `within` keeps. */
static int32_t collect_between(const ht_row *row, float low, float high, ht_cut within, ht_ranked *out) {
    int32_t count = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        if (row->block_max[b] < low) continue;
        int32_t first = b * HT_ROW_BLOCK, n = block_length(row, b);
        for (int32_t i = first; i < first + n; i++)
            if (row->x[i] >= low && row->x[i] < high && ht_cut_keeps(within, row->x[i], i))
                out[count++] = ht_rank(row->x[i], i);
    }
    return count;
}

/* Sum and number of the stored weights of values >= from. */
static double mass_above(const ht_row *row, const float *weight, float from, int64_t *count) {
    double total = 0;
    *count = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        ptrdiff_t first = (ptrdiff_t)b * HT_ROW_BLOCK;
        if (row->block_max[b] >= from)
            total += row->ops->sum(row->x + first, weight + first, block_length(row, b), from, count);
    }
    return total;
}

ht_cut ht_row_nucleus(const ht_row *row, float scale, ht_cut within, double target, float *weight, ht_ranked *work) {
    enum { FEW = 512, SMALL = 1024 };
    /* Mostly some hundred candidates are enough. */
    ht_cut cut = within;
    int32_t few = row->n_blocks / 4 < FEW ? row->n_blocks / 4 : FEW;
    float high = few >= 4 ? block_bound(row, few, work) : -FLT_MAX;
    int32_t n = ht_row_above(row, high, within, work);
    if (reach(row, work, n, scale, 0, target, &cut) || high <= within.value) return cut;

    /* Else halve the range of values in which the end lies until few are left in it: the values >= high have less than
     * the target, the values >= low all there is. */
    row->ops->weights(row->x, row->n, row->max, scale, weight);
    float low = row->max - 88 / scale; /* weights end at e^-87 */
    if (low < within.value) low = within.value;
    int64_t n_low, n_high, n_mid;
    double above = mass_above(row, weight, high, &n_high);
    mass_above(row, weight, low, &n_low);
    while (n_low - n_high > SMALL) {
        float mid = low + (high - low) * 0.5f;
        if (!(mid > low && mid < high)) break; /* neighbours: all that is left has one value */
        double mass = mass_above(row, weight, mid, &n_mid);
        if (mass < target) {
            high = mid;
            above = mass;
            n_high = n_mid;
        } else {
            low = mid;
            n_low = n_mid;
        }
    }
    n = collect_between(row, low, high, within, work);
    ht_ranked_sort(work, n);
    reach(row, work, n, scale, above, target, &cut);
    return cut;
}
