#include "template/eval.h"

#include <string.h>

bool ht_jinja_step(ht_jinja_rendering *r, size_t n) { return ht_jinja_work(r->a, n); }

static bool enter(ht_jinja_rendering *r, const ht_jinja_node *n) {
    r->a->line = n->line;
    r->a->column = n->column;
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
    ht_jinja_value v = b->call(r, self, bound, all);
    return r->a->status ? ht_jinja_undefined() : v;
}

static bool named_argument(const ht_jinja_arguments *all, const ht_jinja_string *name, ht_jinja_value *out) {
    const ht_jinja_value *found = all->named ? ht_jinja_dict_find_text(all->named, name->text, name->n) : NULL;
    if (found) *out = *found;
    return found != NULL;
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
    ht_jinja_scope *outside = r->scope;
    ht_jinja_builder *out = r->out, text = {.arena = r->a};
    ht_jinja_value v;
    r->scope = new_scope(r, m->scope);
    if (n->flags & HT_MACRO_CALLER) {
        const ht_jinja_value *caller = all->named ? ht_jinja_dict_find_text(all->named, "caller", 6) : NULL;
        v = caller ? *caller : ht_jinja_undefined_because(r->a, "No caller defined");
        ht_jinja_dict_set_text(r->a, r->scope->names, "caller", v);
    }
    bind_extra(r, m, all);
    for (size_t i = 0; i < n->n && !r->a->status; i++) {
        const ht_jinja_node *parameter = n->items[i];
        if (i < all->n)
            v = all->positional[i];
        else if (!named_argument(all, parameter->name, &v))
            v = parameter->a
                    ? ht_jinja_evaluate(r, parameter->a)
                    : ht_jinja_undefined_because(r->a, "parameter '%.60s' was not provided", parameter->name->text);
        set_name(r, parameter->name, v);
    }
    bool breaks = r->breaks, continues = r->continues;
    r->breaks = r->continues = false;
    r->out = &text;
    ht_jinja_execute(r, n->b);
    r->out = out;
    r->scope = outside;
    r->breaks = breaks;
    r->continues = continues;
    return ht_jinja_string_value(ht_jinja_built(&text));
}

static ht_jinja_value jinja_call(ht_jinja_rendering *r, ht_jinja_value callee, const ht_jinja_arguments *all) {
    if (ht_jinja_refuse_undefined(r, callee)) return ht_jinja_undefined();
    switch (callee.kind) {
    case HT_VALUE_MACRO: return jinja_call_macro(r, callee.object, all);
    case HT_VALUE_LOOP: return ht_jinja_call_loop(r, callee.object, all);
    case HT_VALUE_FUNCTION: {
        const ht_jinja_function *f = callee.object;
        return ht_jinja_call_builtin(r, f->builtin, f->self, all);
    }
    default: ht_jinja_arena_fail(r->a, "%s cannot be called", ht_jinja_type_name(callee)); return ht_jinja_undefined();
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
            for (size_t j = 0; more && j < more->n; j++) ht_jinja_list_append(r->a, positional, more->items[j]);
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
    r->a->line = n->line;
    r->a->column = n->column;
    if (!filter) {
        ht_jinja_arena_fail(r->a, "there is no filter '%.60s'", n->name->text);
        return ht_jinja_undefined();
    }
    return r->a->status ? ht_jinja_undefined() : ht_jinja_call_builtin(r, filter, of, &all);
}

/* The value of a filter's chain whose innermost one takes `of`. */
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
    if (!test) {
        ht_jinja_arena_fail(r->a, "there is no test '%.60s'", n->name->text);
        return ht_jinja_undefined();
    }
    return ht_jinja_call_builtin(r, test, of, &all);
}

static ht_jinja_value evaluate_call(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value callee = ht_jinja_evaluate(r, n->a);
    ht_jinja_arguments all = evaluate_arguments(r, n);
    r->a->line = n->line;
    r->a->column = n->column;
    return r->a->status ? ht_jinja_undefined() : jinja_call(r, callee, &all);
}

static ht_jinja_value evaluate_sign(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value v = ht_jinja_evaluate(r, n->a);
    int64_t i;
    if (ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    bool negates = n->kind == HT_NODE_NEGATE;
    if (ht_jinja_as_integer(v, &i)) return ht_jinja_integer(negates && i != INT64_MIN ? -i : i);
    if (v.kind == HT_VALUE_FLOAT) return ht_jinja_real(negates ? -v.real : v.real);
    ht_jinja_arena_fail(r->a, "%s has no sign", ht_jinja_type_name(v));
    return ht_jinja_undefined();
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
        r->a->line = n->line;
        r->a->column = n->column;
        return r->a->status ? ht_jinja_undefined() : ht_jinja_binary(r, n->name->text, x, y);
    }
    case HT_NODE_NEGATE:
    case HT_NODE_PLUS: return evaluate_sign(r, n);
    case HT_NODE_CONCATENATE: {
        ht_jinja_builder b = {.arena = r->a};
        for (size_t i = 0; i < n->n && !r->a->status; i++) {
            const ht_jinja_value item = ht_jinja_evaluate(r, n->items[i]);
            /* Texts grow by a piece at their end. */
            if (!i && ht_jinja_is_string(item) && !r->a->status)
                ht_jinja_reserve(&b, item.string->n + item.string->n / 8 + 48);
            ht_jinja_put_value(&b, item);
        }
        return ht_jinja_string_value(ht_jinja_built(&b));
    }
    default: ht_jinja_arena_fail(r->a, "an expression is expected here"); return ht_jinja_undefined();
    }
}

ht_jinja_value ht_jinja_evaluate(ht_jinja_rendering *r, const ht_jinja_node *n) {
    ht_jinja_value v = enter(r, n) ? evaluate(r, n) : ht_jinja_undefined();
    r->depth--;
    return r->a->status ? ht_jinja_undefined() : v;
}

/* ---- statements ---- */

static void execute_body(ht_jinja_rendering *r, const ht_jinja_node *body) {
    for (size_t i = 0; i < body->n && !r->a->status && !r->breaks && !r->continues; i++)
        ht_jinja_execute(r, body->items[i]);
}

/* A body's text; names that it sets are its own. */
static ht_jinja_value body_text(ht_jinja_rendering *r, const ht_jinja_node *body) {
    ht_jinja_scope *outside = r->scope;
    ht_jinja_builder *out = r->out, text = {.arena = r->a};
    r->scope = new_scope(r, outside);
    r->out = &text;
    ht_jinja_execute(r, body);
    r->out = out;
    r->scope = outside;
    return ht_jinja_string_value(ht_jinja_built(&text));
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
    for (size_t i = 0; i < n->n && !r->a->status; i++) { /* values are those of outside */
        ht_jinja_value v = ht_jinja_evaluate(r, n->items[i]->b);
        r->scope = inside;
        ht_jinja_assign(r, n->items[i]->a, v);
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
    case HT_NODE_FOR: ht_jinja_execute_loop(r, n, r->scope, ht_jinja_evaluate(r, n->b), 0); break;
    case HT_NODE_SET: ht_jinja_assign(r, n->a, ht_jinja_evaluate(r, n->b)); break;
    case HT_NODE_SET_BLOCK: {
        ht_jinja_value v = body_text(r, n->b);
        ht_jinja_assign(r, n->a, n->c ? filter_chain(r, n->c, v) : v);
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
