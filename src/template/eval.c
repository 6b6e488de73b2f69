#include "template/eval.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void assign(ht_jinja_rendering *r, const ht_jinja_node *target, ht_jinja_value v);
static ht_jinja_value call_loop(ht_jinja_rendering *r, ht_jinja_loop *loop, const ht_jinja_arguments *all);

bool ht_jinja_step(ht_jinja_rendering *r, size_t n) { return ht_jinja_work(r->a, n); }

ht_jinja_value ht_jinja_fail(ht_jinja_rendering *r, const char *fmt, ...) {
    char sentence[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    ht_jinja_arena_fail(r->a, "%s", sentence);
    return ht_jinja_undefined();
}

static void locate(ht_jinja_rendering *r, const ht_jinja_node *n) {
    r->a->line = n->line;
    r->a->column = n->column;
}

static bool enter(ht_jinja_rendering *r, const ht_jinja_node *n) {
    locate(r, n);
    if (r->depth >= HT_RENDERING_DEPTH) ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "calls are nested too deep");
    r->depth++;
    return ht_jinja_step(r, 1);
}

static ht_jinja_scope *new_scope(ht_jinja_rendering *r, ht_jinja_scope *parent) {
    ht_jinja_scope *scope = ht_jinja_arena_alloc(r->a, sizeof *scope);
    if (!scope) return parent;
    *scope = (ht_jinja_scope){parent, ht_jinja_dict_new(r->a)};
    return scope;
}

static void set_name(ht_jinja_rendering *r, const ht_jinja_string *name, ht_jinja_value v) {
    ht_jinja_dict_set(r->a, r->scope->names, ht_jinja_string_value(name), v);
}

/* Redirects output to a text, inside a nested scope. */
typedef struct capture {
    ht_jinja_builder text, *output;
    ht_jinja_scope *outside;
} capture;

static void begin_capture(ht_jinja_rendering *r, capture *c, ht_jinja_scope *scope) {
    *c = (capture){.text = {.arena = r->a}, .output = r->out, .outside = r->scope};
    r->out = &c->text;
    r->scope = scope;
}

static ht_jinja_value end_capture(ht_jinja_rendering *r, capture *c) {
    r->out = c->output;
    r->scope = c->outside;
    return ht_jinja_string_value(ht_jinja_built(&c->text));
}

/* ---- names ---- */

static ht_jinja_value name_value(ht_jinja_rendering *r, const ht_jinja_string *name) {
    for (const ht_jinja_scope *s = r->scope; s; s = s->parent) {
        const ht_jinja_value *found = s->names ? ht_jinja_dict_find_text(s->names, name->text, name->n) : NULL;
        if (found) return *found;
    }
    const ht_jinja_builtin *function = ht_jinja_function_of(name->text, name->n);
    if (function) return ht_jinja_method_value(r, function, ht_jinja_none());
    return ht_jinja_undefined_because(r->a, "'%.100s' is undefined", name->text);
}

/* ---- calls ---- */

/* The names of a signature that the call's arguments are bound to. */
static bool bind(ht_jinja_rendering *r, const ht_jinja_builtin *b, const ht_jinja_arguments *all,
                 const ht_jinja_value *bound[HT_PARAMETERS_MAX]) {
    size_t n = 0, named = 0;
    for (const char *at = b->parameters; *at; n++) {
        size_t length = strcspn(at, " ");
        const ht_jinja_value *by_name = all->named ? ht_jinja_dict_find_text(all->named, at, length) : NULL;
        bound[n] = n < all->n ? &all->positional[n] : by_name;
        if (by_name) {
            named++;
            if (n < all->n) ht_jinja_arena_fail(r->a, "%s got two values for %.*s", b->name, (int)length, at);
        }
        if (!bound[n] && n < (size_t)b->required)
            ht_jinja_arena_fail(r->a, "%s needs a value for %.*s", b->name, (int)length, at);
        at += length + (at[length] == ' ');
    }
    if (all->n > n || (all->named && all->named->n > named))
        ht_jinja_arena_fail(r->a, "%s got an argument that it does not take", b->name);
    return !r->a->status;
}

ht_jinja_value ht_jinja_call_builtin(ht_jinja_rendering *r, const ht_jinja_builtin *b, ht_jinja_value self,
                                     const ht_jinja_arguments *all) {
    const ht_jinja_value *bound[HT_PARAMETERS_MAX] = {NULL};
    size_t bytes = ht_jinja_is_string(self) ? self.string->n : 0;
    for (size_t i = 0; i < all->n; i++)
        bytes += ht_jinja_is_string(all->positional[i]) ? all->positional[i].string->n : 0;
    if (!ht_jinja_step(r, 1 + bytes / 16)) return ht_jinja_undefined();
    if (b->parameters[0] != '*' && !bind(r, b, all, bound)) return ht_jinja_undefined();
    ht_jinja_value v = b->call(r, self, bound, all, b->how);
    return r->a->status ? ht_jinja_undefined() : v;
}

static const ht_jinja_value *named_argument(const ht_jinja_arguments *all, const ht_jinja_string *name) {
    return all->named ? ht_jinja_dict_find_text(all->named, name->text, name->n) : NULL;
}

static void bind_extra(ht_jinja_rendering *r, const ht_jinja_macro *m, const ht_jinja_arguments *all) {
    const ht_jinja_node *n = m->node;
    ht_jinja_dict *extra = ht_jinja_dict_new(r->a);
    for (size_t i = 0; all->named && extra && i < all->named->n; i++) {
        const ht_jinja_string *name = all->named->keys[i].string;
        bool taken = (n->flags & HT_MACRO_CALLER) && ht_jinja_string_is(name, "caller");
        for (size_t j = all->n; !taken && j < n->n; j++) taken = !strcmp(n->items[j]->name->text, name->text);
        if (!taken) ht_jinja_dict_set(r->a, extra, all->named->keys[i], all->named->values[i]);
    }
    if (!(n->flags & HT_MACRO_KWARGS) && extra && extra->n)
        ht_jinja_arena_fail(r->a, "macro '%.60s' takes no argument '%.60s'", n->name->text,
                            extra->keys[0].string->text);
    if (n->flags & HT_MACRO_KWARGS)
        ht_jinja_dict_set_text(r->a, r->scope->names, "kwargs", (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = extra});
    if (n->flags & HT_MACRO_VARARGS) {
        ht_jinja_list *rest = ht_jinja_list_new(r->a, 0);
        for (size_t i = n->n; i < all->n; i++) ht_jinja_list_append(r->a, rest, all->positional[i]);
        ht_jinja_dict_set_text(r->a, r->scope->names, "varargs", ht_jinja_list_value(HT_VALUE_TUPLE, rest));
    } else if (all->n > n->n)
        ht_jinja_arena_fail(r->a, "macro '%.60s' takes %zu arguments, not %zu", n->name->text, n->n, all->n);
}

static ht_jinja_value jinja_call_macro(ht_jinja_rendering *r, const ht_jinja_macro *m, const ht_jinja_arguments *all) {
    const ht_jinja_node *n = m->node;
    capture text;
    ht_jinja_value v;
    begin_capture(r, &text, new_scope(r, m->scope));
    if (n->flags & HT_MACRO_CALLER) {
        const ht_jinja_value *caller = all->named ? ht_jinja_dict_find_text(all->named, "caller", 6) : NULL;
        v = caller ? *caller : ht_jinja_undefined_because(r->a, "No caller defined");
        ht_jinja_dict_set_text(r->a, r->scope->names, "caller", v);
    }
    bind_extra(r, m, all);
    for (size_t i = 0; i < n->n && !r->a->status; i++) {
        const ht_jinja_node *parameter = n->items[i];
        const ht_jinja_value *given = i < all->n ? &all->positional[i] : named_argument(all, parameter->name);
        if (given)
            v = *given;
        else
            v = parameter->a
                    ? ht_jinja_evaluate(r, parameter->a)
                    : ht_jinja_undefined_because(r->a, "parameter '%.60s' was not provided", parameter->name->text);
        set_name(r, parameter->name, v);
    }
    ht_jinja_execute(r, n->b);
    return end_capture(r, &text);
}

static ht_jinja_value jinja_call(ht_jinja_rendering *r, ht_jinja_value callee, const ht_jinja_arguments *all) {
    if (ht_jinja_refuse_undefined(r, callee)) return ht_jinja_undefined();
    switch (callee.kind) {
    case HT_VALUE_MACRO: return jinja_call_macro(r, callee.object, all);
    case HT_VALUE_LOOP: return call_loop(r, callee.object, all);
    case HT_VALUE_FUNCTION: {
        const ht_jinja_function *f = callee.object;
        return ht_jinja_call_builtin(r, f->builtin, f->self, all);
    }
    default: return ht_jinja_fail(r, "%s cannot be called", ht_jinja_type_name(callee));
    }
}

static void add_named(ht_jinja_rendering *r, ht_jinja_arguments *all, ht_jinja_value name, ht_jinja_value v) {
    if (!all->named) all->named = ht_jinja_dict_new(r->a);
    if (!ht_jinja_is_string(name))
        ht_jinja_arena_fail(r->a, "the name of an argument is %s, not a string", ht_jinja_type_name(name));
    else if (all->named && ht_jinja_dict_find(r->a, all->named, name))
        ht_jinja_arena_fail(r->a, "the argument %.60s is given twice", name.string->text);
    else
        ht_jinja_dict_set(r->a, all->named, name, v);
}

static ht_jinja_arguments evaluate_arguments(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_arguments all = {0};
    ht_jinja_list *positional = ht_jinja_list_new(r->a, n->n);
    for (size_t i = 0; i < n->n && !r->a->status; i++) {
        const ht_jinja_node *item = n->items[i];
        if (item->kind != HT_NODE_KEYWORD && item->kind != HT_NODE_STAR && item->kind != HT_NODE_STAR_STAR) {
            ht_jinja_list_append(r->a, positional, ht_jinja_evaluate(r, item));
            continue;
        }
        ht_jinja_value v = ht_jinja_evaluate(r, item->a);
        if (item->kind == HT_NODE_KEYWORD)
            add_named(r, &all, ht_jinja_string_value(item->name), v);
        else if (item->kind == HT_NODE_STAR) {
            const ht_jinja_list *more = ht_jinja_items(r->a, v);
            for (size_t j = 0; j < more->n; j++) ht_jinja_list_append(r->a, positional, more->items[j]);
        } else if (v.kind == HT_VALUE_DICT)
            for (size_t j = 0; j < v.dict->n; j++) add_named(r, &all, v.dict->keys[j], v.dict->values[j]);
        else
            ht_jinja_arena_fail(r->a, "the argument after ** is %s, not a dict", ht_jinja_type_name(v));
    }
    if (positional) {
        all.positional = positional->items;
        all.n = positional->n;
    }
    return all;
}

/* ---- expressions ---- */

static ht_jinja_value evaluate_items(ht_jinja_rendering *r, const ht_jinja_node *n, ht_jinja_value_kind kind) {
    ht_jinja_list *list = ht_jinja_list_new(r->a, n->n);
    for (size_t i = 0; i < n->n && !r->a->status; i++)
        ht_jinja_list_append(r->a, list, ht_jinja_evaluate(r, n->items[i]));
    return ht_jinja_list_value(kind, list);
}

static ht_jinja_value evaluate_dict(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_dict *dict = ht_jinja_dict_new(r->a);
    for (size_t i = 0; i + 1 < n->n && !r->a->status; i += 2) {
        ht_jinja_value key = ht_jinja_evaluate(r, n->items[i]);
        ht_jinja_dict_set(r->a, dict, key, ht_jinja_evaluate(r, n->items[i + 1]));
    }
    return dict ? (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = dict} : ht_jinja_undefined();
}

static ht_jinja_value evaluate_index(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value of = ht_jinja_evaluate(r, n->a);
    const ht_jinja_node *s = n->b;
    if (s->kind != HT_NODE_SLICE) return ht_jinja_item(r, of, ht_jinja_evaluate(r, s));
    ht_jinja_value begin = s->a ? ht_jinja_evaluate(r, s->a) : ht_jinja_none(),
                   end = s->b ? ht_jinja_evaluate(r, s->b) : ht_jinja_none();
    return ht_jinja_slice(r, of, begin, end, s->c ? ht_jinja_evaluate(r, s->c) : ht_jinja_none());
}

static ht_jinja_value evaluate_comparison(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value left = ht_jinja_evaluate(r, n->a);
    bool holds = true;
    for (size_t i = 0; holds && i < n->n && !r->a->status; i++) {
        ht_jinja_value right = ht_jinja_evaluate(r, n->items[i]->b);
        const char *operator= n->items[i]->name->text;
        if (r->a->status) break;
        if (!strcmp(operator, "in") || !strcmp(operator, "not"))
            holds = ht_jinja_contains(r, right, left) == (operator[0] == 'i');
        else if (operator[1] == '=' &&(operator[0] == '=' || operator[0] == '!'))
            holds = ht_jinja_equal(r->a, left, right) == (operator[0] == '=');
        else {
            if (ht_jinja_refuse_undefined(r, left) || ht_jinja_refuse_undefined(r, right)) break;
            bool unordered = ht_jinja_is_number(left) && ht_jinja_is_number(right) &&
                             (ht_jinja_as_real(left) != ht_jinja_as_real(left) ||
                              ht_jinja_as_real(right) != ht_jinja_as_real(right));
            int order = ht_jinja_order(r->a, left, right);
            holds = !unordered && ((operator[0] == '<' && order<0) || (operator[0] == '>' && order> 0) ||
                                   (operator[1] == '=' && order == 0));
        }
        left = right;
    }
    return ht_jinja_boolean(holds);
}

static ht_jinja_value evaluate_filter(ht_jinja_rendering *r, const ht_jinja_node *n, ht_jinja_value of) {
    const ht_jinja_builtin *filter = ht_jinja_filter_of(n->name);
    ht_jinja_arguments all = evaluate_arguments(r, n);
    locate(r, n);
    if (!filter) return ht_jinja_fail(r, "there is no filter '%.60s'", n->name->text);
    return r->a->status ? ht_jinja_undefined() : ht_jinja_call_builtin(r, filter, of, &all);
}

/* Applies a chain of filters to `of`. */
static ht_jinja_value filter_chain(ht_jinja_rendering *r, const ht_jinja_node *n, ht_jinja_value of) {
    if (!enter(r, n)) return ht_jinja_undefined();
    ht_jinja_value v = evaluate_filter(r, n, n->a ? filter_chain(r, n->a, of) : of);
    r->depth--;
    return v;
}

static ht_jinja_value evaluate_test(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value of = ht_jinja_evaluate(r, n->a);
    const ht_jinja_builtin *test = ht_jinja_test_of(n->name);
    ht_jinja_arguments all = evaluate_arguments(r, n);
    if (r->a->status) return ht_jinja_undefined();
    if (!test) return ht_jinja_fail(r, "there is no test '%.60s'", n->name->text);
    return ht_jinja_call_builtin(r, test, of, &all);
}

static ht_jinja_value evaluate_call(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value callee = ht_jinja_evaluate(r, n->a);
    ht_jinja_arguments all = evaluate_arguments(r, n);
    locate(r, n);
    return r->a->status ? ht_jinja_undefined() : jinja_call(r, callee, &all);
}

static ht_jinja_value evaluate_sign(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value v = ht_jinja_evaluate(r, n->a);
    int64_t i;
    if (ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    bool negates = n->kind == HT_NODE_NEGATE;
    if (ht_jinja_as_integer(v, &i)) return ht_jinja_integer(negates && i != INT64_MIN ? -i : i);
    if (v.kind == HT_VALUE_FLOAT) return ht_jinja_real(negates ? -v.real : v.real);
    return ht_jinja_fail(r, "%s has no sign", ht_jinja_type_name(v));
}

static ht_jinja_value evaluate(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value v;
    switch (n->kind) {
    case HT_NODE_CONSTANT: return n->constant;
    case HT_NODE_NAME: return name_value(r, n->name);
    case HT_NODE_TUPLE: return evaluate_items(r, n, HT_VALUE_TUPLE);
    case HT_NODE_LIST: return evaluate_items(r, n, HT_VALUE_LIST);
    case HT_NODE_DICT: return evaluate_dict(r, n);
    case HT_NODE_ATTRIBUTE: v = ht_jinja_evaluate(r, n->a); return ht_jinja_attribute(r, v, n->name);
    case HT_NODE_ITEM: return evaluate_index(r, n);
    case HT_NODE_CALL: return evaluate_call(r, n);
    case HT_NODE_FILTER: return evaluate_filter(r, n, ht_jinja_evaluate(r, n->a));
    case HT_NODE_TEST: return evaluate_test(r, n);
    case HT_NODE_CONDITION:
        if (ht_jinja_truth(ht_jinja_evaluate(r, n->a))) return ht_jinja_evaluate(r, n->b);
        if (n->c) return ht_jinja_evaluate(r, n->c);
        return ht_jinja_undefined_because(
            r->a, "the inline if-expression evaluated to false and no else section was defined");
    case HT_NODE_AND: v = ht_jinja_evaluate(r, n->a); return ht_jinja_truth(v) ? ht_jinja_evaluate(r, n->b) : v;
    case HT_NODE_OR: v = ht_jinja_evaluate(r, n->a); return ht_jinja_truth(v) ? v : ht_jinja_evaluate(r, n->b);
    case HT_NODE_NOT: return ht_jinja_boolean(!ht_jinja_truth(ht_jinja_evaluate(r, n->a)));
    case HT_NODE_COMPARE: return evaluate_comparison(r, n);
    case HT_NODE_BINARY: {
        ht_jinja_value x = ht_jinja_evaluate(r, n->a), y = ht_jinja_evaluate(r, n->b);
        locate(r, n);
        return r->a->status ? ht_jinja_undefined() : ht_jinja_binary(r, n->name->text, x, y);
    }
    case HT_NODE_NEGATE:
    case HT_NODE_PLUS: return evaluate_sign(r, n);
    case HT_NODE_CONCATENATE: {
        ht_jinja_builder b = {.arena = r->a};
        for (size_t i = 0; i < n->n && !r->a->status; i++) {
            const ht_jinja_value item = ht_jinja_evaluate(r, n->items[i]);
            /* Reserves space: templates append pieces to a long string. */
            if (!i && ht_jinja_is_string(item) && !r->a->status)
                ht_jinja_reserve(&b, item.string->n + item.string->n / 8 + 48);
            ht_jinja_put_value(&b, item);
        }
        return ht_jinja_string_value(ht_jinja_built(&b));
    }
    default: return ht_jinja_fail(r, "an expression is expected here");
    }
}

ht_jinja_value ht_jinja_evaluate(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value v = enter(r, n) ? evaluate(r, n) : ht_jinja_undefined();
    r->depth--;
    return r->a->status ? ht_jinja_undefined() : v;
}

/* ---- assignment ---- */

static void assign_items(ht_jinja_rendering *r, const ht_jinja_node *target, ht_jinja_value v) {
    if (ht_jinja_refuse_undefined(r, v)) return;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    if (items->n != target->n) {
        ht_jinja_arena_fail(r->a, "%zu values for %zu names", items->n, target->n);
        return;
    }
    for (size_t i = 0; i < target->n; i++) assign(r, target->items[i], items->items[i]);
}

static void assign_attribute(ht_jinja_rendering *r, const ht_jinja_node *target, ht_jinja_value v) {
    ht_jinja_node name = {.kind = HT_NODE_NAME, .line = target->line, .column = target->column, .name = target->name};
    ht_jinja_value space = ht_jinja_evaluate(r, &name);
    if (space.kind != HT_VALUE_NAMESPACE)
        ht_jinja_arena_fail(r->a, "cannot assign attribute on non-namespace object '%.60s'", target->name->text);
    else if (ht_jinja_is_string(target->constant) && target->constant.string->text[0] == '_')
        ht_jinja_arena_fail(r->a, "a namespace takes no '%.60s'", target->constant.string->text);
    else
        ht_jinja_dict_set(r->a, space.dict, target->constant, v);
}

static void assign(ht_jinja_rendering *r, const ht_jinja_node *target, ht_jinja_value v) {
    if (r->a->status) return;
    if (target->kind == HT_NODE_TUPLE)
        assign_items(r, target, v);
    else if (target->kind == HT_NODE_NAMESPACE)
        assign_attribute(r, target, v);
    else
        ht_jinja_dict_set(r->a, r->scope->names, ht_jinja_string_value(target->name), v);
}

/* ---- loops ---- */

static bool passes(ht_jinja_rendering *r, const ht_jinja_loop *loop, ht_jinja_value item) {
    if (!loop->node->c) return true;
    ht_jinja_scope *outside = r->scope;
    r->scope = new_scope(r, loop->scope);
    assign(r, loop->node->a, item);
    bool yes = ht_jinja_truth(ht_jinja_evaluate(r, loop->node->c));
    r->scope = outside;
    return yes && !r->a->status;
}

static void look_ahead(ht_jinja_rendering *r, ht_jinja_loop *loop) {
    if (loop->has_after) return;
    loop->has_after = true;
    loop->ended = true;
    while (loop->next < loop->source->n && ht_jinja_step(r, 1)) {
        loop->after = loop->source->items[loop->next++];
        if (!passes(r, loop, loop->after)) continue;
        loop->ended = false;
        break;
    }
}

static bool move_on(ht_jinja_rendering *r, ht_jinja_loop *loop) {
    look_ahead(r, loop);
    loop->has_after = false;
    if (loop->ended || r->a->status) return false;
    loop->index0++;
    loop->before = loop->current;
    loop->current = loop->after;
    return true;
}

/* Number of items of the loop. Tests the remaining items without advancing the loop. */
static int64_t length(ht_jinja_rendering *r, ht_jinja_loop *loop) {
    int64_t n = loop->index0 + 1;
    if (!loop->node->c) return n + (loop->has_after && !loop->ended) + (int64_t)(loop->source->n - loop->next);
    look_ahead(r, loop);
    size_t next = loop->next;
    n += !loop->ended;
    for (; next < loop->source->n && ht_jinja_step(r, 1); next++) n += passes(r, loop, loop->source->items[next]);
    return n;
}

/* ---- attributes of `loop` ---- */

HT_BUILTIN(cycle) {
    const ht_jinja_loop *loop = v.object;
    if (all->n) return all->positional[(size_t)loop->index0 % all->n];
    return ht_jinja_fail(r, "no items for cycling given");
}

HT_BUILTIN(changed) {
    ht_jinja_loop *loop = v.object;
    bool same = loop->last_changed && loop->last_changed->n == all->n;
    for (size_t i = 0; same && i < all->n; i++)
        same = ht_jinja_equal(r->a, loop->last_changed->items[i], all->positional[i]);
    if (same) return ht_jinja_boolean(false);
    loop->last_changed = ht_jinja_list_new(r->a, all->n);
    for (size_t i = 0; i < all->n; i++) ht_jinja_list_append(r->a, loop->last_changed, all->positional[i]);
    return ht_jinja_boolean(true);
}

static const ht_jinja_builtin methods[] = {
    {"cycle", "*", 0, cycle, 0}, {"changed", "*", 0, changed, 0}, {NULL, NULL, 0, NULL, 0}};

ht_jinja_value ht_jinja_loop_attribute(ht_jinja_rendering *r, ht_jinja_loop *loop, const char *what) {
    const ht_jinja_builtin *method = ht_jinja_builtin_in(methods, what, strlen(what));
    if (method) return ht_jinja_method_value(r, method, (ht_jinja_value){.kind = HT_VALUE_LOOP, .object = loop});
    if (!strcmp(what, "index")) return ht_jinja_integer(loop->index0 + 1);
    if (!strcmp(what, "index0")) return ht_jinja_integer(loop->index0);
    if (!strcmp(what, "first")) return ht_jinja_boolean(loop->index0 == 0);
    if (!strcmp(what, "length")) return ht_jinja_integer(length(r, loop));
    if (!strcmp(what, "revindex")) return ht_jinja_integer(length(r, loop) - loop->index0);
    if (!strcmp(what, "revindex0")) return ht_jinja_integer(length(r, loop) - loop->index0 - 1);
    if (!strcmp(what, "depth")) return ht_jinja_integer(loop->depth0 + 1);
    if (!strcmp(what, "depth0")) return ht_jinja_integer(loop->depth0);
    if (!strcmp(what, "previtem"))
        return loop->index0 ? loop->before : ht_jinja_undefined_because(r->a, "there is no previous item");
    if (!strcmp(what, "last") || !strcmp(what, "nextitem")) {
        look_ahead(r, loop);
        if (what[0] == 'l') return ht_jinja_boolean(loop->ended);
        return loop->ended ? ht_jinja_undefined_because(r->a, "there is no next item") : loop->after;
    }
    return ht_jinja_undefined_because(r->a, "loop has no attribute '%.60s'", what);
}

static void execute_loop(ht_jinja_rendering *r, const ht_jinja_node *n, ht_jinja_scope *scope, ht_jinja_value items,
                         int depth0) {
    ht_jinja_scope *outside = r->scope;
    ht_jinja_list *source = r->a->status ? NULL : ht_jinja_items(r->a, items);
    ht_jinja_loop *loop = source ? ht_jinja_arena_alloc(r->a, sizeof *loop) : NULL;
    if (!loop) return;
    *loop = (ht_jinja_loop){.node = n, .scope = scope, .source = source, .index0 = -1, .depth0 = depth0};
    bool any = false;
    while (!r->breaks && move_on(r, loop)) {
        r->scope = new_scope(r, scope);
        ht_jinja_dict_set_text(r->a, r->scope->names, "loop", (ht_jinja_value){.kind = HT_VALUE_LOOP, .object = loop});
        assign(r, n->a, loop->current);
        if (!r->a->status) ht_jinja_execute(r, n->items[0]);
        any = any || !(r->breaks || r->continues); /* `else` ignores iterations left early, as in jinja2 */
        r->continues = false;
    }
    r->breaks = false;
    if (!any && n->n > 1 && !r->a->status) {
        r->scope = new_scope(r, scope);
        ht_jinja_execute(r, n->items[1]);
    }
    r->scope = outside;
}

static ht_jinja_value call_loop(ht_jinja_rendering *r, ht_jinja_loop *loop, const ht_jinja_arguments *all) {
    capture text;
    if (!loop->node->flags) return ht_jinja_fail(r, "a loop that calls itself needs `recursive`");
    if (all->n != 1 || all->named) return ht_jinja_fail(r, "a loop is called with its items");
    begin_capture(r, &text, r->scope);
    execute_loop(r, loop->node, loop->scope, all->positional[0], loop->depth0 + 1);
    r->breaks = r->continues = false; /* of its `else` */
    return end_capture(r, &text);
}

/* ---- statements ---- */

static void execute_body(ht_jinja_rendering *r, const ht_jinja_node *body) {
    for (size_t i = 0; i < body->n && !r->a->status && !r->breaks && !r->continues; i++)
        ht_jinja_execute(r, body->items[i]);
}

/* Renders a body to a text, in a new scope. */
static ht_jinja_value body_text(ht_jinja_rendering *r, const ht_jinja_node *body) {
    capture text;
    begin_capture(r, &text, new_scope(r, r->scope));
    ht_jinja_execute(r, body);
    return end_capture(r, &text);
}

static ht_jinja_value new_macro(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_macro *macro = ht_jinja_arena_alloc(r->a, sizeof *macro);
    if (!macro) return ht_jinja_undefined();
    *macro = (ht_jinja_macro){n, r->scope};
    return (ht_jinja_value){.kind = HT_VALUE_MACRO, .object = macro};
}

static void execute_call_block(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value callee = ht_jinja_evaluate(r, n->a->a);
    ht_jinja_arguments all = evaluate_arguments(r, n->a);
    add_named(r, &all, ht_jinja_text_value(r->a, "caller"), new_macro(r, n->b));
    if (!r->a->status) ht_jinja_put_value(r->out, jinja_call(r, callee, &all));
}

static void execute_scope(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_scope *outside = r->scope, *inside = new_scope(r, outside);
    for (size_t i = 0; i < n->n && !r->a->status; i++) { /* evaluated in the outer scope */
        ht_jinja_value v = ht_jinja_evaluate(r, n->items[i]->b);
        r->scope = inside;
        assign(r, n->items[i]->a, v);
        r->scope = outside;
    }
    r->scope = inside;
    if (!r->a->status) ht_jinja_execute(r, n->b);
    r->scope = outside;
}

static void execute(ht_jinja_rendering *r, const ht_jinja_node *n) {
    switch (n->kind) {
    case HT_NODE_BODY: execute_body(r, n); break;
    case HT_NODE_TEXT: ht_jinja_put_string(r->out, n->constant.string); break;
    case HT_NODE_PRINT: {
        ht_jinja_value v = ht_jinja_evaluate(r, n->a);
        if (!r->a->status) ht_jinja_put_value(r->out, v);
        break;
    }
    case HT_NODE_IF:
        if (ht_jinja_truth(ht_jinja_evaluate(r, n->a)))
            ht_jinja_execute(r, n->b);
        else if (n->c && !r->a->status)
            ht_jinja_execute(r, n->c);
        break;
    case HT_NODE_FOR: execute_loop(r, n, r->scope, ht_jinja_evaluate(r, n->b), 0); break;
    case HT_NODE_SET: assign(r, n->a, ht_jinja_evaluate(r, n->b)); break;
    case HT_NODE_SET_BLOCK: {
        ht_jinja_value v = body_text(r, n->b);
        assign(r, n->a, n->c ? filter_chain(r, n->c, v) : v);
        break;
    }
    case HT_NODE_MACRO: set_name(r, n->name, new_macro(r, n)); break;
    case HT_NODE_CALL_BLOCK: execute_call_block(r, n); break;
    case HT_NODE_FILTER_BLOCK: {
        ht_jinja_value v = filter_chain(r, n->a, body_text(r, n->b));
        if (!r->a->status) ht_jinja_put_value(r->out, v);
        break;
    }
    case HT_NODE_WITH:
    case HT_NODE_SCOPE: execute_scope(r, n); break;
    case HT_NODE_BREAK: r->breaks = true; break;
    case HT_NODE_CONTINUE: r->continues = true; break;
    default:
        ht_jinja_arena_fail(
            r->a, "%s", ht_jinja_is_string(n->constant) ? n->constant.string->text : "a statement is expected here");
    }
}

void ht_jinja_execute(ht_jinja_rendering *r, const ht_jinja_node *n) {
    if (enter(r, n)) execute(r, n);
    r->depth--;
    if (r->out->n > r->output_limit)
        ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "the template writes more than %zu MB", r->output_limit >> 20);
}
