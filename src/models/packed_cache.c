#include "models/packed_cache.h"

#include "base/checked.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLED_MATRICES = 128, NAME_BYTES = 120 }; /* approximate; bytes of the checkpoint's name in the file's */

struct ht_packed_cache {
    char *directory, *path;
    size_t bytes; /* of the memory */
    char header[HT_PACKED_HEADER];
};

/* ---- digest ---- */

static ht_status add_file(ht_digest *d, const ht_file *file, ht_error *err) {
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return ht_fail(err, HT_ERR_IO, "%s: cannot be examined: %s", file->path, strerror(errno));
    ht_digest_word(d, (uint64_t)st.st_dev);
    ht_digest_word(d, (uint64_t)st.st_ino);
    ht_digest_word(d, (uint64_t)file->size);
    ht_digest_word(d, (uint64_t)file->modified_ns);
    return HT_OK;
}

/* Adds the matrix's location in the checkpoint and in the packed memory. */
static ht_status add_place(ht_digest *d, const ht_pack_task *task, const ht_file **last, ht_error *err) {
    const ht_stored_tensor *t = &task->stored;
    ht_digest_bytes(d, t->name, t->name_len);
    ht_digest_text(d, ht_weight_type_info_of(task->m->type)->name);
    const int64_t numbers[] = {task->m->n_rows,    task->m->k,          (int64_t)task->m->packed_bytes,
                               (int64_t)task->at,  task->order.group,   t->unit,
                               (int64_t)t->offset, (int64_t)t->n_bytes, (int64_t)t->n_parts};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) ht_digest_word(d, (uint64_t)numbers[i]);
    /* Only then, so that files of versions without such matrices stay valid. */
    if (task->order.block > 1 || task->order.first || task->order.parts > 2) {
        ht_digest_word(d, (uint64_t)task->order.first);
        ht_digest_word(d, (uint64_t)task->order.parts);
        ht_digest_word(d, (uint64_t)task->order.block);
    }
    if (t->row_step || t->column_step) {
        ht_digest_word(d, (uint64_t)t->row_step);
        ht_digest_word(d, (uint64_t)t->column_step);
    }
    ht_status status = HT_OK;
    for (int i = -1; !status && i < t->n_parts; i++) {
        const ht_file *file = i < 0 ? t->file : t->part[i].file;
        if (i >= 0) ht_digest_word(d, (uint64_t)t->part[i].offset);
        if (file != *last) status = add_file(d, file, err);
        *last = file;
    }
    return status;
}

/* Packs rows [row, row + HT_MATRIX_SLAB) of the stored order as a separate matrix and adds them to the digest. */
static ht_status add_slab(ht_digest *d, const ht_pack_task *task, int64_t row, ht_error *err) {
    ht_matrix slab = *task->m;
    slab.n_rows = ht_min_i64(HT_MATRIX_SLAB, task->m->n_rows - row);
    slab.packed_bytes = slab.ops->packed_bytes(slab.type, slab.n_rows, slab.k);
    const ht_stored_tensor *t = &task->stored;
    int64_t n = slab.n_rows * slab.k;
    size_t stored_bytes = ht_tensor_size(t, n), bytes = stored_bytes + ht_tensor_read_scratch(t, n), packed_bytes;
    if (!ht_align_size(slab.packed_bytes, 64, &packed_bytes))
        return ht_fail_memory(err, slab.packed_bytes, t->file_name);
    unsigned char *stored = malloc(bytes);
    slab.packed = aligned_alloc(64, packed_bytes);
    ht_status status = HT_OK;
    if (!stored || !slab.packed)
        status = ht_fail_memory(err, bytes + packed_bytes, "sampled rows");
    else
        status = ht_tensor_read(t, row * slab.k, n, stored, stored + stored_bytes, err);
    if (!status) {
        memset(slab.packed, 0, packed_bytes); /* packing leaves the gaps between parts unwritten */
        status = slab.ops->pack(&slab, 0, slab.n_rows, stored, err);
        ht_digest_bytes(d, slab.packed, packed_bytes);
    }
    free(stored);
    free(slab.packed);
    return status;
}

/* Samples some matrices, and the first one of every kind, each at a different slab. */
static ht_status add_samples(ht_digest *d, const ht_pack_task *tasks, int64_t n, ht_error *err) {
    int64_t step = ht_ceil_div_i64(n, SAMPLED_MATRICES);
    ht_status (*pack[HT_W_COUNT])(ht_matrix *, int64_t, int64_t, const void *, ht_error *) = {NULL};
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < n; i++) {
        const ht_matrix *m = tasks[i].m;
        bool is_new = pack[m->type] != m->ops->pack;
        pack[m->type] = m->ops->pack;
        int64_t slabs = ht_ceil_div_i64(m->n_rows, HT_MATRIX_SLAB);
        if (is_new || i % step == 0) status = add_slab(d, &tasks[i], (i * 7919 + 5) % slabs * HT_MATRIX_SLAB, err);
    }
    return status;
}

/* ---- the directory and the file's name ---- */

static ht_status make_directories(const char *directory, ht_error *err) {
    char *path = strdup(directory);
    if (!path) return ht_fail_memory(err, strlen(directory) + 1, "a path");
    int code = 0;
    for (char *at = path + 1; !code; at++) {
        if (*at && *at != '/') continue;
        char end = *at;
        *at = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) code = errno;
        if (!(*at = end)) break;
    }
    free(path);
    return code ? ht_fail(err, HT_ERR_IO, "%s: the directory of packed weights cannot be made: %s", directory,
                          strerror(code))
                : HT_OK;
}

/* Only the user may access the directory: another user could truncate a mapped file. */
static ht_status check_directory(const char *directory, ht_error *err) {
    struct stat st;
    if (stat(directory, &st) != 0 && errno == ENOENT) {
        ht_status status = make_directories(directory, err);
        if (status) return status;
    }
    if (stat(directory, &st) != 0)
        return ht_fail(err, HT_ERR_IO, "%s: cannot be examined: %s", directory, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return ht_fail(err, HT_ERR_IO, "%s: is no directory, as packed weights need one", directory);
    if (st.st_uid != geteuid() || st.st_mode & 077)
        return ht_fail(
            err, HT_ERR_IO,
            "%s: packed weights are mapped, which is safe only in a directory that no other user can enter; take "
            "another one, or `chmod 700` it",
            directory);
    return HT_OK;
}

/* One file per path and form, so that a changed checkpoint replaces its old file. */
static ht_status find_place(ht_packed_cache *c, const char *checkpoint, const ht_pack_task *tasks, int64_t n,
                            ht_error *err) {
    ht_digest place = {1, 2};
    ht_digest_text(&place, checkpoint);
    for (int64_t i = 0; i < n; i++) ht_digest_word(&place, (uint64_t)tasks[i].m->packed_bytes);
    if (asprintf(&c->path, "%s/%.*s-%016llx.packed", c->directory, NAME_BYTES, ht_base_name(checkpoint),
                 (unsigned long long)place.a) < 0) {
        c->path = NULL;
        return ht_fail_memory(err, strlen(c->directory), "a path");
    }
    return HT_OK;
}

static ht_status describe(ht_packed_cache *c, const char *checkpoint, const ht_pack_task *tasks, int64_t n,
                          ht_error *err) {
    ht_digest d = {3, 4};
    const ht_file *last = NULL;
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < n; i++) status = add_place(&d, &tasks[i], &last, err);
    if (!status) status = add_samples(&d, tasks, n, err);
    if (status) return status;
    snprintf(c->header, sizeof c->header, "weights packed by Hearth\n%.3000s\n%zu bytes\n%016llx%016llx\n", checkpoint,
             c->bytes, (unsigned long long)d.a, (unsigned long long)d.b);
    return HT_OK;
}

ht_status ht_packed_cache_open(const char *directory, const char *checkpoint, const ht_pack_task *tasks, int64_t n,
                               size_t bytes, ht_packed_cache **out, ht_error *err) {
    *out = NULL;
    ht_status status = check_directory(directory, err);
    if (status) return status;
    char *whole = realpath(checkpoint, NULL);
    if (!whole) return ht_fail(err, HT_ERR_IO, "%s: cannot be examined: %s", checkpoint, strerror(errno));
    ht_packed_cache *c = calloc(1, sizeof *c);
    if (!c || !(c->directory = strdup(directory)))
        status = ht_fail_memory(err, sizeof *c, "a cache of packed weights");
    else
        c->bytes = bytes;
    if (!status) status = find_place(c, whole, tasks, n, err);
    if (!status) status = describe(c, whole, tasks, n, err);
    free(whole);
    if (status)
        ht_packed_cache_free(c);
    else
        *out = c;
    return status;
}

void ht_packed_cache_free(ht_packed_cache *c) {
    if (!c) return;
    free(c->directory);
    free(c->path);
    free(c);
}

/* ---- reading ---- */

static bool is_whole(const ht_packed_cache *c, int fd) {
    struct stat st;
    char header[HT_PACKED_HEADER];
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           st.st_size == (off_t)(HT_PACKED_AT + c->bytes) && pread(fd, header, sizeof header, 0) == sizeof header &&
           memcmp(header, c->header, sizeof header) == 0;
}

void *ht_packed_cache_map(const ht_packed_cache *c) {
    int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return NULL;
    void *memory = is_whole(c, fd) ? mmap(NULL, c->bytes, PROT_READ, MAP_SHARED, fd, HT_PACKED_AT) : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED) return NULL;
    ht_system_prefer_huge_pages(memory, c->bytes);
    return memory;
}

void ht_packed_cache_unmap(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

typedef struct touching {
    const ht_packed_cache *c;
    char *memory;
} touching;

/* A system without this call pages memory in on demand. */
static ht_status touch(void *arg, int64_t piece, int worker, ht_error *err) {
    (void)worker;
#ifdef MADV_POPULATE_READ
    const touching *t = arg;
    size_t at = (size_t)piece * HT_PACKED_PIECE, n = ht_min_size(HT_PACKED_PIECE, t->c->bytes - at);
    while (madvise(t->memory + at, n, MADV_POPULATE_READ) != 0) {
        if (errno == EINVAL || errno == ENOSYS) return HT_OK;
        if (errno != EINTR && errno != EAGAIN)
            return ht_fail(err, HT_ERR_IO, "%s: cannot be read: %s; remove it", t->c->path, strerror(errno));
    }
#else
    (void)arg;
    (void)piece;
    (void)err;
#endif
    return HT_OK;
}

ht_status ht_packed_cache_touch(const ht_packed_cache *c, void *memory, const ht_pack_hooks *hooks, ht_device *d,
                                ht_error *err) {
    touching t = {c, memory};
    return ht_pack_in_pieces(ht_ceil_div_i64((int64_t)c->bytes, HT_PACKED_PIECE), touch, &t, hooks, d, err);
}

/* ---- writing ---- */

/* Removes temporary files of killed processes: a file without a lock has no writer. */
static void remove_left_over(const ht_packed_cache *c) {
    DIR *directory = opendir(c->directory);
    if (!directory) return;
    const char *name = ht_base_name(c->path);
    size_t n = strlen(name);
    for (const struct dirent *e; (e = readdir(directory));) {
        size_t length = strlen(e->d_name);
        if (length < n + 5 || memcmp(e->d_name, name, n) || strcmp(e->d_name + length - 4, ".tmp")) continue;
        int fd = openat(dirfd(directory), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)unlinkat(dirfd(directory), e->d_name, 0);
        close(fd);
    }
    closedir(directory);
}

ht_status ht_packed_cache_store(const ht_packed_cache *c, const void *memory, const ht_pack_hooks *hooks,
                                ht_error *err) {
    ht_writer *w;
    struct stat st;
    remove_left_over(c);
    if (lstat(c->path, &st) == 0 && S_ISLNK(st.st_mode)) (void)unlink(c->path); /* a writer would follow the link */
    ht_status status = ht_writer_open(c->path, &w, err);
    if (status) return status;
    status = ht_writer_put(w, c->header, sizeof c->header, err);
    for (size_t at = 0, n; !status && at < c->bytes; at += n) {
        n = ht_min_size(HT_PACKED_PIECE, c->bytes - at);
        status = ht_writer_put_at(w, HT_PACKED_AT + at, (const char *)memory + at, n, err);
        const double done = hooks->begin + (double)(at + n) / (double)c->bytes * (hooks->end - hooks->begin);
        if (!status && hooks->progress && !hooks->progress(done, hooks->progress_user))
            status = ht_fail(err, HT_ERR_CANCELLED, "loading was cancelled");
    }
    if (!status) return ht_writer_commit(w, err);
    ht_writer_discard(w);
    return status;
}
