/* What every target begins with. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void check(bool promise) {
    if (!promise) abort();
}

/* Whether a call failed; it has a reason then, and else a result. */
static inline bool refused(ht_status status, const ht_error *err, const void *result) {
    check(!status == (result != NULL));
    if (status) check(err->status == status && err->message[0] && memchr(err->message, 0, sizeof err->message));
    return status != HT_OK;
}

#endif
