/* The walk behind each.h: cuts the elements of the result into pieces for the threads and those into blocks, brings
 * operands that do not lie one element after the other into blocks of their own, and calls the steps' functions. Where the
 * neighbours of operands lie along another axis than the result's, as in a transpose, the pieces are tiles of both axes, so
 * that whole cache lines are read. */
#include "cpu/each.h"

#include "base/checked.h"
#include "cpu/bypass.h"
#include "cpu/turn.h"
#include "cpu/walk.h"
#include "cpu/ways.h"

#include <string.h>

/* How an input is read. */
typedef enum access {
    WHOLE,   /* lies like the result */
    SCALAR,  /* one element */
    TURNED,  /* its neighbours lie along another axis than the result's: a tile at a time */
    BY_AXIS, /* anything else */
} access;

typedef struct source {
    const char *data;
    int64_t bytes; /* of an element */
    access how;
    int64_t stride[HT_MAX_DIMS]; /* TURNED and BY_AXIS, in elements, over the merged axes */
    size_t room;                 /* TURNED: where in the room its tile is */
} source;

/* The result as tiles of two of the merged axes, `across` and the last, for operands that are turned. Tiles that follow each
 * other along the last axis come one after another: the lines of the result that they share are still in a cache. */
typedef struct tiling {
    int across, n_turned;
    int64_t step;           /* elements of the result from one row of a tile to the next */
    int64_t rows, columns;  /* of a tile */
    int64_t strips, pieces; /* tiles across, and along the last axis */
    int64_t count;
} tiling;

typedef struct each_job {
    const ht_program *p;
    int64_t size, block; /* elements */
    int64_t first;       /* where the pieces count from: elements, or tiles */
    int64_t widest;      /* bytes of an element of anything */
    int n_dims;          /* of the merged axes */
    bool by_rows;        /* a block is within a row of the last merged axis */
    bool heavy;          /* an element takes longer than to read and write it */
    bool straight;       /* one light operation on operands that all lie like the result */
    int64_t shape[HT_MAX_DIMS];
    source in[HT_PROGRAM_INPUTS];
    char *out[HT_PROGRAM_OUTPUTS];
    int64_t out_bytes[HT_PROGRAM_OUTPUTS]; /* of an element */
    int n_out;
    bool large[HT_PROGRAM_OUTPUTS];       /* may be written round the caches */
    bool any_large, bypass;               /* they are */
    bool asks;                            /* for what the next blocks need */
    uint16_t share[HT_PROGRAM_STEPS + 1]; /* what of it before each step begins at, of SHARES */
    tiling tiles;                         /* count 0: there are none */
} each_job;

/* Rows from this length on are worth blocks of their own. */
enum { LONG_ROW = 192 };

/* Where nothing is kept between steps, and no function looks through its block first, a block may be as long as this:
 * called less often, comparisons and casts to narrow types are 1.05 times as fast. */
enum { STRAIGHT_BYTES = 32768 };

/* ---- preparing ---- */

static bool is_math(ht_op_id op) {
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

/* The last step that reads what each step makes. */
static void find_last_reads(const ht_program *p, int8_t *last) {
    for (int i = 0; i < p->n_steps; i++) {
        last[i] = (int8_t)i;
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] < 0) last[-1 - p->step[i].in[k]] = (int8_t)i;
    }
}

bool ht_each_prepare(ht_program *p, ht_find_each_fn *find) {
    int8_t last[HT_PROGRAM_STEPS], owner[HT_PROGRAM_LOCALS];
    find_last_reads(p, last);
    for (int l = 0; l < HT_PROGRAM_LOCALS; l++) owner[l] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        ht_program_step *s = &p->step[i];
        s->kernel = (void (*)(void))find(s->op, s->from, s->to);
        s->local = -1;
        if (!s->kernel) return false;
        if (s->out >= 0) continue;
        /* A place is free again behind the last step that reads it: a result is never written over its own operands. */
        for (int l = 0; l < HT_PROGRAM_LOCALS && s->local < 0; l++)
            if (owner[l] < 0 || last[owner[l]] < i) s->local = (int8_t)l;
        if (s->local < 0) return false;
        owner[s->local] = (int8_t)i;
    }
    return true;
}

/* ---- laying out a run ---- */

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
enum { SHARES = 256 };
#define ASK_BYTES       ((int64_t)1 << 20)
#define ASK_BYTES_HEAVY ((int64_t)4 << 20)

static void choose_way(each_job *j, ht_way way) {
    j->bypass = way == HT_WAY_BYPASS;
    j->asks = j->size * j->widest >= (j->heavy ? ASK_BYTES_HEAVY : ASK_BYTES);
    j->block = HT_EACH_BYTES / ht_max_i64(j->widest, 4) / (j->bypass ? 2 : j->asks ? 4 : 1);
    if (j->straight && !j->asks) j->block = STRAIGHT_BYTES / ht_max_i64(j->widest, 4);
}

static int64_t least_block(const each_job *j) { return HT_EACH_BYTES / ht_max_i64(j->widest, 4) / 4; }

static void lay_job(each_job *j, const ht_program *p, const ht_view *in, const ht_view *out) {
    j->p = p;
    j->size = ht_view_size(&out[0]);
    j->first = 0;
    j->n_dims = 0;
    j->tiles.count = 0;
    j->n_out = p->n_out;
    j->by_rows = j->any_large = false;
    j->widest = 1;
    j->straight = p->n_steps == 1;
    j->heavy = p->n_steps > 3;
    bool by_axis = false;
    for (int k = 0; k < p->n_in; k++) {
        source *s = &j->in[k];
        s->data = in[k].data;
        s->bytes = (int64_t)ht_dtype_bytes(in[k].dtype);
        s->how = lies_like(&in[k], out) ? WHOLE : is_scalar(&in[k], out) ? SCALAR : BY_AXIS;
        by_axis |= s->how == BY_AXIS;
        j->straight &= s->how == WHOLE;
        j->widest = ht_max_i64(j->widest, s->bytes);
    }
    for (int k = 0; k < p->n_out; k++) {
        j->out[k] = out[k].data;
        j->out_bytes[k] = (int64_t)ht_dtype_bytes(out[k].dtype);
        j->large[k] = is_large(j, in, &out[k]);
        j->any_large |= j->large[k];
    }
    for (int i = 0; i < p->n_steps; i++) {
        j->widest = ht_max_i64(j->widest, (int64_t)ht_dtype_bytes(p->step[i].to));
        j->heavy |= is_math(p->step[i].op);
        j->share[i] = (uint16_t)(SHARES * i / p->n_steps);
    }
    j->share[p->n_steps] = SHARES;
    j->straight &= !j->heavy;
    choose_way(j, HT_WAY_PLAIN);
    if (!by_axis) return;
    merge_axes(j, in, out);
    j->by_rows = j->shape[j->n_dims - 1] >= LONG_ROW;
}

/* ---- laying out tiles ---- */

/* What the tiles of all operands take together, so that they find room beside each other in the second cache, and that of
 * one at most. Its rows are one line of the operand, two of wide elements; what is longer along the result than across is
 * slower where lines of the result begin anywhere, by half for squares. */
enum { TILES_BYTES = 65536, TILE_BYTES = 16384, LEAST_ROWS = 4 };

/* The axis along which an operand's neighbours lie, if that is not the last: several of them in a line that the last axis
 * goes through one by one. -1: none. */
static int turned_axis(const each_job *j, const source *s) {
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
static void lay_tiles(each_job *j) {
    tiling *t = &j->tiles;
    const int last = j->n_dims - 1;
    int64_t widest = 1;
    t->n_turned = 0;
    for (int k = 0; k < j->p->n_in && last > 0 && j->size > 0; k++) {
        source *s = &j->in[k];
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
    t->strips = (j->shape[t->across] + t->rows - 1) / t->rows;
    t->pieces = (j->shape[last] + t->columns - 1) / t->columns;
    t->count = j->size / (j->shape[t->across] * j->shape[last]) * t->strips * t->pieces;
    t->step = 1;
    for (int d = t->across + 1; d <= last; d++) t->step *= j->shape[d];
    size_t room = 0;
    for (int k = 0; k < j->p->n_in; k++) {
        if (j->in[k].how != TURNED) continue;
        j->in[k].room = room;
        room += (size_t)bytes;
    }
}

/* ---- bringing operands ---- */

/* A distance that compilers know becomes vectors. */
#define GATHER(type, name)                                                                                             \
    static void name(type *to, const type *from, int64_t stride, int64_t n) {                                          \
        if (stride == 2)                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];                                                       \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];                                                  \
    }
GATHER(uint8_t, gather1)
GATHER(uint16_t, gather2)
GATHER(uint32_t, gather4)
GATHER(uint64_t, gather8)

static void fill(char *to, const char *from, int64_t n, size_t bytes) {
    switch (bytes) {
    case 1: memset(to, *from, (size_t)n); break;
    case 2: gather2((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, 0, n); break;
    case 4: gather4((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, 0, n); break;
    default: gather8((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, 0, n);
    }
}

void ht_gather_elements(char *to, const char *from, int64_t stride, int64_t n, size_t bytes) {
    if (stride == 0) {
        fill(to, from, n, bytes);
        return;
    }
    if (stride == 1) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    switch (bytes) {
    case 1: gather1((uint8_t *)(void *)to, (const uint8_t *)(const void *)from, stride, n); break;
    case 2: gather2((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, stride, n); break;
    case 4: gather4((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, stride, n); break;
    default: gather8((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, stride, n);
    }
}

/* Where a thread is: the indices of an element over the merged axes. */
typedef struct place {
    int64_t index[HT_MAX_DIMS];
} place;

static void find_place(const each_job *j, int64_t at, place *p) {
    for (int d = j->n_dims - 1; d >= 0; d--) {
        p->index[d] = at % j->shape[d];
        at /= j->shape[d];
    }
}

static int64_t offset_of(const each_job *j, const source *s, const place *p) {
    int64_t offset = 0;
    for (int d = 0; d < j->n_dims; d++) offset += p->index[d] * s->stride[d];
    return offset;
}

/* n elements from a place on, across the ends of rows. */
static void gather_rows(const each_job *j, const source *s, const place *from, char *to, int64_t n) {
    place p = *from;
    int last = j->n_dims - 1;
    int64_t offset = offset_of(j, s, &p);
    while (n > 0) {
        int64_t run = ht_min_i64(n, j->shape[last] - p.index[last]);
        ht_gather_elements(to, s->data + offset * s->bytes, s->stride[last], run, (size_t)s->bytes);
        to += run * s->bytes;
        n -= run;
        offset -= p.index[last] * s->stride[last];
        p.index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            offset += s->stride[d];
            if (++p.index[d] < j->shape[d]) break;
            offset -= p.index[d] * s->stride[d];
            p.index[d] = 0;
        }
    }
}

/* ---- running ---- */

typedef struct room {
    _Alignas(64) char local[HT_PROGRAM_LOCALS][HT_EACH_BYTES];
    _Alignas(64) char staged[HT_PROGRAM_INPUTS][HT_EACH_BYTES];
    _Alignas(64) char bypassed[HT_PROGRAM_OUTPUTS][HT_EACH_BYTES];
    char *tiles; /* TILES_BYTES, where operands are turned */
} room;

/* A block: n elements of the result from element `at` on. */
typedef struct block {
    int64_t at, n;
    place where;     /* if there are merged axes */
    int64_t in_tile; /* the element of the tile that is the first */
    int64_t next;    /* where the block that comes next begins */
} block;

/* Where the elements of an input are. */
static const void *bring(const each_job *j, int k, const block *b, room *r) {
    const source *s = &j->in[k];
    const place *p = &b->where;
    const int64_t n = b->n;
    if (s->how == WHOLE) return s->data + b->at * s->bytes;
    if (s->how == SCALAR) return r->staged[k];
    if (s->how == TURNED) return r->tiles + s->room + b->in_tile * s->bytes;
    if (p->index[j->n_dims - 1] + n > j->shape[j->n_dims - 1])
        gather_rows(j, s, p, r->staged[k], n);
    else {
        const char *from = s->data + offset_of(j, s, p) * s->bytes;
        int64_t stride = s->stride[j->n_dims - 1];
        if (stride == 1) return from;
        ht_gather_elements(r->staged[k], from, stride, n, (size_t)s->bytes);
    }
    return r->staged[k];
}

/* Asks for what is before step i of what a block will read, and write unless that goes round the caches. Asked for a share
 * at a time, it comes while others are computed; processors ask for little by themselves, and not for what is written. On
 * one whose core has few lines under way a copying operation went from 9.6 to 12 GB/s with it, and a chain of eight from 7.3
 * to 9.1. */
static void ask_lines(const char *from, int64_t bytes, const uint16_t share[2]) {
    const int64_t lines = bytes / 64; /* may lie behind the operand: asking never fails */
    for (int64_t l = lines * share[0] / SHARES; l < lines * share[1] / SHARES; l++)
        ht_ask((uintptr_t)from + (uintptr_t)l * 64);
}

static void ask_ahead(const each_job *j, const block *b, int i) {
    for (int k = 0; k < j->p->n_in; k++) {
        const source *s = &j->in[k];
        if (s->how == WHOLE) ask_lines(s->data + b->next * s->bytes, b->n * s->bytes, &j->share[i]);
    }
    for (int k = 0; k < j->n_out && !j->bypass; k++)
        ask_lines(j->out[k] + b->next * j->out_bytes[k], b->n * j->out_bytes[k], &j->share[i]);
}

static void run_block(const each_job *j, const block *b, room *r) {
    const ht_program *p = j->p;
    const void *input[HT_PROGRAM_INPUTS], *made[HT_PROGRAM_STEPS];
    for (int k = 0; k < p->n_in; k++) input[k] = bring(j, k, b, r);
    for (int i = 0; i < p->n_steps; i++) {
        const ht_program_step *s = &p->step[i];
        const void *in[HT_STEP_INPUTS];
        if (j->asks) ask_ahead(j, b, i);
        for (int k = 0; k < s->n_in; k++) in[k] = s->in[k] >= 0 ? input[s->in[k]] : made[-1 - s->in[k]];
        const int64_t bytes = (int64_t)ht_dtype_bytes(s->to);
        char *result = s->out >= 0 ? j->out[s->out] + b->at * bytes : r->local[s->local];
        const bool bypasses = j->bypass && s->out >= 0 && j->large[s->out];
        void *to = bypasses ? r->bypassed[s->out] : result;
        ((ht_each_fn *)s->kernel)(in, to, b->n, s->params);
        if (bypasses) ht_bypass(result, to, (size_t)(b->n * bytes), NULL, 0);
        made[i] = to;
    }
}

static void fill_scalars(const each_job *j, int64_t most, room *r) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].how == SCALAR) fill(r->staged[k], j->in[k].data, most, (size_t)j->in[k].bytes);
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

static void lay_flat(const each_job *j, room *r, flat *f) {
    for (int i = 0; i < j->p->n_steps; i++) {
        const ht_program_step *s = &j->p->step[i];
        flat_step *to = &f->step[i];
        to->fn = (ht_each_fn *)s->kernel;
        to->params = s->params;
        to->to = s->out < 0 ? r->local[s->local] : j->out[s->out];
        to->to_bytes = s->out < 0 ? 0 : j->out_bytes[s->out];
        for (int k = 0; k < s->n_in; k++) {
            const int id = s->in[k];
            const bool moves = id >= 0 && j->in[id].how == WHOLE;
            to->in[k] = id < 0 ? f->step[-1 - id].to : moves ? j->in[id].data : r->staged[id];
            to->in_bytes[k] = id < 0 ? f->step[-1 - id].to_bytes : moves ? j->in[id].bytes : 0;
        }
    }
    f->n_streams = 0;
    for (int k = 0; k < j->p->n_in && j->asks; k++)
        if (j->in[k].how == WHOLE) add_stream(j, f, j->in[k].data, j->in[k].bytes);
    for (int k = 0; k < j->n_out && j->asks; k++) add_stream(j, f, j->out[k], j->out_bytes[k]);
}

/* What run_block does, where all operands lie like the result or are single elements: blocks are small, so that finding
 * places would take a part of the time. */
static void run_flat(const each_job *j, int64_t begin, int64_t end, room *r) {
    flat f;
    lay_flat(j, r, &f);
    for (int64_t at = begin; at < end; at += j->block) {
        const int64_t n = ht_min_i64(j->block, end - at), next = at + 2 * j->block;
        for (int i = 0; i < j->p->n_steps; i++) {
            const flat_step *s = &f.step[i];
            const void *in[HT_STEP_INPUTS];
            for (const stream *of = f.stream; of < f.stream + f.n_streams; of++)
                for (int l = of->cut[i]; l < of->cut[i + 1]; l++)
                    ht_ask((uintptr_t)(of->data + next * of->bytes) + 64 * (uintptr_t)l);
            for (int k = 0; k < j->p->step[i].n_in; k++) in[k] = s->in[k] + at * s->in_bytes[k];
            s->fn(in, s->to + at * s->to_bytes, n, s->params);
        }
    }
}

static void run_piece(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const each_job *j = arg;
    begin += j->first;
    end += j->first;
    room r;
    block b;
    fill_scalars(j, ht_min_i64(j->block, end - begin), &r);
    if (!j->n_dims && !j->bypass) {
        run_flat(j, begin, end, &r);
        return;
    }
    for (b.at = begin; b.at < end; b.at += b.n) {
        b.n = ht_min_i64(j->block, end - b.at);
        if (j->n_dims) find_place(j, b.at, &b.where);
        if (j->by_rows) b.n = ht_min_i64(b.n, j->shape[j->n_dims - 1] - b.where.index[j->n_dims - 1]);
        b.next = b.at + 2 * b.n;
        run_block(j, &b, &r);
    }
    if (j->bypass) ht_bypass_end();
}

/* ---- running by tiles ---- */

typedef struct tile {
    place where;
    int64_t rows, columns;
} tile;

static void find_tile(const each_job *j, int64_t which, tile *to) {
    const tiling *t = &j->tiles;
    const int last = j->n_dims - 1;
    int64_t *index = to->where.index;
    index[last] = which % t->pieces * t->columns;
    which /= t->pieces;
    index[t->across] = which % t->strips * t->rows;
    which /= t->strips;
    for (int d = last - 1; d >= 0; d--) {
        if (d == t->across) continue;
        index[d] = which % j->shape[d];
        which /= j->shape[d];
    }
    to->rows = ht_min_i64(t->rows, j->shape[t->across] - index[t->across]);
    to->columns = ht_min_i64(t->columns, j->shape[last] - index[last]);
}

static void turn(const each_job *j, const source *s, const tile *now, char *to, int64_t to_step) {
    ht_turn_tile(s->data + offset_of(j, s, &now->where) * s->bytes, s->stride[j->tiles.across],
                 s->stride[j->n_dims - 1], to, to_step, now->rows, now->columns, (size_t)s->bytes);
}

/* Asks for part `part` of `parts` of what the next tile turns: far apart, these lines are found by no other means. */
static void ask_tile(const each_job *j, const tile *next, int64_t part, int64_t parts) {
    const int64_t begin = next->columns * part / parts, end = next->columns * (part + 1) / parts;
    for (int k = 0; k < j->p->n_in; k++) {
        const source *s = &j->in[k];
        if (s->how != TURNED) continue;
        const int64_t across = s->stride[j->tiles.across] * (next->rows - 1), along = s->stride[j->n_dims - 1];
        const int64_t lowest = offset_of(j, s, &next->where) + (across < 0 ? across : 0);
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

static void run_tile(const each_job *j, const tile *now, const tile *next, room *r) {
    const tiling *t = &j->tiles;
    const int last = j->n_dims - 1;
    block b = {.at = first_of(j, now), .where = now->where};
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].how == TURNED) turn(j, &j->in[k], now, r->tiles + j->in[k].room, now->columns);
    if (t->across == last - 1 && now->columns == j->shape[last]) { /* its rows are one in the result */
        const int64_t size = now->rows * now->columns, begin = b.at, parts = (size + j->block - 1) / j->block;
        for (int64_t i = 0; i < parts; i++, b.at += b.n, b.in_tile += b.n) {
            b.n = ht_min_i64(j->block, begin + size - b.at);
            b.next = b.at + b.n;
            if (i > 0) find_place(j, b.at, &b.where);
            if (j->asks) ask_tile(j, next, i, parts);
            run_block(j, &b, r);
        }
        return;
    }
    b.n = now->columns;
    for (int64_t i = 0; i < now->rows; i++, b.at += t->step, b.in_tile += b.n) {
        b.next = b.at + now->columns;
        b.where.index[t->across] = now->where.index[t->across] + i;
        if (j->asks) ask_tile(j, next, i, now->rows);
        run_block(j, &b, r);
    }
}

static bool copies(const each_job *j) { return j->p->n_steps == 1 && j->p->step[0].op == HT_OP_COPY; }

/* A copy is turned to where it belongs, or from its tile to there round the caches. */
static void copy_tile(const each_job *j, const tile *now, const tile *next, room *r) {
    const source *s = &j->in[0];
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

static void run_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const each_job *j = arg;
    begin += j->first;
    end += j->first;
    _Alignas(64) char turned[TILES_BYTES];
    room r;
    r.tiles = turned;
    tile tiles[2];
    fill_scalars(j, j->block, &r);
    const bool copying = copies(j);
    find_tile(j, begin, &tiles[begin % 2]);
    for (int64_t i = begin; i < end; i++) {
        find_tile(j, i + 1 < end ? i + 1 : i, &tiles[(i + 1) % 2]);
        (copying ? copy_tile : run_tile)(j, &tiles[i % 2], &tiles[(i + 1) % 2], &r);
    }
    if (j->bypass) ht_bypass_end();
}

/* ---- programs ---- */

/* n elements or tiles from `first` on. */
static void run_part(each_job *j, int64_t first, int64_t n, int64_t grain, ht_way way, ht_pool *pool) {
    choose_way(j, way);
    j->first = first;
    if (j->tiles.count)
        ht_pool_run(pool, n, ht_max_i64(1, grain / (j->tiles.rows * j->tiles.columns)), run_tiles, j);
    else
        ht_pool_run(pool, n, grain, run_piece, j);
}

/* Writing large results the faster way, or finding out which one that is. */
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
    run_part(j, half, n - half, grain, t.first == HT_WAY_PLAIN ? HT_WAY_BYPASS : HT_WAY_PLAIN, pool);
    ht_ways_end(&t, work, threads);
}

static void run_job(each_job *j, ht_pool *pool) {
    const int64_t grain = j->heavy ? HT_GRAIN_MATH : HT_GRAIN_CHEAP;
    const ht_work work = j->tiles.count ? HT_WORK_TILES : j->heavy ? HT_WORK_HEAVY : HT_WORK_LIGHT;
    if (j->any_large)
        run_large(j, work, grain, pool);
    else
        run_part(j, 0, j->tiles.count ? j->tiles.count : j->size, grain, HT_WAY_PLAIN, pool);
}

void ht_each_run_program(const ht_program_run *run) {
    each_job j;
    lay_job(&j, run->program, run->in, run->out);
    lay_tiles(&j);
    run_job(&j, run->pool);
}

/* ---- one operation ---- */

static void one_step(ht_program *p, const ht_call *call, ht_op_id op, ht_each_fn *fn) {
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
}

void ht_each_run(const ht_call *call, ht_op_id op, ht_each_fn *fn) {
    ht_program p;
    one_step(&p, call, op, fn);
    ht_each_run_program(&(ht_program_run){.program = &p, .in = call->in, .out = &call->out, .pool = call->pool});
}

bool ht_each_turn(const ht_call *call) {
    ht_program p;
    each_job j;
    one_step(&p, call, HT_OP_COPY, NULL);
    lay_job(&j, &p, call->in, &call->out);
    lay_tiles(&j);
    if (!j.tiles.count) return false;
    run_job(&j, call->pool);
    return true;
}

void ht_each_run_rows(const ht_call *call, ht_op_id op, ht_each_fn *fn, int64_t begin, int64_t end) {
    ht_program p;
    each_job j;
    one_step(&p, call, op, fn);
    lay_job(&j, &p, call->in, &call->out);
    int64_t width = call->out.shape[0] > 0 ? j.size / call->out.shape[0] : 0;
    run_piece(&j, begin * width, end * width, 0);
}
