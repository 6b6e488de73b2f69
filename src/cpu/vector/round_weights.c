/* Rounding of weights to blocks (device/device.h). Sixteen groups of elements are fitted at a time, a lane each, so that sums
 * over a group never cross lanes.
 *
 * A group's fit: for several initial ranges, elements are rounded to the nearest numbers, and weighted least squares
 * gives the scale (and offset). The best fit is refined by alternating both. If a block's groups have integer scales,
 * these and the block's floats are then refined together: each group chooses the best integers near its own for the
 * stored floats, and least squares gives the floats for these integers. */
#include "base/half.h"
#include "base/pool.h"
#include "cpu/vector/simd.h"
#include "device/device.h"
#include "formats/affine.h"
#include "formats/block_pack.h"
#include "formats/blocks.h"

#include <math.h>

enum { LANES = 16, GROUP_MOST = 128 };
#define TINY 1e-30f /* groups without a larger element are zero, because the division would overflow */

/* Stored values of a type with a table, ascending, as floats' bits; the midpoints between them; the stored numbers. */
typedef struct table {
    _Alignas(64) int32_t value[16], middle[16];
    uint8_t number[16];
} table;

/* Numbers, scales and offsets of a weight type. A lane holds a group. */
typedef struct form {
    ht_weight_type type;
    int group; /* elements */
    int lanes; /* groups of a block */
    float low, high;
    bool has_min;  /* an offset in addition to the scale */
    bool free_min; /* the offset may have either sign */
    float scale_low, scale_high,
        min_high;          /* of the integer scales and minima of groups; 0: the floats are the group's own */
    const table *table;    /* NULL: numbers are integers */
    bool powers;           /* scales are powers of two */
    ht_weight_type floats; /* storage type of other scales and offsets */
} form;

typedef struct panel {
    _Alignas(64) float x[GROUP_MOST][LANES];
    _Alignas(64) float weight[GROUP_MOST][LANES];
    _Alignas(64) float number[GROUP_MOST][LANES];
    v16f weights, weighted; /* sums of weight, and of weight * x */
    v16f unit, per_unit;    /* the power of two by which a block's elements are divided, and its inverse */
} panel;

/* Element = scale * number - min. */
typedef struct fit {
    v16f scale, min;
} fit;

/* Sums over a group, for numbers v: of weight times v, v v, v x. */
typedef struct sums {
    v16f v, vv, vx;
} sums;

/* ---- numbers ---- */

/* Index of the nearest value of a table: the number of midpoints below y. */
HT_INLINE v16i table_index(const table *t, v16f y) {
    v16i at = v16i_set1(0);
    for (int step = 8; step; step /= 2) {
        const v16f middle = v16f_from_bits(v16i_choose_16(t->middle, v16i_add(at, v16i_set1(step - 1))));
        const v16f added = v16f_select(v16f_gt(y, middle), v16f_from_bits(v16i_set1(step)), v16f_zero());
        at = v16i_add(at, v16f_bits(added));
    }
    return at;
}

/* The value nearest to y. */
HT_INLINE v16f nearest(const form *f, v16f y) {
    if (f->table) return v16f_from_bits(v16i_choose_16(f->table->value, table_index(f->table, y)));
    return v16f_min(v16f_max(v16f_round(y), v16f_set1(f->low)), v16f_set1(f->high));
}

/* 1 / a, or 0 if |a| is at most TINY or a is NaN. */
HT_INLINE v16f inverse(v16f a) {
    const m16 good = v16f_gt(v16f_abs(a), v16f_set1(TINY));
    return v16f_select(good, v16f_div(v16f_set1(1.0f), v16f_select(good, a, v16f_set1(1.0f))), v16f_zero());
}

/* a / b, and 0 where b is not positive. */
HT_INLINE v16f ratio(v16f a, v16f b) {
    const m16 good = v16f_gt(b, v16f_zero());
    return v16f_select(good, v16f_div(a, v16f_select(good, b, v16f_set1(1.0f))), v16f_zero());
}

/* Sums over the numbers nearest to x * by + shift. */
static sums sums_for(const form *f, const panel *p, v16f by, v16f shift) {
    sums s = {v16f_zero(), v16f_zero(), v16f_zero()};
    for (int i = 0; i < f->group; i++) {
        const v16f x = v16f_load(p->x[i]), v = nearest(f, v16f_fma(x, by, shift));
        const v16f wv = v16f_mul(v16f_load(p->weight[i]), v);
        s.v = v16f_add(s.v, wv);
        s.vv = v16f_fma(wv, v, s.vv);
        s.vx = v16f_fma(wv, x, s.vx);
    }
    return s;
}

/* Sums over the numbers nearest to the weights under fit `a`. */
static sums sums_of_fit(const form *f, const panel *p, const fit *a) {
    const v16f by = inverse(a->scale);
    return sums_for(f, p, by, v16f_mul(a->min, by));
}

/* Weighted squared error, less that of zeros. */
HT_INLINE v16f error_of(const panel *p, const sums *s, const fit *a) {
    const v16f two = v16f_set1(2.0f);
    v16f e = v16f_mul(a->scale, v16f_fma(a->scale, s->vv, v16f_neg(v16f_mul(two, s->vx))));
    const v16f inner =
        v16f_fma(a->min, p->weights, v16f_fnma(v16f_mul(two, a->scale), s->v, v16f_mul(two, p->weighted)));
    return v16f_fma(a->min, inner, e);
}

/* Better by more than the rounding of the sums: among equals the first stays, which has the group's own range and, in a
 * block, similar scales. The margin is larger with offsets: their sums cancel more, and ties are common, because
 * numbers that leave one end free can be shifted by one step. */
HT_INLINE m16 is_better(const form *f, v16f error, v16f than) {
    const float margin = f->has_min && f->high < 100 ? 0x1p-18f : 0x1p-22f;
    return v16f_lt(error, v16f_mul(v16f_set1(1.0f + margin), than));
}

HT_INLINE fit select_fit(m16 m, fit a, fit b) {
    return (fit){v16f_select(m, a.scale, b.scale), v16f_select(m, a.min, b.min)};
}

/* ---- single groups ---- */

/* Least-squares scale and offset for the numbers summed in `s`. If all are equal, only an offset; if the offset's sign
 * is not allowed, only a scale. */
static fit least_squares(const form *f, const panel *p, const sums *s) {
    const fit scale_alone = {ratio(s->vx, s->vv), v16f_zero()};
    if (!f->has_min) return scale_alone;
    const v16f det = v16f_fnma(s->v, s->v, v16f_mul(p->weights, s->vv));
    const fit both = {ratio(v16f_fnma(s->v, p->weighted, v16f_mul(p->weights, s->vx)), det),
                      ratio(v16f_fnma(s->vv, p->weighted, v16f_mul(s->v, s->vx)), det)};
    const fit min_alone = {v16f_zero(), v16f_neg(ratio(p->weighted, p->weights))};
    const m16 enough = v16f_gt(det, v16f_mul(v16f_set1(1e-6f), v16f_mul(p->weights, s->vv)));
    const fit a = select_fit(enough, both, min_alone);
    if (f->free_min) return a;
    return select_fit(v16f_gt(a.min, v16f_zero()), a, scale_alone);
}

typedef struct best {
    fit fit;
    v16f error;
} best;

/* Tries the numbers nearest to x * by + shift. Among equals the first stays: if the upper end is free, numbers begin at
 * the lower end, as in weights that were already rounded to the type. */
static void try_numbers(const form *f, const panel *p, v16f by, v16f shift, best *b) {
    const sums s = sums_for(f, p, by, shift);
    const fit a = least_squares(f, p, &s);
    const v16f error = error_of(p, &s, &a);
    const m16 better = is_better(f, error, b->error);
    b->fit = select_fit(better, a, b->fit);
    b->error = v16f_select(better, error, b->error);
}

static void improve(const form *f, const panel *p, int turns, best *b) {
    for (int i = 0; i < turns; i++) {
        const v16f by = inverse(b->fit.scale);
        try_numbers(f, p, by, v16f_mul(b->fit.min, by), b);
    }
}

/* Fit without an offset: tries mapping the largest element to numbers near either end. */
static fit fit_scale(const form *f, const panel *p) {
    /* Groups that are whole blocks try fewer: their types favour speed. Steps are fractions of the distance of numbers
     * at the ends. */
    const bool few = f->scale_high <= 0;
    const int at_low = !few ? 12 : f->table ? 5 : 4, at_high = !few ? 8 : f->table ? 3 : 2;
    const float step = (few ? 0.4f : 0.15f) * (f->table ? f->high / 5.0f : 1.0f);
    v16f peak = v16f_zero();
    for (int i = 0; i < f->group; i++) {
        const v16f x = v16f_load(p->x[i]);
        peak = v16f_select(v16f_gt(v16f_abs(x), v16f_abs(peak)), x, peak);
    }
    const v16f per_peak = inverse(peak);
    best b = {{v16f_zero(), v16f_zero()}, v16f_zero()};
    for (int i = 0; i < at_low; i++) {
        const float end = f->low + step * (float)(i - at_low / 2);
        try_numbers(f, p, v16f_mul(per_peak, v16f_set1(end)), v16f_zero(), &b);
    }
    for (int i = 0; i < at_high; i++) {
        const float end = f->high + step * (float)(i - at_high / 2);
        try_numbers(f, p, v16f_mul(per_peak, v16f_set1(end)), v16f_zero(), &b);
    }
    improve(f, p, 2, &b);
    return b.fit;
}

/* Fit with an offset: maps the group's range, and ranges cut at both ends, to all numbers. *range is the full range's
 * fit. */
static fit fit_range(const form *f, const panel *p, fit *range) {
    /* In steps. Below 0, numbers at the ends stay unused, as is possible in weights that were already rounded. */
    static const float cuts[] = {0.0f, -1.0f, 0.6f, -0.5f, 0.3f, 0.9f};
    const int ends = f->high > 100 ? 1 : f->scale_high > 0 ? 6 : 3; /* of 8 bits, nothing is gained */
    v16f low = v16f_load(p->x[0]), high = low;
    for (int i = 1; i < f->group; i++) {
        low = v16f_min(v16f_load(p->x[i]), low);
        high = v16f_max(v16f_load(p->x[i]), high);
    }
    if (!f->free_min) low = v16f_min(low, v16f_zero());
    const v16f step = v16f_mul(v16f_sub(high, low), v16f_set1(1.0f / f->high));
    best b = {{v16f_zero(), v16f_zero()}, v16f_zero()};
    for (int i = 0; i < ends; i++)
        for (int j = 0; j < ends; j++) {
            const float cut_low = cuts[i], cut_high = cuts[j];
            const v16f by = inverse(v16f_mul(step, v16f_set1((f->high - cut_low - cut_high) / f->high)));
            const v16f from = v16f_fma(step, v16f_set1(cut_low), low);
            try_numbers(f, p, by, v16f_neg(v16f_mul(from, by)), &b);
            if (!i && !j) *range = b.fit;
        }
    improve(f, p, 3, &b);
    return b.fit;
}

/* ---- floats as they are stored ---- */

static float stored_float(ht_weight_type type, float x) {
    if (type == HT_W_F32) return x;
    return type == HT_W_F16 ? ht_f16_to_f32(ht_f32_to_f16(x)) : ht_bf16_to_f32(ht_f32_to_bf16(x));
}

static v16f stored_floats(ht_weight_type type, const panel *p, v16f v) {
    _Alignas(64) float x[LANES];
    v16f_store(x, v16f_mul(v, p->unit));
    for (int l = 0; l < LANES; l++) x[l] = stored_float(type, x[l]);
    return v16f_mul(v16f_load(x), p->per_unit);
}

/* The power of two near the scale with the least error. The sign is irrelevant: the table is symmetric. */
static fit store_power(const form *f, const panel *p, fit a) {
    _Alignas(64) float power[LANES];
    v16f_store(power, v16f_abs(a.scale)); /* the table is symmetric */
    for (int l = 0; l < LANES; l++) {
        int e = 0;
        frexpf(power[l], &e);
        power[l] = power[l] != 0 ? ldexpf(1.0f, e < -124 ? -125 : e - 1) : 0.0f; /* of normal numbers */
    }
    fit found = {v16f_load(power), v16f_zero()};
    v16f least = v16f_set1(INFINITY);
    for (int i = 0; i < 2; i++) {
        const fit b = {v16f_mul(v16f_load(power), v16f_set1((float)(i + 1))), v16f_zero()};
        const sums s = sums_for(f, p, inverse(b.scale), v16f_zero());
        const v16f error = error_of(p, &s, &b);
        const m16 better = v16f_lt(error, least);
        found = select_fit(better, b, found);
        least = v16f_select(better, error, least);
    }
    return found;
}

/* A group's scale as stored, with the best offset for it as stored. */
static fit store_scale(const form *f, const panel *p, v16f scale, v16f min) {
    const v16f by = inverse(scale);
    const sums s = sums_for(f, p, by, v16f_mul(min, by));
    min = ratio(v16f_sub(v16f_mul(scale, s.v), p->weighted), p->weights);
    return (fit){scale, stored_floats(f->floats, p, min)};
}

/* Rounds a group's own floats. Over 255 numbers, half a bf16 ulp of the scale adds up to half the distance between two
 * numbers, so neighbouring bf16 scales are also tried. */
static fit store_fit(const form *f, const panel *p, fit a) {
    const v16f scale = stored_floats(f->floats, p, a.scale);
    if (!f->has_min) return (fit){scale, a.min};
    fit found = store_scale(f, p, scale, a.min);
    if (f->floats != HT_W_BF16) return found;
    v16f least = v16f_set1(INFINITY);
    for (int i = 0; i < 3; i++) {
        const float factor = i == 0 ? 1.0f : i == 1 ? 1.0f - 0x1p-8f : 1.0f + 0x1p-8f;
        const v16f near = stored_floats(f->floats, p, v16f_mul(scale, v16f_set1(factor)));
        const fit b = store_scale(f, p, near, a.min);
        const sums s = sums_of_fit(f, p, &b);
        const v16f error = error_of(p, &s, &b);
        const m16 better = is_better(f, error, least);
        found = select_fit(better, b, found);
        least = v16f_select(better, error, least);
    }
    return found;
}

/* ---- groups of a block ---- */

/* A block's floats in each of its lanes, and the integers of groups. */
typedef struct block_fit {
    fit floats, integers;
} block_fit;

HT_INLINE block_fit select_block(m16 m, block_fit a, block_fit b) {
    return (block_fit){select_fit(m, a.floats, b.floats), select_fit(m, a.integers, b.integers)};
}

HT_INLINE fit group_fit(const block_fit *b) {
    return (fit){v16f_mul(b->floats.scale, b->integers.scale), v16f_mul(b->floats.min, b->integers.min)};
}

/* The value of largest magnitude in each block, copied to all its lanes. */
static v16f block_peak(const form *f, v16f v) {
    _Alignas(64) float x[LANES];
    v16f_store(x, v);
    for (int first = 0; first < LANES; first += f->lanes) {
        float peak = 0;
        for (int l = first; l < first + f->lanes; l++) peak = fabsf(x[l]) > fabsf(peak) ? x[l] : peak;
        for (int l = first; l < first + f->lanes; l++) x[l] = peak;
    }
    return v16f_load(x);
}

static v16f block_sum(const form *f, v16f v) {
    _Alignas(64) float x[LANES];
    v16f_store(x, v);
    for (int first = 0; first < LANES; first += f->lanes) {
        float sum = 0;
        for (int l = first; l < first + f->lanes; l++) sum += x[l];
        for (int l = first; l < first + f->lanes; l++) x[l] = sum;
    }
    return v16f_load(x);
}

HT_INLINE v16f clamp_integer(v16f v, float low, float high) {
    return v16f_min(v16f_max(v16f_round(v), v16f_set1(low)), v16f_set1(high));
}

/* Weighted squared error, element by element. It is exactly 0 for weights already rounded to the type; the difference
 * of sums in error_of cannot distinguish that from a small error. */
static v16f exact_error(const form *f, const panel *p, const fit *a) {
    const v16f by = inverse(a->scale), shift = v16f_mul(a->min, by);
    v16f error = v16f_zero();
    for (int i = 0; i < f->group; i++) {
        const v16f x = v16f_load(p->x[i]), v = nearest(f, v16f_fma(x, by, shift));
        const v16f e = v16f_sub(x, v16f_fma(a->scale, v, v16f_neg(a->min)));
        error = v16f_fma(v16f_mul(v16f_load(p->weight[i]), e), e, error);
    }
    return error;
}

/* Sets each group's integers to the best of them and their neighbours, given the block's floats. Returns the errors. */
static v16f choose_integers(const form *f, const panel *p, block_fit *b) {
    const v16f per_min = inverse(b->floats.min);
    fit found = b->integers;
    v16f least = v16f_set1(INFINITY);
    for (int t = -1; t <= 1; t++) {
        block_fit c = *b;
        c.integers.scale = clamp_integer(v16f_add(b->integers.scale, v16f_set1((float)t)), f->scale_low, f->scale_high);
        fit a = group_fit(&c);
        if (f->has_min) {
            const sums s = sums_of_fit(f, p, &a);
            const v16f min = ratio(v16f_sub(v16f_mul(a.scale, s.v), p->weighted), p->weights);
            c.integers.min = clamp_integer(v16f_mul(min, per_min), 0.0f, f->min_high);
            a = group_fit(&c);
        }
        const v16f error = exact_error(f, p, &a);
        const m16 better = v16f_lt(error, least);
        found = select_fit(better, c.integers, found);
        least = v16f_select(better, error, least);
    }
    b->integers = found;
    return least;
}

/* Least squares for a block's floats, its integers and numbers given. */
static fit block_floats(const form *f, const panel *p, const block_fit *b) {
    const fit a = group_fit(b), n = b->integers;
    const sums s = sums_of_fit(f, p, &a);
    const v16f vv = block_sum(f, v16f_mul(v16f_mul(n.scale, n.scale), s.vv)),
               vx = block_sum(f, v16f_mul(n.scale, s.vx));
    const fit alone = {ratio(vx, vv), v16f_zero()};
    if (!f->has_min) return alone;
    const v16f vm = block_sum(f, v16f_mul(v16f_mul(n.scale, n.min), s.v)),
               mx = block_sum(f, v16f_mul(n.min, p->weighted));
    const v16f mm = block_sum(f, v16f_mul(v16f_mul(n.min, n.min), p->weights));
    const v16f det = v16f_fnma(vm, vm, v16f_mul(vv, mm));
    const fit both = {ratio(v16f_fnma(vm, mx, v16f_mul(vx, mm)), det), ratio(v16f_fnma(vv, mx, v16f_mul(vm, vx)), det)};
    m16 good = v16f_gt(det, v16f_mul(v16f_set1(1e-6f), v16f_mul(vv, mm)));
    good = m16_and(good, m16_and(v16f_gt(both.min, v16f_zero()), v16f_gt(both.scale, v16f_zero())));
    return select_fit(good, both, b->floats);
}

HT_INLINE fit store_block_floats(const form *f, const panel *p, fit a) {
    return (fit){stored_floats(f->floats, p, a.scale), stored_floats(f->floats, p, a.min)};
}

typedef struct best_block {
    block_fit fit;
    v16f error;
} best_block;

/* Fits whole blocks, starting from each group's own fit. */
static best_block fit_blocks(const form *f, const panel *p, const fit *own) {
    enum { TURNS = 4 };
    const float end = f->scale_low < 0 ? f->scale_low : f->scale_high;
    const v16f scale = v16f_mul(block_peak(f, own->scale), v16f_set1(1.0f / end));
    const v16f min = f->has_min ? v16f_mul(block_peak(f, own->min), v16f_set1(1.0f / f->min_high)) : v16f_zero();
    block_fit b = {store_block_floats(f, p, (fit){scale, min}), {v16f_zero(), v16f_zero()}}, found = b;
    b.integers.scale = clamp_integer(v16f_mul(own->scale, inverse(b.floats.scale)), f->scale_low, f->scale_high);
    if (f->has_min) b.integers.min = clamp_integer(v16f_mul(own->min, inverse(b.floats.min)), 0.0f, f->min_high);
    /* Infinite floats are kept, so that the overflow is reported: refining them would give zeros. */
    const v16f infinite = v16f_set1(INFINITY);
    m16 fits = v16f_lt(v16f_abs(b.floats.scale), infinite);
    fits = m16_and(fits, v16f_lt(v16f_abs(b.floats.min), infinite));
    v16f least = v16f_select(fits, infinite, v16f_neg(infinite));
    for (int i = 0; i < TURNS; i++) {
        const v16f error = block_sum(f, choose_integers(f, p, &b));
        const m16 better = v16f_lt(error, least);
        found = select_block(better, b, found);
        least = v16f_select(better, error, least);
        if (i + 1 < TURNS) b.floats = store_block_floats(f, p, block_floats(f, p, &b));
    }
    return (best_block){found, v16f_select(fits, least, infinite)};
}

/* With offsets, a group's best fit alone can be far from any that suits its neighbours. So blocks are also fitted
 * starting from the groups' plain ranges, and the better fit is kept. */
static block_fit fit_blocks_twice(const form *f, const panel *p, const fit *own, const fit *range) {
    const best_block a = fit_blocks(f, p, own);
    if (!f->has_min) return a.fit;
    const best_block b = fit_blocks(f, p, range);
    return select_block(v16f_lt(b.error, a.error), b.fit, a.fit);
}

/* ---- panels ---- */

/* Blocks' elements are divided by a power of two near the largest, so that no sum of products is too large or small for f32. */
static void set_unit(const form *f, v16f peak, panel *p) {
    _Alignas(64) float unit[LANES], per_unit[LANES];
    v16f_store(unit, block_peak(f, peak));
    for (int l = 0; l < LANES; l++) {
        int e = 0;
        frexpf(unit[l], &e);
        e = e < -100 ? -100 : e > 125 ? 125 : e; /* both are normal numbers */
        unit[l] = ldexpf(1.0f, e);
        per_unit[l] = ldexpf(1.0f, -e);
    }
    p->unit = v16f_load(unit);
    p->per_unit = v16f_load(per_unit);
}

/* Loads up to sixteen groups, one per lane; missing groups are zeros. */
static void load_panel(const form *f, const float *x, int n_groups, const float *importance, int64_t column, int64_t k,
                       panel *p) {
    static const float zeros[GROUP_MOST];
    const float *from[LANES], *weight[LANES];
    for (int l = 0; l < LANES; l++) {
        from[l] = l < n_groups ? x + l * f->group : zeros;
        weight[l] = importance ? importance + (column + l * f->group) % k : NULL;
    }
    v16f peak = v16f_zero(), squares = v16f_zero();
    for (int i = 0; i < f->group; i += 4) {
        v16f v[4];
        for (int j = 0; j < 4; j++)
            v[j] = v16f_load_quads(from[j] + i, from[4 + j] + i, from[8 + j] + i, from[12 + j] + i);
        v16f_transpose_quads(v);
        for (int j = 0; j < 4; j++) {
            v16f_store(p->x[i + j], v[j]);
            peak = v16f_max(v16f_abs(v[j]), peak);
        }
    }
    set_unit(f, peak, p);
    for (int i = 0; i < f->group; i++) {
        const v16f v = v16f_mul(v16f_load(p->x[i]), p->per_unit);
        v16f_store(p->x[i], v);
        squares = v16f_fma(v, v, squares);
    }
    /* Large elements get more weight: they tend to be multiplied by larger inputs, and outputs diverge less than with
     * plain least squares. */
    const v16f typical = v16f_sqrt(v16f_mul(squares, v16f_set1(1.0f / (float)f->group)));
    p->weights = p->weighted = v16f_zero();
    for (int i = 0; i < f->group; i++) {
        const v16f v = v16f_load(p->x[i]);
        v16f w = v16f_add(typical, v16f_abs(v));
        if (importance) {
            _Alignas(64) float imp[LANES];
            for (int l = 0; l < LANES; l++) imp[l] = weight[l][i];
            w = v16f_mul(w, v16f_load(imp));
        }
        v16f_store(p->weight[i], w);
        p->weights = v16f_add(p->weights, w);
        p->weighted = v16f_fma(w, v, p->weighted);
    }
}

/* The stored numbers of a column: of a table, indices. */
HT_INLINE v16i stored_numbers(const form *f, v16f y) {
    if (f->table) return table_index(f->table, y);
    return v16i_from_f(v16f_sub(nearest(f, y), v16f_set1(f->low)));
}

/* To q [16][group], four columns at a time. */
static void store_numbers(const form *f, const panel *p, const fit *a, uint8_t *q) {
    const v16f by = inverse(a->scale), shift = v16f_mul(a->min, by);
    _Alignas(64) int32_t four[LANES];
    for (int i = 0; i < f->group; i += 4) {
        v16i joined = v16i_set1(0);
        for (int j = 3; j >= 0; j--)
            joined = v16i_or(v16i_shl(joined, 8), stored_numbers(f, v16f_fma(v16f_load(p->x[i + j]), by, shift)));
        v16i_store(four, joined);
        for (int l = 0; l < LANES; l++)
            for (int j = 0; j < 4; j++) q[l * f->group + i + j] = (uint8_t)((uint32_t)four[l] >> 8 * j);
    }
    for (int i = 0; f->table && i < LANES * f->group; i++) q[i] = f->table->number[q[i]];
}

/* Writes the blocks of a panel; false when a float is infinite. */
static bool store_blocks(const form *f, const fit *floats, const fit *integers, const uint8_t *q, int n_groups,
                         uint8_t *to) {
    _Alignas(64) float value[4][LANES];
    v16f_store(value[0], floats->scale);
    v16f_store(value[1], floats->min);
    v16f_store(value[2], integers->scale);
    v16f_store(value[3], integers->min);
    const size_t bytes = ht_weight_type_info_of(f->type)->block_bytes;
    bool finite = true;
    for (int first = 0; first < n_groups; first += f->lanes, to += bytes) {
        ht_block_numbers n = {.d = value[0][first], .m = value[1][first]};
        for (int g = 0; g < f->lanes; g++) {
            n.scale[g] = (int8_t)value[2][first + g];
            n.min[g] = (uint8_t)value[3][first + g];
        }
        memcpy(n.q, q + first * f->group, (size_t)(f->lanes * f->group));
        finite = finite && isfinite(n.d) && isfinite(n.m);
        ht_block_pack(f->type, &n, to);
    }
    return finite;
}

static bool round_panels(const form *f, const float *x, int64_t n, int64_t k, const float *importance, uint8_t *to) {
    const int64_t groups = n * k / f->group;
    const size_t panel_bytes = ht_weight_type_info_of(f->type)->block_bytes * (size_t)(LANES / f->lanes);
    uint8_t q[LANES * GROUP_MOST];
    panel p;
    bool finite = true;
    for (int64_t g = 0; g < groups; g += LANES, to += panel_bytes) {
        const int some = (int)(groups - g < LANES ? groups - g : LANES);
        load_panel(f, x + g * f->group, some, importance, g * f->group, k, &p);
        fit range = {v16f_zero(), v16f_zero()};
        fit own = f->has_min ? fit_range(f, &p, &range) : fit_scale(f, &p);
        block_fit b = {own, {v16f_zero(), v16f_zero()}};
        if (f->scale_high > 0) {
            b = fit_blocks_twice(f, &p, &own, &range);
            own = group_fit(&b);
        } else
            b.floats = own = f->powers ? store_power(f, &p, own) : store_fit(f, &p, own);
        store_numbers(f, &p, &own, q);
        b.floats = (fit){v16f_mul(b.floats.scale, p.unit), v16f_mul(b.floats.min, p.unit)};
        finite = store_blocks(f, &b.floats, &b.integers, q, some, to) && finite;
    }
    return finite;
}

/* ---- types ---- */

/* Table of values in ascending order; number[i] is the stored number of value i. A repeated last value is not used. */
static table make_table(const int16_t value[16], const uint8_t number[16]) {
    table t;
    for (int i = 0; i < 16; i++) {
        const float v = value[number[i]], next = i < 15 ? value[number[i + 1]] : INFINITY;
        t.value[i] = (int32_t)ht_float_bits(v);
        t.middle[i] = (int32_t)ht_float_bits(v == next ? INFINITY : 0.5f * (v + next));
        t.number[i] = number[i];
    }
    return t;
}

#define VALUE(x) x
static table iq4_table(void) {
    static const int16_t values[16] = {HT_IQ4_VALUES(VALUE)};
    static const uint8_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return make_table(values, numbers);
}

static table e2m1_table(void) {
    static const int16_t values[16] = {HT_E2M1_VALUES(VALUE)};
    static const uint8_t numbers[16] = {15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7, 7};
    return make_table(values, numbers);
}
#undef VALUE

ht_round_weights_fn HT_ISA_NAME(ht_round_weights);

bool HT_ISA_NAME(ht_round_weights)(ht_weight_type type, const float *x, int64_t n, int64_t k, const float *importance,
                                   void *blocks) {
    const table iq4 = iq4_table(), e2m1 = e2m1_table();
    form f = {.type = type, .group = 32, .lanes = 1, .floats = HT_W_F16};
    switch (type) {
    case HT_W_Q4_0: f.low = -8, f.high = 7; break;
    case HT_W_Q5_0: f.low = -16, f.high = 15; break;
    case HT_W_Q8_0: f.low = -127, f.high = 127; break;
    case HT_W_Q4_1: f.high = 15, f.has_min = f.free_min = true; break;
    case HT_W_Q5_1: f.high = 31, f.has_min = f.free_min = true; break;
    case HT_W_Q2_K: f.group = f.lanes = 16, f.high = 3, f.has_min = true, f.scale_high = f.min_high = 15; break;
    case HT_W_Q3_K: f.group = f.lanes = 16, f.low = -4, f.high = 3, f.scale_low = -32, f.scale_high = 31; break;
    case HT_W_Q4_K: f.lanes = 8, f.high = 15, f.has_min = true, f.scale_high = f.min_high = 63; break;
    case HT_W_Q5_K: f.lanes = 8, f.high = 31, f.has_min = true, f.scale_high = f.min_high = 63; break;
    case HT_W_Q6_K: f.group = f.lanes = 16, f.low = -32, f.high = 31, f.scale_low = -128, f.scale_high = 127; break;
    case HT_W_MXFP4: f.low = -12, f.high = 12, f.powers = true, f.table = &e2m1; break;
    case HT_W_IQ4_NL: f.low = -127, f.high = 113, f.table = &iq4; break;
    case HT_W_IQ4_XS:
        f.low = -127, f.high = 113, f.table = &iq4;
        f.lanes = 8, f.scale_low = -32, f.scale_high = 31;
        break;
    default: {
        const ht_affine a = ht_affine_of(type);
        f.group = a.group, f.floats = a.scale, f.high = (float)((1 << a.bits) - 1), f.has_min = f.free_min = true;
    }
    }
    const unsigned denormals = ht_flush_denormals();
    const bool fits = round_panels(&f, x, n, k, importance, blocks);
    ht_restore_denormals(denormals);
    return fits;
}
