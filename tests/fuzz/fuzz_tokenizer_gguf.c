/* A tokenizer from a GGUF's metadata: whatever loads must also encode, and decode what it encoded. The first byte chooses
 * the text. Then comes the file as it is, when the byte's highest bit is set; else what is put into one that is well
 * formed, so that changes reach the tokenizer: parts that end with NUL, lists of which end with the byte 1. */
#include "base/base64.h"
#include "base/text.h"
#include "tokenizer/gguf_stages.h"
#include "tokens.h"

#include <stdio.h>

typedef struct part {
    const uint8_t *data;
    size_t n;
} part;

static part next_part(part *rest) {
    const uint8_t *end = rest->n ? memchr(rest->data, 0, rest->n) : NULL;
    part p = {rest->data, end ? (size_t)(end - rest->data) : rest->n};
    rest->data += p.n + (end != NULL);
    rest->n -= p.n + (end != NULL);
    return p;
}

static void put(ht_text *f, uint64_t value, size_t bytes) { ht_text_append(f, (const char *)&value, bytes); }

static void put_bytes(ht_text *f, const void *data, size_t n) {
    put(f, n, 8);
    ht_text_append(f, data, n);
}

static void put_key(ht_text *f, const char *key, ht_gguf_type type, uint64_t *count) {
    put_bytes(f, key, strlen(key));
    put(f, type, 4);
    ++*count;
}

static void put_text(ht_text *f, const char *key, part p, uint64_t *count) {
    put_key(f, key, HT_GGUF_STRING, count);
    put_bytes(f, p.data, p.n);
}

static void put_list(ht_text *f, const char *key, part p, uint64_t *count) {
    ht_text items = {0};
    uint64_t n = 0;
    for (size_t from = 0, at = 0; at < p.n; at++)
        if (p.data[at] == 1) {
            put_bytes(&items, p.data + from, at - from);
            from = at + 1;
            n++;
        }
    put_key(f, key, HT_GGUF_ARRAY, count);
    put(f, HT_GGUF_STRING, 4);
    put(f, n, 8);
    ht_text_append(f, items.data, items.len);
    ht_text_discard(&items);
}

/* One number per byte: i32 or, when they are scores, f32. */
static void put_numbers(ht_text *f, const char *key, part p, bool scores, uint64_t *count) {
    put_key(f, key, HT_GGUF_ARRAY, count);
    put(f, scores ? HT_GGUF_F32 : HT_GGUF_I32, 4);
    put(f, p.n, 8);
    for (size_t i = 0; i < p.n; i++) {
        float score = -(float)p.data[i];
        if (scores)
            ht_text_append(f, (const char *)&score, sizeof score);
        else
            put(f, (uint64_t)(p.data[i] - '0'), 4);
    }
}

/* Ids and switches: a byte each, as many as there are; ' ' leaves one out, '~' is an id that is none. */
static void put_settings(ht_text *f, part p, uint64_t *count) {
    static const struct {
        const char *name;
        bool is_id;
    } settings[] = {{"bos_token_id", true},
                    {"eos_token_id", true},
                    {"unknown_token_id", true},
                    {"padding_token_id", true},
                    {"add_bos_token", false},
                    {"add_eos_token", false},
                    {"add_space_prefix", false},
                    {"cls_token_id", true},
                    {"seperator_token_id", true},
                    {"add_sep_token", false},
                    {"normalizer.lowercase", false},
                    {"normalizer.strip_accents", false},
                    {"remove_extra_whitespaces", false}};
    char key[64];
    for (size_t i = 0; i < sizeof settings / sizeof *settings && i < p.n; i++) {
        if (p.data[i] == ' ') continue;
        snprintf(key, sizeof key, "tokenizer.ggml.%s", settings[i].name);
        put_key(f, key, settings[i].is_id ? HT_GGUF_U32 : HT_GGUF_BOOL, count);
        if (settings[i].is_id)
            put(f, p.data[i] == '~' ? UINT32_MAX : (uint64_t)(p.data[i] - '0'), 4);
        else
            put(f, p.data[i] & 1, 1);
    }
}

static void put_charsmap(ht_text *f, part base64, uint64_t *count) {
    ht_text map = {0};
    (void)ht_base64_decode((const char *)base64.data, base64.n, &map);
    put_key(f, HT_GGUF_CHARSMAP, HT_GGUF_ARRAY, count);
    put(f, HT_GGUF_U8, 4);
    put_bytes(f, map.data, map.len);
    ht_text_discard(&map);
}

/* model, pre-tokenizer, settings, tokens, their types, scores, merges, chat template, stages, a character map in base64. What is
 * empty is left out. */
static ht_text file_of(part rest) {
    ht_text values = {0}, file = {0};
    uint64_t n = 0;
    part p;
    put_text(&values, "tokenizer.ggml.model", next_part(&rest), &n);
    if ((p = next_part(&rest)).n) put_text(&values, "tokenizer.ggml.pre", p, &n);
    put_settings(&values, next_part(&rest), &n);
    put_list(&values, "tokenizer.ggml.tokens", next_part(&rest), &n);
    if ((p = next_part(&rest)).n) put_numbers(&values, "tokenizer.ggml.token_type", p, false, &n);
    if ((p = next_part(&rest)).n) put_numbers(&values, "tokenizer.ggml.scores", p, true, &n);
    if ((p = next_part(&rest)).n) put_list(&values, "tokenizer.ggml.merges", p, &n);
    if ((p = next_part(&rest)).n) put_text(&values, "tokenizer.chat_template", p, &n);
    if ((p = next_part(&rest)).n) put_text(&values, HT_GGUF_STAGES_KEY, p, &n);
    if ((p = next_part(&rest)).n) put_charsmap(&values, p, &n);
    ht_text_append(&file, "GGUF", 4);
    put(&file, 3, 4);
    put(&file, 0, 8);
    put(&file, n, 8);
    ht_text_append(&file, values.data, values.len);
    ht_text_discard(&values);
    return file;
}

static void read_tokenizer(const void *data, size_t size, size_t from) {
    ht_gguf *g;
    ht_tokenizer *t;
    ht_error err = {0};
    if (ht_gguf_parse(data, size, "fuzz.gguf", &g, &err)) return;
    ht_status status = ht_tokenizer_from_gguf(g, "fuzz.gguf", &t, &err);
    ht_gguf_free(g);
    if (refused(status, &err, t)) return;
    tokens_use(t, from);
    tokens_save(t);
    ht_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] & 128) {
        read_tokenizer(data + 1, size - 1, data[0] & 127);
        return 0;
    }
    ht_text file = file_of((part){data + 1, size - 1});
    if (!file.failed) read_tokenizer(file.data, file.len, data[0]);
    ht_text_discard(&file);
    return 0;
}
