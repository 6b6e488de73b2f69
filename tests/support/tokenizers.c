#include "support/tokenizers.h"

#include "support/json_file.h"

#include <stdlib.h>
#include <string.h>

ht_tokenizer *tokenizer_load(const char *path) {
    ht_tokenizer *t;
    assert_works(ht_tokenizer_load, path, &t);
    return t;
}

ht_tokenizer *tokenizer_of(const char *json) {
    ht_tokenizer *t;
    assert_works(ht_tokenizer_from_json, json, strlen(json), NULL, 0, &t);
    return t;
}

int32_t *tokenizer_ids(const ht_tokenizer *t, const char *text, size_t n, unsigned flags, size_t *n_ids) {
    int32_t *ids;
    assert_works(ht_tokenizer_encode, t, text, n, flags, &ids, n_ids);
    return ids;
}

static ht_json *golden;

int tokenizer_cases_open(void **state) {
    (void)state;
    golden = json_file("tests/golden/tokenizer/synthetic.json");
    return golden ? 0 : -1;
}

int tokenizer_cases_close(void **state) {
    (void)state;
    ht_json_decref(golden);
    return 0;
}

const ht_json *tokenizer_cases(void) { return ht_json_object_get(golden, "cases"); }

const char *tokenizer_case_name(const ht_json *c) { return ht_json_string_value(ht_json_object_get(c, "name")); }

/* A Unigram vocabulary with other scores. */
static ht_json *scaled(const ht_json *vocab, double scale) {
    ht_json *list = ht_json_new_array(), *item;
    size_t i;
    ht_json_array_foreach(vocab, i, item) {
        const double score = ht_json_number_value(ht_json_array_get(item, 1));
        ht_json_array_append_new(list, ht_json_pack("[O, f]", ht_json_array_get(item, 0), score * scale));
    }
    return list;
}

ht_json *tokenizer_document(const ht_json *c) {
    const char *name = ht_json_string_value(ht_json_object_get(c, "base"));
    const ht_json *base = ht_json_object_get(ht_json_object_get(golden, "bases"), name);
    ht_json *whole = ht_json_copy(ht_json_object_get(c, "tokenizer"));
    ht_json *model = ht_json_copy(ht_json_object_get(whole, "model"));
    ht_json_object_set(model, "vocab", ht_json_object_get(base, "vocab"));
    if (ht_json_object_get(base, "merges")) ht_json_object_set(model, "merges", ht_json_object_get(base, "merges"));
    const double scale = ht_json_number_value(ht_json_object_get(c, "scale"));
    if (scale != 0) ht_json_object_set_new(model, "vocab", scaled(ht_json_object_get(base, "vocab"), scale));
    ht_json_object_set_new(whole, "model", model);
    return whole;
}

ht_tokenizer *tokenizer_of_document(ht_json *document) {
    char *text = ht_json_dump(document, HT_JSON_COMPACT);
    ht_json_decref(document);
    ht_tokenizer *t = tokenizer_of(text);
    free(text);
    return t;
}

ht_tokenizer *tokenizer_named(const char *name) {
    const ht_json *c;
    size_t i;
    ht_json_array_foreach(tokenizer_cases(), i, c) {
        if (!strcmp(tokenizer_case_name(c), name)) return tokenizer_of_document(tokenizer_document(c));
    }
    fail_msg("no case %s", name);
    return NULL;
}
