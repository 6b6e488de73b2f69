/* Safetensors: the tensors of one file, or of a checkpoint directory with shards, by name.
 *
 * Layout: a little-endian u64 header length, the JSON header, the data section, whose tensors are unaligned.
 * ht_safetensors_parse is a pure function over a byte range and makes every check of a hostile file;
 * ht_safetensors_open reads the headers of a checkpoint's files and merges them. Immutable once made. */
#ifndef HT_FORMATS_SAFETENSORS_H
#define HT_FORMATS_SAFETENSORS_H

#include "base/file.h"
#include "formats/name_index.h"
#include "formats/weight_type.h"

#include <hearth/status.h>

#include <stddef.h>
#include <stdint.h>

enum { HT_SAFETENSORS_RANK_MAX = 8, HT_SAFETENSORS_FILES_MAX = 99999 /* five digits */ };

#define HT_SAFETENSORS_INDEX "model.safetensors.index.json" /* which shard has which tensor */

typedef struct ht_safetensor {
    const char *name;
    const char *dtype;                      /* the file's spelling: "BF16", "U32", "F8_E4M3" ... */
    int weight_type;                        /* ht_weight_type, or -1 when no weight has this dtype */
    int rank;                               /* 0 to 8 */
    int64_t shape[HT_SAFETENSORS_RANK_MAX]; /* outermost dimension first; may contain 0 */
    const unsigned char *data; /* not to be dereferenced after ht_safetensors_open: read the file at `offset` */
    size_t n_bytes;
    int file;      /* index for ht_safetensors_file */
    size_t offset; /* of the tensor's bytes in the file */
} ht_safetensor;

typedef struct ht_safetensors {
    ht_safetensor *tensors; /* names are owned by the set */
    size_t n_tensors;
    ht_name_index names;
    struct ht_json *metadata; /* of the first file; NULL when absent */
    ht_file **files;
    int n_files;
} ht_safetensors;

/* Parses `size` bytes at `data`, which must outlive the result. `name` is used in messages. */
ht_status ht_safetensors_parse(const void *data, size_t size, const char *name, ht_safetensors **out, ht_error *err);

/* Opens a .safetensors file, or a checkpoint directory: the shards listed in model.safetensors.index.json, else
 * model.safetensors, else all of model-00001-of-0000N.safetensors, else the only *.safetensors file. A tensor name
 * repeated over the shards is an error. The index is trusted for its list of files only: tensors are located by the
 * files' own headers. A stale index (none of its files exists, or some are missing while model.safetensors exists) is
 * ignored. Mismatches are logged as warnings. */
ht_status ht_safetensors_open(const char *path, ht_safetensors **out, ht_error *err);
void ht_safetensors_close(ht_safetensors *s); /* for both functions above; NULL is fine */

size_t ht_safetensors_count(const ht_safetensors *s);
const ht_safetensor *ht_safetensors_at(const ht_safetensors *s, size_t i);           /* in file order */
const ht_safetensor *ht_safetensors_find(const ht_safetensors *s, const char *name); /* NULL when absent; hashed */

/* Number of files of an opened checkpoint; 0 after ht_safetensors_parse. */
int ht_safetensors_n_files(const ht_safetensors *s);
const ht_file *ht_safetensors_file(const ht_safetensors *s, int file);
/* Value of `key` in the first file's `__metadata__`, or NULL. */
const char *ht_safetensors_metadata(const ht_safetensors *s, const char *key);

#endif
