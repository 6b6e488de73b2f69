/* User function calls: in a scope of their own, with checked results. */
#ifndef HT_ARRAY_USER_FUNCTION_H
#define HT_ARRAY_USER_FUNCTION_H

#include "array/array.h"

#include <hearth/transform.h>

/* A scope for a callback, like `s`; NULL, with an error in `s`, when memory ran out. */
ht_scope *ht_scope_child(ht_scope *s);
/* `ok`, unless `inner` failed; a failure becomes that of `s`. */
bool ht_scope_succeeded(ht_scope *s, const ht_scope *inner, bool ok);

/* f's results in `inner`, and their count; -1, with an error in `inner`. Evaluated arrays keep what made them meanwhile. */
int ht_user_function_call(ht_scope *inner, const ht_function *f, ht_array *const *in, int n_in, ht_array **out,
                          int max_out);

/* Makes `s` hold arrays of `inner`, and ends `inner`. Without `ok`, or on failure, all are NULL, and false. */
bool ht_scope_give(ht_scope *s, ht_scope *inner, bool ok, ht_array **arrays, int n);

#endif
