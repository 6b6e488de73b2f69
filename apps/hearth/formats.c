/* hearth formats: model families, weight types and chat formats of this build, from the library's tables.
 * docs/models.md shows the same tables. */
#include "command.h"
#include "json.h"
#include "terminal.h"

#include <stdio.h>

typedef const char *name_at(int i);

static const char *family(int i) { return ht_model_architectures()[i]; }
static const char *in_gguf(int i) { return ht_model_weight_type("gguf", i); }
static const char *in_safetensors(int i) { return ht_model_weight_type("safetensors", i); }

static const struct {
    const char *name, *key;
    name_at *at;
} rows[] = {
    {"families", "families", family},
    {"weights in GGUF", "gguf", in_gguf},
    {"weights in safetensors", "safetensors", in_safetensors},
    {"built-in chat formats", "chat_formats", ht_model_chat_format},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static void print_json(void) {
    ht_json *value = ht_json_new_object();
    for (int r = 0; r < N_ROWS; r++) {
        ht_json *list = ht_json_new_array();
        for (int i = 0; rows[r].at(i); i++) ht_json_array_append_new(list, ht_json_string(rows[r].at(i)));
        ht_json_object_set_new(value, rows[r].key, list);
    }
    json_output(value);
}

static void print_row(int r, bool markdown) {
    char list[2048] = "";
    size_t n = 0;
    for (int i = 0; rows[r].at(i) && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", rows[r].at(i));
    if (markdown)
        output_line("| %s | %s |", rows[r].name, list);
    else
        output_line("%-22s  %s", rows[r].name, list);
}

int formats_command(const options *o) {
    if (o->json) print_json();
    for (int r = 0; r < N_ROWS && !o->json; r++) print_row(r, o->markdown);
    return output_finish(EXIT_OK);
}
