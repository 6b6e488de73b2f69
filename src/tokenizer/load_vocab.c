/* BERT's vocab.txt, a token a line, with tokenizer_config.json: as the tokenizer.json that transformers makes of them. */
#include "base/error.h"
#include "formats/json.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Special tokens in the order in which transformers adds them. */
enum { UNK, SEP, PAD, CLS, MASK, N_SPECIALS };
static const char *const special_keys[N_SPECIALS] = {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

typedef struct reader {
    const ht_json *config; /* or NULL */
    ht_json_reader json;
    const char *special[N_SPECIALS];
    int32_t id[N_SPECIALS]; /* -1: not in the vocabulary */
    ht_text vocab;          /* fields of model.vocab */
} reader;

static bool is_bert(const char *name) {
    static const char *const names[] = {"Bert",       "DistilBert",  "Electra", "ConvBert",
                                        "MobileBert", "SqueezeBert", "Lxmert",  "RetriBert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) != 0 || strncmp(name + n, "Tokenizer", 9) != 0) continue;
        if (!name[n + 9] || strcmp(name + n + 9, "Fast") == 0) return true;
    }
    return false;
}

static void read_specials(reader *r) {
    static const char *const names[N_SPECIALS] = {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
    for (int i = 0; i < N_SPECIALS; i++) {
        const ht_json *value = ht_json_object_get(r->config, special_keys[i]);
        if (ht_json_is_object(value)) value = ht_json_object_get(value, "content");
        r->special[i] = ht_json_is_string(value) ? ht_json_string_value(value) : names[i];
        r->id[i] = -1;
    }
}

static void read_tokens(reader *r, const char *text, size_t n) {
    int32_t id = 0;
    for (const char *end = text + n, *line = text, *next; line < end; line = next, id++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > line && stop[-1] == '\r') stop--;
        const size_t length = (size_t)(stop - line);
        ht_text_append_str(&r->vocab, id ? "," : "");
        ht_json_append_string(&r->vocab, line, length, 0);
        ht_text_printf(&r->vocab, ":%d", (int)id);
        for (int i = 0; i < N_SPECIALS; i++)
            if (strlen(r->special[i]) == length && memcmp(r->special[i], line, length) == 0) r->id[i] = id;
    }
}

static ht_status check(const reader *r, ht_error *err) {
    static const int needed[] = {UNK, CLS, SEP};
    const char *class = ht_json_string_value(ht_json_object_get(r->config, "tokenizer_class"));
    if (class && !is_bert(class))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the tokenizer_class `%.64s` with a vocab.txt is not supported; BertTokenizer is", class);
    for (int i = 0; i < 3; i++)
        if (r->id[needed[i]] < 0)
            return ht_fail(err, HT_ERR_FORMAT, "lacks `%.64s` (%s)", r->special[needed[i]], special_keys[needed[i]]);
    return HT_OK;
}

/* The stages; the caller adds the model. NULL when memory ran out. */
static ht_json *make_document(reader *r) {
    bool lowercase = true, chinese = true, accents;
    ht_json_bool(&r->json, r->config, "do_lower_case", &lowercase);
    ht_json_bool(&r->json, r->config, "tokenize_chinese_chars", &chinese);
    accents = lowercase;
    ht_json_bool(&r->json, r->config, "strip_accents", &accents);
    ht_json *added = ht_json_new_array();
    bool whole = added;
    for (int i = 0; i < N_SPECIALS && whole; i++)
        if (r->id[i] >= 0)
            whole =
                !ht_json_array_append_new(added, ht_json_pack("{s:i, s:s, s:b, s:b}", "id", (int)r->id[i], "content",
                                                              r->special[i], "special", 1, "normalized", 0));
    if (!whole) {
        ht_json_decref(added);
        return NULL;
    }
    return ht_json_pack("{s:o, s:{s:s, s:b, s:b, s:b}, s:{s:s}, s:{s:s, s:[s, i], s:[s, i]}, s:{s:s, s:s, s:b}}",
                        "added_tokens", added, "normalizer", "type", "BertNormalizer", "handle_chinese_chars", chinese,
                        "strip_accents", accents, "lowercase", lowercase, "pre_tokenizer", "type", "BertPreTokenizer",
                        "post_processor", "type", "BertProcessing", "cls", r->special[CLS], (int)r->id[CLS], "sep",
                        r->special[SEP], (int)r->id[SEP], "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1);
}

/* Appends the document with its model. */
static ht_status write_document(reader *r, ht_text *out, ht_error *err) {
    ht_json *stages = make_document(r);
    if (stages) ht_json_append(out, stages, HT_JSON_COMPACT);
    if (stages && out->len) out->len--; /* its brace */
    ht_text_append_str(out, ",\"model\":{\"type\":\"WordPiece\",\"unk_token\":");
    ht_json_append_string(out, r->special[UNK], strlen(r->special[UNK]), 0);
    ht_text_append_str(out, ",\"vocab\":{");
    ht_text_append(out, r->vocab.data, r->vocab.len);
    ht_text_append_str(out, "}}}");
    ht_json_decref(stages);
    if (r->json.status) return r->json.status;
    return !stages || out->failed || r->vocab.failed ? ht_fail_memory(err, out->len, "vocab.txt") : HT_OK;
}

ht_status ht_tokenizer_from_vocab(const char *text, size_t n, const char *config, size_t n_config, ht_tokenizer **out,
                                  ht_error *err) {
    *out = NULL;
    ht_json *document = NULL;
    ht_text json = {0};
    if (!ht_utf8_valid(text, n)) return ht_fail(err, HT_ERR_FORMAT, "is not valid UTF-8");
    ht_status st = config ? ht_json_parse(config, n_config, "tokenizer_config.json", &document, err) : HT_OK;
    reader r = {.config = document, .json = {.file = "tokenizer_config.json", .err = err}};
    if (!st) {
        read_specials(&r);
        read_tokens(&r, text, n);
        st = check(&r, err);
    }
    if (!st) st = write_document(&r, &json, err);
    if (!st) st = ht_tokenizer_from_json(json.data, json.len, config, n_config, out, err);
    ht_text_discard(&r.vocab);
    ht_text_discard(&json);
    ht_json_decref(document);
    return st;
}
