/* Calls of user functions, each in a child scope, with checked results. */
#ifndef HT_ARRAY_USER_FUNCTION_H
#define HT_ARRAY_USER_FUNCTION_H

#include "array/array.h"

#include <hearth/transform.h>

/* New scope for a callback, on the stream of `s`; NULL, with an error in `s`, when memory ran out. */
ht_scope *ht_scope_child(ht_scope *s);
/* Copies a failure of `inner` to `s`. Returns false after a failure, else `ok`. */
bool ht_scope_succeeded(ht_scope *s, const ht_scope *inner, bool ok);

/* Calls f in scope `inner` and returns the number of its results, or -1 with an error in `inner`. During the call
 * evaluated arrays keep their inputs, so that they can be differentiated. */
int ht_user_function_call(ht_scope *inner, const ht_function *f, ht_array *const *in, int n_in, ht_array **out,
                          int max_out);

/* Moves arrays of `inner` to `s` and frees `inner`. Returns false, with all arrays NULL, on failure or without `ok`. */
bool ht_scope_give(ht_scope *s, ht_scope *inner, bool ok, ht_array **arrays, int n);

#endif
