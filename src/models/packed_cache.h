/* Packed caches: the packed form of a checkpoint's matrices in a file, mapped and so shared by every process that loads it.
 *
 * A cached file is written under a temporary name, flushed, renamed and never changed afterwards, so mappings stay valid.
 * Only its user can access the directory: another user could truncate the file.
 * A cached file is used only if its header equals the header computed from the checkpoint, byte for byte:
 *
 *   the checkpoint's path, the number of bytes, and a digest of
 *   - device, inode, size and time of change of every file that holds weights
 *   - name, type, shape, offset in the file and offset in memory of every matrix
 *   - the packed form of sampled slabs of rows, packed from the checkpoint at every opening
 *
 * The samples detect changed contents and a layout changed by a later version. The memory of all matrices follows at
 * HT_PACKED_AT. */
#ifndef HT_MODELS_PACKED_CACHE_H
#define HT_MODELS_PACKED_CACHE_H

#include "models/pack.h"

enum {
    HT_PACKED_HEADER = 4096,   /* bytes, the rest of them 0 */
    HT_PACKED_AT = 2 << 20,    /* aligned to large pages; the gap is empty */
    HT_PACKED_PIECE = 16 << 20 /* bytes touched or written at a time */
};

typedef struct ht_packed_cache ht_packed_cache;

/* Computes the path and the header of a checkpoint's cached file in `directory`. Creates the directory with mode 0700
 * if it is missing; a directory that other users can access is an error. The caller frees *out. */
ht_status ht_packed_cache_open(const char *directory, const char *checkpoint, const ht_pack_task *tasks, int64_t n,
                               size_t bytes, ht_packed_cache **out, ht_error *err);
void ht_packed_cache_free(ht_packed_cache *c); /* NULL is fine; mappings stay valid */

/* The memory of all matrices, read-only; the caller unmaps it. NULL: no cached file, or its header differs. */
void *ht_packed_cache_map(const ht_packed_cache *c);
void ht_packed_cache_unmap(void *memory, size_t bytes); /* NULL is fine */

/* Writes the cached file from the memory of all matrices, replacing an earlier one. `progress` as in ht_pack_hooks. */
ht_status ht_packed_cache_store(const ht_packed_cache *c, const void *memory, const ht_pack_hooks *hooks,
                                ht_error *err);

/* Pages mapped memory in on all threads of the device; reports an unreadable file now rather than as a later SIGBUS. */
ht_status ht_packed_cache_touch(const ht_packed_cache *c, void *memory, const ht_pack_hooks *hooks, ht_device *d,
                                ht_error *err);

#endif
