/* Optimisers: from parameters and their gradients to new parameters, gradient clipping, and schedules of the learning
 * rate.
 *
 * Formulas are torch's (torch.optim.AdamW, torch.optim.SGD, torch.nn.utils.clip_grad_norm_) and those of
 * transformers' schedules. Parameters are f32, bf16 or f16; moments are f32, and a step computes in f32 and rounds a
 * parameter once, to nearest even. The bits of a step do not depend on the number of threads. */
#ifndef HEARTH_OPTIMIZER_H
#define HEARTH_OPTIMIZER_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_optimizer_kind {
    /* AdamW (Loshchilov and Hutter, 2019), with bias correction. For parameter p with gradient g at step t, from 1:
     * m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
     * p = p (1 - lr weight_decay) - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). */
    HT_OPTIMIZER_ADAMW,
    /* Stochastic gradient descent: b = momentum b + (g + weight_decay p), p = p - lr b. */
    HT_OPTIMIZER_SGD
} ht_optimizer_kind;

/* Options of ht_optimizer_new. */
typedef struct ht_optimizer_options {
    size_t size;            /* of the struct, set by ht_optimizer_options_init */
    ht_optimizer_kind kind; /* default HT_OPTIMIZER_ADAMW */
    double beta1, beta2;    /* of AdamW: 0 or more, below 1; default 0.9 and 0.999 */
    double eps;             /* of AdamW: 0 or more; default 1e-8 */
    double momentum;        /* of SGD: 0 or more; default 0 */
    double weight_decay;    /* 0 or more; default -1: that of the kind, 0.01 for AdamW and 0 for SGD */
} ht_optimizer_options;
HT_API void ht_optimizer_options_init(ht_optimizer_options *options, size_t size);

/* A rule and its state: how many steps were taken, and the moments of each parameter. Belongs to one thread at a
 * time. */
typedef struct ht_optimizer ht_optimizer;

/* The caller frees *out. `options` may be NULL (the defaults). */
HT_API ht_status ht_optimizer_new(const ht_optimizer_options *options, ht_optimizer **out, ht_error *err);
HT_API void ht_optimizer_free(ht_optimizer *o); /* NULL is fine */

/* One step with learning rate `lr`, finite and not negative. new_params[i] is the updated params[i], of its shape,
 * evaluated, in the scope `s`. Every step has the same parameters in the same order, by number and shape; the
 * first step begins with moments of 0. Gradients are floating point. On failure the state is unchanged, and every
 * new_params[i] is NULL. A step evaluates, so it cannot be part of a compiled function. */
HT_API ht_status ht_optimizer_step(ht_optimizer *o, ht_scope *s, ht_array *const *params, ht_array *const *grads, int n,
                                   double lr, ht_array **new_params, ht_error *err);

/* The state, for checkpoints: *step is the number of steps taken, and *moments the f32 arrays of the state, lent
 * until the next step: of AdamW m of every parameter, then v of every parameter; of SGD with momentum b of every
 * parameter, and none without. Returns their number, 0 before the first step. */
HT_API int ht_optimizer_state(const ht_optimizer *o, int64_t *step, ht_array *const **moments);
/* Restores a state of ht_optimizer_state: the next step then gives the same bits as in the original optimiser. The
 * arrays are evaluated in `s` and held. HT_ERR_ARGUMENT, with the state unchanged, for arrays that do not fit the
 * kind. */
HT_API ht_status ht_optimizer_set_state(ht_optimizer *o, ht_scope *s, int64_t step, ht_array *const *moments, int n,
                                        ht_error *err);

/* ---- gradient clipping ---- */

/* Clips the norm of n gradients together, as torch's clip_grad_norm_: *norm, an f32 scalar, is the square root of the
 * sum of the squares of all their elements, and out[i] = grads[i] * min(1, max_norm / (*norm + 1e-6)), in the dtype
 * of grads[i]. max_norm is 0 or more; INFINITY leaves gradients as they are. Where an element is not finite, the norm
 * is not finite either, and no gradient may be used. `out` may be `grads`. Returns false, with all results NULL, on
 * failure. */
HT_API bool ht_clip_grad_norm(ht_scope *s, ht_array *const *grads, int n, double max_norm, ht_array **out,
                              ht_array **norm);

/* ---- schedules ---- */

typedef enum ht_schedule_kind {
    HT_SCHEDULE_CONSTANT,
    HT_SCHEDULE_LINEAR, /* down to 0 at total_steps */
    HT_SCHEDULE_COSINE  /* down to 0 at total_steps, along half a cosine */
} ht_schedule_kind;

/* A schedule of the learning rate. */
typedef struct ht_schedule {
    size_t size;           /* of the struct, set by ht_schedule_init */
    ht_schedule_kind kind; /* default HT_SCHEDULE_CONSTANT */
    double learning_rate;  /* the peak; default 1e-5 */
    int64_t warmup_steps;  /* over which the rate grows from 0 to its peak; default 0 */
    int64_t total_steps;   /* of linear and cosine, warm-up included; default 0 */
} ht_schedule;
HT_API void ht_schedule_init(ht_schedule *schedule, size_t size);

/* The learning rate of step `step`, counted from 0: the peak times step / warmup_steps during the warm-up, whose
 * first step has a rate of 0, and afterwards times 1, 1 - r or (1 + cos(pi r)) / 2, where r = (step - warmup_steps) /
 * (total_steps - warmup_steps), at most 1. The factors are those of get_constant_, get_linear_ and
 * get_cosine_schedule_with_warmup of transformers; from total_steps on the rate stays 0, where a cosine of
 * transformers rises again. NaN for a negative step, and for a struct that ht_schedule_init did not make or that has
 * an unknown kind or negative numbers. */
HT_API double ht_schedule_lr(const ht_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
