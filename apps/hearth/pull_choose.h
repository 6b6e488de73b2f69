/* Choice of a repository's files: the weights and what is read beside them, in one form out of many. */
#ifndef HEARTH_APP_PULL_CHOOSE_H
#define HEARTH_APP_PULL_CHOOSE_H

#include "pull_hub.h"

typedef struct pull_choice {
    const hub_file **file; /* of the listing */
    size_t n;
    const hub_file *gguf;  /* the GGUF file, or its first part; NULL: safetensors */
    const hub_file *index; /* model.safetensors.index.json, whose shards are not chosen yet; NULL: there is none */
} pull_choice;

/* Chooses the files that `name` means, of h->repo. HT_ERR_ARGUMENT, with what there is, when it is not one model. To be freed after a
 * failure, too. */
ht_status choose_files(const hub *h, const hub_listing *l, const pull_name *name, pull_choice *out, ht_error *err);
/* Adds the shards that the text of the index names, if there is one, and puts all files in the order of their names. */
ht_status choose_shards(const hub *h, const hub_listing *l, const char *index, size_t n, pull_choice *c, ht_error *err);
void choice_free(pull_choice *c);

#endif
