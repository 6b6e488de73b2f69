#include "checkpoint/chat_detection.h"

#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <hearth/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- built-in chat templates ---- */

/* clang-format off */

/* Rejects tools and roles that these formats cannot express. `first`: index of the message after the system text. */
#define BEGIN(name) \
    "{%- if tools %}{{ raise_exception('the " name " chat format has no tools; the checkpoint lacks a chat template') }}{% endif %}" \
    "{%- for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] or m.tool_calls %}" \
    "{{ raise_exception('message ' ~ loop.index0 ~ ' is of a tool, and the " name " chat format has none; the checkpoint lacks a chat template') }}" \
    "{% endif %}{% endfor %}" \
    "{%- set first = 1 if messages and messages[0].role == 'system' else 0 %}"

/* Checks that user and assistant alternate. */
#define TURNS(name) \
    "{%- if messages | length == first %}{{ raise_exception('the " name " chat format needs a user message after the system message') }}{% endif %}" \
    "{%- for m in messages[first:] %}{% set expected = 'assistant' if loop.index0 % 2 else 'user' %}{% if m.role != expected %}" \
    "{{ raise_exception('message ' ~ (loop.index0 + first) ~ ' has the role ' ~ m.role ~ ', but the " name \
    " chat format alternates user and assistant: expected ' ~ expected) }}{% endif %}{% endfor %}"

#define DEEPSEEK(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C>"

static const ht_builtin_chat_format formats[] = {
    {"chatml", "<|im_start|>",
     BEGIN("chatml")
     "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},

    {"gemma", "<start_of_turn>",
     BEGIN("gemma") TURNS("gemma")
     "{{- bos_token }}"
     "{%- for m in messages[first:] %}"
     "{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' }}"
     "{%- if first and loop.first %}{{ messages[0].content + '\\n\\n' }}{% endif %}"
     "{{- m.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},

    /* Drops the reasoning of earlier answers. */
    {"gemma4", "<|turn>",
     BEGIN("gemma4")
     "{{- bos_token }}"
     "{%- for m in messages %}{{ '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
     "{%- if m.role == 'assistant' %}{% set ns = namespace(text='') %}"
     "{%- for part in m.content.split('<channel|>') %}{% set ns.text = ns.text + part.split('<|channel>')[0] %}{% endfor %}"
     "{{- ns.text | trim }}{% else %}{{ m.content | trim }}{% endif %}"
     "{{- '<turn|>\\n' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}"},

    {"llama3", "<|start_header_id|>",
     BEGIN("llama3")
     "{{- bos_token }}"
     "{%- for m in messages %}"
     "{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},

    /* The last system text comes first. Drops the reasoning of earlier answers. */
    {"deepseek", DEEPSEEK("User"),
     BEGIN("deepseek")
     "{{- bos_token }}{% set ns = namespace(system='') %}"
     "{%- for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}{{ ns.system }}"
     "{%- for m in messages %}"
     "{%- if m.role == 'user' %}{{ '" DEEPSEEK("User") "' + m.content }}"
     "{%- elif m.role == 'assistant' %}"
     "{{- '" DEEPSEEK("Assistant") "' + m.content.split('</think>')[-1] + '" DEEPSEEK("end\xE2\x96\x81of\xE2\x96\x81sentence") "' }}"
     "{%- endif %}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '" DEEPSEEK("Assistant") "' }}{% endif %}"},

    /* The system text and the first message are trimmed as one. */
    {"llama2", "<<SYS>>",
     BEGIN("llama2") TURNS("llama2")
     "{{- bos_token }}"
     "{%- for m in messages[first:] %}"
     "{%- if m.role == 'user' %}"
     "{%- set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' if first and loop.first else '' %}"
     "{{- '[INST] ' + (system + m.content) | trim + ' [/INST]' }}"
     "{%- else %}{{ ' ' + m.content | trim + ' ' ~ eos_token }}{% endif %}{% endfor %}"},

    {"mistral", "[INST]",
     BEGIN("mistral") TURNS("mistral")
     "{{- bos_token }}"
     "{%- for m in messages[first:] %}"
     "{%- if m.role == 'user' %}"
     "{{- '[INST]' + (messages[0].content + '\\n\\n' if first and loop.first else '') + m.content + '[/INST]' }}"
     "{%- else %}{{ m.content ~ eos_token }}{% endif %}{% endfor %}"},
};

/* clang-format on */

const ht_builtin_chat_format *ht_builtin_chat_format_at(int i) {
    return i >= 0 && (size_t)i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}

const char *ht_model_chat_format(int i) {
    const ht_builtin_chat_format *format = ht_builtin_chat_format_at(i);
    return format ? format->name : NULL;
}

/* End-of-turn and end-of-text tokens. Needed since many files list only one: Gemma's GGUF lists <eos>, while answers end
 * with <end_of_turn>; GLM's list no <|observation|>, which follows a tool call. */
static const struct ending {
    const char *text;
    const char *with;      /* only in a vocabulary that has this token, too */
    const char *unless[2]; /* not in a vocabulary that has one of these */
    bool only_special;     /* the text may be an ordinary token */
} endings[] = {
    {.text = "<end_of_turn>"},
    {.text = "<turn|>"},
    {.text = "<|tool_response>"}, /* Gemma 4, after its tool calls */
    {.text = "<|im_end|>"},
    {.text = "<|eot_id|>"},
    {.text = "<|eom_id|>"},
    {.text = "<|eot|>"},
    {.text = "<|eom|>"},
    {.text = "<|endoftext|>"},
    {.text = "<|end_of_text|>"},
    {.text = "<|end|>", .unless = {"<|channel|>", "<|calls|>"}}, /* in harmony it ends a message, not the answer */
    {.text = "<|return|>"},
    {.text = "<|call|>"},
    {.text = "<|calls|>"},
    {.text = "<|flush|>"},
    {.text = "<|observation|>"},
    {.text = "<|user|>", .with = "<|observation|>"}, /* GLM has no other end of a turn */
    {.text = "<|END_OF_TURN_TOKEN|>"},
    {.text = "[|endofturn|]"},
    {.text = "<|endofturn|>"},
    {.text = "<|end_of_sentence|>"},
    {.text = "<end_of_utterance>"},
    {.text = "<seed:eos>"},
    {.text = "[e~["},
    {.text = "<|eos|>"},
    {.text = DEEPSEEK("end\xE2\x96\x81of\xE2\x96\x81sentence")},
    {.text = DEEPSEEK("hy_place\xE2\x96\x81holder\xE2\x96\x81no\xE2\x96\x81"
                      "2")},
    {.text = DEEPSEEK("hy_eos:opensource")},
    {.text = "<extra_id_1>", .only_special = true}, /* Nemotron writes it before each turn */
    {.text = "</s>", .only_special = true},
    {.text = "[EOS]", .only_special = true},
    {.text = "[EOT]", .only_special = true},
};
enum { N_ENDINGS = sizeof endings / sizeof *endings };

/* The vocabulary of a GGUF file overrides tokenizer.json and vocab.txt; a missing chat template is read from the directory. */
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
    char *path = ht_tokenizer_file_in(directory);
    if (!path) return ht_fail_memory(err, strlen(directory) + 16, "a path");
    ht_status status = ht_path_exists(path) ? ht_tokenizer_load(path, out, err) : HT_OK;
    free(path);
    return status;
}

const char *ht_chat_detect_no_tokenizer(const ht_checkpoint_files *c) {
    return c->gguf ? "holds no tokenizer.ggml.tokens" : ht_tokenizer_missing(c->path);
}

/* ---- what a template takes ---- */

/* A tool call and its result, with placeholders for content and arguments. */
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

/* Bytes of the rendered probe; 0 if the template fails, or writes the arguments neither as JSON nor as values. */
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

/* Most templates expect arguments as objects and empty contents; they fail or write "None" otherwise. Text arguments
 * and null are used for templates that write a call only with them, null also if it shortens the output. */
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

/* The id of an ending; -1 when the vocabulary lacks it or uses its text otherwise. */
static int32_t find_ending(const ht_tokenizer *t, const struct ending *e) {
    const int32_t id = ht_tokenizer_find(t, e->text);
    if (id < 0 || (e->only_special && !ht_tokenizer_is_special(t, id))) return -1;
    if (e->with && ht_tokenizer_find(t, e->with) < 0) return -1;
    for (int i = 0; i < 2; i++)
        if (e->unless[i] && ht_tokenizer_find(t, e->unless[i]) >= 0) return -1;
    return id;
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
        const int32_t id = find_ending(t, &endings[i]);
        if (id >= 0) add(*ids, n, id);
    }
    return HT_OK;
}
