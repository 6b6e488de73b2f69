/* Models in Ollama's form: lists, details, and the rejection of changes. */
#include "serve/ollama/ollama.h"
#include "serve/sampling.h"

#include <hearth/chat.h>
#include <hearth/template.h>

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/* ---- capabilities ---- */

#define TOOL "weather_in_place"

static ht_status set_question(ht_chat *chat, bool tool, bool thinks) {
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\",\"description\":\"Weather\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\","
        "\"description\":\"Place\"}},\"required\":[\"place\"]}}}]";
    ht_status status = ht_chat_add(chat, "user", "Hello", NULL);
    if (!status) status = ht_chat_set_variable(chat, "bos_token", "\"\"", 2, NULL);
    if (!status) status = ht_chat_set_variable(chat, "eos_token", "\"\"", 2, NULL);
    if (!status) status = ht_chat_set_thinking(chat, thinks, NULL);
    if (!status && tool) status = ht_chat_set_tools(chat, tools, sizeof tools - 1, NULL);
    return status;
}

/* Renders one question, with or without a tool, with reasoning on or off; NULL: the template rejects it. */
static char *render(const ht_chat_template *t, bool tool, bool thinks) {
    ht_chat *chat;
    char *text = NULL;
    size_t n;
    if (ht_chat_new(&chat, NULL)) return NULL;
    if (set_question(chat, tool, thinks) || ht_chat_render(t, NULL, chat, &text, &n, NULL)) text = NULL;
    ht_chat_free(chat);
    return text;
}

static bool writes_tools(const ht_chat_template *t) {
    char *text = render(t, true, false);
    const bool found = text && strstr(text, TOOL);
    ht_text_free(text);
    return found;
}

/* Whether the switch changes the output, or the template has reasoning markers, as for models that always reason. */
static bool thinks(const ht_chat_template *t, const char *source) {
    static const char *const marks[] = {"<think>",         "</think>",      "<|channel|>analysis", "<|channel>thought",
                                        "[THINK]",         "</seed:think>", "</think{}>",          "<|START_THINKING|>",
                                        "<|inner_prefix|>"};
    char *on = render(t, false, true), *off = render(t, false, false);
    bool found = on && off && strcmp(on, off) != 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) found = found || strstr(source, marks[i]);
    ht_text_free(on);
    ht_text_free(off);
    return found;
}

serve_capabilities serve_capabilities_of(const ht_tokenizer *t) {
    serve_capabilities out = {0};
    ht_chat_template *parsed = NULL;
    const char *source = t ? ht_tokenizer_chat_template(t) : NULL;
    out.insert = t && serve_has_infill(t);
    if (!source || ht_chat_template_parse(source, strlen(source), "the chat template", &parsed, NULL)) return out;
    out.template = true;
    out.tools = ht_tokenizer_tool_template(t) || writes_tools(parsed);
    out.thinking = thinks(parsed, source);
    ht_chat_template_free(parsed);
    return out;
}

/* ---- details ---- */

static void parameter_size(int64_t n, char *out, size_t room) {
    static const struct {
        double unit;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if ((double)n >= units[i].unit) {
            snprintf(out, room, "%.1f%c", (double)n / units[i].unit, units[i].letter);
            return;
        }
    snprintf(out, room, "%lld", (long long)n);
}

static ht_json *details_json(const serve_model_name *m, const serve_details *d) {
    char size[32];
    parameter_size(d->n_parameters, size, sizeof size);
    return ht_json_pack("{ss ss ss s[s] ss ss}", "parent_model",
                        m->model      ? m->model
                        : m->alias_of ? m->alias_of
                                      : "",
                        "format", d->format, "family", d->architecture, "families", d->architecture, "parameter_size",
                        size, "quantization_level", d->quantization);
}

/* A name with a tag, which Ollama's clients expect in every name. */
static void tagged(const char *name, char *out, size_t room) {
    const char *slash = strrchr(name, '/');
    snprintf(out, room, "%s%s", name, strchr(slash ? slash : name, ':') ? "" : ":latest");
}

/* A digest of name, size and modification time: hashing the weights would take minutes. */
static void digest(const serve_model_name *m, const serve_details *d, char out[65]) {
    char text[512];
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    const int length = snprintf(text, sizeof text, "%lld %lld %.400s", (long long)d->file_bytes, (long long)m->created,
                                m->alias_of ? m->alias_of : m->name);
    memset(sum, 0, sizeof sum);
    (void)EVP_Digest(text, (size_t)length, sum, &n, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

/* The fields that both lists share. */
static ht_json *model_json(const serve_model_name *m, const serve_details *d, int64_t bytes) {
    char name[512], sum[65];
    tagged(m->name, name, sizeof name);
    digest(m, d, sum);
    return ht_json_pack("{ss ss sI ss so}", "name", name, "model", name, "size", (int64_t)bytes, "digest", sum,
                        "details", details_json(m, d));
}

/* ---- lists ---- */

bool serve_ollama_tags(serve_call *c) {
    ht_json *models = ht_json_new_array();
    serve_model_name m;
    for (size_t i = 0; serve_models_name(c->server->models, i, &m); i++) {
        char changed[SERVE_OLLAMA_TIME];
        const serve_details d = serve_models_details(c->server->models, &m);
        serve_ollama_time(m.created, changed);
        ht_json *one = model_json(&m, &d, d.file_bytes);
        ht_json_object_set_new(one, "modified_at", ht_json_string(changed));
        ht_json_array_append_new(models, one);
    }
    serve_reply_json(c->x, 200, ht_json_pack("{so}", "models", models), SERVE_OLLAMA);
    return true;
}

bool serve_ollama_running(serve_call *c) {
    ht_json *models = ht_json_new_array();
    serve_model_name m;
    for (size_t i = 0; serve_models_name(c->server->models, i, &m); i++) {
        if (!m.loaded || m.alias_of || m.model) continue;
        const serve_details d = serve_models_details(c->server->models, &m);
        ht_json *one = model_json(&m, &d, (int64_t)m.bytes);
        /* Models stay until evicted or unloaded, so the expiry time is unknown. */
        ht_json_object_set_new(one, "expires_at", ht_json_string("9999-12-31T23:59:59Z"));
        ht_json_object_set_new(one, "size_vram", ht_json_integer(0));
        ht_json_object_set_new(one, "context_length", ht_json_integer(d.context));
        ht_json_array_append_new(models, one);
    }
    serve_reply_json(c->x, 200, ht_json_pack("{so}", "models", models), SERVE_OLLAMA);
    return true;
}

/* ---- one model ---- */

static const serve_field name_fields[] = {{"model", .is = SERVE_IS_TEXT}, {"name", .is = SERVE_IS_TEXT}, {0}};
const serve_field serve_ollama_show_fields[] = {SERVE_MORE(name_fields),
                                                {"verbose", .is = SERVE_IS_FLAG},
                                                SERVE_LACKED_FIELDS("system", "template", "options"),
                                                {0}};
const serve_field serve_ollama_pull_fields[] = {
    SERVE_MORE(name_fields), SERVE_NOTED_FIELDS("stream", "insecure", "username", "password"), {0}};

/* The model's name from the current or the former field; NULL, with a failure: none. */
static const char *read_name(serve_call *c) {
    const char *name = serve_text(c->body, "model");
    if (!name) name = serve_text(c->body, "name");
    if (name && *name) return name;
    serve_fail(&c->failure, 400, "model", "\"model\" must be the name of a model");
    return NULL;
}

static void set_number(ht_json *to, const char *group, const char *key, int64_t value) {
    char name[160];
    snprintf(name, sizeof name, "%.64s.%s", group, key);
    if (value > 0) ht_json_object_set_new(to, name, ht_json_integer(value));
}

static void set_tokens(ht_json *to, const ht_tokenizer *t, bool verbose) {
    if (!t) return;
    ht_json *tokens = verbose ? ht_json_new_array() : ht_json_null();
    for (int32_t i = 0; verbose && i < ht_tokenizer_vocab_size(t); i++)
        ht_json_array_append_new(tokens, ht_json_string(ht_tokenizer_piece(t, i)));
    ht_json_object_set_new(to, "tokenizer.ggml.tokens", tokens);
    if (ht_tokenizer_bos(t) >= 0)
        ht_json_object_set_new(to, "tokenizer.ggml.bos_token_id", ht_json_integer(ht_tokenizer_bos(t)));
    if (ht_tokenizer_eos(t) >= 0)
        ht_json_object_set_new(to, "tokenizer.ggml.eos_token_id", ht_json_integer(ht_tokenizer_eos(t)));
}

/* Metadata of a checkpoint under GGUF's names, whatever its format. */
static ht_json *info_json(const ht_model_info *info, const ht_tokenizer *t, bool verbose) {
    const char *arch = info->architecture;
    ht_json *out =
        ht_json_pack("{ss sI}", "general.architecture", arch, "general.parameter_count", (int64_t)info->n_parameters);
    if (*info->name) ht_json_object_set_new(out, "general.name", ht_json_string(info->name));
    set_number(out, arch, "context_length", info->context);
    set_number(out, arch, "embedding_length", info->hidden);
    set_number(out, arch, "block_count", info->n_layers);
    set_number(out, arch, "feed_forward_length", info->feed_forward);
    set_number(out, arch, "vocab_size", info->vocab);
    set_number(out, arch, "attention.head_count", info->n_heads);
    set_number(out, arch, "attention.head_count_kv", info->n_kv_heads);
    set_number(out, arch, "attention.key_length", info->head_dim);
    set_number(out, arch, "attention.sliding_window", info->sliding_window);
    set_number(out, arch, "expert_count", info->n_experts);
    set_number(out, arch, "expert_used_count", info->n_experts_used);
    set_tokens(out, t, verbose);
    return out;
}

static ht_json *capabilities_json(const ht_model_info *info, const ht_tokenizer *t) {
    const serve_capabilities can = serve_capabilities_of(t);
    if (info->is_encoder) return serve_tasks_json(serve_tasks_of(info));
    ht_json *list = ht_json_pack("[s]", "completion");
    if (can.tools) ht_json_array_append_new(list, ht_json_string("tools"));
    if (can.thinking) ht_json_array_append_new(list, ht_json_string("thinking"));
    if (can.insert) ht_json_array_append_new(list, ht_json_string("insert"));
    ht_json_array_append_new(list, ht_json_string("embedding"));
    return list;
}

/* Writes the default sampling values as Modelfile parameters, omitting those that are off. Encoders do not sample. */
static void write_parameters(const serve_options *o, const ht_model_info *info, const char *before, ht_text *out) {
    for (int32_t i = 0; i < info->n_sampling && !info->is_encoder; i++) {
        const ht_sampling_value v = serve_sampling_value(o, &info->sampling[i]);
        const bool penalty = strcmp(v.name, "repeat_penalty") == 0, window = strcmp(v.name, "repeat_window") == 0;
        if (window || (v.value == 0 && strcmp(v.name, "temperature") != 0) || (penalty && v.value == 1)) continue;
        ht_text_printf(out, "%s%s %g\n", before, v.name, v.value);
    }
}

static ht_json *show_json(serve_call *c, const serve_model_name *m, const ht_model_info *info, const ht_tokenizer *t,
                          bool verbose) {
    ht_text parameters = {0}, file = {0};
    char changed[SERVE_OLLAMA_TIME];
    const char *own = t ? ht_tokenizer_chat_template(t) : NULL;
    const serve_details d = serve_models_details(c->server->models, m);
    write_parameters(&c->server->o, info, "", &parameters);
    ht_text_printf(&file, "# Written by the server for clients that show it.\nFROM %s\n",
                   m->model ? m->model : m->name);
    if (m->model) ht_text_printf(&file, "ADAPTER %s\n", m->name);
    if (own) {
        ht_text_append_str(&file, "TEMPLATE \"\"\"");
        ht_text_append_str(&file, own);
        ht_text_append_str(&file, "\"\"\"\n");
    }
    write_parameters(&c->server->o, info, "PARAMETER ", &file);
    serve_ollama_time(m->created, changed);
    ht_json *out = parameters.failed || file.failed
                       ? NULL
                       : ht_json_pack("{so so ss so so so ss}", "modelfile", serve_text_json(&file), "parameters",
                                      serve_text_json(&parameters), "template", own ? own : "", "details",
                                      details_json(m, &d), "model_info", info_json(info, t, verbose), "capabilities",
                                      capabilities_json(info, t), "modified_at", changed);
    ht_text_discard(&parameters);
    ht_text_discard(&file);
    return out;
}

bool serve_ollama_show(serve_call *c) {
    serve_model_name m, model;
    ht_model_info *info;
    ht_tokenizer *t = NULL;
    ht_error err = {0};
    const char *name = read_name(c);
    if (!name || !serve_models_get(c->server->models, name, &m, &c->failure)) return false;
    model = m;
    if (m.model && !serve_models_find(c->server->models, m.model, &model)) model = m;
    const ht_status status = ht_model_info_read(model.path, &info, &err);
    if (status) return serve_fail(&c->failure, 500, NULL, "%s", err.message);
    (void)ht_tokenizer_load(model.path, &t, NULL); /* a model without a tokenizer accepts only ids */
    serve_reply_json(c->x, 200, show_json(c, &m, info, t, serve_flag(c->body, "verbose", false)), SERVE_OLLAMA);
    ht_tokenizer_free(t);
    ht_model_info_free(info);
    return true;
}

/* ---- model management ---- */

bool serve_ollama_pull(serve_call *c) {
    serve_model_name m;
    const char *name = read_name(c);
    if (!name) return false;
    if (!serve_models_find(c->server->models, name, &m) && !serve_models_broken(c->server->models, name))
        return serve_fail(&c->failure, 404, "model",
                          "\"%.128s\" not found; the server does not download models: run `hearth pull %.128s` on its "
                          "machine, and start it again with that model",
                          name, name);
    if (!serve_models_get(c->server->models, name, &m, &c->failure)) return false;
    serve_reply_json(c->x, 200, ht_json_pack("{ss}", "status", "success"), SERVE_OLLAMA);
    return true;
}

bool serve_ollama_manage(serve_call *c) {
    const char *path = c->route->path;
    const char *how = strcmp(path, "/api/delete") == 0 ? "run `hearth rm` on its machine"
                      : strcmp(path, "/api/copy") == 0 ? "start it with --alias NAME=MODEL for another name of a model"
                      : strcmp(path, "/api/push") == 0 ? "checkpoints are published with the tools of their hub"
                                                       : "start it with another model, or with --adapter";
    return serve_fail(&c->failure, 501, NULL, "%.64s is not supported: %s", path, how);
}
