/* Adapters: LoRA changes to a model's projections, small files that are trained, loaded and chosen per session.
 *
 * An adapter is read from a directory of PEFT or mlx-lm, or from a GGUF file, and checked against the model: every tensor is
 * used and has the shape that the model's projection implies. */
#ifndef HEARTH_ADAPTER_H
#define HEARTH_ADAPTER_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_adapter ht_adapter;

HT_API void ht_adapter_free(ht_adapter *a); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
