/* What the files behind each.h share: a run of a program laid out (each_lay.c), its operands (each_bring.c), and running it
 * by blocks that follow one another (each_run.c), by strips instead where they can be (each_strips.c), or by tiles
 * (each_tiles.c). */
#ifndef HT_CPU_EACH_JOB_H
#define HT_CPU_EACH_JOB_H

#include "cpu/strips.h"
#include "cpu/ways.h"

/* How an input is read. */
typedef enum each_access {
    WHOLE,   /* lies like the result */
    SCALAR,  /* one element */
    TURNED,  /* its neighbours lie along another axis than the result's: a tile at a time */
    BY_AXIS, /* anything else */
} each_access;

typedef struct each_source {
    const char *data;
    int64_t bytes; /* of an element */
    each_access how;
    int64_t stride[HT_MAX_DIMS]; /* TURNED and BY_AXIS, in elements, over the merged axes */
    size_t room;                 /* TURNED: where in the room its tile is */
} each_source;

/* The result as tiles of two of the merged axes, `across` and the last, for operands that are turned. Tiles that follow each
 * other along the last axis come one after another: the lines of the result that they share are still in a cache. */
typedef struct each_tiling {
    int across, n_turned;
    int64_t step;          /* elements of the result from one row of a tile to the next */
    int64_t rows, columns; /* of a tile */
    int64_t bands, pieces; /* tiles across, and along the last axis */
    int64_t count;
} each_tiling;

/* A program as a list of steps for strips; n 0: it is run by blocks alone. */
typedef struct each_strips {
    int n;
    bool by_rows; /* a row of the last merged axis at a time, or what a thread has of it */
    ht_strip_step list[HT_STRIP_STEPS];
    ht_strip_call call[HT_PROGRAM_STEPS];
} each_strips;

typedef struct each_job {
    const ht_program *p;
    int64_t size, block;       /* elements */
    int64_t first;             /* where the pieces count from: elements, or tiles */
    int64_t widest, narrowest; /* bytes of an element of anything */
    int n_dims;                /* of the merged axes */
    bool by_rows;              /* a block is within a row of the last merged axis */
    bool heavy;                /* an element takes longer than to read and write it */
    bool straight;             /* one light operation on operands that all lie like the result */
    int64_t shape[HT_MAX_DIMS];
    each_source in[HT_PROGRAM_INPUTS];
    char *out[HT_PROGRAM_OUTPUTS];
    int64_t out_bytes[HT_PROGRAM_OUTPUTS]; /* of an element */
    bool large[HT_PROGRAM_OUTPUTS];        /* may be written round the caches */
    bool any_large, bypass;                /* they are */
    bool asks, asks_far;                   /* for what the next blocks need, and for what is behind that */
    uint16_t share[HT_PROGRAM_STEPS + 1];  /* what of it before each step begins at, of SHARES */
    each_tiling tiles;                     /* count 0: there are none */
    each_strips strips;
} each_job;

/* What is read along is asked for a second time so many bytes behind, into the second cache, where operations of one operand
 * take no longer than memory: 0.75 to 0.85 of the time where it comes from memory. Of two operands, or before long computing,
 * asking twice is asking too much: 1.05 to 1.25. */
enum { EACH_FAR = 4096 };

/* Programs of so many operations take no longer than memory, if none of them does. */
enum { LIGHT_STEPS = 3 };

/* Shares of what the next block needs, of which each step begins by asking for some. */
enum { SHARES = 256 };

/* What the tiles of all operands take together, so that they find room beside each other in the second cache, and that of
 * one at most. Its rows are one line of the operand, two of wide elements; what is longer along the result than across is
 * slower where lines of the result begin anywhere, by half for squares. */
enum { TILES_BYTES = 65536, TILE_BYTES = 16384, LEAST_ROWS = 4 };

/* Where a thread is: the indices of an element over the merged axes. */
typedef struct each_place {
    int64_t index[HT_MAX_DIMS];
} each_place;

typedef struct each_room {
    _Alignas(64) char local[HT_PROGRAM_LOCALS][HT_EACH_BYTES];
    _Alignas(64) char staged[HT_PROGRAM_INPUTS][HT_EACH_BYTES];
    _Alignas(64) char bypassed[HT_PROGRAM_OUTPUTS][HT_EACH_BYTES];
    char *tiles; /* TILES_BYTES, where operands are turned */
} each_room;

/* A block: n elements of the result from element `at` on; whole rows where strips do them. */
typedef struct each_block {
    int64_t at, n;
    each_place where; /* if there are merged axes */
    int64_t in_tile;  /* the element of the tile that is the first */
    int64_t next;     /* where the block that comes next begins */
} each_block;

/* ---- laying out ---- */

void ht_each_lay(each_job *j, const ht_program *p, const ht_view *in, const ht_view *out);
/* As tiles, if operands lie across the result and there is something to win: tiles.count is then not 0. */
void ht_each_lay_tiles(each_job *j);
void ht_each_choose_way(each_job *j, ht_way way);
/* The list for strips, in that way, if the program takes them and there is enough to do. Rows of tiles are no longer than a
 * strip or two: begun for each of them, the list took 1.2 times as long for x + y.T as blocks. */
void ht_each_lay_strips(each_job *j);
/* Whether all of a program is what strips do, or functions of many instructions. */
bool ht_each_takes_strips(const ht_program *p);
/* Whether an element takes longer than to read and write it. */
bool ht_each_is_math(ht_op_id op);

/* ---- operands ---- */

void ht_each_find_place(const each_job *j, int64_t at, each_place *p);
static inline int64_t each_offset(const each_job *j, const each_source *s, const each_place *p) {
    int64_t offset = 0;
    for (int d = 0; d < j->n_dims; d++) offset += p->index[d] * s->stride[d];
    return offset;
}

/* Whether an output, or -1, none, goes round the caches. */
static inline bool each_passes(const each_job *j, int out) { return out >= 0 && j->bypass && j->large[out]; }

/* Whether an input has one element for all of a block. Blocks of tiles may go on in the next row. */
static inline bool each_is_still(const each_job *j, int k) {
    const each_source *s = &j->in[k];
    return s->how == SCALAR || (s->how == BY_AXIS && j->by_rows && !j->tiles.count && s->stride[j->n_dims - 1] == 0);
}

/* Where the elements of input k are for a block, if need be in the room; of one that is still, j->block of them at most. */
const void *ht_each_bring(const each_job *j, int k, const each_block *b, each_room *r);
/* Single elements, `most` times each. */
void ht_each_fill_scalars(const each_job *j, int64_t most, each_room *r);

/* ---- running: elements or tiles [begin, end) on one thread ---- */

/* As many of n elements, from `at` on, as are done by strips: whole ones, or none. The operands begin with the first. */
int64_t ht_each_run_strips(const each_job *j, const void *const *input, int64_t at, int64_t n, each_room *r);

void ht_each_run_block(const each_job *j, const each_block *b, each_room *r);
void ht_each_run_piece(void *job, int64_t begin, int64_t end, int worker);
void ht_each_run_tiles(void *job, int64_t begin, int64_t end, int worker);

#endif
