/* Completions in llama-server's form, of prompts and of gaps. */
#include "serve/conversation.h"
#include "serve/echo.h"
#include "serve/infill.h"
#include "serve/llama/llama.h"
#include "serve/llama/sampling.h"
#include "serve/openai/openai.h"
#include "serve/prompts.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 1024 };

static const serve_field fields[] = {{"model", .is = SERVE_IS_TEXT},
                                     {"n_predict", .is = SERVE_IS_MAX_TOKENS},
                                     {"max_tokens", .is = SERVE_IS_MAX_TOKENS},
                                     {"n", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
                                     {"n_cmpl", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
                                     {"stream", .is = SERVE_IS_FLAG},
                                     {"stop", .is = SERVE_IS_STOP},
                                     {"n_probs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)},
                                     {"logprobs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)},
                                     {"return_tokens", .is = SERVE_IS_FLAG},
                                     {"post_sampling_probs", .class = SERVE_LACKED},
                                     {"return_progress", .class = SERVE_LACKED},
                                     {"response_fields", .class = SERVE_LACKED},
                                     {"lora", .class = SERVE_LACKED, .instead = "each adapter is a model"},
                                     {"image_data", .class = SERVE_LACKED},
                                     {"system_prompt", .class = SERVE_LACKED},
                                     {0}};
static const serve_field prompt_fields[] = {{"prompt", .is = SERVE_IS_PROMPTS, .required = true}, {0}};
static const serve_field file_members[] = {
    {"filename", .is = SERVE_IS_TEXT}, {"text", .is = SERVE_IS_TEXT, .required = true}, {0}};
static const serve_field *const of_file[] = {file_members, NULL};
static const serve_shape file = SERVE_IS_OBJECT(of_file);
static const serve_field infill_fields[] = {
    {"input_prefix", .is = SERVE_IS_TEXT, .required = true},
    {"input_suffix", .is = SERVE_IS_TEXT, .required = true},
    {"input_extra", .is = {.types = SERVE_JSON_LIST, .most = MOST_FILES, .item = &file}},
    {"prompt", .is = SERVE_IS_TEXT},
    {0}};
#define COMMON                                                                                                         \
    fields, serve_llama_sampling_fields, serve_sampling_fields, serve_structure_fields, serve_noted_fields, NULL
const serve_field *const serve_llama_completion_fields[] = {prompt_fields, serve_thinking_fields, COMMON};
const serve_field *const serve_llama_infill_fields[] = {infill_fields, COMMON};

/* A generation's `extra`. */
typedef struct asked {
    char order[SERVE_LLAMA_ORDER];
    bool return_tokens, generates;
} asked;

/* ---- requests ---- */

static void read_numbers(serve_generation *g, asked *a) {
    static const char *const most[] = {"n_predict", "max_tokens", NULL};
    const ht_json *body = g->c->body;
    const int64_t top = serve_integer(body, "logprobs", serve_integer(body, "n_probs", 0));
    g->n = (int32_t)serve_integer(body, "n_cmpl", serve_integer(body, "n", 1));
    g->stream = serve_flag(body, "stream", false);
    g->logprobs = top > 0;
    g->top_logprobs = (int32_t)top;
    g->keep_ids = a->return_tokens = serve_flag(body, "return_tokens", false);
    serve_read_max_tokens(g, body, most, INT32_MAX);
    serve_read_thinking_budget(g, body);
    a->generates = g->how.max_tokens > 0;
}

/* The call's generation, all but its prompts read into it. */
static serve_generation *new_generation(serve_call *c, const serve_dialect *dialect) {
    serve_generation *g = serve_generation_new(c, dialect);
    asked *a = g ? calloc(1, sizeof *a) : NULL;
    if (!g) return NULL;
    if (!a) {
        serve_fail_memory(&c->failure);
        return NULL;
    }
    g->extra = a;
    g->free_extra = free;
    read_numbers(g, a);
    if (!serve_llama_read_sampling(g, a->order) || !serve_read_stop(g, ht_json_object_get(c->body, "stop")) ||
        !serve_read_structure(g, c->body))
        return NULL;
    return g;
}

/* An answer of no tokens is how a prompt is computed beforehand. */
static bool start(serve_generation *g) {
    const asked *a = g->extra;
    return a->generates ? serve_generation_start(g) : serve_generation_warm(g);
}

/* ---- answers ---- */

static double per(double amount, double of) { return of > 0 ? amount / of : 0; }

static ht_json *timings(const serve_answer *a) {
    const ht_metrics *m = &a->metrics;
    const double prompt_ms = m->prefill_seconds * 1e3, decode_ms = m->decode_seconds * 1e3;
    const double prompt_n = (double)m->prompt_tokens, n = (double)m->generated_tokens;
    ht_json *out = ht_json_pack(
        "{sI sI sf sf sf sI sf sf sf}", "cache_n", (int64_t)a->reuse.reused, "prompt_n", (int64_t)m->prompt_tokens,
        "prompt_ms", prompt_ms, "prompt_per_token_ms", per(prompt_ms, prompt_n), "prompt_per_second",
        per(prompt_n * 1e3, prompt_ms), "predicted_n", (int64_t)m->generated_tokens, "predicted_ms", decode_ms,
        "predicted_per_token_ms", per(decode_ms, n), "predicted_per_second", per(n * 1e3, decode_ms));
    if (m->guessed_tokens) {
        ht_json_object_set_new(out, "draft_n", ht_json_integer(m->guessed_tokens));
        ht_json_object_set_new(out, "draft_n_accepted", ht_json_integer(m->accepted_tokens));
    }
    return out;
}

static const char *stop_type(const serve_answer *a) {
    if (a->metrics.finish == HT_FINISH_LENGTH) return "limit";
    return a->metrics.stop >= 0 ? "word" : "eos";
}

static ht_json *prompt_json(const serve_generation *g, const serve_answer *a) {
    char *text = NULL;
    size_t n = 0;
    const serve_prompt *p = &g->prompt[(size_t)a->index / (size_t)g->n];
    const ht_tokenizer *t = ht_model_tokenizer(g->c->lease.model);
    if (!t || ht_tokenizer_decode(t, p->ids, p->n_ids, false, &text, &n, NULL)) return ht_json_string("");
    ht_json *out = ht_json_stringn(text, n);
    ht_text_free(text);
    return out;
}

static ht_json *ids_json(const serve_answer *a) {
    ht_json *ids = ht_json_new_array();
    for (size_t i = 0; i < a->n_ids; i++) ht_json_array_append_new(ids, ht_json_integer(a->ids[i]));
    return ids;
}

static void set_probabilities(const serve_generation *g, serve_answer *a, ht_json *to) {
    if (!g->logprobs || !ht_json_array_size(a->logprobs)) return;
    ht_json_object_set(to, "completion_probabilities", a->logprobs);
    ht_json_decref(a->logprobs);
    a->logprobs = ht_json_new_array();
}

/* An answer that has ended. A stream has sent its text before. */
static ht_json *whole_json(serve_generation *g, serve_answer *a) {
    const serve_usage u = serve_answer_usage(a);
    const bool word = a->metrics.finish == HT_FINISH_STOP && a->metrics.stop >= 0 && a->metrics.stop < g->how.n_stop;
    const bool newline = a->block || (a->text.data && strchr(a->text.data, '\n'));
    ht_json *out = ht_json_pack("{si so so si sb ss sI sI so so sb sb ss ss sI so}", "index", (int)a->index, "content",
                                serve_text_json(&a->text), "tokens", ids_json(a), "id_slot", -1, "stop", 1, "model",
                                g->c->lease.name, "tokens_predicted", (int64_t)u.generated, "tokens_evaluated",
                                (int64_t)u.prompt, "generation_settings", serve_llama_settings(g), "prompt",
                                prompt_json(g, a), "has_new_line", (int)newline, "truncated", 0, "stop_type",
                                stop_type(a), "stopping_word", word ? g->how.stop[a->metrics.stop] : "",
                                "tokens_cached", (int64_t)(u.prompt + u.generated), "timings", timings(a));
    set_probabilities(g, a, out);
    return out;
}

/* One answer as it is, several as a list. */
static ht_json *reply(serve_generation *g) {
    if (g->n_answers == 1) return whole_json(g, &g->answer[0]);
    ht_json *list = ht_json_new_array();
    for (size_t i = 0; i < g->n_answers; i++) ht_json_array_append_new(list, whole_json(g, &g->answer[i]));
    return list;
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    if (p->part != HT_ANSWER_TEXT) return;
    if (memchr(p->text, '\n', p->n)) a->block = 1; /* there was a newline */
    ht_json *out = ht_json_pack("{si ss% s[] sb si}", "index", (int)a->index, "content", p->text, p->n, "tokens",
                                "stop", 0, "id_slot", -1);
    set_probabilities(g, a, out);
    serve_send_event(g, NULL, out);
}

static void answer_end(serve_generation *g, serve_answer *a) { serve_send_event(g, NULL, whole_json(g, a)); }

static void end(serve_generation *g) { (void)g; }

static void fail(serve_generation *g, const serve_failure *f) {
    serve_send_event(g, NULL, serve_failure_json(f, SERVE_OPENAI, http_exchange_id(g->c->x)));
}

static const serve_dialect completion = {
    .piece = piece, .answer_end = answer_end, .end = end, .fail = fail, .reply = reply};

bool serve_llama_completion(serve_call *c) {
    serve_generation *g = new_generation(c, &completion);
    return g && serve_read_prompts(g, "prompt", serve_read_prompt) && start(g);
}

/* ---- gaps ---- */

static bool read_files(serve_call *c, serve_infill *in, serve_infill_file **out) {
    const ht_json *list = serve_member(c->body, "input_extra");
    in->n_files = ht_json_array_size(list);
    in->file = *out = calloc(in->n_files + 1, sizeof **out);
    if (!*out) return serve_fail_memory(&c->failure);
    for (size_t i = 0; i < in->n_files; i++) {
        const ht_json *one = ht_json_array_get(list, i);
        const char *name = serve_text(one, "filename");
        (*out)[i] = (serve_infill_file){.name = name ? name : "snippet", .text = serve_text(one, "text")};
    }
    return true;
}

bool serve_llama_infill(serve_call *c) {
    serve_infill in = {.prefix = serve_text(c->body, "input_prefix"),
                       .suffix = serve_text(c->body, "input_suffix"),
                       .line = serve_text(c->body, "prompt")};
    serve_infill_file *files = NULL;
    serve_generation *g = new_generation(c, &completion);
    if (g) g->how.max_thinking_tokens = -1; /* what stands around a gap is a text, whatever marks it has */
    const bool good = g && read_files(c, &in, &files) && serve_generation_prompts(g, 1) &&
                      serve_infill_prompt(c, &in, "input_prefix", &g->prompt[0]);
    free(files);
    return good && start(g);
}
