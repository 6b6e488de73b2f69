/* Preparing programs and running them (each.h): a part for every thread, and large results the faster way. */
#include "base/checked.h"
#include "cpu/each_job.h"
#include "cpu/walk.h"

/* ---- preparing ---- */

/* The last step that reads what each step makes. */
static void find_last_reads(const ht_program *p, int8_t *last) {
    for (int i = 0; i < p->n_steps; i++) {
        last[i] = (int8_t)i;
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] < 0) last[-1 - p->step[i].in[k]] = (int8_t)i;
    }
}

static void choose_strips(ht_program *p, const ht_each_set *set) {
    p->strips = set && set->strips && ht_each_takes_strips(p) ? (void (*)(void))set->strips : NULL;
    p->strips_least = set ? set->strips_least : 0;
}

bool ht_each_prepare(ht_program *p, const ht_each_set *set) {
    int8_t last[HT_PROGRAM_STEPS], owner[HT_PROGRAM_LOCALS];
    find_last_reads(p, last);
    for (int l = 0; l < HT_PROGRAM_LOCALS; l++) owner[l] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        ht_program_step *s = &p->step[i];
        s->kernel = (void (*)(void))set->find(s->op, s->from, s->to);
        s->local = -1;
        if (!s->kernel) return false;
        if (s->out >= 0) continue;
        /* A place is free again behind the last step that reads it: a result is never written over its own operands. */
        for (int l = 0; l < HT_PROGRAM_LOCALS && s->local < 0; l++)
            if (owner[l] < 0 || last[owner[l]] < i) s->local = (int8_t)l;
        if (s->local < 0) return false;
        owner[s->local] = (int8_t)i;
    }
    choose_strips(p, set);
    return true;
}

/* ---- programs ---- */

/* n elements or tiles from `first` on. */
static void run_part(each_job *j, int64_t first, int64_t n, int64_t grain, ht_way way, ht_pool *pool) {
    ht_each_choose_way(j, way);
    ht_each_lay_strips(j);
    j->first = first;
    if (j->tiles.count)
        ht_pool_run(pool, n, ht_max_i64(1, grain / (j->tiles.rows * j->tiles.columns)), ht_each_run_tiles, j);
    else
        ht_pool_run(pool, n, grain, ht_each_run_piece, j);
}

/* Writing large results the fastest way, or finding out which one that is. */
static void run_large(each_job *j, ht_work work, int64_t grain, ht_pool *pool) {
    const int threads = ht_pool_threads(pool);
    const int64_t n = j->tiles.count ? j->tiles.count : j->size;
    const int64_t half = j->tiles.count ? n / 2 : n / 2 / 64 * 64; /* whole cache lines of any dtype */
    ht_trial t = ht_ways_next(work, threads);
    if (!t.tries) {
        run_part(j, 0, n, grain, t.first, pool);
        return;
    }
    ht_ways_begin(&t);
    run_part(j, 0, half, grain, t.first, pool);
    ht_ways_half(&t);
    run_part(j, half, n - half, grain, t.second, pool);
    ht_ways_end(&t, work, threads);
}

static ht_work work_of(const each_job *j) {
    if (j->tiles.count) return HT_WORK_TILES;
    if (j->heavy) return j->p->n_steps > LIGHT_STEPS ? HT_WORK_LONG : HT_WORK_MATH;
    int operands = 0;
    for (int k = 0; k < j->p->n_in; k++) operands += j->in[k].how != SCALAR;
    if (j->narrowest < 4) return operands > 1 ? HT_WORK_NARROW_MORE : HT_WORK_NARROW_ONE;
    return operands > 1 ? HT_WORK_LIGHT_MORE : HT_WORK_LIGHT_ONE;
}

static void run_job(each_job *j, ht_pool *pool) {
    const int64_t grain = j->heavy ? HT_GRAIN_MATH : HT_GRAIN_CHEAP;
    if (j->any_large)
        run_large(j, work_of(j), grain, pool);
    else
        run_part(j, 0, j->tiles.count ? j->tiles.count : j->size, grain, HT_WAY_PLAIN, pool);
}

void ht_each_run_program(const ht_program_run *run) {
    each_job j;
    ht_each_lay(&j, run->program, run->in, run->out);
    ht_each_lay_tiles(&j);
    run_job(&j, run->pool);
}

/* ---- one operation ---- */

static void one_step(ht_program *p, const ht_call *call, ht_op_id op, ht_each_fn *fn, const ht_each_set *set) {
    p->n_steps = 1;
    p->n_in = call->n_in;
    p->n_out = 1;
    p->step[0] = (ht_program_step){.op = op,
                                   .from = call->n_in ? call->in[call->n_in - 1].dtype : call->out.dtype,
                                   .to = call->out.dtype,
                                   .n_in = (int8_t)call->n_in,
                                   .in = {0, 1, 2},
                                   .params = call->params,
                                   .kernel = (void (*)(void))fn};
    choose_strips(p, set);
}

void ht_each_run(const ht_call *call, ht_op_id op, ht_each_fn *fn, const ht_each_set *set) {
    ht_program p;
    one_step(&p, call, op, fn, set);
    ht_each_run_program(&(ht_program_run){.program = &p, .in = call->in, .out = &call->out, .pool = call->pool});
}

bool ht_each_turn(const ht_call *call) {
    ht_program p;
    each_job j;
    one_step(&p, call, HT_OP_COPY, NULL, NULL);
    ht_each_lay(&j, &p, call->in, &call->out);
    ht_each_lay_tiles(&j);
    if (!j.tiles.count) return false;
    run_job(&j, call->pool);
    return true;
}

void ht_each_run_rows(const ht_call *call, ht_op_id op, ht_each_fn *fn, int64_t begin, int64_t end) {
    ht_program p;
    each_job j;
    one_step(&p, call, op, fn, NULL);
    ht_each_lay(&j, &p, call->in, &call->out);
    int64_t width = call->out.shape[0] > 0 ? j.size / call->out.shape[0] : 0;
    ht_each_run_piece(&j, begin * width, end * width, 0);
}
