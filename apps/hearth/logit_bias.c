#include "logit_bias.h"

#include "base/grow.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool bias_list_put(bias_list *list, int32_t id, float bias) {
    for (int i = 0; i < list->n; i++)
        if (list->items[i].id == id) {
            list->items[i].bias = bias;
            return true;
        }
    if (!HT_GROW_ONE(list->items, list->n)) return false;
    list->items[list->n++] = (ht_logit_bias){id, bias};
    return true;
}

bool bias_list_read(bias_list *list, const char *text, size_t n, const char **expected) {
    char word[80];
    const size_t digits = strspn(text, "0123456789"); /* neither a sign nor a space */
    *expected = "ID=BIAS, a token's id and a number, as 1234=-100";
    if (!digits || n >= sizeof word || digits >= n || text[digits] != '=') return false;
    memcpy(word, text, n);
    word[n] = '\0';
    char *end;
    errno = 0;
    const long long id = strtoll(word, NULL, 10);
    if (errno || id > INT32_MAX) return false;
    const float bias = strtof(word + digits + 1, &end);
    if (end == word + digits + 1 || *end || !isfinite(bias)) return false;
    *expected = "less, as there is no memory for it";
    return bias_list_put(list, (int32_t)id, bias);
}

void bias_list_free(bias_list *list) {
    free(list->items);
    *list = (bias_list){0};
}
