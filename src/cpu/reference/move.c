#include "cpu/reference/move.h"

#include "base/dtype.h"
#include "cpu/bypass.h"
#include "cpu/walk.h"

#include <string.h>

#define MOVE(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++) ((type *)(void *)to)[i * step] = ((const type *)(const void *)from)[i * by];       \
    return

void ht_move_span(char *to, int64_t step, const char *from, int64_t by, int64_t n, size_t bytes) {
    if (step == 1 && by == 1) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    switch (bytes) {
    case 1: MOVE(uint8_t);
    case 2: MOVE(uint16_t);
    case 4: MOVE(uint32_t);
    default: MOVE(uint64_t);
    }
}

typedef struct move_job {
    char *to;
    const char *from;
    size_t bytes; /* of an element */
    bool bypasses;
    ht_walk walk;
} move_job;

enum { AHEAD = 2048, LEAST_RUN = 256 };

static void move_part(void *arg, const ht_span *s) {
    const move_job *job = arg;
    const int64_t bytes = (int64_t)job->bytes;
    if (job->bypasses && s->stride[0] == 1 && s->stride[1] == 1 && s->n * bytes >= LEAST_RUN) {
        const char *from = job->from + s->offset[1] * bytes;
        ht_bypass(job->to + s->offset[0] * bytes, from, (size_t)(s->n * bytes), &(ht_ahead){from + AHEAD, 64}, 1);
        return;
    }
    ht_move_span(job->to + s->offset[0] * bytes, s->stride[0], job->from + s->offset[1] * bytes, s->stride[1], s->n,
                 job->bytes);
}

static void move_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    move_job *job = arg;
    ht_walk_range(&job->walk, begin, end, move_part, job);
    if (job->bypasses) ht_bypass_end();
}

void ht_move(ht_pool *pool, const ht_view *to, const ht_view *from) {
    const ht_view *views[] = {to, from};
    move_job job = {.to = to->data, .from = from->data, .bytes = ht_dtype_bytes(to->dtype)};
    ht_walk_init(&job.walk, 2, views);
    job.bypasses = ht_bypasses((size_t)job.walk.size * job.bytes);
    if (job.walk.size) ht_pool_run(pool, job.walk.size, HT_GRAIN_CHEAP, move_block, &job);
}
