/* Model paths: the word `default` stands for the model that scripts/quickstart fetches. */
#ifndef HEARTH_APP_MODEL_PATH_H
#define HEARTH_APP_MODEL_PATH_H

#include <hearth/status.h>

/* The path that MODEL means, in fresh memory that the caller frees. HT_ERR_IO when it is `default` and that one has not
 * been fetched. */
ht_status model_path(const char *model, char **path, ht_error *err);

#endif
