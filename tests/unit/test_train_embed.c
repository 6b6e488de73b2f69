/* Embeddings that are trained: pairs of texts, the loss of their vectors, retrieval, the same bits however training is
 * cut. Gradients against torch: test_train_families. */
#include "models/adapter.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "train/contrast.h"
#include "train/trainer.h"

#include <hearth/embed.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_model *encoder, *alone; /* on two threads, on one */
static ht_model *decoder;

static ht_model *load(const char *path, int n_threads) {
    ht_device *device;
    ht_model *m;
    assert_works(ht_device_open, "cpu", OPTIONS_AT(ht_device_options, with.n_threads = n_threads), &device);
    assert_works(ht_model_load, path,
                 OPTIONS_AT(ht_model_options, with.device = device, with.precision = HT_PRECISION_REFERENCE,
                            with.kv_dtype = HT_F32),
                 &m);
    ht_device_free(device);
    return m;
}

/* ---- a task: the tokens of a positive are those of its anchor in another alphabet, in another order ---- */

enum { LETTERS = 24, WORD = 4, FIRST = 3 };

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void put_ids(ht_text *out, const char *key, const int *letter, int first, int step) {
    ht_text_printf(out, "\"%s\": [", key);
    for (int i = 0; i < WORD; i++)
        ht_text_printf(out, "%s%d", i ? ", " : "", first + letter[step > 0 ? i : WORD - 1 - i]);
    ht_text_append(out, "]", 1);
}

/* n pairs; every third has a negative, another word. */
static const char *write_pairs(const char *name, int n, uint32_t seed) {
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    ht_text text = {0};
    for (int i = 0; i < n; i++) {
        int letter[2 * WORD];
        for (int k = 0; k < 2 * WORD; k++) letter[k] = (int)(draw(&seed) % LETTERS);
        ht_text_append(&text, "{", 1);
        put_ids(&text, i % 2 ? "anchor" : "query", letter, FIRST, 1);
        ht_text_append(&text, ", ", 2);
        put_ids(&text, "positive", letter, FIRST + LETTERS, -1);
        if (i % 3 == 0) {
            ht_text_append(&text, ", ", 2);
            put_ids(&text, "negative", letter + WORD, FIRST + LETTERS, 1);
        }
        ht_text_append(&text, "}\n", 2);
    }
    assert_false(text.failed);
    scratch_write(name, text.data, text.len);
    ht_text_discard(&text);
    (void)snprintf(path, sizeof paths[0], "%s", scratch_path(name));
    return path;
}

static ht_lora_options lora; /* of the options that basic() made last */

static ht_trainer_options basic(const char *data) {
    ht_trainer_options o;
    ht_trainer_options_init(&o, sizeof o);
    ht_lora_options_init(&lora, sizeof lora);
    lora.targets = "all-linear";
    lora.rank = 16;
    o.lora = &lora;
    o.method = HT_METHOD_EMBED;
    o.temperature = 0.1;
    o.data = data;
    o.batch = 32;
    o.iters = 6;
    o.learning_rate = 1e-2;
    o.seed = 3;
    return o;
}

static ht_trainer *open_on(ht_model *m, const ht_trainer_options *o) {
    ht_trainer *t;
    assert_works(ht_trainer_new, m, o, &t);
    return t;
}

static ht_train_step step(ht_trainer *t) {
    ht_train_step s;
    assert_works(ht_trainer_step, t, &s);
    return s;
}

static ht_retrieval evaluate(ht_trainer *t, double *loss) {
    ht_retrieval found;
    assert_works(ht_trainer_evaluate, t, loss);
    ht_trainer_retrieval(t, &found);
    return found;
}

UNIT_TEST(learns_to_find_held_out_positives) {
    ht_trainer_options o = basic(write_pairs("train.jsonl", 400, 1));
    o.valid = write_pairs("valid.jsonl", 64, 2);
    o.schedule = HT_SCHEDULE_LINEAR;
    o.iters = 160;
    ht_trainer *t = open_on(encoder, &o);
    ht_trainer_plan plan;
    ht_trainer_describe(t, &plan);
    assert_int_equal(plan.data->n_samples, 400);
    assert_int_equal(plan.data->n_form[HT_SAMPLE_PAIR], 400);
    assert_int_equal(plan.iters_per_epoch, 13);
    double loss_before, loss;
    ht_retrieval before;
    ht_trainer_retrieval(t, &before);
    assert_int_equal(before.n_anchors, 0);
    before = evaluate(t, &loss_before);
    assert_int_equal(before.n_anchors, 64);
    assert_int_equal(before.n_candidates, 64 + 22);
    for (int i = 0; i < 160; i++) {
        const ht_train_step s = step(t);
        assert_true(s.n_learned == 30 || s.n_learned == 31);
        assert_true(s.n_tok >= 2 * WORD * s.n_learned && isfinite(s.loss) && s.grad_norm > 0);
    }
    const ht_retrieval after = evaluate(t, &loss);
    if (!(before.mrr_at_10 < 0.25 && after.mrr_at_10 > 0.6 && loss < 0.5 * loss_before))
        fail_msg("MRR@10 was %g and is %g, the loss was %g and is %g", before.mrr_at_10, after.mrr_at_10, loss_before,
                 loss);
    assert_true(after.accuracy_at_1 <= after.mrr_at_10 && after.mrr_at_10 <= after.ndcg_at_10);
    print_message("MRR@10 %.4f, then %.4f; loss %.4f, then %.4f\n", before.mrr_at_10, after.mrr_at_10, loss_before,
                  loss);
    ht_trainer_free(t);
}

/* ---- the same bits ---- */

static ht_adapter *train(ht_model *m, const ht_trainer_options *o) {
    ht_trainer *t = open_on(m, o);
    ht_adapter *a;
    for (int64_t i = 0; i < o->iters; i++) (void)step(t);
    assert_works(ht_trainer_adapter, t, &a);
    ht_trainer_free(t);
    return a;
}

static void expect_same_bits(ht_adapter *a, ht_adapter *b) {
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *x = &a->lora[i], *y = &b->lora[i];
        assert_memory_equal(x->a, y->a, (size_t)(x->rank * x->n_in) * sizeof *x->a);
        assert_memory_equal(x->b, y->b, (size_t)(x->rank * x->n_out) * sizeof *x->b);
        assert_true(x->b[0] != 0);
    }
    ht_adapter_free(a);
    ht_adapter_free(b);
}

UNIT_TEST(the_same_bits_on_any_threads) {
    ht_trainer_options o = basic(write_pairs("threads.jsonl", 70, 5));
    lora.dropout = 0.1;
    expect_same_bits(train(encoder, &o), train(alone, &o));
    o.checkpointing = HT_CHECKPOINTING_ON;
    ht_adapter *recomputed = train(encoder, &o);
    o.checkpointing = HT_CHECKPOINTING_OFF;
    expect_same_bits(recomputed, train(encoder, &o));
}

UNIT_TEST(resumes_with_the_same_bits) {
    ht_trainer_options o = basic(write_pairs("resume.jsonl", 70, 6));
    o.valid = o.data;
    o.accumulate = 2;
    const char *path = scratch_path("resume.safetensors");
    ht_trainer *t = open_on(encoder, &o);
    for (int i = 0; i < 3; i++) (void)step(t);
    assert_works(ht_trainer_save, t, path);
    ht_trainer_free(t);
    t = open_on(encoder, &o);
    assert_works(ht_trainer_resume, t, path);
    for (int i = 3; i < 6; i++) (void)step(t);
    ht_adapter *a;
    assert_works(ht_trainer_adapter, t, &a);
    ht_trainer_free(t);
    expect_same_bits(train(encoder, &o), a);
    o.temperature = 0.2;
    t = open_on(encoder, &o);
    assert_fails(HT_ERR_ARGUMENT, "was saved with temperature 0.1", ht_trainer_resume, t, path);
    ht_trainer_free(t);
}

/* The vectors that training compares are those of ht_embed_ids. */
static void check_vectors(ht_model *m, const char *pooling) {
    static const int32_t ids[] = {5, 9, 4, 4, 20, 7, 11}, pos[] = {0, 1, 2, 0, 0, 1, 2}, start[] = {0, 3, 4, 7};
    const int32_t *const text[] = {ids, ids + 3, ids + 4};
    const size_t n[] = {3, 1, 3};
    ht_embeddings *e;
    m->config->pooling = pooling;
    assert_works(ht_embed_ids, m, text, n, 3, OPTIONS_AT(ht_embed_options, (void)0), &e);
    ht_scope *s = ht_scope_new(m->stream);
    const ht_adapters none = {.key = HT_NONE};
    const ht_train_batch batch = {.n_tok = 7, .n_seq = 3, .id = ids, .pos = pos, .seq_start = start};
    float *values = malloc((size_t)(3 * e->hidden) * sizeof *values);
    assert_non_null(values);
    assert_works(ht_array_read, s, ht_model_vectors(s, m, &batch, &none, false), values,
                 (size_t)(3 * e->hidden) * sizeof *values);
    for (int i = 0; i < 3 * e->hidden; i++)
        if (!(fabsf(values[i] - e->values[i]) < 2e-6f))
            fail_msg("%s: value %d is %.9g, of ht_embed_ids %.9g", pooling, i, (double)values[i], (double)e->values[i]);
    free(values);
    ht_scope_free(s);
    ht_embeddings_free(e);
    m->config->pooling = "";
}

UNIT_TEST(vectors_are_those_of_embed) {
    static const char *const poolings[] = {"last", "mean", "cls"};
    for (int i = 0; i < 3; i++) {
        check_vectors(encoder, poolings[i]);
        check_vectors(decoder, poolings[i]);
    }
}

UNIT_TEST(a_decoder_learns) {
    ht_trainer_options o = basic(write_pairs("decoder.jsonl", 64, 8));
    o.iters = 30;
    ht_trainer *t = open_on(decoder, &o);
    const double first = step(t).loss;
    double last = 0;
    for (int i = 1; i < 30; i++) last = step(t).loss;
    if (!(last < 0.5 * first)) fail_msg("the loss was %g and is %g", first, last);
    ht_trainer_free(t);
}

/* ---- retrieval ---- */

enum { AXES = 3 };

/* A text of one token with its vector. */
typedef struct point {
    int32_t id, match;
    float at[AXES];
} point;

static ht_retrieval rank_points(const point *p, int n) {
    int32_t id[16], pos[16] = {0}, start[17], match[16];
    float vectors[16][AXES];
    for (int i = 0; i < n; i++) {
        id[i] = p[i].id;
        match[i] = p[i].match;
        start[i] = i;
        memcpy(vectors[i], p[i].at, sizeof vectors[i]);
    }
    start[n] = n;
    ht_held_out *r;
    ht_retrieval out;
    const ht_train_batch b = {.n_tok = n, .n_seq = n, .id = id, .pos = pos, .seq_start = start, .match = match};
    assert_works(ht_held_out_new, &r);
    assert_works(ht_held_out_add, r, &b, vectors[0], AXES);
    assert_works(ht_held_out_measure, r, encoder->stream, &out);
    ht_held_out_free(r);
    return out;
}

static void expect_ranks(const char *what, const point *p, int n, int64_t candidates, const int *rank, int n_ranks) {
    const ht_retrieval found = rank_points(p, n);
    double first = 0, reciprocal = 0, gain = 0;
    for (int i = 0; i < n_ranks; i++) {
        first += rank[i] == 1;
        reciprocal += 1 / (double)rank[i];
        gain += 1 / log2(1 + (double)rank[i]);
    }
    assert_int_equal(found.n_anchors, n_ranks);
    assert_int_equal(found.n_candidates, candidates);
    if (!(fabs(found.accuracy_at_1 - first / n_ranks) < 1e-9 && fabs(found.mrr_at_10 - reciprocal / n_ranks) < 1e-9 &&
          fabs(found.ndcg_at_10 - gain / n_ranks) < 1e-9))
        fail_msg("%s: accuracy %g, MRR %g, nDCG %g", what, found.accuracy_at_1, found.mrr_at_10, found.ndcg_at_10);
}

UNIT_TEST(ranks_of_positives) {
    const point two[] = {{1, 1, {1, 0, 0}}, {2, -1, {0.9f, 0, 0}}, {3, -1, {0.5f, 0, 0}},
                         {4, 4, {0, 1, 0}}, {5, -1, {0, 0.2f, 0}}, {6, -1, {0, 0.3f, 0}}};
    expect_ranks("a hard negative before the second positive", two, 6, 4, (int[]){1, 2}, 2);
    const point equal[] = {{1, 1, {1, 0, 0}}, {2, -1, {1, 0, 0}}, {3, 3, {1, 0, 0}}, {4, -1, {1, 0, 0}}};
    expect_ranks("a model that gives all texts one vector", equal, 4, 2, (int[]){2, 2}, 2);
    const point again[] = {
        {1, 1, {1, 0, 0}}, {2, -1, {0.9f, 0, 0}}, {3, 3, {0, 1, 0}}, {2, -1, {0.9f, 0, 0}}, {4, -1, {0, 0.5f, 0}}};
    expect_ranks("equal candidates", again, 5, 2, (int[]){1, 2}, 2);
    const point twice[] = {
        {1, 1, {1, 0, 0}}, {2, -1, {0.9f, 0, 0}}, {1, 3, {1, 0, 0}}, {3, -1, {0.8f, 0, 0}}, {4, -1, {0.7f, 0, 0}}};
    expect_ranks("two positives of an anchor", twice, 5, 3, (int[]){1, 1}, 2);
    const point bad[] = {{1, 1, {1, 0, 0}}, {2, -1, {1, 0, 0}}, {3, -1, {NAN, 0, 0}}};
    expect_ranks("a vector that is not finite", bad, 3, 2, (int[]){2}, 1);
}

UNIT_TEST(ranks_beyond_ten_count_nothing) {
    point p[13] = {{1, 1, {1, 0, 0}}, {2, -1, {0, 1, 0}}};
    for (int i = 2; i < 13; i++) p[i] = (point){i + 1, -1, {0.5f, 0, 0}};
    const ht_retrieval found = rank_points(p, 13);
    assert_true(found.accuracy_at_1 == 0 && found.mrr_at_10 == 0 && found.ndcg_at_10 == 0);
    assert_true(rank_points(p, 11).mrr_at_10 == 0.1);
}

/* ---- samples ---- */

static const ht_sample_options pairs = {.method = HT_METHOD_EMBED, .path = "pairs.jsonl", .line = 3};

static void expect_texts(ht_model *m, const char *line, int n_texts, const char *texts) {
    ht_sample s;
    char found[256] = "";
    assert_works(ht_sample_read, m, line, strlen(line), &pairs, &s);
    assert_int_equal(s.form, HT_SAMPLE_PAIR);
    assert_int_equal(s.n_texts, n_texts);
    for (int32_t t = 0; t < s.n_texts; t++)
        for (int32_t i = s.begin[t]; i < s.begin[t + 1]; i++) {
            const size_t used = strlen(found);
            (void)snprintf(found + used, sizeof found - used, "%s%d",
                           i > s.begin[t] ? ","
                           : t            ? " | "
                                          : "",
                           (int)s.id[i]);
            assert_int_equal(s.learned[i], t == 1);
        }
    assert_string_equal(found, texts);
    ht_sample_free(&s);
}

UNIT_TEST(forms_of_pairs) {
    expect_texts(encoder, "{\"anchor\": [1, 2], \"positive\": [3]}", 2, "1,2 | 3");
    expect_texts(encoder, "{\"query\": [1], \"positive\": [3], \"id\": 7}", 2, "1 | 3");
    expect_texts(encoder, "{\"sentence1\": [1], \"sentence2\": [3]}", 2, "1 | 3");
    expect_texts(encoder, "{\"anchor\": [1], \"positive\": [3], \"negative\": [4, 5]}", 3, "1 | 3 | 4,5");
    expect_texts(encoder, "{\"anchor\": [1], \"positive\": [3], \"negatives\": [[4], [5, 6]]}", 4, "1 | 3 | 4 | 5,6");
    expect_texts(encoder, "{\"anchor\": [1], \"positive\": [3], \"negatives\": []}", 2, "1 | 3");
    expect_texts(encoder, "{\"query\": [1], \"positive\": [3], \"negative_1\": [4], \"negative_2\": [5]}", 4,
                 "1 | 3 | 4 | 5");
    ht_model *m = tiny_load(&(tiny_options){0});
    ht_sample s;
    const char *line = "{\"query\": \"ab\", \"positive\": \"c\", \"negative\": [\"d\"]}";
    int32_t *ids;
    size_t n;
    assert_works(ht_sample_read, m, line, strlen(line), &pairs, &s);
    assert_works(ht_tokenizer_encode, m->tokenizer, "ab", 2, HT_ENCODE_ADD_SPECIAL, &ids, &n);
    assert_int_equal(s.n_texts, 3);
    assert_int_equal(s.begin[1], (int)n);
    assert_memory_equal(s.id, ids, n * sizeof *ids);
    ht_ids_free(ids);
    ht_sample_free(&s);
    ht_model_free(m);
}

UNIT_TEST(lines_that_are_no_pairs) {
    static const struct {
        ht_status status;
        const char *line, *message;
    } bad[] = {
        {HT_ERR_FORMAT, "{\"anchor\": [1]}", "pairs.jsonl: line 3, column 1: `positive` is missing, expected a text"},
        {HT_ERR_FORMAT, "{\"text\": \"a\"}", "`anchor` is missing"},
        {HT_ERR_FORMAT, "{\"anchor\": [1], \"positive\": []}", "`positive` is an array of 0, expected a text"},
        {HT_ERR_FORMAT, "{\"anchor\": [1], \"positive\": [64]}", "id 0 is 64, expected 0 to 63"},
        {HT_ERR_FORMAT, "{\"anchor\": [1], \"positive\": [2], \"negatives\": [3.5]}", "expected a text"},
        {HT_ERR_UNSUPPORTED, "{\"sentence1\": [1], \"sentence2\": [2], \"score\": 0.5}", "it has a `score`"},
        {HT_ERR_UNSUPPORTED, "{\"anchor\": \"a\", \"positive\": [2]}", "tokenizer"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ht_sample s;
        assert_fails(bad[i].status, bad[i].message, ht_sample_read, encoder, bad[i].line, strlen(bad[i].line), &pairs,
                     &s);
        assert_null(s.id);
        assert_null(s.begin);
    }
}

/* Special ids at the end stay. */
UNIT_TEST(truncated_texts) {
    ht_sample s;
    const char *line = "{\"anchor\": [1, 2, 3, 4, 9], \"positive\": [5, 9], \"negative\": [6, 7, 8, 9]}";
    static const int32_t whole[] = {1, 2, 3, 5, 9, 6, 7, 8}, with_tail[] = {1, 2, 9, 5, 9, 6, 7, 9};
    for (int tail = 0; tail < 2; tail++) {
        assert_works(ht_sample_read, encoder, line, strlen(line), &pairs, &s);
        assert_int_equal(s.n_tail, 0);
        s.n_tail = tail;
        assert_int_equal(ht_sample_length(&s), 5);
        ht_sample_truncate(encoder, &s, 5);
        assert_false(s.truncated);
        ht_sample_truncate(encoder, &s, 3);
        assert_true(s.truncated);
        assert_int_equal(s.n, 8);
        assert_memory_equal(s.id, tail ? with_tail : whole, sizeof whole);
        assert_memory_equal(s.begin, ((int32_t[]){0, 3, 5, 8}), 4 * sizeof *s.begin);
        assert_int_equal(s.n_learned, 2);
        assert_true(s.learned[3] && s.learned[4] && !s.learned[5]);
        ht_sample_free(&s);
    }
}

/* ---- errors ---- */

UNIT_TEST(bad_options) {
    ht_trainer_options o = basic(write_pairs("options.jsonl", 5, 9));
    ht_trainer *t;
    o.temperature = 0;
    assert_fails(HT_ERR_ARGUMENT, "a temperature of 0, expected more than 0", ht_trainer_new, encoder, &o, &t);
    o.temperature = 0.05;
    o.method = (ht_train_method)7;
    assert_fails(HT_ERR_ARGUMENT, "there is no method 7", ht_trainer_new, encoder, &o, &t);
    o.method = HT_METHOD_SFT;
    assert_fails(HT_ERR_UNSUPPORTED, "text encoder", ht_trainer_new, encoder, &o, &t);
    o.method = HT_METHOD_EMBED;
    encoder->config->pooling = "max";
    assert_fails(HT_ERR_UNSUPPORTED, "the checkpoint's pooling is `max`", ht_trainer_new, encoder, &o, &t);
    encoder->config->pooling = "";
    scratch_write("alone.jsonl", "{\"anchor\": [1], \"positive\": [2]}\n", 33);
    o.data = scratch_path("alone.jsonl");
    o.batch = 1;
    assert_fails(HT_ERR_ARGUMENT, "a batch of 1 has no candidate but the positive", ht_trainer_new, encoder, &o, &t);
}

UNIT_TEST(bad_batches) {
    static const int32_t ids[] = {5, 9, 4, 7}, pos[] = {0, 0, 0, 0}, start[] = {0, 1, 2, 3, 4};
    ht_trainable *t;
    ht_array *loss, *grads[64];
    assert_works(ht_trainable_new, encoder, OPTIONS_AT(ht_lora_options, with.targets = "query"), &t);
    assert_in_range(ht_trainable_count(t), 1, 64);
    ht_scope *s = ht_scope_new(encoder->stream);
    ht_train_batch b = {
        .n_tok = 4, .n_seq = 4, .id = ids, .pos = pos, .seq_start = start, .n_learned = 2, .temperature = 1};
    b.match = (const int32_t[]){1, -1, 3, -1};
    assert_works(ht_trainable_gradients, t, s, &b, HT_NONE, false, &loss, grads);
    b.match = (const int32_t[]){2, -1, 3, -1};
    assert_fails(HT_ERR_ARGUMENT, "the positive of anchor 0 is 2, which is no candidate", ht_trainable_gradients, t, s,
                 &b, HT_NONE, false, &loss, grads);
    b.match = (const int32_t[]){1, -1, 4, -1};
    assert_fails(HT_ERR_ARGUMENT, "the positive of anchor 2 is 4", ht_trainable_gradients, t, s, &b, HT_NONE, false,
                 &loss, grads);
    b.match = (const int32_t[]){1, -1, -1, -1};
    assert_fails(HT_ERR_ARGUMENT, "a batch of 2 anchors has 1", ht_trainable_gradients, t, s, &b, HT_NONE, false, &loss,
                 grads);
    b.n_learned = 1;
    b.temperature = 0;
    assert_fails(HT_ERR_ARGUMENT, "a temperature of 0", ht_trainable_gradients, t, s, &b, HT_NONE, false, &loss, grads);
    ht_scope_free(s);
    ht_trainable_free(t);
}

static int open_models(void **state) {
    scratch_start(state);
    encoder = load("tests/golden/encoders/bert", 2);
    alone = load("tests/golden/encoders/bert", 1);
    decoder = load("tests/golden/families/olmo2", 2);
    return 0;
}

static int close_models(void **state) {
    ht_model_free(encoder);
    ht_model_free(alone);
    ht_model_free(decoder);
    return scratch_finish(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_to_find_held_out_positives),
        cmocka_unit_test(the_same_bits_on_any_threads),
        cmocka_unit_test(resumes_with_the_same_bits),
        cmocka_unit_test(vectors_are_those_of_embed),
        cmocka_unit_test(a_decoder_learns),
        cmocka_unit_test(ranks_of_positives),
        cmocka_unit_test(ranks_beyond_ten_count_nothing),
        cmocka_unit_test(forms_of_pairs),
        cmocka_unit_test(lines_that_are_no_pairs),
        cmocka_unit_test(truncated_texts),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(bad_batches),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
