#include "serve/prompts.h"

#include "base/grow.h"
#include "base/plural.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

bool serve_encode_text(serve_call *c, const char *text, bool begins, const char *member, int32_t **ids, size_t *n) {
    ht_error err = {0};
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    const unsigned flags = HT_ENCODE_PARSE_SPECIAL | (begins ? HT_ENCODE_ADD_SPECIAL : 0u);
    if (!t) return serve_fail(&c->failure, 400, member, "the model has no tokenizer: give it token ids");
    const ht_status status = ht_tokenizer_encode(t, text, strlen(text), flags, ids, n, &err);
    return status ? serve_fail_as(&c->failure, status, &err) : true;
}

/* ---- ids that are put together ---- */

bool serve_ids_append(serve_ids *to, const int32_t *ids, size_t n, serve_failure *f) {
    if (n > SIZE_MAX - to->n || !HT_GROW(to->id, to->capacity, to->n + n)) return serve_fail_memory(f);
    if (n) memcpy(to->id + to->n, ids, n * sizeof *ids);
    to->n += n;
    return true;
}

bool serve_ids_append_text(serve_call *c, serve_ids *to, const char *text, bool special, const char *member) {
    ht_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    if (!t) return serve_fail(&c->failure, 400, member, "the model has no tokenizer: give it token ids");
    const ht_status status =
        ht_tokenizer_encode(t, text, strlen(text), special ? HT_ENCODE_PARSE_SPECIAL : 0, &ids, &n, &err);
    const bool good = status ? serve_fail_as(&c->failure, status, &err) : serve_ids_append(to, ids, n, &c->failure);
    ht_ids_free(ids);
    return good;
}

/* ---- prompts of requests ---- */

static bool append_id(serve_call *c, serve_ids *to, const ht_json *value, const char *member) {
    int64_t id;
    const int32_t vocab = ht_model_vocab_size(c->lease.model);
    if (!ht_json_whole(value, &id))
        return serve_fail(&c->failure, 400, member, "\"%s\" must be a string, token ids, or a list of these", member);
    if (id < 0 || id >= vocab)
        return serve_fail(&c->failure, 400, member, "\"%s\": %lld is no token of the model, which has %d", member,
                          (long long)id, (int)vocab);
    return serve_ids_append(to, &(int32_t){(int32_t)id}, 1, &c->failure);
}

static bool append_text(serve_call *c, serve_ids *to, const char *text, const char *member) {
    int32_t *ids = NULL;
    size_t n = 0;
    /* What comes first has the special tokens that begin a sequence. */
    const bool good =
        serve_encode_text(c, text, to->n == 0, member, &ids, &n) && serve_ids_append(to, ids, n, &c->failure);
    ht_ids_free(ids);
    return good;
}

bool serve_read_prompt(serve_call *c, const ht_json *value, const char *member, serve_prompt *out) {
    const bool list = ht_json_is_array(value);
    const size_t n = list ? ht_json_array_size(value) : 1;
    serve_ids ids = {0};
    bool good = true;
    for (size_t i = 0; good && i < n; i++) {
        const ht_json *item = list ? ht_json_array_get(value, i) : value;
        good = ht_json_is_string(item) ? append_text(c, &ids, ht_json_string_value(item), member)
                                       : append_id(c, &ids, list ? item : NULL, member);
    }
    out->ids = ids.id;
    out->n_ids = ids.n;
    if (!good) return false;
    return ids.n ? true : serve_fail(&c->failure, 400, member, "\"%s\" has no tokens", member);
}

static const serve_shape piece = {.types = SERVE_JSON_TEXT | SERVE_JSON_INTEGER, .low = 0, .high = INT32_MAX};
const serve_shape serve_prompt_shape = {.types = SERVE_JSON_TEXT | SERVE_JSON_INTEGER | SERVE_JSON_LIST,
                                        .low = 0,
                                        .high = INT32_MAX,
                                        .fewest = 1,
                                        .item = &piece};

/* Whether a list is one prompt: of ids, with texts between them maybe. A list of texts alone, or of lists, is several. */
static bool is_one(const ht_json *prompt) {
    bool ids = !ht_json_is_array(prompt);
    for (size_t i = 0; i < ht_json_array_size(prompt) && !ids; i++)
        ids = ht_json_is_number(ht_json_array_get(prompt, i));
    return ids;
}

bool serve_read_prompts(serve_generation *g, const char *member, serve_read_prompt_fn *read) {
    enum { MOST_ANSWERS = 4096 };
    serve_call *c = g->c;
    const ht_json *prompt = serve_member(c->body, member);
    const bool one = is_one(prompt);
    const size_t n = one ? 1 : ht_json_array_size(prompt);
    if (n > SERVE_MOST_PROMPTS || (int64_t)n * g->n > MOST_ANSWERS)
        return serve_fail(&c->failure, 400, member,
                          "%zu prompt%s with %d answer%s each, at most %d prompts and %d answers are taken", n,
                          ht_plural(n), (int)g->n, ht_plural(g->n), SERVE_MOST_PROMPTS, MOST_ANSWERS);
    if (!serve_generation_prompts(g, n)) return false;
    for (size_t i = 0; i < n; i++)
        if (!read(c, one ? prompt : ht_json_array_get(prompt, i), member, &g->prompt[i])) return false;
    return true;
}
