/* Losses (hearth/losses.h). */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_cross_entropy)                                                                                                \
    X(ht_masked_cross_entropy)                                                                                         \
    X(ht_mse)
CORE_SYMBOLS(LIBRARY)

BODY(cross_entropy) { return core_finish(s, ht.ht_cross_entropy(s, v[0].array, v[1].array)); }
BODY(masked_cross_entropy) { return core_finish(s, ht.ht_masked_cross_entropy(s, v[0].array, v[1].array, v[2].array)); }
BODY(mse) { return core_finish(s, ht.ht_mse(s, v[0].array, v[1].array)); }

static const core_spec specs[] = {
    FUNCTION(cross_entropy, "Of every row of logits [..., V] with its target; 0 where the target is negative.",
             ARRAY("logits"), INDEX("targets")),
    FUNCTION(masked_cross_entropy,
             "The mean of cross_entropy over the rows whose target is not negative, and whose mask is true; 0 without "
             "any.",
             ARRAY("logits"), INDEX("targets"), ARRAY("mask", .value = "None")),
    FUNCTION(mse, "The mean of (predictions - targets)^2, of two arrays of one shape.", ARRAY("predictions"),
             ARRAY("targets")),
    END_OF_TABLE,
};
const core_family core_losses_family = {"hearth.losses", NULL, symbols, specs};
