#include "generate/logits_row.h"

#include "base/error.h"
#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static int32_t block_length(const ht_logits_row *row, int32_t block) {
    int32_t rest = row->n - block * HT_ROW_BLOCK;
    return rest < HT_ROW_BLOCK ? rest : HT_ROW_BLOCK;
}

/* ---- the largest value ---- */

bool ht_row_scan(ht_logits_row *row) {
    row->n_blocks = ht_row_blocks(row->n);
    bool finite = row->ops->maxima(row->x, row->n, row->block_max);
    row->max = -FLT_MAX;
    for (int32_t b = 0; b < row->n_blocks; b++) row->max = row->block_max[b] > row->max ? row->block_max[b] : row->max;
    return finite;
}

ht_status ht_row_fail(const ht_logits_row *row, const int32_t *ids, ht_error *err) {
    int32_t i = 0;
    while (i + 1 < row->n && isfinite(row->x[i])) i++;
    return ht_fail(err, HT_ERR_INTERNAL, "the logit of token %d is %g; the model's output cannot be sampled from",
                   (int)(ids ? ids[i] : i), (double)row->x[i]);
}

int32_t ht_row_argmax(const ht_logits_row *row) {
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

static double cut_block_mass(const ht_logits_row *row, int32_t block, float scale, ht_cut cut) {
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

double ht_row_mass(const ht_logits_row *row, float scale, ht_cut cut, double *block_mass) {
    double total = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        double mass = row->block_max[b] < cut.value ? 0 : cut_block_mass(row, b, scale, cut);
        if (block_mass) block_mass[b] = mass;
        total += mass;
    }
    return total;
}

int32_t ht_row_draw(const ht_logits_row *row, float scale, ht_cut cut, const double *block_mass, double mass,
                    double u) {
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

/* ---- probabilities ---- */

double ht_row_log_sum(const ht_logits_row *row) {
    return log(ht_row_mass(row, 1, ht_cut_none(), NULL)) + (double)row->max;
}

int32_t ht_row_likeliest(const ht_logits_row *row, int32_t k, double log_sum, ht_token_probability *top) {
    int32_t n = 0;
    for (int32_t b = 0; b < row->n_blocks && k > 0; b++) {
        if (n == k && (double)row->block_max[b] <= top[n - 1].log_probability) continue;
        const int32_t first = b * HT_ROW_BLOCK;
        for (int32_t i = first; i < row->n && i < first + HT_ROW_BLOCK; i++) {
            const double x = (double)row->x[i];
            if (n == k && x <= top[n - 1].log_probability) continue;
            int32_t at = n < k ? n++ : k - 1;
            for (; at > 0 && top[at - 1].log_probability < x; at--) top[at] = top[at - 1];
            top[at] = (ht_token_probability){i, x};
        }
    }
    for (int32_t i = 0; i < n; i++) top[i].log_probability -= log_sum;
    return n;
}

/* ---- ranks ---- */

ht_ranked ht_rank(float x, int32_t index) {
    uint32_t bits = ht_float_bits(x + 0.0f); /* -0 ties with 0 */
    uint32_t key = bits ^ ((uint32_t) - (int32_t)(bits >> 31) | 0x80000000u);
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

static ht_ranked lowest_of(const ht_ranked *r, int32_t n) {
    ht_ranked lowest = r[0];
    for (int32_t i = 1; i < n; i++) lowest = r[i] < lowest ? r[i] : lowest;
    return lowest;
}

/* The highest values so far, of which k count. Once full, `floor` is the lowest that may still be among them. */
typedef struct top {
    ht_ranked *out;
    int32_t k, count, room;
    ht_ranked floor;
} top;

static void add_block(const ht_logits_row *row, int32_t block, top *t) {
    int32_t first = block * HT_ROW_BLOCK, n = block_length(row, block);
    if (ht_rank(row->block_max[block], first) < t->floor) return;
    for (int32_t i = first; i < first + n; i++) {
        ht_ranked r = ht_rank(row->x[i], i);
        if (r < t->floor) continue;
        t->out[t->count++] = r;
        if (t->count < t->room) continue;
        select_top(t->out, t->count, t->k);
        t->count = t->k;
        t->floor = lowest_of(t->out, t->k);
    }
}

void ht_row_top(const ht_logits_row *row, int32_t k, ht_ranked *out) {
    enum { LEAST = 1024 };
    top t = {.out = out, .k = k, .room = k < LEAST / 4 ? LEAST : k < INT32_MAX / 4 ? 4 * k : INT32_MAX};
    if (k <= row->n_blocks && row->n >= 4 * HT_ROW_BLOCK) {
        /* The k blocks of the highest maxima hold k values no lower than the lowest of those. Highest first: the
         * floor rises soon. Other blocks count only on ties. */
        ht_ranked *blocks = out + row->n - row->n_blocks;
        for (int32_t b = 0; b < row->n_blocks; b++) blocks[b] = ht_rank(row->block_max[b], b);
        select_top(blocks, row->n_blocks, k);
        ht_ranked_sort(blocks, k);
        ht_ranked visited = blocks[k - 1];
        float from = ht_ranked_value(visited);
        t.floor = ht_rank(from, INT32_MAX);
        t.room = t.room < row->n - row->n_blocks ? t.room : row->n - row->n_blocks;
        for (int32_t i = 0; i < k; i++) add_block(row, ht_ranked_index(blocks[i]), &t);
        for (int32_t b = ht_ranked_index(visited) + 1; b < row->n_blocks; b++)
            if (row->block_max[b] == from) add_block(row, b, &t);
    } else {
        for (int32_t b = 0; b < row->n_blocks; b++) add_block(row, b, &t);
    }
    select_top(out, t.count, k);
    ht_ranked_sort(out, k);
}

/* ---- nucleus ---- */

int32_t ht_row_reach(const ht_logits_row *row, const ht_ranked *sorted, int32_t n, float scale, double target,
                     double *mass) {
    float x[HT_ROW_BLOCK], w[HT_ROW_BLOCK];
    double total = *mass;
    int32_t reached = 0;
    for (int32_t first = 0; first < n && !reached; first += HT_ROW_BLOCK) {
        int32_t count = n - first < HT_ROW_BLOCK ? n - first : HT_ROW_BLOCK;
        for (int32_t i = 0; i < count; i++) x[i] = ht_ranked_value(sorted[first + i]);
        row->ops->weights(x, count, row->max, scale, w);
        for (int32_t i = 0; i < count && !reached; i++) {
            total += (double)w[i];
            if (total >= target) reached = first + i + 1;
        }
    }
    *mass = total;
    return reached ? reached : n;
}

/* Range of the target: low <= x <= high. Higher values have mass `above`. */
typedef struct range {
    float low, high;
    double above;
} range;

/* Sums the weights of each bucket, in four independent sums: dependent additions take four times as long. Returns
 * the bucket that reaches the target, *r->above being the mass before it; or -1. */
static int fill_buckets(const ht_logits_row *row, float scale, float per_bucket, double target, range *r) {
    double mass[4][HT_ROW_BUCKETS + 1] = {{0}};
    float w[HT_ROW_BLOCK];
    uint16_t bucket[HT_ROW_BLOCK];
    for (int32_t b = 0; b < row->n_blocks; b++) {
        if (row->block_max[b] < r->low) continue;
        int32_t first = b * HT_ROW_BLOCK, n = block_length(row, b), i = 0;
        row->ops->weights(row->x + first, n, row->max, scale, w);
        row->ops->buckets(row->x + first, n, r->low, r->high, per_bucket, bucket);
        for (; i + 4 <= n; i += 4)
            for (int k = 0; k < 4; k++) mass[k][bucket[i + k]] += (double)w[i + k];
        for (; i < n; i++) mass[0][bucket[i]] += (double)w[i];
    }
    for (int i = 0; i < HT_ROW_BUCKETS; i++) {
        double inside = (mass[0][i] + mass[1][i]) + (mass[2][i] + mass[3][i]);
        if (r->above + inside >= target) return i;
        r->above += inside;
    }
    return -1;
}

/* The values of one bucket that `within` keeps, in order of index; *r becomes the range they span. */
static int32_t collect_bucket(const ht_logits_row *row, int wanted, float per_bucket, ht_cut within, range *r,
                              ht_ranked *out) {
    enum { GROUP = 16 };
    uint16_t bucket[HT_ROW_BLOCK];
    int32_t count = 0;
    ht_ranked lowest = UINT64_MAX, highest = 0;
    for (int32_t b = 0; b < row->n_blocks; b++) {
        if (row->block_max[b] < r->low) continue;
        int32_t first = b * HT_ROW_BLOCK, n = block_length(row, b);
        row->ops->buckets(row->x + first, n, r->low, r->high, per_bucket, bucket);
        for (int32_t i = n; i < HT_ROW_BLOCK; i++) bucket[i] = HT_ROW_BUCKETS;
        for (int32_t from = 0; from < n; from += GROUP) {
            int32_t hits = 0, end = from + GROUP < n ? from + GROUP : n;
            for (int32_t i = from; i < from + GROUP; i++) hits |= bucket[i] == wanted;
            for (int32_t i = from; hits && i < end; i++) { /* no branch on the data */
                float x = row->x[first + i];
                out[count] = ht_rank(x, first + i);
                count += (bucket[i] == wanted) & (x > within.value || first + i <= within.last);
            }
        }
    }
    for (int32_t i = 0; i < count; i++) {
        lowest = out[i] < lowest ? out[i] : lowest;
        highest = out[i] > highest ? out[i] : highest;
    }
    if (!count) return 0;
    r->low = ht_ranked_value(lowest);
    r->high = ht_ranked_value(highest);
    return count;
}

/* The cut after the first of n equal candidates, in order, whose weights reach the target. */
static ht_cut equals_that_reach(const ht_logits_row *row, const ht_ranked *list, int32_t n, float scale,
                                double target) {
    float value = ht_ranked_value(list[0]), weight;
    row->ops->weights(&value, 1, row->max, scale, &weight);
    double wanted = ceil(target / (double)weight);
    int32_t last = wanted < 1 ? 0 : wanted < (double)n ? (int32_t)wanted - 1 : n - 1;
    return (ht_cut){value, ht_ranked_index(list[last])};
}

/* The cut after a candidate. */
static ht_cut cut_at(ht_ranked last) { return (ht_cut){ht_ranked_value(last), ht_ranked_index(last)}; }

ht_cut ht_row_nucleus(const ht_logits_row *row, float scale, ht_cut within, double target, ht_ranked *work) {
    enum { SMALL = 2048 };
    static const int32_t few[] = {64, 512};                     /* candidates that mostly suffice */
    range r = {.low = row->max - 88 / scale, .high = row->max}; /* weights end at e^-87 */
    if (r.low < within.value) r.low = within.value;
    for (int i = 0; i < 2 && row->n > 4 * few[i]; i++) {
        ht_row_top(row, few[i], work);
        int32_t n = few[i];
        while (n > 1 && !ht_cut_keeps(within, ht_ranked_value(work[n - 1]), ht_ranked_index(work[n - 1]))) n--;
        double mass = 0;
        const int32_t reached = ht_row_reach(row, work, n, scale, target, &mass);
        if (mass >= target || n < few[i]) return cut_at(work[reached - 1]);
    }
    /* Otherwise buckets: those of one bucket go to narrower ones, until few or equal values are left. */
    for (;;) {
        float per_bucket = (float)HT_ROW_BUCKETS / (r.high - r.low);
        bool narrow = !(per_bucket < 1e30f); /* no room for buckets */
        int found = fill_buckets(row, scale, narrow ? 0 : per_bucket, target, &r);
        if (found < 0) return within;
        int32_t n = collect_bucket(row, found, narrow ? 0 : per_bucket, within, &r, work);
        if (n > SMALL && r.low < r.high && !narrow) continue;
        if (n > SMALL && r.low == r.high) return equals_that_reach(row, work, n, scale, target - r.above);
        ht_ranked_sort(work, n);
        return n ? cut_at(work[ht_row_reach(row, work, n, scale, target, &r.above) - 1]) : within;
    }
}
