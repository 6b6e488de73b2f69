/* The reader of JSON: what it accepts is valid, and comes back from its own text; what it refuses has a place. The first byte chooses the
 * options, the rest is the text. */
#include "formats/json.h"
#include "tokens.h"

static void check_strings(const ht_json *value) {
    size_t n;
    const ht_json_member *members = ht_json_members(value, &n);
    for (size_t i = 0; i < n; i++) {
        check(ht_utf8_valid(members[i].name, members[i].n_name) && members[i].value->line);
        check(ht_json_object_getn(value, members[i].name, members[i].n_name) == members[i].value);
        check_strings(members[i].value);
    }
    for (size_t i = 0; i < ht_json_array_size(value); i++) check_strings(ht_json_array_get(value, i));
    if (ht_json_is_string(value)) check(ht_utf8_valid(ht_json_string_value(value), ht_json_string_length(value)));
}

/* Written in every form and read again, the value is the same. */
static void check_text(const ht_json *value, const ht_json_options *options) {
    static const unsigned flags[] = {0, HT_JSON_COMPACT, HT_JSON_INDENT(2), HT_JSON_ASCII | HT_JSON_SORT_KEYS};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char *text = ht_json_dump(value, flags[i]);
        ht_json *again;
        ht_error err = {0};
        check(text && ht_utf8_valid(text, strlen(text)));
        check(!ht_json_load(text, strlen(text), options, &again, &err) && ht_json_equal(value, again));
        ht_json_decref(again);
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    const ht_json_options options = {
        .name = "f", .any_value = data[0] & 1, .as_python = data[0] & 2, .keeps_nul = data[0] & 4};
    ht_json *value;
    ht_error err = {0};
    const ht_status status = ht_json_load((const char *)data + 1, size - 1, &options, &value, &err);
    if (refused(status, &err, value)) {
        check(ht_utf8_valid(err.message, strlen(err.message)));
        check(strncmp(err.message, "f: line ", 8) == 0 || strstr(err.message, "Git LFS"));
        return 0;
    }
    check_strings(value);
    check_text(value, &options);
    ht_json_decref(value);
    return 0;
}
