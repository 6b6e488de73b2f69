/* Programs of operations on f32, which some instruction sets run by strips (cpu/strips.h), against the plain kernels, one after
 * another, to the last bit: random ones, of every operation that strips know and of some that they call, of operands that lie
 * in any way, with results that are read again or not, written over operands, or large. */
#include "base/math.h"
#include "cpu/bypass.h"
#include "cpu/isa.h"
#include "cpu/reference/value.h"
#include "cpu/strips.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED(id, name) HT_OP_##id,
static const ht_op_id of_one[] = {HT_STRIP_OF_ONE(NAMED) HT_STRIP_FUNCTION(NAMED) HT_OP_EXP, HT_OP_SIN, HT_OP_FLOOR};
static const ht_op_id of_two[] = {HT_STRIP_OF_TWO(NAMED) HT_OP_ARCTAN2};
static const ht_op_id compared[] = {HT_STRIP_COMPARED(NAMED)};
static const ht_op_id asked[] = {HT_OP_IS_NAN, HT_OP_IS_FINITE};

enum { MOST_STEPS = 14 };

/* A program, and the arrays that it reads and makes: inputs, then what each step makes, by the plain kernels. */
typedef struct sample {
    ht_program p;
    operand in[HT_PROGRAM_INPUTS];
    void *made[MOST_STEPS];
    int over[HT_PROGRAM_OUTPUTS]; /* the input over which an output is written; -1: none */
    ht_scale_params scale[MOST_STEPS];
    int n_dims;
    int64_t shape[4], size;
} sample;

static bool chance(uint64_t *state, uint32_t of) { return test_random(state) % of == 0; }

static ht_dtype dtype_of(const sample *s, int id) { return id >= 0 ? s->p.in[id] : s->p.step[-1 - id].to; }

/* An operand of that dtype, of inputs and what n steps make: often what the last one does. There is one. */
static int8_t some(const sample *s, int n, ht_dtype t, uint64_t *state) {
    if (n > 0 && s->p.step[n - 1].to == t && chance(state, 2)) return (int8_t)-n;
    for (;;) {
        const int id = (int)(test_random(state) % (uint32_t)(s->p.n_in + n)) - n;
        if (dtype_of(s, id) == t) return (int8_t)id;
    }
}

#define ONE_OF(list, state) (list)[test_random(state) % (sizeof(list) / sizeof *(list))]

static void make_step(sample *s, int i, uint64_t *state) {
    ht_program_step *t = &s->p.step[i];
    *t = (ht_program_step){.from = HT_F32, .to = HT_F32, .out = -1};
    if (i > 0 && t[-1].op == HT_OP_SCALE && chance(state, 2)) { /* which strips may do in one step */
        t->op = HT_OP_EXP;
        t->n_in = 1;
        t->in[0] = (int8_t)-i;
        return;
    }
    switch (test_random(state) % 8) {
    case 0:
        t->op = HT_OP_SCALE;
        t->n_in = 1;
        t->params = &s->scale[i];
        s->scale[i].value = test_random_float(state);
        break;
    case 1:
    case 2:
        t->op = ONE_OF(of_one, state);
        t->n_in = 1;
        break;
    case 3:
        t->op = HT_OP_WHERE;
        t->n_in = 3;
        break;
    case 4:
        t->op = chance(state, 4) ? ONE_OF(asked, state) : ONE_OF(compared, state);
        t->n_in = t->op == HT_OP_IS_NAN || t->op == HT_OP_IS_FINITE ? 1 : 2;
        t->to = HT_BOOL;
        break;
    default: t->op = ONE_OF(of_two, state); t->n_in = 2;
    }
    for (int k = 0; k < t->n_in; k++) t->in[k] = some(s, i, t->op == HT_OP_WHERE && k == 0 ? HT_BOOL : HT_F32, state);
}

static int last_read(const sample *s, int id) {
    int last = -1;
    for (int i = 0; i < s->p.n_steps; i++)
        for (int k = 0; k < s->p.step[i].n_in; k++)
            if (s->p.step[i].in[k] == id) last = i;
    return last;
}

static void choose_outputs(sample *s, bool over, uint32_t rarely, uint64_t *state) {
    bool taken[HT_PROGRAM_INPUTS] = {false};
    s->p.n_out = 0;
    for (int i = 0; i < s->p.n_steps; i++) {
        ht_program_step *t = &s->p.step[i];
        if (s->p.n_out == HT_PROGRAM_OUTPUTS || (i < s->p.n_steps - 1 && !chance(state, rarely))) continue;
        t->out = (int8_t)s->p.n_out;
        s->over[s->p.n_out] = -1;
        for (int k = 0; k < s->p.n_in && over; k++) {
            const bool lies = s->p.in[k] == t->to && ht_view_contiguous(&s->in[k].view);
            if (!lies || taken[k] || last_read(s, k) > i || ht_view_size(&s->in[k].view) < s->size) continue;
            taken[k] = true;
            s->over[s->p.n_out] = k;
            break;
        }
        s->p.n_out++;
    }
}

/* Of the first operand, one that lies like the result; of large ones, rows and columns that are repeated, too; of others any, or
 * those that are read by tiles beside such. */
static layout some_layout(bool first, bool large, bool turned, uint64_t *state) {
    if (first || (large && chance(state, 2))) return chance(state, 2) ? CONTIGUOUS : SHIFTED;
    if (large) return REPEATED;
    if (turned) return chance(state, 2) ? REVERSED_AXES : REPEATED;
    return (layout)(test_random(state) % LAYOUT_COUNT);
}

/* Operands of f32 and of truths, at least one of each. */
static void make_inputs(sample *s, bool large, uint64_t *state) {
    const bool turned = chance(state, 3);
    s->p.n_in = 2 + (int)(test_random(state) % 3);
    for (int k = 0; k < s->p.n_in; k++) {
        int64_t dim[4];
        const bool scalar = k > 1 && chance(state, 3);
        for (int d = 0; d < s->n_dims; d++) dim[d] = scalar ? 1 : s->shape[d];
        s->p.in[k] = k == 1 ? HT_BOOL : HT_F32;
        const layout how = some_layout(k == 0, large, turned, state);
        s->in[k] = test_operand(s->p.in[k], s->n_dims, dim, scalar ? CONTIGUOUS : how,
                                chance(state, 2) ? EXTREME : ORDINARY, state);
        for (int d = 0; d < s->n_dims && scalar; d++) {
            s->in[k].view.shape[d] = s->shape[d];
            s->in[k].view.stride[d] = 0;
        }
    }
}

static ht_view view_of(const sample *s, int id) {
    return id >= 0 ? s->in[id].view : test_view(s->made[-1 - id], s->p.step[-1 - id].to, s->n_dims, s->shape);
}

static void make_sample(sample *s, int n_dims, const int64_t *dim, bool large, bool over, ht_device *plain,
                        uint64_t *state) {
    s->n_dims = n_dims;
    s->size = 1;
    for (int d = 0; d < n_dims; d++) s->size *= s->shape[d] = dim[d];
    make_inputs(s, large, state);
    s->p.n_steps = 1 + (int)(test_random(state) % (large ? 6 : MOST_STEPS));
    for (int i = 0; i < s->p.n_steps; i++) make_step(s, i, state);
    choose_outputs(s, over, large ? 2 : 4, state);
    for (int i = 0; i < s->p.n_steps; i++) {
        const ht_program_step *t = &s->p.step[i];
        s->made[i] = malloc((size_t)s->size * ht_dtype_bytes(t->to));
        assert_non_null(s->made[i]);
        ht_view in[HT_STEP_INPUTS];
        for (int k = 0; k < t->n_in; k++) in[k] = view_of(s, t->in[k]);
        const ht_view out = view_of(s, -1 - i);
        test_run_ok(plain, t->op, t->params, t->n_in, in, &out, NULL);
    }
}

static void free_sample(sample *s) {
    for (int k = 0; k < s->p.n_in; k++) free(s->in[k].memory);
    for (int i = 0; i < s->p.n_steps; i++) free(s->made[i]);
}

static void say(const sample *s, char *text, size_t room) {
    size_t n = 0;
    for (int i = 0; i < s->p.n_steps && n < room; i++) {
        const ht_program_step *t = &s->p.step[i];
        n += (size_t)snprintf(text + n, room - n, " %s", test_op_name(t->op));
        for (int k = 0; k < t->n_in && n < room; k++)
            n += (size_t)snprintf(text + n, room - n, "%c%d", k ? ',' : ' ', t->in[k]);
        if (t->out >= 0 && n < room) n += (size_t)snprintf(text + n, room - n, " (out)");
        if (n < room) n += (size_t)snprintf(text + n, room - n, ";");
    }
}

/* On one device, with results that begin `shift` elements behind a line; true if it was run by strips, or would have been. */
static bool check(const sample *s, ht_device *d, int64_t shift, bool by_strips) {
    ht_program p = s->p;
    if (!d->prepare_program(d, &p)) return false;
    const bool takes_strips = p.strips != NULL;
    if (!by_strips) p.strips = NULL;
    p.strips_least = 0; /* also where blocks are faster for so few elements */
    ht_view in[HT_PROGRAM_INPUTS], out[HT_PROGRAM_OUTPUTS];
    void *room[HT_PROGRAM_OUTPUTS];
    for (int k = 0; k < p.n_in; k++) in[k] = s->in[k].view;
    const ht_program_step *maker[HT_PROGRAM_OUTPUTS];
    for (int i = 0; i < p.n_steps; i++)
        if (p.step[i].out >= 0) maker[p.step[i].out] = &s->p.step[i];
    for (int k = 0; k < p.n_out; k++) {
        const size_t bytes = ht_dtype_bytes(maker[k]->to), size = (size_t)(s->size + shift) * bytes + 64;
        room[k] = aligned_alloc(64, (size + 63) / 64 * 64);
        assert_non_null(room[k]);
        memset(room[k], 0x5a, size);
        out[k] = test_view((char *)room[k] + (size_t)shift * bytes, maker[k]->to, s->n_dims, s->shape);
        if (s->over[k] < 0) continue;
        memcpy(out[k].data, in[s->over[k]].data, (size_t)s->size * bytes);
        in[s->over[k]].data = out[k].data;
    }
    const unsigned state = ht_flush_denormals();
    ht_pool_lease(d->pool);
    d->run_program(&(ht_program_run){.program = &p, .in = in, .out = out, .pool = d->pool});
    ht_pool_release(d->pool);
    ht_restore_denormals(state);
    for (int k = 0; k < p.n_out; k++) {
        const char *end = (char *)out[k].data + (size_t)s->size * ht_dtype_bytes(maker[k]->to);
        char text[1000];
        const void *want = s->made[maker[k] - s->p.step];
        const bool same = memcmp(want, out[k].data, (size_t)s->size * ht_dtype_bytes(maker[k]->to)) == 0;
        for (int64_t i = 0; i < s->size && !same; i++)
            if (!test_alike(maker[k]->to, want, out[k].data, i, 0.0)) {
                say(s, text, sizeof text);
                fail_msg("%s, %s, %d threads: element %lld of %lld of output %d is %g, not %g:%s", d->instruction_set,
                         by_strips ? "by strips" : "by blocks", ht_pool_threads(d->pool), (long long)i,
                         (long long)s->size, k, ht_get_f64(maker[k]->to, out[k].data, i),
                         ht_get_f64(maker[k]->to, want, i), text);
            }
        for (int i = 0; i < 64; i++) assert_int_equal(end[i], 0x5a);
        free(room[k]);
    }
    return takes_strips;
}

typedef struct devices {
    ht_device *one[TEST_MAX_DEVICES], *three[TEST_MAX_DEVICES];
    int n;
} devices;

static void check_everywhere(const devices *d, const sample *s, int *n_run, uint64_t *state) {
    const int64_t shift = chance(state, 3) ? 1 + test_random(state) % 15 : 0;
    for (int i = 1; i < d->n; i++) {
        *n_run += check(s, d->one[i], shift, true);
        check(s, d->three[i], shift, true);
        check(s, d->one[i], shift, false);
    }
}

static void programs_give_what_operations_give(void **state) {
    const devices *d = *state;
    static const struct {
        int n_dims;
        int64_t dim[4];
    } of[] = {{1, {4096}},     {1, {4223}},    {1, {20011}},     {2, {3, 5001}},     {2, {40, 128}},
              {2, {70, 1000}}, {2, {16, 256}}, {3, {5, 31, 33}}, {4, {2, 3, 65, 64}}};
    int n_run = 0;
    const uint64_t samples = TEST_EMULATED ? 40 : TEST_SLOW ? 200 : 500;
    for (uint64_t seed = 0; seed < samples; seed++) {
        uint64_t random = seed;
        static sample s;
        const size_t k = seed % (sizeof of / sizeof *of);
        make_sample(&s, of[k].n_dims, of[k].dim, false, seed / 9 % 3 == 0, d->one[0], &random);
        check_everywhere(d, &s, &n_run, &random);
        free_sample(&s);
    }
    if (ht_cpu_isa_available(HT_CPU_AVX2)) assert_true(n_run > (int)samples * 9 / 10);
}

/* Written in ways that take turns (cpu/ways.h), rows that are whole lines and others. */
static void large_results_are_those_of_operations(void **state) {
    const devices *d = *state;
    int n_run = 0;
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 10 : 20) && !TEST_EMULATED; seed++) {
        uint64_t random = 1000 + seed;
        static sample s;
        const int64_t width = (int64_t)(9 << 20) / (seed % 5 == 4 ? 1 : 4) / 5 / 64 * 64 + 64;
        const int64_t dim[2] = {5, seed % 2 ? width : width + 7 + (int64_t)seed};
        make_sample(&s, 2, dim, true, false, d->one[0], &random);
        for (int i = 0; i < 2; i++) check_everywhere(d, &s, &n_run, &random);
        free_sample(&s);
    }
    if (ht_cpu_isa_available(HT_CPU_AVX2)) assert_true(n_run > 0);
}

/* ---- steps of few instructions ---- */

enum { LIGHT_STRIPS = 3, LIGHT_N = LIGHT_STRIPS * HT_STRIP };

static float light(ht_strip_light what, float a, float b, float value) {
    switch (what) {
    case HT_LIGHT_ADD: return a + b;
    case HT_LIGHT_SUBTRACT: return a - b;
    case HT_LIGHT_SUBTRACT_TO: return b - a;
    case HT_LIGHT_MULTIPLY: return a * b;
    case HT_LIGHT_DIVIDE: return a / b;
    case HT_LIGHT_DIVIDE_TO: return b / a;
    case HT_LIGHT_MINIMUM_TO:
    case HT_LIGHT_MINIMUM: return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case HT_LIGHT_MAXIMUM_TO:
    case HT_LIGHT_MAXIMUM: return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case HT_LIGHT_SCALE: return a * value;
    default: return a;
    }
}

/* Numbers no two of which are equal, and some NaN. */
static void fill_light(float *x, uint64_t *state) {
    for (int i = 0; i < LIGHT_N; i++) x[i] = chance(state, 9) ? NAN : test_random_float(state);
}

static ht_strip_step light_step(bool loads, ht_strip_light first, ht_strip_light second, ht_strip_store store) {
    return (ht_strip_step){.code = HT_STRIP_LIGHT,
                           .loads = loads,
                           .light = {(uint8_t)first, (uint8_t)second},
                           .store = (uint8_t)store,
                           .value = {0.75f, -1.5f},
                           .at = {{0, 4 * HT_STRIP, 0}, {1, 4 * HT_STRIP, 0}, {2, 0, 0}, {3, 4 * HT_STRIP, 0}}};
}

/* Numbers whose powers are finite in the first strip; of every 64 in the second one that of one is not; in the third some are
 * NaN, at first those with a sign. In this thread what is below the lowest normal number is not 0. */
static void fill_exponents(float *x, uint64_t *state) {
    for (int i = 0; i < LIGHT_N; i++) x[i] = 80.0f * test_random_float(state);
    for (int i = HT_STRIP; i < 2 * HT_STRIP; i += 64) x[i + (int)(test_random(state) % 64)] = 130.0f;
    for (int i = 2 * HT_STRIP; i < LIGHT_N; i++)
        if (chance(state, 9)) x[i] = i < 2 * HT_STRIP + 64 || chance(state, 2) ? -NAN : NAN;
}

/* Each of them, a LIGHT or an EXP, on numbers that it loads itself or that are there; the operand of the second is the same for
 * every 64. */
static void check_step(ht_strips_fn *run, ht_strip_code code, const float *x, const float *y, const float *z,
                       ht_strip_light first, ht_strip_light second, bool loads, ht_strip_store store) {
    static _Alignas(64) float out[LIGHT_N + 16];
    memset(out, 0x5a, sizeof out);
    char *const places[4] = {(char *)(uintptr_t)x, (char *)(uintptr_t)y, (char *)(uintptr_t)z, (char *)out};
    ht_strip_step list[4];
    int n = 0;
    if (!loads) list[n++] = light_step(true, HT_LIGHT_NOTHING, HT_LIGHT_NOTHING, HT_STORE_NOTHING);
    list[n++] = light_step(loads, first, second, store);
    list[n - 1].code = code;
    if (!store) list[n++] = light_step(false, HT_LIGHT_NOTHING, HT_LIGHT_NOTHING, HT_STORE_THERE);
    list[n] = (ht_strip_step){.code = HT_STRIP_END};
    run(list, places, LIGHT_STRIPS);
    ht_bypass_end();
    for (int i = 0; i < LIGHT_N; i++) {
        float want = light(first, x[i], y[i], 0.75f);
        if (code == HT_STRIP_EXP) want = ht_exp_f32(want);
        want = light(second, want, z[i % HT_STRIP], -1.5f);
        if (memcmp(&want, &out[i], sizeof want) != 0 && !(isnan(want) && isnan(out[i])))
            fail_msg("step %d, operations %d and %d, %s, stored %d: element %d is %g, not %g", (int)code, (int)first,
                     (int)second, loads ? "loaded" : "there", (int)store, i, (double)out[i], (double)want);
    }
    for (int i = LIGHT_N; i < LIGHT_N + 16; i++) assert_memory_equal(&out[i], "ZZZZ", 4);
}

static void steps_do_two_operations(void **state) {
    const devices *d = *state;
    uint64_t random = 11;
    static float x[LIGHT_N], y[LIGHT_N], z[HT_STRIP], exponents[LIGHT_N];
    fill_light(x, &random);
    fill_light(y, &random);
    for (int i = 0; i < HT_STRIP; i++) z[i] = i < 64 ? test_random_float(&random) : z[i - 64];
    int n_checked = 0;
    for (int i = 1; i < d->n; i++) {
        ht_program p = {.n_in = 2, .n_out = 1, .n_steps = 1, .in = {HT_F32, HT_F32}};
        p.step[0] = (ht_program_step){.op = HT_OP_ADD, .from = HT_F32, .to = HT_F32, .n_in = 2, .in = {0, 1}};
        if (!d->one[i]->prepare_program(d->one[i], &p) || !p.strips) continue;
        ht_strips_fn *const run = (ht_strips_fn *)p.strips;
        n_checked++;
        for (int first = 0; first < HT_LIGHT_COUNT; first++)
            for (int second = 0; second < (first ? HT_LIGHT_SECONDS : 1); second++)
                for (int store = 0; store < HT_STORE_COUNT; store++)
                    for (int loads = 0; loads < 2; loads++)
                        check_step(run, HT_STRIP_LIGHT, x, y, z, (ht_strip_light)first, (ht_strip_light)second, loads,
                                   (ht_strip_store)store);
        for (int scales = 0; scales < 2; scales++)
            for (int second = 0; second < HT_LIGHT_SECONDS; second++)
                for (int store = 0; store < HT_STORE_COUNT; store++) {
                    fill_exponents(exponents, &random);
                    check_step(run, HT_STRIP_EXP, exponents, y, z, scales ? HT_LIGHT_SCALE : HT_LIGHT_NOTHING,
                               (ht_strip_light)second, false, (ht_strip_store)store);
                }
    }
    if (ht_cpu_isa_available(HT_CPU_AVX2)) assert_true(n_checked > 0);
}

static int open_devices(void **state) {
    static devices d;
    d.n = test_devices(1, d.one);
    test_devices(3, d.three);
    *state = &d;
    return 0;
}

static int close_devices(void **state) {
    devices *d = *state;
    test_devices_free(d->one, d->n);
    test_devices_free(d->three, d->n);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_give_what_operations_give),
        cmocka_unit_test(steps_do_two_operations),
        cmocka_unit_test(large_results_are_those_of_operations),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
