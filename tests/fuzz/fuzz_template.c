/* Chat templates: whatever the template and its variables are, there is a text in whole runs, or an error and none. The bytes
 * are a template, then a NUL and the messages, or the template alone. */
#include "base/text.h"
#include "template/template.h"
#include "tokens.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char talk[] =
        "[{\"role\":\"user\",\"content\":\" \\u00fc<b> \",\"tool_calls\":[{\"id\":1.5,\"n\":null}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"yes\"}],\"thinking\":\"hm\"}]";
    const uint8_t *nul = memchr(data, 0, size);
    size_t n = nul ? (size_t)(nul - data) : size;
    const ht_template_limits limits = {.steps = 50000, .memory_bytes = 8 << 20, .output_bytes = 1 << 18, .now = 1};
    ht_template_variable variables[] = {{"add_generation_prompt", "true", 4}, {"messages", talk, sizeof talk - 1}};
    if (nul) variables[1] = (ht_template_variable){"messages", (const char *)nul + 1, size - n - 1};
    ht_chat_template *t;
    ht_error err = {0};
    ht_status status = ht_chat_template_parse((const char *)data, n, "fuzzed", &t, &err);
    if (refused(status, &err, t)) return 0;
    char *text;
    size_t text_n, n_runs, end = 0;
    ht_text_run *runs;
    status = ht_chat_template_render_within(t, variables, 2, &limits, &text, &text_n, &runs, &n_runs, &err);
    ht_chat_template_free(t);
    if (refused(status, &err, text)) return 0;
    check(ht_utf8_valid(text, text_n));
    for (size_t i = 0; i < n_runs; i++) {
        check(runs[i].end > end && (!i || runs[i].input != runs[i - 1].input));
        end = runs[i].end;
    }
    check(end == text_n);
    free(runs);
    free(text);
    return 0;
}
