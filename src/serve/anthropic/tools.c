/* Tools of Anthropic's interface that wait outside the prompt (defer_loading), until a result of the client's own search refers to them: an
 * agent with hundreds of tools has the few in its prompt that it needs. */
#include "serve/anthropic/anthropic.h"

#include <string.h>

static const char *name_of(const json_t *tool) { return json_string_value(json_object_get(tool, "name")); }

/* A search that the service itself would do. Nobody does it here, so that no tool may wait for it. */
static bool is_search(const json_t *tool) {
    static const char prefix[] = "tool_search_tool_";
    const char *type = json_string_value(json_object_get(tool, "type"));
    return type && strncmp(type, prefix, sizeof prefix - 1) == 0;
}

static bool waits(const json_t *tools, const json_t *tool) {
    if (!json_is_true(json_object_get(tool, "defer_loading"))) return false;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (is_search(json_array_get(tools, i))) return false;
    return true;
}

static const json_t *find(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *one = name_of(json_array_get(tools, i));
        if (one && strcmp(one, name) == 0) return json_array_get(tools, i);
    }
    return NULL;
}

/* The reference in words, since a template has nothing else for it. */
bool serve_anthropic_refer(const json_t *tools, const char *name, json_t **referred, ht_text *text) {
    const json_t *tool = find(tools, name);
    ht_text_printf(text, tool ? "The tool %s is there: it can be called now." : "The tool %s is not there any more.",
                   name);
    if (!tool || !waits(tools, tool)) return true;
    if (!*referred) *referred = json_object();
    return json_object_set(*referred, name, (json_t *)tool) == 0;
}

json_t *serve_anthropic_loaded_tools(const json_t *tools, json_t *referred) {
    json_t *loaded = json_array(), *tool;
    const char *name;
    bool good = loaded != NULL;
    for (size_t i = 0; i < json_array_size(tools) && good; i++) {
        tool = json_array_get(tools, i);
        good = waits(tools, tool) || json_array_append(loaded, tool) == 0;
    }
    json_object_foreach(referred, name, tool) good = good && json_array_append(loaded, tool) == 0;
    if (good) return loaded;
    json_decref(loaded);
    return NULL;
}
