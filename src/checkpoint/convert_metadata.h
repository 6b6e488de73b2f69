/* Configuration and tokenizer of a checkpoint for the other container: GGUF metadata from a directory, and a
 * directory's JSON documents from a GGUF file. Handles no tensors but those of RoPE divisors, which are configuration. */
#ifndef HT_CHECKPOINT_CONVERT_METADATA_H
#define HT_CHECKPOINT_CONVERT_METADATA_H

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/family.h"
#include "formats/json.h"

#include <stdio.h>

/* ---- JSON object builder with a sticky error ---- */

typedef struct ht_document {
    ht_json *object;
    const char *name; /* for messages */
    ht_status status;
    ht_error *err;
} ht_document;

/* Sets a field to a value and takes ownership; NULL: out of memory. */
static inline void ht_document_set(ht_document *d, const char *key, ht_json *value) {
    if (d->status)
        ht_json_decref(value);
    else if (ht_json_object_set_new(d->object, key, value))
        d->status = ht_fail_memory(d->err, 0, d->name);
}

/* Returns the object; after a failure, releases it and returns NULL. */
static inline ht_json *ht_document_take(ht_document *d) {
    if (!d->status) return d->object;
    ht_json_decref(d->object);
    return NULL;
}

/* Appends a value and takes ownership; the list becomes NULL when out of memory. */
static inline void ht_list_append(ht_json **list, ht_json *value) {
    if (!ht_json_array_append_new(*list, value)) return;
    ht_json_decref(*list);
    *list = NULL;
}

/* Numbers of GGUF metadata, in the form of ht_gguf_write. */
static inline ht_json *ht_gguf_u32(int64_t value) { return ht_json_pack("{s:s, s:I}", "dtype", "u32", "value", value); }
static inline ht_json *ht_gguf_f32(double value) { return ht_json_pack("{s:s, s:f}", "dtype", "f32", "value", value); }

/* Sets architecture.NAME of GGUF metadata and takes ownership of the value. */
static inline void ht_gguf_put(ht_document *d, const ht_config *c, const char *name, ht_json *value) {
    char key[160];
    snprintf(key, sizeof key, "%s.%s", ht_gguf_architecture_of(c), name);
    ht_document_set(d, key, value);
}
static inline ht_json *ht_gguf_bool(bool value) { return ht_json_pack("{s:s, s:b}", "dtype", "bool", "value", value); }

/* Takes the factors on products away, which another container has in the weights. HT_ERR_UNSUPPORTED if embedding and
 * head, which are one matrix, need different ones. */
ht_status ht_convert_fold_multipliers(ht_config *c, ht_error *err);

/* mlp_layer_types of config.json: the layers with experts. */
void ht_convert_set_mlp_types(const ht_config *c, ht_document *d);

/* ---- directory to GGUF ---- */

/* All metadata of a GGUF file except keys that depend on tensors (general.file_type, general.quantization_version,
 * split.*), in the form of ht_gguf_write. The caller releases *out. Settings that GGUF cannot express are an error.
 * A sliding window without a GGUF key limits the context instead, with a warning. */
ht_status ht_gguf_metadata_of(const ht_checkpoint_files *c, const ht_config *config, ht_json **out, ht_error *err);

/* Values of HT_ROPE_FACTORS or of one of ht_rope_length_factors, f32 [*n]; *values is NULL if the model has none. The
 * caller frees them. */
ht_status ht_gguf_rope_factors(const ht_config *config, const char *name, float **values, int64_t *n, ht_error *err);

/* The configuration's part of ht_gguf_metadata_of. */
ht_status ht_convert_config_to_gguf(const ht_config *config, ht_json *metadata, ht_error *err);

/* ---- GGUF to directory ---- */

enum { HT_DOCUMENTS_MAX = 8 };

typedef struct ht_directory_documents {
    struct {
        const char *name; /* of the file, which may be in a folder; static */
        char *text;
    } document[HT_DOCUMENTS_MAX];
    int n;
} ht_directory_documents;

/* config.json, generation_config.json and, if the GGUF file has a tokenizer, tokenizer.json, tokenizer_config.json
 * and chat_template.jinja; with a pooling, modules.json and 1_Pooling/config.json. dtype: of the weights, as transformers spells it ("bfloat16"). The caller frees the
 * documents, even after a failure. */
ht_status ht_directory_documents_of(const ht_checkpoint_files *c, const ht_config *config, bool for_mlx,
                                    const char *dtype, ht_directory_documents *out, ht_error *err);
void ht_directory_documents_free(ht_directory_documents *d);

/* config.json without the ids of special tokens. HT_ERR_UNSUPPORTED if it would be read as another configuration. The caller
 * releases *out. */
ht_status ht_convert_config_to_json(const ht_config *config, ht_json **out, ht_error *err);

#endif
