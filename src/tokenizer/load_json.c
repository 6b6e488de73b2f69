/* Tokenizer from a tokenizer.json, stage by stage. An unsupported step or parameter is refused by name. */
#include "base/checked.h"
#include "base/error.h"
#include "tokenizer/json_document.h"
#include "tokenizer/load_config.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

typedef struct loader {
    ht_tokenizer *t;
    ht_status status; /* sticky error */
    ht_error *err;
    const char *stage; /* for messages */
    bool fused;        /* decoder: a Fuse step was read */
    int decoder_rank;  /* decoder: rank of the last step; must not decrease */
} loader;

#define FAIL(l, ...) ((void)((l)->status ? (l)->status : ((l)->status = ht_fail((l)->err, __VA_ARGS__))))

/* ---- JSON members ---- */

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

/* A string member, borrowed; *n is its length. */
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
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const ht_json *value = ht_json_object_get(step, "behavior");
    if (!value && !required) return HT_SPLIT_ISOLATED;
    const char *name = ht_json_string_value(value);
    for (int i = 0; name && i < 5; i++)
        if (strcmp(name, names[i]) == 0) return (ht_behavior)i;
    FAIL(l, HT_ERR_UNSUPPORTED, "%s: the behavior `%.40s` is not known", l->stage, name ? name : "(none)");
    return HT_SPLIT_ISOLATED;
}

typedef void step_fn(loader *l, const ht_json *step, int depth);

/* Calls the step function for each member of a Sequence, listed under `key`. */
static void each_step(loader *l, const ht_json *sequence, const char *key, int depth, step_fn *fn) {
    const ht_json *steps = ht_json_object_get(sequence, key);
    if (!ht_json_is_array(steps)) {
        FAIL(l, HT_ERR_FORMAT, "%s: a Sequence has no list `%s`", l->stage, key);
        return;
    }
    if (depth >= 8) FAIL(l, HT_ERR_LIMIT, "%s: Sequences are nested more than 8 deep", l->stage);
    for (size_t i = 0; i < ht_json_array_size(steps) && !l->status; i++) fn(l, ht_json_array_get(steps, i), depth + 1);
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
    ht_normal_step *s = ht_add_normal(l->t, HT_NORMAL_REPLACE_REGEX, l->err);
    l->status = s ? ht_regex_new(pattern, n, &s->regex, l->err) : HT_ERR_LIMIT;
    if (l->status) return;
    s->from = copy(l, pattern, n);
    s->n_from = n;
    s->to = copy(l, content, n_content);
    s->n_to = n_content;
}

static void load_normalizer(loader *l, const ht_json *step, int depth) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = type_of(l, step);
    if (l->status) return;
    if (strcmp(type, "Sequence") == 0) {
        each_step(l, step, "normalizers", depth, load_normalizer);
        return;
    }
    if (strcmp(type, "Replace") == 0) {
        load_replace(l, step);
        return;
    }
    ht_normal_step s = {.kind = HT_NORMAL_FORM};
    int form = 0;
    while (form < 4 && strcmp(type, forms[form]) != 0) form++;
    if (form < 4)
        s.form = (ht_normal_form)form;
    else if (strcmp(type, "Lowercase") == 0)
        s.kind = HT_NORMAL_LOWERCASE;
    else if (strcmp(type, "Prepend") == 0) {
        s.kind = HT_NORMAL_PREPEND;
        const char *text = get_text(l, step, "prepend", &s.n_to);
        s.to = copy(l, text, s.n_to);
    } else if (strcmp(type, "Strip") == 0) {
        s.kind = HT_NORMAL_STRIP;
        s.left = get_bool(l, step, "strip_left", true);
        s.right = get_bool(l, step, "strip_right", true);
    } else
        FAIL(l, HT_ERR_UNSUPPORTED, "the normalizer `%.40s` is not supported", type);
    ht_normal_step *place = l->status ? NULL : ht_add_normal(l->t, s.kind, l->err);
    if (place)
        *place = s;
    else {
        ht_normal_step_free(&s);
        if (!l->status) l->status = HT_ERR_LIMIT;
    }
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
    ht_pre_step *s = ht_add_pre(l->t, HT_PRE_SPLIT, l->err);
    if (!s) {
        l->status = HT_ERR_LIMIT;
        return;
    }
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

static void load_metaspace(loader *l, const ht_json *step, ht_pre_step *s) {
    const char *scheme = get_prepend_scheme(l, step);
    const char *replacement = get_text(l, step, "replacement", &s->n_replacement);
    s->kind = HT_PRE_METASPACE;
    s->add_prefix_space = strcmp(scheme, "always") == 0;
    s->prefix_first = strcmp(scheme, "first") == 0;
    s->split = get_bool(l, step, "split", true);
    s->replacement = copy(l, replacement, s->n_replacement);
    size_t length = 0;
    if (s->n_replacement) ht_utf8_next(replacement, &length);
    if (!length || length != s->n_replacement)
        FAIL(l, HT_ERR_FORMAT, "pre_tokenizer: Metaspace's `replacement` is not one character");
}

#define WORDS_AND_OTHERS "[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+"

static void load_pre_tokenizer(loader *l, const ht_json *step, int depth) {
    const char *type = type_of(l, step);
    if (l->status) return;
    if (strcmp(type, "Sequence") == 0) {
        each_step(l, step, "pretokenizers", depth, load_pre_tokenizer);
        return;
    }
    if (strcmp(type, "Split") == 0) {
        load_split(l, step);
        return;
    }
    if (strcmp(type, "Whitespace") == 0) {
        l->status =
            ht_add_split_regex(l->t, WORDS_AND_OTHERS, strlen(WORDS_AND_OTHERS), HT_SPLIT_REMOVED, true, l->err);
        return;
    }
    ht_pre_step s = {.kind = HT_PRE_SPLIT};
    if (strcmp(type, "ByteLevel") == 0) {
        s.kind = HT_PRE_BYTE_LEVEL;
        s.add_prefix_space = get_bool(l, step, "add_prefix_space", true);
        s.scan = get_bool(l, step, "use_regex", true) ? ht_scan_gpt2 : NULL;
    } else if (strcmp(type, "Digits") == 0) {
        s.classes = HT_CLASS_DIGIT;
        s.behavior = get_bool(l, step, "individual_digits", false) ? HT_SPLIT_ISOLATED : HT_SPLIT_CONTIGUOUS;
    } else if (strcmp(type, "Punctuation") == 0) {
        s.classes = HT_CLASS_PUNCT_STEP;
        s.behavior = get_behavior(l, step, false);
    } else if (strcmp(type, "WhitespaceSplit") == 0) {
        s.classes = HT_CLASS_SPACE;
        s.behavior = HT_SPLIT_REMOVED;
    } else if (strcmp(type, "Metaspace") == 0)
        load_metaspace(l, step, &s);
    else
        FAIL(l, HT_ERR_UNSUPPORTED, "the pre_tokenizer `%.40s` is not supported", type);
    ht_pre_step *place = l->status ? NULL : ht_add_pre(l->t, s.kind, l->err);
    if (place)
        *place = s;
    else {
        ht_pre_step_free(&s);
        if (!l->status) l->status = HT_ERR_LIMIT;
    }
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
static void load_decoder(loader *l, const ht_json *step, int depth) {
    static const char *const order[] = {"ByteLevel", "Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"};
    const char *type = type_of(l, step);
    if (l->status) return;
    if (strcmp(type, "Sequence") == 0) {
        each_step(l, step, "decoders", depth, load_decoder);
        return;
    }
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

static void load_post_processor(loader *l, const ht_json *step, int depth) {
    const char *type = type_of(l, step);
    if (l->status) return;
    if (strcmp(type, "Sequence") == 0)
        each_step(l, step, "processors", depth, load_post_processor);
    else if (strcmp(type, "TemplateProcessing") == 0)
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

static void load_merges(loader *l, const ht_json_document *d) {
    if (d->n_merges > HT_MAX_MERGES)
        FAIL(l, HT_ERR_LIMIT, "model.merges has %zu merges; at most %d are supported", d->n_merges, HT_MAX_MERGES);
    if (!l->status) l->status = ht_merges_reserve(&l->t->merges, (int32_t)d->n_merges, l->err);
    ht_merge_text batch[HT_MERGE_BATCH];
    for (size_t i = 0, n; i < d->n_merges && !l->status; i += n) {
        n = ht_min_size(HT_MERGE_BATCH, d->n_merges - i);
        for (size_t k = 0; k < n; k++) {
            const ht_listed_merge *m = &d->merges[i + k];
            const char *left = d->merge_text.data + m->begin;
            batch[k] = (ht_merge_text){left, left + m->n_left, m->n_left, m->n_right};
        }
        l->status = ht_add_merges(l->t, batch, n, l->err);
    }
}

static void load_model(loader *l, const ht_json_document *d) {
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

/* Loads a stage when the document has it. */
static void load_stage(loader *l, const ht_json *root, const char *key, step_fn *fn) {
    const ht_json *stage = ht_json_object_get(root, key);
    l->stage = key;
    if (!l->status && stage && !ht_json_is_null(stage)) fn(l, stage, 0);
}

static void load_document(loader *l, const ht_json_document *d, const char *config, size_t n_config) {
    load_stage(l, d->root, "normalizer", load_normalizer);
    load_stage(l, d->root, "pre_tokenizer", load_pre_tokenizer);
    load_stage(l, d->root, "post_processor", load_post_processor);
    load_stage(l, d->root, "decoder", load_decoder);
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
    ht_json_document d;
    l.status = ht_json_document_parse(json, n, &d, &l.t->vocab, err);
    if (!l.status) load_document(&l, &d, config, n_config);
    ht_json_document_free(&d);
    if (l.status) {
        ht_tokenizer_free(l.t);
        return l.status;
    }
    *out = l.t;
    return HT_OK;
}
