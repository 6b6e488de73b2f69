/* Namespaces of tools in the Responses interface. Templates know one list of functions: in it each has its namespace in front of its name, and
 * calls are told apart again when they are answered. */
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

bool serve_is_namespace(const ht_json *tool) {
    const char *type = ht_json_string_value(ht_json_object_get(tool, "type"));
    return type && strcmp(type, "namespace") == 0;
}

/* Both in characters that every tool-call format accepts in names. */
char *serve_namespace_join(const char *namespace, const char *name) {
    ht_text text = {0};
    ht_text_printf(&text, "%s__%s", namespace, name);
    return ht_text_take(&text);
}

ht_json *serve_namespace_tool(const ht_json *namespace, const ht_json *tool) {
    const char *outer = ht_json_string_value(ht_json_object_get(namespace, "name"));
    const char *name = ht_json_string_value(ht_json_object_get(tool, "name"));
    ht_json *copy = ht_json_copy((ht_json *)tool);
    if (!copy || !outer || !name) return copy;
    char *joined = serve_namespace_join(outer, name);
    const bool good = joined && ht_json_object_set_new(copy, "name", ht_json_string(joined)) == 0;
    free(joined);
    if (good) return copy;
    ht_json_decref(copy);
    return NULL;
}

static bool is_joined(const char *joined, const char *namespace, const char *name) {
    const size_t n = strlen(namespace);
    return strncmp(joined, namespace, n) == 0 && strncmp(joined + n, "__", 2) == 0 && strcmp(joined + n + 2, name) == 0;
}

const char *serve_namespace_split(const ht_json *tools, const char *joined, const char **namespace) {
    *namespace = NULL;
    for (size_t i = 0; i < ht_json_array_size(tools); i++) {
        const ht_json *outer = ht_json_array_get(tools, i), *list = ht_json_object_get(outer, "tools");
        const char *in = ht_json_string_value(ht_json_object_get(outer, "name"));
        for (size_t k = 0; in && serve_is_namespace(outer) && k < ht_json_array_size(list); k++) {
            const char *name = ht_json_string_value(ht_json_object_get(ht_json_array_get(list, k), "name"));
            if (!name || !is_joined(joined, in, name)) continue;
            *namespace = in;
            return name;
        }
    }
    return joined;
}
