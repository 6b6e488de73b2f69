/* Tokenizer from a tokenizer.json. A scanner reads vocabulary and merges, nearly all of the file, into flat tables
 * and the rest into a JSON document, loaded stage by stage. Errors name an unsupported step or parameter. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "formats/json.h"
#include "tokenizer/load_config.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

typedef struct listed_merge { /* text[begin, begin + n_left + n_right): left and right, adjacent */
    size_t begin;
    uint32_t n_left, n_right;
} listed_merge;

typedef struct document {
    ht_json *root;              /* without model.vocab and model.merges */
    bool has_vocab, has_merges; /* no vocabulary where model.vocab is not an object of integers, as in Unigram models */
    ht_text merge_text;
    listed_merge *merges;
    size_t n_merges, merge_capacity;
} document;

typedef struct parser {
    ht_json_scanner scan;
    document *out;
    ht_vocab *vocab;
    ht_error *err;
} parser;

static void fail(parser *p, const char *message) { ht_json_scan_fail(&p->scan, HT_ERR_FORMAT, "%s", message); }

/* ---- the vocabulary ---- */

/* The id at a number, HT_MAX_VOCAB for one beyond the limits; -1 when it is not an integer. */
static int64_t id_of(const ht_json_scanner *s) {
    int64_t id = 0;
    const bool is_negative = s->bytes[0] == '-';
    for (size_t i = is_negative; i < s->n_bytes; i++) {
        if (s->bytes[i] < '0' || s->bytes[i] > '9') return -1;
        if (id < HT_MAX_VOCAB) id = id * 10 + (s->bytes[i] - '0');
    }
    return is_negative || id > HT_MAX_VOCAB ? HT_MAX_VOCAB : id;
}

static void read_vocab(parser *p) {
    ht_json_scanner *s = &p->scan;
    while (ht_json_scan_next(s) == HT_SCAN_KEY) {
        const char *token = s->bytes;
        const size_t n = s->n_bytes;
        const ht_json_event event = ht_json_scan_next(s);
        const int64_t id = event == HT_SCAN_NUMBER ? id_of(s) : -1;
        if (id < 0)
            fail(p, "model.vocab has a value that is not an integer");
        else if (id == HT_MAX_VOCAB)
            ht_json_scan_fail(s, HT_ERR_LIMIT, "model.vocab has the id %.*s; 0 to %d are supported",
                              s->n_bytes < 32 ? (int)s->n_bytes : 32, s->bytes, HT_MAX_VOCAB - 1);
        else if (!s->status)
            s->status = ht_vocab_set(p->vocab, (int32_t)id, token, n, p->err);
    }
}

/* ---- the merges ---- */

static listed_merge *new_merge(parser *p) {
    document *d = p->out;
    if (!HT_GROW(d->merges, d->merge_capacity, d->n_merges + 1)) {
        ht_json_scan_fail_memory(&p->scan);
        return NULL;
    }
    listed_merge *m = &d->merges[d->n_merges++];
    *m = (listed_merge){.begin = d->merge_text.len};
    return m;
}

/* Merge of the form "a b". */
static void add_joined_merge(parser *p) {
    const char *text = p->scan.bytes;
    const size_t n = p->scan.n_bytes;
    const char *space = n > 2 ? memchr(text + 1, ' ', n - 2) : NULL;
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - text))) {
        fail(p, "model.merges has a text that is not two tokens with one space between");
        return;
    }
    listed_merge *m = new_merge(p);
    if (!m) return;
    m->n_left = (uint32_t)(space - text);
    m->n_right = (uint32_t)(n - m->n_left - 1);
    ht_text_append(&p->out->merge_text, text, m->n_left);
    ht_text_append(&p->out->merge_text, space + 1, m->n_right);
}

/* Merge of the form ["a", "b"]. */
static void add_pair(parser *p) {
    listed_merge *m = new_merge(p);
    uint32_t *side[] = {m ? &m->n_left : NULL, m ? &m->n_right : NULL};
    int n = 0;
    ht_json_event event;
    while (m && (event = ht_json_scan_next(&p->scan)) == HT_SCAN_STRING) {
        if (n == 2) {
            fail(p, "model.merges has a merge of more than two tokens");
            return;
        }
        *side[n++] = (uint32_t)p->scan.n_bytes;
        ht_text_append(&p->out->merge_text, p->scan.bytes, p->scan.n_bytes);
    }
    if (!m) return;
    if (event != HT_SCAN_CLOSE)
        fail(p, "model.merges has an item that is neither a text nor a pair of texts");
    else if (n < 2)
        fail(p, "model.merges has a merge of fewer than two tokens");
}

static void read_merges(parser *p) {
    ht_json_event event;
    while ((event = ht_json_scan_next(&p->scan)) > HT_SCAN_END && event != HT_SCAN_CLOSE) {
        if (p->scan.n_bytes > UINT32_MAX)
            fail(p, "model.merges has a text of more than 4 GiB");
        else if (event == HT_SCAN_STRING)
            add_joined_merge(p);
        else if (event == HT_SCAN_ARRAY)
            add_pair(p);
        else
            fail(p, "model.merges has an item that is neither a text nor a pair of texts");
        if (p->out->merge_text.failed) ht_json_scan_fail_memory(&p->scan);
    }
}

/* ---- the document ---- */

/* Reads the vocabulary or the merges into a table, or skips a list or object that is neither. False: a field for
 * read_object. */
static bool read_table(parser *p, const char *name, ht_json_event event) {
    const bool is_vocab = strcmp(name, "vocab") == 0, is_object = event == HT_SCAN_OBJECT;
    bool *has = is_vocab ? &p->out->has_vocab : &p->out->has_merges;
    if ((!is_vocab && strcmp(name, "merges") != 0) || (!is_object && event != HT_SCAN_ARRAY)) return false;
    if (*has)
        fail(p, "the model has two vocabularies or two lists of merges");
    else if (is_vocab != is_object)
        (void)ht_json_scan_skip(&p->scan, event);
    else {
        *has = true;
        if (is_vocab)
            read_vocab(p);
        else
            read_merges(p);
    }
    return true;
}

/* Reads the rest of an object. The vocabulary and merges of the model go to tables instead. */
static ht_json *read_object(parser *p, bool is_model) {
    ht_json_scanner *s = &p->scan;
    ht_json *object = ht_json_new_object();
    if (!object) ht_json_scan_fail_memory(s);
    while (ht_json_scan_next(s) == HT_SCAN_KEY) {
        char *name = ht_copy_text(s->bytes, s->n_bytes);
        const ht_json_event event = name ? ht_json_scan_next(s) : ht_json_scan_fail_memory(s);
        if (event == HT_SCAN_FAILED || !is_model || !read_table(p, name, event)) {
            const bool is_next = !is_model && event == HT_SCAN_OBJECT && strcmp(name, "model") == 0;
            ht_json *value = is_next ? read_object(p, true) : ht_json_scan_value(s, event);
            if (!value || ht_json_object_set_new(object, name, value)) ht_json_scan_fail_memory(s);
        }
        free(name);
    }
    return object;
}

/* Fills `vocab` (without its index) from model.vocab. */
static ht_status parse_document(const char *json, size_t n, document *out, ht_vocab *vocab, ht_error *err) {
    *out = (document){0};
    parser p = {.out = out, .vocab = vocab, .err = err};
    ht_json_scan_begin(&p.scan, json, n,
                       &(ht_json_options){.as_python = true, .keeps_nul = true, .values_max = SIZE_MAX}, err);
    if (ht_json_scan_next(&p.scan) == HT_SCAN_OBJECT) {
        out->root = read_object(&p, false);
        (void)ht_json_scan_next(&p.scan);
    }
    return ht_json_scan_end(&p.scan);
}

static void free_document(document *d) {
    ht_json_decref(d->root);
    ht_text_discard(&d->merge_text);
    free(d->merges);
}

typedef struct loader {
    ht_tokenizer *t;
    ht_status status; /* sticky error */
    ht_error *err;
    const char *stage; /* for messages */
    bool fused;        /* decoder: a Fuse step was read */
    int decoder_rank;  /* decoder: rank of the last step; must not decrease */
} loader;

#define FAIL(l, ...) ((void)((l)->status ? (l)->status : ((l)->status = ht_fail((l)->err, __VA_ARGS__))))

/* ---- JSON fields ---- */

static const char *type_of(loader *l, const ht_json *step) {
    const char *type = ht_json_string_value(ht_json_object_get(step, "type"));
    if (!type) FAIL(l, HT_ERR_FORMAT, "%s: a step has no `type`", l->stage);
    return type ? type : "";
}

static bool get_bool(loader *l, const ht_json *step, const char *key, bool otherwise) {
    const ht_json *value = ht_json_object_get(step, key);
    if (!value || ht_json_is_null(value)) return otherwise;
    if (!ht_json_is_boolean(value)) FAIL(l, HT_ERR_FORMAT, "%s: `%s` is not a boolean", l->stage, key);
    return ht_json_is_true(value);
}

/* A string field, borrowed; *n is its length. */
static const char *get_text(loader *l, const ht_json *step, const char *key, size_t *n) {
    const ht_json *value = ht_json_object_get(step, key);
    *n = ht_json_string_length(value);
    if (!ht_json_is_string(value)) {
        FAIL(l, HT_ERR_FORMAT, "%s: `%s` is missing or not a text", l->stage, key);
        return "";
    }
    return ht_json_string_value(value);
}

static char *copy(loader *l, const char *text, size_t n) {
    char *result = ht_copy_text(text, n);
    if (!result && !l->status) l->status = ht_fail_memory(l->err, n, l->stage);
    return result;
}

static char *copy_text(loader *l, const ht_json *step, const char *key, size_t *n) {
    const char *text = get_text(l, step, key, n);
    return copy(l, text, *n);
}

/* {"String": "..."} or {"Regex": "..."} */
static const char *get_pattern(loader *l, const ht_json *step, size_t *n, bool *is_regex) {
    const ht_json *pattern = ht_json_object_get(step, "pattern");
    *is_regex = ht_json_object_get(pattern, "Regex") != NULL;
    if (!ht_json_is_object(pattern) || (!*is_regex && !ht_json_object_get(pattern, "String"))) {
        FAIL(l, HT_ERR_FORMAT, "%s: `pattern` has neither `String` nor `Regex`", l->stage);
        *n = 0;
        return "";
    }
    return get_text(l, pattern, *is_regex ? "Regex" : "String", n);
}

static ht_behavior get_behavior(loader *l, const ht_json *step, bool required) {
    const ht_json *value = ht_json_object_get(step, "behavior");
    if (!value && !required) return HT_SPLIT_ISOLATED;
    const char *name = ht_json_string_value(value);
    for (int i = 0; name && i < HT_BEHAVIORS; i++)
        if (strcmp(name, ht_behavior_names[i]) == 0) return (ht_behavior)i;
    FAIL(l, HT_ERR_UNSUPPORTED, "%s: the behavior `%.40s` is not known", l->stage, name ? name : "(none)");
    return HT_SPLIT_ISOLATED;
}

typedef void step_fn(loader *l, const ht_json *step, const char *type);

/* Loads a step, or all of a Sequence, which lists them under `key`. */
static void load_steps(loader *l, const ht_json *step, const char *key, step_fn *load, int depth) {
    const char *type = type_of(l, step);
    if (!l->status && strcmp(type, "Sequence") != 0) load(l, step, type);
    if (l->status || strcmp(type, "Sequence") != 0) return;
    const ht_json *steps = ht_json_object_get(step, key);
    if (!ht_json_is_array(steps)) FAIL(l, HT_ERR_FORMAT, "%s: a Sequence has no list `%s`", l->stage, key);
    if (depth >= 8) FAIL(l, HT_ERR_LIMIT, "%s: Sequences are nested more than 8 deep", l->stage);
    for (size_t i = 0; i < ht_json_array_size(steps) && !l->status; i++)
        load_steps(l, ht_json_array_get(steps, i), key, load, depth + 1);
}

/* The next step of a stage; NULL with an error when there are too many. */
static ht_normal_step *add_normal(loader *l, ht_normal_kind kind) {
    ht_normal_step *s = l->status ? NULL : ht_add_normal(l->t, kind, l->err);
    if (!s && !l->status) l->status = HT_ERR_LIMIT;
    return s;
}

static ht_pre_step *add_pre(loader *l, ht_pre_kind kind) {
    ht_pre_step *s = l->status ? NULL : ht_add_pre(l->t, kind, l->err);
    if (!s && !l->status) l->status = HT_ERR_LIMIT;
    return s;
}

/* ---- normalizer ---- */

static void load_replace(loader *l, const ht_json *step) {
    size_t n, n_content;
    bool is_regex;
    const char *pattern = get_pattern(l, step, &n, &is_regex);
    const char *content = get_text(l, step, "content", &n_content);
    if (l->status) return;
    if (!is_regex) {
        l->status = ht_add_normal_replace(l->t, pattern, n, content, n_content, l->err);
        return;
    }
    ht_normal_step *s = add_normal(l, HT_NORMAL_REPLACE_REGEX);
    if (s) l->status = ht_regex_new(pattern, n, &s->regex, l->err);
    if (l->status) return;
    s->from = copy(l, pattern, n);
    s->n_from = n;
    s->to = copy(l, content, n_content);
    s->n_to = n_content;
}

static void load_normalizer(loader *l, const ht_json *step, const char *type) {
    int form = 0;
    while (form < HT_NORMAL_FORMS && strcmp(type, ht_normal_form_names[form]) != 0) form++;
    ht_normal_step *s;
    if (strcmp(type, "Replace") == 0)
        load_replace(l, step);
    else if (strcmp(type, "Lowercase") == 0)
        add_normal(l, HT_NORMAL_LOWERCASE);
    else if (form < HT_NORMAL_FORMS) {
        if ((s = add_normal(l, HT_NORMAL_FORM))) s->form = (ht_normal_form)form;
    } else if (strcmp(type, "Prepend") == 0) {
        if ((s = add_normal(l, HT_NORMAL_PREPEND))) s->to = copy_text(l, step, "prepend", &s->n_to);
    } else if (strcmp(type, "Strip") == 0) {
        if (!(s = add_normal(l, HT_NORMAL_STRIP))) return;
        s->left = get_bool(l, step, "strip_left", true);
        s->right = get_bool(l, step, "strip_right", true);
    } else
        FAIL(l, HT_ERR_UNSUPPORTED, "the normalizer `%.40s` is not supported", type);
}

/* ---- pre-tokenizer ---- */

static void load_split(loader *l, const ht_json *step) {
    size_t n;
    bool is_regex;
    const char *pattern = get_pattern(l, step, &n, &is_regex);
    ht_behavior behavior = get_behavior(l, step, true);
    bool invert = get_bool(l, step, "invert", false);
    if (l->status) return;
    if (is_regex) {
        l->status = ht_add_split_regex(l->t, pattern, n, behavior, invert, l->err);
        return;
    }
    ht_pre_step *s = add_pre(l, HT_PRE_SPLIT);
    if (!s) return;
    s->behavior = behavior;
    s->invert = invert;
    s->text = copy(l, pattern, n);
    s->n_text = n;
}

/* Reads Metaspace's prepend_scheme: "always", "first" (start of the text only) or "never"; older files have
 * add_prefix_space instead. */
static const char *get_prepend_scheme(loader *l, const ht_json *step) {
    const char *scheme = ht_json_string_value(ht_json_object_get(step, "prepend_scheme"));
    if (!scheme) scheme = get_bool(l, step, "add_prefix_space", true) ? "always" : "never";
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)
        FAIL(l, HT_ERR_UNSUPPORTED, "%s: the prepend_scheme `%.40s` is not known", l->stage, scheme);
    return scheme;
}

static void load_metaspace(loader *l, const ht_json *step) {
    const char *scheme = get_prepend_scheme(l, step);
    ht_pre_step *s = add_pre(l, HT_PRE_METASPACE);
    if (!s) return;
    s->add_prefix_space = strcmp(scheme, "always") == 0;
    s->prefix_first = strcmp(scheme, "first") == 0;
    s->split = get_bool(l, step, "split", true);
    s->replacement = copy_text(l, step, "replacement", &s->n_replacement);
    size_t length = 0;
    if (s->replacement && s->n_replacement) ht_utf8_next(s->replacement, &length);
    if (!length || length != s->n_replacement)
        FAIL(l, HT_ERR_FORMAT, "pre_tokenizer: Metaspace's `replacement` is not one character");
}

static void load_byte_level(loader *l, const ht_json *step) {
    ht_pre_step *s = add_pre(l, HT_PRE_BYTE_LEVEL);
    if (!s) return;
    s->add_prefix_space = get_bool(l, step, "add_prefix_space", true);
    s->scan = get_bool(l, step, "use_regex", true) ? ht_scan_gpt2 : NULL;
}

static void add_classes(loader *l, uint8_t classes, ht_behavior behavior) {
    ht_pre_step *s = add_pre(l, HT_PRE_SPLIT);
    if (!s) return;
    s->classes = classes;
    s->behavior = behavior;
}

#define WORDS_AND_OTHERS "[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+"

static void load_pre_tokenizer(loader *l, const ht_json *step, const char *type) {
    if (strcmp(type, "Split") == 0)
        load_split(l, step);
    else if (strcmp(type, "Whitespace") == 0)
        l->status =
            ht_add_split_regex(l->t, WORDS_AND_OTHERS, strlen(WORDS_AND_OTHERS), HT_SPLIT_REMOVED, true, l->err);
    else if (strcmp(type, "ByteLevel") == 0)
        load_byte_level(l, step);
    else if (strcmp(type, "Digits") == 0)
        add_classes(l, HT_CLASS_DIGIT,
                    get_bool(l, step, "individual_digits", false) ? HT_SPLIT_ISOLATED : HT_SPLIT_CONTIGUOUS);
    else if (strcmp(type, "Punctuation") == 0)
        add_classes(l, HT_CLASS_PUNCT_STEP, get_behavior(l, step, false));
    else if (strcmp(type, "WhitespaceSplit") == 0)
        add_classes(l, HT_CLASS_SPACE, HT_SPLIT_REMOVED);
    else if (strcmp(type, "Metaspace") == 0)
        load_metaspace(l, step);
    else
        FAIL(l, HT_ERR_UNSUPPORTED, "the pre_tokenizer `%.40s` is not supported", type);
}

/* ---- decoder ---- */

static void load_strip(loader *l, const ht_json *step) {
    ht_decode_plan *plan = &l->t->decode;
    int64_t start = ht_json_integer_value(ht_json_object_get(step, "start"));
    int64_t stop = ht_json_integer_value(ht_json_object_get(step, "stop"));
    const char *content = get_text(l, step, "content", &plan->n_strip);
    if (start < 0 || stop != 0 || plan->strip || !l->fused)
        FAIL(l, HT_ERR_UNSUPPORTED, "decoder: only a Strip at the front of the whole text is supported, after Fuse");
    if (!plan->n_strip) FAIL(l, HT_ERR_FORMAT, "decoder: Strip has an empty `content`");
    if (l->status) return;
    plan->strip = copy(l, content, plan->n_strip);
    plan->strip_count = (size_t)start;
}

static void load_decode_metaspace(loader *l, const ht_json *step) {
    ht_decode_plan *plan = &l->t->decode;
    const char *replacement = get_text(l, step, "replacement", &plan->n_metaspace);
    plan->metaspace_drops = strcmp(get_prepend_scheme(l, step), "never") != 0;
    if (plan->metaspace || !plan->n_metaspace)
        FAIL(l, HT_ERR_UNSUPPORTED, "decoder: a second Metaspace, or an empty `replacement`");
    if (!l->status) plan->metaspace = copy(l, replacement, plan->n_metaspace);
}

static void load_decode_replace(loader *l, const ht_json *step) {
    size_t n, n_content;
    bool is_regex;
    const char *pattern = get_pattern(l, step, &n, &is_regex);
    const char *content = get_text(l, step, "content", &n_content);
    if (is_regex) FAIL(l, HT_ERR_UNSUPPORTED, "decoder: Replace by a Regex is not supported");
    if (!l->status) l->status = ht_add_decode_replace(l->t, pattern, n, content, n_content, l->err);
}

/* Decoder steps have one order in all known files; the streaming decoder relies on it. */
static void load_decoder(loader *l, const ht_json *step, const char *type) {
    static const char *const order[] = {"ByteLevel", "Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"};
    int rank = 0;
    while (rank < 6 && strcmp(type, order[rank]) != 0) rank++;
    if (rank == 6) FAIL(l, HT_ERR_UNSUPPORTED, "the decoder `%.40s` is not supported", type);
    if (rank < l->decoder_rank || (l->t->decode.byte_level && rank < 4))
        FAIL(l, HT_ERR_UNSUPPORTED, "decoder: %s after other steps is not supported", type);
    if (l->status) return;
    l->decoder_rank = rank;
    switch (rank) {
    case 0: l->t->decode.byte_level = true; break;
    case 1: load_decode_replace(l, step); break;
    case 2: load_decode_metaspace(l, step); break;
    case 3: l->t->decode.byte_fallback = true; break;
    case 4: l->fused = true; break;
    default: load_strip(l, step);
    }
}

/* ---- post-processor ---- */

static void append_id(loader *l, bool behind, const ht_json *id) {
    int64_t value = ht_json_integer_value(id);
    if (!ht_json_is_integer(id) || value < 0 || value >= HT_MAX_VOCAB) {
        FAIL(l, HT_ERR_FORMAT, "post_processor: a special token's id is missing or out of range");
        return;
    }
    ht_tokenizer *t = l->t;
    l->status = behind ? ht_append_id(&t->suffix, &t->n_suffix, (int32_t)value, l->err)
                       : ht_append_id(&t->prefix, &t->n_prefix, (int32_t)value, l->err);
}

static void load_template(loader *l, const ht_json *step) {
    const ht_json *single = ht_json_object_get(step, "single"), *specials = ht_json_object_get(step, "special_tokens");
    if (!ht_json_is_array(single)) FAIL(l, HT_ERR_FORMAT, "post_processor: TemplateProcessing has no list `single`");
    bool seen = false;
    for (size_t i = 0; i < ht_json_array_size(single) && !l->status; i++) {
        const ht_json *item = ht_json_array_get(single, i), *special = ht_json_object_get(item, "SpecialToken");
        if (ht_json_object_get(item, "Sequence")) {
            if (seen) FAIL(l, HT_ERR_UNSUPPORTED, "post_processor: the text occurs twice in `single`");
            seen = true;
            continue;
        }
        size_t n;
        const char *name = special ? get_text(l, special, "id", &n) : "";
        const ht_json *ids = ht_json_object_get(ht_json_object_get(specials, name), "ids");
        if (!ht_json_is_array(ids))
            FAIL(l, HT_ERR_FORMAT, "post_processor: the special token `%.64s` has no `ids`", name);
        for (size_t k = 0; k < ht_json_array_size(ids) && !l->status; k++)
            append_id(l, seen, ht_json_array_get(ids, k));
    }
    if (!seen) FAIL(l, HT_ERR_FORMAT, "post_processor: `single` lacks the text itself");
}

static void load_post_processor(loader *l, const ht_json *step, const char *type) {
    if (strcmp(type, "TemplateProcessing") == 0)
        load_template(l, step);
    else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        append_id(l, false, ht_json_array_get(ht_json_object_get(step, "cls"), 1));
        if (!l->status) append_id(l, true, ht_json_array_get(ht_json_object_get(step, "sep"), 1));
    } else if (strcmp(type, "ByteLevel") != 0) /* changes offsets only */
        FAIL(l, HT_ERR_UNSUPPORTED, "the post_processor `%.40s` is not supported", type);
}

/* ---- model and added tokens ---- */

static bool is_empty(const ht_json *value) {
    return !value || ht_json_is_null(value) || (ht_json_is_string(value) && !ht_json_string_length(value)) ||
           (ht_json_is_number(value) && ht_json_number_value(value) == 0);
}

static void load_merges(loader *l, const document *d) {
    if (d->n_merges > HT_MAX_MERGES)
        FAIL(l, HT_ERR_LIMIT, "model.merges has %zu merges; at most %d are supported", d->n_merges, HT_MAX_MERGES);
    if (!l->status) l->status = ht_merges_reserve(&l->t->merges, (int32_t)d->n_merges, l->err);
    ht_merge_text batch[HT_MERGE_BATCH];
    for (size_t i = 0, n; i < d->n_merges && !l->status; i += n) {
        n = ht_min_size(HT_MERGE_BATCH, d->n_merges - i);
        for (size_t k = 0; k < n; k++) {
            const listed_merge *m = &d->merges[i + k];
            const char *left = d->merge_text.data + m->begin;
            batch[k] = (ht_merge_text){left, left + m->n_left, m->n_left, m->n_right};
        }
        l->status = ht_add_merges(l->t, batch, n, l->err);
    }
}

static void load_model(loader *l, const document *d) {
    static const char *const must_be_empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const ht_json *model = ht_json_object_get(d->root, "model");
    const char *type = ht_json_string_value(ht_json_object_get(model, "type"));
    l->stage = "model";
    if (!ht_json_is_object(model)) FAIL(l, HT_ERR_FORMAT, "the document has no `model`");
    if (type ? strcmp(type, "BPE") != 0 : !d->has_merges)
        FAIL(l, HT_ERR_UNSUPPORTED, "the model `%.40s` is not supported; BPE is", type ? type : "(without type)");
    if (!d->has_vocab || !d->has_merges) FAIL(l, HT_ERR_FORMAT, "the model has no `vocab` or no `merges`");
    for (int i = 0; i < 3; i++)
        if (!is_empty(ht_json_object_get(model, must_be_empty[i])))
            FAIL(l, HT_ERR_UNSUPPORTED, "model: `%s` is not supported", must_be_empty[i]);
    l->t->fuse_unk = get_bool(l, model, "fuse_unk", false);
    l->t->byte_fallback = get_bool(l, model, "byte_fallback", false);
    l->t->ignore_merges = get_bool(l, model, "ignore_merges", false);
    const ht_json *unk = ht_json_object_get(model, "unk_token");
    if (ht_json_is_string(unk)) l->t->unk_text = copy(l, ht_json_string_value(unk), ht_json_string_length(unk));
    if (!l->status) l->status = ht_vocab_index(&l->t->vocab, l->err);
    for (int32_t id = 0; id < l->t->vocab.n; id++) l->t->n_model_tokens += ht_vocab_has(&l->t->vocab, id);
    if (!l->status) load_merges(l, d);
}

static void list_added(loader *l, const ht_json *list, ht_listed_tokens *tokens) {
    for (size_t i = 0; i < ht_json_array_size(list) && !l->status; i++) {
        const ht_json *item = ht_json_array_get(list, i), *id = ht_json_object_get(item, "id");
        size_t n;
        const char *text = get_text(l, item, "content", &n);
        ht_added token = {
            .special = get_bool(l, item, "special", false),
            .normalized = get_bool(l, item, "normalized", true),
            .lstrip = get_bool(l, item, "lstrip", false),
            .rstrip = get_bool(l, item, "rstrip", false),
            .single_word = get_bool(l, item, "single_word", false),
        };
        if (!ht_json_is_integer(id)) FAIL(l, HT_ERR_FORMAT, "added_tokens: `%.64s` has no id", text);
        if (l->status) return;
        int64_t value = ht_json_integer_value(id);
        if (value < 0 || value >= HT_MAX_VOCAB)
            FAIL(l, HT_ERR_LIMIT, "added_tokens: `%.64s` has an id that is out of range", text);
        else {
            token.id = (int32_t)value;
            l->status = ht_list_added(tokens, token, text, n, l->err);
        }
    }
}

static void load_added(loader *l, const ht_json *root) {
    ht_listed_tokens tokens = {0};
    l->stage = "added_tokens";
    list_added(l, ht_json_object_get(root, "added_tokens"), &tokens);
    if (!l->status) l->status = ht_merge_added(l->t, &tokens, "tokenizer.json", l->err);
    ht_listed_tokens_free(&tokens);
}

static void check_ends(loader *l) {
    const ht_tokenizer *t = l->t;
    for (size_t i = 0; i < t->n_prefix + t->n_suffix && !l->status; i++) {
        int32_t id = i < t->n_prefix ? t->prefix[i] : t->suffix[i - t->n_prefix];
        if (!ht_vocab_has(&t->vocab, id))
            FAIL(l, HT_ERR_FORMAT, "post_processor: the special token %d is not in the vocabulary", (int)id);
    }
}

static void load_stage(loader *l, const ht_json *root, const char *stage, const char *key, step_fn *load) {
    const ht_json *steps = ht_json_object_get(root, stage);
    l->stage = stage;
    if (!l->status && steps && !ht_json_is_null(steps)) load_steps(l, steps, key, load, 0);
}

static void load_document(loader *l, const document *d, const char *config, size_t n_config) {
    load_stage(l, d->root, "normalizer", "normalizers", load_normalizer);
    load_stage(l, d->root, "pre_tokenizer", "pretokenizers", load_pre_tokenizer);
    load_stage(l, d->root, "post_processor", "processors", load_post_processor);
    load_stage(l, d->root, "decoder", "decoders", load_decoder);
    const ht_json *decoder = ht_json_object_get(d->root, "decoder");
    l->t->may_add_bos = is_empty(ht_json_object_get(d->root, "post_processor"));
    l->t->decode.join_spaces = !decoder || ht_json_is_null(decoder);
    load_model(l, d);
    if (!l->status) load_added(l, d->root);
    if (!l->status && config) l->status = ht_load_tokenizer_config(l->t, config, n_config, l->err);
    if (!l->status) l->status = ht_vocab_index(&l->t->vocab, l->err); /* again: added tokens extend it */
    if (!l->status) check_ends(l);
    if (!l->status && l->t->bos < 0 && l->t->n_prefix) l->t->bos = l->t->prefix[0];
    if (!l->status) l->status = ht_tokenizer_finish(l->t, l->err);
}

ht_status ht_tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, ht_tokenizer **out,
                                 ht_error *err) {
    *out = NULL;
    loader l = {.err = err};
    l.t = ht_tokenizer_new(err);
    if (!l.t) return HT_ERR_MEMORY;
    document d;
    l.status = parse_document(json, n, &d, &l.t->vocab, err);
    if (!l.status) load_document(&l, &d, config, n_config);
    free_document(&d);
    if (l.status) {
        ht_tokenizer_free(l.t);
        return l.status;
    }
    *out = l.t;
    return HT_OK;
}
