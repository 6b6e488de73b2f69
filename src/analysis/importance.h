/* Gathering of importance weights (hearth/importance.h): the matrices whose inputs are squared and added up, and the passes that give
 * these. */
#ifndef HT_ANALYSIS_IMPORTANCE_H
#define HT_ANALYSIS_IMPORTANCE_H

#include "device/lora.h"
#include "models/model.h"

#include <hearth/importance.h>

/* Rows of a step. Fixed, as the sums of a step are f32, and what is added to them is f64: so the bits depend on it. */
enum { HT_IMPORTANCE_ROWS = 512, HT_IMPORTANCE_NAME = 160 };

/* A matrix, or those of all experts. */
typedef struct ht_importance_site {
    const char *slot;              /* of ht_linear; lent by the model */
    char name[HT_IMPORTANCE_NAME]; /* in GGUF files, ".weight" included; "": it goes by that of another matrix */
    int64_t n_columns, n_experts;  /* 1 when dense */
    const struct ht_importance_site *same_as; /* has the same inputs, and the sums; NULL: these are here */
    double *sum, *count;                      /* [n_experts][n_columns] squares, [n_experts] inputs; NULL: none yet */
} ht_importance_site;

typedef struct ht_importance_sites {
    int64_t n;
    ht_importance_site *site; /* [n] */
} ht_importance_sites;

/* All matrices of a model that tokens meet. To be freed after a failure, too. */
ht_importance_site *ht_importance_site_of(const ht_importance_sites *s, const char *slot); /* NULL: none */

/* What a pass is told. */
typedef struct ht_importance_pass {
    ht_model *model;
    ht_importance_sites *into;
    const ht_lora_set *lora; /* NULL: none */
    struct ht_cache *cache;  /* made for steps of HT_IMPORTANCE_ROWS */
    const ht_cancel *cancel;
    void (*progress)(double done, void *user); /* of all that is to be done */
    void *user;
    int64_t done, total; /* tokens of passes before this one, and in all */
} ht_importance_pass;

/* Runs n ids through the model from an empty cache, and adds what their projections meet to the sites. */
ht_status ht_importance_pass_run(const ht_importance_pass *p, const int32_t *ids, int64_t n, ht_error *err);

#endif
