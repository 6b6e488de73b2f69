/* Listeners of the server: TCP and unix sockets, made here or inherited from a service manager. */
#include "base/grow.h"
#include "http/error.h"
#include "http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { EVICTED = 32, PAUSE_US = 50000 };

/* ---- addresses ---- */

void http_address_text(const struct sockaddr *from, char *out, size_t room, int *port) {
    const struct sockaddr_in *four = (const void *)from;
    const struct sockaddr_in6 *six = (const void *)from;
    *port = 0;
    snprintf(out, room, "unix");
    if (from && from->sa_family == AF_INET) {
        *port = ntohs(four->sin_port);
        inet_ntop(AF_INET, &four->sin_addr, out, (socklen_t)room);
    } else if (from && from->sa_family == AF_INET6) {
        *port = ntohs(six->sin6_port);
        const bool is_four = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
        inet_ntop(is_four ? AF_INET : AF_INET6, six->sin6_addr.s6_addr + (is_four ? 12 : 0), out, (socklen_t)room);
    }
}

/* The address that the socket is bound to; NULL: memory ran out. */
static char *name_of(int fd) {
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    char address[64], name[sizeof(struct sockaddr_un) + 8];
    int port;
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0) return strdup("unknown");
    http_address_text((struct sockaddr *)&at, address, sizeof address, &port);
    if (at.ss_family == AF_UNIX)
        snprintf(name, sizeof name, "unix:%.*s", (int)sizeof((struct sockaddr_un *)0)->sun_path,
                 ((struct sockaddr_un *)&at)->sun_path);
    else
        snprintf(name, sizeof name, strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, port);
    return strdup(name);
}

/* Splits "host:port" into two strings, without brackets. */
static bool split(const char *address, char *host, size_t room, char *port, size_t port_room) {
    const char *colon = strrchr(address, ':'), *from = address, *to = colon;
    if (!colon || colon[1] == '\0' || colon[1 + strspn(colon + 1, "0123456789")] != '\0') return false;
    if (*from == '[') {
        if (to == from || to[-1] != ']') return false;
        from++, to--;
    } else if (memchr(from, ':', (size_t)(to - from)))
        return false; /* an IPv6 address without brackets is ambiguous */
    if ((size_t)(to - from) >= room || strlen(colon + 1) >= port_room || strtol(colon + 1, NULL, 10) > 65535)
        return false;
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = '\0';
    strcpy(port, colon + 1);
    return true;
}

/* ---- accepting ---- */

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *from, int n, void *user) {
    (void)l;
    (void)n;
    http_server_reap(user);
    http_connection_open(user, fd, from);
}

/* Usually the process is out of descriptors. The connection stays pending, so an immediate retry would loop. */
static void on_accept_error(struct evconnlistener *l, void *user) {
    (void)l;
    http_server *s = user;
    const struct timeval pause = {0, PAUSE_US};
    http_server_reap(s);
    for (int i = 0; i < EVICTED && http_server_evict(s); i++) {}
    http_server_accept(s, false);
    evtimer_add(s->accept_again, &pause);
}

void http_server_accept(http_server *s, bool on) {
    for (size_t i = 0; i < s->n_listeners; i++)
        if (on)
            evconnlistener_enable(s->listener[i].listener);
        else
            evconnlistener_disable(s->listener[i].listener);
}

ht_status http_server_adopt(http_server *s, int fd, ht_error *err) {
    http_listener *l;
    char *name = HT_RESIZE(s->listener, s->n_listeners + 1) ? name_of(fd) : NULL;
    if (!name) {
        close(fd);
        return http_fail_memory(err, "a listener");
    }
    int listens = 0;
    socklen_t n = sizeof listens;
#ifdef SO_ACCEPTCONN
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens) {
        close(fd);
        free(name);
        return http_fail(err, HT_ERR_ARGUMENT, "descriptor %d is no socket that listens", fd);
    }
#endif
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    l = &s->listener[s->n_listeners];
    *l = (http_listener){.address = name};
    l->listener = evconnlistener_new(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!l->listener) {
        close(fd);
        free(name);
        return http_fail_memory(err, "a listener");
    }
    evconnlistener_set_error_cb(l->listener, on_accept_error);
    s->n_listeners++;
    return HT_OK;
}

/* ---- TCP ---- */

/* Closes the descriptor and returns -1, without changing errno. */
static int close_failed(int fd) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* A socket that listens at `at`; -1 with errno. */
static int open_tcp(const struct addrinfo *at) {
    const int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    const bool listens = bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
    return listens ? fd : close_failed(fd);
}

static void set_port(const struct addrinfo *at, int port) {
    if (at->ai_family == AF_INET) ((struct sockaddr_in *)(void *)at->ai_addr)->sin_port = htons((uint16_t)port);
    if (at->ai_family == AF_INET6) ((struct sockaddr_in6 *)(void *)at->ai_addr)->sin6_port = htons((uint16_t)port);
}

/* A machine may lack IPv4 or IPv6; one of them is enough. */
static bool is_absent(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL; }

static ht_status listen_tcp(http_server *s, const char *address, const char *host, const char *port, ht_error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    const int failed = getaddrinfo(*host ? host : NULL, port, &hints, &found);
    if (failed) return http_fail(err, HT_ERR_IO, "%.300s cannot be listened at: %s", address, gai_strerror(failed));
    int chosen = (int)strtol(port, NULL, 10), error = EADDRNOTAVAIL;
    const size_t before = s->n_listeners;
    ht_status st = HT_OK;
    for (const struct addrinfo *at = found; at && !st; at = at->ai_next) {
        set_port(at, chosen); /* all addresses share the port chosen for the first */
        const int fd = open_tcp(at);
        if (fd >= 0) {
            st = http_server_adopt(s, fd, err);
            if (!st) chosen = (int)strtol(strrchr(s->listener[s->n_listeners - 1].address, ':') + 1, NULL, 10);
        } else if (!is_absent(error = errno))
            st = http_fail_system(err, error, address, "listened at");
    }
    freeaddrinfo(found);
    return st || s->n_listeners > before ? st : http_fail_system(err, error, address, "listened at");
}

/* ---- unix ---- */

/* A socket file without a listener is left over from a killed server. */
static bool is_stale(const struct sockaddr_un *at) {
    struct stat info;
    if (stat(at->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return false;
    const bool refused = connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* Restricts permissions to the owner before a client can connect. */
static int open_unix(const struct sockaddr_un *at) {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    if (is_stale(at)) unlink(at->sun_path);
    const bool listens = bind(fd, (const struct sockaddr *)at, sizeof *at) == 0 && chmod(at->sun_path, 0600) == 0 &&
                         listen(fd, SOMAXCONN) == 0;
    return listens ? fd : close_failed(fd);
}

static ht_status listen_unix(http_server *s, const char *path, ht_error *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat info;
    if (*path == '\0' || strlen(path) >= sizeof at.sun_path)
        return http_fail(err, HT_ERR_ARGUMENT, "the path of a unix socket has 1 to %zu bytes, not %zu",
                         sizeof at.sun_path - 1, strlen(path));
    strcpy(at.sun_path, path);
    const int fd = open_unix(&at);
    if (fd < 0) return http_fail_system(err, errno, path, "listened at");
    const ht_status st = http_server_adopt(s, fd, err);
    if (st || stat(path, &info) != 0) {
        if (st) unlink(path);
        return st;
    }
    http_listener *l = &s->listener[s->n_listeners - 1];
    l->device = (unsigned long long)info.st_dev;
    l->inode = (unsigned long long)info.st_ino;
    l->path = strdup(path); /* NULL: the file stays, and is later found to be stale */
    return HT_OK;
}

ht_status http_server_listen(http_server *s, const char *address, ht_error *err) {
    char host[256], port[8];
    if (strncmp(address, "unix:", 5) == 0) return listen_unix(s, address + 5, err);
    if (!split(address, host, sizeof host, port, sizeof port))
        return http_fail(
            err, HT_ERR_ARGUMENT,
            "\"%.300s\" is no address to listen at: host:port, [address]:port, :port or unix:PATH is expected",
            address);
    return listen_tcp(s, address, host, port, err);
}

int http_inherited_sockets(const char *listen_pid, const char *listen_fds) {
    if (!listen_pid || !listen_fds || strtoll(listen_pid, NULL, 10) != (long long)getpid()) return 0;
    char *end;
    const long n = strtol(listen_fds, &end, 10);
    return *end == '\0' && n > 0 && n <= 1024 ? (int)n : 0;
}

const char *http_server_address(const http_server *s, size_t i) {
    return i < s->n_listeners ? s->listener[i].address : NULL;
}

/* Stops listening; the names stay for http_server_address. */
void http_server_remove_listeners(http_server *s) {
    for (size_t i = 0; i < s->n_listeners; i++) {
        http_listener *l = &s->listener[i];
        struct stat info;
        if (l->listener) evconnlistener_free(l->listener);
        l->listener = NULL;
        /* Another server may have taken the path meanwhile. */
        if (l->path && stat(l->path, &info) == 0 && (unsigned long long)info.st_dev == l->device &&
            (unsigned long long)info.st_ino == l->inode)
            unlink(l->path);
        free(l->path);
        l->path = NULL;
    }
}
