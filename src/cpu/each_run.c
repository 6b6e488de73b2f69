/* Runs a program by blocks that follow one another (each_job.h). */
#include "base/checked.h"
#include "cpu/bypass.h"
#include "cpu/each_job.h"

/* Asks for what is before step i of what a block will read, and write unless that goes round the caches. Asked for a share
 * at a time, it comes while others are computed; processors ask for little by themselves, and not for what is written. On
 * one whose core has few lines under way a copying operation went from 9.6 to 12 GB/s with it, and a chain of eight from 7.3
 * to 9.1. */
static void ask_lines(const char *from, int64_t bytes, const uint16_t share[2]) {
    const int64_t lines = bytes / 64; /* may lie behind the operand: asking never fails */
    for (int64_t l = lines * share[0] / SHARES; l < lines * share[1] / SHARES; l++)
        ht_ask((uintptr_t)from + (uintptr_t)l * 64);
}

static void ask_ahead(const each_job *j, const each_block *b, int i) {
    for (int k = 0; k < j->p->n_in; k++) {
        const each_source *s = &j->in[k];
        if (s->how == WHOLE) ask_lines(s->data + b->next * s->bytes, b->n * s->bytes, &j->share[i]);
    }
    for (int k = 0; k < j->p->n_out && !j->bypass; k++)
        ask_lines(j->out[k] + b->next * j->out_bytes[k], b->n * j->out_bytes[k], &j->share[i]);
}

/* Short programs ask for operands line by line between stores that go round the caches (bypass.h), longer ones between
 * steps: they compute for so long that asking for all at the end would leave memory idle. On a core with 2 MB of second cache
 * that was 1.2 to 1.5 times as fast for one to three operations, and 0.9 for seven. */
static bool asks_between_stores(const each_job *j) { return j->asks && j->bypass && j->p->n_steps <= LIGHT_STEPS; }

/* What is asked for between the stores of a result whose elements take `bytes`, from element `next` on. */
static int lay_ahead(const each_job *j, int64_t bytes, int64_t next, ht_ahead ahead[HT_PROGRAM_INPUTS]) {
    int n = 0;
    for (int k = 0; k < j->p->n_in && asks_between_stores(j); k++) {
        const each_source *s = &j->in[k];
        if (s->how == WHOLE) ahead[n++] = (ht_ahead){s->data + next * s->bytes, (size_t)(64 * s->bytes / bytes), 0};
    }
    if (n == 1 && j->asks_far) ahead[0].far = EACH_FAR;
    return n;
}

void ht_each_run_block(const each_job *j, const each_block *b, each_room *r) {
    const ht_program *p = j->p;
    const void *input[HT_PROGRAM_INPUTS], *made[HT_PROGRAM_STEPS];
    for (int k = 0; k < p->n_in; k++) input[k] = ht_each_bring(j, k, b, r);
    const int64_t done = ht_each_run_strips(j, input, b->at, b->n, r), at = b->at + done, n = b->n - done;
    const bool asks = j->asks && !asks_between_stores(j) && !done; /* or strips have asked for it */
    for (int k = 0; k < p->n_in; k++)
        if (!each_is_still(j, k)) input[k] = (const char *)input[k] + done * j->in[k].bytes;
    for (int i = 0; n > 0 && i < p->n_steps; i++) {
        const ht_program_step *s = &p->step[i];
        const void *in[HT_STEP_INPUTS];
        if (asks) ask_ahead(j, b, i);
        for (int k = 0; k < s->n_in; k++) in[k] = s->in[k] >= 0 ? input[s->in[k]] : made[-1 - s->in[k]];
        const int64_t bytes = (int64_t)ht_dtype_bytes(s->to);
        char *result = s->out >= 0 ? j->out[s->out] + at * bytes : r->local[s->local];
        const bool bypasses = each_passes(j, s->out);
        void *to = bypasses ? r->bypassed[s->out] : result;
        /* A copy goes round the caches from where it was brought. */
        made[i] = bypasses && p->n_steps == 1 && s->op == HT_OP_COPY ? in[0] : to;
        if (made[i] == to) ((ht_each_fn *)s->kernel)(in, to, n, s->params);
        if (bypasses) {
            ht_ahead ahead[HT_PROGRAM_INPUTS];
            const int n_ahead = lay_ahead(j, bytes, b->next, ahead);
            ht_bypass(result, made[i], (size_t)(n * bytes), ahead, n_ahead);
        }
    }
}

/* A step on blocks that follow one another: what it reads and makes for element 0, and bytes from one element of that to the
 * next, 0 for what every block has in one place. */
typedef struct flat_step {
    ht_each_fn *fn;
    const void *params;
    const char *in[HT_STEP_INPUTS];
    int64_t in_bytes[HT_STEP_INPUTS];
    char *to;
    int64_t to_bytes;
    char *past; /* where that goes round the caches, or NULL, and bytes from one element of it to the next */
    int64_t past_bytes;
} flat_step;

/* Something that goes with the result, of which step i begins by asking for lines [cut[i], cut[i + 1]) of a block. */
typedef struct stream {
    const char *data;
    int64_t bytes;
    uint8_t cut[HT_PROGRAM_STEPS + 1];
} stream;

typedef struct flat {
    flat_step step[HT_PROGRAM_STEPS];
    int n_streams;
    stream stream[HT_PROGRAM_INPUTS + HT_PROGRAM_OUTPUTS];
} flat;

static void add_stream(const each_job *j, flat *f, const char *data, int64_t bytes) {
    stream *s = &f->stream[f->n_streams++];
    s->data = data;
    s->bytes = bytes;
    for (int i = 0; i <= j->p->n_steps; i++) s->cut[i] = (uint8_t)(j->block * bytes / 64 * j->share[i] / SHARES);
}

static void lay_flat(const each_job *j, each_room *r, flat *f) {
    for (int i = 0; i < j->p->n_steps; i++) {
        const ht_program_step *s = &j->p->step[i];
        flat_step *to = &f->step[i];
        to->fn = (ht_each_fn *)s->kernel;
        to->params = s->params;
        to->to = s->out < 0 ? r->local[s->local] : j->out[s->out];
        to->to_bytes = s->out < 0 ? 0 : j->out_bytes[s->out];
        to->past = NULL;
        if (each_passes(j, s->out)) {
            to->past = to->to;
            to->past_bytes = to->to_bytes;
            to->to = r->bypassed[s->out];
            to->to_bytes = 0;
        }
        for (int k = 0; k < s->n_in; k++) {
            const int id = s->in[k];
            const bool moves = id >= 0 && j->in[id].how == WHOLE;
            to->in[k] = id < 0 ? f->step[-1 - id].to : moves ? j->in[id].data : r->staged[id];
            to->in_bytes[k] = id < 0 ? f->step[-1 - id].to_bytes : moves ? j->in[id].bytes : 0;
        }
    }
    f->n_streams = 0;
    const bool asks = j->asks && !asks_between_stores(j);
    for (int k = 0; k < j->p->n_in && asks; k++)
        if (j->in[k].how == WHOLE) add_stream(j, f, j->in[k].data, j->in[k].bytes);
    for (int k = 0; k < j->p->n_out && asks && !j->bypass; k++) add_stream(j, f, j->out[k], j->out_bytes[k]);
}

/* What run_block does, where all operands lie like the result or are single elements: blocks are small, so that finding
 * places would take a part of the time. */
static void run_flat(const each_job *j, int64_t begin, int64_t end, each_room *r) {
    const void *input[HT_PROGRAM_INPUTS];
    for (int k = 0; k < j->p->n_in; k++)
        input[k] = j->in[k].how == WHOLE ? j->in[k].data + begin * j->in[k].bytes : r->staged[k];
    begin += ht_each_run_strips(j, input, begin, end - begin, r);
    if (begin == end) return;
    flat f;
    lay_flat(j, r, &f);
    for (int64_t at = begin; at < end; at += j->block) {
        const int64_t n = ht_min_i64(j->block, end - at), next = at + 2 * j->block;
        for (int i = 0; i < j->p->n_steps; i++) {
            const flat_step *s = &f.step[i];
            const void *in[HT_STEP_INPUTS];
            for (const stream *of = f.stream; of < f.stream + f.n_streams; of++)
                for (int l = of->cut[i]; l < of->cut[i + 1]; l++)
                    ht_ask((uintptr_t)of->data + (uintptr_t)(next * of->bytes + 64 * l));
            for (int k = 0; k < j->p->step[i].n_in; k++) in[k] = s->in[k] + at * s->in_bytes[k];
            s->fn(in, s->to + at * s->to_bytes, n, s->params);
            if (!s->past) continue;
            ht_ahead ahead[HT_PROGRAM_INPUTS];
            const int n_ahead = lay_ahead(j, s->past_bytes, next, ahead);
            ht_bypass(s->past + at * s->past_bytes, s->to, (size_t)(n * s->past_bytes), ahead, n_ahead);
        }
    }
}

void ht_each_run_piece(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const each_job *j = arg;
    begin += j->first;
    end += j->first;
    each_room r;
    each_block b;
    ht_each_fill_scalars(j, ht_min_i64(j->block, end - begin), &r);
    if (!j->n_dims) {
        run_flat(j, begin, end, &r);
        if (j->bypass) ht_bypass_end();
        return;
    }
    const int64_t most = j->strips.n && j->strips.by_rows ? end - begin : j->block;
    for (b.at = begin; b.at < end; b.at += b.n) {
        b.n = ht_min_i64(most, end - b.at);
        ht_each_find_place(j, b.at, &b.where);
        if (j->by_rows) b.n = ht_min_i64(b.n, j->shape[j->n_dims - 1] - b.where.index[j->n_dims - 1]);
        b.next = b.at + 2 * b.n;
        ht_each_run_block(j, &b, &r);
    }
    if (j->bypass) ht_bypass_end();
}
