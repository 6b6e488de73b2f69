/* The stages of a tokenizer.json: normalizer, pre_tokenizer, post_processor and decoder. Errors name an unsupported step or
 * parameter. */
#include "base/base64.h"
#include "tokenizer/load_json.h"

#include <stdlib.h>
#include <string.h>

/* ---- JSON fields ---- */

bool ht_get_bool(ht_loader *l, const ht_json *step, const char *key, bool otherwise) {
    const ht_json *value = ht_json_object_get(step, key);
    if (!value || ht_json_is_null(value)) return otherwise;
    if (!ht_json_is_boolean(value)) FAIL(l, HT_ERR_FORMAT, "%s: `%s` is not a boolean", l->stage, key);
    return ht_json_is_true(value);
}

/* A string field, borrowed; *n is its length. */
const char *ht_get_text(ht_loader *l, const ht_json *step, const char *key, size_t *n) {
    const ht_json *value = ht_json_object_get(step, key);
    *n = ht_json_string_length(value);
    if (!ht_json_is_string(value)) {
        FAIL(l, HT_ERR_FORMAT, "%s: `%s` is missing or not a text", l->stage, key);
        return "";
    }
    return ht_json_string_value(value);
}

char *ht_copy_for(ht_loader *l, const char *text, size_t n) {
    char *result = ht_copy_text(text, n);
    if (!result && !l->status) l->status = ht_fail_memory(l->err, n, l->stage);
    return result;
}

char *ht_copy_field(ht_loader *l, const ht_json *step, const char *key, size_t *n) {
    const char *text = ht_get_text(l, step, key, n);
    return ht_copy_for(l, text, *n);
}

static const char *type_of(ht_loader *l, const ht_json *step) {
    const char *type = ht_json_string_value(ht_json_object_get(step, "type"));
    if (!type) FAIL(l, HT_ERR_FORMAT, "%s: a step has no `type`", l->stage);
    return type ? type : "";
}

/* {"String": "..."} or {"Regex": "..."} */
static const char *get_pattern(ht_loader *l, const ht_json *step, size_t *n, bool *is_regex) {
    const ht_json *pattern = ht_json_object_get(step, "pattern");
    *is_regex = ht_json_object_get(pattern, "Regex") != NULL;
    if (!ht_json_is_object(pattern) || (!*is_regex && !ht_json_object_get(pattern, "String"))) {
        FAIL(l, HT_ERR_FORMAT, "%s: `pattern` has neither `String` nor `Regex`", l->stage);
        *n = 0;
        return "";
    }
    return ht_get_text(l, pattern, *is_regex ? "Regex" : "String", n);
}

static ht_behavior get_behavior(ht_loader *l, const ht_json *step, bool required) {
    const ht_json *value = ht_json_object_get(step, "behavior");
    if (!value && !required) return HT_SPLIT_ISOLATED;
    const char *name = ht_json_string_value(value);
    for (int i = 0; name && i < HT_BEHAVIORS; i++)
        if (strcmp(name, ht_behavior_names[i]) == 0) return (ht_behavior)i;
    FAIL(l, HT_ERR_UNSUPPORTED, "%s: the behavior `%.40s` is not known", l->stage, name ? name : "(none)");
    return HT_SPLIT_ISOLATED;
}

typedef void step_fn(ht_loader *l, const ht_json *step, const char *type);

/* Loads a step, or all of a Sequence, which lists them under `key`. */
static void load_steps(ht_loader *l, const ht_json *step, const char *key, step_fn *load, int depth) {
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
static ht_normal_step *add_normal(ht_loader *l, ht_normal_kind kind) {
    ht_normal_step *s = l->status ? NULL : ht_add_normal(l->t, kind, l->err);
    if (!s && !l->status) l->status = HT_ERR_LIMIT;
    return s;
}

static ht_pre_step *add_pre(ht_loader *l, ht_pre_kind kind) {
    ht_pre_step *s = l->status ? NULL : ht_add_pre(l->t, kind, l->err);
    if (!s && !l->status) l->status = HT_ERR_LIMIT;
    return s;
}

/* ---- normalizer ---- */

static void load_replace(ht_loader *l, const ht_json *step) {
    size_t n, n_content;
    bool is_regex;
    const char *pattern = get_pattern(l, step, &n, &is_regex);
    const char *content = ht_get_text(l, step, "content", &n_content);
    if (l->status) return;
    if (!is_regex) {
        l->status = ht_add_normal_replace(l->t, pattern, n, content, n_content, l->err);
        return;
    }
    ht_normal_step *s = add_normal(l, HT_NORMAL_REPLACE_REGEX);
    if (s) l->status = ht_regex_new(pattern, n, &s->regex, l->err);
    if (l->status) return;
    s->from = ht_copy_for(l, pattern, n);
    s->n_from = n;
    s->to = ht_copy_for(l, content, n_content);
    s->n_to = n_content;
}

static void load_bert(ht_loader *l, const ht_json *step) {
    const bool lowercase = ht_get_bool(l, step, "lowercase", true);
    ht_normal_step *s = add_normal(l, HT_NORMAL_BERT);
    if (!s) return;
    s->bert = (uint8_t)((ht_get_bool(l, step, "clean_text", true) ? HT_BERT_CLEAN : 0) |
                        (ht_get_bool(l, step, "handle_chinese_chars", true) ? HT_BERT_CHINESE : 0) |
                        (ht_get_bool(l, step, "strip_accents", lowercase) ? HT_BERT_ACCENTS : 0) |
                        (lowercase ? HT_BERT_LOWERCASE : 0));
}

static void load_charsmap(ht_loader *l, const ht_json *step) {
    ht_normal_step *s = add_normal(l, HT_NORMAL_CHARSMAP);
    if (!s) return;
    if (l->charsmap.data && !ht_json_object_get(step, "precompiled_charsmap")) {
        l->status = ht_charsmap_read(l->charsmap.data, l->charsmap.len, &s->charsmap, l->err);
        return;
    }
    size_t n;
    const char *text = ht_get_text(l, step, "precompiled_charsmap", &n);
    ht_text bytes = {0};
    if (!l->status && !ht_base64_decode(text, n, &bytes))
        FAIL(l, HT_ERR_FORMAT, "normalizer: `precompiled_charsmap` is not valid base64");
    if (!l->status) l->status = ht_charsmap_read(bytes.data, bytes.len, &s->charsmap, l->err);
    ht_text_discard(&bytes);
}

static void load_normalizer(ht_loader *l, const ht_json *step, const char *type) {
    int form = 0;
    while (form < HT_NORMAL_FORMS && strcmp(type, ht_normal_form_names[form]) != 0) form++;
    ht_normal_step *s;
    if (strcmp(type, "Replace") == 0)
        load_replace(l, step);
    else if (strcmp(type, "Lowercase") == 0)
        add_normal(l, HT_NORMAL_LOWERCASE);
    else if (strcmp(type, "StripAccents") == 0)
        add_normal(l, HT_NORMAL_STRIP_ACCENTS);
    else if (strcmp(type, "BertNormalizer") == 0)
        load_bert(l, step);
    else if (strcmp(type, "Precompiled") == 0)
        load_charsmap(l, step);
    else if (form < HT_NORMAL_FORMS) {
        if ((s = add_normal(l, HT_NORMAL_FORM))) s->form = (ht_normal_form)form;
    } else if (strcmp(type, "Prepend") == 0) {
        if ((s = add_normal(l, HT_NORMAL_PREPEND))) s->to = ht_copy_field(l, step, "prepend", &s->n_to);
    } else if (strcmp(type, "Strip") == 0) {
        if (!(s = add_normal(l, HT_NORMAL_STRIP))) return;
        s->left = ht_get_bool(l, step, "strip_left", true);
        s->right = ht_get_bool(l, step, "strip_right", true);
    } else
        FAIL(l, HT_ERR_UNSUPPORTED, "the normalizer `%.40s` is not supported", type);
}

/* ---- pre-tokenizer ---- */

static void load_split(ht_loader *l, const ht_json *step) {
    size_t n;
    bool is_regex;
    const char *pattern = get_pattern(l, step, &n, &is_regex);
    ht_behavior behavior = get_behavior(l, step, true);
    bool invert = ht_get_bool(l, step, "invert", false);
    if (l->status) return;
    if (is_regex) {
        l->status = ht_add_split_regex(l->t, pattern, n, behavior, invert, l->err);
        return;
    }
    ht_pre_step *s = add_pre(l, HT_PRE_SPLIT);
    if (!s) return;
    s->behavior = behavior;
    s->invert = invert;
    s->text = ht_copy_for(l, pattern, n);
    s->n_text = n;
}

/* Reads Metaspace's prepend_scheme: "always", "first" (start of the text only) or "never"; older files have
 * add_prefix_space instead. */
static const char *get_prepend_scheme(ht_loader *l, const ht_json *step) {
    const char *scheme = ht_json_string_value(ht_json_object_get(step, "prepend_scheme"));
    if (!scheme) scheme = ht_get_bool(l, step, "add_prefix_space", true) ? "always" : "never";
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)
        FAIL(l, HT_ERR_UNSUPPORTED, "%s: the prepend_scheme `%.40s` is not known", l->stage, scheme);
    return scheme;
}

static void load_metaspace(ht_loader *l, const ht_json *step) {
    const char *scheme = get_prepend_scheme(l, step);
    ht_pre_step *s = add_pre(l, HT_PRE_METASPACE);
    if (!s) return;
    s->add_prefix_space = strcmp(scheme, "always") == 0;
    s->prefix_first = strcmp(scheme, "first") == 0;
    s->split = ht_get_bool(l, step, "split", true);
    s->replacement = ht_copy_field(l, step, "replacement", &s->n_replacement);
    size_t length = 0;
    if (s->replacement && s->n_replacement) ht_utf8_next(s->replacement, &length);
    if (!length || length != s->n_replacement)
        FAIL(l, HT_ERR_FORMAT, "pre_tokenizer: Metaspace's `replacement` is not one character");
}

static void load_byte_level(ht_loader *l, const ht_json *step) {
    ht_pre_step *s = add_pre(l, HT_PRE_BYTE_LEVEL);
    if (!s) return;
    s->add_prefix_space = ht_get_bool(l, step, "add_prefix_space", true);
    s->scan = ht_get_bool(l, step, "use_regex", true) ? ht_scan_gpt2 : NULL;
}

static void add_classes(ht_loader *l, uint8_t classes, ht_behavior behavior) {
    ht_pre_step *s = add_pre(l, HT_PRE_SPLIT);
    if (!s) return;
    s->classes = classes;
    s->behavior = behavior;
}

#define WORDS_AND_OTHERS "[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+"

static void load_pre_tokenizer(ht_loader *l, const ht_json *step, const char *type) {
    if (strcmp(type, "Split") == 0)
        load_split(l, step);
    else if (strcmp(type, "Whitespace") == 0)
        l->status =
            ht_add_split_regex(l->t, WORDS_AND_OTHERS, strlen(WORDS_AND_OTHERS), HT_SPLIT_REMOVED, true, l->err);
    else if (strcmp(type, "ByteLevel") == 0)
        load_byte_level(l, step);
    else if (strcmp(type, "Digits") == 0)
        add_classes(l, HT_CLASS_DIGIT,
                    ht_get_bool(l, step, "individual_digits", false) ? HT_SPLIT_ISOLATED : HT_SPLIT_CONTIGUOUS);
    else if (strcmp(type, "Punctuation") == 0)
        add_classes(l, HT_CLASS_PUNCT_STEP, get_behavior(l, step, false));
    else if (strcmp(type, "WhitespaceSplit") == 0)
        add_classes(l, HT_CLASS_SPACE, HT_SPLIT_REMOVED);
    else if (strcmp(type, "BertPreTokenizer") == 0) {
        add_classes(l, HT_CLASS_SPACE, HT_SPLIT_REMOVED);
        add_classes(l, HT_CLASS_PUNCT_STEP, HT_SPLIT_ISOLATED);
    } else if (strcmp(type, "Metaspace") == 0)
        load_metaspace(l, step);
    else
        FAIL(l, HT_ERR_UNSUPPORTED, "the pre_tokenizer `%.40s` is not supported", type);
}

/* ---- decoder ---- */

static void load_strip(ht_loader *l, const ht_json *step) {
    ht_decode_plan *plan = &l->t->decode;
    int64_t start = ht_json_integer_value(ht_json_object_get(step, "start"));
    int64_t stop = ht_json_integer_value(ht_json_object_get(step, "stop"));
    const char *content = ht_get_text(l, step, "content", &plan->n_strip);
    if (start < 0 || stop != 0 || plan->strip || !l->fused)
        FAIL(l, HT_ERR_UNSUPPORTED, "decoder: only a Strip at the front of the whole text is supported, after Fuse");
    if (!plan->n_strip) FAIL(l, HT_ERR_FORMAT, "decoder: Strip has an empty `content`");
    if (l->status) return;
    plan->strip = ht_copy_for(l, content, plan->n_strip);
    plan->strip_count = (size_t)start;
}

static void load_decode_metaspace(ht_loader *l, const ht_json *step) {
    ht_decode_plan *plan = &l->t->decode;
    const char *replacement = ht_get_text(l, step, "replacement", &plan->n_metaspace);
    plan->metaspace_drops = strcmp(get_prepend_scheme(l, step), "never") != 0;
    if (plan->metaspace || !plan->n_metaspace)
        FAIL(l, HT_ERR_UNSUPPORTED, "decoder: a second Metaspace, or an empty `replacement`");
    if (!l->status) plan->metaspace = ht_copy_for(l, replacement, plan->n_metaspace);
}

static void load_decode_replace(ht_loader *l, const ht_json *step) {
    size_t n, n_content;
    bool is_regex;
    const char *pattern = get_pattern(l, step, &n, &is_regex);
    const char *content = ht_get_text(l, step, "content", &n_content);
    if (is_regex) FAIL(l, HT_ERR_UNSUPPORTED, "decoder: Replace by a Regex is not supported");
    if (!l->status) l->status = ht_add_decode_replace(l->t, pattern, n, content, n_content, l->err);
}

static void load_decode_words(ht_loader *l, const ht_json *step) {
    ht_decode_plan *plan = &l->t->decode;
    const char *prefix = ht_get_text(l, step, "prefix", &plan->n_word_prefix);
    plan->cleanup = ht_get_bool(l, step, "cleanup", true);
    if (!l->status) plan->word_prefix = ht_copy_for(l, prefix, plan->n_word_prefix);
}

/* Decoder steps have one order in all known files; the streaming decoder relies on it. */
static void load_decoder(ht_loader *l, const ht_json *step, const char *type) {
    enum { LEVEL, WORDS, REPLACE, SPACES, FALLBACK, FUSE, STRIP, N_STEPS };
    static const char *const order[] = {"ByteLevel",    "WordPiece", "Replace", "Metaspace",
                                        "ByteFallback", "Fuse",      "Strip"};
    ht_decode_plan *plan = &l->t->decode;
    int rank = 0;
    while (rank < N_STEPS && strcmp(type, order[rank]) != 0) rank++;
    if (rank == N_STEPS) FAIL(l, HT_ERR_UNSUPPORTED, "the decoder `%.40s` is not supported", type);
    if (rank < l->decoder_rank || ((plan->byte_level || plan->word_prefix) && rank < FUSE))
        FAIL(l, HT_ERR_UNSUPPORTED, "decoder: %s after other steps is not supported", type);
    if (l->status) return;
    l->decoder_rank = rank;
    switch (rank) {
    case LEVEL: plan->byte_level = true; break;
    case WORDS: load_decode_words(l, step); break;
    case REPLACE: load_decode_replace(l, step); break;
    case SPACES: load_decode_metaspace(l, step); break;
    case FALLBACK: plan->byte_fallback = true; break;
    case FUSE: l->fused = true; break;
    default: load_strip(l, step);
    }
}

/* ---- post-processor ---- */

static int32_t get_id(ht_loader *l, const ht_json *id) {
    const int64_t value = ht_json_integer_value(id);
    if (ht_json_is_integer(id) && value >= 0 && value < HT_MAX_VOCAB) return (int32_t)value;
    FAIL(l, HT_ERR_FORMAT, "post_processor: a special token's id is missing or out of range");
    return 0;
}

/* Adds an item to the template of single texts, or of pairs. id < 0: a text. */
static void add_item(ht_loader *l, bool is_pair, int32_t id, int32_t type) {
    ht_tokenizer *t = l->t;
    if (l->status) return;
    if (is_pair)
        l->status = ht_add_pair_item(t, id, type, l->err);
    else if (id >= 0)
        l->status = l->seen ? ht_append_id(&t->suffix, &t->n_suffix, id, l->err)
                            : ht_append_id(&t->prefix, &t->n_prefix, id, l->err);
    else
        l->seen = true;
}

static void load_items(ht_loader *l, const ht_json *step, bool is_pair) {
    const char *key = is_pair ? "pair" : "single";
    const ht_json *items = ht_json_object_get(step, key), *specials = ht_json_object_get(step, "special_tokens");
    int n_first = 0, n_second = 0;
    if (is_pair && !items) return;
    if (!ht_json_is_array(items)) FAIL(l, HT_ERR_FORMAT, "post_processor: TemplateProcessing has no list `%s`", key);
    for (size_t i = 0; i < ht_json_array_size(items) && !l->status; i++) {
        const ht_json *item = ht_json_array_get(items, i), *special = ht_json_object_get(item, "SpecialToken"),
                      *text = ht_json_object_get(item, "Sequence");
        const int64_t given = ht_json_integer_value(ht_json_object_get(text ? text : special, "type_id"));
        const int32_t type = given >= 0 && given <= INT32_MAX ? (int32_t)given : 0;
        size_t n;
        if (text) {
            const char *name = ht_json_string_value(ht_json_object_get(text, "id"));
            const bool is_second = name && strcmp(name, "B") == 0;
            *(is_second ? &n_second : &n_first) += 1;
            add_item(l, is_pair, is_second ? HT_PAIR_SECOND : HT_PAIR_FIRST, type);
            continue;
        }
        const char *name = special ? ht_get_text(l, special, "id", &n) : "";
        const ht_json *ids = ht_json_object_get(ht_json_object_get(specials, name), "ids");
        if (!ht_json_is_array(ids))
            FAIL(l, HT_ERR_FORMAT, "post_processor: the special token `%.64s` has no `ids`", name);
        for (size_t k = 0; k < ht_json_array_size(ids) && !l->status; k++)
            add_item(l, is_pair, get_id(l, ht_json_array_get(ids, k)), type);
    }
    if (n_first > 1 || n_second > 1 || (n_second && !is_pair))
        FAIL(l, HT_ERR_UNSUPPORTED, "post_processor: the text occurs twice in `%s`", key);
    if (!n_first || (is_pair && !n_second)) FAIL(l, HT_ERR_FORMAT, "post_processor: `%s` lacks the text itself", key);
}

static void load_template(ht_loader *l, const ht_json *step) {
    load_items(l, step, false);
    load_items(l, step, true);
}

/* BertProcessing and RobertaProcessing: two tokens around texts. */
static void load_two_ends(ht_loader *l, const ht_json *step, bool is_bert) {
    const int32_t cls = get_id(l, ht_json_array_get(ht_json_object_get(step, "cls"), 1)),
                  sep = get_id(l, ht_json_array_get(ht_json_object_get(step, "sep"), 1));
    const ht_pair_item single[] = {{cls, 0}, {HT_PAIR_FIRST, 0}, {sep, 0}};
    for (int i = 0; i < 3; i++) add_item(l, false, single[i].id, 0);
    for (int i = 0; i < 3; i++) add_item(l, true, single[i].id, 0);
    if (!is_bert) add_item(l, true, sep, 0);
    add_item(l, true, HT_PAIR_SECOND, is_bert);
    add_item(l, true, sep, is_bert);
}

static void load_post_processor(ht_loader *l, const ht_json *step, const char *type) {
    if (l->seen && strcmp(type, "ByteLevel") != 0)
        FAIL(l, HT_ERR_UNSUPPORTED, "post_processor: two steps that add tokens are not supported");
    if (strcmp(type, "TemplateProcessing") == 0)
        load_template(l, step);
    else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        load_two_ends(l, step, type[0] == 'B');
    else if (strcmp(type, "ByteLevel") != 0) /* changes offsets only */
        FAIL(l, HT_ERR_UNSUPPORTED, "the post_processor `%.40s` is not supported", type);
}

/* ---- all ---- */

static void check_end(ht_loader *l, int32_t id) {
    if (!ht_vocab_has(&l->t->vocab, id))
        FAIL(l, HT_ERR_FORMAT, "post_processor: the special token %d is not in the vocabulary", (int)id);
}

void ht_check_ends(ht_loader *l) {
    const ht_tokenizer *t = l->t;
    for (size_t i = 0; i < t->n_prefix; i++) check_end(l, t->prefix[i]);
    for (size_t i = 0; i < t->n_suffix; i++) check_end(l, t->suffix[i]);
    for (size_t i = 0; i < t->n_pair; i++)
        if (t->pair[i].id >= 0) check_end(l, t->pair[i].id);
}

static void load_stage(ht_loader *l, const ht_json *root, const char *stage, const char *key, step_fn *load) {
    const ht_json *steps = ht_json_object_get(root, stage);
    l->stage = stage;
    if (!l->status && steps && !ht_json_is_null(steps)) load_steps(l, steps, key, load, 0);
}

void ht_load_document_stages(ht_loader *l, const ht_json *root) {
    load_stage(l, root, "normalizer", "normalizers", load_normalizer);
    load_stage(l, root, "pre_tokenizer", "pretokenizers", load_pre_tokenizer);
    load_stage(l, root, "post_processor", "processors", load_post_processor);
    load_stage(l, root, "decoder", "decoders", load_decoder);
    l->t->decode.join_spaces = ht_is_absent(ht_json_object_get(root, "decoder"));
}

ht_status ht_load_stages(ht_tokenizer *t, const char *json, size_t n, ht_bytes charsmap, ht_error *err) {
    ht_loader l = {.t = t, .err = err, .charsmap = charsmap};
    ht_json *root;
    l.status = ht_json_parse(json, n, "the tokenizer's stages", &root, err);
    if (l.status) return l.status;
    ht_load_document_stages(&l, root);
    if (!l.status) ht_check_ends(&l);
    ht_json_decref(root);
    return l.status;
}
