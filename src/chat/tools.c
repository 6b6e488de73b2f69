/* Tools as a conversation lists them: names, and schemas as rules. */
#include "chat/tools.h"

#include "base/error.h"
#include "base/log.h"
#include "base/tool_name.h"
#include "template/eval.h"

#include <string.h>

static const ht_jinja_value *member(ht_jinja_value v, const char *key) {
    return v.kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(v.dict, key, strlen(key)) : NULL;
}

ht_status ht_tool_list_read(ht_tool_list *t, ht_jinja_value tools, const char *only, ht_error *err) {
    *t = (ht_tool_list){.arena = {.limit = (size_t)256 << 20, .name = "the tools", .err = err}};
    const size_t n = tools.kind == HT_VALUE_LIST ? tools.list->n : 0;
    if (!(t->tool = ht_jinja_arena_alloc(&t->arena, (n + 1) * sizeof *t->tool))) return t->arena.status;
    for (size_t i = 0; i < n; i++) {
        const ht_jinja_value *function = member(tools.list->items[i], "function");
        const ht_jinja_value of = function ? *function : tools.list->items[i], *name = member(of, "name");
        if (!name || !ht_jinja_is_string(*name) || (only && !ht_jinja_string_is(name->string, only))) continue;
        if (!ht_is_tool_name(name->string->text)) {
            if (only)
                return ht_fail(err, HT_ERR_ARGUMENT, "the tool `%.200s` has a name that no call can be written with",
                               only);
            ht_log_write(HT_LOG_WARNING, "the tool `%.200s` has a name that no call can be written with",
                         name->string->text);
            continue;
        }
        const ht_jinja_value *parameters = member(of, "parameters");
        t->tool[t->n++] = (ht_tool){
            .name = name->string->text,
            .parameters = parameters && parameters->kind != HT_VALUE_NONE ? parameters : NULL,
        };
    }
    return HT_OK;
}

void ht_tool_list_free(ht_tool_list *t) { ht_jinja_arena_free(&t->arena); }

static ht_status embed(ht_tool_list *t, const ht_tool *tool, ht_rules *r, const char *property, ht_symbol *out,
                       ht_error *err) {
    static const char none[] = "{\"type\": \"object\", \"maxProperties\": 0}", any[] = "{}";
    /* Models write arguments in orders of their own. */
    const ht_schema_options how = {.closed = true};
    const ht_schema_part part = {.property = tool->is_relaxed ? NULL : property, .is_object = !property};
    if (tool->is_relaxed) return ht_schema_embed(r, any, strlen(any), &how, &part, out, err);
    if (!tool->parameters) return ht_schema_embed(r, none, strlen(none), &how, &part, out, err);
    ht_jinja_rendering rendering = {.a = &t->arena};
    const ht_jinja_string *json = ht_jinja_json_text(&rendering, *tool->parameters, NULL, NULL, NULL, false, false);
    if (!json) return t->arena.status;
    return ht_schema_embed(r, json->text, json->n, &how, &part, out, err);
}

/* Tools whose schemas took seconds to be found too complex, after which no further ones are tried. */
enum { TOO_COMPLEX_MOST = 8 };

static void relax(ht_tool *tool, const char *why) {
    ht_log_write(HT_LOG_WARNING, "the parameters of the tool `%.200s` are not held to their schema: %.500s", tool->name,
                 why);
    tool->is_relaxed = true;
}

ht_status ht_tool_values(ht_tool_list *t, ht_tool *tool, ht_rules *r, const char *property, ht_symbol *out, bool *again,
                         ht_error *err) {
    ht_error why = {0};
    *again = false;
    if (!property && tool->has_symbol) {
        *out = tool->arguments;
        return HT_OK;
    }
    if (t->n_too_complex == TOO_COMPLEX_MOST && !tool->is_held && !tool->is_relaxed)
        relax(tool, "too many tools before it are too complex");
    ht_status status = embed(t, tool, r, property, out, &why);
    if (status && status != HT_ERR_MEMORY && !tool->is_relaxed && !t->arena.status) {
        relax(tool, why.message);
        if (status == HT_ERR_LIMIT) t->n_too_complex++;
        *again = ht_rules_status(r, NULL) != HT_OK;
        if (*again) return HT_OK;
        status = embed(t, tool, r, property, out, &why);
    }
    if (status) {
        if (err) *err = why;
        return status;
    }
    tool->is_held = !tool->is_relaxed;
    if (!property) {
        tool->has_symbol = true;
        tool->arguments = *out;
    }
    return HT_OK;
}
