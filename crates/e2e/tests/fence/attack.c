// Ways out of a fence. The first argument names one; the status is 0 where it worked,
// 1 where it did not. Whether it really did is looked at from outside.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif

static char *first, *second;
static volatile int done;

static int answer(const char *what, int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        return 1;
    }
    return 0;
}

static struct sockaddr_in at_port(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int tcp(int protocol, int option) {
    struct sockaddr_in to = at_port(atoi(first));
    int one = 1, s = socket(AF_INET, SOCK_STREAM, protocol);
    if (s < 0) return answer("socket", s);
    if (option && setsockopt(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one) < 0)
        return answer("setsockopt", -1);
    if (connect(s, (void *)&to, sizeof to) < 0) return answer("connect", -1);
    return answer("send", send(s, "x", 1, MSG_NOSIGNAL));
}

static int tcp6(void) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(first))};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
    int s = socket(AF_INET6, SOCK_STREAM, 0);
    return s < 0 ? answer("socket", s) : answer("connect", connect(s, (void *)&to, sizeof to));
}

static int fastopen(void) {
    struct sockaddr_in to = at_port(atoi(first));
    struct iovec part = {"x", 1};
    struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr mm = {.msg_hdr = m};
    int result = -1;
    for (int way = 0; way < 3 && result < 0; way++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (s < 0) return answer("socket", s);
        if (way == 0) result = sendto(s, "x", 1, MSG_FASTOPEN, (void *)&to, sizeof to);
        if (way == 1) result = sendmsg(s, &m, MSG_FASTOPEN);
        if (way == 2) result = sendmmsg(s, &mm, 1, MSG_FASTOPEN);
    }
    return answer("fastopen", result);
}

static int udp(void) {
    struct sockaddr_in to = at_port(atoi(first));
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    return s < 0 ? answer("socket", s) : answer("sendto", sendto(s, "x", 1, 0, (void *)&to, sizeof to));
}

static int unix_socket(int is_abstract) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + is_abstract, first, sizeof to.sun_path - 2);
    socklen_t bytes = offsetof(struct sockaddr_un, sun_path) + is_abstract + strlen(first) + !is_abstract;
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    return s < 0 ? answer("socket", s) : answer("connect", connect(s, (void *)&to, bytes));
}

// The port in an address that is being judged changes between one's own listener and
// the host's.
static volatile struct sockaddr_in shared;
static int ports[2];
static void *swap_ports(void *unused) {
    for (unsigned n = 0; !done; n++) shared.sin_port = htons(ports[n & 1]);
    return unused;
}

static int address_race(void) {
    int own = socket(AF_INET, SOCK_STREAM, 0), outside = atoi(first);
    struct sockaddr_in at = at_port(0);
    socklen_t bytes = sizeof at;
    if (bind(own, (void *)&at, sizeof at) < 0 || listen(own, 4096) < 0) return answer("listen", -1);
    getsockname(own, (void *)&at, &bytes);
    ports[0] = ntohs(at.sin_port), ports[1] = outside;
    at = at_port(ports[0]);
    memcpy((void *)&shared, &at, sizeof at);
    fcntl(own, F_SETFL, O_NONBLOCK);
    pthread_t thread;
    pthread_create(&thread, 0, swap_ports, 0);
    int reached = 0;
    for (double end = now() + 3; now() < end && !reached;) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&shared, sizeof shared) == 0) {
            struct sockaddr_in to;
            bytes = sizeof to;
            if (getpeername(s, (void *)&to, &bytes) == 0) reached = ntohs(to.sin_port) == outside;
        }
        close(s);
        close(accept4(own, 0, 0, SOCK_NONBLOCK));
    }
    done = 1;
    pthread_join(thread, 0);
    return !reached;
}

// Options by which packets leave by another way than was judged.
static int option(void) {
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
    unsigned char route[24] = {0, 2, 4, 0, 0};
    struct group_req group = {.gr_interface = 1};
    struct sockaddr_in *to = (void *)&group.gr_group;
    to->sin_family = AF_INET;
    inet_pton(AF_INET, "239.255.1.2", &to->sin_addr);
    if (!strcmp(first, "device")) return answer(first, setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    if (!strcmp(first, "index")) return answer(first, setsockopt(s, SOL_SOCKET, 62, &one, sizeof one));
    if (!strcmp(first, "share")) return answer(first, setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
    if (!strcmp(first, "later")) return answer(first, setsockopt(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one));
    if (!strcmp(first, "group")) return answer(first, setsockopt(s, IPPROTO_IP, MCAST_JOIN_GROUP, &group, sizeof group));
    route[1] = 2;
    return answer(first, setsockopt(six, IPPROTO_IPV6, IPV6_RTHDR, route, sizeof route));
}

// A connection to a listener whose queue is full, without the limit in time that
// whoever makes it has set.
static int slow_socket;
static void *unlimit(void *unused) {
    struct timeval none = {0, 0};
    while (!done) setsockopt(slow_socket, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    return unused;
}
static void too_slow(int unused) { (void)unused, _exit(0); }

static int slow_connect(void) {
    struct sockaddr_in at = at_port(0);
    socklen_t bytes = sizeof at;
    int own = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(own, (void *)&at, sizeof at) < 0 || listen(own, 0) < 0) return answer("listen", -1);
    getsockname(own, (void *)&at, &bytes);
    for (int n = 0; n < 3; n++) {
        int filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(filler, (void *)&at, sizeof at);
    }
    usleep(100000);
    slow_socket = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    pthread_create(&thread, 0, unlimit, 0);
    signal(SIGALRM, too_slow);
    for (int n = 0; n < 10; n++) {
        alarm(4);
        int s = slow_socket;
        connect(s, (void *)&at, sizeof at);
        slow_socket = socket(AF_INET, SOCK_STREAM, 0);
        close(s);
    }
    done = 1;
    alarm(0);
    return 1;
}

// The last copy of a socket that lingers is whoever holds one for a moment.
// This one's own number: by the time it is run there may be another socket, and whoever
// writes to that one would wait for its end itself.
static void *close_shared(void *number) {
    usleep(rand() % 300);
    close((int)(long)number);
    return 0;
}

static int slow_close(void) {
    struct sockaddr_in at = at_port(0), nowhere = at_port(1);
    struct linger linger = {1, 600};
    socklen_t bytes = sizeof at;
    static char block[1 << 16];
    int own = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(own, (void *)&at, sizeof at) < 0 || listen(own, 100) < 0) return answer("listen", -1);
    getsockname(own, (void *)&at, &bytes);
    for (int n = 0; n < 60; n++) {
        slow_socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(slow_socket, (void *)&at, sizeof at) < 0) return answer("connect", -1);
        setsockopt(slow_socket, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        fcntl(slow_socket, F_SETFL, O_NONBLOCK);
        while (send(slow_socket, block, sizeof block, MSG_NOSIGNAL) > 0) {}
        pthread_t thread;
        pthread_create(&thread, 0, close_shared, (void *)(long)slow_socket);
        bind(slow_socket, (void *)&nowhere, sizeof nowhere);
        double before = now();
        struct sockaddr_in any = at_port(0);
        int s = socket(AF_INET, SOCK_STREAM, 0);
        bind(s, (void *)&any, sizeof any);
        close(s);
        if (now() - before > 3) return 0;
        // The thread itself may wait for as long as it has asked to.
        (void)thread;
    }
    return 1;
}

static int say_listening(int s) {
    struct sockaddr_in6 at;
    socklen_t bytes = sizeof at;
    getsockname(s, (void *)&at, &bytes);
    printf("listening %d\n", ntohs(at.sin6_port));
    fflush(stdout);
    pause();
    return 0;
}

static int listen_everywhere(void) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    int s = socket(AF_INET6, SOCK_STREAM, 0);
    if (bind(s, (void *)&at, sizeof at) < 0 || listen(s, 5) < 0) return answer("listen", -1);
    return say_listening(s);
}

static int listen_unbound(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(s, 5) < 0) return answer("listen", -1);
    return say_listening(s);
}

// A Unix socket's bind goes on in the kernel: an internet socket takes its number
// meanwhile.
static int numbers[3];
static void *swap_numbers(void *unused) {
    for (unsigned n = 0; !done; n++) dup2(numbers[n & 1], numbers[2]);
    return unused;
}

static int listen_swapped(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(0)};
    int internet = socket(AF_INET, SOCK_STREAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    numbers[0] = internet, numbers[1] = local, numbers[2] = dup(local);
    pthread_t thread;
    pthread_create(&thread, 0, swap_numbers, 0);
    for (double end = now() + 2; now() < end;) {
        any.sin_family = (rand() & 1) ? AF_INET : AF_UNIX;
        bind(numbers[2], (void *)&any, sizeof any);
    }
    done = 1;
    pthread_join(thread, 0);
    if (listen(internet, 5) < 0) {
        // Bound to what may not listen: a fresh one shows the loopback.
        internet = socket(AF_INET, SOCK_STREAM, 0);
        if (listen(internet, 5) < 0) return answer("listen", -1);
    }
    return say_listening(internet);
}

// The path that is being judged changes between one's own file and the other.
static volatile char path[512];
static void *swap_paths(void *unused) {
    for (unsigned n = 0; !done; n++) {
        const char *to = n & 1 ? "own" : first;
        for (size_t at = 0; at <= strlen(to); at++) path[at] = to[at];
    }
    return unused;
}

static void *swap_links(void *unused) {
    for (unsigned n = 0; !done; n++) {
        unlink("step.new");
        if (symlink(n & 1 ? "own" : first, "step.new") == 0) rename("step.new", "step");
    }
    return unused;
}

static int race(void *(*swap)(void *), const char *name) {
    struct stat before, after;
    stat(first, &before);
    strcpy((char *)path, "own");
    symlink("own", "step");
    pthread_t thread;
    pthread_create(&thread, 0, swap, 0);
    int changed = 0;
    for (double end = now() + 3; now() < end && !changed;) {
        for (int n = 0; n < 50; n++) chmod(name, 0600 | (n & 7)), fchmodat(AT_FDCWD, name, 0600 | (n & 7), 0);
        stat(first, &after);
        changed = after.st_mode != before.st_mode;
    }
    done = 1;
    pthread_join(thread, 0);
    return !changed;
}

static int attributes(const char *way) {
    struct timespec times[2] = {{1, 2}, {3, 4}};
    char text[64];
    int flags = FS_NODUMP_FL, result = -1;
    int fd = open(first, O_RDONLY);
    if (fd < 0) return answer("open", fd);
    if (!strcmp(way, "chmod")) result = chmod(first, 0666);
    if (!strcmp(way, "chmod-at")) {
        char *slash = strrchr(first, '/');
        *slash = 0;
        int directory = open(first, O_PATH | O_DIRECTORY);
        *slash = '/';
        result = fchmodat(directory, slash + 1, 0666, 0);
        if (result < 0) result = syscall(452, directory, slash + 1, 0666, 0);
        if (result < 0) result = syscall(452, fd, "", 0666, AT_EMPTY_PATH);
    }
    if (!strcmp(way, "chmod-link")) {
        unlink("to-canary");
        if (symlink(first, "to-canary") == 0) result = chmod("to-canary", 0666);
    }
    if (!strcmp(way, "chmod-descriptor")) result = fchmod(fd, 0666);
    if (!strcmp(way, "chmod-proc")) {
        sprintf(text, "/proc/self/fd/%d", fd);
        result = chmod(text, 0666);
        sprintf(text, "/proc/thread-self/fd/%d", fd);
        if (result < 0) result = chmod(text, 0666);
        sprintf(text, "/proc/%d/fd/%d", getpid(), fd);
        if (result < 0) result = chmod(text, 0666);
        sprintf(text, "/dev/fd/%d", fd);
        if (result < 0) result = chmod(text, 0666);
    }
    if (!strcmp(way, "utimes")) {
        result = utimensat(AT_FDCWD, first, times, 0);
        if (result < 0) result = utimensat(AT_FDCWD, first, 0, AT_SYMLINK_NOFOLLOW);
        if (result < 0) result = utimes(first, 0);
    }
    if (!strcmp(way, "utimes-descriptor")) {
        result = futimens(fd, times);
        if (result < 0) result = futimens(fd, 0);
    }
    if (!strcmp(way, "xattr")) {
        result = setxattr(first, "user.a", "b", 1, 0);
        if (result < 0) result = lsetxattr(first, "user.a", "b", 1, 0);
    }
    if (!strcmp(way, "xattr-descriptor")) result = fsetxattr(fd, "user.a", "b", 1, 0);
    if (!strcmp(way, "flags")) {
        result = ioctl(fd, FS_IOC_SETFLAGS, &flags);
        if (result < 0) result = syscall(SYS_ioctl, fd, FS_IOC_SETFLAGS | 1UL << 32, &flags);
    }
    if (!strcmp(way, "truncate")) result = truncate(first, 1);
    if (!strcmp(way, "rename")) {
        result = rename(first, "taken");
        if (result < 0) result = rename("own", first);
    }
    if (!strcmp(way, "remove")) result = unlink(first);
    if (!strcmp(way, "link")) {
        unlink("linked");
        result = link(first, "linked");
        if (result < 0) result = linkat(fd, "", AT_FDCWD, "linked", AT_EMPTY_PATH);
    }
    return answer(way, result);
}

static int victim(void) {
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666);
    char *memory = shmat(id, 0, 0);
    if (memory == (void *)-1) return answer("shmat", -1);
    shmctl(id, IPC_RMID, 0);
    setpgid(0, 0);
    printf("victim %d\n", id);
    fflush(stdout);
    sleep(120);
    return 0;
}

static int process(const char *way) {
    int pid = atoi(first), result = -1, fds[2];
    struct rlimit less = {64, 64};
    cpu_set_t one;
    if (!strcmp(way, "kill")) {
        result = kill(pid, SIGKILL);
        if (result < 0) result = syscall(SYS_tgkill, pid, pid, SIGKILL);
        if (result < 0) result = syscall(SYS_tkill, pid, SIGKILL);
        siginfo_t info = {.si_signo = SIGKILL, .si_code = SI_QUEUE};
        if (result < 0) result = syscall(SYS_rt_sigqueueinfo, pid, SIGKILL, &info);
        int fd = syscall(434, pid, 0);
        if (result < 0 && fd >= 0) result = syscall(424, fd, SIGKILL, 0, 0);
    }
    if (!strcmp(way, "group")) result = kill(-pid, SIGKILL);
    if (!strcmp(way, "prlimit")) result = prlimit(pid, RLIMIT_NOFILE, &less, 0);
    if (!strcmp(way, "priority")) {
        result = setpriority(PRIO_PROCESS, pid, 15);
        if (result < 0) result = setpriority(PRIO_PGRP, pid, 15);
        if (result < 0) result = setpriority(PRIO_USER, getuid(), 15);
    }
    if (!strcmp(way, "affinity")) {
        CPU_ZERO(&one);
        CPU_SET(1, &one);
        result = sched_setaffinity(pid, sizeof one, &one);
    }
    if (!strcmp(way, "trace")) {
        result = ptrace(PTRACE_SEIZE, pid, 0, 0);
        if (result == 0) return 0;
    }
    if (!strcmp(way, "memory")) {
        char name[64], byte;
        struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
        sprintf(name, "/proc/%d/mem", pid);
        result = open(name, O_RDWR);
        sprintf(name, "/proc/%d/environ", pid);
        if (result < 0) result = open(name, O_RDONLY);
        if (result < 0) result = process_vm_readv(pid, &here, 1, &there, 1, 0);
    }
    if (!strcmp(way, "owner")) {
        // The kernel sends this signal in the sender's name when something is read.
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0) return answer("socketpair", -1);
        fcntl(fds[0], F_SETSIG, SIGKILL);
        fcntl(fds[0], F_SETOWN, pid);
        fcntl(fds[0], F_SETFL, O_ASYNC);
        write(fds[1], "x", 1);
        usleep(300000);
        result = kill(pid, 0) < 0 && errno == ESRCH ? 0 : -1;
        char name[64], state = '?';
        sprintf(name, "/proc/%d/stat", pid);
        FILE *stat = fopen(name, "r");
        if (stat && fscanf(stat, "%*d %*s %c", &state) == 1 && state == 'Z') result = 0;
    }
    if (!strcmp(way, "segment")) {
        void *memory = shmat(atoi(second), 0, 0);
        result = memory == (void *)-1 ? -1 : 0;
    }
    return answer(way, result);
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    first = count > 2 ? arguments[2] : "", second = count > 3 ? arguments[3] : "";
    if (!strcmp(way, "tcp")) return tcp(0, 0);
    if (!strcmp(way, "tcp6")) return tcp6();
    if (!strcmp(way, "fastopen")) return fastopen();
    if (!strcmp(way, "fastopen-option")) return tcp(0, 1);
    if (!strcmp(way, "mptcp")) return tcp(IPPROTO_MPTCP, 0);
    if (!strcmp(way, "udp")) return udp();
    if (!strcmp(way, "unix")) return unix_socket(0);
    if (!strcmp(way, "abstract")) return unix_socket(1);
    if (!strcmp(way, "address-race")) return address_race();
    if (!strcmp(way, "option")) return option();
    if (!strcmp(way, "slow-connect")) return slow_connect();
    if (!strcmp(way, "slow-close")) return slow_close();
    if (!strcmp(way, "listen-everywhere")) return listen_everywhere();
    if (!strcmp(way, "listen-unbound")) return listen_unbound();
    if (!strcmp(way, "listen-swapped")) return listen_swapped();
    if (!strcmp(way, "chmod-race")) return race(swap_paths, (char *)path);
    if (!strcmp(way, "link-race")) return race(swap_links, "step");
    if (!strcmp(way, "victim")) return victim();
    return count == 4 ? process(way) : attributes(way);
}
