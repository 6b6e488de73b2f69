/* Norms, position embeddings, attention and products of every instruction set against the plain ones: odd sizes, tails, any
 * strides, extreme values, one thread and several. */
#include "base/checked.h"
#include "cpu/element.h"
#include "support/attend_texts.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

UNIT_TEST(rms_norm) {
    static const int64_t lengths[] = {1, 6, 16, 63, 64, 65, 128, 576, 577, 640, 896};
    for (EACH(l, lengths))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int weighted = 0; weighted < 3; weighted++) {
                    uint64_t seed = l + 3;
                    int64_t dims[3] = {3, 2, lengths[l]};
                    operand x = test_operand(float_types[t], 3, dims, (layout)how, ORDINARY, &seed);
                    operand w = test_operand(float_types[t], 1, &lengths[l], weighted == 2 ? EVERY_SECOND : CONTIGUOUS,
                                             ORDINARY, &seed);
                    ht_rms_norm_params p = {.eps = 1e-5f, .weight_offset = weighted == 2 ? 1.0f : 0.0f};
                    comparison c = {.op = HT_OP_RMS_NORM, .params = &p, .n_in = 2, .tolerance = 2e-6, .what = "norm"};
                    c.in[0] = x.view;
                    c.in[1] = weighted ? w.view : test_absent();
                    c.out = test_view(NULL, float_types[t], 3, dims);
                    test_compare(&c);
                    free(x.memory), free(w.memory);
                }
}

UNIT_TEST(rope) {
    static const struct {
        int64_t head_dim;
        ht_rope_params p;
    } cases[] = {{64, {1e4f, 1.0f, 1.0f, 64, false}},   {64, {1e6f, 0.125f, 1.2f, 64, true}},
                 {6, {1e4f, 1.0f, 1.0f, 6, false}},     {80, {1e4f, 1.0f, 1.0f, 32, false}},
                 {256, {1e6f, 1.0f, 1.0f, 256, false}}, {72, {5e5f, 1.0f, 1.0f, 70, true}}};
    static const int32_t positions[] = {0, 1, 5, 4095, 131071, 1048575};
    for (EACH(i, cases))
        for (int how = 0; how < LAYOUT_COUNT; how++)
            for (int factors = 0; factors < 2; factors++) {
                uint64_t seed = i + 11;
                int64_t dims[3] = {6, 3, cases[i].head_dim}, rows = 6, pairs = cases[i].p.dims / 2;
                ht_dtype type = float_types[(i + (size_t)how) % (sizeof float_types / sizeof *float_types)];
                operand x = test_operand(type, 3, dims, (layout)how, ORDINARY, &seed);
                float factor[128];
                for (int k = 0; k < 128; k++) factor[k] = 1.0f + (float)(k % 9);
                comparison c = {.op = HT_OP_ROPE, .params = &cases[i].p, .n_in = 3, .tolerance = 1e-6, .what = "rope"};
                c.in[0] = x.view;
                c.in[1] = test_view((void *)positions, HT_I32, 1, &rows);
                c.in[2] = factors ? test_view(factor, HT_F32, 1, &pairs) : test_absent();
                c.out = test_view(NULL, type, 3, dims);
                test_compare(&c);
                free(x.memory);
            }
}

/* Sizes beyond those of tiles, pieces, chunks and blocks, and some that are none of them. */
UNIT_TEST(large_matmul) {
    static const int64_t sizes[][4] = {
        /* matrices, m, n, k */
        {1, 1, 2100, 300},  {1, 2, 139, 513}, {1, 7, 64, 256}, {1, 9, 2065, 31}, {1, 130, 800, 70},  {1, 2051, 17, 5},
        {1, 2050, 2051, 2}, {5, 33, 49, 257}, {2, 1, 130, 64}, {9, 1, 1, 700},   {2, 140, 140, 140}, {1, 400, 56, 260},
        {1, 70, 1, 270},    {1, 1, 45, 270},  {1, 127, 40, 1}, {1, 127, 33, 4},  {1, 3048, 24, 3},   {1, 3, 1100, 530}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        for (EACH(t, float_types))
            for (int transposed = 0; transposed < 2; transposed++) {
                if (!test_takes(i + 2 * (int)t + transposed, 8)) continue;
                uint64_t seed = 8;
                const int64_t *s = sizes[i], a_dims[3] = {s[0], s[1], s[3]}, out[3] = {s[0], s[1], s[2]};
                int64_t b_dims[3] = {s[0], transposed ? s[2] : s[3], transposed ? s[3] : s[2]};
                operand a = test_operand(float_types[t], 3, a_dims, CONTIGUOUS, ORDINARY, &seed);
                operand b = test_operand(float_types[t], 3, b_dims, CONTIGUOUS, ORDINARY, &seed);
                ht_matmul_params p = {.transpose_b = transposed};
                comparison c = {.op = HT_OP_MATMUL,
                                .params = &p,
                                .n_in = 2,
                                .in = {a.view, b.view},
                                .tolerance = 1e-4,
                                .what = "large product"};
                c.out = test_view(NULL, float_types[t], 3, out);
                test_compare(&c);
                free(a.memory), free(b.memory);
            }
}

/* A sum takes the same steps whatever is computed beside it: one and three rows alone against all of them, which
 * are few enough to be cut by columns, or cut by rows. */
UNIT_TEST(matmul_bits) {
    enum { MOST_ROWS = 229, MOST = 1100, K = 600 };
    static float all[MOST_ROWS * MOST], few[3 * MOST];
    ht_device *devices[2][TEST_MAX_DEVICES];
    int n_devices = test_devices(1, devices[0]);
    test_devices(3, devices[1]);
    for (int i = 0; i < 4; i++)
        for (int turned = 0; turned < 2; turned++) {
            if (!test_takes(i + turned, TEST_SLOW ? 2 : 1)) continue;
            const int64_t m = i % 2 ? MOST_ROWS : 37, n = i / 2 ? MOST : 150;
            uint64_t seed = 9;
            operand a = test_operand(HT_F32, 2, (int64_t[]){m, K}, CONTIGUOUS, ORDINARY, &seed);
            operand b =
                test_operand(HT_F32, 2, turned ? (int64_t[]){n, K} : (int64_t[]){K, n}, CONTIGUOUS, ORDINARY, &seed);
            ht_matmul_params p = {.transpose_b = turned};
            for (int d = 0; d < n_devices; d++)
                for (int64_t row = 0; row + 3 <= m; row += m / 4) {
                    const int64_t rows = row % 2 ? 3 : 1;
                    ht_view in[2] = {a.view, b.view}, out = test_view(all, HT_F32, 2, (int64_t[]){m, n});
                    if (row == 0) test_run_ok(devices[1][d], HT_OP_MATMUL, &p, 2, in, &out, NULL);
                    in[0].data = (float *)a.view.data + row * K;
                    in[0].shape[0] = rows;
                    out = test_view(few, HT_F32, 2, (int64_t[]){rows, n});
                    test_run_ok(devices[0][d], HT_OP_MATMUL, &p, 2, in, &out, NULL);
                    assert_memory_equal(few, all + row * n, (size_t)(rows * n) * sizeof *few);
                }
            free(a.memory), free(b.memory);
        }
}

UNIT_TEST(layer_norm) {
    static const int64_t lengths[] = {1, 6, 17, 64, 65, 577};
    for (EACH(l, lengths))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int given = 0; given < 4; given++) {
                    if (!test_takes_today((int)(l + t) + how + given, 2)) continue;
                    uint64_t seed = l + 3;
                    int64_t dims[3] = {3, 2, lengths[l]};
                    operand x = test_operand(float_types[t], 3, dims, (layout)how, ORDINARY, &seed);
                    operand w = test_operand(float_types[t], 1, &lengths[l], (layout)how, ORDINARY, &seed);
                    ht_layer_norm_params p = {.eps = 1e-3f};
                    comparison c = {
                        .op = HT_OP_LAYER_NORM, .params = &p, .n_in = 3, .tolerance = 1e-5, .what = "layer norm"};
                    c.in[0] = x.view;
                    c.in[1] = given & 1 ? w.view : test_absent();
                    c.in[2] = given & 2 ? w.view : test_absent();
                    c.out = test_view(NULL, float_types[t], 3, dims);
                    test_compare(&c);
                    free(x.memory), free(w.memory);
                }
}

/* Rows enough for several blocks of them. */
UNIT_TEST(norm_gradients) {
    static const int64_t lengths[] = {1, 6, 17, 32, 65, 577};
    for (EACH(l, lengths))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int given = 0; given < 8; given++) {
                    if (!test_takes((int)(l + t) + how + given, 4)) continue;
                    uint64_t seed = l + 5;
                    const bool centred = given & 4;
                    const int64_t dims[3] = {how == 0 ? 0 : how == 1 ? 40 : 3, 3, lengths[l]}, n = dims[2];
                    const int64_t rows = dims[0] * dims[1];
                    operand x = test_operand(float_types[t], 3, dims, (layout)how, ORDINARY, &seed);
                    operand grad =
                        test_operand(float_types[t], 3, dims, (layout)((how + given) % LAYOUT_COUNT), ORDINARY, &seed);
                    operand w = test_operand(float_types[t], 1, &n, (layout)how, ORDINARY, &seed);
                    const ht_layer_norm_params layer = {.eps = 1e-1f};
                    const ht_rms_norm_params rms = {.eps = 1e-1f, .weight_offset = given & 2 ? 1.0f : 0.0f};
                    comparison c = {.op = centred ? HT_OP_LAYER_NORM_GRAD : HT_OP_RMS_NORM_GRAD,
                                    .params = centred ? (const void *)&layer : &rms,
                                    .n_in = centred ? 4 : 3,
                                    .tolerance = how == 1 ? 1e-4 : 2e-5,
                                    .what = "gradient of a norm"};
                    c.in[0] = x.view;
                    c.in[1] = given & 1 ? w.view : test_absent();
                    c.in[2] = given & 2 ? w.view : test_absent();
                    c.in[centred ? 3 : 2] = grad.view;
                    int64_t size = rows * n + (given & 1 ? n : 0) + (centred && given & 2 ? n : 0);
                    c.out = test_view(NULL, float_types[t], 1, &size);
                    test_compare(&c);
                    free(x.memory), free(w.memory), free(grad.memory);
                }
}

/* The gradients of weight and bias have the same bits with any number of threads. */
UNIT_TEST(norm_gradients_have_one_order) {
    const int64_t dims[2] = {700, 300}, size = 701 * 300;
    uint64_t seed = 9;
    operand x = test_operand(HT_F32, 2, dims, CONTIGUOUS, ORDINARY, &seed);
    operand grad = test_operand(HT_F32, 2, dims, CONTIGUOUS, ORDINARY, &seed);
    operand w = test_operand(HT_F32, 1, &dims[1], CONTIGUOUS, ORDINARY, &seed);
    const ht_rms_norm_params p = {.eps = 1e-5f};
    const ht_view in[3] = {x.view, w.view, grad.view};
    float *first = malloc((size_t)size * sizeof *first), *other = malloc((size_t)size * sizeof *other);
    for (int threads = 1; threads < 5; threads++) {
        ht_device *devices[TEST_MAX_DEVICES];
        int n = test_devices(threads, devices);
        ht_view out = test_view(threads == 1 ? first : other, HT_F32, 1, &size);
        test_run_ok(devices[n - 1], HT_OP_RMS_NORM_GRAD, &p, 3, in, &out, NULL);
        if (threads > 1) assert_memory_equal(first, other, (size_t)size * sizeof *first);
    }
    free(first), free(other), free(x.memory), free(grad.memory), free(w.memory);
}

/* Of the same operands: the result as the plain kernel gives it, any gradient of it, and the gradients of q, k and v. */
static void compare_gradient(const comparison *attention, ht_op_id gradient) {
    comparison c = *attention;
    uint64_t seed = 21;
    operand result = test_operand(c.out.dtype, c.out.n_dims, c.out.shape, CONTIGUOUS, ORDINARY, &seed);
    operand grad = test_operand(c.out.dtype, c.out.n_dims, c.out.shape, CONTIGUOUS, ORDINARY, &seed);
    ht_device *devices[TEST_MAX_DEVICES];
    test_devices(1, devices);
    test_run_ok(devices[0], c.op, c.params, c.n_in, c.in, &result.view, NULL);
    int64_t size = ht_view_size(&c.in[0]) + ht_view_size(&c.in[1]) + ht_view_size(&c.in[2]);
    c.op = gradient;
    c.in[c.n_in++] = result.view;
    c.in[c.n_in++] = grad.view;
    c.tolerance = c.out.dtype == HT_F64 ? 1e-12 : 5e-4;
    c.what = "gradient of attention";
    c.out = test_view(NULL, c.out.dtype, 1, &size);
    test_compare(&c);
    free(result.memory), free(grad.memory);
}

/* Flat rows of sequences, queries of some of the rows only; the gradient, too. */
UNIT_TEST(attention_of_rows) {
    enum { SEQUENCES = 4, MOST = 400 };
    static const struct {
        int64_t kv_heads, group, d, dv;
        int64_t length[SEQUENCES];
        int step; /* queries are every step-th row and the last one of each sequence */
        ht_attend_rows_params p;
        sinks_kind sinks;
    } cases[] = {{2, 3, 6, 9, {5, 1, 7, 0}, 1, {0.4f, 0, 0, false, false}, NO_SINKS},
                 {1, 1, 16, 16, {130, 140, 3, 65}, 1, {0.2f, 0, 0, false, false}, NO_SINKS},
                 {3, 3, 64, 64, {70, 33, 0, 0}, 1, {0.1f, 0, 16, false, false}, NO_SINKS},
                 {1, 2, 16, 20, {200, 150, 40, 0}, 3, {0.3f, 2, 0, false, false}, NO_SINKS},
                 {2, 1, 33, 16, {1, 1, 1, 1}, 1, {0.3f, 5, 1, false, false}, NO_SINKS},
                 {1, 4, 8, 8, {129, 100, 64, 1}, 7, {0.3f, 0.5f, 30, false, false}, NO_SINKS},
                 {1, 1, 48, 48, {300, 2, 0, 0}, 299, {0.3f, 0, 0, false, false}, NO_SINKS},
                 {2, 3, 6, 9, {140, 1, 7, 0}, 1, {0.4f, 0, 0, false, false}, NEAR_SINKS},
                 {1, 8, 16, 16, {130, 30, 0, 0}, 3, {0.3f, 2, 30, false, false}, FAR_SINKS},
                 {1, 2, 16, 20, {200, 150, 40, 0}, 1, {0.3f, 0, 64, true, false}, NO_SINKS},
                 {2, 2, 8, 8, {129, 100, 64, 1}, 7, {0.3f, 0.5f, 7, true, false}, NEAR_SINKS},
                 {1, 1, 16, 16, {300, 2, 0, 0}, 5, {0.3f, 0, 150, true, false}, NO_SINKS},
                 {2, 1, 32, 32, {5, 1, 140, 70}, 1, {0.2f, 0, 0, false, true}, NO_SINKS},
                 {2, 2, 6, 9, {1, 300, 40, 2}, 1, {0.4f, 1, 9, false, true}, NEAR_SINKS},
                 {1, 1, 16, 16, {290, 64, 1, 0}, 1, {0.3f, 0, 64, false, true}, NO_SINKS}};
    for (EACH(i, cases))
        for (int how = 0; how < LAYOUT_COUNT; how++) {
            if (!test_takes_today((int)i + how, 3)) continue;
            int32_t own[MOST], first[MOST];
            int64_t n = 0, rows = 0;
            for (int q = 0; q < SEQUENCES; q++) {
                for (int64_t r = 0; r < cases[i].length[q]; r++)
                    if (r % cases[i].step == 0 || r + 1 == cases[i].length[q]) {
                        const ht_attend_rows_params *p = &cases[i].p;
                        const int64_t last = cases[i].length[q] - 1, end = p->window ? r + p->window : last;
                        own[n] = (int32_t)(rows + (p->two_sided ? ht_min_i64(end, last) : r));
                        first[n++] = (int32_t)rows;
                    }
                rows += cases[i].length[q];
            }
            uint64_t seed = i + 3;
            const int64_t heads = cases[i].group * cases[i].kv_heads;
            const int64_t q[3] = {n, heads, cases[i].d}, k[3] = {rows, cases[i].kv_heads, cases[i].d};
            const int64_t v[3] = {rows, cases[i].kv_heads, cases[i].dv}, out[3] = {n, heads, cases[i].dv};
            operand in[4] = {test_operand(HT_F32, 3, q, (layout)how, ORDINARY, &seed),
                             test_operand(HT_F32, 3, k, (layout)how, ORDINARY, &seed),
                             test_operand(HT_F32, 3, v, (layout)how, ORDINARY, &seed),
                             test_operand(HT_F32, 1, &heads, (layout)how, ORDINARY, &seed)};
            comparison c = {.op = HT_OP_ATTEND_ROWS,
                            .params = &cases[i].p,
                            .n_in = 6,
                            .tolerance = 2e-5,
                            .what = "attention of rows"};
            for (int a = 0; a < 3; a++) c.in[a] = in[a].view;
            c.in[3] = test_view(own, HT_I32, 1, &n);
            c.in[4] = test_view(first, HT_I32, 1, &n);
            c.in[5] = cases[i].sinks ? in[3].view : test_absent();
            if (cases[i].sinks == FAR_SINKS)
                for (int64_t h = 0; h < heads; h++) ((float *)in[3].view.data)[h * in[3].view.stride[0]] = far_sink(h);
            c.out = test_view(NULL, HT_F32, 3, out);
            test_compare(&c);
            compare_gradient(&c, HT_OP_ATTEND_ROWS_GRAD);
            for (int a = 0; a < 4; a++) free(in[a].memory);
        }
}

/* Queries, keys, values, a mask and sinks. */
UNIT_TEST(attention) {
    static const struct {
        int64_t batch, kv_heads, group, n_q, n_k, d, dv;
        ht_sdpa_params p;
    } cases[] = {{2, 2, 3, 5, 7, 6, 9, {0.4f, false, 0}},       {1, 1, 1, 1, 200, 64, 64, {0.1f, true, 0}},
                 {1, 2, 1, 100, 100, 33, 16, {0.2f, true, 0}},  {1, 1, 2, 70, 140, 16, 20, {0.2f, true, 40}},
                 {1, 1, 2, 9, 4, 8, 8, {0.3f, true, 0}},        {1, 1, 1, 3, 64, 8, 40, {0.3f, false, 0}},
                 {1, 1, 1, 140, 300, 16, 16, {0.3f, true, 30}}, {1, 1, 1, 4, 2, 8, 8, {0.3f, true, 0}},
                 {1, 2, 2, 3, 1100, 18, 20, {0.3f, true, 570}}, {1, 2, 2, 1, 600, 32, 20, {0.3f, false, 0}},
                 {2, 1, 1, 8, 529, 300, 16, {0.05f, false, 0}}};
    for (EACH(i, cases))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int masked = 0; masked < 3; masked++) {
                    if (!test_takes((int)(i + t) + how + masked, TEST_SLOW ? 20 : 10)) continue;
                    uint64_t seed = i + 5;
                    int64_t heads = cases[i].group * cases[i].kv_heads;
                    int64_t q[4] = {cases[i].batch, heads, cases[i].n_q, cases[i].d};
                    int64_t k[4] = {cases[i].batch, cases[i].kv_heads, cases[i].n_k, cases[i].d};
                    int64_t v[4] = {cases[i].batch, cases[i].kv_heads, cases[i].n_k, cases[i].dv};
                    int64_t m[4] = {cases[i].batch, heads, cases[i].n_q, cases[i].n_k};
                    int64_t out[4] = {cases[i].batch, heads, cases[i].n_q, cases[i].dv};
                    ht_dtype type = float_types[t];
                    operand in[5] = {test_operand(type, 4, q, (layout)how, ORDINARY, &seed),
                                     test_operand(type, 4, k, (layout)how, ORDINARY, &seed),
                                     test_operand(type, 4, v, (layout)how, ORDINARY, &seed),
                                     test_operand(masked == 1 ? HT_BOOL : type, 4, m, (layout)how, ORDINARY, &seed),
                                     test_operand(type, 1, &heads, (layout)how, ORDINARY, &seed)};
                    comparison c = {
                        .op = HT_OP_SDPA, .params = &cases[i].p, .n_in = 5, .tolerance = 2e-5, .what = "attention"};
                    for (int a = 0; a < 5; a++) c.in[a] = in[a].view;
                    if (!masked) c.in[3] = test_absent();
                    if (masked != 1) c.in[4] = test_absent();
                    c.out = test_view(NULL, type, 4, out);
                    test_compare(&c);
                    compare_gradient(&c, HT_OP_SDPA_GRAD);
                    for (int a = 0; a < 5; a++) free(in[a].memory);
                }
}

/* Masks with numbers that hide keys, up to whole spans and all of them, for few queries and for many. */
UNIT_TEST(attention_under_extreme_masks) {
    enum { N_K = 1300 };
    static const float hiding[] = {-INFINITY, -FLT_MAX, -1e30f};
    for (int64_t n_q = 1; n_q < 40; n_q += 19)
        for (EACH(h, hiding))
            for (int seen = 0; seen < 5; seen++) {
                if (!test_takes_today(n_q / 19 + (int64_t)h + seen, 2)) continue;
                uint64_t seed = 8;
                const int64_t q[4] = {1, 2, n_q, 12}, k[4] = {1, 2, N_K, 12}, m[4] = {1, 2, n_q, N_K}, heads = 2;
                operand in[5] = {test_operand(HT_F32, 4, q, CONTIGUOUS, ORDINARY, &seed),
                                 test_operand(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed),
                                 test_operand(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed),
                                 test_operand(HT_F32, 4, m, CONTIGUOUS, ORDINARY, &seed),
                                 test_operand(HT_F32, 1, &heads, CONTIGUOUS, ORDINARY, &seed)};
                const int64_t first[] = {0, 512, 1299, 3, N_K}, last[] = {511, 1023, 1299, 3, N_K};
                float *mask = in[3].memory;
                for (int64_t i = 0; i < 2 * n_q * N_K; i++)
                    if (i % N_K < first[seen] || i % N_K > last[seen]) mask[i] = hiding[h];
                comparison c = {.op = HT_OP_SDPA,
                                .params = &(ht_sdpa_params){0.3f, false, 0},
                                .n_in = 5,
                                .tolerance = 2e-5,
                                .what = "attention under a mask"};
                for (int a = 0; a < 5; a++) c.in[a] = in[a].view;
                c.out = test_view(NULL, HT_F32, 4, q);
                if (seen % 2) c.in[4] = test_absent();
                test_compare(&c);
                for (int a = 0; a < 5; a++) free(in[a].memory);
            }
}

/* Attention has the same bits with any number of threads and with every instruction set. */
UNIT_TEST(attention_has_one_order) {
    enum { N_K = 1700, D = 48 };
    static const int64_t queries[] = {1, 2, 5, 75};
    for (EACH(i, queries)) {
        uint64_t seed = 9;
        const int64_t n_q = queries[i];
        const int64_t q[4] = {1, 2, n_q, D}, k[4] = {1, 2, N_K, D}, size = 2 * n_q * D;
        operand in[3] = {test_operand(HT_F32, 4, q, CONTIGUOUS, ORDINARY, &seed),
                         test_operand(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed),
                         test_operand(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed)};
        const ht_view views[5] = {in[0].view, in[1].view, in[2].view, test_absent(), test_absent()};
        const ht_sdpa_params p = {0.3f, true, 0};
        float *first = malloc((size_t)size * sizeof *first), *other = malloc((size_t)size * sizeof *other);
        for (int threads = 1; threads < 5; threads += TEST_SLOW ? 2 : 1) {
            ht_device *devices[TEST_MAX_DEVICES];
            int n = test_devices(threads, devices);
            for (int d = 1; d < n; d++) { /* the first is the plain kernel */
                const bool begins = threads == 1 && d == 1;
                ht_view out = test_view(begins ? first : other, HT_F32, 4, q);
                test_run_ok(devices[d], HT_OP_SDPA, &p, 5, views, &out, NULL);
                if (!begins) assert_memory_equal(first, other, (size_t)size * sizeof *first);
            }
        }
        free(first), free(other);
        for (int a = 0; a < 3; a++) free(in[a].memory);
    }
}

/* Products and gathers that vector devices take from the plain ones or may come to have of their own. */
UNIT_TEST(matmul_and_take) {
    for (EACH(t, float_types))
        for (int transposed = 0; transposed < 2; transposed++)
            for (int how = 0; how < LAYOUT_COUNT; how++) {
                uint64_t seed = 5;
                int64_t a_dims[4] = {2, 3, 7, 33}, b_dims[3] = {3, transposed ? 5 : 33, transposed ? 33 : 5},
                        out[4] = {2, 3, 7, 5};
                operand a = test_operand(float_types[t], 4, a_dims, (layout)how, ORDINARY, &seed);
                operand b = test_operand(float_types[t], 3, b_dims, (layout)how, ORDINARY, &seed);
                ht_matmul_params p = {.transpose_b = transposed};
                comparison c = {.op = HT_OP_MATMUL,
                                .params = &p,
                                .n_in = 2,
                                .in = {a.view, b.view},
                                .tolerance = 1e-5,
                                .what = "product"};
                c.out = test_view(NULL, float_types[t], 4, out);
                test_compare(&c);
                free(a.memory), free(b.memory);
            }
    static const int32_t ids[] = {4, 0, 4, 2};
    for (int bad = 0; bad < 2; bad++)
        for (int how = 0; how < LAYOUT_COUNT; how++) {
            uint64_t seed = 6;
            int64_t dims[3] = {bad ? 4 : 5, 3, 17}, n = 4, out[3] = {4, 3, 17};
            operand x = test_operand(HT_F16, 3, dims, (layout)how, ORDINARY, &seed);
            comparison c = {.op = HT_OP_TAKE,
                            .params = &(ht_axis_params){0},
                            .n_in = 2,
                            .in = {x.view, test_view((void *)ids, HT_I32, 1, &n)},
                            .what = "rows by index"};
            c.out = test_view(NULL, HT_F16, 3, out);
            test_compare(&c);
            free(x.memory);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm),
        cmocka_unit_test(rope),
        cmocka_unit_test(large_matmul),
        cmocka_unit_test(matmul_bits),
        cmocka_unit_test(layer_norm),
        cmocka_unit_test(norm_gradients),
        cmocka_unit_test(norm_gradients_have_one_order),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_of_rows),
        cmocka_unit_test(attention_under_extreme_masks),
        cmocka_unit_test(attention_has_one_order),
        cmocka_unit_test(matmul_and_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
