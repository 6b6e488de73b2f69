/* Safetensors: the tensors of one file, or of a checkpoint directory of several shards, by name.
 *
 * Layout: a little-endian u64 length, that many bytes of JSON, then the data. ht_safetensors_parse is a pure function over
 * a byte range and makes every check of a hostile file; ht_safetensors_open maps the files of a checkpoint and joins what
 * they hold. Immutable once made. Data is at any address: the format aligns nothing. */
#ifndef HT_FORMATS_SAFETENSORS_H
#define HT_FORMATS_SAFETENSORS_H

#include "base/file.h"
#include "formats/weight_type.h"

#include <hearth/status.h>

#include <stddef.h>
#include <stdint.h>

enum { HT_SAFETENSORS_RANK_MAX = 8 };

typedef struct ht_safetensor {
    const char *name;
    const char *dtype;                      /* as the file says: "BF16", "U32", "F8_E4M3" ... */
    int weight_type;                        /* ht_weight_type, or -1 when `dtype` is none that Hearth multiplies by */
    int rank;                               /* 0 to 8 */
    int64_t shape[HT_SAFETENSORS_RANK_MAX]; /* outermost first; a zero is possible */
    const unsigned char *data;              /* in an opened file only a place: the bytes are read at `offset` */
    size_t n_bytes;
    int file;      /* which file, for ht_safetensors_file */
    size_t offset; /* of `data` in that file */
} ht_safetensor;

typedef struct ht_safetensors ht_safetensors;

/* Parses `size` bytes at `data`, which must outlive the result. `name` is used in messages. */
ht_status ht_safetensors_parse(const void *data, size_t size, const char *name, ht_safetensors **out, ht_error *err);

/* Opens a .safetensors file, or the checkpoint in a directory: the shards that model.safetensors.index.json lists, else
 * model.safetensors, else all of model-00001-of-0000N.safetensors, else the only *.safetensors there. Names are unique over
 * all shards. Of an index only the list of files is believed, and tensors are taken from where they are. One that was left
 * over beside other weights is ignored: none of its files is there, or one is not but model.safetensors is. Both with a
 * warning. */
ht_status ht_safetensors_open(const char *path, ht_safetensors **out, ht_error *err);
void ht_safetensors_close(ht_safetensors *s); /* for both of the above; NULL is fine */

size_t ht_safetensors_count(const ht_safetensors *s);
const ht_safetensor *ht_safetensors_at(const ht_safetensors *s, size_t i);           /* in the order of the files */
const ht_safetensor *ht_safetensors_find(const ht_safetensors *s, const char *name); /* NULL when absent; hashed */

/* Files behind an opened checkpoint; 0 after ht_safetensors_parse. */
int ht_safetensors_n_files(const ht_safetensors *s);
const ht_file *ht_safetensors_file(const ht_safetensors *s, int file);
/* A value of the first file's `__metadata__` ("format"), or NULL. */
const char *ht_safetensors_metadata(const ht_safetensors *s, const char *key);

#endif
