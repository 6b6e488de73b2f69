/* tokenizer.json: whatever loads must also encode, and decode what it encoded. The first byte chooses the text, its highest
 * bit a vocab.txt instead; the rest is the file, up to a NUL, and after it a tokenizer_config.json. */
#include "tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *json = (const char *)data + 1, *nul = memchr(json, '\0', size - 1);
    size_t n = nul ? (size_t)(nul - json) : size - 1, n_config = nul ? size - 1 - n - 1 : 0;
    ht_tokenizer *t;
    ht_error err = {0};
    const ht_status status = (data[0] & 128 ? ht_tokenizer_from_vocab : ht_tokenizer_from_json)(
        json, n, nul ? nul + 1 : NULL, n_config, &t, &err);
    if (refused(status, &err, t)) return 0;
    tokens_use(t, data[0]);
    tokens_save(t);
    ht_tokenizer_free(t);
    return 0;
}
