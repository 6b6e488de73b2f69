/* Namespaces of tools in the Responses interface. Templates know one list of functions: in it each has its namespace in front of its name, and
 * calls are told apart again when they are answered. */
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

bool serve_is_namespace(const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    return type && strcmp(type, "namespace") == 0;
}

/* Both in characters that every tool-call format accepts in names. */
char *serve_namespace_join(const char *namespace, const char *name) {
    ht_text text = {0};
    ht_text_printf(&text, "%s__%s", namespace, name);
    return ht_text_take(&text);
}

json_t *serve_namespace_tool(const json_t *namespace, const json_t *tool) {
    const char *outer = json_string_value(json_object_get(namespace, "name"));
    const char *name = json_string_value(json_object_get(tool, "name"));
    json_t *copy = json_copy((json_t *)tool);
    if (!copy || !outer || !name) return copy;
    char *joined = serve_namespace_join(outer, name);
    const bool good = joined && json_object_set_new(copy, "name", json_string(joined)) == 0;
    free(joined);
    if (good) return copy;
    json_decref(copy);
    return NULL;
}

static bool is_joined(const char *joined, const char *namespace, const char *name) {
    const size_t n = strlen(namespace);
    return strncmp(joined, namespace, n) == 0 && strncmp(joined + n, "__", 2) == 0 && strcmp(joined + n + 2, name) == 0;
}

const char *serve_namespace_split(const json_t *tools, const char *joined, const char **namespace) {
    *namespace = NULL;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *outer = json_array_get(tools, i), *list = json_object_get(outer, "tools");
        const char *in = json_string_value(json_object_get(outer, "name"));
        for (size_t k = 0; in && serve_is_namespace(outer) && k < json_array_size(list); k++) {
            const char *name = json_string_value(json_object_get(json_array_get(list, k), "name"));
            if (!name || !is_joined(joined, in, name)) continue;
            *namespace = in;
            return name;
        }
    }
    return joined;
}
