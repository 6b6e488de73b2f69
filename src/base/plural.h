/* The end of a noun after a count in a message: "%lld token%s", n, ht_plural(n). */
#ifndef HT_BASE_PLURAL_H
#define HT_BASE_PLURAL_H

#include <stdint.h>

static inline const char *ht_plural(int64_t n) { return n == 1 ? "" : "s"; }

#endif
