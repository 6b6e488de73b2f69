/* Names of models on a hub (repository, revision, quantisation or file), and quantisations in GGUF file names. */
#ifndef HEARTH_APP_PULL_NAME_H
#define HEARTH_APP_PULL_NAME_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

/* ORG/REPO with optional /FILE.gguf, :QUANTIZATION and @REVISION. It may begin with a hub's address: hf.co/,
 * huggingface.co/, either with https://, or the endpoint. A page's URL (.../blob/REVISION/FILE) is also accepted. */
typedef struct pull_name {
    char *repo;         /* "ORG/REPO" */
    char *revision;     /* a branch, tag or commit; NULL: main */
    char *quantization; /* NULL: the command chooses */
    char *file;         /* path in the repository; NULL: any */
} pull_name;

/* `endpoint` may be NULL. HT_ERR_ARGUMENT shows the expected form. The caller frees *out, also after a failure. */
ht_status pull_name_parse(const char *text, const char *endpoint, pull_name *out, ht_error *err);
void pull_name_free(pull_name *name);

enum { QUANTIZATION_BYTES = 48 };
/* The quantisation in a GGUF file's path, in capitals: "Q4_K_M", "BF16", "UD-Q4_K_XL"; false and "" for none.
 * The file name takes precedence over its directory, and the last match over earlier ones. */
bool quantization_of(const char *path, char label[QUANTIZATION_BYTES]);

enum { NONE_MATCHES = -1, SEVERAL_MATCH = -2 };
/* Index of the GGUF model with the wanted quantisation; NULL: the only model, or Q4_K_M among several. Ignores case,
 * and "UD-" if there is no exact match. */
int quantization_find(const char *const *paths, int n, const char *wanted);

/* Number of parts of a split GGUF file, whose names share their first *prefix bytes; 1 for a single file. */
int gguf_parts(const char *path, size_t *prefix);

#endif
