/* What a token costs beside its products: where the time of a decoding step goes, and what an operation costs eagerly.
 *
 *   bench_plan MODEL [-t THREADS] [-n TOKENS] [-i ISA] [-x SESSIONS]
 *
 * Every kernel of the device is wrapped in a clock, some 50 ns a call. `products` are the packed matrices with the
 * quantisation of their activations, `attention` includes the writing of K and V; `kernels` are all others, and `around`
 * is what is left of the time in ht_session_forward: the walk over the plan, the batch, the hand-over of logits. Medians
 * over the tokens (steps, when several sessions go on together); below them, the mean of each kernel that takes a thousandth of a token or more. The eager figure is for sums of 16 numbers in a graph of 1,000: building, evaluating and freeing. */
#include "array/op.h"
#include "bench.h"
#include "cpu/device.h"
#include "device/device.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SESSIONS = 64 };

enum { PRODUCTS, ATTENTION, KERNELS, AROUND, TOTAL, N_PARTS };
static const char *const part_names[N_PARTS] = {"products", "attention", "kernels", "around", "token"};

static double spent[N_PARTS];
static double spent_in[HT_OP_COUNT]; /* kernels, over all tokens */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- clocks around the kernels ---- */

static ht_kernel kernels[HT_OP_COUNT];
static ht_rows_fn *rows[HT_OP_COUNT];
static ht_stage_ops stages;
static const ht_stage_ops *own_stages;

static int part_of(ht_op_id op) {
    if (op == HT_OP_LINEAR || op == HT_OP_LINEAR_GATHER) return PRODUCTS;
    return op == HT_OP_ATTEND ? ATTENTION : KERNELS;
}

static ht_status clocked(ht_op_id op, const ht_call *call, ht_error *err) {
    double begin = now();
    ht_status status = kernels[op].run(call, err);
    double took = now() - begin;
    spent[part_of(op)] += took;
    spent_in[op] += took;
    return status;
}

/* Within a chain: what its row-wise kernels take is not its products'. With several threads they run at once; what is
 * written down is a bit much then. */
static void clocked_rows(ht_op_id op, const ht_call *call, int64_t begin, int64_t end) {
    double from = now();
    rows[op](call, begin, end);
    double took = now() - from;
    spent[KERNELS] += took;
    spent[PRODUCTS] -= took;
    spent_in[op] += took;
}

static ht_status clocked_chain(const ht_fused_stage *chain, ht_error *err) {
    double begin = now();
    const ht_status status = own_stages->run(chain, err);
    spent[PRODUCTS] += now() - begin;
    return status;
}

#define WRAPPERS(id, name)                                                                                             \
    static ht_status run_##name(const ht_call *call, ht_error *err) { return clocked(HT_OP_##id, call, err); }         \
    static void rows_##name(const ht_call *call, int64_t begin, int64_t end) {                                         \
        clocked_rows(HT_OP_##id, call, begin, end);                                                                    \
    }
HT_OP_KERNELS(WRAPPERS)
HT_OP_PACKED(WRAPPERS)

static void wrap_kernels(ht_device *d) {
    memcpy(kernels, d->kernels, sizeof kernels);
    ht_rows_fn **device_rows = ((ht_cpu_device *)d)->rows;
    memcpy(rows, device_rows, sizeof rows);
    own_stages = d->stages;
    stages = *own_stages;
    stages.run = clocked_chain;
    d->stages = &stages;
#define WRAP(id, name)                                                                                                 \
    if (kernels[HT_OP_##id].run) d->kernels[HT_OP_##id].run = run_##name;                                              \
    if (rows[HT_OP_##id]) device_rows[HT_OP_##id] = rows_##name;
    HT_OP_KERNELS(WRAP)
    HT_OP_PACKED(WRAP)
}

static void unwrap_kernels(ht_device *d) {
    memcpy(d->kernels, kernels, sizeof kernels);
    memcpy(((ht_cpu_device *)d)->rows, rows, sizeof rows);
    d->stages = own_stages;
}

/* ---- tokens ---- */

static void stop(const ht_error *err) {
    fprintf(stderr, "bench_plan: %s\n", err->message);
    exit(1);
}

static void measure_tokens(ht_device *d, ht_model *m, int n, int together) {
    ht_error err = {0};
    ht_session *s[MOST_SESSIONS];
    float *logits = malloc((size_t)together * (size_t)ht_model_vocab_size(m) * sizeof *logits);
    for (int i = 0; i < together; i++)
        if (ht_session_new(m, NULL, &s[i], &err)) stop(&err);
    double *each[N_PARTS];
    for (int p = 0; p < N_PARTS; p++) each[p] = malloc((size_t)n * sizeof **each);
    for (int i = 0; i < n + 8; i++) { /* the first ones warm up */
        int32_t id[MOST_SESSIONS];
        for (int j = 0; j < together; j++) id[j] = (int32_t)(((i + 31 * j) * 7919 + 13) % ht_model_vocab_size(m));
        memset(spent, 0, sizeof spent);
        if (i == 8) memset(spent_in, 0, sizeof spent_in);
        double begin = now();
        if (together == 1 ? ht_session_forward(s[0], id, 1, NULL, NULL, NULL, &err)
                          : ht_session_forward_together(s, id, together, NULL, logits, &err))
            stop(&err);
        spent[TOTAL] = now() - begin;
        spent[AROUND] = spent[TOTAL] - spent[PRODUCTS] - spent[ATTENTION] - spent[KERNELS];
        for (int p = 0; p < N_PARTS && i >= 8; p++) each[p][i - 8] = spent[p];
    }
    double total = bench_median(each[TOTAL], n);
    printf("%s, %d threads, medians of %d tokens\n", ht_device_instruction_set(d), ht_device_threads(d), n);
    for (int p = 0; p < N_PARTS; p++) {
        double t = bench_median(each[p], n);
        printf("  %-10s %9.1f us %6.1f %%\n", part_names[p], 1e6 * t, 100 * t / total);
        free(each[p]);
    }
    for (int op = 0; op < HT_OP_COUNT; op++)
        if (part_of((ht_op_id)op) == KERNELS && spent_in[op] / n > 1e-3 * total)
            printf("    %-16s %5.1f us\n", ht_op_name((ht_op_id)op), 1e6 * spent_in[op] / n);
    for (int i = 0; i < together; i++) ht_session_free(s[i]);
    free(logits);
}

/* ---- eager operations ---- */

static void measure_eager(ht_device *d) {
    enum { OPS = 1000, ROUNDS = 50 };
    ht_error err = {0};
    ht_stream *stream;
    if (ht_stream_new(d, &stream, &err)) stop(&err);
    double each[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        double begin = now();
        ht_scope *s = ht_scope_new(stream);
        ht_array *x = ht_full(s, 1, HT_F32, (int64_t[]){16}, 1), *y = x;
        for (int i = 0; i < OPS; i++) y = ht_add(s, y, x);
        if (ht_array_eval(s, &y, 1, &err)) stop(&err);
        ht_scope_free(s);
        each[r] = (now() - begin) / (double)OPS;
    }
    printf("eager: %.2f us per operation\n", 1e6 * bench_median(each, ROUNDS));
    ht_stream_free(stream);
}

int main(int argc, char **argv) {
    const char *path = NULL;
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = 1;
    int n = 200, together = 1;
    bench_arguments a = {argc, argv, 0};
    const char *value;
    bool known = true;
    for (int option; (option = bench_next(&a, &value)) >= 0;) switch (option) {
        case 0: path = value; break;
        case 't': how.n_threads = atoi(value); break;
        case 'n': n = atoi(value); break;
        case 'i': how.instruction_set = value; break;
        case 'x': together = atoi(value); break;
        default: known = false;
        }
    if (!known || !path || n < 1 || together < 1 || together > MOST_SESSIONS) {
        fprintf(stderr, "usage: bench_plan MODEL [-t THREADS] [-n TOKENS] [-i ISA] [-x SESSIONS]\n");
        return 2;
    }
    ht_error err = {0};
    ht_device *d;
    ht_model *m;
    if (ht_device_open("cpu", &how, &d, &err)) stop(&err);
    ht_model_options on;
    ht_model_options_init(&on, sizeof on);
    on.device = d;
    if (ht_model_load(path, &on, &m, &err)) stop(&err);
    wrap_kernels(d);
    measure_tokens(d, m, n, together);
    unwrap_kernels(d);
    measure_eager(d);
    ht_model_free(m);
    ht_device_free(d);
    return 0;
}
