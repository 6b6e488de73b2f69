#include "generate/prefill.h"

#include "base/checked.h"
#include "base/error.h"
#include "device/device.h"
#include "generate/logits_row.h"
#include "generate/session_internal.h"
#include "models/memory_check.h"

#include <stdlib.h>
#include <string.h>

/* Maximum output of a step: a row of logits is as long as the vocabulary. */
enum { STEP_OUTPUT_BYTES = 32 << 20 };

/* Sequences [lo, hi) of the sorted ones, which are the same up to `end`, and all short or all long. */
typedef struct branch {
    int32_t lo, hi;
    int32_t lowest; /* of these sequences, as they were given */
    int64_t end;
    int64_t first_out; /* lowest of these sequences */
    ht_cache *cache;   /* of what has been computed; owned */
} branch;

/* A branch in a step. */
typedef struct slot {
    ht_step_job job;
    ht_prefill *p;
    branch b;
    int64_t begin;    /* where this step found it */
    int32_t *taker;   /* [hi - lo] those that want a row */
    float *block_max; /* [ht_row_blocks(vocab)] */
} slot;

struct ht_prefill {
    ht_model *model;
    ht_session *owner; /* holds model, steps and adapters */
    int32_t chunk;     /* rows of a step */
    bool hidden;       /* hidden states instead of logits */
    int64_t width;     /* of a row of them */
    int64_t most_out;  /* rows with logits of a step */
    size_t kv_bytes;
    ht_kv_account account;
    int32_t n_slots;
    slot *slot;         /* [n_slots] */
    ht_step_job **jobs; /* [n_slots] */

    /* Cache of the common prefix of all sequences in the last run. */
    ht_cache *kept;
    int32_t *kept_token; /* [kept->length] */

    /* State of a run. */
    ht_prefill_sequence *sequence;
    int32_t n;
    ht_prefill_sequence **order; /* [n] sorted by tokens */
    int32_t *taker;              /* [n] branches in slots have different sequences, and use different parts of it */
    const ht_prefill_calls *calls;
    const ht_cancel *cancel;
    branch *stack; /* to be computed, the next one last */
    int32_t n_stack;
};

/* ---- life ---- */

static ht_status make_slots(ht_prefill *p, ht_error *err) {
    const size_t blocks = (size_t)ht_row_blocks(p->model->vocab);
    p->slot = calloc((size_t)p->n_slots, sizeof *p->slot);
    p->jobs = calloc((size_t)p->n_slots, sizeof *p->jobs);
    if (!p->slot || !p->jobs) return ht_fail_memory(err, (size_t)p->n_slots * sizeof *p->slot, "a prefill");
    for (int32_t i = 0; i < p->n_slots; i++) {
        p->slot[i].p = p;
        p->slot[i].block_max = malloc(blocks * sizeof *p->slot[i].block_max);
        if (!p->slot[i].block_max) return ht_fail_memory(err, blocks * sizeof *p->slot[i].block_max, "a prefill");
    }
    return HT_OK;
}

ht_status ht_prefill_new(ht_model *m, const ht_prefill_options *options, ht_prefill **out, ht_error *err) {
    *out = NULL;
    ht_prefill *p = calloc(1, sizeof *p);
    if (!p) return ht_fail_memory(err, sizeof *p, "a prefill");
    ht_status status = ht_session_new(m, NULL, &p->owner, err);
    if (!status)
        status =
            ht_session_set_adapters(p->owner, options->adapters, options->adapter_scales, options->n_adapters, err);
    p->model = m;
    p->chunk = m->step_rows;
    p->n_slots = m->slots;
    p->hidden = options->hidden;
    p->width = ht_model_row_width(m, p->hidden ? HT_PLAN_HIDDEN : 0);
    p->most_out = ht_max_i64(1, STEP_OUTPUT_BYTES / (int64_t)sizeof(float) / p->width);
    p->kv_bytes = options->kv_bytes ? options->kv_bytes : ht_memory_check_kv_bytes(m->device);
    if (!status) status = make_slots(p, err);
    if (status)
        ht_prefill_free(p);
    else
        *out = p;
    return status;
}

void ht_prefill_free(ht_prefill *p) {
    if (!p) return;
    for (int32_t i = 0; p->slot && i < p->n_slots; i++) free(p->slot[i].block_max);
    ht_cache_free(p->kept);
    free(p->kept_token);
    free(p->slot);
    free(p->jobs);
    ht_session_free(p->owner);
    free(p);
}

/* ---- the tree ---- */

/* Positions from `from` on in which two sequences agree, as far as both go. */
static int64_t agree(const ht_prefill_sequence *a, const ht_prefill_sequence *b, int64_t from) {
    const int64_t n = ht_min_i64(a->n, b->n);
    while (from < n && a->token[from] == b->token[from]) from++;
    return from;
}

static int by_tokens(const void *x, const void *y) {
    const ht_prefill_sequence *const a = *(ht_prefill_sequence *const *)x, *const b = *(ht_prefill_sequence *const *)y;
    if (a->is_long != b->is_long) return a->is_long - b->is_long;
    const int64_t same = agree(a, b, 0);
    if (same < a->n && same < b->n) return a->token[same] < b->token[same] ? -1 : 1;
    return a->n != b->n ? (a->n > b->n) - (a->n < b->n) : (a > b) - (a < b);
}

static int32_t index_of(const ht_prefill *p, int32_t i) { return (int32_t)(p->order[i] - p->sequence); }

/* Those of [lo, hi) that go on with the same token at `from`. */
static branch make_branch(const ht_prefill *p, int32_t lo, int32_t hi, int64_t from) {
    branch b = {.lo = lo, .hi = lo, .lowest = index_of(p, lo), .first_out = INT64_MAX};
    const int32_t token = p->order[lo]->token[from];
    for (; b.hi < hi && p->order[b.hi]->token[from] == token; b.hi++) {
        b.lowest = ht_min_i32(b.lowest, index_of(p, b.hi));
        b.first_out = ht_min_i64(b.first_out, p->order[b.hi]->first_out);
    }
    b.end = agree(p->order[lo], p->order[b.hi - 1], from);
    return b;
}

static void fail_branch(ht_prefill *p, branch *b, const ht_error *err) {
    for (int32_t i = b->lo; i < b->hi; i++) {
        if (p->order[i]->done) continue;
        p->order[i]->done = true;
        p->calls->failed(p->calls->user, index_of(p, i), err);
    }
    ht_cache_free(b->cache);
    b->cache = NULL;
}

/* The lowest sequence comes last: the next branch is taken from the end. */
static int by_lowest(const void *a, const void *b) {
    const branch *x = a, *y = b;
    return (x->lowest < y->lowest) - (x->lowest > y->lowest);
}

/* Ends the sequences of length `from`, the cache's, and pushes branches for the others. Takes the cache. */
static void expand(ht_prefill *p, int32_t lo, int32_t hi, int64_t from, ht_cache *cache) {
    for (; lo < hi && p->order[lo]->n == from; lo++) p->order[lo]->done = true;
    const int32_t first = p->n_stack;
    for (int32_t at = lo; at < hi; at = p->stack[p->n_stack - 1].hi)
        p->stack[p->n_stack++] = make_branch(p, at, hi, from);
    int32_t n = p->n_stack - first;
    qsort(p->stack + first, (size_t)n, sizeof *p->stack, by_lowest);
    for (int32_t i = first; i < p->n_stack; i++) {
        branch *b = &p->stack[i];
        ht_error err = {0};
        if (i + 1 == p->n_stack) {
            b->cache = cache;
            cache = NULL;
        } else if (ht_cache_share(cache, &b->cache, &err))
            fail_branch(p, b, &err);
    }
    int32_t left = first;
    for (int32_t i = first; i < p->n_stack; i++)
        if (p->stack[i].cache) p->stack[left++] = p->stack[i];
    p->n_stack = left;
    ht_cache_free(cache);
}

/* ---- the common prefix ---- */

/* A cache of the prefix that sequences [lo, hi) share with those of the previous run, or an empty one. */
static ht_status first_cache(ht_prefill *p, int32_t lo, int32_t hi, ht_cache **out, ht_error *err) {
    int64_t same = 0, most = INT64_MAX;
    for (int32_t i = lo; i < hi; i++) most = ht_min_i64(most, p->order[i]->first_out);
    if (p->kept && ht_cache_is_for(p->kept, p->order[lo]->n)) {
        const ht_prefill_sequence kept = {.token = p->kept_token, .n = p->kept->length};
        same = ht_min_i64(agree(&kept, p->order[lo], 0), agree(&kept, p->order[hi - 1], 0));
    }
    same = ht_min_i64(same, most);
    if (same > 0 && ht_cache_kept(p->kept, same) > 0 && ht_cache_share(p->kept, out, NULL) == HT_OK) {
        ht_cache_truncate(*out, same);
        return HT_OK;
    }
    const ht_status status = ht_session_new_cache(p->model, p->chunk, out, err);
    if (!status) {
        ht_cache_set_account(*out, &p->account);
        ht_cache_begin(*out, p->order[lo]->n);
    }
    return status;
}

/* Whether all sequences begin with the branch, so that it is kept. */
static bool is_common(const ht_prefill *p, const branch *b) { return b->lo == 0 && b->hi == p->n; }

/* Keeps nothing when memory runs out. */
static void keep(ht_prefill *p, const branch *b) {
    if (!is_common(p, b)) return;
    int32_t *token = malloc((size_t)b->end * sizeof *token);
    ht_cache *cache = NULL;
    if (!token || ht_cache_share(b->cache, &cache, NULL)) {
        free(token);
        return;
    }
    memcpy(token, p->order[b->lo]->token, (size_t)b->end * sizeof *token);
    ht_cache_free(p->kept);
    free(p->kept_token);
    p->kept = cache;
    p->kept_token = token;
}

/* ---- steps ---- */

/* Hands rows to the sequences that want them, on a thread of the step. */
static ht_status take_rows(void *user, const ht_logits_rows *logits, ht_error *err) {
    slot *s = user;
    ht_prefill *p = s->p;
    (void)err;
    for (int64_t r = 0; r < logits->n_rows; r++) {
        const int64_t position = s->job.first_row + r;
        int32_t n = 0;
        for (int32_t i = s->b.lo; i < s->b.hi; i++)
            if (p->order[i]->first_out <= position) s->taker[n++] = index_of(p, i);
        p->calls->row(p->calls->user, logits->x + r * p->width, position, s->taker, n, s->block_max);
    }
    return HT_OK;
}

/* Rows of the branch that still fit a step with `rows` rows, of which `out` have logits. */
static int64_t rows_that_fit(const ht_prefill *p, const branch *b, int64_t rows, int64_t out) {
    const int64_t begin = b->cache->length, n = ht_min_i64(b->end - begin, p->chunk - rows);
    const int64_t without = ht_max_i64(0, b->first_out - begin);
    return ht_min_i64(n, without + p->most_out - out);
}

/* Moves branches from the stack into slots as long as rows and memory last; returns how many. */
static int32_t choose(ht_prefill *p) {
    int32_t n = 0;
    int64_t rows = 0, out = 0;
    while (p->n_stack > 0 && n < p->n_slots && rows < p->chunk) {
        branch *b = &p->stack[p->n_stack - 1];
        const int64_t more = rows_that_fit(p, b, rows, out);
        int64_t end = b->cache->length + more;
        if (more <= 0) break;
        if (is_common(p, b)) end = ht_cache_plan(b->cache, p->model, p->order[b->lo]->token, b->end, b->end, end);
        /* Only the first branch of a step may exceed the budget. */
        if (n > 0 && !ht_cache_fits(&p->account, p->kv_bytes, ht_cache_growth(b->cache, end))) break;
        ht_error err = {0};
        p->n_stack--;
        if (ht_cache_reserve(b->cache, end, &err)) {
            fail_branch(p, b, &err);
            continue;
        }
        slot *s = &p->slot[n];
        s->b = *b;
        s->begin = b->cache->length;
        s->taker = p->taker + b->lo;
        s->job = (ht_step_job){.cache = b->cache,
                               .token = p->order[b->lo]->token,
                               .end = end,
                               .first_out = b->first_out,
                               .most_rows = p->chunk,
                               .lora = p->owner->adapters ? &p->owner->adapters->set : NULL,
                               .consume = take_rows,
                               .user = s,
                               .cancel = p->cancel,
                               .hidden = p->hidden,
                               .prompt = true};
        p->jobs[n++] = &s->job;
        rows += end - s->begin;
        out += end - ht_min_i64(end, ht_max_i64(s->begin, b->first_out));
    }
    return n;
}

/* Pushes an unfinished branch, or a finished one's children; the last slot first, for the stack's order. */
static void finish_slot(ht_prefill *p, slot *s) {
    branch *b = &s->b;
    p->sequence[b->lowest].computed += b->cache->length - s->begin;
    if (s->job.status && s->job.status != HT_ERR_CANCELLED) {
        fail_branch(p, b, &s->job.err);
    } else if (b->cache->length < b->end) {
        p->stack[p->n_stack++] = *b;
    } else {
        keep(p, b);
        expand(p, b->lo, b->hi, b->end, b->cache);
    }
}

static ht_status run_steps(ht_prefill *p, ht_error *err) {
    while (p->n_stack > 0) {
        if (ht_cancel_requested(p->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "cancelled");
        const int32_t n = choose(p);
        if (n) ht_scheduler_run(p->model->scheduler, p->jobs, n);
        for (int32_t i = n; i-- > 0;) finish_slot(p, &p->slot[i]);
        if (!p->calls->stepped(p->calls->user)) return ht_fail(err, HT_ERR_CANCELLED, "stopped by the callback");
    }
    return HT_OK;
}

/* Branches on the stack and in slots have different sequences, so n entries suffice. */
static ht_status make_lists(ht_prefill *p, ht_error *err) {
    const size_t n = (size_t)p->n;
    p->order = malloc(n * sizeof(ht_prefill_sequence *));
    p->stack = malloc(n * sizeof *p->stack);
    p->taker = malloc(n * sizeof *p->taker);
    if (p->order && p->stack && p->taker) return HT_OK;
    return ht_fail_memory(err, n * (sizeof(ht_prefill_sequence *) + sizeof *p->stack), "a prefill");
}

ht_status ht_prefill_run(ht_prefill *p, ht_prefill_sequence *sequences, int32_t n, const ht_prefill_calls *calls,
                         const ht_cancel *cancel, ht_error *err) {
    if (n == 0) return HT_OK;
    p->sequence = sequences;
    p->n = n;
    p->calls = calls;
    p->cancel = cancel;
    p->n_stack = 0;
    ht_status status = make_lists(p, err);
    for (int32_t i = 0; i < n && !status; i++) {
        p->order[i] = &p->sequence[i];
        p->sequence[i].is_long = ht_model_is_long(p->model, p->sequence[i].n);
    }
    if (!status) qsort(p->order, (size_t)n, sizeof(ht_prefill_sequence *), by_tokens);
    for (int32_t lo = 0, hi; lo < n && !status; lo = hi) {
        ht_cache *cache;
        for (hi = lo + 1; hi < n && p->order[hi]->is_long == p->order[lo]->is_long;) hi++;
        status = first_cache(p, lo, hi, &cache, err);
        if (status) break;
        expand(p, lo, hi, cache->length, cache);
        status = run_steps(p, err);
    }
    for (int32_t i = 0; i < p->n_stack; i++) ht_cache_free(p->stack[i].cache);
    free(p->order);
    free(p->stack);
    free(p->taker);
    return status;
}
