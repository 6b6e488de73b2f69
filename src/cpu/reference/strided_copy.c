#include "cpu/reference/strided_copy.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/bypass.h"
#include "cpu/elementwise.h"
#include "cpu/strided_iterator.h"

#include <string.h>

#define MOVE(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++) ((type *)(void *)to)[i * step] = ((const type *)(const void *)from)[i * by];       \
    return

void ht_move_span(char *to, int64_t step, const char *from, int64_t by, int64_t n, size_t bytes) {
    if (step == 1) {
        ht_gather_elements(to, from, by, n, bytes);
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
    ht_strided_iterator iterator;
} move_job;

enum { AHEAD = 2048, LEAST_RUN = 256, STAGED = 2048, NEAR_ELEMENTS = 4 };

/* n elements round the caches, by way of some that are brought together in one. Elements that share lines are asked for. */
static void move_apart(char *to, const char *from, int64_t by, int64_t n, int64_t bytes) {
    _Alignas(64) char room[STAGED];
    const size_t per_line = by > 1 && by <= NEAR_ELEMENTS ? 64 * (size_t)by : 0;
    for (int64_t i = 0, some; i < n; i += some) {
        some = ht_min_i64(n - i, STAGED / bytes);
        const char *x = from + i * by * bytes;
        ht_gather_elements(room, x, by, some, (size_t)bytes);
        const ht_ahead ahead = {x + some * by * bytes, per_line};
        ht_bypass(to + i * bytes, room, (size_t)(some * bytes), &ahead, 1);
    }
}

static void move_part(void *arg, const ht_strided_span *s) {
    const move_job *job = arg;
    const int64_t bytes = (int64_t)job->bytes, by = s->stride[1];
    char *to = job->to + s->offset[0] * bytes;
    const char *from = job->from + s->offset[1] * bytes;
    if (!job->bypasses || s->stride[0] != 1 || s->n * bytes < LEAST_RUN)
        ht_move_span(to, s->stride[0], from, by, s->n, job->bytes);
    else if (by == 1)
        ht_bypass(to, from, (size_t)(s->n * bytes), &(ht_ahead){from + AHEAD, 64}, 1);
    else
        move_apart(to, from, by, s->n, bytes);
}

static void move_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    move_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, move_part, job);
    if (job->bypasses) ht_bypass_end();
}

void ht_move(ht_pool *pool, const ht_view *to, const ht_view *from) {
    const ht_view *views[] = {to, from};
    move_job job = {.to = to->data, .from = from->data, .bytes = ht_dtype_bytes(to->dtype)};
    ht_strided_iterator_init(&job.iterator, 2, views);
    job.bypasses = ht_bypasses((size_t)job.iterator.size * job.bytes);
    if (job.iterator.size) ht_pool_run(pool, job.iterator.size, HT_GRAIN_CHEAP, move_block, &job);
}
