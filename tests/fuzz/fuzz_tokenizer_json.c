/* tokenizer.json: whatever loads must also encode, and decode what it encoded. The first byte chooses the text; the rest
 * is the file, up to a NUL, and after it a tokenizer_config.json. */
#include "tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *json = (const char *)data + 1, *nul = memchr(json, '\0', size - 1);
    size_t n = nul ? (size_t)(nul - json) : size - 1, n_config = nul ? size - 1 - n - 1 : 0;
    ht_tokenizer *t;
    ht_error err;
    if (ht_tokenizer_from_json(json, n, nul ? nul + 1 : NULL, n_config, &t, &err)) return 0;
    tokens_use(t, data[0]);
    tokens_save(t);
    ht_tokenizer_free(t);
    return 0;
}
