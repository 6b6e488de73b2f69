/* Bodies of requests to the server, all of it but the sockets between: the first byte chooses the endpoint, the rest is the body. Whatever it is, there is
 * an answer, which is JSON or a stream, and no failure of the server's own (500). The model is tiny, and its answers are cut short. */
#include "serve/call.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char address[64];
static serve_server *server;
static const serve_route *route[256];
static size_t n_routes;

static void check(bool good) {
    if (!good) abort();
}

static ht_status load(const char *path, void *user, ht_model **out, ht_error *err) {
    ht_model_options o;
    ht_model_options_init(&o, sizeof o);
    o.context = 512; /* where no request asks for less, answers end */
    (void)user;
    return ht_model_load(path, &o, out, err);
}

static void *run(void *user) {
    ht_error err = {0};
    (void)user;
    if (serve_run(server, &err)) fprintf(stderr, "%s\n", err.message);
    return NULL;
}

static void stop(void) { unlink(address + 5); }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const serve_model_source model = {"tiny", FUZZ_MODEL};
    static const char *const listen[] = {address};
    ht_error err = {0};
    pthread_t thread;
    serve_options o = {.listen = listen, .n_listen = 1};
    (void)argc;
    (void)argv;
    snprintf(address, sizeof address, "unix:/tmp/fuzz-serve-%ld", (long)getpid());
    atexit(stop);
    ht_sampler_options_init(&o.sampler, sizeof o.sampler);
    ht_engine_options_init(&o.models.engine, sizeof o.models.engine);
    o.models.engine.kv_bytes = 16 << 20;
    o.models.model = &model;
    o.models.n_models = 1;
    o.models.first_at_once = true;
    o.models.load = load;
    if (serve_new(&o, &server, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    check(pthread_create(&thread, NULL, run, NULL) == 0);
    for (const serve_route *r = serve_routes; r->method && n_routes < 256; r++)
        if (r->flags & SERVE_BODY) route[n_routes++] = r;
    return 0;
}

static void send_all(int fd, const void *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return; /* it was refused before all of it had come */
        at += (size_t)sent;
    }
}

/* The answer as text, up to the end of the connection; freed by the caller. */
static char *ask(const serve_route *r, const uint8_t *body, size_t n) {
    char head[256], *answer = malloc(1 << 16);
    size_t length = 0, room = 1 << 16;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, address + 5, strlen(address + 5));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    check(fd >= 0 && answer && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0);
    snprintf(head, sizeof head,
             "POST %.100s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", r->path, n);
    send_all(fd, head, strlen(head));
    send_all(fd, body, n);
    for (;;) {
        const ssize_t got = read(fd, answer + length, room - length - 1);
        if (got < 0 && errno == EINTR) continue; /* the clock of the fuzzer */
        if (got <= 0) break;
        length += (size_t)got;
        if (length + 1 == room) check((answer = realloc(answer, room *= 2)) != NULL);
    }
    answer[length] = '\0';
    close(fd);
    return answer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    const serve_route *r = route[data[0] % n_routes];
    char *answer = ask(r, data + 1, size - 1);
    int status = 0;
    check(sscanf(answer, "HTTP/1.1 %d ", &status) == 1);
    check(status == 200 || (status >= 400 && status != 500));
    const char *body = strstr(answer, "\r\n\r\n");
    check(body != NULL);
    if (strstr(answer, "Content-Type: application/json\r\n")) {
        json_t *value = json_loads(body + 4, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        check(value && (status == 200 || json_object_get(value, "error")));
        json_decref(value);
    }
    free(answer);
    return 0;
}
