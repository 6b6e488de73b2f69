/* Reference answers, as tests/golden/reference.py writes them, compared with what Hearth computes. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include "formats/json.h"

#include <stdint.h>

typedef struct golden {
    ht_json *document; /* of one prompt */
    int64_t n, vocab, top, stride;
    double std; /* of all reference logits */
    int32_t *ids;
} golden;

/* Failures end the test. */
golden golden_open(const char *path);
/* The answer to the second prompt of a file that has one; valid on its own. */
golden golden_open_second(const char *path);
void golden_close(golden *g);

/* The largest difference of any stored value (top logits, log-sum-exp, kept rows) from logits [n, vocab], in units of the
 * reference's standard deviation. */
double golden_difference(const golden *g, const float *logits);
/* The share of positions at which the top logits and the log-sum-exp differ by less than `limit` of that deviation. */
double golden_share_within(const golden *g, const float *logits, double limit);

#endif
