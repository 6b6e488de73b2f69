#include "generate/rerank_input.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "checkpoint/family.h"
#include "generate/prompt_ids.h"

#include <stdlib.h>
#include <string.h>

/* ---- prompts of decoders ---- */

#define INSTRUCT "<Instruct>:"
/* Qwen3-Reranker's, as its authors publish it, in the form of GGUF files. */
static const char qwen3_prompt[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n" INSTRUCT
    " Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

static void write_quoted(ht_text *out, const char *text, size_t n) {
    ht_text_append_str(out, "\"");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') ht_text_append_str(out, "\\");
        ht_text_append(out, text[i] == '\n' ? "\\n" : text + i, text[i] == '\n' ? 2 : 1);
    }
    ht_text_append_str(out, "\"");
}

/* The content of the message with a role, or a text if there is no such message. */
static void write_role(ht_text *out, const char *role, const char *otherwise, size_t n) {
    ht_text_printf(out, "{{ messages | selectattr(\"role\", \"eq\", \"%s\") | map(attribute=\"content\") | first",
                   role);
    if (otherwise) {
        ht_text_append_str(out, " | default(");
        write_quoted(out, otherwise, n);
        ht_text_append_str(out, ")");
    }
    ht_text_append_str(out, " }}");
}

/* Writes a prompt of GGUF as a template. {query}, {document} and {instruction} become messages; without the latter, so
 * does the rest of the line after "<Instruct>: ". */
static void write_template(ht_text *out, const char *prompt) {
    static const char instruct[] = INSTRUCT " ";
    static const struct {
        const char *mark, *role;
    } marks[] = {{"{query}", "query"}, {"{document}", "document"}, {"{instruction}", "system"}};
    enum { MARKS = sizeof marks / sizeof *marks };
    const bool marked = strstr(prompt, "{instruction}");
    while (*prompt) {
        const char *next = prompt + strlen(prompt), *at;
        int which = -1;
        for (int i = 0; i < MARKS; i++)
            if ((at = strstr(prompt, marks[i].mark)) && at < next) {
                next = at;
                which = i;
            }
        if (!marked && (at = strstr(prompt, instruct)) && at + strlen(instruct) < next) {
            next = at + strlen(instruct);
            which = MARKS;
        }
        ht_text_append_str(out, "{{ ");
        write_quoted(out, prompt, (size_t)(next - prompt));
        ht_text_append_str(out, " }}");
        prompt = next;
        if (which == MARKS) {
            const size_t n = strcspn(prompt, "\n");
            write_role(out, "system", prompt, n);
            prompt += n;
        } else if (which >= 0) {
            write_role(out, marks[which].role, NULL, 0);
            prompt += strlen(marks[which].mark);
        }
    }
}

static ht_status make_prompt(ht_rerank_input *in, const char *prompt, ht_error *err) {
    ht_text source = {0};
    write_template(&source, prompt);
    const ht_status status =
        source.failed ? ht_fail_memory(err, source.len, "a prompt")
                      : ht_chat_template_parse(source.data, source.len, "the reranking prompt", &in->own_prompt, err);
    ht_text_discard(&source);
    in->prompt = in->own_prompt;
    return status;
}

/* Whether a template asks for messages of a role. */
static bool has_role(const ht_chat_template *t, const char *role) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\"", role);
    if (ht_chat_template_mentions(t, quoted)) return true;
    snprintf(quoted, sizeof quoted, "'%s'", role);
    return ht_chat_template_mentions(t, quoted);
}

/* sentence-transformers has the text of the checkpoint's default prompt as the instruction of decoders, and before the
 * query of encoders; NULL: none. */
static const char *default_prompt(const ht_modules *m) {
    for (size_t i = 0; m->default_prompt && i < m->n_prompts; i++)
        if (!strcmp(m->prompt[i].name, m->default_prompt)) return m->prompt[i].text;
    return NULL;
}

static ht_status choose_prompt(ht_rerank_input *in, ht_error *err) {
    const ht_modules *m = &in->model->modules;
    const ht_chat_template *own = in->model->chat.template;
    ht_status status = HT_OK;
    if (m->rerank_prompt)
        status = make_prompt(in, m->rerank_prompt, err);
    else if (own && has_role(own, "query") && has_role(own, "document"))
        in->prompt = own;
    else if (!m->is_reranker)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model is no reranker: it has no classifier, and no prompt for a query and a document");
    else if (!strcmp(in->model->architecture, "qwen3"))
        status = make_prompt(in, qwen3_prompt, err);
    else
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model is a reranker, but states no prompt for a query and a "
                       "document, and %s models have none in common",
                       in->model->architecture);
    const bool instructs = !status && has_role(in->prompt, "system");
    if (instructs && !in->instruction) in->instruction = default_prompt(m);
    if (!status && in->instruction && !instructs)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "the model's prompt for reranking takes no instruction");
    return status;
}

static ht_json *message(const char *role, const char *text) {
    return ht_json_pack("{ss so}", "role", role, "content", ht_json_string(text));
}

/* The prompt of a document, with runs that separate texts of the call from those of the template. */
static ht_status write_prompt(const ht_rerank_input *in, const char *document, ht_written *out, ht_error *err) {
    ht_json *messages = ht_json_new_array();
    if (in->instruction) ht_json_array_append_new(messages, message("system", in->instruction));
    ht_json_array_append_new(messages, message("query", in->query));
    ht_json_array_append_new(messages, message("document", document));
    const bool whole = ht_json_array_size(messages) == 2 + (in->instruction != NULL);
    char *json = whole ? ht_json_dump(messages, 0) : NULL;
    ht_json_decref(messages);
    if (!json) return ht_fail_memory(err, strlen(document), "a prompt");
    const ht_template_variable variables[] = {{"messages", json, strlen(json)}, {"add_generation_prompt", "true", 4}};
    const ht_status status = ht_chat_template_render_within(in->prompt, variables, 2, NULL, out, err);
    free(json);
    return status;
}

static ht_status encode_prompt(const ht_rerank_input *in, const char *document, ht_encoding *out, ht_error *err) {
    ht_written written = {0};
    ht_status status = write_prompt(in, document, &written, err);
    if (!status) status = ht_chat_encode_text(in->model->tokenizer, &written, 0, &out->ids, &out->n, err);
    ht_chat_text_free(&written);
    return status;
}

/* ---- pairs of texts of encoders ---- */

/* Drops types that the model has no table for; others must be in it. */
static ht_status check_types(const ht_config *config, ht_encoding *e, ht_error *err) {
    for (size_t i = 0; config->n_token_types > 1 && i < e->n; i++)
        if (e->types[i] < 0 || e->types[i] >= config->n_token_types)
            return ht_fail(err, HT_ERR_UNSUPPORTED,
                           "the tokenizer's token type %d is out of the model's range [0, %lld)", (int)e->types[i],
                           (long long)config->n_token_types);
    if (config->n_token_types > 1) return HT_OK;
    free(e->types);
    e->types = NULL;
    return HT_OK;
}

static ht_status encode_pair(const ht_rerank_input *in, const char *document, ht_encoding *out, ht_error *err) {
    const ht_pair_options how = {.flags = HT_ENCODE_ADD_SPECIAL};
    const ht_status status = ht_tokenizer_encode_pair(in->model->tokenizer, in->query, strlen(in->query), document,
                                                      strlen(document), &how, out, err);
    return status ? status : check_types(in->model->config, out, err);
}

/* ---- both ---- */

static ht_status encode(const ht_rerank_input *in, const char *document, ht_encoding *out, ht_error *err) {
    return in->prompt ? encode_prompt(in, document, out, err) : encode_pair(in, document, out, err);
}

/* Drops tokens from the end of a document, before the tokens that follow every document. */
static ht_status truncate(ht_rerank_input *in, ht_encoding *e, bool *truncated, ht_error *err) {
    const ht_encoding *without = &in->without;
    size_t before = 0, after = 0, most = in->truncate ? (size_t)in->model->context : SIZE_MAX;
    if (!in->document_tokens && e->n <= most) return HT_OK;
    const ht_status status = without->n ? HT_OK : encode(in, "", &in->without, err);
    if (status) return status;
    while (before < without->n && e->ids[before] == without->ids[before]) before++;
    while (after < without->n - before && e->ids[e->n - 1 - after] == without->ids[without->n - 1 - after]) after++;
    if (in->document_tokens) most = ht_min_size(most, before + after + (size_t)in->document_tokens);
    /* A query that is too long alone is reported later. */
    if (e->n <= most || before + after > most) return HT_OK;
    memmove(e->ids + most - after, e->ids + e->n - after, after * sizeof *e->ids);
    if (e->types) memmove(e->types + most - after, e->types + e->n - after, after * sizeof *e->types);
    e->n = most;
    *truncated = true;
    return HT_OK;
}

ht_status ht_rerank_input_open(ht_rerank_input *in, ht_error *err) {
    if (!in->model->config->two_sided) return choose_prompt(in, err);
    if (in->instruction)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model reads a query and a document alone: text encoders take no instruction for reranking");
    const char *before = default_prompt(&in->model->modules);
    if (!before) return HT_OK;
    ht_text query = {0};
    ht_text_append_str(&query, before);
    ht_text_append_str(&query, in->query);
    in->query = in->own_query = query.data;
    return query.failed ? ht_fail_memory(err, query.len, "a query") : HT_OK;
}

void ht_rerank_input_close(ht_rerank_input *in) {
    ht_encoding_free(&in->without);
    ht_chat_template_free(in->own_prompt);
    free(in->own_query);
}

ht_status ht_rerank_input_encode(ht_rerank_input *in, const char *document, ht_encoding *out, bool *truncated,
                                 ht_error *err) {
    *out = (ht_encoding){0};
    *truncated = false;
    if (!ht_utf8_valid(document, strlen(document))) return ht_fail(err, HT_ERR_ARGUMENT, "the text is not UTF-8");
    ht_status status = encode(in, document, out, err);
    if (!status) status = truncate(in, out, truncated, err);
    if (!status) status = ht_prompt_check(in->model, out->ids, out->n, err);
    if (status) ht_encoding_free(out);
    return status;
}
