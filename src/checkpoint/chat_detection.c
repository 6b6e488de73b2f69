#include "checkpoint/chat_detection.h"

#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <hearth/model.h>

#include <stdio.h>
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

/* The vocabulary of a GGUF file takes precedence over tokenizer.json; a missing chat template is read from the directory. */
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

/* ---- what a template takes ---- */

/* A call with its result, its content and its arguments still to be filled in. */
#define PROBE                                                                                                          \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": %s, "            \
    "\"tool_calls\": "                                                                                                 \
    "[{\"type\": \"function\", \"id\": \"call00001\", \"function\": {\"name\": \"f\", \"arguments\": %s}}]}, "         \
    "{\"role\": "                                                                                                      \
    "\"tool\", \"name\": \"f\", \"tool_call_id\": \"call00001\", \"content\": \"b\"}, {\"role\": \"assistant\", "      \
    "\"content\": \"c\"}, {\"role\": \"user\", \"content\": \"d\"}], \"tools\": [{\"type\": \"function\", "            \
    "\"function\": "                                                                                                   \
    "{\"name\": \"f\", \"description\": \"e\", \"parameters\": {\"type\": \"object\", \"properties\": {\"probed\": "   \
    "{\"type\": \"string\", \"description\": \"e\"}}, \"required\": []}}}], \"add_generation_prompt\": true, "         \
    "\"bos_token\": \"\", \"eos_token\": \"\", \"functions\": \"\", \"datetime\": \"\"}"

/* Bytes that the template writes of the probe; 0 where it fails, or does not write the arguments as JSON or as their values. */
static size_t write_probe(const ht_chat_template *t, bool text_arguments, bool null_content) {
    const char *arguments = text_arguments ? "\"{\\\"probed\\\": \\\"00value00\\\"}\"" : "{\"probed\": \"00value00\"}";
    char json[sizeof PROBE + 64], *text;
    const int length = snprintf(json, sizeof json, PROBE, null_content ? "null" : "\"\"", arguments);
    const ht_template_variable all = {NULL, json, (size_t)length};
    size_t n;
    if (ht_chat_template_render(t, &all, 1, &text, &n, NULL)) return 0;
    const bool as_python = strstr(text, "'probed'"), as_json = strstr(text, "{\"probed\": \"00value00\"}");
    const bool good = text_arguments ? as_json : strstr(text, "00value00") && !as_python;
    ht_text_free(text);
    return good ? n : 0;
}

/* Most templates take arguments as objects and empty contents, and fail or write "None" otherwise. Text arguments and null are for
 * templates that write a call only with them; null also for those that write less with null than with an empty content. */
void ht_chat_setup_probe(ht_chat_setup *s) {
    if (!ht_chat_template_mentions(s->template, "tool_calls")) return;
    size_t with_empty = write_probe(s->template, false, false), with_null = write_probe(s->template, false, true);
    if (!with_empty && !with_null) {
        with_empty = write_probe(s->template, true, false), with_null = write_probe(s->template, true, true);
        s->text_arguments = with_empty || with_null;
    }
    s->null_content = with_null && (!with_empty || with_null < with_empty);
}

ht_status ht_chat_setup_parse(const char *source, const char *name, const char *title, ht_chat_setup *out,
                              ht_error *err) {
    *out = (ht_chat_setup){.name = name};
    (void)ht_chat_template_parse(source, strlen(source), title, &out->template, &out->error);
    if (out->error.status == HT_ERR_MEMORY) return ht_fail(err, HT_ERR_MEMORY, "%s", out->error.message);
    if (out->template) ht_chat_setup_probe(out);
    return HT_OK;
}

void ht_chat_setup_free(ht_chat_setup *setup) {
    if (setup->for_tools) ht_chat_setup_free(setup->for_tools);
    free(setup->for_tools);
    ht_chat_template_free(setup->template);
    *setup = (ht_chat_setup){0};
}

/* ---- the setup of a checkpoint ---- */

static ht_status detect_default(const ht_tokenizer *t, ht_chat_setup *out, ht_error *err) {
    const char *source = ht_tokenizer_chat_template(t);
    *out = (ht_chat_setup){0};
    if (source) return ht_chat_setup_parse(source, "template", "the chat template", out, err);
    const ht_builtin_chat_format *format;
    for (int i = 0; (format = ht_builtin_chat_format_at(i)); i++)
        if (ht_tokenizer_find(t, format->opening) >= 0)
            return ht_chat_setup_parse(format->source, format->name, format->name, out, err);
    return HT_OK;
}

ht_status ht_chat_detect_template(const ht_tokenizer *t, ht_chat_setup *out, ht_error *err) {
    const char *source = ht_tokenizer_tool_template(t);
    const ht_status status = detect_default(t, out, err);
    if (status || !source) return status;
    out->for_tools = calloc(1, sizeof *out->for_tools);
    if (!out->for_tools) return ht_fail_memory(err, sizeof *out->for_tools, "a chat template");
    return ht_chat_setup_parse(source, "template", "the chat template tool_use", out->for_tools, err);
}

const ht_chat_setup *ht_chat_setup_for(const ht_chat_setup *setup, bool tools) {
    return tools && setup->for_tools ? setup->for_tools : setup;
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
