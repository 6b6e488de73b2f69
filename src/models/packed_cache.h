/* Packed caches: the packed form of a checkpoint's matrices in a file, mapped and so shared by every process that loads it.
 *
 * A cached file is written under another name, flushed and renamed into its place, and never changed after that: what is
 * mapped stays as it is, whatever other processes do. Its directory belongs to its user alone, so that nobody else can
 * truncate it. It starts with a header that must be, byte for byte, the one that the checkpoint asks for:
 *
 *   the checkpoint's path, the number of bytes, and a digest of
 *   - device, inode, size and time of change of every file that holds weights
 *   - name, type, shape, place in the file and place in memory of every matrix
 *   - the packed form of sampled slabs of rows, packed anew from the checkpoint at every opening
 *
 * so that another content, and another layout of a later version, are told by what they give. The memory of all matrices
 * follows at HT_PACKED_AT. */
#ifndef HT_MODELS_PACKED_CACHE_H
#define HT_MODELS_PACKED_CACHE_H

#include "models/pack.h"

enum {
    HT_PACKED_HEADER = 4096,   /* bytes, the rest of them 0 */
    HT_PACKED_AT = 2 << 20,    /* where large pages can begin; nothing is between */
    HT_PACKED_PIECE = 16 << 20 /* bytes touched or written at a time */
};

typedef struct ht_packed_cache ht_packed_cache;

/* Finds where in `directory` the packed form of a checkpoint is, or would be, and what is to be in it. A directory that is
 * not there is made, with mode 0700; one that others may look into is an error. The caller frees *out. */
ht_status ht_packed_cache_open(const char *directory, const char *checkpoint, const ht_pack_task *tasks, int64_t n,
                               size_t bytes, ht_packed_cache **out, ht_error *err);
void ht_packed_cache_free(ht_packed_cache *c); /* NULL is fine; what is mapped stays so */

/* The memory of all matrices, to be read only and unmapped by the caller. NULL: there is none yet, or it is another's. */
void *ht_packed_cache_map(const ht_packed_cache *c);
void ht_packed_cache_unmap(void *memory, size_t bytes); /* NULL is fine */

/* Writes the cached file from the memory of all matrices, in place of an earlier one. `progress` as in ht_pack_hooks. */
ht_status ht_packed_cache_store(const ht_packed_cache *c, const void *memory, const ht_pack_hooks *hooks,
                                ht_error *err);

/* Brings mapped memory in, on all threads of the device, so that a file that cannot be read is an error now. */
ht_status ht_packed_cache_touch(const ht_packed_cache *c, void *memory, const ht_pack_hooks *hooks, ht_device *d,
                                ht_error *err);

#endif
