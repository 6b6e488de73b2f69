/* Importance weights: against float32 transformers (tests/golden/make_importance.py), the same bits for any number of threads, both
 * forms of files, sums of several, and what is refused. */
#include "base/pool.h"
#include "formats/importance.h"
#include "formats/json.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/gguf_writer.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_model *load(const char *name, ht_precision precision, int n_threads) {
    return tiny_checkpoint_load(name, n_threads,
                                OPTIONS_AT(ht_model_options, with.precision = precision,
                                           with.kv_dtype = precision == HT_PRECISION_REFERENCE ? HT_F32 : HT_F16));
}

static ht_importance *gather(ht_model *m, const int32_t *ids, size_t n, ht_importance_options o) {
    ht_importance *i;
    assert_works(ht_importance_gather_ids, m, ids, n, &o, &i);
    return i;
}

static ht_importance_entry entry_of(const ht_importance *i, const char *name) {
    const ht_importance_info info = ht_importance_get_info(i);
    for (int64_t k = 0; k < info.n_entries; k++) {
        const ht_importance_entry e = ht_importance_entry_at(i, k);
        if (strcmp(e.name, name) == 0) return e;
    }
    fail_msg("there is no entry %s", name);
    abort();
}

/* ---- golden ---- */

/* Differences of sums in another order, in units of a matrix's largest value. */
static const double tolerance = 2e-5;

static double check_entry(const ht_importance *i, const char *name, const ht_json *expected, int64_t stride) {
    const int64_t n = ht_json_integer_value(ht_json_object_get(expected, "columns"));
    const ht_json *counts = ht_json_object_get(expected, "count");
    const ht_importance_entry e = entry_of(i, name);
    assert_int_equal(e.n_columns, n);
    assert_int_equal(e.n_experts, ht_json_array_size(counts));
    double most = 0, largest = 0;
    for (int64_t x = 0; x < e.n_experts; x++) {
        const float *mean = ht_importance_find(i, name, n, x);
        const ht_json *kept = ht_json_array_get(ht_json_object_get(expected, "kept"), (size_t)x);
        assert_non_null(mean);
        assert_true(e.count[x] == (double)ht_json_integer_value(ht_json_array_get(counts, (size_t)x)));
        if (e.count[x] == 0) {
            for (int64_t c = 0; c < n; c++) assert_true(mean[c] == 1);
            continue;
        }
        double total = 0;
        for (int64_t c = 0; c < n; c++) {
            total += (double)mean[c];
            largest = fmax(largest, (double)mean[c]);
            if (c % stride) continue;
            const double off =
                fabs((double)mean[c] - ht_json_number_value(ht_json_array_get(kept, (size_t)(c / stride))));
            most = off > most || isnan(off) ? off : most;
        }
        const double wanted = ht_json_number_value(ht_json_array_get(ht_json_object_get(expected, "total"), (size_t)x));
        assert_true(wanted > 0 && fabs(total - wanted) <= tolerance * wanted);
    }
    assert_true(largest > 0);
    return most / largest;
}

static void check_case(const ht_json *c, int64_t stride) {
    const char *checkpoint = ht_json_string_value(ht_json_object_get(c, "checkpoint")), *name;
    const ht_json *list = ht_json_object_get(c, "ids");
    ht_json *entries = ht_json_object_get(c, "entries"), *expected;
    const size_t n = ht_json_array_size(list);
    int32_t *ids = json_ids(list);
    ht_model *m = load(checkpoint, HT_PRECISION_REFERENCE, 2);
    const int32_t window = (int32_t)ht_json_integer_value(ht_json_object_get(c, "window"));
    ht_importance *i = gather(m, ids, n, OPTIONS(ht_importance_options, with.window = window));
    const ht_importance_info info = ht_importance_get_info(i);
    assert_int_equal(info.n_chunks, ht_json_integer_value(ht_json_object_get(c, "windows")));
    assert_int_equal(info.chunk_tokens, window);
    assert_int_equal(info.n_entries, ht_json_object_size(entries));
    double most = 0;
    ht_json_object_foreach(entries, name, expected) most = fmax(most, check_entry(i, name, expected, stride));
    print_message("%s: %.2g of the largest, %zu entries\n", checkpoint, most, ht_json_object_size(entries));
    if (!(most <= tolerance)) fail_msg("%s: differs by %g of the largest value", checkpoint, most);
    ht_importance_free(i);
    ht_model_free(m);
    free(ids);
}

UNIT_TEST(against_transformers) {
    ht_json *document = json_file("tests/golden/importance.json"), *cases, *c;
    size_t i;
    cases = ht_json_object_get(document, "cases");
    assert_true(ht_json_array_size(cases) >= 15);
    ht_json_array_foreach(cases, i, c) check_case(c, ht_json_integer_value(ht_json_object_get(document, "stride")));
    ht_json_decref(document);
}

/* ---- bits ---- */

enum { N = 200 };

static void fill_ids(int32_t *ids, int n) {
    for (int i = 0; i < n; i++) ids[i] = i * 37 % 53 + i % 3;
}

static void assert_same(const ht_importance *a, const ht_importance *b) {
    const int64_t n = ht_importance_get_info(a).n_entries;
    assert_int_equal(n, ht_importance_get_info(b).n_entries);
    for (int64_t k = 0; k < n; k++) {
        const ht_importance_entry x = ht_importance_entry_at(a, k), y = ht_importance_entry_at(b, k);
        assert_string_equal(x.name, y.name);
        assert_int_equal(x.n_columns, y.n_columns);
        assert_int_equal(x.n_experts, y.n_experts);
        assert_memory_equal(x.sum, y.sum, (size_t)(x.n_columns * x.n_experts) * sizeof *x.sum);
        assert_memory_equal(x.count, y.count, (size_t)x.n_experts * sizeof *x.count);
    }
}

/* The number of threads, a model used before, and the device's own step change no bit. */
UNIT_TEST(same_bits) {
    static const char *const names[] = {"qwen3-moe-f32",   "gemma4-experts-bf16", "gemma4-shared-bf16",
                                        "llama-q4_1.gguf", "qwen3-moe-q4_1.gguf", "mistral-sliding-f32"};
    int32_t ids[N];
    fill_ids(ids, N);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        ht_model *one = load(names[k], HT_PRECISION_HIGH, 1), *four = load(names[k], HT_PRECISION_HIGH, 4);
        const ht_importance_options o = OPTIONS(ht_importance_options, with.window = 90);
        ht_importance *a = gather(one, ids, N, o), *b = gather(four, ids, N, o), *again = gather(four, ids, N, o);
        assert_same(a, b);
        assert_same(b, again);
        ht_importance_free(a);
        ht_importance_free(b);
        ht_importance_free(again);
        ht_model_free(one);
        ht_model_free(four);
    }
}

/* Gate and up experts in one tensor of a GGUF file have one entry, by its name, which is found by those of both. */
UNIT_TEST(fused_experts) {
    int32_t ids[N];
    fill_ids(ids, N);
    ht_model *fused = load("gemma4-experts-q8_0.gguf", HT_PRECISION_REFERENCE, 2);
    ht_importance *i = gather(fused, ids, 40, DEFAULTS(ht_importance_options));
    const ht_importance_info info = ht_importance_get_info(i);
    bool split = false, joined = false;
    for (int64_t k = 0; k < info.n_entries; k++) {
        split = split || strstr(ht_importance_entry_at(i, k).name, "ffn_gate_exps") != NULL;
        joined = joined || strstr(ht_importance_entry_at(i, k).name, "ffn_gate_up_exps") != NULL;
    }
    assert_true(joined && !split);
    const int64_t columns = entry_of(i, "blk.0.attn_q.weight").n_columns;
    const float *gate = ht_importance_find(i, "blk.0.ffn_gate_exps.weight", columns, 1);
    assert_non_null(gate);
    const float *up = ht_importance_find(i, "blk.0.ffn_up_exps.weight", columns, 1);
    const float *both = ht_importance_find(i, "blk.0.ffn_gate_up_exps.weight", columns, 1);
    assert_true(up && both);
    assert_memory_equal(gate, up, (size_t)columns * sizeof *gate);
    assert_memory_equal(gate, both, (size_t)columns * sizeof *gate);
    ht_importance_free(i);
    ht_model_free(fused);
}

/* ---- chunks and sums ---- */

UNIT_TEST(chunks) {
    ht_model *m = tiny_load(&(tiny_options){.context = 256});
    int32_t ids[N];
    tiny_ids(ids, N, 3);
    static const struct {
        int32_t window;
        int64_t skip, most, n, tokens;
    } cases[] = {
        {66, 0, 0, 3, 198},                      /* and 2, which are left out */
        {150, 0, 0, 1, 150}, {80, 0, 0, 3, 200}, /* and 40, which are half */
        {0, 0, 0, 1, 200},   {50, 1, 0, 3, 150}, {50, 1, 2, 2, 100}, {50, 0, 9, 4, 200},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ht_importance *i = gather(m, ids, N,
                                  OPTIONS(ht_importance_options, with.window = cases[k].window,
                                          with.skip_chunks = cases[k].skip, with.max_chunks = cases[k].most));
        assert_int_equal(ht_importance_get_info(i).n_chunks, cases[k].n);
        assert_true(entry_of(i, "blk.0.attn_q.weight").count[0] == (double)cases[k].tokens);
        ht_importance_free(i);
    }
    ht_model_free(m);
}

static void check_close(const ht_importance *a, const ht_importance *b) {
    for (int64_t k = 0; k < ht_importance_get_info(a).n_entries; k++) {
        const ht_importance_entry x = ht_importance_entry_at(a, k), y = entry_of(b, x.name);
        assert_memory_equal(x.count, y.count, (size_t)x.n_experts * sizeof *x.count);
        for (int64_t c = 0; c < x.n_columns * x.n_experts; c++)
            assert_true(fabs((double)(x.sum[c] - y.sum[c])) <= 1e-6 * (double)x.sum[c]);
    }
}

/* Parts of a text add up to the whole, in one call, in several, and when they have been in a file. */
UNIT_TEST(parts) {
    ht_model *m = load("qwen3-moe-f32", HT_PRECISION_HIGH, 2);
    int32_t ids[N];
    fill_ids(ids, N);
    ht_importance *all = gather(m, ids, N, OPTIONS(ht_importance_options, with.window = 50, with.dataset = "text"));
    ht_importance *first =
        gather(m, ids, N, OPTIONS(ht_importance_options, with.window = 50, with.max_chunks = 1, with.dataset = "text"));
    ht_importance *rest = gather(m, ids, N, OPTIONS(ht_importance_options, with.window = 50, with.skip_chunks = 1));
    ht_importance *sum, *read;
    assert_works(ht_importance_merge, (const ht_importance *[]){first, rest}, 2, &sum);
    check_close(all, sum);
    assert_int_equal(ht_importance_get_info(sum).n_chunks, 4);
    assert_int_equal(ht_importance_get_info(sum).n_datasets, 1);
    assert_works(ht_importance_save, first, scratch_path("first.gguf"));
    assert_works(ht_importance_load, scratch_path("first.gguf"), &read);
    assert_same(first, read);
    const ht_importance *from[] = {read};
    ht_importance *more = gather(m, ids, N,
                                 OPTIONS(ht_importance_options, with.window = 50, with.skip_chunks = 1,
                                         with.from = from, with.n_from = 1, with.dataset = "text"));
    check_close(all, more);
    const ht_importance_info info = ht_importance_get_info(more);
    assert_int_equal(info.n_chunks, 4);
    assert_int_equal(info.n_datasets, 1); /* named twice */
    assert_string_equal(info.datasets[0], "text");
    ht_importance *const made[] = {all, first, rest, sum, read, more};
    for (size_t k = 0; k < sizeof made / sizeof *made; k++) ht_importance_free(made[k]);
    ht_model_free(m);
}

typedef struct kept {
    ht_importance *last; /* a copy of what there was */
    int calls, stop_at;
} kept;

static bool keep(const ht_importance *i, void *user) {
    kept *k = user;
    ht_importance_free(k->last);
    assert_works(ht_importance_merge, &i, 1, &k->last);
    return ++k->calls != k->stop_at;
}

/* What there is after some chunks is what these give by themselves, to the bit. */
UNIT_TEST(so_far) {
    ht_model *m = load("qwen3-moe-f32", HT_PRECISION_HIGH, 2);
    int32_t ids[N];
    fill_ids(ids, N);
    ht_importance *four = gather(m, ids, N, OPTIONS(ht_importance_options, with.window = 40, with.max_chunks = 4)), *i;
    kept k = {0};
    ht_importance_options o =
        OPTIONS(ht_importance_options, with.window = 40, with.so_far = keep, with.so_far_chunks = 2, with.user = &k);
    ht_importance_free(gather(m, ids, N, o));
    assert_int_equal(k.calls, 2); /* of five chunks */
    assert_same(k.last, four);
    assert_int_equal(ht_importance_get_info(k.last).n_chunks, 4);
    k.stop_at = 3;
    assert_fails(HT_ERR_CANCELLED, "", ht_importance_gather_ids, m, ids, N, &o, &i);
    assert_null(i);
    o.max_chunks = 2; /* the last one is the result's */
    ht_importance_free(gather(m, ids, N, o));
    assert_int_equal(k.calls, 3);
    ht_importance_free(k.last);
    ht_importance_free(four);
    ht_model_free(m);
}

/* An adapter changes what layers behind the first meet, and nothing before it. */
UNIT_TEST(with_adapter) {
    ht_model *m = load("llama-f32", HT_PRECISION_HIGH, 2);
    ht_adapter *a = test_adapter_for(m, 2, 1, 5);
    int32_t ids[N];
    fill_ids(ids, N);
    ht_importance *plain = gather(m, ids, N, DEFAULTS(ht_importance_options));
    ht_importance *adapted = gather(m, ids, N, OPTIONS(ht_importance_options, with.adapters = &a, with.n_adapters = 1));
    const ht_importance_entry q = entry_of(plain, "blk.0.attn_q.weight"), same = entry_of(adapted, q.name);
    const ht_importance_entry o = entry_of(plain, "blk.0.attn_output.weight"), other = entry_of(adapted, o.name);
    assert_memory_equal(q.sum, same.sum, (size_t)q.n_columns * sizeof *q.sum);
    assert_memory_not_equal(o.sum, other.sum, (size_t)o.n_columns * sizeof *o.sum);
    ht_importance_free(plain);
    ht_importance_free(adapted);
    ht_adapter_free(a);
    ht_model_free(m);
}

/* ---- names ---- */

static ht_importance *of_names(const char *const *names, size_t n) {
    ht_importance *i;
    ht_importance_row *row;
    assert_works(ht_importance_new, n, &i);
    for (size_t k = 0; k < n; k++) {
        assert_works(ht_importance_add, i, names[k], strlen(names[k]), 2, 1, &row);
        row->count[0] = 1;
        row->sum[0] = (float)k;
    }
    assert_works(ht_importance_seal, i);
    return i;
}

/* The entry of a name, by its number; -1: none. */
static int found(const ht_importance *i, const char *name) {
    const float *mean = ht_importance_find(i, name, 2, 0);
    return mean ? (int)mean[0] : -1;
}

/* Matrices of the same inputs are found by each other's names, and no others. */
UNIT_TEST(other_names) {
    ht_importance *split = of_names((const char *const[]){"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                                          "token_embd.weight", "blk.10.ffn_gate_up_exps.weight"},
                                    4);
    assert_int_equal(found(split, "blk.0.ffn_gate_exps.weight"), 0);
    assert_int_equal(found(split, "blk.0.ffn_up_exps.weight"), 1);
    assert_int_equal(found(split, "blk.0.ffn_gate_up_exps.weight"), 0);
    assert_int_equal(found(split, "blk.10.ffn_gate_exps.weight"), 3);
    assert_int_equal(found(split, "blk.10.ffn_up_exps.weight"), 3);
    assert_int_equal(found(split, "output.weight"), 2);
    assert_int_equal(found(split, "token_embd.weight"), 2);
    static const char *const none[] = {"blk.0.attn_output.weight",
                                       "blk.0.output.weight",
                                       "blk.0.ffn_down_exps.weight",
                                       "blk.1.ffn_gate_exps.weight",
                                       "ffn_gate_exps.weight",
                                       "output",
                                       ""};
    for (size_t k = 0; k < sizeof none / sizeof *none; k++) assert_int_equal(found(split, none[k]), -1);
    /* Added up with what another file has in one tensor, gate and up get its inputs both. */
    ht_importance *joined = of_names((const char *const[]){"x", "y", "z", "w", "blk.0.ffn_gate_up_exps.weight"}, 5),
                  *sum;
    for (int turned = 0; turned < 2; turned++) {
        const ht_importance *both[] = {turned ? joined : split, turned ? split : joined};
        assert_works(ht_importance_merge, both, 2, &sum);
        assert_int_equal(ht_importance_get_info(sum).n_entries, 8);
        assert_true(entry_of(sum, "blk.0.ffn_gate_exps.weight").sum[0] == 0 + 4);
        assert_true(entry_of(sum, "blk.0.ffn_up_exps.weight").sum[0] == 1 + 4);
        assert_true(entry_of(sum, "blk.0.ffn_up_exps.weight").count[0] == 2);
        assert_int_equal(found(sum, "blk.0.ffn_gate_up_exps.weight"), 2);
        ht_importance_free(sum);
    }
    ht_importance_free(joined);
    ht_importance *head = of_names((const char *const[]){"output.weight"}, 1);
    assert_int_equal(found(head, "output.weight"), 0);
    assert_int_equal(found(head, "token_embd.weight"), -1); /* an embedding of its own has rows looked up alone */
    ht_importance_free(split);
    ht_importance_free(head);
}

/* ---- the older form ---- */

typedef struct bytes {
    unsigned char at[4096];
    size_t n;
} bytes;

static void put(bytes *b, const void *from, size_t n) {
    assert_true(b->n + n <= sizeof b->at);
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void put_number(bytes *b, int32_t n) {
    for (int k = 0; k < 4; k++) put(b, &(unsigned char){(unsigned char)((uint32_t)n >> 8 * k)}, 1);
}

static void put_older(bytes *b, const char *name, int32_t calls, const float *values, int32_t n) {
    put_number(b, (int32_t)strlen(name));
    put(b, name, strlen(name));
    put_number(b, calls);
    put_number(b, n);
    put(b, values, (size_t)n * sizeof *values);
}

static bytes older_file(void) {
    bytes b = {.n = 0};
    put_number(&b, 3);
    put_older(&b, "blk.0.attn_q.weight", 4, (float[]){4, 8, 2, 0}, 4);
    put_older(&b, "blk.0.ffn_down_exps.weight", 2, (float[]){2, 4, 6, 8, 10, 12}, 6);
    put_older(&b, "blk.1.attn_q.weight", 0, (float[]){0.5F, 1.5F}, 2);
    put_number(&b, 4);
    put_number(&b, 8);
    put(&b, "wiki.txt", 8);
    return b;
}

UNIT_TEST(older_form) {
    const bytes b = older_file();
    ht_importance *i;
    scratch_write("old.dat", b.at, b.n);
    assert_works(ht_importance_load, scratch_path("old.dat"), &i);
    const ht_importance_info info = ht_importance_get_info(i);
    assert_int_equal(info.n_entries, 3);
    assert_int_equal(info.n_chunks, 4);
    assert_string_equal(info.datasets[0], "wiki.txt");
    const float *q = ht_importance_find(i, "blk.0.attn_q.weight", 4, 0);
    assert_true(q[0] == 1 && q[1] == 2 && q[2] == 0.5F && q[3] == 0);
    assert_true(entry_of(i, "blk.0.attn_q.weight").count[0] == 4 * 512);
    /* The file has the columns of all experts in a row, and does not say how many experts. */
    const float *down = ht_importance_find(i, "blk.0.ffn_down_exps.weight", 2, 2);
    assert_true(down[0] == 5 && down[1] == 6);
    assert_null(ht_importance_find(i, "blk.0.ffn_down_exps.weight", 2, 3));
    assert_works(ht_importance_check, i, "blk.0.ffn_down_exps.weight", 2, 3);
    assert_fails(HT_ERR_ARGUMENT, "", ht_importance_check, i, "blk.0.ffn_down_exps.weight", 2, 2);
    const float *plain = ht_importance_find(i, "blk.1.attn_q.weight", 2, 0);
    assert_true(plain[0] == 0.5F && plain[1] == 1.5F);
    /* Written and read again, it says the same. */
    ht_importance *again;
    assert_works(ht_importance_save, i, scratch_path("new.gguf"));
    assert_works(ht_importance_load, scratch_path("new.gguf"), &again);
    assert_same(i, again);
    assert_true(ht_importance_find(again, "blk.0.ffn_down_exps.weight", 2, 2)[1] == 6);
    ht_importance_free(again);
    ht_importance_free(i);
}

/* A row with one count for all experts is added to one that has a count for each. */
UNIT_TEST(older_and_newer) {
    const bytes b = older_file();
    ht_importance *old, *fresh, *sum;
    ht_importance_row *row;
    assert_works(ht_importance_parse, b.at, b.n, "old", &old);
    assert_works(ht_importance_new, 1, &fresh);
    static const char name[] = "blk.0.ffn_down_exps.weight";
    assert_works(ht_importance_add, fresh, name, strlen(name), 2, 3, &row);
    row->sum[4] = 1024;
    row->count[2] = 1024;
    assert_works(ht_importance_seal, fresh);
    for (int turned = 0; turned < 2; turned++) {
        const ht_importance *both[] = {turned ? fresh : old, turned ? old : fresh};
        assert_works(ht_importance_merge, both, 2, &sum);
        const ht_importance_entry e = entry_of(sum, name);
        assert_int_equal(e.n_experts, 3);
        assert_true(e.count[0] == 1024 && e.count[1] == 1024 && e.count[2] == 2048);
        assert_true(ht_importance_find(sum, name, 2, 2)[0] == (5 * 1024 + 1024) / 2048.0F);
        assert_null(ht_importance_find(sum, name, 3, 0));
        ht_importance_free(sum);
    }
    ht_importance_free(old);
    ht_importance_free(fresh);
}

/* ---- damage ---- */

/* Parses a copy that ends where its memory ends, so that a reader that goes too far is seen by sanitizers. */
static ht_status parse(const unsigned char *data, size_t n, ht_error *err) {
    unsigned char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, data, n);
    ht_importance *i;
    const ht_status status = ht_importance_parse(copy, n, "file", &i, err);
    assert_true((i != NULL) == (status == HT_OK));
    if (status) assert_true(err->message[0] != '\0');
    ht_importance_free(i);
    free(copy);
    return status;
}

UNIT_TEST(damaged_older) {
    bytes b = older_file();
    const size_t end = b.n - 16; /* of the entries: what follows may be missing */
    for (size_t n = 0; n < b.n; n++) {
        ht_error err = {0};
        const ht_status status = parse(b.at, n, &err);
        assert_int_equal(status, n == end || n == end + 4 ? HT_OK : HT_ERR_FORMAT);
    }
    for (size_t at = 0; at < b.n; at++)
        for (int bit = 0; bit < 8; bit++) {
            ht_error err = {0};
            b.at[at] ^= (unsigned char)(1 << bit);
            parse(b.at, b.n, &err);
            b.at[at] ^= (unsigned char)(1 << bit);
        }
    static const int32_t huge[] = {-1, 0, INT32_MAX, INT32_MIN};
    for (size_t k = 0; k < sizeof huge / sizeof *huge; k++) { /* entries, the length of a name, and values */
        static const size_t places[] = {0, 4, 4 + 4 + 19 + 4};
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            bytes c = older_file();
            for (int i = 0; i < 4; i++) c.at[places[p] + (size_t)i] = (unsigned char)((uint32_t)huge[k] >> 8 * i);
            assert_fails(HT_ERR_FORMAT, "", parse, c.at, c.n);
        }
    }
}

UNIT_TEST(damaged_values) {
    const float wrong[] = {NAN, INFINITY, -1, 3e38F};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        bytes b = {.n = 0};
        put_number(&b, 1);
        put_older(&b, "blk.0.attn_q.weight", 1, (float[]){1, wrong[k]}, 2);
        assert_fails(HT_ERR_FORMAT, "blk.0.attn_q.weight", parse, b.at, b.n);
    }
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    assert_fails(HT_ERR_FORMAT, "git lfs pull", parse, (const unsigned char *)pointer, strlen(pointer));
    bytes b = {.n = 0};
    put_number(&b, 2);
    for (int k = 0; k < 2; k++) put_older(&b, "blk.0.attn_q.weight", 1, (float[]){1, 2}, 2);
    assert_fails(HT_ERR_FORMAT, "two entries", parse, b.at, b.n);
}

static gguf_writer begin_gguf(const char *type) {
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.type", type);
    gguf_put_strs(&w, "imatrix.datasets", (const char *const[]){"a.txt", "b.txt"}, 2);
    gguf_put_u32(&w, "imatrix.chunk_count", 7);
    gguf_put_u32(&w, "imatrix.chunk_size", 64);
    return w;
}

static ht_status parse_gguf(gguf_writer *w, ht_error *err) {
    size_t n;
    unsigned char *file = gguf_finish(w, &n);
    const ht_status status = parse(file, n, err);
    free(file);
    return status;
}

/* Weights do not depend on the scale of the sums, in threads that flush denormals neither. */
UNIT_TEST(weights_of_any_scale) {
    static const float sums[] = {3, 0, 1024, 500, 7}, scales[] = {1, 0x1p-147F, 0x1p-130F, 0x1p110F};
    float want[5], weight[5];
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
        ht_importance *i;
        ht_importance_row *row;
        assert_works(ht_importance_new, 1, &i);
        assert_works(ht_importance_add, i, "a", 1, 5, 1, &row);
        row->count[0] = 1000;
        for (int c = 0; c < 5; c++) row->sum[c] = sums[c] * scales[k];
        assert_works(ht_importance_seal, i);
        const unsigned denormals = ht_flush_denormals();
        assert_true(ht_importance_weigh(i, "a", 5, 0, weight));
        ht_restore_denormals(denormals);
        if (k == 0) memcpy(want, weight, sizeof want);
        assert_memory_equal(weight, want, sizeof want);
        assert_true(weight[1] == 1e-3F);
        ht_importance_free(i);
    }
}

static void refuses_gguf(gguf_writer w, const char *what) { assert_fails(HT_ERR_FORMAT, what, parse_gguf, &w); }

UNIT_TEST(damaged_gguf) {
    const float sums[] = {2, 4, 6, 8, 10, 12}, counts[] = {2, 0, 4};
    gguf_writer w = begin_gguf("imatrix");
    gguf_put_tensor(&w, "blk.0.ffn_down_exps.weight.in_sum2", HT_W_F32, 2, (int64_t[]){2, 3}, sums);
    gguf_put_tensor(&w, "blk.0.ffn_down_exps.weight.counts", HT_W_F32, 2, (int64_t[]){1, 3}, counts);
    size_t n;
    unsigned char *file = gguf_finish(&w, &n);
    ht_error err = {0};
    ht_importance *i;
    assert_works(ht_importance_parse, file, n, "file", &i);
    const ht_importance_info info = ht_importance_get_info(i);
    assert_true(info.n_chunks == 7 && info.chunk_tokens == 64 && info.n_datasets == 2);
    const float *chosen = ht_importance_find(i, "blk.0.ffn_down_exps.weight", 2, 2);
    const float *never = ht_importance_find(i, "blk.0.ffn_down_exps.weight", 2, 1);
    assert_true(chosen[0] == 2.5F && chosen[1] == 3 && never[0] == 1 && never[1] == 1);
    float weight[2] = {0};
    assert_true(ht_importance_weigh(i, "blk.0.ffn_down_exps.weight", 2, 2, weight));
    assert_true(fabsf(weight[0] - 10 / 11.0F) < 1e-6F && fabsf(weight[1] - 12 / 11.0F) < 1e-6F);
    assert_true(ht_importance_weigh(i, "blk.0.ffn_down_exps.weight", 2, 1, weight));
    assert_true(weight[0] == 1 && weight[1] == 1);
    assert_false(ht_importance_weigh(i, "blk.0.ffn_down_exps.weight", 2, 3, weight));
    assert_null(ht_importance_find(i, "blk.0.ffn_down_exps.weight", 3, 0));
    assert_null(ht_importance_find(i, "blk.0.ffn_down_exps.weight", 2, 3));
    assert_null(ht_importance_find(i, "blk.1.ffn_down_exps.weight", 2, 0));
    ht_importance_free(i);
    const size_t padding = 32 - sizeof counts; /* behind the last tensor: no reader needs it */
    for (size_t cut = 0; cut < n; cut++) assert_int_equal(parse(file, cut, &err) == HT_OK, cut >= n - padding);
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            file[at] ^= (unsigned char)(1 << bit);
            parse(file, n, &err);
            file[at] ^= (unsigned char)(1 << bit);
        }
    free(file);

    w = begin_gguf("adapter");
    gguf_put_tensor(&w, "a.in_sum2", HT_W_F32, 2, (int64_t[]){2, 1}, NULL);
    refuses_gguf(w, "general.type");
    w = begin_gguf("imatrix");
    refuses_gguf(w, "no importance weights");
    w = begin_gguf("imatrix");
    gguf_put_tensor(&w, "a.in_sum2", HT_W_F32, 2, (int64_t[]){2, 1}, NULL);
    refuses_gguf(w, "no counts");
    w = begin_gguf("imatrix");
    gguf_put_tensor(&w, "a.counts", HT_W_F32, 2, (int64_t[]){1, 1}, NULL);
    refuses_gguf(w, "no sums");
    w = begin_gguf("imatrix");
    gguf_put_tensor(&w, "a.in_sum2", HT_W_F16, 2, (int64_t[]){2, 1}, NULL);
    gguf_put_tensor(&w, "a.counts", HT_W_F32, 2, (int64_t[]){1, 1}, NULL);
    refuses_gguf(w, "expected F32");
    w = begin_gguf("imatrix");
    gguf_put_tensor(&w, "a.in_sum2", HT_W_F32, 1, (int64_t[]){5}, NULL);
    gguf_put_tensor(&w, "a.counts", HT_W_F32, 2, (int64_t[]){1, 2}, NULL);
    refuses_gguf(w, "no multiple");
    w = begin_gguf("imatrix");
    gguf_put_tensor(&w, "a.in_sum2", HT_W_F32, 2, (int64_t[]){1, 1}, &(float){1});
    gguf_put_tensor(&w, "a.counts", HT_W_F32, 2, (int64_t[]){1, 1}, &(float){-1});
    refuses_gguf(w, "sums of squares");
}

/* ---- what is refused ---- */

typedef struct call {
    const char *what;
    ht_status status;
    ht_importance_options o;
    size_t n;
} call;

UNIT_TEST(refuses) {
    ht_model *m = tiny_load(&(tiny_options){.context = 256}), *other = load("llama-f32", HT_PRECISION_HIGH, 1);
    int32_t ids[N];
    tiny_ids(ids, N, 3);
    ht_cancel cancel = {0};
    ht_cancel_request(&cancel);
    int32_t few[4] = {1, 2, 3, 4};
    ht_importance *foreign = gather(other, few, 4, DEFAULTS(ht_importance_options)), *i;
    const ht_importance *from[] = {foreign};
    const call calls[] = {
        {"context of 256", HT_ERR_LIMIT, OPTIONS(ht_importance_options, with.window = 257), N},
        {"2 or more", HT_ERR_ARGUMENT, OPTIONS(ht_importance_options, with.window = 1), N},
        {"negative", HT_ERR_ARGUMENT, OPTIONS(ht_importance_options, with.skip_chunks = -1), N},
        {"nothing to compute", HT_ERR_ARGUMENT, OPTIONS(ht_importance_options, with.skip_chunks = 1), N},
        {"nothing to compute", HT_ERR_ARGUMENT, OPTIONS(ht_importance_options, with.skip_chunks = INT64_MAX), N},
        {"nothing to compute", HT_ERR_ARGUMENT, DEFAULTS(ht_importance_options), 0},
        {"another model", HT_ERR_ARGUMENT, OPTIONS(ht_importance_options, with.from = from, with.n_from = 1), N},
        {"cancelled", HT_ERR_CANCELLED, OPTIONS(ht_importance_options, with.cancel = &cancel), N},
    };
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        assert_fails(calls[k].status, calls[k].what, ht_importance_gather_ids, m, ids, calls[k].n, &calls[k].o, &i);
        assert_null(i);
    }
    ids[7] = TINY_VOCAB;
    assert_fails(HT_ERR_ARGUMENT, "", ht_importance_gather_ids, m, ids, N, NULL, &i);
    assert_fails(HT_ERR_ARGUMENT, "", ht_importance_merge, from, 0, &i);
    assert_fails(HT_ERR_IO, "", ht_importance_load, scratch_path("missing"), &i);
    ht_importance_free(foreign);
    ht_importance_free(NULL);
    ht_model_free(m);
    ht_model_free(other);
}

UNIT_TEST(not_finite) {
    ht_model *m = tiny_load(&(tiny_options){.context = 256, .type = HT_W_F32, .nan_token = 65});
    ht_importance *i;
    const int32_t ids[] = {1, 2, 65, 3};
    assert_fails(HT_ERR_FORMAT, "blk.0.attn_q.weight", ht_importance_gather_ids, m, ids, 4, NULL, &i);
    assert_null(i);
    ht_model_free(m);
}

/* A text is its ids; BOS goes before every chunk of a checkpoint that asks for it. */
UNIT_TEST(texts) {
    static const char text[] = "The quick brown fox jumps over the lazy dog, and over it again.";
    ht_model *m = tiny_load(&(tiny_options){.context = 256});
    int32_t *ids;
    size_t n;
    assert_works(ht_tokenizer_encode, ht_model_tokenizer(m), text, strlen(text), 0, &ids, &n);
    ht_importance *of_text, *of_ids = gather(m, ids, n, OPTIONS(ht_importance_options, with.window = 20));
    const ht_importance_options o = OPTIONS(ht_importance_options, with.window = 20);
    assert_works(ht_importance_gather_text, m, text, strlen(text), &o, &of_text);
    assert_same(of_text, of_ids);
    ht_importance_free(of_text);
    ht_importance_free(of_ids);
    ht_ids_free(ids);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_transformers),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(fused_experts),
        cmocka_unit_test(chunks),
        cmocka_unit_test(parts),
        cmocka_unit_test(so_far),
        cmocka_unit_test(with_adapter),
        cmocka_unit_test(other_names),
        cmocka_unit_test(older_form),
        cmocka_unit_test(older_and_newer),
        cmocka_unit_test(damaged_older),
        cmocka_unit_test(damaged_values),
        cmocka_unit_test(weights_of_any_scale),
        cmocka_unit_test(damaged_gguf),
        cmocka_unit_test(refuses),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, scratch_start, scratch_finish);
}
