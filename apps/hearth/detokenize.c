/* hearth detokenize: the text of token ids, byte for byte. */
#include "command.h"
#include "engine.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <stdlib.h>

int detokenize_command(const options *o) {
    ht_error err = {0};
    id_list list = {0};
    ht_tokenizer *t = NULL;
    char *text = NULL;
    size_t n = 0;
    ht_status st = o->arguments.n ? HT_OK : ids_read("-", &list, &err);
    for (int i = 0; i < o->arguments.n && !st; i++) st = ids_parse(o->arguments.items[i], &list, &err);
    const bool is_usage = st == HT_ERR_ARGUMENT;
    if (!st) st = engine_tokenizer(o, &t, &err);
    if (!st) st = ht_tokenizer_decode(t, list.ids, list.n, false, &text, &n, &err);
    const int status = st ? report(&err) : EXIT_OK;
    if (!st && o->json) {
        json_output(ht_json_pack("{so}", "text", ht_json_stringn(text, n)));
    } else if (!st) {
        output_write(text, n);
        /* On a terminal the shell's prompt starts on a new line; files and pipes get exactly the text. */
        if (output_is_terminal() && n && text[n - 1] != '\n') output_write("\n", 1);
    }
    ht_text_free(text);
    free(list.ids);
    ht_tokenizer_free(t);
    return output_finish(is_usage ? EXIT_USAGE : status);
}
