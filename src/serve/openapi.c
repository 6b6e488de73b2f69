#include "serve/endpoints.h"

#include <hearth/version.h>

#include <string.h>

extern const char serve_responses_json[]; /* made of responses.json by cmake/embed.cmake */

/* The document under construction. */
typedef struct document {
    const serve_server *server;
    ht_json *responses; /* response schemas by method, path and content type */
    bool failed;        /* memory ran out */
} document;

/* Both consume the value. */
static void set(document *d, ht_json *object, const char *name, ht_json *value) {
    if (ht_json_object_set_new(object, name, value)) d->failed = true;
}

static void append(document *d, ht_json *list, ht_json *value) {
    if (ht_json_array_append_new(list, value)) d->failed = true;
}

/* ---- shapes as JSON schemas ---- */

static ht_json *schema_of(document *d, const serve_shape *s, bool nullable);

static ht_json *number_schema(document *d, const serve_shape *s, bool whole) {
    ht_json *out = ht_json_pack("{ss}", "type", whole ? "integer" : "number");
    const bool any = !s->low && !s->high, small = !any && s->low >= INT32_MIN && s->high <= INT32_MAX;
    if (any) return out;
    if (whole) set(d, out, "format", ht_json_string(small ? "int32" : "int64"));
    /* Integers beyond 64 bits cannot be represented. */
    if (whole || s->low != INT64_MIN) set(d, out, "minimum", ht_json_integer(s->low));
    if (whole || s->high != INT64_MAX) set(d, out, "maximum", ht_json_integer(s->high));
    return out;
}

static ht_json *flag_schema(document *d, const serve_shape *s) {
    ht_json *out = ht_json_pack("{ss}", "type", "boolean");
    if (s->on) set(d, out, "const", ht_json_boolean(true));
    return out;
}

static ht_json *text_schema(document *d, const serve_shape *s) {
    ht_json *out = ht_json_pack("{ss}", "type", "string");
    if (s->filled) set(d, out, "minLength", ht_json_integer(1));
    if (s->pattern) set(d, out, "pattern", ht_json_string(s->pattern));
    if (!s->words) return out;
    if (s->words[0] && !s->words[1]) {
        set(d, out, "const", ht_json_string(s->words[0]));
        return out;
    }
    ht_json *words = ht_json_new_array();
    for (size_t i = 0; s->words[i]; i++) append(d, words, ht_json_string(s->words[i]));
    set(d, out, "enum", words);
    return out;
}

static ht_json *list_schema(document *d, const serve_shape *s) {
    ht_json *out = ht_json_pack("{ss}", "type", "array");
    if (s->fewest) set(d, out, "minItems", ht_json_integer((int64_t)s->fewest));
    if (s->most) set(d, out, "maxItems", ht_json_integer((int64_t)s->most));
    set(d, out, "items", s->item ? schema_of(d, s->item, false) : ht_json_new_object());
    return out;
}

static ht_json *member_schema(document *d, const serve_field *field) {
    if (field->class == SERVE_NOTED) return ht_json_pack("{ss}", "description", "has no effect");
    if (field->class == SERVE_USED || field->is.types) return schema_of(d, &field->is, !field->required);
    return ht_json_pack("{ss s[{ss} {ss sb} {ss si} {ss si} {ss si s{}} {ss si}]}", "description",
                        "not there: values that ask for nothing are taken", "anyOf", "type", "null", "type", "boolean",
                        "const", 0, "type", "number", "const", 0, "type", "string", "maxLength", 0, "type", "array",
                        "maxItems", 0, "items", "type", "object", "maxProperties", 0);
}

/* Adds the fields of a table to an object's schema. */
static void add_members(document *d, ht_json *to, const serve_field *field, bool lenient) {
    ht_json *properties = ht_json_object_get(to, "properties"), *required = ht_json_object_get(to, "required");
    for (; field->name; field++) {
        const char *const one[] = {field->more ? NULL : field->name, NULL};
        if (field->more) add_members(d, to, field->more, lenient);
        for (const char *const *name = field->names ? field->names : one; *name; name++) {
            if (ht_json_object_get(properties, *name)) continue;
            set(d, properties, *name, member_schema(d, field));
            if (field->required) append(d, required, ht_json_string(*name));
        }
    }
    if (d->server->o.strict_params && !lenient) set(d, to, "additionalProperties", ht_json_boolean(false));
}

static ht_json *new_object(void) { return ht_json_pack("{ss s{} s[]}", "type", "object", "properties", "required"); }

static ht_json *kind_schema(document *d, const serve_shape *s, const serve_kind *kind, const char *tag) {
    const bool may_lack = kind == s->kinds && s->first_kind;
    ht_json *out = new_object();
    set(d, ht_json_object_get(out, "properties"), tag,
        may_lack ? ht_json_pack("{s[sn]}", "enum", kind->type)
                 : ht_json_pack("{ss ss}", "type", "string", "const", kind->type));
    if (!may_lack) append(d, ht_json_object_get(out, "required"), ht_json_string(tag));
    add_members(d, out, kind->members, s->lenient);
    return out;
}

static ht_json *other_kinds_schema(document *d, const serve_shape *s, const char *tag) {
    ht_json *out = new_object(), *known = ht_json_new_array();
    for (const serve_kind *kind = s->kinds; kind->type; kind++) append(d, known, ht_json_string(kind->type));
    set(d, ht_json_object_get(out, "properties"), tag,
        ht_json_pack("{ss s{so}}", "type", "string", "not", "enum", known));
    append(d, ht_json_object_get(out, "required"), ht_json_string(tag));
    return out;
}

static ht_json *kinds_schema(document *d, const serve_shape *s) {
    const char *tag = s->tag ? s->tag : "type";
    ht_json *any = ht_json_new_array();
    for (const serve_kind *kind = s->kinds; kind->type; kind++) append(d, any, kind_schema(d, s, kind, tag));
    if (s->other_kinds) append(d, any, other_kinds_schema(d, s, tag));
    return ht_json_pack("{so}", "anyOf", any);
}

static ht_json *object_schema(document *d, const serve_shape *s) {
    if (s->kinds) return kinds_schema(d, s);
    ht_json *out = s->members ? new_object() : ht_json_pack("{ss}", "type", "object");
    if (s->members) add_members(d, out, s->members, s->lenient);
    if (s->every) set(d, out, "additionalProperties", schema_of(d, s->every, false));
    return out;
}

/* Consumes a list of schemas: their union, or the schema itself if there is only one. */
static ht_json *any_of(ht_json *any) {
    ht_json *out = ht_json_array_size(any) == 1 ? ht_json_incref(ht_json_array_get(any, 0))
                   : ht_json_array_size(any)    ? ht_json_pack("{sO}", "anyOf", any)
                                                : ht_json_new_object();
    ht_json_decref(any);
    return out;
}

/* Appends the schemas of all allowed values except null. */
static void add_values(document *d, const serve_shape *s, ht_json *any) {
    if (s->types & SERVE_JSON_NUMBER)
        append(d, any, number_schema(d, s, false));
    else if (s->types & SERVE_JSON_INTEGER)
        append(d, any, number_schema(d, s, true));
    if (s->types & SERVE_JSON_FLAG) append(d, any, flag_schema(d, s));
    if (s->types & SERVE_JSON_TEXT) append(d, any, text_schema(d, s));
    if (s->types & SERVE_JSON_LIST) append(d, any, list_schema(d, s));
    if (s->types & SERVE_JSON_OBJECT) append(d, any, object_schema(d, s));
}

static ht_json *schema_of(document *d, const serve_shape *s, bool nullable) {
    ht_json *any = ht_json_new_array();
    add_values(d, s, any);
    if (s->types && nullable) append(d, any, ht_json_pack("{ss}", "type", "null"));
    return any_of(any);
}

/* ---- operations ---- */

/* Adds {type: {"schema": ...}} with the recorded schema. */
static void set_content(document *d, ht_json *content, const char *response, const char *type) {
    char name[160];
    snprintf(name, sizeof name, "%s %s", response, type);
    set(d, content, type, ht_json_pack("{sO}", "schema", ht_json_object_get(d->responses, name)));
}

static ht_json *failure(document *d, serve_dialect_name dialect, const char *description) {
    static const char *const names[] = {
        [SERVE_OPENAI] = "failure OpenAI", [SERVE_ANTHROPIC] = "failure Anthropic", [SERVE_OLLAMA] = "failure Ollama"};
    ht_json *content = ht_json_new_object();
    set_content(d, content, names[dialect], "application/json");
    return ht_json_pack("{ss so}", "description", description, "content", content);
}

/* Writes the OpenAPI path, "/slots/{id_slot}" for "/slots/\*". */
static void path_of(const serve_route *r, char out[96]) {
    const size_t n = strlen(r->path);
    if (r->rest)
        snprintf(out, 96, "%.*s{%s}", (int)n - 1, r->path, r->rest->name);
    else
        snprintf(out, 96, "%s", r->path);
}

static ht_json *responses(document *d, const serve_route *r) {
    ht_json *content = ht_json_new_object(), *out;
    const bool lines = r->dialect == SERVE_OLLAMA;
    const serve_route *first = serve_routes; /* schemas are recorded under the first alias */
    while (first->run != r->run) first++;
    char path[96], name[112];
    path_of(first, path);
    snprintf(name, sizeof name, "%s %s", r->method, path);
    const char *description = !r->streams ? "the response"
                              : lines     ? "the response, or a stream: its schema is that of each line"
                                          : "the response, or a stream: its schema is that of each event";
    set_content(d, content, name, r->type ? r->type : "application/json");
    if (r->other_type) set_content(d, content, name, r->other_type);
    if (r->streams) set_content(d, content, name, lines ? "application/x-ndjson" : "text/event-stream");
    out = ht_json_pack("{s{ss so}}", "200", "description", description, "content", content);
    set(d, out, "4XX", failure(d, r->dialect, "the request is wrong"));
    set(d, out, "5XX", failure(d, r->dialect, "the server could not answer"));
    return out;
}

static ht_json *parameter(document *d, const char *name, const char *where, bool required, const serve_shape *s) {
    return ht_json_pack("{ss ss sb so}", "name", name, "in", where, "required", (int)required, "schema",
                        schema_of(d, s, false));
}

static ht_json *operation(document *d, const serve_route *r) {
    ht_json *out = ht_json_pack("{ss so}", "summary", r->summary, "responses", responses(d, r));
    ht_json *parameters = ht_json_new_array();
    if (r->rest) append(d, parameters, parameter(d, r->rest->name, "path", true, &r->rest->is));
    for (const serve_field *q = r->query; q && q->name; q++)
        append(d, parameters, parameter(d, q->name, "query", q->required, &q->is));
    set(d, out, "parameters", parameters);
    if (r->fields) {
        ht_json *body = new_object();
        add_members(d, body, r->fields, false);
        const bool required = (r->flags & SERVE_SAYS) || ht_json_array_size(ht_json_object_get(body, "required")) > 0;
        set(d, out, "requestBody",
            ht_json_pack("{sb s{s{so}}}", "required", (int)required, "content", "application/json", "schema", body));
    }
    if (r->flags & SERVE_OPEN) set(d, out, "security", ht_json_new_array());
    return out;
}

static ht_json *paths(document *d) {
    ht_json *out = ht_json_new_object();
    for (const serve_route *r = serve_routes; r->method; r++) {
        char path[96], method[8] = "";
        if (r->flags & SERVE_REFUSES) continue;
        path_of(r, path);
        for (size_t i = 0; r->method[i] && i + 1 < sizeof method; i++) method[i] = (char)(r->method[i] | 0x20);
        if (!ht_json_object_get(out, path)) set(d, out, path, ht_json_new_object());
        set(d, ht_json_object_get(out, path), method, operation(d, r));
    }
    return out;
}

/* ---- the document ---- */

bool serve_openapi(serve_call *c) {
    document d = {.server = c->server, .responses = ht_json_of(serve_responses_json, strlen(serve_responses_json))};
    ht_json *schemes = ht_json_pack("{s{ss ss} s{ss ss ss}}", "bearer", "type", "http", "scheme", "bearer", "key",
                                    "type", "apiKey", "in", "header", "name", "x-api-key");
    ht_json *out =
        ht_json_pack("{ss s{ss ss ss} so s{so}}", "openapi", "3.1.0", "info", "title", "hearth serve", "version",
                     ht_version(), "description",
                     "Language models on this machine, by the interfaces of OpenAI, Anthropic, Ollama and llama-server",
                     "paths", paths(&d), "components", "securitySchemes", schemes);
    ht_json_decref(d.responses);
    if (c->server->keys) set(&d, out, "security", ht_json_pack("[{s[]} {s[]}]", "bearer", "key"));
    if (d.failed || !out) {
        ht_json_decref(out);
        return serve_fail_memory(&c->failure);
    }
    serve_reply_json(c->x, 200, out, SERVE_OPENAI);
    return true;
}
