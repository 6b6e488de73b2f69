/* Runs a program by tiles of two axes, for operands whose neighbours lie along another one than the result's (each_job.h). */
#include "base/checked.h"
#include "cpu/bypass.h"
#include "cpu/each_job.h"
#include "cpu/turn.h"

typedef struct tile {
    each_place where;
    int64_t rows, columns;
} tile;

static void find_tile(const each_job *j, int64_t which, tile *to) {
    const each_tiling *t = &j->tiles;
    const int last = j->n_dims - 1;
    int64_t *index = to->where.index;
    index[last] = which % t->pieces * t->columns;
    which /= t->pieces;
    index[t->across] = which % t->bands * t->rows;
    which /= t->bands;
    for (int d = last - 1; d >= 0; d--) {
        if (d == t->across) continue;
        index[d] = which % j->shape[d];
        which /= j->shape[d];
    }
    to->rows = ht_min_i64(t->rows, j->shape[t->across] - index[t->across]);
    to->columns = ht_min_i64(t->columns, j->shape[last] - index[last]);
}

static void turn(const each_job *j, const each_source *s, const tile *now, char *to, int64_t to_step) {
    ht_turn_tile(s->data + each_offset(j, s, &now->where) * s->bytes, s->stride[j->tiles.across],
                 s->stride[j->n_dims - 1], to, to_step, now->rows, now->columns, (size_t)s->bytes);
}

/* Asks for part `part` of `parts` of what the next tile turns: far apart, these lines are found by no other means. */
static void ask_tile(const each_job *j, const tile *next, int64_t part, int64_t parts) {
    const int64_t begin = next->columns * part / parts, end = next->columns * (part + 1) / parts;
    for (int k = 0; k < j->p->n_in; k++) {
        const each_source *s = &j->in[k];
        if (s->how != TURNED) continue;
        const int64_t across = s->stride[j->tiles.across] * (next->rows - 1), along = s->stride[j->n_dims - 1];
        const int64_t lowest = each_offset(j, s, &next->where) + (across < 0 ? across : 0);
        const int64_t bytes = (across < 0 ? 1 - across : 1 + across) * s->bytes;
        for (int64_t c = begin; c < end; c++) {
            const uintptr_t from = (uintptr_t)s->data + (uintptr_t)((lowest + c * along) * s->bytes);
            for (uintptr_t line = from / 64; line <= (from + (uintptr_t)bytes - 1) / 64; line++) ht_ask(line * 64);
        }
    }
}

/* The element of the result with which a tile begins. */
static int64_t first_of(const each_job *j, const tile *now) {
    int64_t at = 0;
    for (int d = 0; d < j->n_dims; d++) at = at * j->shape[d] + now->where.index[d];
    return at;
}

static void run_tile(const each_job *j, const tile *now, const tile *next, each_room *r) {
    const each_tiling *t = &j->tiles;
    const int last = j->n_dims - 1;
    each_block b = {.at = first_of(j, now), .where = now->where};
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].how == TURNED) turn(j, &j->in[k], now, r->tiles + j->in[k].room, now->columns);
    if (t->across == last - 1 && now->columns == j->shape[last]) { /* its rows are one in the result */
        const int64_t size = now->rows * now->columns, begin = b.at, parts = (size + j->block - 1) / j->block;
        for (int64_t i = 0; i < parts; i++, b.at += b.n, b.in_tile += b.n) {
            b.n = ht_min_i64(j->block, begin + size - b.at);
            b.next = b.at + b.n;
            if (i > 0) ht_each_find_place(j, b.at, &b.where);
            if (j->asks) ask_tile(j, next, i, parts);
            ht_each_run_block(j, &b, r);
        }
        return;
    }
    b.n = now->columns;
    for (int64_t i = 0; i < now->rows; i++, b.at += t->step, b.in_tile += b.n) {
        b.next = b.at + now->columns;
        b.where.index[t->across] = now->where.index[t->across] + i;
        if (j->asks) ask_tile(j, next, i, now->rows);
        ht_each_run_block(j, &b, r);
    }
}

static bool copies(const each_job *j) { return j->p->n_steps == 1 && j->p->step[0].op == HT_OP_COPY; }

/* A copy is turned to where it belongs, or from its tile to there round the caches. */
static void copy_tile(const each_job *j, const tile *now, const tile *next, each_room *r) {
    const each_source *s = &j->in[0];
    const int64_t step = j->tiles.step * s->bytes, width = now->columns * s->bytes;
    char *to = j->out[0] + first_of(j, now) * s->bytes;
    if (!j->bypass) {
        if (j->asks) ask_tile(j, next, 0, 1);
        turn(j, s, now, to, j->tiles.step);
        return;
    }
    turn(j, s, now, r->tiles, now->columns);
    for (int64_t i = 0; i < now->rows; i++) {
        ask_tile(j, next, i, now->rows);
        ht_bypass(to + i * step, r->tiles + i * width, (size_t)width, NULL, 0);
    }
}

void ht_each_run_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const each_job *j = arg;
    begin += j->first;
    end += j->first;
    _Alignas(64) char turned[TILES_BYTES];
    each_room r;
    r.tiles = turned;
    tile tiles[2];
    ht_each_fill_scalars(j, j->block, &r);
    const bool copying = copies(j);
    find_tile(j, begin, &tiles[begin % 2]);
    for (int64_t i = begin; i < end; i++) {
        find_tile(j, i + 1 < end ? i + 1 : i, &tiles[(i + 1) % 2]);
        (copying ? copy_tile : run_tile)(j, &tiles[i % 2], &tiles[(i + 1) % 2], &r);
    }
    if (j->bypass) ht_bypass_end();
}
