/* GGUF checkpoints in several files: found from any of them, checked against each other, the same model in the end. */
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "formats/gguf_set.h"
#include "support/gguf_writer.h"
#include "support/model_run.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char whole[] = "tests/golden/tiny/llama-q4_1.gguf";

/* What one part says of itself, and which tensors it takes. */
typedef struct plan {
    int n_parts;
    int no, count, total; /* of part 0, added to what is right */
    int twice;            /* a tensor of this number goes to part 0, too; -1: none */
    bool empty_first;     /* part 0 has no tensors of its own */
} plan;

static void put_value(gguf_writer *w, const ht_gguf_value *v) {
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)v->key.len, v->key.data);
    unsigned char bytes[4096];
    size_t n = 0;
    if (v->type == HT_GGUF_ARRAY) {
        bytes[0] = (unsigned char)v->item_type, bytes[1] = bytes[2] = bytes[3] = 0;
        for (int i = 0; i < 8; i++) bytes[4 + i] = (unsigned char)(v->n_items >> 8 * i);
        n = 12;
    }
    assert_true(n + v->items_bytes <= sizeof bytes);
    memcpy(bytes + n, v->items, v->items_bytes);
    gguf_put_raw(w, key, v->type, bytes, n + v->items_bytes);
}

static unsigned char *make_part(const ht_gguf *g, const plan *p, int part, size_t *size) {
    gguf_writer w = gguf_writer_new();
    int n_tensors = (int)ht_gguf_n_tensors(g), off = part ? 0 : 1;
    for (size_t i = 0; part == 0 && i < ht_gguf_n_values(g); i++) put_value(&w, ht_gguf_value_at(g, i));
    gguf_put_raw(&w, "split.no", HT_GGUF_U16, (uint8_t[]){(uint8_t)(part + off * p->no), 0}, 2);
    gguf_put_raw(&w, "split.count", HT_GGUF_U16, (uint8_t[]){(uint8_t)(p->n_parts + off * p->count), 0}, 2);
    gguf_put_i32(&w, "split.tensors.count", n_tensors + (p->twice >= 0) + off * p->total);
    for (int i = 0; i < n_tensors; i++) {
        const ht_gguf_tensor *t = ht_gguf_tensor_at(g, (size_t)i);
        int to = p->empty_first ? 1 + i % (p->n_parts - 1) : i % p->n_parts;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        if (to == part || (part == 0 && i == p->twice))
            gguf_put_tensor(&w, name, (ht_weight_type)t->type, t->n_dims, t->dims, t->data);
    }
    return gguf_finish(&w, size);
}

enum { MOST = 8 };
static unsigned char *parts[MOST];
static ht_gguf_source sources[MOST];

static void free_parts(void) {
    for (int i = 0; i < MOST; i++) {
        free(parts[i]);
        parts[i] = NULL;
    }
}

static void make_parts(const plan *p) {
    static const char *const names[] = {"part 1", "part 2", "part 3", "part 4"};
    char *data;
    size_t size;
    ht_gguf *g;
    ht_error err = {0};
    if (ht_file_read_all(whole, 1 << 20, &data, &size, &err) || ht_gguf_parse(data, size, whole, &g, &err))
        fail_msg("%s", err.message);
    free_parts();
    for (int i = 0; i < p->n_parts; i++) {
        parts[i] = make_part(g, p, i, &size);
        sources[i] = (ht_gguf_source){names[i], parts[i], size};
    }
    ht_gguf_free(g);
    free(data);
}

static void expect(const plan *p, const char *words) {
    ht_gguf_set *set;
    ht_error err = {0};
    make_parts(p);
    ht_status status = ht_gguf_set_parse(sources, p->n_parts, &set, &err);
    if (words) {
        assert_int_equal(status, HT_ERR_FORMAT);
        assert_null(set);
        if (!strstr(err.message, words)) fail_msg("\"%s\" does not say \"%s\"", err.message, words);
    } else {
        if (status) fail_msg("%s", err.message);
        ht_gguf_set_close(set);
    }
    free_parts();
}

UNIT_TEST(parts_agree) {
    expect(&(plan){.n_parts = 3, .twice = -1}, NULL);
    expect(&(plan){.n_parts = 3, .twice = -1, .empty_first = true}, NULL);
    expect(&(plan){.n_parts = 1, .twice = -1}, NULL);
    expect(&(plan){.n_parts = 3, .twice = -1, .no = 1}, "part 1: its split.no is 1, expected 0, as this is part 1");
    expect(&(plan){.n_parts = 3, .twice = -1, .count = 1}, "part 1: its split.count is 4, expected 3");
    expect(&(plan){.n_parts = 3, .twice = -1, .total = 2}, "part 1: its split.tensors.count is");
    expect(&(plan){.n_parts = 2, .twice = 1}, "part 2: tensor `");
    make_parts(&(plan){.n_parts = 3, .twice = -1});
    sources[1] = sources[2]; /* the third in the place of the second */
    ht_gguf_set *set;
    assert_fails(HT_ERR_FORMAT, "part 3: its split.no is 2, expected 1, as this is part 2", ht_gguf_set_parse, sources,
                 3, &set);
    assert_fails(HT_ERR_FORMAT, "", ht_gguf_set_parse, sources, 2, &set);
    free_parts();
}

UNIT_TEST(tensors_are_found) {
    for (int empty_first = 0; empty_first < 2; empty_first++) {
        make_parts(&(plan){.n_parts = 4, .twice = -1, .empty_first = empty_first});
        ht_gguf_set *set;
        assert_works(ht_gguf_set_parse, sources, 4, &set);
        assert_int_equal(ht_gguf_set_n_parts(set), 4);
        size_t n = 0;
        for (int i = 0; i < 4; i++) n += ht_gguf_n_tensors(ht_gguf_set_part(set, i)->gguf);
        assert_int_equal(ht_gguf_set_n_tensors(set), n);
        for (size_t i = 0; i < n; i++) {
            const ht_gguf_part *part, *again;
            const ht_gguf_tensor *t = ht_gguf_set_tensor_at(set, i, &part);
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
            assert_ptr_equal(ht_gguf_set_find(set, name, &again), t);
            assert_ptr_equal(part, again);
            assert_int_equal(ht_gguf_set_number(set, t, part), i);
            assert_ptr_equal(ht_gguf_find_tensor(part->gguf, name), t);
            assert_ptr_equal(ht_gguf_find_tensor(ht_gguf_set_metadata(set), name), t);
        }
        const ht_gguf_part *none;
        assert_null(ht_gguf_set_find(set, "none", &none));
        ht_gguf_set_close(set);
        free_parts();
    }
}

UNIT_TEST(names_of_parts) {
    int number, count;
    size_t prefix;
    assert_true(ht_gguf_part_name("a/model-00002-of-00010.gguf", &number, &count, &prefix));
    assert_true(number == 2 && count == 10 && prefix == 7);
    static const char *const others[] = {"model.gguf",
                                         "model-00003-of-00002.gguf",
                                         "model-00000-of-00002.gguf",
                                         "model-0001-of-00002.gguf",
                                         "model-   01-of-00002.gguf",
                                         "model-00001-of-00002.safetensors",
                                         "model-00001_of-00002.gguf",
                                         ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(ht_gguf_part_name(others[i], &number, &count, &prefix));
}

/* ---- files ---- */

static void write_parts(const char *prefix, const plan *p) {
    make_parts(p);
    for (int i = 0; i < p->n_parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", prefix, i + 1, p->n_parts);
        scratch_write(name, sources[i].data, sources[i].size);
    }
    free_parts();
}

enum { VOCAB = 61, IDS = 9 };

static void logits_of(const char *path, float *logits) {
    static const int32_t ids[IDS] = {1, 5, 9, 60, 3, 2, 44, 17, 30};
    ht_model *m;
    assert_works(ht_model_load, path, NULL, &m);
    assert_int_equal(ht_model_vocab_size(m), VOCAB);
    model_run run = model_run_open(m, 32, 32);
    model_run_feed(&run, ids, IDS, logits);
    model_run_close(&run);
    ht_model_free(m);
}

UNIT_TEST(any_part_opens_the_model) {
    static float expected[IDS * VOCAB], found[IDS * VOCAB];
    logits_of(whole, expected);
    write_parts("m", &(plan){.n_parts = 3, .twice = -1, .empty_first = true});
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
    for (int i = 0; i < 4; i++) {
        logits_of(i < 3 ? scratch_path(names[i]) : scratch_directory(), found);
        assert_memory_equal(expected, found, sizeof expected);
    }
    ht_model_info *in, *one;
    assert_works(ht_model_info_read, scratch_directory(), &in);
    assert_works(ht_model_info_read, whole, &one);
    assert_int_equal(in->n_parameters, one->n_parameters);
    assert_int_equal(in->weight_bytes, one->weight_bytes);
    ht_model_info_free(in);
    ht_model_info_free(one);
}

static void refused(const char *path, ht_status expected, const char *words) {
    ht_gguf_set *set;
    assert_fails(expected, words, ht_gguf_set_open, path, &set);
    assert_null(set);
}

UNIT_TEST(missing_parts) {
    write_parts("m", &(plan){.n_parts = 3, .twice = -1});
    ht_checkpoint_files *c;
    remove(scratch_path("m-00002-of-00003.gguf"));
    refused(scratch_path("m-00003-of-00003.gguf"), HT_ERR_IO, "m-00002-of-00003.gguf: is missing, part 2 of 3");
    refused(scratch_path("m-00001-of-00003.gguf"), HT_ERR_IO, "m-00002-of-00003.gguf: is missing, part 2 of 3");
    scratch_write("m-00002-of-00003.gguf", "GGU", 3);
    refused(scratch_path("m-00001-of-00003.gguf"), HT_ERR_FORMAT, "m-00002-of-00003.gguf: not a GGUF file");
    write_parts("m", &(plan){.n_parts = 3, .twice = -1});
    assert_int_equal(truncate(scratch_path("m-00003-of-00003.gguf"), 300), 0);
    refused(scratch_path("m-00001-of-00003.gguf"), HT_ERR_FORMAT, "m-00003-of-00003.gguf: ");
    assert_int_equal(rename(scratch_path("m-00001-of-00003.gguf"), scratch_path("first.gguf")), 0);
    refused(scratch_path("first.gguf"), HT_ERR_FORMAT, "one of 3 parts of a model, which are found by names");
    remove(scratch_path("first.gguf"));
    /* Two models in one directory. */
    write_parts("m", &(plan){.n_parts = 3, .twice = -1});
    write_parts("n", &(plan){.n_parts = 2, .twice = -1});
    assert_fails(HT_ERR_ARGUMENT, "name the one to load", ht_checkpoint_open, scratch_directory(), &c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_agree), cmocka_unit_test(tensors_are_found),
                                       cmocka_unit_test(names_of_parts), in_scratch(any_part_opens_the_model),
                                       in_scratch(missing_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
