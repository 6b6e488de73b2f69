/* Scores of continuations, as the public interface gives them. */
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "generate/scoring.h"

static const ht_score_options defaults = {.size = sizeof defaults};
enum { MOST_TOP = 1000 };

void ht_score_options_init(ht_score_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

typedef struct scores {
    ht_score_options o;
    const ht_score_request *requests; /* NULL: those of o.next */
    ht_score_fn *fn;
    void *user;
} scores;

static ht_status next(void *user, size_t i, ht_score_request *request, ht_error *err) {
    scores *s = user;
    ht_status status = HT_OK;
    if (s->requests)
        *request = s->requests[i];
    else
        status = s->o.next(i, request, s->user, err);
    if (status || request->n_continuations) return status;
    return ht_fail(err, HT_ERR_ARGUMENT, "there is no continuation to score");
}

static bool take(void *user, const ht_scored *r) {
    scores *s = user;
    ht_score_result out = {.index = r->index, .status = r->status, .message = r->message ? r->message : ""};
    if (!out.status) {
        out.prompt_tokens = (int64_t)r->ids.prompt.n;
        out.shared_tokens = r->ids.shared;
        out.computed_tokens = r->computed;
        out.continuations = r->continuations;
        out.n_continuations = r->ids.n_joined;
    }
    return s->fn(&out, s->user);
}

ht_status ht_score(ht_model *m, const ht_score_request *requests, size_t n, const ht_score_options *options,
                   ht_score_fn *fn, void *user, ht_error *err) {
    scores s = {.requests = requests, .fn = fn, .user = user};
    const ht_status status = ht_options_read(&s.o, options, &defaults, sizeof defaults, "ht_score_options", err);
    if (status) return status;
    if (s.o.top_k < 0 || s.o.top_k > MOST_TOP)
        return ht_fail(err, HT_ERR_ARGUMENT, "top_k is %d, expected 0 to %d", (int)s.o.top_k, MOST_TOP);
    if (!requests && n && !s.o.next)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%zu request%s, but neither an array of them nor a function that gives them", n, ht_plural(n));
    const ht_scoring scoring = {.model = m,
                                .n = n,
                                .prefill = {.adapters = s.o.adapters,
                                            .adapter_scales = s.o.adapter_scales,
                                            .n_adapters = s.o.n_adapters,
                                            .kv_bytes = s.o.kv_bytes},
                                .top_k = s.o.top_k,
                                .cancel = s.o.cancel,
                                .next = next,
                                .take = take,
                                .user = &s,
                                .progress = s.o.progress,
                                .progress_user = user};
    return ht_scoring_run(&scoring, err);
}
