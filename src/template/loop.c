/* Loops: items that pass the loop's test are found as they are needed, `loop` tells about them, targets are assigned. */
#include "template/eval.h"

#include <string.h>

static ht_jinja_scope *scope_for(ht_jinja_rendering *r, ht_jinja_scope *parent) {
    ht_jinja_scope *scope = ht_jinja_arena_alloc(r->a, sizeof *scope);
    if (!scope) return parent;
    *scope = (ht_jinja_scope){parent, ht_jinja_dict_new(r->a)};
    return scope;
}

/* ---- assignment ---- */

static void assign_items(ht_jinja_rendering *r, const ht_jinja_node *target, ht_jinja_value v) {
    if (ht_jinja_refuse_undefined(r, v)) return;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    if (!items) return;
    if (items->n != target->n) {
        ht_jinja_arena_fail(r->a, "%zu values for %zu names", items->n, target->n);
        return;
    }
    for (size_t i = 0; i < target->n; i++) ht_jinja_assign(r, target->items[i], items->items[i]);
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

void ht_jinja_assign(ht_jinja_rendering *r, const ht_jinja_node *target, ht_jinja_value v) {
    if (r->a->status) return;
    if (target->kind == HT_NODE_TUPLE)
        assign_items(r, target, v);
    else if (target->kind == HT_NODE_NAMESPACE)
        assign_attribute(r, target, v);
    else
        ht_jinja_dict_set(r->a, r->scope->names, ht_jinja_string_value(target->name), v);
}

/* ---- items ---- */

static bool passes(ht_jinja_rendering *r, const ht_jinja_loop *loop, ht_jinja_value item) {
    if (!loop->node->c) return true;
    ht_jinja_scope *outside = r->scope;
    r->scope = scope_for(r, loop->scope);
    ht_jinja_assign(r, loop->node->a, item);
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

/* All items there will be: the ones not looked at yet are put through the test, and the loop goes on without it. */
static int64_t length(ht_jinja_rendering *r, ht_jinja_loop *loop) {
    int64_t n = loop->index0 + 1;
    if (!loop->node->c) return n + (loop->has_after && !loop->ended) + (int64_t)(loop->source->n - loop->next);
    look_ahead(r, loop);
    size_t next = loop->next;
    n += !loop->ended;
    for (; next < loop->source->n && ht_jinja_step(r, 1); next++) n += passes(r, loop, loop->source->items[next]);
    return n;
}

/* ---- what `loop` has ---- */

static ht_jinja_value cycle(ht_jinja_rendering *r, ht_jinja_value self, const ht_jinja_value *const *bound,
                            const ht_jinja_arguments *all) {
    (void)bound;
    const ht_jinja_loop *loop = self.object;
    if (all->n) return all->positional[(size_t)loop->index0 % all->n];
    ht_jinja_arena_fail(r->a, "no items for cycling given");
    return ht_jinja_undefined();
}

static ht_jinja_value changed(ht_jinja_rendering *r, ht_jinja_value self, const ht_jinja_value *const *bound,
                              const ht_jinja_arguments *all) {
    (void)bound;
    ht_jinja_loop *loop = self.object;
    bool same = loop->last_changed && loop->last_changed->n == all->n;
    for (size_t i = 0; same && i < all->n; i++)
        same = ht_jinja_equal(r->a, loop->last_changed->items[i], all->positional[i]);
    if (same) return ht_jinja_boolean(false);
    loop->last_changed = ht_jinja_list_new(r->a, all->n);
    for (size_t i = 0; i < all->n; i++) ht_jinja_list_append(r->a, loop->last_changed, all->positional[i]);
    return ht_jinja_boolean(true);
}

static const ht_jinja_builtin methods[] = {
    {"cycle", "*", 0, cycle}, {"changed", "*", 0, changed}, {NULL, NULL, 0, NULL}};

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

ht_jinja_value ht_jinja_call_loop(ht_jinja_rendering *r, ht_jinja_loop *loop, const ht_jinja_arguments *all) {
    if (!loop->node->flags || all->n != 1 || all->named) {
        ht_jinja_arena_fail(r->a, loop->node->flags ? "a loop is called with its items"
                                                    : "a loop that calls itself needs `recursive`");
        return ht_jinja_undefined();
    }
    ht_jinja_builder *out = r->out, text = {.arena = r->a};
    bool breaks = r->breaks, continues = r->continues;
    r->breaks = r->continues = false;
    r->out = &text;
    ht_jinja_execute_loop(r, loop->node, loop->scope, all->positional[0], loop->depth0 + 1);
    r->out = out;
    r->breaks = breaks;
    r->continues = continues;
    return ht_jinja_string_value(ht_jinja_built(&text));
}

/* ---- the loop itself ---- */

void ht_jinja_execute_loop(ht_jinja_rendering *r, const ht_jinja_node *n, ht_jinja_scope *scope, ht_jinja_value items,
                           int depth0) {
    ht_jinja_scope *outside = r->scope;
    ht_jinja_list *source = r->a->status ? NULL : ht_jinja_items(r->a, items);
    ht_jinja_loop *loop = source ? ht_jinja_arena_alloc(r->a, sizeof *loop) : NULL;
    if (!loop) return;
    *loop = (ht_jinja_loop){.node = n, .scope = scope, .source = source, .index0 = -1, .depth0 = depth0};
    bool any = false;
    while (!r->breaks && move_on(r, loop)) {
        r->scope = scope_for(r, scope);
        ht_jinja_dict_set_text(r->a, r->scope->names, "loop", (ht_jinja_value){.kind = HT_VALUE_LOOP, .object = loop});
        ht_jinja_assign(r, n->a, loop->current);
        if (!r->a->status) ht_jinja_execute(r, n->items[0]);
        any = any || !(r->breaks || r->continues); /* a round that is left early is none for `else`, as in jinja2 */
        r->continues = false;
    }
    r->breaks = false;
    if (!any && n->n > 1 && !r->a->status) {
        r->scope = scope_for(r, scope);
        ht_jinja_execute(r, n->items[1]);
    }
    r->scope = outside;
}
