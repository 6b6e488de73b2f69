/* Details of checkpoints that lists of models show, read from each file once. */
#ifndef HT_SERVE_DETAILS_H
#define HT_SERVE_DETAILS_H

#include "serve/models.h"

struct serve_server;

typedef struct serve_details {
    char architecture[48], format[16], quantization[32]; /* "" when the checkpoint cannot be read */
    int64_t n_parameters, file_bytes, context;
} serve_details;

/* Those of a name's checkpoint; of an adapter's the model's. Any thread. */
serve_details serve_details_of(struct serve_server *s, const serve_model_name *name);

/* Frees what a server has kept; NULL is fine. */
struct serve_kept_details;
void serve_details_free(struct serve_kept_details *kept);

#endif
