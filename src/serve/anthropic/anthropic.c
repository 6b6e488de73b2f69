/* Anthropic's Messages interface: whole and streamed responses, and token counts. */
#include "serve/conversation.h"
#include "serve/endpoints.h"
#include "serve/messages.h"
#include "serve/sampling.h"

#include <string.h>
#include <strings.h>

/* ---- fields ---- */

#define FULL SERVE_IS_TEXT, .required = true
#define TEXT_OR_LIST(block)                                                                                            \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = (block) }
static const serve_field of_text[] = {{"text", .is = FULL}, {0}};
static const serve_kind text_kinds[] = {{"text", of_text}, {0}};
static const serve_shape text_block = {.types = SERVE_JSON_OBJECT, .kinds = text_kinds, .lenient = true};

static const serve_kind sources[] = {{"text", SERVE_FIELDS({"data", .is = FULL})}, {0}};
static const serve_field of_document[] = {
    {"source", .is = {.types = SERVE_JSON_OBJECT, .kinds = sources, .other_kinds = true, .lenient = true}}, {0}};
static const serve_kind result_kinds[] = {{"document", of_document},
                                          {"text", of_text},
                                          {"tool_reference", SERVE_FIELDS({"tool_name", .is = FULL})},
                                          {"image", SERVE_NO_FIELDS},
                                          {0}};
static const serve_shape result_block = {.types = SERVE_JSON_OBJECT, .kinds = result_kinds, .lenient = true};
static const serve_field of_result[] = {{"tool_use_id", .is = FULL},
                                        {"content", .is = TEXT_OR_LIST(&result_block)},
                                        {"is_error", .is = SERVE_IS_FLAG},
                                        {0}};
static const serve_field of_use[] = {{"id", .is = FULL}, {"name", .is = FULL}, {"input", .is = {.types = 0}}, {0}};
static const serve_field of_thought[] = {{"thinking", .is = FULL}, {"signature", .is = SERVE_IS_TEXT}, {0}};
static const serve_kind user_blocks[] = {{"text", of_text}, {"tool_result", of_result}, {0}};
static const serve_kind assistant_blocks[] = {
    {"text", of_text}, {"tool_use", of_use}, {"thinking", of_thought}, {"redacted_thinking", SERVE_NO_FIELDS}, {0}};
static const serve_shape user_block = {.types = SERVE_JSON_OBJECT, .kinds = user_blocks, .lenient = true},
                         assistant_block = {.types = SERVE_JSON_OBJECT, .kinds = assistant_blocks, .lenient = true};
static const serve_kind roles[] = {
    {"user", SERVE_FIELDS({"content", .is = TEXT_OR_LIST(&user_block), .required = true})},
    {"assistant", SERVE_FIELDS({"content", .is = TEXT_OR_LIST(&assistant_block), .required = true})},
    {"system", SERVE_FIELDS({"content", .is = TEXT_OR_LIST(&text_block), .required = true})},
    {0}};
static const serve_shape message_shape = {.types = SERVE_JSON_OBJECT, .kinds = roles, .tag = "role", .lenient = true};

static const serve_kind tool_kinds[] = {
    {"custom", SERVE_FIELDS({"name", .is = FULL}, {"description", .is = SERVE_IS_TEXT},
                            {"input_schema", .is = {.types = SERVE_JSON_OBJECT}}, {"strict", .is = SERVE_IS_FLAG},
                            {"defer_loading", .is = SERVE_IS_FLAG})},
    {0}};
static const serve_shape tool_shape = {
    .types = SERVE_JSON_OBJECT, .kinds = tool_kinds, .first_kind = true, .other_kinds = true, .lenient = true};

static const serve_field of_choice[] = {{"disable_parallel_tool_use", .is = SERVE_IS_FLAG}, {0}};
static const serve_kind choices[] = {{"auto", of_choice},
                                     {"any", of_choice},
                                     {"tool", SERVE_FIELDS({"name", .is = FULL}, SERVE_MORE(of_choice))},
                                     {"none", SERVE_NO_FIELDS},
                                     {0}};

static const serve_field of_thinking[] = {
    {"display", .is = SERVE_IS_TEXT}, {"budget_tokens", .is = SERVE_IS_INTEGER(0, INT64_MAX)}, {0}};
static const serve_kind thinkings[] = {{"disabled", of_thinking},
                                       {"enabled", of_thinking},
                                       {"adaptive", of_thinking},
                                       {"between_tools", of_thinking},
                                       {0}};

static const serve_field of_config[] = {
    {"effort", .is = SERVE_IS_WORD(serve_efforts)}, {"format", .is = SERVE_IS_FORMAT}, {0}};

const serve_field serve_anthropic_count_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"messages", .is = {.types = SERVE_JSON_LIST, .fewest = 1, .item = &message_shape}, .required = true},
    {"system", .is = TEXT_OR_LIST(&text_block)},
    {"max_tokens", .is = SERVE_IS_INTEGER(0, INT64_MAX)},
    {"stop_sequences", .is = SERVE_IS_STOP},
    {"stream", .is = SERVE_IS_FLAG},
    {"tools", .is = SERVE_IS_LIST(&tool_shape)},
    {"tool_choice", .is = {.types = SERVE_JSON_OBJECT, .kinds = choices}},
    {"thinking", .is = {.types = SERVE_JSON_OBJECT, .kinds = thinkings}},
    {"output_config", .is = SERVE_IS_OBJECT(of_config)},
    {"output_format", .is = SERVE_IS_FORMAT},
    {"context_management", .is = {.types = 0}},
    {"chat_template_kwargs", .is = {.types = SERVE_JSON_OBJECT}},
    SERVE_LACKED_FIELDS("container", "mcp_servers"),
    {"thread", .class = SERVE_LACKED, .instead = "this server stores no conversations; send the whole conversation",
     .lack = "thread_unsupported_request"},
    SERVE_MORE(serve_sampling_fields),
    SERVE_MORE(serve_structure_fields),
    SERVE_NOTED_FIELDS("metadata", "service_tier", "cache_control", "betas", "billing_policy", "diagnostics",
                       "inference_geo", "speed", "user_profile_id", "workspace_id", "fallbacks",
                       "fallback_credit_token"),
    {0}};
const serve_field serve_anthropic_fields[] = {{"max_tokens", .is = SERVE_IS_INTEGER(0, INT64_MAX), .required = true},
                                              SERVE_MORE(serve_anthropic_count_fields),
                                              {0}};

/* A translated request: lists in OpenAI's form, and the conversation that borrows them. */
typedef struct request {
    ht_json *messages, *tools; /* owned */
    ht_json *referred;         /* tools by name that results refer to, in order; NULL: none */
    serve_conversation conversation;
    bool hides_thoughts; /* thinking blocks are empty in the response */
} request;

/* A generation's `extra`. */
typedef struct extra {
    bool hides_thoughts;
    ht_text hidden; /* reasoning of the open block of a stream */
} extra;

/* ---- tools ---- */

/* Tools with defer_loading stay out of the prompt until a result of the client's tool search refers to them. Agents
 * with hundreds of tools thus keep short prompts. */

/* A search that Anthropic's service would run. It does not run here, so its deferred tools are loaded at once. */
static bool is_search(const ht_json *tool) {
    static const char prefix[] = "tool_search_tool_";
    const char *type = serve_text(tool, "type");
    return type && strncmp(type, prefix, sizeof prefix - 1) == 0;
}

static bool waits(const ht_json *tools, const ht_json *tool) {
    if (!ht_json_is_true(ht_json_object_get(tool, "defer_loading"))) return false;
    for (size_t i = 0; i < ht_json_array_size(tools); i++)
        if (is_search(ht_json_array_get(tools, i))) return false;
    return true;
}

static const ht_json *find(const ht_json *tools, const char *name) {
    for (size_t i = 0; i < ht_json_array_size(tools); i++) {
        const char *one = serve_text(ht_json_array_get(tools, i), "name");
        if (one && strcmp(one, name) == 0) return ht_json_array_get(tools, i);
    }
    return NULL;
}

/* Describes a tool that a result refers to in text, since templates have no other form. A deferred tool is added to
 * *referred. False when memory ran out. */
static bool refer(const ht_json *tools, const char *name, ht_json **referred, ht_text *text) {
    const ht_json *tool = find(tools, name);
    ht_text_printf(
        text, tool ? "The tool %s is available and can be called now." : "The tool %s is no longer available.", name);
    if (!tool || !waits(tools, tool)) return true;
    if (!*referred) *referred = ht_json_new_object();
    return ht_json_object_set(*referred, name, (ht_json *)tool) == 0;
}

/* The prompt's tools: those not deferred in request order, then the referred ones. Appending keeps the prefix of the
 * previous prompt in the cache. */
static bool read_tools(serve_call *c, request *r) {
    const ht_json *tools = serve_member(c->body, "tools");
    const char *name;
    ht_json *tool;
    if (!tools) return true;
    r->conversation.tools = r->tools = ht_json_new_array();
    bool good = r->tools;
    for (size_t i = 0; i < ht_json_array_size(tools) && good; i++) {
        tool = ht_json_array_get(tools, i);
        good = waits(tools, tool) ||
               ht_json_array_append_new(r->tools, serve_tool_from(tool, "custom", "input_schema")) == 0;
    }
    ht_json_object_foreach(r->referred, name, tool) {
        good = good && ht_json_array_append_new(r->tools, serve_tool_from(tool, "custom", "input_schema")) == 0;
    }
    return good ? true : serve_fail_memory(&c->failure);
}

static void read_tool_choice(serve_call *c, serve_conversation *k) {
    static const char *const words[] = {"auto", "any", "tool", "none", NULL};
    static const ht_tool_choice of[] = {HT_TOOL_CHOICE_AUTO, HT_TOOL_CHOICE_REQUIRED, HT_TOOL_CHOICE_NAMED,
                                        HT_TOOL_CHOICE_NONE};
    const ht_json *asked = serve_member(c->body, "tool_choice");
    k->choice = of[serve_word(asked, "type", words, 0)];
    k->one_call = serve_flag(asked, "disable_parallel_tool_use", false);
    k->tool = serve_text(asked, "name");
}

/* ---- the history ---- */

/* The history under construction. */
typedef struct reader {
    serve_call *c;
    request *request;
    serve_messages to;
} reader;

/* Appends plain text, or a note in place of another format. */
static void append_document(reader *r, const ht_json *block, ht_text *text) {
    const ht_json *source = serve_member(block, "source");
    const char *type = serve_text(source, "type");
    if (type && strcmp(type, "text") == 0)
        ht_text_append_str(text, serve_text(source, "data"));
    else
        serve_append_unseen(r->c, "attached file", text);
}

static void read_result_block(reader *r, const ht_json *block, ht_text *text) {
    const char *type = serve_text(block, "type");
    if (strcmp(type, "text") == 0) ht_text_append_str(text, serve_text(block, "text"));
    if (strcmp(type, "image") == 0) serve_append_unseen(r->c, "image", text);
    if (strcmp(type, "document") == 0) append_document(r, block, text);
    if (strcmp(type, "tool_reference") != 0) return;
    const ht_json *tools = serve_member(r->c->body, "tools");
    if (!refer(tools, serve_text(block, "tool_name"), &r->request->referred, text)) r->to.failed = true;
}

/* Marks a failed result with "Error:", the usual text of tools. */
static void read_result(reader *r, const ht_json *block) {
    const ht_json *content = serve_member(block, "content"), *one;
    ht_text text = {0};
    size_t i;
    if (ht_json_is_string(content)) ht_text_append_str(&text, ht_json_string_value(content));
    ht_json_array_foreach((ht_json *)content, i, one) {
        if (i) ht_text_append_str(&text, "\n");
        read_result_block(r, one, &text);
    }
    const char *said = text.data ? text.data : "";
    if (serve_flag(block, "is_error", false) && strncasecmp(said, "error", 5) != 0) {
        ht_text marked = {0};
        ht_text_append_str(&marked, "Error: ");
        ht_text_append(&marked, said, text.len);
        marked.failed = marked.failed || text.failed;
        ht_text_discard(&text);
        text = marked;
    }
    if (text.failed) r->to.failed = true;
    serve_add_result(&r->to, serve_text(block, "tool_use_id"), text.data ? text.data : "");
    ht_text_discard(&text);
}

/* Reads results before the user's text: templates expect them directly after the calls. */
static void read_results(reader *r, const ht_json *blocks) {
    for (size_t i = 0; i < ht_json_array_size(blocks); i++) {
        const ht_json *block = ht_json_array_get(blocks, i);
        if (strcmp(serve_text(block, "type"), "tool_result") == 0) read_result(r, block);
    }
}

static void read_call(reader *r, const ht_json *block) {
    const ht_json *input = serve_member(block, "input");
    ht_json *none = input ? NULL : ht_json_new_object();
    serve_add_call(&r->to, serve_text(block, "id"), serve_text(block, "name"), input ? input : none);
    ht_json_decref(none);
}

static void read_thought(reader *r, const ht_json *block) {
    const char *text = serve_filled_text(block, "thinking"), *sealed = serve_text(block, "signature");
    if (text)
        serve_add_thoughts(&r->to, text);
    else if (sealed) /* reasoning that was hidden from the client */
        serve_add_sealed_thoughts(&r->to, sealed);
}

/* Results are read earlier. Redacted reasoning is encrypted by its author and is skipped. */
static void read_block(reader *r, const char *role, const ht_json *block) {
    const char *type = serve_text(block, "type");
    if (strcmp(type, "text") == 0) serve_add_text(&r->to, role, serve_text(block, "text"));
    if (strcmp(type, "tool_use") == 0) read_call(r, block);
    if (strcmp(type, "thinking") == 0) read_thought(r, block);
}

static void read_message(reader *r, const ht_json *message) {
    const ht_json *content = serve_member(message, "content");
    const char *role = serve_text(message, "role");
    r->to.begun = false;
    if (ht_json_is_string(content)) {
        serve_add_text(&r->to, role, ht_json_string_value(content));
        return;
    }
    read_results(r, content);
    for (size_t i = 0; i < ht_json_array_size(content); i++) read_block(r, role, ht_json_array_get(content, i));
}

/* Claude Code starts the system prompt with a block that differs per request and would defeat the prefix cache. */
static bool changes_always(const char *text) {
    static const char mark[] = "x-anthropic-billing-header:";
    return strncmp(text, mark, sizeof mark - 1) == 0;
}

static void read_system(reader *r, const ht_json *system) {
    if (ht_json_string_length(system)) serve_add_text(&r->to, "system", ht_json_string_value(system));
    for (size_t i = 0; i < ht_json_array_size(system); i++) {
        const char *text = serve_text(ht_json_array_get(system, i), "text");
        if (!changes_always(text)) serve_add_text(&r->to, "system", text);
    }
}

static bool read_messages(serve_call *c, request *to) {
    reader r = {.c = c, .request = to};
    const ht_json *messages = serve_member(c->body, "messages");
    read_system(&r, serve_member(c->body, "system"));
    for (size_t i = 0; i < ht_json_array_size(messages); i++) read_message(&r, ht_json_array_get(messages, i));
    to->messages = serve_messages_end(&r.to, c, "messages", "have");
    return to->messages != NULL;
}

/* ---- requests ---- */

/* Reads the reasoning budget; the default is the server's option. */
static void read_budget(serve_generation *g) {
    const ht_json *asked = serve_member(g->c->body, "thinking");
    const int64_t most = serve_integer(asked, "budget_tokens", -1);
    if (most >= 0) g->how.max_thinking_tokens = most > INT32_MAX ? INT32_MAX : (int32_t)most;
}

/* The effort does not turn reasoning on or off: `thinking` does, and without it the template decides. */
static void read_thinking(serve_call *c, request *r) {
    const ht_json *asked = serve_member(c->body, "thinking");
    serve_read_effort(serve_member(c->body, "output_config"), "effort", &r->conversation);
    r->conversation.thinking = SERVE_THINKING_DEFAULT;
    if (!asked) return;
    r->conversation.thinking =
        strcmp(serve_text(asked, "type"), "disabled") == 0 ? SERVE_THINKING_OFF : SERVE_THINKING_ON;
    const char *display = serve_text(asked, "display");
    r->hides_thoughts = display && strcmp(display, "omitted") == 0;
    /* Reasoning is shown unchanged, whatever other displays, such as summaries or "updates", clients ask for. */
    if (display && !r->hides_thoughts && strcmp(display, "summarized") != 0) serve_call_ignore(c, "thinking.display");
}

static bool read_conversation(serve_call *c, request *r) {
    serve_conversation *k = &r->conversation;
    if (serve_member(c->body, "context_management")) serve_call_ignore(c, "context_management");
    read_thinking(c, r);
    read_tool_choice(c, k);
    k->variables = serve_member(c->body, "chat_template_kwargs");
    if (!read_messages(c, r) || !read_tools(c, r)) return false;
    k->messages = r->messages;
    k->continues = serve_ends_in_answer(k->messages);
    return true;
}

static void free_request(request *r) {
    ht_json_decref(r->messages);
    ht_json_decref(r->tools);
    ht_json_decref(r->referred);
}

/* Reads the answer's schema under its current name or its former one. */
static bool read_format(serve_generation *g) {
    const ht_json *config = serve_member(g->c->body, "output_config");
    return serve_read_format(g, serve_member(config, "format"), "output_config.format") &&
           serve_read_format(g, serve_member(g->c->body, "output_format"), "output_format");
}

static bool read_request(serve_generation *g) {
    static const serve_option_names names = {.max_tokens = {"max_tokens"}, .most = INT32_MAX, .stop = "stop_sequences"};
    serve_call *c = g->c;
    request r = {0};
    extra *answer = g->extra;
    read_budget(g);
    const bool good = read_conversation(c, &r) && serve_read_options(g, c->body, &names) && read_format(g) &&
                      serve_read_structure(g, c->body) && serve_set_conversation(g, &r.conversation);
    answer->hides_thoughts = r.hides_thoughts;
    free_request(&r);
    return good;
}

/* ---- answers ---- */

/* The open block of a stream: values of serve_answer.block. */
enum { NO_BLOCK, TEXT_BLOCK, THINKING_BLOCK, TOOL_BLOCK };

static bool hides_thoughts(const serve_generation *g) { return ((const extra *)g->extra)->hides_thoughts; }

/* Clients return the signature, which is not verified here. For hidden reasoning, it holds the text. */
static ht_json *signature(const serve_generation *g, const ht_text *thoughts) {
    char text[SERVE_ID];
    if (hides_thoughts(g)) return serve_seal_thoughts(thoughts);
    serve_new_id("sig_", text);
    return ht_json_string(text);
}

static const char *stop_text(const serve_generation *g, const serve_answer *a) {
    const bool stopped = a->metrics.finish == HT_FINISH_STOP && !a->n_calls;
    return stopped && a->metrics.stop >= 0 && a->metrics.stop < g->how.n_stop ? g->how.stop[a->metrics.stop] : NULL;
}

static const char *stop_reason(const serve_generation *g, const serve_answer *a) {
    if (a->metrics.finish == HT_FINISH_LENGTH) return "max_tokens";
    return a->n_calls ? "tool_use" : stop_text(g, a) ? "stop_sequence" : "end_turn";
}

static ht_json *usage_json(serve_usage u) {
    ht_json *json =
        ht_json_pack("{sI sI sI sI}", "input_tokens", (int64_t)(u.prompt - u.cached), "cache_creation_input_tokens",
                     (int64_t)0, "cache_read_input_tokens", (int64_t)u.cached, "output_tokens", (int64_t)u.generated);
    if (u.thoughts)
        ht_json_object_set_new(json, "output_tokens_details",
                               ht_json_pack("{sI}", "thinking_tokens", (int64_t)u.thoughts));
    return json;
}

/* ---- whole answers ---- */

static ht_json *blocks_json(const serve_generation *g, const serve_answer *a) {
    ht_json *blocks = ht_json_new_array();
    if (a->thoughts.len)
        ht_json_array_append_new(blocks,
                                 ht_json_pack("{ss so so}", "type", "thinking", "thinking",
                                              hides_thoughts(g) ? ht_json_string("") : serve_text_json(&a->thoughts),
                                              "signature", signature(g, &a->thoughts)));
    if (a->text.len)
        ht_json_array_append_new(blocks, ht_json_pack("{ss so}", "type", "text", "text", serve_text_json(&a->text)));
    for (size_t i = 0; i < a->n_calls; i++)
        ht_json_array_append_new(blocks,
                                 ht_json_pack("{ss ss ss so}", "type", "tool_use", "id", a->call[i].id, "name",
                                              a->call[i].name, "input", serve_tool_call_arguments(&a->call[i])));
    return blocks;
}

/* A message; consumes blocks and usage. */
static ht_json *message_json(const serve_generation *g, ht_json *blocks, const char *reason, const char *sequence,
                             ht_json *usage) {
    return ht_json_pack("{ss ss ss ss so ss? ss? so}", "id", g->id, "type", "message", "role", "assistant", "model",
                        g->c->lease.name, "content", blocks, "stop_reason", reason, "stop_sequence", sequence, "usage",
                        usage);
}

static ht_json *reply(serve_generation *g) {
    const serve_answer *a = &g->answer[0];
    return message_json(g, blocks_json(g, a), stop_reason(g, a), stop_text(g, a), usage_json(serve_answer_usage(a)));
}

/* ---- streams ---- */

static void begin(serve_generation *g) {
    /* The number of cached tokens is unknown before the prefill; the final usage has it. */
    ht_json *usage = usage_json((serve_usage){.prompt = serve_usage_of(g).prompt});
    serve_send(g, "message_start",
               ht_json_pack("{ss so}", "type", "message_start", "message",
                            message_json(g, ht_json_new_array(), NULL, NULL, usage)));
}

static void send_delta(serve_generation *g, const serve_answer *a, const char *type, const char *name, ht_json *value) {
    serve_send(g, "content_block_delta",
               ht_json_pack("{ss si s{ss so}}", "type", "content_block_delta", "index", a->n_blocks - 1, "delta",
                            "type", type, name, value));
}

static void close_block(serve_generation *g, serve_answer *a) {
    if (a->block == NO_BLOCK) return;
    extra *answer = g->extra;
    if (a->block == THINKING_BLOCK) send_delta(g, a, "signature_delta", "signature", signature(g, &answer->hidden));
    ht_text_clear(&answer->hidden);
    a->block = NO_BLOCK;
    serve_send(g, "content_block_stop",
               ht_json_pack("{ss si}", "type", "content_block_stop", "index", a->n_blocks - 1));
}

/* Opens a block and consumes it. */
static void open_block(serve_generation *g, serve_answer *a, int kind, ht_json *block) {
    close_block(g, a);
    a->block = kind;
    serve_send(
        g, "content_block_start",
        ht_json_pack("{ss si so}", "type", "content_block_start", "index", a->n_blocks++, "content_block", block));
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    extra *answer = g->extra;
    const serve_tool_call *call = a->n_calls ? &a->call[a->n_calls - 1] : NULL;
    switch (p->part) {
    case HT_ANSWER_TEXT:
        if (a->block != TEXT_BLOCK) open_block(g, a, TEXT_BLOCK, ht_json_pack("{ss ss}", "type", "text", "text", ""));
        send_delta(g, a, "text_delta", "text", ht_json_stringn(p->text, p->n));
        break;
    case HT_ANSWER_THINKING:
        if (a->block != THINKING_BLOCK)
            open_block(g, a, THINKING_BLOCK,
                       ht_json_pack("{ss ss ss}", "type", "thinking", "thinking", "", "signature", ""));
        if (!answer->hides_thoughts)
            send_delta(g, a, "thinking_delta", "thinking", ht_json_stringn(p->text, p->n));
        else
            ht_text_append(&answer->hidden, p->text, p->n);
        break;
    case HT_ANSWER_CALL_BEGIN:
        open_block(g, a, TOOL_BLOCK,
                   ht_json_pack("{ss ss ss s{}}", "type", "tool_use", "id", call->id, "name", call->name, "input"));
        break;
    case HT_ANSWER_CALL_ARGUMENTS:
        send_delta(g, a, "input_json_delta", "partial_json", ht_json_stringn(p->text, p->n));
        break;
    case HT_ANSWER_CALL: break;
    case HT_ANSWER_CALL_END: close_block(g, a); break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) {
    close_block(g, a);
    serve_send(g, "message_delta",
               ht_json_pack("{ss s{ss ss?} so}", "type", "message_delta", "delta", "stop_reason", stop_reason(g, a),
                            "stop_sequence", stop_text(g, a), "usage", usage_json(serve_answer_usage(a))));
}

static void end(serve_generation *g) { serve_send(g, "message_stop", ht_json_pack("{ss}", "type", "message_stop")); }

static void discard_extra(void *user) { ht_text_discard(&((extra *)user)->hidden); }

static const serve_dialect dialect = {.extra_bytes = sizeof(extra),
                                      .discard_extra = discard_extra,
                                      .call_prefix = "toolu_",
                                      .alive = "event: ping\ndata: {\"type\": \"ping\"}\n\n",
                                      .begin = begin,
                                      .piece = piece,
                                      .answer_end = answer_end,
                                      .end = end,
                                      .fail_event = "error",
                                      .reply = reply};

/* ---- endpoints ---- */

/* Anthropic's clients expect this header in addition to X-Request-Id. */
static void name_request(serve_call *c) {
    (void)http_exchange_field(c->x, "request-id", http_exchange_request(c->x)->id);
}

bool serve_anthropic_messages(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &dialect);
    name_request(c);
    if (!g || !read_request(g)) return false;
    serve_new_id("msg_", g->id);
    /* max_tokens 0 only prefills the prompt cache. */
    return g->how.max_tokens ? serve_generation_start(g) : serve_generation_warm(g);
}

bool serve_anthropic_count_tokens(serve_call *c) {
    request r = {0};
    int64_t n = 0;
    name_request(c);
    const bool good = read_conversation(c, &r) && serve_count_conversation(c, &r.conversation, &n);
    free_request(&r);
    if (good) serve_reply_json(c->x, 200, ht_json_pack("{sI}", "input_tokens", (int64_t)n), SERVE_ANTHROPIC);
    return good;
}
