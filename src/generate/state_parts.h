/* Parts that state files of sessions and of prefix caches have in common: where the keys and values come from, and positions of
 * pages. Origins are compared as texts, line by line, so that a file needs no parser for them, and a difference can be shown
 * as it is. */
#ifndef HT_GENERATE_STATE_PARTS_H
#define HT_GENERATE_STATE_PARTS_H

#include "device/kv.h"
#include "generate/state_file.h"
#include "models/adapter.h"
#include "models/model.h"

/* All that keys and values depend on beside the tokens: the model, the cache's types and shapes, n adapters. The caller frees
 * *out. */
ht_status ht_state_origin(const ht_model *m, ht_adapter *const *adapters, const float *scales, int n, char **out,
                          ht_error *err);
/* Writes the section of an origin. */
ht_status ht_state_put_origin(ht_state_writer *w, const char *origin, ht_error *err);
/* Whether a file has this origin: HT_ERR_ARGUMENT, with the first difference, when it has another. `who` is what the origin is
 * of, such as "session". */
ht_status ht_state_check_origin(const ht_state_file *f, const char *origin, const char *who, ht_error *err);

/* Bytes of room that positions of one page of any layer need. */
size_t ht_state_page_room(const ht_layer_kv *kv, int32_t n_layers);
/* Positions [first, first + n) of a page to the section that is written. */
ht_status ht_state_put_positions(ht_state_writer *w, ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page,
                                 int64_t first, int64_t n, void *room, ht_error *err);
/* And from a section, which has them at `at`; `page` NULL: they are read for the checksum alone. */
ht_status ht_state_get_positions(const ht_state_file *f, const ht_state_section *s, uint64_t at, ht_state_sum *sum,
                                 ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, int64_t first, int64_t n,
                                 void *room, ht_error *err);

#endif
