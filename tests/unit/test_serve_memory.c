/* The server while memory runs out: an answer under way ends with an error in the form of its interface, and the next one is as if nothing had
 * been. */
#include "serve/server.h"
#include "support/allocations.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Of the library's own allocations: pages of keys and values are larger, what is made for each piece of an answer is not. */
enum { PAGE = 8192 };

static char address[128], path_of_model[256];
static serve_server *server;
static pthread_t thread;

static ht_status load(const char *path, void *user, ht_model **out, ht_error *err) {
    ht_device_options one;
    ht_model_options o;
    ht_device_options_init(&one, sizeof one);
    ht_model_options_init(&o, sizeof o);
    one.n_threads = 1;
    (void)user;
    ht_status status = ht_device_open("cpu", &one, &o.device, err);
    if (!status) status = ht_model_load(path, &o, out, err);
    ht_device_free(o.device);
    return status;
}

static void *run(void *user) {
    ht_error err = {0};
    if (serve_run(server, &err)) *(bool *)user = true;
    return NULL;
}

static bool failed;

static int start(void **state) {
    static const char *const listen[] = {address};
    static serve_model_source model = {.name = "tiny", .tasks = SERVE_GENERATES};
    ht_error err = {0};
    serve_options o = {.listen = listen, .n_listen = 1};
    (void)state;
    scratch_make();
    snprintf(path_of_model, sizeof path_of_model, "%s", tiny_write(&(tiny_options){0}));
    model.path = path_of_model;
    snprintf(address, sizeof address, "unix:%s", scratch_path("socket"));
    ht_sampler_options_init(&o.sampler, sizeof o.sampler);
    ht_engine_options_init(&o.models.engine, sizeof o.models.engine);
    o.models.engine.kv_bytes = (size_t)64 << 20;
    o.models.model = &model;
    o.models.n_models = 1;
    o.models.load = load;
    if (serve_new(&o, &server, &err)) fail_msg("%s", err.message);
    return pthread_create(&thread, NULL, run, &failed);
}

static int stop(void **state) {
    (void)state;
    serve_drain(server);
    pthread_join(thread, NULL);
    serve_free(server);
    scratch_remove();
    return failed;
}

/* ---- a client ---- */

static int ask(const char *path, const char *body) {
    char request[1024];
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    assert_true(strlen(address + 5) < sizeof to.sun_path);
    memcpy(to.sun_path, address + 5, strlen(address + 5));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    const int n = snprintf(request, sizeof request,
                           "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                           path, strlen(body), body);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* What comes until the text has come, NULL: to the end. The memory is the process's own, which does not fail. */
static char answer[1 << 20];
static size_t length;

static void read_until(int fd, const char *text) {
    while (!text || !strstr(answer, text)) {
        const ssize_t n = read(fd, answer + length, sizeof answer - 1 - length);
        assert_true(n >= 0);
        if (n == 0) break;
        length += (size_t)n;
        answer[length] = '\0';
    }
}

static void expect(const char *part) {
    if (!strstr(answer, part)) fail_msg("no %s in %s", part, answer);
}

/* No memory is there for another page of the answer, which has begun. */
static void run_out(const char *path, const char *body, const char *text, const char *error) {
    answer[length = 0] = '\0';
    const int fd = ask(path, body);
    read_until(fd, text);
    expect(text);
    allocations.from_bytes = PAGE;
    allocations.until_failure = 0;
    allocations.all_that_follow = true;
    allocations.armed = true;
    read_until(fd, NULL);
    allocations.armed = false;
    close(fd);
    expect("HTTP/1.1 200 OK");
    expect(error);
    expect("memory");
    if (strcmp(answer + length - 5, "0\r\n\r\n") != 0) fail_msg("the stream was cut: %s", answer); /* its last chunk */
    assert_true(allocations.until_failure < 0);
}

static void answers_end_with_an_error(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        run_out("/v1/completions",
                "{\"prompt\": \"hello\", \"max_tokens\": 2000, \"ignore_eos\": true, \"stream\": true}",
                "\"text\":", "data: {\"error\":{");
        run_out("/v1/messages",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"max_tokens\": 2000, \"ignore_eos\": "
                "true, \"stream\": true}",
                "text_delta", "\"type\":\"overloaded_error\"");
        run_out("/v1/responses", "{\"input\": \"hello\", \"ignore_eos\": true, \"stream\": true}", "output_text.delta",
                "event: response.failed");
        run_out("/completion", "{\"prompt\": \"hello\", \"n_predict\": 2000, \"ignore_eos\": true, \"stream\": true}",
                "\"content\":", "data: {\"error\":{");
        /* With memory again all is well. */
        answer[length = 0] = '\0';
        const int fd = ask("/v1/completions", "{\"prompt\": \"hello\", \"max_tokens\": 600, \"ignore_eos\": true}");
        read_until(fd, NULL);
        close(fd);
        expect("\"completion_tokens\":600");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_end_with_an_error)};
    return cmocka_run_group_tests(tests, start, stop);
}
