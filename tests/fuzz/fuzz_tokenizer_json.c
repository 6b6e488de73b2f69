/* tokenizer.json: whatever loads must also encode, and decode what it encoded. The first byte chooses the text; the rest
 * is the file, up to a NUL, and after it a tokenizer_config.json. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    " The quick  brown fox's 1234 \n\t h\xC3\xA9llo e\xCC\x81 \xE2\x96\x81\xE2\x96\x81 \xE6\x97\xA5\xE6\x9C\xAC "
    "\xF0\x9F\x98\x80\xFF<s>a</s><|x|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.";

static void stream(const ht_tokenizer *t, const int32_t *ids, size_t n, const char *whole, size_t n_whole) {
    ht_decoder *d;
    ht_error err;
    if (ht_decoder_new(t, false, &d, &err)) return;
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        const char *piece;
        size_t length;
        ht_status st =
            i < n ? ht_decoder_feed(d, ids[i], &piece, &length, &err) : ht_decoder_flush(d, &piece, &length, &err);
        if (st || at + length > n_whole || memcmp(whole + at, piece, length) != 0) __builtin_trap();
        at += length;
    }
    if (at != n_whole) __builtin_trap();
    ht_decoder_free(d);
}

static void use(const ht_tokenizer *t, size_t from) {
    ht_error err;
    for (int i = 0; i < 4; i++) {
        int32_t *ids;
        size_t n, length;
        char *decoded;
        ht_encode_options options = {.add_special = i & 1, .parse_special = i & 2};
        if (ht_tokenizer_encode(t, text + from, sizeof text - 1 - from, options, &ids, &n, &err)) return;
        for (size_t k = 0; k < n; k++)
            if (!ht_tokenizer_piece(t, ids[k])) __builtin_trap();
        if (ht_tokenizer_decode(t, ids, n, false, &decoded, &length, &err)) __builtin_trap();
        stream(t, ids, n, decoded, length);
        free(decoded);
        free(ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *json = (const char *)data + 1, *nul = memchr(json, '\0', size - 1);
    size_t n = nul ? (size_t)(nul - json) : size - 1, n_config = nul ? size - 1 - n - 1 : 0;
    ht_tokenizer *t;
    ht_error err;
    if (ht_tokenizer_from_json(json, n, nul ? nul + 1 : NULL, n_config, &t, &err)) return 0;
    use(t, data[0] % (sizeof text - 1));
    ht_tokenizer_free(t);
    return 0;
}
