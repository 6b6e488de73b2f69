#include "checkpoint/family.h"
#include "formats/weight_type.h"

#include <hearth/model.h>

#include <stdio.h>
#include <string.h>

#define ROW(name)  &ht_family_##name,
#define NAME(name) #name,
static const ht_family *const families[] = {HT_FAMILIES(ROW)};
static const char *const names[] = {HT_FAMILIES(NAME) NULL};
enum { N_FAMILIES = sizeof families / sizeof *families };

const ht_family *ht_family_of_architecture(const char *architecture) {
    for (int i = 0; i < N_FAMILIES; i++)
        if (!strcmp(architecture, families[i]->architecture)) return families[i];
    return NULL;
}

const ht_family *ht_family_of_model_type(const char *model_type) {
    for (int i = 0; i < N_FAMILIES; i++)
        for (const char *const *t = families[i]->model_types; *t; t++)
            if (!strcmp(model_type, *t)) return families[i];
    return NULL;
}

const char *ht_family_list(char out[HT_FAMILY_LIST]) {
    size_t at = 0;
    for (int i = 0; i < N_FAMILIES && at < HT_FAMILY_LIST; i++)
        at += (size_t)snprintf(out + at, HT_FAMILY_LIST - at, "%s%s",
                               i == 0                ? ""
                               : i == N_FAMILIES - 1 ? " and "
                                                     : ", ",
                               names[i]);
    return out;
}

const char *const *ht_model_architectures(void) { return names; }

const char *ht_model_weight_type(const char *format, int i) {
    bool gguf = !strcmp(format, "gguf");
    if (!gguf && strcmp(format, "safetensors") != 0) return NULL;
    for (int t = 0; t < HT_W_COUNT; t++) {
        const ht_weight_type_info *type = ht_weight_type_info_of((ht_weight_type)t);
        bool there = gguf ? type->gguf_id >= 0 : type->block == 1; /* safetensors has no block types */
        if (there && i-- == 0) return type->name;
    }
    return NULL;
}
