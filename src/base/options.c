#include "base/options.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

enum { MOST_BYTES = 256 }; /* no option struct is larger: a larger `size` was not initialised */

void ht_options_init(void *options, size_t size, const void *defaults, size_t known) {
    memset(options, 0, size);
    memcpy(options, defaults, ht_min_size(size, known));
    if (size >= sizeof size) memcpy(options, &size, sizeof size);
}

ht_status ht_options_read(void *out, const void *given, const void *defaults, size_t known, const char *type,
                          ht_error *err) {
    memcpy(out, defaults, known);
    if (!given) return HT_OK;
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > MOST_BYTES || size % sizeof(void *))
        return ht_fail(err, HT_ERR_ARGUMENT, "the %s were not made by %s_init(&options, sizeof options)", type, type);
    for (size_t i = known; i < size; i++)
        if (((const char *)given)[i])
            return ht_fail(err, HT_ERR_UNSUPPORTED, "the %s have a field that this version of Hearth does not know",
                           type);
    memcpy(out, given, ht_min_size(size, known));
    memcpy(out, &known, sizeof known);
    return HT_OK;
}
