#include "cuda/staging.h"

#include "base/checked.h"
#include "cuda/cuda.h"

#include <string.h>

/* Staging buffers that kernels may not take. Their users wait only for the GPU, so large writes proceed while other
 * threads wait to launch. */
enum { RESERVED_PIECES = 2, PART_BYTES = HT_CUDA_PIECE_BYTES / 2 };

static const char up[] = "copying to the GPU", down[] = "copying from the GPU";

/* ---- life ---- */

void ht_cuda_staging_init(ht_cuda_staging *s) {
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->ring_lock, NULL);
    pthread_cond_init(&s->given_back, NULL);
    s->last = &s->first;
}

static CUresult new_event(ht_cuda_device *d, CUevent *out) {
    const CUresult result = d->driver->event_create(out, CU_EVENT_DISABLE_TIMING);
    if (result) *out = NULL;
    return result;
}

CUresult ht_cuda_staging_begin(ht_cuda_device *d) {
    ht_cuda_staging *s = &d->staging;
    void *ring = NULL;
    CUresult result = d->driver->host_take(&ring, (size_t)2 * HT_CUDA_RING_HALF, 0);
    if (!result) s->ring = ring;
    for (int i = 0; i < 2 && !result; i++) result = new_event(d, &s->left[i]);
    return result;
}

static void free_piece(ht_cuda_device *d, ht_cuda_piece *p) {
    const ht_cuda_driver *cuda = d->driver;
    for (int i = 0; i < 2; i++)
        if (p->done[i]) (void)cuda->event_destroy(p->done[i]);
    if (p->device) (void)cuda->memory_give_back((CUdeviceptr)p->device);
    if (p->host) (void)cuda->host_give_back(p->host);
    *p = (ht_cuda_piece){0};
}

void ht_cuda_staging_end(ht_cuda_device *d) {
    ht_cuda_staging *s = &d->staging;
    for (int i = 0; i < s->n_pieces; i++) free_piece(d, &s->piece[i]);
    for (int i = 0; i < 2; i++)
        if (s->left[i]) (void)d->driver->event_destroy(s->left[i]);
    if (s->ring) (void)d->driver->host_give_back(s->ring);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->ring_lock);
    pthread_cond_destroy(&s->given_back);
}

/* ---- pieces ---- */

/* With the lock held. */
static CUresult new_piece(ht_cuda_device *d, ht_cuda_piece **out) {
    ht_cuda_piece *p = &d->staging.piece[d->staging.n_pieces];
    void *host = NULL;
    CUresult result = d->driver->host_take(&host, HT_CUDA_PIECE_BYTES, 0);
    if (!result) p->host = host;
    for (int i = 0; i < 2 && !result; i++) result = new_event(d, &p->done[i]);
    if (result) {
        free_piece(d, p);
        return result;
    }
    d->staging.n_pieces++;
    *out = p;
    return CUDA_SUCCESS;
}

static void put(ht_cuda_device *d, ht_cuda_piece *p) {
    ht_cuda_staging *s = &d->staging;
    pthread_mutex_lock(&s->lock);
    p->next = NULL;
    *s->last = p;
    s->last = &p->next;
    s->n_launching -= p->launches;
    p->launches = false;
    pthread_cond_broadcast(&s->given_back);
    pthread_mutex_unlock(&s->lock);
}

/* The first free piece, or a new one while the first is still being copied; call with the lock held. NULL: all pieces
 * are in use, or no more may be taken for launches. */
static CUresult find_piece(ht_cuda_device *d, bool launches, ht_cuda_piece **out) {
    ht_cuda_staging *s = &d->staging;
    CUresult result = CUDA_SUCCESS;
    *out = NULL;
    if (launches && s->n_launching >= HT_CUDA_PIECES - RESERVED_PIECES) return CUDA_SUCCESS;
    const bool waits = !s->first || d->driver->event_query(s->first->done[0]) != CUDA_SUCCESS;
    if (waits && s->n_pieces < HT_CUDA_PIECES) result = new_piece(d, out);
    if (*out || !s->first) return s->n_pieces ? CUDA_SUCCESS : result; /* those that there are will do */
    *out = s->first;
    s->first = s->first->next;
    if (!s->first) s->last = &s->first;
    return CUDA_SUCCESS;
}

static CUresult take_piece(ht_cuda_device *d, bool launches, ht_cuda_piece **out) {
    ht_cuda_staging *s = &d->staging;
    pthread_mutex_lock(&s->lock);
    CUresult result = find_piece(d, launches, out);
    while (!result && !*out) {
        pthread_cond_wait(&s->given_back, &s->lock);
        result = find_piece(d, launches, out);
    }
    if (*out) {
        (*out)->launches = launches;
        s->n_launching += launches;
    }
    pthread_mutex_unlock(&s->lock);
    if (!result) result = d->driver->event_wait((*out)->done[0]);
    if (result && *out) put(d, *out);
    return result;
}

ht_status ht_cuda_piece_take(ht_cuda_device *d, ht_cuda_piece **out, ht_error *err) {
    CUdeviceptr device = 0;
    ht_cuda_enter(d);
    CUresult result = take_piece(d, true, out);
    if (!result && !(*out)->device) {
        result = d->driver->memory_take(&device, HT_CUDA_PIECE_BYTES);
        if (result)
            put(d, *out);
        else
            (*out)->device = (void *)device;
    }
    ht_cuda_leave(d);
    if (result) *out = NULL;
    return ht_cuda_check(d->driver, result, err, up);
}

ht_status ht_cuda_piece_copy(ht_cuda_device *d, ht_cuda_piece *p, size_t bytes, ht_error *err) {
    return ht_cuda_note(d, d->driver->copy_to((CUdeviceptr)p->device, p->host, bytes, d->stream), err, up);
}

void ht_cuda_piece_give_back(ht_cuda_device *d, ht_cuda_piece *p) {
    ht_cuda_enter(d);
    (void)ht_cuda_note(d, d->driver->event_record(p->done[0], d->stream), NULL, up);
    ht_cuda_leave(d);
    put(d, p);
}

/* ---- copies, in the device's context ---- */

static CUresult write_small(ht_cuda_device *d, CUdeviceptr to, const void *from, size_t bytes) {
    ht_cuda_staging *s = &d->staging;
    const ht_cuda_driver *cuda = d->driver;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&s->ring_lock);
    if (s->at + bytes > HT_CUDA_RING_HALF) {
        result = cuda->event_record(s->left[s->half], d->stream);
        s->half ^= 1;
        s->at = 0;
        if (!result) result = cuda->event_wait(s->left[s->half]);
    }
    if (!result) {
        char *at = s->ring + (size_t)s->half * HT_CUDA_RING_HALF + s->at;
        memcpy(at, from, bytes);
        result = cuda->copy_to(to, at, bytes, d->stream);
        s->at += (bytes + 63) / 64 * 64;
    }
    pthread_mutex_unlock(&s->ring_lock);
    return result;
}

/* Without page-locked memory. The wait is for memory that the driver need not have copied yet. */
static CUresult write_directly(ht_cuda_device *d, CUdeviceptr to, const void *from, size_t bytes) {
    const CUresult result = d->driver->copy_to(to, from, bytes, d->stream);
    return result ? result : d->driver->stream_wait(d->stream);
}

static CUresult write_large(ht_cuda_device *d, CUdeviceptr to, const char *from, size_t bytes) {
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0, n; at < bytes && !result; at += n) {
        ht_cuda_piece *p;
        n = ht_min_size(bytes - at, HT_CUDA_PIECE_BYTES);
        result = take_piece(d, false, &p);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) return write_directly(d, to + at, from + at, bytes - at);
        if (result) return result;
        memcpy(p->host, from + at, n);
        result = d->driver->copy_to(to + at, p->host, n, d->stream);
        if (!result) result = d->driver->event_record(p->done[0], d->stream);
        put(d, p);
    }
    return result;
}

static ht_status staged_write(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    const CUresult result = bytes <= HT_CUDA_SMALL_BYTES ? write_small(d, (CUdeviceptr)to, from, bytes)
                                                         : write_large(d, (CUdeviceptr)to, from, bytes);
    const ht_status status = ht_cuda_note(d, result, err, up);
    ht_cuda_leave(d);
    return status;
}

/* Double buffering: while one half of the piece receives a part, the previous part is read from the other. */
static CUresult read_through(ht_cuda_device *d, ht_cuda_piece *p, char *to, CUdeviceptr from, size_t bytes) {
    const ht_cuda_driver *cuda = d->driver;
    CUresult result = CUDA_SUCCESS;
    size_t before = 0;
    for (size_t at = 0, i = 0; !result && (at < bytes || before); i++) {
        const size_t n = ht_min_size(bytes - at, PART_BYTES);
        if (n) {
            result = cuda->copy_from(p->host + (i & 1) * PART_BYTES, from + at, n, d->stream);
            if (!result) result = cuda->event_record(p->done[i & 1], d->stream);
        }
        if (before && !result) {
            result = cuda->event_wait(p->done[~i & 1]);
            if (!result) memcpy(to + at - before, p->host + (~i & 1) * PART_BYTES, before);
        }
        at += n;
        before = n;
    }
    return result;
}

static ht_status staged_read(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    ht_cuda_piece *p;
    ht_cuda_enter(d);
    CUresult result = take_piece(d, false, &p);
    if (!result) {
        result = read_through(d, p, to, (CUdeviceptr)from, bytes);
        put(d, p);
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = d->driver->copy_from(to, (CUdeviceptr)from, bytes, d->stream);
        if (!result) result = d->driver->stream_wait(d->stream);
    }
    const ht_status status = ht_cuda_note(d, result, err, down), lost = ht_cuda_lost(d, err);
    ht_cuda_leave(d);
    return lost ? lost : status;
}

/* ---- the device's memory ---- */

static void *take(void *user, size_t bytes) {
    ht_cuda_device *d = user;
    CUdeviceptr p = 0;
    ht_cuda_enter(d);
    const CUresult result = d->driver->memory_take(&p, bytes);
    ht_cuda_leave(d);
    return result == CUDA_SUCCESS ? (void *)p : NULL;
}

static void give_back(void *user, void *p, size_t bytes) {
    (void)bytes;
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    (void)d->driver->stream_wait(d->stream);
    (void)d->driver->memory_give_back((CUdeviceptr)p);
    ht_cuda_leave(d);
}

static void *take_host(void *user, size_t bytes) {
    ht_cuda_device *d = user;
    void *p = NULL;
    ht_cuda_enter(d);
    const CUresult result = d->driver->host_take(&p, bytes, 0);
    ht_cuda_leave(d);
    return result == CUDA_SUCCESS ? p : NULL;
}

static void give_back_host(void *user, void *p) {
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    (void)d->driver->host_give_back(p);
    ht_cuda_leave(d);
}

static ht_status fetch(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    const ht_status status =
        ht_cuda_note(d, d->driver->copy_from(to, (CUdeviceptr)from, bytes, d->stream), err, "copying from the GPU");
    ht_cuda_leave(d);
    return status;
}

static ht_status copy_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    const ht_status status = ht_cuda_note(d, d->driver->copy((CUdeviceptr)to, (CUdeviceptr)from, bytes, d->stream), err,
                                          "copying on the GPU");
    ht_cuda_leave(d);
    return status;
}

static ht_status fill(void *user, void *to, int byte, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    const ht_status status =
        ht_cuda_note(d, d->driver->fill((CUdeviceptr)to, (unsigned char)byte, bytes, d->stream), err, "filling memory");
    ht_cuda_leave(d);
    return status;
}

static bool left(void *user, size_t *bytes) {
    const ht_cuda_device *d = user;
    size_t all;
    ht_cuda_enter(d);
    const CUresult result = d->driver->memory_info(bytes, &all);
    ht_cuda_leave(d);
    return result == CUDA_SUCCESS;
}

const ht_memory_ops ht_cuda_memory_ops = {
    .take = take,
    .give_back = give_back,
    .write = staged_write,
    .read = staged_read,
    .copy = copy_bytes,
    .fill = fill,
    .left = left,
    .take_host = take_host,
    .give_back_host = give_back_host,
    .fetch = fetch,
};
