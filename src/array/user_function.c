#include "array/user_function.h"

#include <stdlib.h>

ht_scope *ht_scope_child(ht_scope *s) {
    ht_scope *inner = s->tracing ? ht_scope_new_tracing(s->stream) : ht_scope_new(s->stream);
    if (!inner) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a scope for a function");
    return inner;
}

bool ht_scope_succeeded(ht_scope *s, const ht_scope *inner, bool ok) {
    if (inner->failed)
        ht_scope_fail_with(s, &inner->error);
    else if (!ok)
        ht_scope_fail(s, HT_ERR_ARGUMENT, "a user's function failed without a word");
    return ok && !inner->failed;
}

int ht_user_function_call(ht_scope *inner, const ht_function *f, ht_array *const *in, int n_in, ht_array **out,
                          int max_out) {
    ht_graphs_kept++;
    int n = f->call(inner, in, n_in, out, max_out, f->user);
    ht_graphs_kept--;
    if (inner->failed) return -1;
    if (n < 0)
        ht_scope_fail(inner, HT_ERR_ARGUMENT, "a user's function failed without a word");
    else if (n > max_out)
        ht_scope_fail(inner, HT_ERR_ARGUMENT, "a function gave %d arrays where there is room for %d", n, max_out);
    for (int i = 0; i < n && n <= max_out; i++)
        if (!out[i] || out[i] == HT_NONE)
            ht_scope_fail(inner, HT_ERR_ARGUMENT, "output %d of a function is %s, expected an array", i,
                          out[i] ? "HT_NONE" : "NULL");
    return inner->failed ? -1 : n;
}

bool ht_scope_give(ht_scope *s, ht_scope *inner, bool ok, ht_array **arrays, int n) {
    ok = ht_scope_succeeded(s, inner, ok);
    for (int i = 0; ok && i < n; i++) {
        arrays[i] = ht_scope_move(s, inner, arrays[i]);
        ok = arrays[i] != NULL;
    }
    for (int i = 0; !ok && i < n; i++) arrays[i] = NULL;
    ht_scope_free(inner);
    return ok;
}
