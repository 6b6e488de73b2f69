/* Bodies of requests to the server, all of it but the sockets between: the first byte chooses the endpoint, the rest is the body. Whatever it is, there is
 * an answer, which is JSON or a stream, and no failure of the server's own (500). The model is tiny, and its answers are cut short. */
#include "fuzz.h"
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
static char address[64];
static serve_server *server;
static const serve_route *route[256];
static size_t n_routes;

/* What takes time is computing, which other tests are for: answers end where no request says so, for few tokens remain, and the ends of
 * answers are likelier than a random model has them. */
enum { CONTEXT = 128 };
static const ht_logit_bias ends[] = {{0, 4}, {2, 4}};

static ht_status load(const char *path, void *user, ht_model **out, ht_error *err) {
    ht_model_options o;
    ht_model_options_init(&o, sizeof o);
    o.context = CONTEXT;
    o.device = user;
    return ht_model_load(path, &o, out, err);
}

static void *run(void *user) {
    ht_error err = {0};
    (void)user;
    if (serve_run(server, &err)) fprintf(stderr, "%s\n", err.message);
    return NULL;
}

static void stop(void) { unlink(address + 5); }

/* libFuzzer looks for leaks after each run that has freed less than it took, and stops all threads for it. Here that is most of them, as other
 * threads tidy up behind an answer: leaks are looked for once, when the process ends. */
static void look_for_leaks_once(int *argc, char ***argv) {
    static char no_leaks[] = "-detect_leaks=0";
    char **more = malloc(((size_t)*argc + 2) * sizeof *more);
    check(more != NULL);
    memcpy(more, *argv, (size_t)*argc * sizeof *more);
    more[(*argc)++] = no_leaks;
    more[*argc] = NULL;
    *argv = more;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const serve_model_source model = {"tiny", FUZZ_MODEL, SERVE_GENERATES};
    static const char *const listen[] = {address};
    ht_error err = {0};
    ht_device_options one_thread; /* of its own: handing work over costs more than this work */
    ht_device *device;
    pthread_t thread;
    serve_options o = {.listen = listen, .n_listen = 1};
    look_for_leaks_once(argc, argv);
    snprintf(address, sizeof address, "unix:/tmp/fuzz-serve-%ld", (long)getpid());
    atexit(stop);
    ht_device_options_init(&one_thread, sizeof one_thread);
    one_thread.n_threads = 1;
    check(ht_device_open("cpu", &one_thread, &device, &err) == HT_OK);
    ht_sampler_options_init(&o.sampler, sizeof o.sampler);
    o.sampler.logit_bias = ends;
    o.sampler.n_logit_bias = sizeof ends / sizeof *ends;
    ht_engine_options_init(&o.models.engine, sizeof o.models.engine);
    o.models.engine.kv_bytes = 16 << 20;
    o.models.model = &model;
    o.models.n_models = 1;
    o.models.first_at_once = true;
    o.models.load = load;
    o.models.user = device;
    if (serve_new(&o, &server, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    check(pthread_create(&thread, NULL, run, NULL) == 0);
    for (const serve_route *r = serve_routes; r->method && n_routes < 256; r++)
        if (r->flags & SERVE_BODY) route[n_routes++] = r;
    return 0;
}

/* ---- the client ---- */

static int connection = -1; /* is kept, as clients keep theirs */

static void hang_up(void) {
    if (connection >= 0) close(connection);
    connection = -1;
}

static void dial(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, address + 5, strlen(address + 5));
    connection = socket(AF_UNIX, SOCK_STREAM, 0);
    check(connection >= 0 && connect(connection, (const struct sockaddr *)&to, sizeof to) == 0);
}

static bool send_all(const void *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t sent = send(connection, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false; /* it was refused before all of it had come */
        at += (size_t)sent;
    }
    return true;
}

/* Whether the text is a whole answer: as long as it says, or with the last of its chunks, whose mark no line of an answer has. */
static bool is_whole(const char *answer, size_t n) {
    static const char last[] = "\r\n0\r\n\r\n";
    const char *body = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "\r\nContent-Length: ");
    if (!body) return false;
    body += 4;
    if (length && length < body) return n - (size_t)(body - answer) >= strtoul(length + 18, NULL, 10);
    return n >= sizeof last - 1 && strcmp(answer + n - (sizeof last - 1), last) == 0;
}

/* The answer as text, freed by the caller; empty when the server has closed the connection before. */
static char *read_answer(void) {
    size_t length = 0, room = 1 << 12;
    char *answer = malloc(room);
    check(answer != NULL);
    answer[0] = '\0';
    while (!is_whole(answer, length)) {
        const ssize_t got = read(connection, answer + length, room - length - 1);
        if (got < 0 && errno == EINTR) continue; /* the clock of the fuzzer */
        if (got <= 0) break;
        length += (size_t)got;
        answer[length] = '\0';
        if (length + 1 == room) check((answer = realloc(answer, room *= 2)) != NULL);
    }
    if (strstr(answer, "\r\nConnection: close\r\n") || !is_whole(answer, length)) hang_up();
    return answer;
}

static char *ask(const serve_route *r, const uint8_t *body, size_t n) {
    char head[256];
    snprintf(head, sizeof head, "POST %.100s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", r->path, n);
    for (bool again = connection >= 0;; again = false) {
        if (connection < 0) dial();
        if (send_all(head, strlen(head))) (void)send_all(body, n);
        char *answer = read_answer();
        if (*answer || !again) return answer;
        free(answer); /* of a connection that had been idle for too long */
    }
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
        ht_json *value = ht_json_of(body + 4, strlen(body + 4));
        check(value && (status == 200 || ht_json_object_get(value, "error")));
        ht_json_decref(value);
    }
    free(answer);
    return 0;
}
