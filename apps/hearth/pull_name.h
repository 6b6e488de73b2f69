/* Names of models on a hub: a repository, and which revision, quantisation or file of it; names of GGUF files by their quantisation. */
#ifndef HEARTH_APP_PULL_NAME_H
#define HEARTH_APP_PULL_NAME_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

/* ORG/REPO, then /FILE.gguf, :QUANTIZATION and @REVISION, each where it is wanted. A hub's address may stand before it: hf.co/,
 * huggingface.co/, https:// before these or the endpoint; behind one, the address of a page (.../blob/REVISION/FILE) is one, too. */
typedef struct pull_name {
    char *repo;         /* "ORG/REPO" */
    char *revision;     /* a branch, tag or commit; NULL: main */
    char *quantization; /* NULL: as the command chooses */
    char *file;         /* path in the repository; NULL: any */
} pull_name;

/* `endpoint` may be NULL. HT_ERR_ARGUMENT with a sentence that shows the form. To be freed after a failure, too. */
ht_status pull_name_parse(const char *text, const char *endpoint, pull_name *out, ht_error *err);
void pull_name_free(pull_name *name);

enum { QUANTIZATION_BYTES = 48 };
/* The quantisation that the path of a GGUF file names, in capitals: "Q4_K_M", "BF16", "UD-Q4_K_XL"; false, and "", when it names none.
 * The file's own name goes before that of its directory, and the last one in it before others. */
bool quantization_of(const char *path, char label[QUANTIZATION_BYTES]);

enum { NONE_MATCHES = -1, SEVERAL_MATCH = -2 };
/* The GGUF model of that quantisation, NULL: of the only one, or of Q4_K_M among several. Capitals do not matter, and without an exact match
 * neither does "UD-". */
int quantization_find(const char *const *paths, int n, const char *wanted);

/* The number of parts of which a GGUF file is one, whose names begin with the same *prefix bytes; 1 for a file by itself. */
int gguf_parts(const char *path, size_t *prefix);

#endif
