/* Lays out a run: how operands are read, in blocks of what size, and by tiles where neighbours of operands lie along another
 * axis than the result's, as in a transpose, so that whole cache lines are read. */
#include "base/checked.h"
#include "cpu/bypass.h"
#include "cpu/each_job.h"

/* Rows from this length on are worth blocks of their own. */
enum { LONG_ROW = 192 };

/* Where nothing is kept between steps, and no function looks through its block first, a block may be as long as this:
 * called less often, comparisons and casts to narrow types are 1.05 times as fast. */
enum { STRAIGHT_BYTES = 32768 };

bool ht_each_is_math(ht_op_id op) {
    switch (op) {
    case HT_OP_COPY:
    case HT_OP_CAST:
    case HT_OP_NEGATIVE:
    case HT_OP_ABS:
    case HT_OP_SIGN:
    case HT_OP_SQUARE:
    case HT_OP_ADD:
    case HT_OP_SUBTRACT:
    case HT_OP_MULTIPLY:
    case HT_OP_SCALE:
    case HT_OP_MINIMUM:
    case HT_OP_MAXIMUM:
    case HT_OP_WHERE:
    case HT_OP_EQUAL:
    case HT_OP_NOT_EQUAL:
    case HT_OP_LESS:
    case HT_OP_LESS_EQUAL:
    case HT_OP_LOGICAL_NOT:
    case HT_OP_LOGICAL_AND:
    case HT_OP_LOGICAL_OR:
    case HT_OP_BITWISE_INVERT:
    case HT_OP_BITWISE_AND:
    case HT_OP_BITWISE_OR:
    case HT_OP_BITWISE_XOR:
    case HT_OP_LEFT_SHIFT:
    case HT_OP_RIGHT_SHIFT: return false;
    default: return true;
    }
}

static bool lies_like(const ht_view *v, const ht_view *out) {
    for (int d = 0; d < out->n_dims; d++)
        if (out->shape[d] != 1 && v->stride[d] != out->stride[d]) return false;
    return true;
}

static bool is_scalar(const ht_view *v, const ht_view *out) {
    for (int d = 0; d < out->n_dims; d++)
        if (out->shape[d] != 1 && v->stride[d] != 0) return false;
    return true;
}

static bool mergeable(const each_job *j, int outer, int inner) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].how == BY_AXIS && j->in[k].stride[outer] != j->in[k].stride[inner] * j->shape[inner]) return false;
    return true;
}

/* Axes that no input can tell apart become one. */
static void merge_axes(each_job *j, const ht_view *in, const ht_view *out) {
    int d = 0;
    for (int axis = 0; axis < out->n_dims; axis++) {
        if (out->shape[axis] == 1) continue;
        j->shape[d] = out->shape[axis];
        for (int k = 0; k < j->p->n_in; k++) j->in[k].stride[d] = in[k].stride[axis];
        if (d > 0 && mergeable(j, d - 1, d)) {
            j->shape[d - 1] *= j->shape[d];
            for (int k = 0; k < j->p->n_in; k++) j->in[k].stride[d - 1] = j->in[k].stride[d];
        } else
            d++;
    }
    j->n_dims = d;
}

/* What lies over an input is in a cache when it is written. */
static bool is_large(const each_job *j, const ht_view *in, const ht_view *out) {
    if (!ht_bypasses((size_t)j->size * ht_dtype_bytes(out->dtype))) return false;
    for (int k = 0; k < j->p->n_in; k++)
        if (in[k].data == out->data) return false;
    return true;
}

/* Blocks of what caches do not hold are of 1 KB, so that those asked for ahead find room in the first one. */
#define ASK_BYTES       ((int64_t)1 << 20)
#define ASK_BYTES_HEAVY ((int64_t)4 << 20)

void ht_each_choose_way(each_job *j, ht_way way) {
    const bool quiet = way == HT_WAY_PLAIN_QUIET || way == HT_WAY_BYPASS_QUIET;
    j->bypass = way < HT_WAY_PLAIN;
    j->asks = !quiet && j->size * j->widest >= (j->heavy ? ASK_BYTES_HEAVY : ASK_BYTES);
    j->asks_far = way == HT_WAY_BYPASS && !j->heavy;
    const int parts = way == HT_WAY_BYPASS_SHORT ? 4 : j->bypass ? 2 : j->asks ? 4 : 1;
    j->block = HT_EACH_BYTES / ht_max_i64(j->widest, 4) / parts;
    if (j->straight && !j->asks && !j->bypass) j->block = STRAIGHT_BYTES / ht_max_i64(j->widest, 4);
}

static int64_t least_block(const each_job *j) { return HT_EACH_BYTES / ht_max_i64(j->widest, 4) / 4; }

void ht_each_lay(each_job *j, const ht_program *p, const ht_view *in, const ht_view *out) {
    j->p = p;
    j->size = ht_view_size(&out[0]);
    j->first = 0;
    j->n_dims = 0;
    j->tiles.count = 0;
    j->strips.n = 0;
    j->by_rows = j->any_large = false;
    j->widest = 1;
    j->narrowest = 8;
    j->straight = p->n_steps == 1;
    j->heavy = p->n_steps > LIGHT_STEPS;
    bool by_axis = false;
    for (int k = 0; k < p->n_in; k++) {
        each_source *s = &j->in[k];
        s->data = in[k].data;
        s->bytes = (int64_t)ht_dtype_bytes(in[k].dtype);
        s->how = lies_like(&in[k], out) ? WHOLE : is_scalar(&in[k], out) ? SCALAR : BY_AXIS;
        by_axis |= s->how == BY_AXIS;
        j->straight &= s->how == WHOLE;
        j->widest = ht_max_i64(j->widest, s->bytes);
        j->narrowest = ht_min_i64(j->narrowest, s->bytes);
    }
    for (int k = 0; k < p->n_out; k++) {
        j->out[k] = out[k].data;
        j->out_bytes[k] = (int64_t)ht_dtype_bytes(out[k].dtype);
        j->large[k] = is_large(j, in, &out[k]);
        j->any_large |= j->large[k];
    }
    for (int i = 0; i < p->n_steps; i++) {
        const int64_t bytes = (int64_t)ht_dtype_bytes(p->step[i].to);
        j->widest = ht_max_i64(j->widest, bytes);
        j->narrowest = ht_min_i64(j->narrowest, bytes);
        j->heavy |= ht_each_is_math(p->step[i].op);
        j->share[i] = (uint16_t)(SHARES * i / p->n_steps);
    }
    j->share[p->n_steps] = SHARES;
    j->straight &= !j->heavy;
    ht_each_choose_way(j, HT_WAY_PLAIN);
    if (!by_axis) return;
    merge_axes(j, in, out);
    j->by_rows = j->shape[j->n_dims - 1] >= LONG_ROW;
}

/* ---- laying out tiles ---- */

/* The axis along which an operand's neighbours lie, if that is not the last: several of them in a line that the last axis
 * goes through one by one. -1: none. */
static int turned_axis(const each_job *j, const each_source *s) {
    const int last = j->n_dims - 1;
    int axis = -1;
    int64_t least = s->stride[last] < 0 ? -s->stride[last] / 4 : s->stride[last] / 4;
    least = ht_min_i64(least, 32 / s->bytes);
    for (int d = 0; d < last; d++) {
        const int64_t step = s->stride[d] < 0 ? -s->stride[d] : s->stride[d];
        if (step == 0 || step > least || j->shape[d] < LEAST_ROWS) continue;
        least = step;
        axis = d;
    }
    return axis;
}

/* Operands that are turned, and the tiles that suit them, if there are any. */
void ht_each_lay_tiles(each_job *j) {
    each_tiling *t = &j->tiles;
    const int last = j->n_dims - 1;
    int64_t widest = 1;
    t->n_turned = 0;
    for (int k = 0; k < j->p->n_in && last > 0 && j->size > 0; k++) {
        each_source *s = &j->in[k];
        const int axis = s->how == BY_AXIS ? turned_axis(j, s) : -1;
        if (axis < 0 || (t->n_turned && axis != t->across)) continue;
        t->across = axis;
        t->n_turned++;
        s->how = TURNED;
        widest = ht_max_i64(widest, s->bytes);
    }
    if (!t->n_turned) return;
    const int64_t bytes = ht_min_i64(TILE_BYTES, TILES_BYTES / t->n_turned / 64 * 64);
    t->rows = ht_min_i64(j->shape[t->across], (widest < 4 ? 64 : 128) / widest);
    t->columns = ht_min_i64(j->shape[last], ht_min_i64(bytes / widest / t->rows / 16 * 16, least_block(j)));
    t->bands = (j->shape[t->across] + t->rows - 1) / t->rows;
    t->pieces = (j->shape[last] + t->columns - 1) / t->columns;
    t->count = j->size / (j->shape[t->across] * j->shape[last]) * t->bands * t->pieces;
    t->step = 1;
    for (int d = t->across + 1; d <= last; d++) t->step *= j->shape[d];
    size_t room = 0;
    for (int k = 0; k < j->p->n_in; k++) {
        if (j->in[k].how != TURNED) continue;
        j->in[k].room = room;
        room += (size_t)bytes;
    }
}
