/* Plans: a traced function gives, for any row counts, the bits that eager evaluation gives. */
#include "array/array.h"
#include "array/plan.h"
#include "cpu/matrix.h"
#include "device/device.h"
#include "formats/blocks.h"
#include "models/forward.h"
#include "support/arrays.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 11, HEADS = 3, HEAD_DIM = 4, HIDDEN = HEADS * HEAD_DIM, MAX_ROWS = 9 };

static ht_device *device; /* of the stream */
static ht_scope *weights;
static ht_array *table, *norm, *mix;

static ht_array *wave(ht_scope *s, double step, int64_t rows, int64_t columns) {
    ht_array *x = ht_sin(s, ht_linspace(s, 0.3, 0.3 + step * (double)(rows * columns - 1), rows * columns, HT_F32));
    return ht_reshape(s, x, (int64_t[]){rows, columns}, 2);
}

static int open_weights(void **state) {
    ht_error err = {0};
    if (test_open_stream(state)) return 1;
    device = ht_stream_device(test_stream);
    weights = ht_scope_new(test_stream);
    table = wave(weights, 0.7, VOCAB, HIDDEN);
    mix = wave(weights, 1.3, HIDDEN, HIDDEN);
    norm = ht_reshape(weights, wave(weights, 0.1, 1, HIDDEN), (int64_t[]){HIDDEN}, 1);
    return ht_array_eval(weights, (ht_array *[]){table, mix, norm}, 3, &err) != HT_OK;
}

static int close_weights(void **state) {
    ht_scope_free(weights);
    return test_close_stream(state);
}

/* Views, in-place chains, a value used twice, a transposed copy, the rows asked for. */
static ht_array *forward(ht_ctx *c) {
    ht_scope *s = c->s;
    ht_array *x = ht_take(s, table, ht_batch_ids(c), 0); /* [T, hidden] */
    int64_t rows = ht_array_dim(x, 0);
    ht_array *h = ht_rms_norm(s, x, norm, 1e-6f, 1.0f);
    h = ht_reshape(s, h, (int64_t[]){rows, HEADS, HEAD_DIM}, 3);
    ht_rope_config rope = {.theta = 100.0f, .scale = 1, .magnitude = 1, .dims = HEAD_DIM};
    h = ht_rope(s, h, ht_batch_positions(c), HT_NONE, &rope);
    ht_array *turned = ht_transpose(s, h, (int[]){1, 0, 2}); /* [heads, T, head_dim] */
    ht_array *per_head = ht_softmax(s, ht_contiguous(s, turned), -1);
    ht_array *back = ht_transpose(s, per_head, (int[]){1, 0, 2});
    h = ht_add(s, x, ht_reshape(s, back, (int64_t[]){rows, HIDDEN}, 2));
    h = ht_add(s, h, ht_silu(s, ht_matmul(s, h, mix, true)));
    h = ht_take(s, h, ht_batch_out_rows(c), 0); /* [n_out, hidden] */
    return ht_matmul(s, h, table, true);        /* [n_out, vocab] */
}

static ht_array *trace_forward(ht_scope *s, void *user) {
    (void)user;
    ht_ctx c = {.s = s};
    return forward(&c);
}

/* ---- chains: kernels that go row by row, and the products behind them ---- */

enum { WIDTH = 64, N_MATRICES = 5, CHAIN_ROWS = 40 };
static ht_matrix matrices[N_MATRICES]; /* [WIDTH, WIDTH] */
static void *stored[N_MATRICES];

static void make_matrices(void) {
    const ht_weight_type types[N_MATRICES] = {HT_W_Q8_0, HT_W_Q4_1, HT_W_Q8_0, HT_W_F32, HT_W_BF16};
    uint64_t state = 5;
    for (int i = 0; i < N_MATRICES; i++) {
        ht_matrix *m = &matrices[i];
        *m = (ht_matrix){.ops = device->matrix_ops(device, types[i], HT_PRECISION_HIGH),
                         .device = device,
                         .type = types[i],
                         .n_rows = WIDTH,
                         .k = WIDTH};
        m->packed_bytes = m->ops->packed_bytes(m->type, m->n_rows, m->k);
        assert_int_equal(ht_memory_alloc(device->memory, m->packed_bytes, "weights", &m->packed, NULL), HT_OK);
        stored[i] = malloc(WIDTH * test_row_bytes(m->type, WIDTH));
        test_random_weights(m->type, WIDTH, WIDTH, &state, stored[i]);
        assert_int_equal(m->ops->pack(m, 0, WIDTH, stored[i], NULL), HT_OK);
    }
}

static void free_matrices(void) {
    for (int i = 0; i < N_MATRICES; i++) {
        ht_memory_free(device->memory, matrices[i].packed, matrices[i].packed_bytes);
        free(stored[i]);
    }
}

static ht_array *product(ht_ctx *c, ht_array *x, int i) {
    /* Sums of random weights grow: scaled back, so that no row ends as infinities. */
    return ht_scale(c->s, ht_linear(c, x, &(ht_weight){.matrix = &matrices[i], .bias = HT_NONE}), 1e-3f);
}

/* Products with weights of one type and of several: quantised, bf16, f32; rows that look at another row (a broadcast first row, rows that
 * overlap), which must not take turns with what writes them; a product of a product. */
static ht_array *chained(ht_ctx *c) {
    ht_scope *s = c->s;
    ht_array *wide = ht_sin(s, ht_linspace(s, 0.3, 0.3 + 0.7 * (VOCAB * WIDTH - 1), VOCAB * WIDTH, HT_F32));
    ht_array *x = ht_take(s, ht_reshape(s, wide, (int64_t[]){VOCAB, WIDTH}, 2), ht_batch_ids(c), 0); /* [T, WIDTH] */
    int64_t rows = ht_array_dim(x, 0), shape[2] = {rows, WIDTH};
    ht_array *first = ht_slice(s, x, (int64_t[]){0, 0}, (int64_t[]){1, WIDTH}, NULL);
    ht_array *y = ht_take(s, ht_reshape(s, wide, (int64_t[]){VOCAB, WIDTH}, 2), ht_batch_positions(c), 0);
    /* The sum is written over x, whose first row the product reads for every row. */
    ht_array *a = ht_add(s, x, ht_multiply(s, y, ht_broadcast_to(s, first, shape, 2)));
    ht_array *b = ht_rms_norm(s, a, HT_NONE, 1e-6f, 0.0f);
    ht_array *q = product(c, b, 0), *k = product(c, b, 1), *v = product(c, b, 2), *u = product(c, b, 3),
             *w = product(c, b, 4);
    ht_array *halves = ht_as_strided(s, q, shape, (int64_t[]){WIDTH / 2, 1}, 2, 0);
    ht_array *g = ht_multiply(s, ht_silu(s, ht_multiply(s, q, halves)), ht_add(s, k, u));
    ht_array *h = ht_add(s, ht_add(s, a, product(c, g, 1)), v);
    h = ht_add(s, h, product(c, product(c, h, 3), 2));
    h = ht_add(s, h, product(c, ht_silu(s, w), 4));
    h = ht_take(s, h, ht_batch_out_rows(c), 0);
    return product(c, ht_rms_norm(s, h, HT_NONE, 1e-6f, 0.0f), 0); /* [n_out, WIDTH] */
}

static ht_array *trace_chained(ht_scope *s, void *user) {
    (void)user;
    ht_ctx c = {.s = s};
    return chained(&c);
}

static void fill_batch(int32_t n_tok, int32_t n_out, int32_t *id, int32_t *pos, int32_t *out) {
    for (int32_t i = 0; i < n_tok; i++) {
        id[i] = (7 * i + 3 * n_tok) % VOCAB;
        pos[i] = 5 + i;
    }
    for (int32_t i = 0; i < n_out; i++) out[i] = (n_tok - 1 - i) % n_tok;
}

UNIT_TEST(a_plan_gives_the_bits_of_eager_evaluation) {
    ht_plan *plan;
    ht_exec *exec;
    assert_works(ht_plan_trace, device, trace_forward, NULL, NULL, &plan);
    assert_works(ht_exec_new, plan, MAX_ROWS, MAX_ROWS, &exec);
    for (int32_t n_tok = MAX_ROWS; n_tok >= 1; n_tok--)
        for (int32_t n_out = 0; n_out <= n_tok; n_out++) {
            int32_t id[MAX_ROWS], pos[MAX_ROWS], out[MAX_ROWS], seq[2] = {0, n_tok}, len = 5 + n_tok;
            fill_batch(n_tok, n_out, id, pos, out);
            const ht_batch b = {.n_tok = n_tok,
                                .n_seq = 1,
                                .n_out = n_out,
                                .id = id,
                                .pos = pos,
                                .seq_start = seq,
                                .kv_len = &len,
                                .out_row = out};
            const ht_step step = {.batch = &b};
            const float *fast;
            assert_works(ht_exec_run, exec, &step, &fast);
            ht_scope *s = ht_scope_new(test_stream);
            ht_ctx c = {.s = s, .step = &step};
            ht_array *eager = forward(&c);
            const void *slow;
            assert_works(ht_array_data, s, eager, &slow);
            assert_int_equal(ht_array_size(eager), n_out * VOCAB);
            assert_memory_equal(fast, slow, (size_t)(n_out * VOCAB) * sizeof *fast);
            ht_scope_free(s);
        }
    ht_exec_free(exec);
    ht_plan_free(plan);
}

UNIT_TEST(chains_give_the_bits_of_eager_evaluation) {
    ht_plan *plan;
    ht_exec *exec;
    static float places[2][CHAIN_ROWS * WIDTH]; /* the output goes here, or there, or stays inside */
    make_matrices();
    assert_works(ht_plan_trace, device, trace_chained, NULL, NULL, &plan);
    assert_works(ht_exec_new, plan, CHAIN_ROWS, CHAIN_ROWS, &exec);
    for (int32_t n_tok = CHAIN_ROWS; n_tok >= 1; n_tok--) {
        int32_t id[CHAIN_ROWS], pos[CHAIN_ROWS], out[CHAIN_ROWS], seq[2] = {0, n_tok}, len = 5 + n_tok;
        int32_t n_out = n_tok % 5 ? n_tok : n_tok / 2;
        fill_batch(n_tok, n_out, id, pos, out);
        for (int32_t i = 0; i < n_tok; i++) pos[i] %= VOCAB;
        const ht_batch b = {.n_tok = n_tok,
                            .n_seq = 1,
                            .n_out = n_out,
                            .id = id,
                            .pos = pos,
                            .seq_start = seq,
                            .kv_len = &len,
                            .out_row = out};
        const ht_step step = {.batch = &b, .output = n_tok % 3 ? places[n_tok % 3 - 1] : NULL};
        const float *fast;
        assert_works(ht_exec_run, exec, &step, &fast);
        if (step.output) assert_ptr_equal(fast, step.output);
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *eager = chained(&(ht_ctx){.s = s, .step = &step});
        const void *slow;
        assert_works(ht_array_data, s, eager, &slow);
        for (int32_t i = 0; i < n_out * WIDTH; i++) assert_true(isfinite(fast[i]));
        assert_memory_equal(fast, slow, (size_t)(n_out * WIDTH) * sizeof *fast);
        ht_scope_free(s);
    }
    ht_exec_free(exec);
    ht_plan_free(plan);
    free_matrices();
}

/* A head of which the highest outputs can be had for less (cpu/coarse_head.h). */
enum { OUTPUTS = 2300 };
static ht_matrix head;

static ht_array *headed(ht_scope *s, void *scaled) {
    ht_ctx c = {.s = s};
    ht_array *wide = ht_sin(s, ht_linspace(s, 0.3, 0.3 + 0.7 * (VOCAB * WIDTH - 1), VOCAB * WIDTH, HT_F32));
    ht_array *x = ht_take(s, ht_reshape(s, wide, (int64_t[]){VOCAB, WIDTH}, 2), ht_batch_ids(&c), 0);
    x = ht_rms_norm(s, ht_take(s, x, ht_batch_out_rows(&c), 0), HT_NONE, 1e-6f, 0.0f);
    ht_array *y = ht_linear(&c, x, &(ht_weight){.matrix = &head, .bias = HT_NONE});
    return scaled ? ht_scale(s, y, -1.0f) : y;
}

/* One step of `n` rows that are all asked for, into `out`. */
static void run_headed(void *scaled, int32_t n, int32_t top_k, float *out) {
    ht_plan *plan;
    ht_exec *exec;
    const float *y;
    int32_t id[MAX_ROWS], pos[MAX_ROWS], rows[MAX_ROWS], seq[2] = {0, n}, len = 5 + n;
    fill_batch(n, n, id, pos, rows);
    const ht_batch b = {
        .n_tok = n, .n_seq = 1, .n_out = n, .id = id, .pos = pos, .seq_start = seq, .kv_len = &len, .out_row = rows};
    assert_works(ht_plan_trace, device, headed, scaled, NULL, &plan);
    assert_works(ht_exec_new, plan, MAX_ROWS, MAX_ROWS, &exec);
    for (int again = 0; again < 2; again++) { /* what one step asks for does not stay for the next */
        assert_works(ht_exec_run, exec, &(ht_step){.batch = &b, .top_k = again ? top_k : 0}, &y);
        memcpy(out, y, (size_t)n * OUTPUTS * sizeof *out);
        assert_works(ht_exec_run, exec, &(ht_step){.batch = &b, .top_k = again ? 0 : top_k}, &y);
    }
    assert_works(ht_exec_run, exec, &(ht_step){.batch = &b, .top_k = top_k}, &y);
    assert_memory_equal(out, y, (size_t)n * OUTPUTS * sizeof *out);
    ht_exec_free(exec);
    ht_plan_free(plan);
}

UNIT_TEST(the_highest_outputs_are_there) {
    if (!ht_memory_is_host(device->memory)) skip(); /* the CPU's form of a head */
    static float all[MAX_ROWS * OUTPUTS], top[MAX_ROWS * OUTPUTS];
    uint64_t seed = 6;
    head = (ht_matrix){.ops = ht_cpu_coarse_head_ops(ht_cpu_isa_best(), HT_PRECISION_HIGH),
                       .type = HT_W_Q8_0,
                       .n_rows = OUTPUTS,
                       .k = WIDTH};
    head.packed_bytes = head.ops->packed_bytes(head.type, OUTPUTS, WIDTH);
    head.packed = aligned_alloc(64, (head.packed_bytes + 63) / 64 * 64);
    ht_block_q8_0 *rows = malloc(OUTPUTS * test_row_bytes(HT_W_Q8_0, WIDTH));
    test_random_weights(HT_W_Q8_0, OUTPUTS, WIDTH, &seed, rows);
    for (int i = 0; i < OUTPUTS * WIDTH / 32; i++) rows[i].d = (ht_half_bytes){{0, i % 200 < 2 ? 0x38 : 0x18}};
    head.ops->pack(&head, 0, OUTPUTS, rows, NULL);
    run_headed(NULL, 1, 0, all);
    run_headed(NULL, 1, 1, top);
    int best = 0, left_out = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        if (all[i] > all[best]) best = i;
        if (top[i] == HT_MASKED_LOGIT)
            left_out++;
        else
            assert_memory_equal(&top[i], &all[i], sizeof *top);
    }
    assert_true(left_out > OUTPUTS / 2);
    assert_true(top[best] == all[best]);
    /* Several rows, and what is not the plan's output as it is, are whole. */
    run_headed(NULL, 3, 0, all);
    run_headed(NULL, 3, 1, top);
    assert_memory_equal(all, top, sizeof(float) * 3 * OUTPUTS);
    run_headed(&head, 1, 0, all);
    run_headed(&head, 1, 1, top);
    assert_memory_equal(all, top, sizeof(float) * OUTPUTS);
    free(rows);
    free(head.packed);
}

UNIT_TEST(a_step_allocates_nothing) {
    ht_plan *plan;
    ht_exec *exec;
    assert_works(ht_plan_trace, device, trace_forward, NULL, NULL, &plan);
    assert_works(ht_exec_new, plan, MAX_ROWS, 1, &exec);
    ht_memory_stats before = ht_memory_get(device);
    ht_memory_reset_peak(device);
    for (int32_t n = 1; n <= MAX_ROWS; n++) {
        int32_t id[MAX_ROWS], pos[MAX_ROWS], out[MAX_ROWS], seq[2] = {0, n}, len = 5 + n;
        fill_batch(n, 1, id, pos, out);
        const ht_batch b = {
            .n_tok = n, .n_seq = 1, .n_out = 1, .id = id, .pos = pos, .seq_start = seq, .kv_len = &len, .out_row = out};
        const float *logits;
        assert_works(ht_exec_run, exec, &(ht_step){.batch = &b}, &logits);
    }
    assert_int_equal(ht_memory_get(device).active_bytes, before.active_bytes);
    assert_int_equal(ht_memory_get(device).peak_bytes, before.active_bytes);
    ht_exec_free(exec);
    ht_plan_free(plan);
}

UNIT_TEST(more_rows_than_the_executor_holds_are_refused) {
    ht_error err = {0};
    ht_plan *plan;
    ht_exec *exec;
    assert_int_equal(ht_plan_trace(device, trace_forward, NULL, NULL, &plan, &err), HT_OK);
    assert_int_equal(ht_exec_new(plan, 2, 1, &exec, &err), HT_OK);
    int32_t id[3] = {0}, pos[3] = {0, 1, 2}, out[1] = {2}, seq[2] = {0, 3}, len = 3;
    const ht_batch b = {
        .n_tok = 3, .n_seq = 1, .n_out = 1, .id = id, .pos = pos, .seq_start = seq, .kv_len = &len, .out_row = out};
    const float *logits;
    assert_int_equal(ht_exec_run(exec, &(ht_step){.batch = &b}, &logits, &err), HT_ERR_LIMIT);
    assert_null(logits);
    ht_exec_free(exec);
    ht_plan_free(plan);
}

/* What a trace cannot hold is an error of the trace, not a wrong plan. */
static ht_array *adds_to_rows(ht_scope *s, void *user) {
    (void)user;
    ht_ctx c = {.s = s};
    ht_array *x = ht_take(s, table, ht_batch_ids(&c), 0);
    int64_t n = ht_array_dim(x, 0);
    ht_array *window = ht_slice(s, x, (int64_t[]){1, 0}, (int64_t[]){n, HIDDEN}, NULL);
    return ht_square(s, window);
}

static ht_array *reads_a_value(ht_scope *s, void *user) {
    (void)user;
    ht_ctx c = {.s = s};
    ht_array *x = ht_take(s, table, ht_batch_ids(&c), 0);
    ht_error err = {0};
    const void *data;
    if (ht_array_data(s, x, &data, &err)) return ht_scope_fail_with(s, &err);
    return x;
}

static ht_array *returns_nothing(ht_scope *s, void *user) {
    (void)s;
    (void)user;
    return NULL;
}

UNIT_TEST(untraceable_functions_are_refused) {
    ht_plan_fn *bad[] = {adds_to_rows, reads_a_value, returns_nothing};
    const char *says[] = {"row counts", "trace", "no array"};
    for (size_t i = 0; i < 3; i++) {
        ht_error err = {0};
        ht_plan *plan;
        assert_int_not_equal(ht_plan_trace(device, bad[i], NULL, NULL, &plan, &err), HT_OK);
        assert_null(plan);
        assert_non_null(strstr(err.message, says[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_gives_the_bits_of_eager_evaluation),
        cmocka_unit_test(chains_give_the_bits_of_eager_evaluation),
        cmocka_unit_test(the_highest_outputs_are_there),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(more_rows_than_the_executor_holds_are_refused),
        cmocka_unit_test(untraceable_functions_are_refused),
    };
    return cmocka_run_group_tests(tests, open_weights, close_weights);
}
