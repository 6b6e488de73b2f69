/* The Responses interface: what its requests ask for beside their input, and the endpoints. */
#include "serve/responses.h"
#include "serve/sampling.h"

#include <string.h>

static const serve_field responses_fields[] = {{"model", SERVE_USED},
                                               {"input", SERVE_USED},
                                               {"instructions", SERVE_USED},
                                               {"max_output_tokens", SERVE_USED},
                                               {"stream", SERVE_USED},
                                               {"tools", SERVE_USED},
                                               {"tool_choice", SERVE_USED},
                                               {"parallel_tool_calls", SERVE_USED},
                                               {"reasoning", SERVE_USED},
                                               {"text", SERVE_USED},
                                               {"top_logprobs", SERVE_USED},
                                               {"include", SERVE_USED},
                                               {"previous_response_id", SERVE_USED},
                                               {"conversation", SERVE_USED},
                                               {"background", SERVE_USED},
                                               {"truncation", SERVE_USED},
                                               {"context_management", SERVE_USED},
                                               {"chat_template_kwargs", SERVE_USED},
                                               {"stop", SERVE_USED},
                                               {"stream_options", SERVE_NOTED},
                                               {"max_tool_calls", SERVE_NOTED},
                                               {"client_metadata", SERVE_NOTED},
                                               {"background_options", SERVE_NOTED},
                                               {"access_programs", SERVE_NOTED},
                                               {"personality", SERVE_NOTED},
                                               {"image", SERVE_NOTED},
                                               {"prompt", SERVE_LACKED},
                                               {NULL, SERVE_USED}};
const serve_field *const serve_responses_fields[] = {responses_fields, serve_sampling_fields, serve_structure_fields,
                                                     serve_noted_fields, NULL};

/* What only a server that keeps answers could do. */
static bool refuse_memory(serve_call *c) {
    static const char *const names[] = {"previous_response_id", "conversation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (serve_member(c->body, names[i]))
            return serve_fail(&c->failure, 400, names[i],
                              "\"%s\": this server keeps nothing; send the whole conversation in \"input\"", names[i]);
    bool background = false;
    if (!serve_read_flag(c->body, "background", &background, &c->failure)) return false;
    if (background)
        return serve_fail(&c->failure, 400, "background",
                          "\"background\": this server keeps nothing, an answer goes to who asked for it");
    return true;
}

/* An input that is too long is refused; nothing of it is left out. */
static bool read_truncation(serve_call *c) {
    static const char *const words[] = {"disabled", "auto"};
    int word = 0;
    if (!serve_read_word(c->body, "truncation", words, 2, &word, &c->failure)) return false;
    if (word == 1) serve_call_ignore(c, "truncation");
    if (json_array_size(serve_member(c->body, "context_management"))) serve_call_ignore(c, "context_management");
    return true;
}

static bool read_reasoning(serve_call *c, serve_conversation *k) {
    const json_t *reasoning = NULL;
    return serve_read_object(c->body, "reasoning", &reasoning, &c->failure) &&
           serve_read_effort(reasoning, "effort", k, &c->failure);
}

static bool read_conversation(serve_call *c, serve_responses_request *r) {
    return refuse_memory(c) && read_truncation(c) && read_reasoning(c, &r->conversation) &&
           serve_read_object(c->body, "chat_template_kwargs", &r->conversation.variables, &c->failure) &&
           serve_responses_read_input(c, r) && serve_responses_read_tools(c, r);
}

static void free_request(serve_responses_request *r) {
    json_decref(r->messages);
    json_decref(r->tools);
}

/* What is to be told beside the text. Parts of other services' tools are never there, and may be asked for. */
static bool read_include(serve_generation *g) {
    serve_failure *f = &g->c->failure;
    serve_responses_answer *answer = g->extra;
    const json_t *include = NULL;
    int64_t top = 0;
    if (!serve_read_array(g->c->body, "include", &include, f) ||
        !serve_read_integer(g->c->body, "top_logprobs", 0, 20, &top, f))
        return false;
    g->logprobs = top > 0;
    g->top_logprobs = (int32_t)top;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *what = json_string_value(json_array_get(include, i));
        if (!what) return serve_fail(f, 400, "include", "\"include\" is to be a list of texts");
        if (strcmp(what, "message.output_text.logprobs") == 0) g->logprobs = true;
        if (strcmp(what, "reasoning.encrypted_content") == 0) answer->seals_thoughts = true;
    }
    return true;
}

static bool read_format(serve_generation *g) {
    const json_t *text = NULL;
    return serve_read_object(g->c->body, "text", &text, &g->c->failure) &&
           serve_read_format(g, serve_member(text, "format"), "text.format") && serve_read_structure(g, g->c->body);
}

static bool read_request(serve_generation *g) {
    static const char *const most[] = {"max_output_tokens", NULL};
    serve_call *c = g->c;
    serve_responses_request r = {0};
    const json_t *metadata = NULL;
    int64_t tokens = 1;
    if (!serve_responses_answer_new(g)) return false;
    const bool good = read_conversation(c, &r) && serve_read_flag(c->body, "stream", &g->stream, &c->failure) &&
                      serve_read_object(c->body, "metadata", &metadata, &c->failure) &&
                      serve_read_integer(c->body, "max_output_tokens", 1, INT64_MAX, &tokens, &c->failure) &&
                      serve_read_max_tokens(g, c->body, most) && read_include(g) &&
                      serve_read_sampling(g, c->body, 1) &&
                      serve_read_stop(g, json_object_get(c->body, "stop"), "stop") && read_format(g) &&
                      serve_set_conversation(g, &r.conversation);
    free_request(&r);
    return good;
}

bool serve_responses(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &serve_responses_dialect);
    if (!g || !read_request(g)) return false;
    serve_new_id("resp_", g->id);
    return serve_generation_start(g);
}

bool serve_responses_input_tokens(serve_call *c) {
    serve_responses_request r = {0};
    int64_t n = 0;
    const bool good = read_conversation(c, &r) && serve_count_conversation(c, &r.conversation, &n);
    free_request(&r);
    if (good)
        serve_reply_json(c->x, 200,
                         json_pack("{ss sI}", "object", "response.input_tokens", "input_tokens", (json_int_t)n),
                         SERVE_OPENAI);
    return good;
}
