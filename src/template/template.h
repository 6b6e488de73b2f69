/* Internal rendering for <hearth/template.h>, with limits and the origin of each byte. */
#ifndef HT_TEMPLATE_TEMPLATE_H
#define HT_TEMPLATE_TEMPLATE_H

#include "template/value.h"

#include <hearth/template.h>

/* Limits of a rendering; 0: the default. */
typedef struct ht_template_limits {
    int64_t steps;       /* 20,000,000 */
    size_t memory_bytes; /* 256 MiB */
    size_t output_bytes; /* 64 MiB */
    int64_t now;         /* time for strftime_now, seconds since 1970; 0: the current time */
} ht_template_limits;

/* Whether the template's source holds the text. */
bool ht_chat_template_mentions(const ht_chat_template *t, const char *text);
const char *ht_chat_template_source(const ht_chat_template *t); /* lent */

/* ht_chat_template_render within `limits` (NULL: the defaults); the runs mark text from the variables. */
ht_status ht_chat_template_render_within(const ht_chat_template *t, const ht_template_variable *variables, size_t n,
                                         const ht_template_limits *limits, ht_written *out, ht_error *err);
/* The same with the entries of a dict as the variables; their values have JSON types. The dict is only read. */
ht_status ht_chat_template_render_values(const ht_chat_template *t, const ht_jinja_dict *variables,
                                         const ht_template_limits *limits, ht_written *out, ht_error *err);

#endif
