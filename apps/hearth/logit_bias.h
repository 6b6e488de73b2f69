/* Biases of logits as users write them: ID=BIAS. */
#ifndef HEARTH_APP_LOGIT_BIAS_H
#define HEARTH_APP_LOGIT_BIAS_H

#include <hearth/generate.h>

typedef struct bias_list {
    ht_logit_bias *items; /* each token once */
    int n;
} bias_list;

/* Adds a bias, or changes that of a token which has one; false when memory ran out. */
bool bias_list_put(bias_list *list, int32_t id, float bias);
/* The same from ID=BIAS, n bytes; false with what was expected. */
bool bias_list_read(bias_list *list, const char *text, size_t n, const char **expected);
void bias_list_free(bias_list *list);

#endif
