/* Page-locked memory, which copies between the host and the GPU pass through: the GPU copies it while the host goes on, at the speed
 * of the bus. The driver waits for copies of other memory, and moves each byte twice.
 *
 * Small writes go through a ring, a half of which is used again when the copies out of it are done. Large ones, and what is read,
 * go through pieces: threads fill theirs while those of others are copied. Thread-safe. */
#ifndef HT_CUDA_STAGING_H
#define HT_CUDA_STAGING_H

#include "cuda/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ht_cuda_device ht_cuda_device;

/* A copy of a piece takes some 40 us, which is long beside what it takes to submit one. */
enum {
    HT_CUDA_PIECE_BYTES = 2 << 20,
    HT_CUDA_PIECES = 16,
    HT_CUDA_RING_HALF = 256 << 10,
    HT_CUDA_SMALL_BYTES = 64 << 10
};

typedef struct ht_cuda_piece {
    struct ht_cuda_piece *next;
    char *host;      /* page-locked, HT_CUDA_PIECE_BYTES */
    void *device;    /* as much memory of the device; NULL: nobody has asked for it yet */
    bool launches;   /* it was taken with memory of the device */
    CUevent done[2]; /* behind the last copies: of its halves when it is read through, else the first alone */
} ht_cuda_piece;

typedef struct ht_cuda_staging {
    pthread_mutex_t lock; /* of the pieces */
    pthread_cond_t given_back;
    ht_cuda_piece piece[HT_CUDA_PIECES];
    int n_pieces, n_launching;    /* that there are, and those taken with memory of the device */
    ht_cuda_piece *first, **last; /* pieces that nobody has taken, the one that was submitted first in front */

    pthread_mutex_t ring_lock; /* of what follows */
    char *ring;                /* two halves */
    int half;
    size_t at; /* in that half */
    CUevent left[2];
} ht_cuda_staging;

void ht_cuda_staging_init(ht_cuda_staging *s); /* no call of the driver */
CUresult ht_cuda_staging_begin(ht_cuda_device *d);
/* When all work is done; also after a failure to begin. */
void ht_cuda_staging_end(ht_cuda_device *d);

/* Takes a piece for bytes that a kernel is to read from p->device: fill p->host, then between `begin` and `end` of the device copy
 * what is there with ht_cuda_piece_copy, launch the kernel, and give the piece back. HT_ERR_MEMORY: there is none. Not between `begin`
 * and `end`, as it may have to be waited for. */
ht_status ht_cuda_piece_take(ht_cuda_device *d, ht_cuda_piece **out, ht_error *err);
ht_status ht_cuda_piece_copy(ht_cuda_device *d, ht_cuda_piece *p, size_t bytes, ht_error *err);
/* After the last work on it has been submitted, or after a failure. */
void ht_cuda_piece_give_back(ht_cuda_device *d, ht_cuda_piece *p);

#endif
