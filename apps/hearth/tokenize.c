/* hearth tokenize: prints the token ids of texts, one text per line. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_json(const ht_tokenizer *t, const int32_t *ids, size_t n) {
    ht_json *pieces = ht_json_new_array();
    for (size_t i = 0; i < n; i++) {
        const char *piece = ht_tokenizer_piece(t, ids[i]);
        ht_json_array_append_new(pieces, ht_json_stringn(piece, piece ? strlen(piece) : 0));
    }
    json_output(ht_json_pack("{so so}", "ids", json_ids(ids, n), "pieces", pieces));
}

static void print_line(const int32_t *ids, size_t n) {
    char word[16];
    for (size_t i = 0; i < n; i++) {
        int length = snprintf(word, sizeof word, i ? " %" PRId32 : "%" PRId32, ids[i]);
        if (!output_write(word, (size_t)length)) return;
    }
    output_write("\n", 1);
}

static ht_status tokenize(const ht_tokenizer *t, const options *o, const char *text, size_t n, ht_error *err) {
    const unsigned how = HT_ENCODE_PARSE_SPECIAL | (o->add_special ? HT_ENCODE_ADD_SPECIAL : 0);
    int32_t *ids;
    size_t n_ids;
    ht_status st = ht_tokenizer_encode(t, text, n, how, &ids, &n_ids, err);
    if (st) return st;
    if (o->json)
        print_json(t, ids, n_ids);
    else
        print_line(ids, n_ids);
    ht_ids_free(ids);
    return HT_OK;
}

/* NUL separates texts; a trailing NUL is optional. */
static ht_status tokenize_each(const ht_tokenizer *t, const options *o, const char *text, size_t n, ht_error *err) {
    ht_status st = HT_OK;
    for (const char *end = text + n; !st && text < end && !output_reader_gone();) {
        const char *nul = memchr(text, '\0', (size_t)(end - text));
        size_t length = (size_t)((nul ? nul : end) - text);
        st = tokenize(t, o, text, length, err);
        text += length + 1;
    }
    return st;
}

int tokenize_command(const options *o) {
    if (o->null && o->arguments.n) return usage_error(o, "--null reads standard input and takes no TEXT");
    ht_error err = {0};
    ht_tokenizer *t = NULL;
    char *input = NULL;
    size_t n = 0;
    ht_status st = engine_tokenizer(o, &t, &err);
    if (!st && !o->arguments.n) st = input_read_all("the text", &input, &n, &err);
    if (!st && o->null)
        st = tokenize_each(t, o, input, n, &err);
    else if (!st) {
        const char *text = input ? input : o->arguments.items[0];
        st = tokenize(t, o, text, input ? n : strlen(text), &err);
    }
    free(input);
    ht_tokenizer_free(t);
    return output_finish(st ? report(&err) : EXIT_OK);
}
