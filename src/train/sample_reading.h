/* A line of training data on its way to a sample: what the files that read its forms share. */
#ifndef HT_TRAIN_SAMPLE_READING_H
#define HT_TRAIN_SAMPLE_READING_H

#include "formats/json.h"
#include "models/model.h"
#include "train/data.h"

typedef struct ht_sample_reading {
    const ht_model *m;
    const ht_sample_options *o;
    const ht_json *line;
    ht_sample *out;
    ht_error *err;
    const ht_json *at; /* the value that caused the error; NULL: the line */
    bool placed;       /* the error already has the position */
} ht_sample_reading;

/* A field of the line; NULL when it is absent or null. */
const ht_json *ht_sample_field(ht_sample_reading *r, const char *key);
/* Fails with what the field is; `v` may be NULL. */
ht_status ht_sample_fail_field(ht_sample_reading *r, const char *key, const ht_json *v, const char *expected);
/* The ids of a text as ht_generate_text encodes it. */
ht_status ht_sample_encode(ht_sample_reading *r, const char *text, size_t n, int32_t **ids, size_t *n_ids);
/* The id at index i of a list of integers; HT_ERR_FORMAT outside the vocabulary. */
ht_status ht_sample_read_id(ht_sample_reading *r, const ht_json *list, size_t i, int32_t *out);
/* Moves the ids into the sample and allocates its flags, all false. */
ht_status ht_sample_take_ids(ht_sample *s, int32_t *ids, size_t n, ht_error *err);

/* pair.c: reads the fields of HT_SAMPLE_PAIR. */
ht_status ht_sample_read_pair(ht_sample_reading *r);

#endif
