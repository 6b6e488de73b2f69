/* Notations of thoughts and calls, as chat templates write them, and the readers of the calls. */
#include "base/text.h"
#include "chat/response.h"
#include "template/eval.h"

#include <stdlib.h>
#include <string.h>

/* ---- spans ---- */

/* Text that is still to be read. */
typedef struct span {
    const char *p;
    size_t n;
} span;

static void skip(span *s, size_t n) {
    s->p += n;
    s->n -= n;
}

static void skip_any(span *s, const char *characters) {
    while (s->n && strchr(characters, *s->p)) skip(s, 1);
}

static void skip_blanks(span *s) { skip_any(s, " \t\r\n"); }

static bool accept(span *s, const char *text) {
    const size_t n = strlen(text);
    if (s->n < n || memcmp(s->p, text, n) != 0) return false;
    skip(s, n);
    return true;
}

/* Reads up to and past `text`; `before` is what precedes it. False when it does not occur: nothing is read, `before` is all of s. */
static bool up_to(span *s, const char *text, span *before) {
    const size_t n = strlen(text);
    *before = *s;
    for (size_t i = 0; i + n <= s->n; i++)
        if (memcmp(s->p + i, text, n) == 0) {
            before->n = i;
            skip(s, i + n);
            return true;
        }
    return false;
}

static span trimmed(span s) {
    skip_blanks(&s);
    while (s.n && strchr(" \t\r\n", s.p[s.n - 1])) s.n--;
    return s;
}

/* Without the line ends that stand around a value on lines of its own. */
static span without_lines(span s) {
    if (s.n && s.p[0] == '\n') skip(&s, 1);
    if (s.n && s.p[s.n - 1] == '\n') s.n--;
    return s;
}

/* ---- values ---- */

static ht_jinja_value string_of(ht_call_reading *r, span s) {
    return ht_jinja_string_value(ht_jinja_string_new(r->a, s.p, s.n, true));
}

static const ht_jinja_value *member(ht_jinja_value v, const char *key) {
    return v.kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(v.dict, key, strlen(key)) : NULL;
}

static ht_jinja_value new_dict(ht_call_reading *r) {
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(r->a)};
}

static void set(ht_call_reading *r, ht_jinja_value dict, span key, ht_jinja_value v) {
    if (!r->a->status) ht_jinja_dict_set(r->a, dict.dict, string_of(r, key), v);
}

/* A text as JSON; undefined when it is none. */
static ht_jinja_value json_of(ht_call_reading *r, span s) {
    if (r->a->status) return ht_jinja_undefined();
    ht_jinja_value v = ht_jinja_json_loads(r->a, s.p, s.n, "a call");
    if (r->a->status == HT_ERR_FORMAT) r->a->status = HT_OK;
    return v;
}

/* The object or list at the beginning: an end that its brackets and strings tell. */
static bool extent(span *s, span *value) {
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < s->n; i++) {
        const char c = s->p[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else
                quoted = c != '"';
        } else if (c == '"')
            quoted = true;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (!depth && !quoted) {
            if (c != '}' && c != ']') return false;
            *value = (span){s->p, i + 1};
            skip(s, i + 1);
            return true;
        }
    }
    return false;
}

/* Names are words; what has blanks or quotes in it is a sentence about something else. */
static bool is_name(span s) {
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || strchr("\"'`<>{}()[],;", s.p[i])) return false;
    return s.n > 0;
}

/* Numbers too large for a float are no JSON. */
static bool is_finite(ht_jinja_value v) {
    bool finite = v.kind != HT_VALUE_FLOAT || v.real - v.real == 0;
    if (v.kind == HT_VALUE_LIST)
        for (size_t i = 0; i < v.list->n && finite; i++) finite = is_finite(v.list->items[i]);
    if (v.kind == HT_VALUE_DICT)
        for (size_t i = 0; i < v.dict->n && finite; i++) finite = is_finite(v.dict->values[i]);
    return finite;
}

bool ht_answer_is_object(ht_jinja_arena *a, const char *text, size_t n) {
    ht_call_reading r = {.a = a};
    const ht_jinja_value v = json_of(&r, (span){text, n});
    return v.kind == HT_VALUE_DICT && is_finite(v);
}

/* Adds a call; begun: as in ht_answer_call. */
static bool add_call(ht_call_reading *r, span name, ht_jinja_value arguments, const ht_jinja_string *begun,
                     const ht_jinja_string *id) {
    name = trimmed(name);
    if (!is_name(name) || arguments.kind != HT_VALUE_DICT || !is_finite(arguments)) return false;
    ht_answer_call *larger = ht_jinja_arena_grow(r->a, r->calls, r->n, sizeof *larger, &r->capacity);
    const ht_jinja_string *copy = ht_jinja_string_new(r->a, name.p, name.n, true);
    if (!larger || !copy) return false;
    r->calls = larger;
    r->calls[r->n++] = (ht_answer_call){copy, id, arguments, begun};
    return true;
}

static bool add(ht_call_reading *r, span name, ht_jinja_value arguments, const ht_jinja_string *id) {
    return add_call(r, name, arguments, NULL, id);
}

/* ---- calls that the end of the answer has cut ---- */

static bool may_become(span s, const char *text) {
    const size_t n = strlen(text);
    return memcmp(s.p, text, s.n < n ? s.n : n) == 0;
}

/* A call whose parameters so far are these; `rest` is behind them, and would go on as one of the texts. False where it does not: then it is no
 * call. */
static bool add_members(ht_call_reading *r, span name, ht_jinja_value members, span rest, const char *const *texts) {
    ht_jinja_rendering how = {.a = r->a};
    bool goes_on = !rest.n;
    for (; *texts && !goes_on; texts++) goes_on = may_become(rest, *texts);
    if (!r->takes_cut || !goes_on) return false;
    const ht_jinja_string *whole = ht_jinja_json_text(&how, members, NULL, NULL, NULL, false, false);
    const ht_jinja_string *begun = whole ? ht_jinja_string_new(r->a, whole->text, whole->n - 1, true) : NULL;
    return begun && add_call(r, name, members, begun, NULL);
}

/* A call whose arguments are the rest of the answer. A whole JSON object makes a whole call, since only marks can follow
 * it; the beginning of one makes a call that is cut. */
static bool add_rest(ht_call_reading *r, span name, span rest, const ht_jinja_string *id) {
    rest = trimmed(rest);
    span s = rest, value;
    if (rest.n && *rest.p != '{') return false;
    if (extent(&s, &value) && (r->takes_cut || (r->cut && !s.n))) return add(r, name, json_of(r, value), id);
    if (!r->takes_cut) return false;
    const ht_jinja_string *begun = ht_jinja_string_new(r->a, rest.p, rest.n, true);
    return begun && add_call(r, name, new_dict(r), begun, id);
}

/* ---- schemas ---- */

/* Whether the schema of a parameter says that it is a string; `known`: it says something. */
static bool is_text(const ht_call_reading *r, span tool, span parameter, bool *known) {
    *known = false;
    for (size_t i = 0; r->tools.kind == HT_VALUE_LIST && i < r->tools.list->n; i++) {
        ht_jinja_value t = r->tools.list->items[i];
        const ht_jinja_value *function = member(t, "function");
        if (function) t = *function;
        const ht_jinja_value *name = member(t, "name"), *schema = member(t, "parameters");
        if (!name || !ht_jinja_is_string(*name) || !schema || name->string->n != tool.n ||
            memcmp(name->string->text, tool.p, tool.n) != 0)
            continue;
        const ht_jinja_value *properties = member(*schema, "properties"), *property = NULL;
        if (properties && properties->kind == HT_VALUE_DICT)
            property = ht_jinja_dict_find_text(properties->dict, parameter.p, parameter.n);
        const ht_jinja_value *type = property ? member(*property, "type") : NULL;
        if (!type || !ht_jinja_is_string(*type)) return false;
        *known = true;
        return ht_jinja_string_is(type->string, "string");
    }
    return false;
}

static bool read_python_value(ht_call_reading *r, span s, ht_jinja_value *v);

/* A value that was written without quotes: a string where the schema says so, else what it is as JSON, or where the schema
 * wants no string, as Python has it; else a string. */
static ht_jinja_value bare_value(ht_call_reading *r, span tool, span parameter, span text) {
    bool known;
    if (is_text(r, tool, parameter, &known)) return string_of(r, text);
    const span s = trimmed(text);
    ht_jinja_value v = json_of(r, s);
    if (v.kind == HT_VALUE_UNDEFINED && !(known && read_python_value(r, s, &v))) v = string_of(r, text);
    return v;
}

/* ---- JSON ---- */

static const ht_jinja_value *first_of(ht_jinja_value v, const char *const *keys) {
    const ht_jinja_value *found = NULL;
    for (; *keys && !found; keys++) found = member(v, *keys);
    return found;
}

static bool add_object(ht_call_reading *r, ht_jinja_value v) {
    static const char *const names[] = {"name", "tool_name", NULL},
                             *const ids[] = {"id", "tool_call_id", "call_id", NULL},
                             *const arguments[] = {"arguments", "parameters", "args", NULL};
    const ht_jinja_value *id = first_of(v, ids), *function = member(v, "function");
    if (function && function->kind == HT_VALUE_DICT) v = *function;
    const ht_jinja_value *name = first_of(v, names), *given = first_of(v, arguments);
    if (v.kind != HT_VALUE_DICT) return false;
    if (!name && v.dict->n == 1) { /* {"name": {...}} */
        name = &v.dict->keys[0];
        given = &v.dict->values[0];
    }
    if (!name || !ht_jinja_is_string(*name)) return false;
    ht_jinja_value values = given ? *given : new_dict(r);
    if (ht_jinja_is_string(values)) values = json_of(r, (span){values.string->text, values.string->n});
    return add(r, (span){name->string->text, name->string->n}, values,
               id && ht_jinja_is_string(*id) ? id->string : NULL);
}

/* Objects, and lists of them, one after the other. */
static bool read_json(ht_call_reading *r, const char *text, size_t n) {
    span s = {text, n}, one;
    for (;;) {
        skip_any(&s, " \t\r\n,;");
        if (!s.n) return r->n > 0;
        if (!extent(&s, &one)) return false;
        ht_jinja_value v = json_of(r, one);
        if (v.kind == HT_VALUE_LIST) {
            for (size_t i = 0; i < v.list->n; i++)
                if (!add_object(r, v.list->items[i])) return false;
        } else if (!add_object(r, v))
            return false;
    }
}

bool ht_answer_is_name(const char *name, size_t n, const ht_jinja_value *tools) {
    bool found = !tools;
    for (size_t t = 0; tools && tools->kind == HT_VALUE_LIST && t < tools->list->n && !found; t++) {
        const ht_jinja_value *function = member(tools->list->items[t], "function");
        const ht_jinja_value *known = member(function ? *function : tools->list->items[t], "name");
        found =
            known && ht_jinja_is_string(*known) && known->string->n == n && memcmp(known->string->text, name, n) == 0;
    }
    return found && is_name((span){name, n});
}

/* An answer that may be about something else: every name has to be a tool's. */
static bool read_bare_json(ht_call_reading *r, const char *text, size_t n) {
    if (r->tools.kind != HT_VALUE_LIST || !read_json(r, text, n)) return false;
    for (size_t i = 0; i < r->n; i++)
        if (!ht_answer_is_name(r->calls[i].name->text, r->calls[i].name->n, &r->tools)) return false;
    return true;
}

/* ---- tags ---- */

/* <function=NAME><parameter=KEY>VALUE</parameter>...</function>, or JSON in the place of the parameters. */
static bool read_functions(ht_call_reading *r, const char *text, size_t n) {
    static const char *const behind[] = {"<parameter=", "</function>", NULL};
    span s = {text, n}, name, body, key, value;
    for (;;) {
        skip_blanks(&s);
        if (!s.n) return r->n > 0;
        if (!accept(&s, "<function=") || !up_to(&s, ">", &name)) return false;
        const bool is_cut = !up_to(&s, "</function>", &body);
        if (is_cut && !r->cut) return false;
        body = trimmed(body);
        ht_jinja_value arguments = new_dict(r);
        if (body.n && *body.p == '{') {
            if (is_cut) return add_rest(r, name, body, NULL);
            arguments = json_of(r, body);
            body.n = 0;
        }
        for (skip_blanks(&body); body.n; skip_blanks(&body)) {
            const span rest = body;
            if (!accept(&body, "<parameter=") || !up_to(&body, ">", &key) || !up_to(&body, "</parameter>", &value))
                return is_cut && add_members(r, name, arguments, rest, behind);
            set(r, arguments, key, bare_value(r, name, key, without_lines(value)));
        }
        if (is_cut) return add_members(r, name, arguments, body, behind);
        if (!add(r, name, arguments, NULL)) return false;
    }
}

/* The attribute ` name="..."` of a tag's text. */
static bool attribute(span tag, const char *name, span *value) {
    span before;
    return up_to(&tag, name, &before) && accept(&tag, "=\"") && up_to(&tag, "\"", value);
}

/* <invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>, the tags by whatever names, with whatever in front of
 * them; string="true" and CDATA make a value a string. */
static bool read_invokes(ht_call_reading *r, const char *text, size_t n) {
    static const char *const behind[] = {"<", NULL};
    span s = {text, n}, tag, inner, name, key, value, kind;
    char close[64];
    for (;;) {
        skip_blanks(&s);
        if (!s.n) return r->n > 0;
        if (!accept(&s, "<") || !up_to(&s, ">", &tag) || !attribute(tag, " name", &name)) return false;
        ht_jinja_value arguments = new_dict(r);
        for (;;) {
            skip_blanks(&s);
            const span rest = s;
            if (accept(&s, "</")) break;
            if (!accept(&s, "<") || !up_to(&s, ">", &inner)) return add_members(r, name, arguments, rest, behind);
            if (!attribute(inner, " name", &key)) return false;
            size_t n_tag = 0;
            while (n_tag < inner.n && inner.p[n_tag] != ' ') n_tag++;
            if (n_tag + 4 > sizeof close) return false;
            memcpy(close, "</", 2);
            memcpy(close + 2, inner.p, n_tag);
            memcpy(close + 2 + n_tag, ">", 2);
            if (!up_to(&s, close, &value)) return add_members(r, name, arguments, rest, behind);
            bool quoted = attribute(inner, " string", &kind) && kind.n == 4;
            span whole = value;
            if (accept(&whole, "<![CDATA[") && whole.n >= 3 && memcmp(whole.p + whole.n - 3, "]]>", 3) == 0) {
                value = (span){whole.p, whole.n - 3};
                quoted = true;
            }
            set(r, arguments, key, quoted ? string_of(r, value) : bare_value(r, name, key, value));
        }
        const bool is_closed = up_to(&s, ">", &tag);
        if ((!is_closed && !r->takes_cut) || !add(r, name, arguments, NULL)) return false;
        if (!is_closed) return true;
    }
}

/* NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... */
static bool read_pairs(ht_call_reading *r, const char *text, size_t n) {
    static const char *const behind[] = {"<arg_key>", NULL};
    span s = {text, n}, key, value;
    size_t length = 0;
    while (length < n && text[length] != '<' && text[length] != '\n') length++;
    const span name = trimmed((span){text, length});
    skip(&s, length);
    const bool has_name = s.n;
    ht_jinja_value arguments = new_dict(r);
    for (skip_blanks(&s); s.n; skip_blanks(&s)) {
        const span rest = s;
        bool is_pair = accept(&s, "<arg_key>") && up_to(&s, "</arg_key>", &key);
        skip_blanks(&s);
        is_pair = is_pair && accept(&s, "<arg_value>") && up_to(&s, "</arg_value>", &value);
        if (!is_pair) return r->cut && add_members(r, name, arguments, rest, behind);
        key = trimmed(key);
        set(r, arguments, key, bare_value(r, name, key, value));
    }
    if (r->cut) return has_name && add_members(r, name, arguments, s, behind);
    return add(r, name, arguments, NULL);
}

/* What models write between <tool_call> and </tool_call>. */
static bool read_tool_call(ht_call_reading *r, const char *text, size_t n) {
    const span s = trimmed((span){text, n});
    if (!s.n) return false;
    if (*s.p == '{' || *s.p == '[') return read_json(r, s.p, s.n);
    span function = s;
    if (accept(&function, "<function=")) return read_functions(r, s.p, s.n);
    if (accept(&function, "<function ") || accept(&function, "<invoke ")) return read_invokes(r, s.p, s.n);
    return read_pairs(r, s.p, s.n);
}

/* MiniCPM's, whose opening mark is a part of the first tag. */
static bool read_named_function(ht_call_reading *r, const char *text, size_t n) {
    static const char open[] = "<function name=";
    ht_jinja_builder b = {.arena = r->a};
    ht_jinja_put_text(&b, open);
    ht_jinja_put(&b, text, n, true);
    if (!r->cut) ht_jinja_put_text(&b, "</function>");
    const ht_jinja_string *whole = ht_jinja_built(&b);
    return whole && read_invokes(r, whole->text, whole->n);
}

static bool read_equals_function(ht_call_reading *r, const char *text, size_t n) {
    ht_jinja_builder b = {.arena = r->a};
    ht_jinja_put_text(&b, "<function=");
    ht_jinja_put(&b, text, n, true);
    if (!r->cut) ht_jinja_put_text(&b, "</function>");
    const ht_jinja_string *whole = ht_jinja_built(&b);
    return whole && read_functions(r, whole->text, whole->n);
}

/* ---- notations of one family ---- */

/* Mistral's: a list of JSON, or NAME[CALL_ID]ID[ARGS]JSON, again and again. */
static bool read_mistral(ht_call_reading *r, const char *text, size_t n) {
    span s = {text, n}, json, name;
    for (;;) {
        skip_blanks(&s);
        (void)accept(&s, "[TOOL_CALLS]");
        skip_blanks(&s);
        if (!s.n) return r->n > 0;
        if (*s.p == '[' || *s.p == '{') {
            if (!extent(&s, &json) || !read_json(r, json.p, json.n)) return false;
            continue;
        }
        size_t length = 0;
        while (length < s.n && s.p[length] != '[' && s.p[length] != '{') length++;
        name = (span){s.p, length};
        skip(&s, length);
        const bool has_name = s.n;
        const ht_jinja_string *id = NULL;
        if (accept(&s, "[CALL_ID]")) {
            for (length = 0; length < s.n && s.p[length] != '[' && s.p[length] != '{';) length++;
            id = ht_jinja_string_new(r->a, s.p, length, true);
            skip(&s, length);
        }
        if (!accept(&s, "[ARGS]") && r->takes_cut && s.n && *s.p == '[') {
            if (!may_become(s, "[ARGS]") && !may_become(s, "[CALL_ID]")) return false;
            s.n = 0;
        }
        skip_blanks(&s);
        if (!extent(&s, &json)) return has_name && add_rest(r, name, s, id);
        if (!add(r, name, json_of(r, json), id)) return false;
    }
}

#define BAR          "\xEF\xBD\x9C" /* U+FF5C */
#define UNDERLINE    "\xE2\x96\x81" /* U+2581 */
#define DS(a, b)     "<" BAR "tool" UNDERLINE a UNDERLINE b BAR ">"
#define DS_SEPARATOR "<" BAR "tool" UNDERLINE "sep" BAR ">"
#define DSML         BAR "DSML" BAR

/* DeepSeek's: NAME and JSON, or "function", the name and JSON within ```json. */
static bool read_deepseek(ht_call_reading *r, const char *text, size_t n) {
    span s = {text, n}, name, body, line, json;
    for (;;) {
        skip_blanks(&s);
        if (!s.n) return r->n > 0;
        if (!accept(&s, DS("call", "begin")) || !up_to(&s, DS_SEPARATOR, &name)) return false;
        const bool is_cut = !up_to(&s, DS("call", "end"), &body);
        if (up_to(&body, "```json", &line)) {
            name = line;
            if (!up_to(&body, "```", &json)) return is_cut && add_rest(r, name, body, NULL);
            body = json;
        }
        if (is_cut) return trimmed(body).n && add_rest(r, name, body, NULL);
        if (!add(r, name, json_of(r, trimmed(body)), NULL)) return false;
    }
}

/* Kimi's: the id says the name, "functions.NAME:INDEX". */
static bool read_kimi(ht_call_reading *r, const char *text, size_t n) {
    span s = {text, n}, id, json;
    for (;;) {
        skip_blanks(&s);
        if (!s.n) return r->n > 0;
        if (!accept(&s, "<|tool_call_begin|>") || !up_to(&s, "<|tool_call_argument_begin|>", &id)) return false;
        const bool is_cut = !up_to(&s, "<|tool_call_end|>", &json);
        id = trimmed(id);
        span name = id;
        (void)accept(&name, "functions.");
        while (name.n && name.p[name.n - 1] >= '0' && name.p[name.n - 1] <= '9') name.n--;
        if (!name.n || name.p[name.n - 1] != ':')
            name.n = (size_t)(id.p + id.n - name.p);
        else
            name.n--;
        if (is_cut) return add_rest(r, name, s, string_of(r, id).string);
        if (!add(r, name, json_of(r, trimmed(json)), string_of(r, id).string)) return false;
    }
}

/* Solar's: id, name and JSON. */
static bool read_solar(ht_call_reading *r, const char *text, size_t n) {
    span s = {text, n}, id, name, json;
    for (;;) {
        skip_blanks(&s);
        if (!s.n) return r->n > 0;
        if (!accept(&s, "<|tool_call:begin|>") || !up_to(&s, "<|tool_call:name|>", &id) ||
            !up_to(&s, "<|tool_call:args|>", &name))
            return false;
        if (!up_to(&s, "<|tool_call:end|>", &json)) return add_rest(r, name, s, string_of(r, id).string);
        if (!add(r, name, json_of(r, trimmed(json)), string_of(r, id).string)) return false;
    }
}

/* ---- literals ---- */

enum { LITERAL_DEPTH = 64 };

/* Values as Gemma writes them, strings within `quote` and keys bare, or as Python has them (`quote` NULL). */
typedef struct literal_reader {
    ht_call_reading *r;
    span s;
    const char *quote;
    int depth;
    bool may_go_on; /* a word at the end of the text may be the beginning of one */
} literal_reader;

static bool read_literal(literal_reader *l, ht_jinja_value *v);

/* The character of an escape behind its backslash, of which `s` begins with the letter and is moved past all of it; the
 * backslash itself, with nothing read, for what is none. */
static uint32_t read_escape(span *s) {
    static const char names[] = "abfnrtv0\\'\"", values[] = "\a\b\f\n\r\t\v\0\\'\"";
    const char c = *s->p, *at = c ? strchr(names, c) : NULL;
    if (at) {
        skip(s, 1);
        return (uint32_t)(unsigned char)values[at - names];
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    size_t n = 0;
    for (; n < digits && n + 1 < s->n; n++) {
        const char d = s->p[n + 1];
        const int value = d >= '0' && d <= '9'   ? d - '0'
                          : d >= 'a' && d <= 'f' ? d - 'a' + 10
                          : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                                 : -1;
        if (value < 0) break;
        code = code * 16 + (uint32_t)value;
    }
    if (!digits || n < digits) return '\\';
    skip(s, digits + 1);
    uint32_t low;
    span rest = *s;
    /* A pair of surrogates, as JSON writes one. */
    if (code >= 0xD800 && code < 0xDC00 && accept(&rest, "\\") && rest.n && *rest.p == 'u' &&
        (low = read_escape(&rest)) >= 0xDC00 && low < 0xE000) {
        *s = rest;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code;
}

/* A string in its quotes, as Python and JSON have them. */
static bool read_python_string(literal_reader *l, ht_jinja_value *v) {
    const char quote = *l->s.p;
    ht_text text = {0};
    for (skip(&l->s, 1); l->s.n && *l->s.p != quote;) {
        const char c = *l->s.p;
        skip(&l->s, 1);
        if (c == '\\' && l->s.n)
            ht_text_append_utf8(&text, read_escape(&l->s));
        else
            ht_text_append(&text, &c, 1);
    }
    const bool good = l->s.n && !text.failed;
    if (good) {
        skip(&l->s, 1);
        *v = string_of(l->r, (span){text.len ? text.data : "", text.len});
    }
    ht_text_discard(&text);
    return good;
}

static bool read_key(literal_reader *l, span *key, char end) {
    if (l->quote && accept(&l->s, l->quote)) {
        if (!up_to(&l->s, l->quote, key)) return false;
    } else {
        size_t n = 0;
        while (n < l->s.n && l->s.p[n] != end) n++;
        *key = trimmed((span){l->s.p, n});
        skip(&l->s, n);
        if (key->n > 1 && (*key->p == '\'' || *key->p == '"') && key->p[key->n - 1] == *key->p)
            *key = (span){key->p + 1, key->n - 2};
    }
    skip_blanks(&l->s);
    if (!l->s.n || *l->s.p != end) return false;
    skip(&l->s, 1);
    return true;
}

/* Members up to `close`, which is passed. */
static bool read_members(literal_reader *l, char separator, char close, ht_jinja_value *v) {
    *v = new_dict(l->r);
    for (;;) {
        span key;
        ht_jinja_value item;
        skip_any(&l->s, " \t\r\n,");
        if (!l->s.n) return false;
        if (*l->s.p == close) {
            skip(&l->s, 1);
            return true;
        }
        if (!read_key(l, &key, separator) || !read_literal(l, &item)) return false;
        set(l->r, *v, key, item);
    }
}

static bool read_items(literal_reader *l, char close, ht_jinja_value *v) {
    ht_jinja_list *list = ht_jinja_list_new(l->r->a, 0);
    for (;;) {
        ht_jinja_value item;
        skip_any(&l->s, " \t\r\n,");
        if (!l->s.n || !list) return false;
        if (*l->s.p == close) {
            skip(&l->s, 1);
            *v = ht_jinja_list_value(HT_VALUE_LIST, list);
            return true;
        }
        if (!read_literal(l, &item)) return false;
        ht_jinja_list_append(l->r->a, list, item);
    }
}

static bool read_word(literal_reader *l, ht_jinja_value *v) {
    static const struct { const char *word, *json; } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    size_t n = 0;
    while (n < l->s.n && !strchr(",)]} \t\r\n", l->s.p[n])) n++;
    if (n == l->s.n && l->may_go_on) return false;
    span word = {l->s.p, n};
    skip(&l->s, n);
    for (int i = 0; i < 3; i++)
        if (n == strlen(words[i].word) && memcmp(word.p, words[i].word, n) == 0)
            word = (span){words[i].json, strlen(words[i].json)};
    *v = json_of(l->r, word);
    return v->kind != HT_VALUE_UNDEFINED;
}

static bool read_literal(literal_reader *l, ht_jinja_value *v) {
    skip_blanks(&l->s);
    if (!l->s.n || l->r->a->status || ++l->depth > LITERAL_DEPTH) return false;
    const char c = *l->s.p;
    bool good;
    if (l->quote && accept(&l->s, l->quote)) {
        span text;
        good = up_to(&l->s, l->quote, &text);
        if (good) *v = string_of(l->r, text);
    } else if (c == '"' || (c == '\'' && !l->quote))
        good = read_python_string(l, v);
    else if (c == '{' || c == '[' || (c == '(' && !l->quote)) {
        skip(&l->s, 1);
        good = c == '{' ? read_members(l, ':', '}', v) : read_items(l, c == '[' ? ']' : ')', v);
    } else
        good = read_word(l, v);
    l->depth--;
    return good;
}

static bool read_python_value(ht_call_reading *r, span s, ht_jinja_value *v) {
    literal_reader l = {.r = r, .s = s};
    if (!read_literal(&l, v)) return false;
    skip_blanks(&l.s);
    return !l.s.n;
}

static const char *const no_texts[] = {NULL};

/* call:NAME{KEY:VALUE,...} */
static bool read_gemma_quoted(ht_call_reading *r, const char *text, size_t n, const char *quote) {
    literal_reader l = {.r = r, .s = {text, n}, .quote = quote, .may_go_on = r->takes_cut};
    span name;
    ht_jinja_value arguments;
    skip_blanks(&l.s);
    if (!accept(&l.s, "call:") || !up_to(&l.s, "{", &name)) return false;
    if (!read_members(&l, ':', '}', &arguments)) return add_members(r, name, arguments, (span){0}, no_texts);
    skip_blanks(&l.s);
    return !l.s.n && add(r, name, arguments, NULL);
}

static bool read_gemma4(ht_call_reading *r, const char *text, size_t n) {
    return read_gemma_quoted(r, text, n, "<|\"|>");
}
static bool read_function_gemma(ht_call_reading *r, const char *text, size_t n) {
    return read_gemma_quoted(r, text, n, "<escape>");
}

/* [NAME(KEY=VALUE, ...), ...] as in Python, or a list of JSON. */
static bool read_python(ht_call_reading *r, const char *text, size_t n) {
    literal_reader l = {.r = r, .s = trimmed((span){text, n}), .may_go_on = r->takes_cut};
    span json = l.s, after;
    if (l.s.n && *l.s.p == '[' && extent(&json, &after) && json_of(r, after).kind == HT_VALUE_LIST)
        return read_json(r, text, n);
    const bool bracket = accept(&l.s, "[");
    for (;;) {
        span name;
        ht_jinja_value arguments;
        skip_any(&l.s, " \t\r\n,");
        if (bracket && accept(&l.s, "]")) {
            skip_blanks(&l.s);
            return !l.s.n && r->n > 0;
        }
        if (!l.s.n) return !bracket && r->n > 0;
        if (!up_to(&l.s, "(", &name)) return false;
        if (!read_members(&l, '=', ')', &arguments)) return add_members(r, name, arguments, (span){0}, no_texts);
        if (!add(r, name, arguments, NULL)) return false;
    }
}

/* ---- the notations ---- */

static const ht_thought_notation thoughts[] = {
    {"<|channel>", "<|channel>", "<channel|>", "thought\n", true, NULL, NULL},
    {"[THINK]", "[THINK]", "[/THINK]", NULL, true, NULL, NULL},
    {"<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>", NULL, true, NULL, NULL},
    {"<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>", NULL, true, NULL, NULL},
    {"</seed:think>", "<seed:think>", "</seed:think>", NULL, false, NULL, NULL},
    {"[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", NULL, false, NULL, NULL},
    {"", "<think>", "</think>", NULL, false, "\n", "\n\n"}, /* whatever the template: models learn it from others */
};

static const ht_call_notation calls[] = {
    {"[TOOL_CALLS]", "[TOOL_CALLS]", NULL, 0, read_mistral},
    {DS("calls", "begin"), DS("calls", "begin"), DS("calls", "end"), 0, read_deepseek},
    {"dsml_token + 'function_calls", "<" DSML "function_calls>", "</" DSML "function_calls>", 0, read_invokes},
    {"dsml_token", "<" DSML "tool_calls>", "</" DSML "tool_calls>", 0, read_invokes},
    {"<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", 0, read_kimi},
    {"<tool_call|>", "<|tool_call>", "<tool_call|>", 0, read_gemma4},
    {"<start_function_call>", "<start_function_call>", "<end_function_call>", 0, read_function_gemma},
    {"<seed:tool_call>", "<seed:tool_call>", "</seed:tool_call>", 0, read_functions},
    {"minimax:tool_call", "<minimax:tool_call>", "</minimax:tool_call>", 0, read_invokes},
    {"<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>", 0, read_json},
    {"<|tool_call_start|>", "<|tool_call_start|>", "<|tool_call_end|>", 0, read_python},
    {"<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>", 0, read_json},
    {"<|tools_prefix|>", "<|tools_prefix|>", "<|tools_suffix|>", 0, read_json},
    {"<|tool_call:begin|>", "<|tool_calls|>", "<|calls|>", 0, read_solar},
    {"<|/tool_call|>", "<|tool_call|>", "<|/tool_call|>", 0, read_json},
    {"<|tool_call|>", "<|tool_call|>", NULL, 0, read_json},
    {"<|function_call|>", "<|function_call|>", NULL, 0, read_json},
    {"<tool_calls>", "<tool_calls>", "</tool_calls>", 0, read_tool_call},
    {"<tool_call>", "<tool_call>", "</tool_call>", 0, read_tool_call},
    {"<function name=", "<function name=", "</function>", 0, read_named_function},
    {"<function=", "<function=", "</function>", 0, read_equals_function},
    {"<|python_tag|>", "<|python_tag|>", NULL, '{', read_bare_json},
    {"\"parameters\": dictionary", NULL, NULL, '{', read_bare_json},
};

ht_answer_format ht_answer_format_of(const char *source) {
    ht_answer_format format = {0};
    for (size_t i = 0; !format.thought; i++)
        if (strstr(source, thoughts[i].mark)) format.thought = &thoughts[i];
    for (size_t i = 0; i < sizeof calls / sizeof *calls && !format.call; i++)
        if (strstr(source, calls[i].mark)) format.call = &calls[i];
    return format;
}

const ht_thought_notation *ht_thought_notation_of(const ht_chat_template *t) {
    const char *source = ht_chat_template_source(t);
    const ht_thought_notation *thought = ht_answer_format_of(source).thought;
    return strstr(source, thought->open) || strstr(source, thought->close) ? thought : NULL;
}
