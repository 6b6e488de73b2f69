/* JSON Schemas to rules. A value is a lexeme or a rule; white space precedes each lexeme. Properties and items are
 * rules made on demand, named by the state between them: the plan, and what came before. */
#include "grammar/schema_rules.h"

#include "base/error.h"
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

/* Spaces and tabs after a line end at most. */
enum { SPACES_MOST = 64, TABS_MOST = 16 };

/* Either of them. */
typedef struct plan {
    ht_array_plan *array;
    ht_object_plan *object;
} plan;

typedef struct tables {
    ht_arena arena;
    plan *plan;
    uint32_t n_plans;
    ht_symbol open_list, empty_list, close_list, empty_object, close_object, comma;
} tables;

typedef struct maker {
    ht_schema *s;
    tables *t;
    ht_re space, tight;  /* before most parts, and before commas and colons */
    ht_pair_map symbols; /* node, 0: symbol */
    struct {
        ht_node node;
        ht_symbol rule;
    } * pending; /* [n_pending] rules still without productions */
    uint32_t n_pending;
} maker;

/* ---- expanding ---- */

/* The first word of a state: number of the plan, and whether an item or a property came before. */
static uint32_t head(uint32_t number, bool has_begun) { return number << 1 | (uint32_t)has_begun; }

static ht_symbol array_state(ht_rules *r, uint32_t number, const ht_array_state *at) {
    uint32_t words[2 + HT_COUNTS_MOST] = {head(number, at->index > 0), at->index};
    memcpy(words + 2, at->count, sizeof at->count);
    return ht_rules_demand(r, words, 2 + HT_COUNTS_MOST);
}

static void expand_array(ht_rules *r, ht_symbol rule, const uint32_t *words, const tables *t) {
    const uint32_t number = words[0] >> 1;
    ht_array_plan *p = t->plan[number].array;
    ht_array_state at = {.index = words[1]};
    memcpy(at.count, words + 2, sizeof at.count);
    const bool has_begun = at.index > 0;
    if (ht_array_may_end(p, &at)) ht_rules_add(r, rule, has_begun ? &t->close_list : &t->empty_list, 1);
    const uint32_t n = p->is_unique ? p->n_values : 1u << p->n_some, of = ht_array_class(p, at.index);
    for (uint32_t i = 0; i < n && at.index < p->most; i++) {
        ht_symbol item;
        ht_array_state next;
        if (p->is_unique) {
            if (!((p->allowed[of] & ~ht_array_used(&at)) >> i & 1)) continue;
            item = p->value[i];
            next = ht_array_after_value(p, &at, i);
        } else {
            item = p->symbol[(of << p->n_some) + i];
            if (item == HT_NO_SYMBOL || !ht_array_after(p, &at, i, &next)) continue;
        }
        if (!ht_array_can_end(p, &next)) continue;
        const ht_symbol symbols[] = {has_begun ? t->comma : t->open_list, item, array_state(r, number, &next)};
        ht_rules_add(r, rule, symbols, 3);
    }
    if (p->failed && !r->status) r->status = HT_ERR_MEMORY;
}

static size_t n_seen(const ht_object_plan *p) { return ((size_t)p->n_names + 31) / 32; }

static ht_symbol object_state(ht_rules *r, const ht_object_plan *p, uint32_t number, bool has_begun,
                              const ht_object_state *at, uint32_t *words) {
    words[0] = head(number, has_begun);
    words[1] = at->count;
    words[2] = at->pending;
    words[3] = at->position;
    if (n_seen(p)) memmove(words + 4, at->seen, n_seen(p) * sizeof *words);
    return ht_rules_demand(r, words, 4 + n_seen(p));
}

static void expand_object(ht_rules *r, ht_symbol rule, const uint32_t *words, const tables *t) {
    const uint32_t number = words[0] >> 1;
    const bool has_begun = words[0] & 1;
    const ht_object_plan *p = t->plan[number].object;
    const size_t n = n_seen(p);
    uint32_t *seen = calloc(3 * n + 8, sizeof *seen), *next_seen = seen ? seen + n : NULL,
             *name = seen ? seen + 2 * n : NULL;
    if (!seen) {
        if (!r->status) r->status = HT_ERR_MEMORY;
        return;
    }
    if (n) memcpy(seen, words + 4, n * sizeof *seen);
    const ht_object_state at = {words[1], words[2], words[3], seen};
    if (ht_object_may_end(p, &at)) ht_rules_add(r, rule, has_begun ? &t->close_object : &t->empty_object, 1);
    for (uint32_t i = 0; i < p->n_members && !r->status; i++) {
        const ht_member_plan *m = &p->member[i];
        for (uint32_t mask = 0; mask < 1u << p->n_some && m->live[0]; mask++) {
            if (!m->live[mask] || (mask & at.pending) != mask || !ht_object_may_take(p, &at, i)) continue;
            ht_object_state next = at;
            next.seen = next_seen;
            if (n) memcpy(next_seen, seen, n * sizeof *seen);
            if (!ht_object_take(p, &next, i, mask)) continue;
            const ht_symbol symbols[] = {has_begun ? m->next : m->first, m->symbol[mask],
                                         object_state(r, p, number, true, &next, name)};
            ht_rules_add(r, rule, symbols, 3);
        }
    }
    free(seen);
}

static void expand(ht_rules *r, ht_symbol rule, const uint32_t *words, size_t n, void *user) {
    const tables *t = user;
    (void)n;
    if (t->plan[words[0] >> 1].object)
        expand_object(r, rule, words, t);
    else
        expand_array(r, rule, words, t);
}

static void free_tables(void *user) {
    tables *t = user;
    for (uint32_t i = 0; i < t->n_plans; i++)
        if (t->plan[i].array) ht_array_plan_free(t->plan[i].array);
    free(t->plan);
    ht_arena_free(&t->arena);
    free(t);
}

/* ---- lexemes ---- */

ht_re ht_schema_white_space(ht_regexes *re, ht_schema_space space) {
    ht_byte_set any = {{0}};
    for (const char *c = " \t\n\r"; *c; c++) ht_byte_set_add(&any, (unsigned char)*c, (unsigned char)*c);
    switch (space) {
    case HT_SCHEMA_SPACE_NONE: return HT_RE_EMPTY;
    case HT_SCHEMA_SPACE_ANY: return ht_re_repeat(re, ht_re_bytes(re, &any), 0, HT_RE_UNBOUNDED);
    default: {
        const ht_re indent = ht_re_either(re, ht_re_repeat(re, ht_re_text(re, " ", 1), 0, SPACES_MOST),
                                          ht_re_repeat(re, ht_re_text(re, "\t", 1), 0, TABS_MOST));
        const ht_re line = ht_re_concat(re, ht_re_text(re, "\n", 1), indent);
        return ht_re_alternatives(re, (ht_re[]){HT_RE_EMPTY, ht_re_text(re, " ", 1), line}, 3);
    }
    }
}

static ht_re tight(maker *k, const char *text) {
    return ht_re_concat(k->s->re, k->tight, ht_re_text(k->s->re, text, 1));
}

static ht_re spaced(maker *k, const char *text) {
    return ht_re_concat(k->s->re, k->space, ht_re_text(k->s->re, text, strlen(text)));
}

static void make_punctuation(maker *k) {
    ht_schema *s = k->s;
    tables *t = k->t;
    const ht_re open = spaced(k, "["), close = spaced(k, "]"), begin = spaced(k, "{"), end = spaced(k, "}");
    t->open_list = ht_rules_lexeme(s->rules, open);
    t->close_list = ht_rules_lexeme(s->rules, close);
    t->empty_list = ht_rules_lexeme(s->rules, ht_re_concat(s->re, open, close));
    t->close_object = ht_rules_lexeme(s->rules, end);
    t->empty_object = ht_rules_lexeme(s->rules, ht_re_concat(s->re, begin, end));
    t->comma = ht_rules_lexeme(s->rules, tight(k, ","));
}

/* The lexemes of a key: `{` or a comma, the key, a colon. */
static void make_key(maker *k, ht_string_set keys, ht_member_plan *to) {
    ht_regexes *re = k->s->re;
    const ht_re key = ht_re_concat(re, k->space, ht_re_concat(re, ht_strings_written(k->s, keys), tight(k, ":")));
    to->first = ht_rules_lexeme(k->s->rules, ht_re_concat(re, spaced(k, "{"), key));
    to->next = ht_rules_lexeme(k->s->rules, ht_re_concat(re, tight(k, ","), key));
}

/* Values that are neither arrays nor objects, as one expression. */
static ht_re simple_values(ht_schema *s, ht_node node) {
    static const char *const words[] = {"null", "false", "true"};
    const uint32_t simple = ht_set_simple(s, node), types = ht_set_types(s, node);
    ht_re all = HT_RE_NONE;
    for (int i = 0; i < 3; i++)
        if (simple >> i & 1) all = ht_re_either(s->re, all, ht_re_text(s->re, words[i], strlen(words[i])));
    const ht_string_set strings = ht_set_strings(s, node);
    if (types & HT_TYPE_STRING && ht_strings_is_live(s, strings))
        all = ht_re_either(s->re, all, ht_strings_written(s, strings));
    const ht_number_set numbers = ht_set_numbers(s, node);
    if (types & HT_TYPE_NUMBER && ht_schema_is_live(s, numbers.all))
        all = ht_re_either(s->re, all, ht_numbers_written(s, numbers));
    return all;
}

/* ---- values ---- */

static ht_symbol symbol_of(maker *k, ht_node node) {
    ht_schema *s = k->s;
    const uint32_t known = ht_pair_map_find(&k->symbols, node, 0);
    if (known != HT_INTERN_FAILED || s->status) return s->status ? 0 : known;
    ht_symbol symbol;
    if (!(ht_set_types(s, node) & (HT_TYPE_ARRAY | HT_TYPE_OBJECT)))
        symbol = ht_rules_lexeme(s->rules, ht_re_concat(s->re, k->space, simple_values(s, node)));
    else {
        if (!HT_SCHEMA_APPEND(s, k->pending, k->n_pending)) return 0;
        symbol = ht_rules_rule(s->rules);
        k->pending[k->n_pending].node = node;
        k->pending[k->n_pending++].rule = symbol;
    }
    ht_schema_note(s, &k->symbols, node, 0, symbol);
    return symbol;
}

static void *take(maker *k, size_t n, size_t size) {
    void *taken = ht_arena_take(&k->t->arena, n, size);
    if (!taken) ht_schema_fail_memory(k->s);
    return taken;
}

/* The rule of the arrays of a conjunction; false when there are none. */
static bool array_symbol(maker *k, uint32_t conjunction, ht_symbol *out) {
    ht_schema *s = k->s;
    tables *t = k->t;
    const ht_array_shape *a = ht_array_shape_of(s, conjunction);
    ht_array_plan *p = a ? take(k, 1, sizeof *p) : NULL;
    if (!p || !HT_SCHEMA_APPEND(s, t->plan, t->n_plans)) return false;
    const uint32_t number = t->n_plans++;
    t->plan[number] = (plan){.array = p};
    if (!ht_array_plan_of(s, a, &t->arena, p)) return false;
    const uint32_t n = p->n << p->n_some;
    if (!(p->symbol = take(k, n, sizeof *p->symbol)) || !(p->value = take(k, p->n_values, sizeof *p->value)))
        return false;
    for (uint32_t i = 0; i < n && !s->status; i++)
        p->symbol[i] = p->live[i] && !p->is_unique
                           ? symbol_of(k, ht_array_item(s, a, i >> p->n_some, i & ((1u << p->n_some) - 1)))
                           : HT_NO_SYMBOL;
    for (uint32_t i = 0; i < p->n_values && !s->status; i++) p->value[i] = symbol_of(k, p->value_node[i]);
    *out = array_state(s->rules, number, &(ht_array_state){0});
    return true;
}

static bool object_symbol(maker *k, uint32_t conjunction, ht_symbol *out) {
    ht_schema *s = k->s;
    tables *t = k->t;
    const ht_object_shape *o = ht_object_shape_of(s, conjunction);
    ht_object_plan *p = o ? take(k, 1, sizeof *p) : NULL;
    if (!p || !ht_object_written_plan(s, o, &t->arena, p) || !HT_SCHEMA_APPEND(s, t->plan, t->n_plans)) return false;
    const uint32_t number = t->n_plans++, n_masks = 1u << p->n_some;
    t->plan[number] = (plan){.object = p};
    for (uint32_t i = 0; i < p->n_members && !s->status; i++) {
        const ht_member *m = &o->member[i];
        ht_member_plan *to = &p->member[i];
        if (!to->live[0]) continue;
        if (!(to->symbol = take(k, n_masks, sizeof *to->symbol))) return false;
        make_key(k, i < p->n_names ? ht_strings_one(s, m->name) : m->keys, to);
        for (uint32_t mask = 0; mask < n_masks && !s->status; mask++)
            if (to->live[mask]) to->symbol[mask] = symbol_of(k, ht_object_value(s, o, m, mask));
    }
    const size_t n = n_seen(p);
    uint32_t *words = ht_schema_take(s, 2 * n + 8, sizeof *words);
    if (!words || s->status) return false;
    *out = object_state(s->rules, p, number, false, &(ht_object_state){.pending = n_masks - 1, .seen = words + n + 4},
                        words);
    return true;
}

static void make_value(maker *k, ht_node node, ht_symbol rule) {
    ht_schema *s = k->s;
    const ht_re simple = simple_values(s, node);
    const uint32_t types = ht_set_types(s, node);
    if (simple != HT_RE_NONE) {
        const ht_symbol lexeme = ht_rules_lexeme(s->rules, ht_re_concat(s->re, k->space, simple));
        ht_rules_add(s->rules, rule, &lexeme, 1);
    }
    for (uint32_t type = HT_TYPE_ARRAY; type <= HT_TYPE_OBJECT && !ht_schema_failed(s); type *= 2) {
        const uint32_t list = types & type ? ht_set_alternatives(s, node, type) : HT_INTERN_FAILED;
        for (uint32_t i = 0; list != HT_INTERN_FAILED && !s->status && i < s->sets.list[list].n; i++) {
            const uint32_t c = s->sets.list[list].conjunction[i];
            ht_symbol symbol;
            if (type == HT_TYPE_ARRAY ? array_symbol(k, c, &symbol) : object_symbol(k, c, &symbol))
                ht_rules_add(s->rules, rule, &symbol, 1);
        }
    }
}

/* Makes the rules of a node that has values, and returns the start symbol. Records a failure. */
static ht_symbol make_rules(ht_schema *s, ht_node root) {
    maker k = {.s = s};
    /* The plans of all schemas of the rules are in one table. */
    tables *t = k.t = s->rules->user ? s->rules->user : calloc(1, sizeof *t);
    if (!t) return ht_schema_fail_memory(s), 0;
    s->rules->user = t;
    s->rules->free_user = free_tables;
    s->rules->expand = expand;
    k.space = ht_schema_white_space(s->re, s->options.space);
    k.tight =
        s->options.space == HT_SCHEMA_SPACE_LINES ? ht_re_repeat(s->re, ht_re_text(s->re, " ", 1), 0, 1) : k.space;
    make_punctuation(&k);
    const ht_symbol start = ht_rules_rule(s->rules), symbol = symbol_of(&k, root);
    ht_rules_add(s->rules, start, &symbol, 1);
    while (k.n_pending && !ht_schema_failed(s)) {
        k.n_pending--;
        make_value(&k, k.pending[k.n_pending].node, k.pending[k.n_pending].rule);
    }
    ht_pair_map_free(&k.symbols);
    free(k.pending);
    return start;
}

/* ---- schemas ---- */

static void discard(ht_schema *s) {
    ht_json_tree_free(&s->tree);
    ht_arena_free(&s->arena);
    ht_intern_free(&s->nodes);
    ht_intern_free(&s->key_sets);
    ht_intern_free(&s->conjunctions);
    ht_intern_free(&s->string_sets);
    ht_intern_free(&s->parsed.scopes);
    ht_pair_map *maps[] = {&s->parsed.number,
                           &s->sets.ones,
                           &s->sets.evaluated,
                           &s->sets.lists_of,
                           &s->sets.opened,
                           &s->sets.listed,
                           &s->shapes.known,
                           &s->references.by_uri,
                           &s->references.of_value,
                           &s->references.anchors,
                           &s->references.dynamic_anchors};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) ht_pair_map_free(maps[i]);
    for (uint32_t i = 0; i < s->sets.n; i++) free(s->sets.list[i].conjunction);
    free(s->sets.list);
    free(s->strings);
    free(s->parsed.node);
    free(s->references.resource);
    free(s->scratch);
    free(s->live.state);
    free(s->shapes.shape);
}

/* Makes the texts of all names before the first search, so that the bytes are divided into classes once. */
static void prepare_names(ht_schema *s) {
    for (uint32_t i = 0; i < s->key_sets.n; i++) {
        const ht_keys keys = ht_keys_at(s, i);
        for (uint32_t k = 0; k < keys.n_names; k++) ht_strings_text(s, keys.names[k]);
    }
}

static ht_node parse(ht_schema *s) {
    ht_intern_add(&s->nodes, (uint32_t[]){HT_NODE_FALSE}, 1, NULL);
    if (ht_intern_add(&s->nodes, (uint32_t[]){HT_NODE_TRUE}, 1, NULL) != HT_NODE_ANYTHING)
        return ht_schema_fail_memory(s);
    if (!ht_schema_read_dialect(s)) return HT_NODE_NOTHING;
    ht_references_find(s);
    const ht_node root = ht_schema_parse(s, (ht_place){s->tree.root, 0});
    if (!ht_schema_failed(s)) prepare_names(s);
    return root;
}

static ht_status fail_without_value(ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "the JSON Schema has no valid value");
}

/* The node of the requested values. */
static ht_node find_part(ht_schema *s, const ht_schema_part *part) {
    ht_node node = parse(s);
    if (part->property && !ht_schema_failed(s)) {
        const ht_tree_value *properties = ht_schema_keyword(s, s->tree.root, "properties");
        const ht_tree_value *of = properties ? ht_schema_keyword(s, properties, part->property) : NULL;
        node = of ? ht_schema_parse(s, ht_references_enter(s, (ht_place){s->tree.root, 0}, of)) : HT_NODE_ANYTHING;
        if (!ht_schema_failed(s)) prepare_names(s);
    }
    return part->is_object && !ht_schema_failed(s) ? ht_node_and(s, node, ht_node_types(s, HT_TYPE_OBJECT)) : node;
}

ht_status ht_schema_embed(ht_rules *rules, const char *json, size_t n, const ht_schema_options *options,
                          const ht_schema_part *part, ht_symbol *out, ht_error *err) {
    ht_schema s = {.rules = rules, .re = rules->re, .err = err};
    *out = 0;
    if (options) s.options = *options;
    s.status = ht_json_tree_parse(&s.tree, json, n, "the JSON Schema", err);
    if (!s.status) {
        const ht_node node = find_part(&s, part);
        const bool live = !ht_schema_failed(&s) && ht_set_is_live(&s, node);
        if (!ht_schema_failed(&s) && !live) s.status = fail_without_value(err);
        if (!ht_schema_failed(&s)) *out = make_rules(&s, node);
        (void)ht_schema_failed(&s);
    }
    discard(&s);
    return s.status;
}

ht_status ht_schema_compile(const char *json, size_t n, const ht_schema_options *options, ht_rules **out,
                            ht_error *err) {
    ht_rules *rules = ht_rules_new();
    ht_symbol start;
    bool has_text = false;
    *out = NULL;
    if (!rules) return ht_fail_memory(err, n, "a JSON Schema");
    ht_status status = ht_schema_embed(rules, json, n, options, &(ht_schema_part){0}, &start, err);
    if (!status) {
        ht_rules_finish(rules, start, &has_text);
        status = ht_rules_status(rules, err);
    }
    if (!status && !has_text) status = fail_without_value(err);
    if (status)
        ht_rules_free(rules);
    else
        *out = rules;
    return status;
}
