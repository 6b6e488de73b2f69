#include "serve/openapi.h"

#include <hearth/version.h>

#include <string.h>

/* A document that is being written. */
typedef struct document {
    const serve_server *server;
    json_t *schemas; /* of shapes with names, by them */
    bool failed;     /* memory ran out */
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

static json_t *reference(document *d, const char *name) {
    char where[96];
    snprintf(where, sizeof where, "#/components/schemas/%s", name);
    json_t *out = json_pack("{ss}", "$ref", where);
    if (!out) d->failed = true;
    return out;
}

static json_t *number_schema(document *d, const serve_shape *s, bool whole) {
    json_t *out = json_pack("{ss}", "type", whole ? "integer" : "number");
    const bool any = !s->low && !s->high, small = !any && s->low >= INT32_MIN && s->high <= INT32_MAX;
    if (any) return out;
    if (whole) set(d, out, "format", json_string(small ? "int32" : "int64"));
    /* Whole numbers of more than 64 bits are none that could be kept. */
    if (whole || s->low != INT64_MIN) set(d, out, "minimum", json_integer(s->low));
    if (whole || s->high != INT64_MAX) set(d, out, "maximum", json_integer(s->high));
    return out;
}

static json_t *flag_schema(document *d, const serve_shape *s) {
    json_t *out = json_pack("{ss}", "type", "boolean");
    if (s->on || s->off) set(d, out, "const", json_boolean(s->on));
    return out;
}

static json_t *text_schema(document *d, const serve_shape *s) {
    json_t *out = json_pack("{ss}", "type", "string");
    if (s->filled) set(d, out, "minLength", json_integer(1));
    if (s->pattern) set(d, out, "pattern", json_string(s->pattern));
    if (!s->words) return out;
    if (s->words[0] && !s->words[1]) {
        set(d, out, "const", json_string(s->words[0]));
        return out;
    }
    json_t *words = json_array();
    for (size_t i = 0; s->words[i]; i++) append(d, words, json_string(s->words[i]));
    set(d, out, "enum", words);
    return out;
}

static json_t *list_schema(document *d, const serve_shape *s) {
    json_t *out = json_pack("{ss}", "type", "array");
    if (s->fewest) set(d, out, "minItems", json_integer((json_int_t)s->fewest));
    if (s->most) set(d, out, "maxItems", json_integer((json_int_t)s->most));
    set(d, out, "items", s->item ? schema_of(d, s->item, false) : json_object());
    return out;
}

static json_t *member_schema(document *d, const serve_field *field) {
    if (field->class == SERVE_NOTED) return json_pack("{ss}", "description", "has no effect");
    if (field->class == SERVE_TOLD) return schema_of(d, &field->is, false);
    if (field->class == SERVE_USED || field->is.types) return schema_of(d, &field->is, !field->required);
    return json_pack("{ss s[{ss} {ss sb} {ss si} {ss si} {ss si s{}} {ss si}]}", "description",
                     "not there: values that ask for nothing are taken", "anyOf", "type", "null", "type", "boolean",
                     "const", 0, "type", "number", "const", 0, "type", "string", "maxLength", 0, "type", "array",
                     "maxItems", 0, "items", "type", "object", "maxProperties", 0);
}

/* Adds the members of tables to an object's schema; the first of several with one name counts. Answers may have more members some day. */
static void add_members(document *d, json_t *to, const serve_field *const *tables, bool lenient) {
    json_t *properties = json_object_get(to, "properties"), *required = json_object_get(to, "required");
    bool closed = d->server->o.strict_params && !lenient;
    for (; *tables; tables++)
        for (const serve_field *field = *tables; field->name; field++) {
            closed = closed && field->class != SERVE_TOLD;
            if (json_object_get(properties, field->name)) continue;
            set(d, properties, field->name, member_schema(d, field));
            if (field->required) append(d, required, json_string(field->name));
        }
    if (closed) set(d, to, "additionalProperties", json_false());
}

static json_t *new_object(void) { return json_pack("{ss s{} s[]}", "type", "object", "properties", "required"); }

static json_t *kind_schema(document *d, const char *type, const serve_field *const *members, const char *tag,
                           bool may_lack, bool lenient) {
    json_t *out = new_object();
    set(d, json_object_get(out, "properties"), tag,
        may_lack ? json_pack("{s[sn]}", "enum", type) : json_pack("{ss ss}", "type", "string", "const", type));
    if (!may_lack) append(d, json_object_get(out, "required"), json_string(tag));
    add_members(d, out, members, lenient);
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
    for (const serve_kind *kind = s->kinds; kind->type; kind++) {
        const bool may_lack = kind == s->kinds && s->first_kind;
        append(d, any, kind_schema(d, kind->type, kind->members, tag, may_lack, s->lenient));
    }
    if (s->other_kinds) append(d, any, other_kinds_schema(d, s, tag));
    return json_pack("{so}", "anyOf", any);
}

/* Programs that write clients make a type of each. */
static json_t *named_kinds_schema(document *d, const serve_shape *s) {
    const char *tag = s->tag ? s->tag : "type";
    json_t *any = json_array(), *mapping = json_object();
    for (const serve_named_kind *kind = s->named; kind->type; kind++) {
        json_t *one = reference(d, kind->name);
        set(d, d->schemas, kind->name, kind_schema(d, kind->type, kind->members, tag, false, true));
        set(d, mapping, kind->type, json_incref(json_object_get(one, "$ref")));
        append(d, any, one);
    }
    return json_pack("{so s{ss so}}", "anyOf", any, "discriminator", "propertyName", tag, "mapping", mapping);
}

static json_t *object_schema(document *d, const serve_shape *s) {
    if (s->kinds) return kinds_schema(d, s);
    if (s->named) return named_kinds_schema(d, s);
    json_t *out = s->members ? new_object() : json_pack("{ss}", "type", "object");
    if (s->members) add_members(d, out, s->members, s->lenient);
    if (s->every) set(d, out, "additionalProperties", schema_of(d, s->every, false));
    return out;
}

/* One of the schemas, which are taken. */
static json_t *any_of(json_t *any) {
    json_t *out = json_array_size(any) == 1 ? json_incref(json_array_get(any, 0))
                  : json_array_size(any)    ? json_pack("{sO}", "anyOf", any)
                                            : json_object();
    json_decref(any);
    return out;
}

/* Appends the schemas of its values but null. */
static void add_values(document *d, const serve_shape *s, json_t *any) {
    if (s->types & SERVE_JSON_NUMBER)
        append(d, any, number_schema(d, s, false));
    else if (s->types & SERVE_JSON_INTEGER)
        append(d, any, number_schema(d, s, true));
    if (s->types & SERVE_JSON_FLAG) append(d, any, flag_schema(d, s));
    if (s->types & SERVE_JSON_TEXT) append(d, any, text_schema(d, s));
    if (s->types & SERVE_JSON_LIST) append(d, any, list_schema(d, s));
    if (s->types & SERVE_JSON_OBJECT) append(d, any, object_schema(d, s));
    for (size_t i = 0; s->either && s->either[i]; i++) append(d, any, schema_of(d, s->either[i], false));
}

static json_t *schema_of(document *d, const serve_shape *s, bool nullable) {
    json_t *any = json_array();
    if (s->name && !json_object_get(d->schemas, s->name)) {
        json_t *values = json_array();
        add_values(d, s, values);
        set(d, d->schemas, s->name, any_of(values));
    }
    if (s->name)
        append(d, any, reference(d, s->name));
    else
        add_values(d, s, any);
    const bool constrained = s->types || s->either;
    if (s->types & SERVE_JSON_NULL || (constrained && nullable)) append(d, any, json_pack("{ss}", "type", "null"));
    return any_of(any);
}

/* ---- operations ---- */

static json_t *error_response(document *d, serve_dialect_name dialect, const char *description) {
    return json_pack("{ss s{s{so}}}", "description", description, "content", "application/json", "schema",
                     schema_of(d, &serve_failure_shapes[dialect], false));
}

/* Takes the schema. */
static void set_content(document *d, json_t *content, const char *type, json_t *schema) {
    set(d, content, type, json_pack("{so}", "schema", schema));
}

/* An event of a stream as OpenAPI 3.2 has it for an `itemSchema`, which 3.1 lacks: an object of its fields, whose data is a text that is JSON. */
static json_t *event_schema(document *d, const serve_route *r) {
    json_t *data = json_pack("{ss ss so}", "type", "string", "contentMediaType", "application/json", "contentSchema",
                             schema_of(d, r->event, false));
    if (r->last_event) data = json_pack("{s[o {ss ss}]}", "anyOf", data, "type", "string", "const", r->last_event);
    json_t *out = new_object();
    if (r->event->named) { /* their type is their name, too */
        set(d, json_object_get(out, "properties"), "event", json_pack("{ss}", "type", "string"));
        append(d, json_object_get(out, "required"), json_string("event"));
    }
    set(d, json_object_get(out, "properties"), "data", data);
    append(d, json_object_get(out, "required"), json_string("data"));
    return out;
}

static json_t *responses(document *d, const serve_route *r) {
    json_t *content = json_object(), *out;
    const bool lines = r->dialect == SERVE_OLLAMA;
    const char *description = !r->event ? "the answer"
                              : lines   ? "the answer, or a stream: its schema is that of each line"
                                        : "the answer, or a stream: its schema is that of each event";
    set_content(d, content, r->type ? r->type : "application/json",
                schema_of(d, r->type ? &serve_any_text : r->answer, false));
    if (r->other_type) set_content(d, content, r->other_type, schema_of(d, &serve_any_text, false));
    if (r->event && lines) set_content(d, content, "application/x-ndjson", schema_of(d, r->event, false));
    if (r->event && !lines) set_content(d, content, "text/event-stream", event_schema(d, r));
    out = json_pack("{s{ss so}}", "200", "description", description, "content", content);
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
        const bool required = (r->flags & SERVE_SAYS) || json_array_size(json_object_get(body, "required")) > 0;
        set(d, out, "requestBody",
            json_pack("{sb s{s{so}}}", "required", (int)required, "content", "application/json", "schema", body));
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

static const serve_field info_members[] = {SERVE_HAS("title", SERVE_IS_TEXT),
                                           SERVE_HAS("version", SERVE_IS_TEXT),
                                           SERVE_HAS("description", SERVE_IS_TEXT),
                                           {0}},
                         component_members[] = {SERVE_HAS("schemas", {.types = SERVE_JSON_OBJECT}),
                                                SERVE_HAS("securitySchemes", {.types = SERVE_JSON_OBJECT}),
                                                {0}};
static const serve_shape security_shape = {.types = SERVE_JSON_OBJECT};
static const serve_field members[] = {
    SERVE_HAS("openapi", SERVE_IS_ONE_OF("3.1.0")),
    SERVE_HAS("info", SERVE_IS_NAMED("DescriptionInfo", info_members)),
    SERVE_HAS("paths", {.types = SERVE_JSON_OBJECT}),
    SERVE_HAS("components", SERVE_IS_NAMED("DescriptionComponents", component_members)),
    SERVE_MAY_HAVE("security", SERVE_IS_LIST(&security_shape)), /* where there are keys */
    {0}};
const serve_shape serve_openapi_answer = SERVE_IS_NAMED("Description", members);

bool serve_openapi(serve_call *c) {
    document d = {.server = c->server, .schemas = json_object()};
    json_t *schemes = json_pack("{s{ss ss} s{ss ss ss}}", "bearer", "type", "http", "scheme", "bearer", "key", "type",
                                "apiKey", "in", "header", "name", "x-api-key");
    json_t *out =
        json_pack("{ss s{ss ss ss} so s{so so}}", "openapi", "3.1.0", "info", "title", "hearth serve", "version",
                  ht_version(), "description",
                  "Language models on this machine, by the interfaces of OpenAI, Anthropic, Ollama and llama-server",
                  "paths", paths(&d), "components", "schemas", d.schemas, "securitySchemes", schemes);
    if (c->server->keys) set(&d, out, "security", json_pack("[{s[]} {s[]}]", "bearer", "key"));
    if (d.failed || !out) {
        json_decref(out);
        return serve_fail_memory(&c->failure);
    }
    serve_reply_json(c->x, 200, out, SERVE_OPENAI);
    return true;
}
