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
    ht_written out;
    size_t end = 0;
    status = ht_chat_template_render_within(t, variables, 2, &limits, &out, &err);
    ht_chat_template_free(t);
    if (refused(status, &err, out.text)) return 0;
    check(ht_utf8_valid(out.text, out.n));
    for (size_t i = 0; i < out.n_runs; i++) {
        check(out.runs[i].end > end && (!i || out.runs[i].input != out.runs[i - 1].input));
        end = out.runs[i].end;
    }
    check(end == out.n);
    free(out.runs);
    free(out.text);
    return 0;
}
