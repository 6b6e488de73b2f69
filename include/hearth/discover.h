/* Checkpoint discovery: every checkpoint under a directory, in the form that ht_model_load takes. */
#ifndef HEARTH_DISCOVER_H
#define HEARTH_DISCOVER_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Content of a weight file, by its name. */
typedef enum ht_file_role {
    HT_FILE_MODEL,
    HT_FILE_AUXILIARY,  /* a draft model, MTP head, vocabulary, merged adapter: the model where there is no other */
    HT_FILE_ADAPTER,    /* adapter*, ggml-adapter* */
    HT_FILE_IMPORTANCE, /* importance matrix: imatrix* */
    HT_FILE_PROJECTOR   /* vision or audio tower: *mmproj* */
} ht_file_role;

/* The role of a GGUF or safetensors file. Also considers the directories of `path`, so pass one that is relative to
 * the repository or directory of the model. Never HT_FILE_MODEL for a word of the table in src/formats/file_role.c.
 * Thread-safe. */
HT_API ht_file_role ht_file_role_of(const char *path);

/* One checkpoint. Lent during the call. */
typedef struct ht_find {
    const char *path;          /* for ht_model_load; begins with the searched directory */
    const ht_model_info *info; /* description without tokenizer_kind and chat_format, which are ""; NULL: broken */
    const ht_error *problem;   /* reason why it could not be read; NULL: it could */
} ht_find;

/* Return false to stop. */
typedef bool ht_discover_fn(const ht_find *find, void *user);

/* Calls `fn` for every checkpoint in `directory` and in all directories below it, in the order of their names: a GGUF
 * file (one in parts counts once; vision towers, LoRA adapters and importance weights not at all), or a directory
 * with safetensors (one with LoRA adapters alone is none). Names that begin with a dot are skipped below `directory`;
 * links are followed, but no directory is searched twice, so circles end. Broken checkpoints, and directories that
 * cannot be read, are finds with a `problem`. HT_ERR_IO when `directory` itself cannot be read, HT_ERR_CANCELLED when
 * `fn` returned false, HT_ERR_MEMORY. Thread-safe. */
HT_API ht_status ht_discover(const char *directory, ht_discover_fn *fn, void *user, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
