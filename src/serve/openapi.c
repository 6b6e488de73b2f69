#include "serve/openapi.h"

#include <hearth/version.h>

#include <string.h>

/* A document that is being written. */
typedef struct document {
    const serve_server *server;
    bool failed; /* memory ran out */
} document;

/* Both take the value. */
static void set(document *d, json_t *object, const char *name, json_t *value) {
    if (json_object_set_new(object, name, value)) d->failed = true;
}

static void append(document *d, json_t *list, json_t *value) {
    if (json_array_append_new(list, value)) d->failed = true;
}

/* ---- shapes as JSON schemas ---- */

static json_t *schema_of(document *d, const serve_shape *s, bool nullable);

static json_t *number_schema(document *d, const serve_shape *s, bool whole) {
    json_t *out = json_pack("{ss}", "type", whole ? "integer" : "number");
    const bool any = !s->low && !s->high;
    /* Whole numbers of more than 64 bits are none that could be kept. */
    if (whole || (!any && s->low != INT64_MIN)) set(d, out, "minimum", json_integer(any ? INT64_MIN : s->low));
    if (whole || (!any && s->high != INT64_MAX)) set(d, out, "maximum", json_integer(any ? INT64_MAX : s->high));
    return out;
}

static json_t *flag_schema(document *d, const serve_shape *s) {
    json_t *out = json_pack("{ss}", "type", "boolean");
    if (s->on) set(d, out, "const", json_true());
    return out;
}

static json_t *text_schema(document *d, const serve_shape *s) {
    json_t *out = json_pack("{ss}", "type", "string");
    if (s->filled) set(d, out, "minLength", json_integer(1));
    if (s->pattern) set(d, out, "pattern", json_string(s->pattern));
    if (!s->words) return out;
    json_t *words = json_array();
    for (size_t i = 0; s->words[i]; i++) append(d, words, json_string(s->words[i]));
    set(d, out, "enum", words);
    return out;
}

static json_t *list_schema(document *d, const serve_shape *s) {
    json_t *out = json_pack("{ss}", "type", "array");
    if (s->fewest) set(d, out, "minItems", json_integer((json_int_t)s->fewest));
    if (s->most) set(d, out, "maxItems", json_integer((json_int_t)s->most));
    if (s->item) set(d, out, "items", schema_of(d, s->item, false));
    return out;
}

static json_t *member_schema(document *d, const serve_field *field) {
    if (field->class == SERVE_NOTED) return json_pack("{ss}", "description", "has no effect");
    if (field->class == SERVE_USED || field->is.types) return schema_of(d, &field->is, !field->required);
    json_t *out = json_pack("{s[n b i s [] {}]}", "enum", 0, 0, "");
    set(d, out, "description", json_string("not there: values that ask for nothing are taken"));
    return out;
}

/* Adds the members of tables to an object's schema; the first of several with one name counts. */
static void add_members(document *d, json_t *to, const serve_field *const *tables, bool lenient) {
    json_t *properties = json_object_get(to, "properties"), *required = json_object_get(to, "required");
    for (; *tables; tables++)
        for (const serve_field *field = *tables; field->name; field++) {
            if (json_object_get(properties, field->name)) continue;
            set(d, properties, field->name, member_schema(d, field));
            if (field->required) append(d, required, json_string(field->name));
        }
    if (d->server->o.strict_params && !lenient) set(d, to, "additionalProperties", json_false());
}

static json_t *new_object(void) { return json_pack("{ss s{} s[]}", "type", "object", "properties", "required"); }

static json_t *kind_schema(document *d, const serve_shape *s, const serve_kind *kind, const char *tag) {
    json_t *out = new_object();
    const bool may_lack = kind == s->kinds && s->first_kind;
    set(d, json_object_get(out, "properties"), tag,
        may_lack ? json_pack("{s[sn]}", "enum", kind->type) : json_pack("{ss}", "const", kind->type));
    if (!may_lack) append(d, json_object_get(out, "required"), json_string(tag));
    add_members(d, out, kind->members, s->lenient);
    return out;
}

static json_t *other_kinds_schema(document *d, const serve_shape *s, const char *tag) {
    json_t *out = new_object(), *known = json_array();
    for (const serve_kind *kind = s->kinds; kind->type; kind++) append(d, known, json_string(kind->type));
    set(d, json_object_get(out, "properties"), tag, json_pack("{ss s{so}}", "type", "string", "not", "enum", known));
    append(d, json_object_get(out, "required"), json_string(tag));
    return out;
}

static json_t *kinds_schema(document *d, const serve_shape *s) {
    const char *tag = s->tag ? s->tag : "type";
    json_t *any = json_array();
    for (const serve_kind *kind = s->kinds; kind->type; kind++) append(d, any, kind_schema(d, s, kind, tag));
    if (s->other_kinds) append(d, any, other_kinds_schema(d, s, tag));
    return json_pack("{so}", "anyOf", any);
}

static json_t *object_schema(document *d, const serve_shape *s) {
    if (s->kinds) return kinds_schema(d, s);
    json_t *out = s->members ? new_object() : json_pack("{ss}", "type", "object");
    if (s->members) add_members(d, out, s->members, s->lenient);
    if (s->every) set(d, out, "additionalProperties", schema_of(d, s->every, false));
    return out;
}

static json_t *schema_of(document *d, const serve_shape *s, bool nullable) {
    json_t *any = json_array();
    if (s->types & SERVE_JSON_NUMBER)
        append(d, any, number_schema(d, s, false));
    else if (s->types & SERVE_JSON_INTEGER)
        append(d, any, number_schema(d, s, true));
    if (s->types & SERVE_JSON_FLAG) append(d, any, flag_schema(d, s));
    if (s->types & SERVE_JSON_TEXT) append(d, any, text_schema(d, s));
    if (s->types & SERVE_JSON_LIST) append(d, any, list_schema(d, s));
    if (s->types & SERVE_JSON_OBJECT) append(d, any, object_schema(d, s));
    if (s->types && nullable) append(d, any, json_pack("{ss}", "type", "null"));
    json_t *out = json_array_size(any) == 1 ? json_incref(json_array_get(any, 0))
                  : json_array_size(any)    ? json_pack("{sO}", "anyOf", any)
                                            : json_object();
    json_decref(any);
    return out;
}

/* ---- operations ---- */

static const char *const error_names[] = {
    [SERVE_OPENAI] = "OpenAIError", [SERVE_ANTHROPIC] = "AnthropicError", [SERVE_OLLAMA] = "OllamaError"};

static json_t *error_response(document *d, serve_dialect_name dialect, const char *description) {
    char reference[64];
    snprintf(reference, sizeof reference, "#/components/schemas/%s", error_names[dialect]);
    json_t *out = json_pack("{ss s{s{s{ss}}}}", "description", description, "content", "application/json", "schema",
                            "$ref", reference);
    if (!out) d->failed = true;
    return out;
}

static json_t *responses(document *d, const serve_route *r) {
    json_t *content = json_object(), *out;
    const char *streams = r->dialect == SERVE_OLLAMA ? "application/x-ndjson" : "text/event-stream";
    set(d, content, r->type ? r->type : "application/json", json_object());
    if (r->other_type) set(d, content, r->other_type, json_object());
    if (r->flags & SERVE_STREAMS) set(d, content, streams, json_object());
    out = json_pack("{s{ss so}}", "200", "description", "the answer", "content", content);
    set(d, out, "4XX", error_response(d, r->dialect, "the request is wrong"));
    set(d, out, "5XX", error_response(d, r->dialect, "the server could not answer"));
    return out;
}

static json_t *parameter(document *d, const char *name, const char *where, bool required, const serve_shape *s) {
    return json_pack("{ss ss sb so}", "name", name, "in", where, "required", (int)required, "schema",
                     schema_of(d, s, false));
}

static json_t *operation(document *d, const serve_route *r) {
    json_t *out = json_pack("{ss so}", "summary", r->summary, "responses", responses(d, r));
    json_t *parameters = json_array();
    if (r->rest) append(d, parameters, parameter(d, r->rest->name, "path", true, &r->rest->is));
    for (const serve_field *q = r->query; q && q->name; q++)
        append(d, parameters, parameter(d, q->name, "query", q->required, &q->is));
    set(d, out, "parameters", parameters);
    if (r->fields) {
        json_t *body = new_object();
        add_members(d, body, r->fields, false);
        set(d, out, "requestBody",
            json_pack("{sb s{s{so}}}", "required", json_array_size(json_object_get(body, "required")) > 0, "content",
                      "application/json", "schema", body));
    }
    if (r->flags & SERVE_OPEN) set(d, out, "security", json_array());
    return out;
}

/* "/slots/{id_slot}" of "/slots/\*". */
static void path_of(const serve_route *r, char out[96]) {
    const size_t n = strlen(r->path);
    if (r->rest)
        snprintf(out, 96, "%.*s{%s}", (int)n - 1, r->path, r->rest->name);
    else
        snprintf(out, 96, "%s", r->path);
}

static json_t *paths(document *d) {
    json_t *out = json_object();
    for (const serve_route *r = serve_routes; r->method; r++) {
        char path[96], method[8] = "";
        if (r->flags & SERVE_REFUSES) continue;
        path_of(r, path);
        for (size_t i = 0; r->method[i] && i + 1 < sizeof method; i++) method[i] = (char)(r->method[i] | 0x20);
        if (!json_object_get(out, path)) set(d, out, path, json_object());
        set(d, json_object_get(out, path), method, operation(d, r));
    }
    return out;
}

/* ---- the whole ---- */

static json_t *error_schemas(void) {
    return json_pack("{s{ss s{s{ss s[ss] s{s{ss} s{ss}}}} s[s]} s{ss s{s{ss} s{ss}} s[ss]} s{ss s{s{ss}} s[s]}}",
                     error_names[SERVE_OPENAI], "type", "object", "properties", "error", "type", "object", "required",
                     "message", "type", "properties", "message", "type", "string", "type", "type", "string", "required",
                     "error", error_names[SERVE_ANTHROPIC], "type", "object", "properties", "type", "const", "error",
                     "error", "type", "object", "required", "type", "error", error_names[SERVE_OLLAMA], "type",
                     "object", "properties", "error", "type", "string", "required", "error");
}

bool serve_openapi(serve_call *c) {
    document d = {.server = c->server};
    json_t *schemes = json_pack("{s{ss ss} s{ss ss ss}}", "bearer", "type", "http", "scheme", "bearer", "key", "type",
                                "apiKey", "in", "header", "name", "x-api-key");
    json_t *out =
        json_pack("{ss s{ss ss ss} so s{so so}}", "openapi", "3.1.0", "info", "title", "hearth serve", "version",
                  ht_version(), "description",
                  "Language models on this machine, by the interfaces of OpenAI, Anthropic, Ollama and llama-server",
                  "paths", paths(&d), "components", "schemas", error_schemas(), "securitySchemes", schemes);
    if (c->server->keys) set(&d, out, "security", json_pack("[{s[]} {s[]}]", "bearer", "key"));
    if (d.failed || !out) {
        json_decref(out);
        return serve_fail_memory(&c->failure);
    }
    serve_reply_json(c->x, 200, out, SERVE_OPENAI);
    return true;
}
