// Ways past the judge of a fence to an address outside. Arguments: a way, an address and a
// port. Whether one worked is looked at from outside; 0 means that it seemed to.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in to;
static volatile int done;

static int fail(const char *what) {
    perror(what);
    return 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int say(int s) {
    if (send(s, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) < 0) return fail("send");
    char answer[64];
    return read(s, answer, sizeof answer) > 0 ? 0 : fail("read");
}

static int stream(int protocol) {
    int s = socket(AF_INET, SOCK_STREAM, protocol);
    if (s < 0) return fail("socket");
    if (connect(s, (void *)&to, sizeof to) < 0) return fail("connect");
    return say(s);
}

static struct iovec part = {"x", 1};

// With a source and a device of one's choice, which the kernel would believe.
static char control[CMSG_SPACE(sizeof(struct in_pktinfo))] __attribute__((aligned(8)));
static struct msghdr message(int chosen) {
    struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    if (chosen) {
        m.msg_control = control, m.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&m);
        head->cmsg_level = SOL_IP, head->cmsg_type = IP_PKTINFO;
        head->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
        struct in_pktinfo *info = (void *)CMSG_DATA(head);
        info->ipi_spec_dst = to.sin_addr;
    }
    return m;
}

static int sent(int s, int way, int flags) {
    struct msghdr m = message(way == 3);
    struct mmsghdr two[2] = {{.msg_hdr = m}, {.msg_hdr = m}};
    int result = -1;
    if (way == 0) result = sendto(s, "x", 1, flags, (void *)&to, sizeof to);
    if (way == 1 || way == 3) result = sendmsg(s, &m, flags);
    if (way == 2) result = sendmmsg(s, two, 2, flags);
    if (way == 4) {
        // The first leads to a name server, the second elsewhere.
        struct sockaddr_in server = to;
        server.sin_port = htons(53);
        two[0].msg_hdr.msg_name = &server;
        result = sendmmsg(s, two, 2, flags);
    }
    return result < 0 ? fail("send") : 0;
}

static int fast_open(int way) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    return s < 0 ? fail("socket") : sent(s, way, MSG_FASTOPEN);
}

static int datagram(int way) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    return s < 0 ? fail("socket") : sent(s, way, 0);
}

static int datagram_connected(void) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (s < 0) return fail("socket");
    if (connect(s, (void *)&to, sizeof to) < 0) return fail("connect");
    return write(s, "x", 1) == 1 ? 0 : fail("write");
}

// To the name server of one's choice, whose socket then gets another number.
static int datagram_moved(void) {
    struct sockaddr_in server = to;
    server.sin_port = htons(53);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (s < 0) return fail("socket");
    if (connect(s, (void *)&server, sizeof server) < 0) return fail("connect");
    s = dup(s);
    for (int way = 0; way < 5; way++) sent(s, way, 0);
    return 0;
}

// A question that no rule allows, to a name server itself.
static int question(void) {
    static const char text[] = "\1\2\1\0\0\1\0\0\0\0\0\0\6secret\7example\0\0\1\0\1";
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (s < 0) return fail("socket");
    sendto(s, text, sizeof text - 1, 0, (void *)&to, sizeof to);
    char answer[512];
    struct pollfd one = {s, POLLIN, 0};
    if (poll(&one, 1, 3000) != 1) return fail("poll");
    int got = recv(s, answer, sizeof answer, 0);
    return got > 3 && (answer[3] & 15) == 0 ? 0 : 1;
}

// The address changes while it is judged, between what is allowed and what is not.
static volatile struct sockaddr_in shared;
static unsigned addresses[2];
static void *swap_addresses(void *unused) {
    for (unsigned n = 0; !done; n++) shared.sin_addr.s_addr = addresses[n & 1];
    return unused;
}

static int address_race(void) {
    memcpy((void *)&shared, &to, sizeof to);
    addresses[0] = to.sin_addr.s_addr, addresses[1] = inet_addr("93.184.216.34");
    pthread_t thread;
    pthread_create(&thread, 0, swap_addresses, 0);
    int good = 0;
    for (double end = now() + 3; now() < end;) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&shared, sizeof shared) == 0) good += say(s) == 0;
        close(s);
    }
    done = 1;
    pthread_join(thread, 0);
    printf("%s\n", good ? "some" : "none");
    return 0;
}

// The socket changes while it is judged: a stream, a datagram's, a Unix one, another's file.
static int numbers[5];
static void *swap_numbers(void *unused) {
    for (unsigned n = 0; !done; n++) dup2(numbers[n & 3], numbers[4]);
    return unused;
}

static int number_race(void) {
    struct sockaddr_in allowed = to, server = to;
    allowed.sin_addr.s_addr = inet_addr("93.184.216.34");
    server.sin_port = htons(53);
    struct msghdr m = message(0);
    char bytes[64];
    numbers[4] = dup(0);
    for (double end = now() + 3; now() < end;) {
        numbers[0] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        numbers[1] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        numbers[2] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        numbers[3] = open("/dev/null", O_RDWR);
        done = 0;
        pthread_t thread;
        pthread_create(&thread, 0, swap_numbers, 0);
        for (int n = 0; n < 20; n++) {
            int s = numbers[4];
            connect(s, (void *)(n & 1 ? &to : &server), sizeof to);
            connect(s, (void *)&allowed, sizeof allowed);
            sendto(s, "x", 1, MSG_NOSIGNAL, (void *)&to, sizeof to);
            sendmsg(s, &m, MSG_NOSIGNAL);
            recvfrom(s, bytes, sizeof bytes, MSG_DONTWAIT, 0, 0);
        }
        done = 1;
        pthread_join(thread, 0);
        for (int n = 0; n < 4; n++) close(numbers[n]);
    }
    return 0;
}

// What a connection looks like to its program, made without waiting.
static int looks(void) {
    int one = 1, error = -1, s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int copy = dup(s);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    int made = connect(s, (void *)&to, sizeof to);
    if (made < 0 && errno != EINPROGRESS) return fail("connect");
    struct pollfd wait = {copy, POLLOUT, 0};
    socklen_t bytes = sizeof error;
    if (poll(&wait, 1, 5000) != 1 || wait.revents != POLLOUT) return fail("poll");
    if (getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0 || error) return fail("SO_ERROR");
    // Who asks again learns that it is there, and no more than one connection is made.
    for (int n = 0; n < 3; n++)
        if (connect(s, (void *)&to, sizeof to) < 0 && errno != EISCONN) return fail("again");
    int delay = 0, alive = 0, flags = fcntl(s, F_GETFL), closed = fcntl(s, F_GETFD);
    getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &delay, &bytes);
    getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &alive, &bytes);
    printf("%d %d %d %d ", !!(flags & O_NONBLOCK), closed == FD_CLOEXEC, delay, alive);
    fcntl(copy, F_SETFL, flags & ~O_NONBLOCK);
    char answer[64];
    if (send(copy, "hello", 5, 0) != 5 || recv(s, answer, 5, MSG_WAITALL) != 5) return fail("echo");
    shutdown(s, SHUT_WR);
    printf("%.5s %d\n", answer, (int)recv(s, answer, sizeof answer, 0));
    return 0;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const char *way = arguments[1];
    to.sin_family = AF_INET, to.sin_port = htons(atoi(arguments[3]));
    inet_pton(AF_INET, arguments[2], &to.sin_addr);
    if (!strcmp(way, "stream")) return stream(0);
    if (!strcmp(way, "mptcp")) return stream(262);
    if (!strncmp(way, "fastopen-", 9)) return fast_open(way[9] - '0');
    if (!strncmp(way, "datagram-", 9)) return datagram(way[9] - '0');
    if (!strcmp(way, "connected")) return datagram_connected();
    if (!strcmp(way, "moved")) return datagram_moved();
    if (!strcmp(way, "question")) return question();
    if (!strcmp(way, "address-race")) return address_race();
    if (!strcmp(way, "number-race")) return number_race();
    if (!strcmp(way, "looks")) return looks();
    return 2;
}
