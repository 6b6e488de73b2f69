/* Files of a rewritten checkpoint's weights: which of them each tensor goes to, what they are called, and the tensors of one as
 * its writer takes them. */
#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/rewrite.h"
#include "formats/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which file ---- */

/* Bytes of tensors in a safetensors file where none are asked for, as transformers and mlx-lm cut them. */
static const size_t usual_bytes = (size_t)5 * 1000 * 1000 * 1000;

enum { NOT_PLACED = -1, APART = -2 };

typedef struct shares {
    const ht_rewrite_plan *plan;
    size_t limit;        /* bytes of a file */
    size_t first, other; /* bytes of a file without tensors: of the first one, of each other */
    size_t *weight;      /* [plan->n] bytes of a weight with its scales and biases, by the weight's number */
    int *file;           /* [plan->n] where these go, if not NOT_PLACED; APART: they do not fit in one file */
    int current;         /* the file that is filled */
    size_t filled;       /* its bytes */
    bool is_empty;       /* it has no tensor yet */
} shares;

static size_t add_saturated(size_t a, size_t b) {
    size_t sum;
    return ht_add_size(a, b, &sum) ? sum : SIZE_MAX;
}

static size_t bytes_of(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t) {
    if (!plan->max_file_bytes) return t->to.n_bytes;
    return plan->to_gguf ? ht_gguf_bytes_of(&t->to, ht_gguf_alignment(plan->to_other ? NULL : plan->c->gguf))
                         : ht_safetensors_bytes_of(&t->to);
}

static bool fits(const shares *s, size_t filled, size_t bytes) {
    return filled <= s->limit && bytes <= s->limit - filled;
}

/* The file of the next `bytes`. One that has no tensor takes what is too large for any, unless it has a GGUF file's metadata:
 * these are then alone in the first file. */
static int place(shares *s, size_t bytes) {
    const bool may_end = !s->is_empty || (s->plan->to_gguf && s->current == 0);
    if (may_end && !fits(s, s->filled, bytes)) {
        s->current++;
        s->filled = s->other;
    }
    s->is_empty = false;
    s->filled = add_saturated(s->filled, bytes);
    return s->current;
}

/* Takes the tensors in their order, those that belong to a weight with the first of them. */
static void place_all(shares *s, ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        s->file[i] = NOT_PLACED;
        if (t->action != HT_REWRITE_DROP) s->weight[t->owner] = add_saturated(s->weight[t->owner], bytes_of(plan, t));
    }
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        int *together = &s->file[t->owner];
        if (t->action == HT_REWRITE_DROP) continue;
        if (*together == NOT_PLACED)
            *together = fits(s, s->other, s->weight[t->owner]) ? place(s, s->weight[t->owner]) : APART;
        t->file = *together == APART ? place(s, bytes_of(plan, t)) : *together;
    }
}

static ht_status measure_headers(const ht_rewrite_plan *plan, shares *s, ht_error *err) {
    if (!plan->max_file_bytes) return HT_OK;
    if (!plan->to_gguf) {
        const ht_status status = ht_rewrite_safetensors_header(plan, &s->first, err);
        s->other = s->first;
        return status;
    }
    const ht_status status = ht_rewrite_gguf_header(plan, 0, &s->first, err);
    return status ? status : ht_rewrite_gguf_header(plan, 1, &s->other, err);
}

static ht_status share_out(ht_rewrite_plan *plan, ht_error *err) {
    shares s = {.plan = plan,
                .limit = plan->max_file_bytes ? (size_t)plan->max_file_bytes : usual_bytes,
                .weight = calloc(plan->n + 1, sizeof *s.weight),
                .file = calloc(plan->n + 1, sizeof *s.file),
                .is_empty = true};
    ht_status status = s.weight && s.file ? HT_OK : ht_fail_memory(err, plan->n * sizeof *s.weight, "shares of files");
    if (!status) status = measure_headers(plan, &s, err);
    if (!status) {
        s.filled = s.first;
        place_all(&s, plan);
        plan->n_files = s.current + 1;
    }
    free(s.weight);
    free(s.file);
    const int most = plan->to_gguf ? HT_GGUF_PARTS_MAX : HT_SAFETENSORS_FILES_MAX;
    if (status || plan->n_files <= most) return status;
    return ht_fail(err, HT_ERR_LIMIT,
                   "%s: would be %d file%s of at most %lld bytes, and there can be %d; take more bytes", plan->out_path,
                   plan->n_files, ht_plural(plan->n_files), (long long)plan->max_file_bytes, most);
}

/* ---- names ---- */

/* What the names of GGUF files begin with: as the checkpoint's do, or as the file that is asked for. */
static const char *stem_of(const ht_rewrite_plan *plan, size_t *n) {
    int number, count;
    const char *name = !plan->is_directory ? ht_base_name(plan->out_path)
                       : plan->c->parts    ? ht_gguf_set_part(plan->c->parts, 0)->name
                                           : "model.gguf";
    const bool is_part = plan->is_directory && ht_gguf_part_name(name, &number, &count, n);
    if (!is_part) *n = strlen(name) - (ht_ends_with(name, ".gguf") ? strlen(".gguf") : 0);
    return name;
}

static char *gguf_name(const ht_rewrite_plan *plan, int file) {
    size_t n;
    const char *stem = stem_of(plan, &n);
    if (plan->n_files > 1) return ht_gguf_part_path(stem, n, file + 1, plan->n_files);
    char *name = malloc(n + sizeof ".gguf");
    if (name) snprintf(name, n + sizeof ".gguf", "%.*s.gguf", (int)n, stem);
    return name;
}

static char *safetensors_name(const ht_rewrite_plan *plan, int file) {
    char name[64] = "model.safetensors";
    if (!plan->to_other && !plan->max_file_bytes)
        return strdup(ht_base_name(ht_safetensors_file(plan->c->tensors, file)->path));
    if (plan->n_files > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", file + 1, plan->n_files);
    return strdup(name);
}

ht_status ht_rewrite_share_out(ht_rewrite_plan *plan, ht_error *err) {
    const bool anew = plan->max_file_bytes || (plan->to_other && !plan->to_gguf);
    plan->n_files = plan->to_gguf ? 1 : plan->to_other ? 0 : ht_safetensors_n_files(plan->c->tensors);
    ht_status status = anew ? share_out(plan, err) : HT_OK;
    const int n = status ? 0 : plan->n_files;
    if (!status) plan->file = calloc((size_t)n + 1, sizeof *plan->file);
    if (!status && !plan->file) status = ht_fail_memory(err, (size_t)n * sizeof *plan->file, "names of files");
    for (int i = 0; !status && i < n; i++) {
        plan->file[i] = plan->to_gguf ? gguf_name(plan, i) : safetensors_name(plan, i);
        if (!plan->file[i]) status = ht_fail_memory(err, 0, "a name");
    }
    return status;
}

/* ---- tensors of one file ---- */

static void add_output(const ht_rewrite_plan *plan, size_t number, ht_rewrite_outputs *out) {
    out->tensor[out->n] = plan->tensor[number].to;
    out->number[out->n++] = number;
}

/* Whether the tensor is written behind the weight that it belongs to: parts that follow each other are made once. */
static bool follows_weight(const ht_rewrite_plan *plan, size_t number) {
    const ht_rewrite_tensor *t = &plan->tensor[number];
    return t->action == HT_REWRITE_ROUND && t->owner != number && plan->tensor[t->owner].file == t->file;
}

ht_status ht_rewrite_outputs_list(const ht_rewrite_plan *plan, int file, ht_rewrite_values *values,
                                  ht_rewrite_outputs *out, ht_error *err) {
    *out = (ht_rewrite_outputs){values, calloc(plan->n + 1, sizeof *out->tensor),
                                calloc(plan->n + 1, sizeof *out->number), 0};
    if (!out->tensor || !out->number) return ht_fail_memory(err, plan->n * sizeof *out->tensor, "a list of tensors");
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_DROP || t->file != file || follows_weight(plan, i)) continue;
        add_output(plan, i, out);
        for (size_t part = 0; ht_rewrite_in_parts(plan, t) && part < plan->n; part++)
            if (plan->tensor[part].owner == i && follows_weight(plan, part)) add_output(plan, part, out);
    }
    return HT_OK;
}

void ht_rewrite_outputs_free(ht_rewrite_outputs *o) {
    free(o->tensor);
    free(o->number);
}

ht_status ht_rewrite_output_values(void *user, int i, const void **bytes, ht_error *err) {
    const ht_rewrite_outputs *o = user;
    return ht_rewrite_values_of(o->values, o->number[i], bytes, err);
}
