/* Tools of Anthropic's interface that wait outside the prompt (defer_loading), until a result of the client's own search refers to them: an
 * agent with hundreds of tools has the few in its prompt that it needs. */
#include "serve/anthropic/anthropic.h"

#include <string.h>

static const char *name_of(const ht_json *tool) { return ht_json_string_value(ht_json_object_get(tool, "name")); }

/* A search that the service itself would do. Nobody does it here, so that no tool may wait for it. */
static bool is_search(const ht_json *tool) {
    static const char prefix[] = "tool_search_tool_";
    const char *type = ht_json_string_value(ht_json_object_get(tool, "type"));
    return type && strncmp(type, prefix, sizeof prefix - 1) == 0;
}

static bool waits(const ht_json *tools, const ht_json *tool) {
    if (!ht_json_is_true(ht_json_object_get(tool, "defer_loading"))) return false;
    for (size_t i = 0; i < ht_json_array_size(tools); i++)
        if (is_search(ht_json_array_get(tools, i))) return false;
    return true;
}

static const ht_json *find(const ht_json *tools, const char *name) {
    for (size_t i = 0; i < ht_json_array_size(tools); i++) {
        const char *one = name_of(ht_json_array_get(tools, i));
        if (one && strcmp(one, name) == 0) return ht_json_array_get(tools, i);
    }
    return NULL;
}

/* The reference in words, since a template has nothing else for it. */
bool serve_anthropic_refer(const ht_json *tools, const char *name, ht_json **referred, ht_text *text) {
    const ht_json *tool = find(tools, name);
    ht_text_printf(
        text, tool ? "The tool %s is available and can be called now." : "The tool %s is no longer available.", name);
    if (!tool || !waits(tools, tool)) return true;
    if (!*referred) *referred = ht_json_new_object();
    return ht_json_object_set(*referred, name, (ht_json *)tool) == 0;
}

ht_json *serve_anthropic_loaded_tools(const ht_json *tools, ht_json *referred) {
    ht_json *loaded = ht_json_new_array(), *tool;
    const char *name;
    bool good = loaded != NULL;
    for (size_t i = 0; i < ht_json_array_size(tools) && good; i++) {
        tool = ht_json_array_get(tools, i);
        good = waits(tools, tool) || ht_json_array_append(loaded, tool) == 0;
    }
    ht_json_object_foreach(referred, name, tool) good = good && ht_json_array_append(loaded, tool) == 0;
    if (good) return loaded;
    ht_json_decref(loaded);
    return NULL;
}
