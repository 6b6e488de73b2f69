/* Importance weights (hearth/importance.h) as a table of entries: created empty, filled, then sealed and immutable. */
#ifndef HT_FORMATS_IMPORTANCE_H
#define HT_FORMATS_IMPORTANCE_H

#include "formats/name_index.h"

#include <hearth/importance.h>

typedef struct ht_importance_row {
    char *name;
    int64_t n_columns, n_experts; /* each expert has sums and one count */
    bool flat;                    /* the columns of all experts in a row, with one count, as the older form has them */
    float *sum;                   /* [n_experts][n_columns] */
    float *mean;                  /* likewise, once sealed; ones where the count is 0 */
    double *count;                /* [n_experts] */
} ht_importance_row;

struct ht_importance {
    int64_t n, room;
    ht_importance_row *row; /* [n] */
    ht_name_index names;
    int64_t n_chunks, chunk_tokens;
    int64_t n_datasets;
    char **dataset; /* [n_datasets] */
};

/* Tokens of a chunk if the file does not specify them: the default of llama.cpp's tool. */
enum { HT_IMPORTANCE_CHUNK = 512 };

/* An empty table for at most n rows; ht_importance_free frees it. */
ht_status ht_importance_new(size_t n, ht_importance **out, ht_error *err);
/* Adds a row of zeros; the table owns it. HT_ERR_FORMAT for an invalid or repeated name, or invalid sizes. */
ht_status ht_importance_add(ht_importance *i, const char *name, size_t length, int64_t n_columns, int64_t n_experts,
                            ht_importance_row **out, ht_error *err);
/* Adds the name of a dataset. Ignores names that are not valid UTF-8, as no file can store them. */
ht_status ht_importance_add_dataset(ht_importance *i, const char *name, size_t length, ht_error *err);
/* Computes the means. HT_ERR_FORMAT for a sum or a count that is negative or not finite. */
ht_status ht_importance_seal(ht_importance *i, ht_error *err);
/* Weights of squared errors for a quantiser: the means of ht_importance_find divided by their average. They do not
 * depend on the scale of the file's numbers, which may be subnormal. At least 1e-3: no group has weight zero. False:
 * not found. */
bool ht_importance_weigh(const ht_importance *i, const char *name, int64_t n_columns, int64_t expert, float *weight);

/* Parses a file of either form in memory; `name` is used in messages. */
ht_status ht_importance_parse(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err);

#endif
