#include "checkpoint/chat_detection.h"

#include "base/error.h"
#include "checkpoint/chat_formats.h"
#include "tokenizer/tokenizer.h"

#include <hearth/model.h>

#include <stdlib.h>
#include <string.h>

const char *ht_model_chat_format(int i) {
    const ht_builtin_chat_format *format = ht_builtin_chat_format_at(i);
    return format ? format->name : NULL;
}

/* End-of-turn and end-of-text tokens. Needed since Gemma's GGUF files list only <eos>, while answers end with
 * <end_of_turn>. */
static const char *const endings[] = {
    "<end_of_turn>",   "<turn|>",
    "<|im_end|>",      "<|eot_id|>",
    "<|eom_id|>",      "<|endoftext|>",
    "<|end_of_text|>", "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>"};
enum { N_ENDINGS = sizeof endings / sizeof *endings };

/* A GGUF's own vocabulary precedes a tokenizer.json beside it; a missing chat template is read from the directory. */
static ht_status from_gguf(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err) {
    ht_status status = ht_tokenizer_from_gguf(c->gguf, c->name, out, err);
    if (!status && c->directory) status = ht_tokenizer_find_template(*out, c->directory, err);
    if (!status) return HT_OK;
    ht_tokenizer_free(*out);
    *out = NULL;
    return status;
}

ht_status ht_chat_detect_tokenizer(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err) {
    *out = NULL;
    if (c->gguf && ht_gguf_find(c->gguf, "tokenizer.ggml.tokens")) return from_gguf(c, out, err);
    const char *directory = c->gguf ? c->directory : c->path;
    if (!directory) return HT_OK;
    char *path = ht_path_join(directory, "tokenizer.json");
    if (!path) return ht_fail_memory(err, strlen(directory) + 16, "a path");
    ht_status status = ht_path_exists(path) ? ht_tokenizer_load(path, out, err) : HT_OK;
    free(path);
    return status;
}

const char *ht_chat_detect_no_tokenizer(const ht_checkpoint_files *c) {
    return c->gguf ? "holds no tokenizer.ggml.tokens" : ht_tokenizer_missing(c->path);
}

ht_status ht_chat_detect_template(const ht_tokenizer *t, ht_chat_setup *out, ht_error *err) {
    const char *source = ht_tokenizer_chat_template(t);
    *out = (ht_chat_setup){0};
    if (source) {
        out->name = "template";
        (void)ht_chat_template_parse(source, strlen(source), "the chat template", &out->template, &out->error);
        if (out->error.status != HT_ERR_MEMORY) return HT_OK;
        return ht_fail(err, HT_ERR_MEMORY, "%s", out->error.message);
    }
    const ht_builtin_chat_format *format;
    for (int i = 0; (format = ht_builtin_chat_format_at(i)); i++)
        if (ht_tokenizer_find(t, format->opening) >= 0) {
            out->name = format->name;
            return ht_chat_template_parse(format->source, strlen(format->source), format->name, &out->template, err);
        }
    return HT_OK;
}

static void add(int32_t *ids, int *n, int32_t id) {
    for (int i = 0; i < *n; i++)
        if (ids[i] == id) return;
    ids[(*n)++] = id;
}

ht_status ht_chat_detect_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n,
                                  ht_error *err) {
    *n = 0;
    size_t most = (size_t)config->n_eos + 1 + N_ENDINGS;
    *ids = calloc(most, sizeof **ids);
    if (!*ids) return ht_fail_memory(err, most * sizeof **ids, "stop ids");
    for (int i = 0; i < config->n_eos; i++) add(*ids, n, config->eos[i]);
    if (!t) return HT_OK;
    if (ht_tokenizer_eos(t) >= 0) add(*ids, n, ht_tokenizer_eos(t));
    for (int i = 0; i < N_ENDINGS; i++) {
        int32_t id = ht_tokenizer_find(t, endings[i]);
        if (id >= 0) add(*ids, n, id);
    }
    return HT_OK;
}
