#include "checkpoint/family.h"

#include <stdio.h>
#include <string.h>

const ht_family *ht_family_of_architecture(const char *architecture) {
    for (const ht_family *const *f = ht_families; *f; f++)
        if (!strcmp(architecture, (*f)->architecture)) return *f;
    return NULL;
}

const ht_family *ht_family_of_model_type(const char *model_type) {
    for (const ht_family *const *f = ht_families; *f; f++)
        for (const char *const *t = (*f)->model_types; *t; t++)
            if (!strcmp(model_type, *t)) return *f;
    return NULL;
}

const char *ht_family_list(char out[HT_FAMILY_LIST]) {
    size_t at = 0;
    for (const ht_family *const *f = ht_families; *f && at < HT_FAMILY_LIST; f++)
        at += (size_t)snprintf(out + at, HT_FAMILY_LIST - at, "%s%s",
                               f == ht_families ? ""
                               : f[1]           ? ", "
                                                : " and ",
                               (*f)->architecture);
    return out;
}
