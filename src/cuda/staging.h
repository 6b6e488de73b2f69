/* Page-locked staging buffers between the host and the GPU, which copies them asynchronously at the speed of the bus.
 * For other memory the driver blocks, and moves each byte twice.
 *
 * Small writes go through a ring of two halves; a half is reused when the copies out of it are done. Large writes, and
 * reads, go through pieces: threads fill theirs while others are copied. Thread-safe. */
#ifndef HT_CUDA_STAGING_H
#define HT_CUDA_STAGING_H

#include "cuda/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ht_cuda_device ht_cuda_device;

/* Copying a piece takes about 40 us, far longer than submitting the copy. */
enum {
    HT_CUDA_PIECE_BYTES = 2 << 20,
    HT_CUDA_PIECES = 16,
    HT_CUDA_RING_HALF = 256 << 10,
    HT_CUDA_SMALL_BYTES = 64 << 10
};

typedef struct ht_cuda_piece {
    struct ht_cuda_piece *next;
    char *host;      /* page-locked, HT_CUDA_PIECE_BYTES */
    void *device;    /* device memory of the same size; NULL: not yet allocated */
    bool launches;   /* taken together with its device memory */
    CUevent done[2]; /* recorded after the last copy; for reads, after that of each half */
} ht_cuda_piece;

typedef struct ht_cuda_staging {
    pthread_mutex_t lock; /* guards the pieces */
    pthread_cond_t given_back;
    ht_cuda_piece piece[HT_CUDA_PIECES];
    int n_pieces, n_launching;    /* allocated, and taken with their device memory */
    ht_cuda_piece *first, **last; /* free pieces, the oldest submission first */

    pthread_mutex_t ring_lock; /* guards the fields below */
    char *ring;                /* two halves */
    int half;
    size_t at; /* in that half */
    CUevent left[2];
} ht_cuda_staging;

void ht_cuda_staging_init(ht_cuda_staging *s); /* no call of the driver */
CUresult ht_cuda_staging_begin(ht_cuda_device *d);
/* When all work is done; also after a failure to begin. */
void ht_cuda_staging_end(ht_cuda_device *d);

/* Takes a piece for bytes that a kernel reads from p->device. Fill p->host; then between `begin` and `end` of the
 * device call ht_cuda_piece_copy, launch the kernel, and give the piece back. HT_ERR_MEMORY: none could be allocated.
 * May block, so not between `begin` and `end`. */
ht_status ht_cuda_piece_take(ht_cuda_device *d, ht_cuda_piece **out, ht_error *err);
ht_status ht_cuda_piece_copy(ht_cuda_device *d, ht_cuda_piece *p, size_t bytes, ht_error *err);
/* Call it after submitting the last work on the piece, or after a failure. */
void ht_cuda_piece_give_back(ht_cuda_device *d, ht_cuda_piece *p);

#endif
