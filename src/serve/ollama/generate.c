/* Completions of Ollama's interface: a prompt that the chat template writes, one that is taken as it is, or a gap to be filled in. */
#include "serve/infill.h"
#include "serve/ollama/ollama.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

static const serve_shape id = SERVE_IS_INTEGER(0, INT32_MAX);
static const serve_field generate_fields[] = {
    {"prompt", .is = SERVE_IS_TEXT},
    {"suffix", .is = SERVE_IS_TEXT},
    {"system", .is = SERVE_IS_TEXT},
    {"raw", .is = SERVE_IS_FLAG},
    {"context", .is = SERVE_IS_LIST(&id)},
    {"template", .class = SERVE_LACKED,
     .instead = "prompts use the model's chat template; send a formatted prompt with \"raw\": true"},
    {"images", .class = SERVE_LACKED, .instead = "only text input is supported"},
    {"width", .class = SERVE_LACKED},
    {"height", .class = SERVE_LACKED},
    {"steps", .class = SERVE_LACKED},
    {"truncate", .class = SERVE_LACKED},
    {0}};
const serve_field *const serve_ollama_generate_fields[] = {generate_fields, serve_ollama_fields, serve_logprobs_fields,
                                                           NULL};

typedef struct asked {
    const char *prompt, *suffix, *system;
    const ht_json *context;
    bool raw;
} asked;

/* ---- requests ---- */

static bool read_asked(serve_call *c, asked *a) {
    const char *prompt = serve_text(c->body, "prompt");
    *a = (asked){.prompt = prompt ? prompt : "",
                 .suffix = serve_filled_text(c->body, "suffix"),
                 .system = serve_filled_text(c->body, "system"),
                 .context = serve_member(c->body, "context"),
                 .raw = serve_flag(c->body, "raw", false)};
    if (a->raw && (a->suffix || a->system || ht_json_array_size(a->context)))
        return serve_fail(&c->failure, 400, "raw",
                          "\"raw\" cannot be combined with \"suffix\", \"system\" or \"context\"");
    if (a->suffix && (a->system || ht_json_array_size(a->context)))
        return serve_fail(&c->failure, 400, "suffix", "\"suffix\" cannot be combined with \"system\" or \"context\"");
    return true;
}

/* ---- prompts ---- */

/* Whether the first id only begins the sequence: where BOS is the mark of a turn, too, the answer's turn has it again. */
static bool begins_with_bos(const ht_tokenizer *t, const int32_t *ids, size_t n) {
    const int32_t bos = t ? ht_tokenizer_bos(t) : -1;
    bool only = n && ids[0] == bos;
    for (size_t i = 1; i < n && only; i++) only = ids[i] != bos;
    return only;
}

/* The ids of the turn's text, after those of the context that the client gives back, which begin the sequence. */
static bool append_turn(serve_generation *g, const ht_json *context) {
    serve_call *c = g->c;
    serve_ollama *o = g->extra;
    serve_prompt before = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    ht_error err = {0};
    if (ht_json_array_size(context) && !serve_read_prompt(c, context, "context", &before)) {
        ht_ids_free(before.ids);
        return false;
    }
    const ht_status status = ht_chat_encode(c->lease.model, g->prompt[0].chat, 0, &ids, &n, &err);
    const size_t skip = before.n_ids && begins_with_bos(ht_model_tokenizer(c->lease.model), ids, n) ? 1 : 0;
    const bool good = status ? serve_fail_as(&c->failure, status, &err)
                             : serve_ids_append(&o->prompt, before.ids, before.n_ids, &c->failure) &&
                                   serve_ids_append(&o->prompt, ids + skip, n - skip, &c->failure);
    ht_ids_free(before.ids);
    ht_ids_free(ids);
    return good;
}

/* A turn of a conversation; with a context the ids of both are the prompt. */
static bool set_turn(serve_generation *g, const serve_conversation *like, const asked *a) {
    serve_ollama *o = g->extra;
    serve_conversation k = *like;
    ht_json *messages = a->system ? ht_json_pack("[{ss ss} {ss ss}]", "role", "system", "content", a->system, "role",
                                                 "user", "content", a->prompt)
                                  : ht_json_pack("[{ss ss}]", "role", "user", "content", a->prompt);
    if (!messages) return serve_fail_memory(&g->c->failure);
    k.messages = messages;
    const bool good = serve_set_conversation(g, &k) && append_turn(g, a->context);
    ht_json_decref(messages);
    if (!good) return false;
    o->gives_context = g->keep_ids = true;
    if (!ht_json_array_size(a->context)) return true; /* as a chat, whose thoughts are told apart */
    serve_prompt *p = &g->prompt[0];
    ht_chat_free(p->chat);
    p->chat = NULL;
    p->ids = calloc(o->prompt.n + 1, sizeof *p->ids);
    if (!p->ids) return serve_fail_memory(&g->c->failure);
    if (o->prompt.n) memcpy(p->ids, o->prompt.id, o->prompt.n * sizeof *p->ids);
    p->n_ids = o->prompt.n;
    return true;
}

static bool set_prompt(serve_generation *g, const serve_conversation *k, const asked *a) {
    serve_call *c = g->c;
    if (!a->raw && !a->suffix) return set_turn(g, k, a);
    if (!serve_generation_prompts(g, 1)) return false;
    serve_prompt *p = &g->prompt[0];
    if (a->suffix) g->how.max_thinking_tokens = -1; /* as of /infill */
    if (a->suffix)
        return serve_infill_prompt(c, &(serve_infill){.prefix = a->prompt, .suffix = a->suffix}, "suffix", p);
    if (!serve_encode_text(c, a->prompt, true, "prompt", &p->ids, &p->n_ids)) return false;
    return p->n_ids ? true : serve_fail(&c->failure, 400, "prompt", "\"prompt\" has no tokens");
}

bool serve_ollama_generate(serve_call *c) {
    asked a;
    serve_conversation k = {0};
    if (!read_asked(c, &a)) return false;
    if (!*a.prompt && !a.suffix) return serve_ollama_answer_loaded(c, false);
    serve_generation *g = serve_ollama_generation(c, false, &k);
    return g && set_prompt(g, &k, &a) && serve_ollama_start(g);
}
