/* Names of tools that every tool-call format can write and read. */
#ifndef HT_BASE_TOOL_NAME_H
#define HT_BASE_TOOL_NAME_H

#include <stdbool.h>
#include <string.h>

#define HT_TOOL_NAME_RULE                                                                                              \
    "one or more letters, digits and signs, none of them a space, a quote, a bracket, or one of , ; : = \\"

static inline bool ht_is_tool_name(const char *s) {
    const char *at = s;
    while (*at && (unsigned char)*at > ' ' && !strchr("\"'`<>{}()[],;:=\\", *at)) at++;
    return at > s && !*at;
}

#endif
