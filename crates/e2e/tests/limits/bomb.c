// Takes as much of one thing as it is told to, and tells how much it got:
//
//     bomb KIND AMOUNT HOLD
//
// prints `reached N all`, holds what it has for HOLD milliseconds and ends with 0; or
// prints `reached N ERROR` where it was refused more, and ends with 0 at once; or ends with
// 1 if a child was killed meanwhile. A word
// more makes it `deaf` or lets it `stop` itself first. Nothing is taken without a bound.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)

static char block[MIB];

static void pause_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

static void ignore_all(void) {
    for (int number = 1; number < 65; number++) {
        signal(number, SIG_IGN);
    }
}

static void raise_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int take_process(void) {
    pid_t child = fork();
    if (child == 0) {
        pause_ms(60000);
        _exit(0);
    }
    return child > 0;
}

static void *wait_long(void *unused) {
    pause_ms(60000);
    return unused;
}

static int start_thread(void *(*run)(void *), void *told) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    int error = pthread_create(&thread, &small, run, told);
    errno = error;
    return error == 0;
}

static int take_thread(void) { return start_thread(wait_long, NULL); }

static int take_memory(void) {
    char *taken = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) {
        return 0;
    }
    memset(taken, 1, MIB);
    return 1;
}

// Addresses for a GiB, of which one page is used, as sanitizers and virtual machines reserve them.
static int take_reserved(void) {
    char *taken = mmap(NULL, 1024L * MIB, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (taken == MAP_FAILED) {
        return 0;
    }
    *taken = 1;
    return 1;
}

// A child that takes 16 MiB and stays; it tells when it has them.
static int take_share(void) {
    int ends[2];
    char told;
    if (pipe(ends)) {
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        for (int number = 0; number < 16; number++) {
            take_memory();
        }
        _exit(write(ends[1], "t", 1) == 1 ? (pause_ms(60000), 0) : 1);
    }
    close(ends[1]);
    errno = ENOMEM;
    int done = child > 0 && read(ends[0], &told, 1) == 1;
    close(ends[0]);
    return done;
}

// A page that is seen 2 MiB apart from the last one needs a table of its own: as much
// memory of the kernel's as of the program's. One file's page serves all of them.
static int take_region(void) {
    static int file = -1;
    static char *next = (char *)0x100000000000;
    if (file < 0) {
        file = memfd_create("page", 0);
        if (file < 0 || ftruncate(file, 4096)) {
            return 0;
        }
    }
    char *seen = mmap(next, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    if (seen == MAP_FAILED) {
        return 0;
    }
    *seen = 1;
    next += 2 * MIB;
    return 1;
}

// A file in memory without a name.
static int open_memory(int mib) {
    int file = memfd_create("taken", 0);
    while (file >= 0 && mib-- > 0) {
        if (write(file, block, MIB) != MIB) {
            return -1;
        }
    }
    return file;
}

// Such files in a process that nobody may look into, and mapped nowhere.
static int take_opaque(void) { return prctl(PR_SET_DUMPABLE, 0) == 0 && open_memory(1) >= 0; }

// Sends a file through a socket from which nobody takes it, and closes it.
static int let_fly(int file) {
    static int ends[2] = {-1, -1};
    if (ends[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
        return 0;
    }
    char space[CMSG_SPACE(sizeof file)] = {0};
    struct iovec word = {"f", 1};
    struct msghdr message = {.msg_iov = &word,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    return file >= 0 && sendmsg(ends[0], &message, MSG_NOSIGNAL) == 1 && close(file) == 0;
}

static int take_flying(void) { return let_fly(open_memory(8)); }

// Shared memory of which the pages stay while no process has them in view.
static int take_unseen(void) {
    char *taken = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) {
        return 0;
    }
    memset(taken, 1, MIB);
    return madvise(taken, MIB, MADV_DONTNEED) == 0;
}

// Shared memory under a name of the program's choice.
static int take_named(void) {
    char *taken = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) {
        return 0;
    }
    memset(taken, 1, MIB);
    // Kernels without names have nothing to hide it by.
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, taken, MIB, "harmless");
    return 1;
}

// A process whose first thread has ended, and whose second one takes 16 MiB.
static int leaderless[2];

static void *take_alone(void *unused) {
    pause_ms(20);
    for (int number = 0; number < 16; number++) {
        take_memory();
    }
    if (write(leaderless[1], "t", 1) == 1) {
        pause_ms(60000);
    }
    _exit(0);
    return unused;
}

static int take_leaderless(void) {
    char told;
    if (pipe(leaderless)) {
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        close(leaderless[0]);
        if (!start_thread(take_alone, NULL)) {
            _exit(1);
        }
        pthread_exit(NULL);
    }
    close(leaderless[1]);
    errno = ENOMEM;
    int done = child > 0 && read(leaderless[0], &told, 1) == 1;
    close(leaderless[0]);
    return done;
}

// A thread with descriptors of its own, among them files in memory.
static void *hold_apart(void *told) {
    int done = close_range(10000, 10000, CLOSE_RANGE_UNSHARE) == 0 && open_memory(8) >= 0;
    if (write(*(int *)told, done ? "t" : "f", 1) == 1) {
        pause_ms(60000);
    }
    return NULL;
}

static int take_apart(void) {
    int ends[2];
    char told = 'f';
    return !pipe(ends) && start_thread(hold_apart, &ends[1]) &&
           read(ends[0], &told, 1) == 1 && told == 't';
}

static int append(const char *path, int *file) {
    if (*file < 0) {
        *file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
    return *file >= 0 && write(*file, block, MIB) == MIB;
}

static int take_tmp(void) {
    static int file = -1;
    return append("/tmp/bomb-filled", &file);
}

static int take_disk(void) {
    static int file = -1;
    return append("bomb-filled", &file);
}

// Written and on the disk before the next: nothing waits in memory.
static int take_deleted(void) {
    static int file = -1;
    int first = file < 0;
    int done = append("bomb-deleted", &file);
    if (first) {
        unlink("bomb-deleted");
    }
    return done && fdatasync(file) == 0;
}

// The same in a process that nobody may look into.
static int take_deleted_opaque(void) { return prctl(PR_SET_DUMPABLE, 0) == 0 && take_deleted(); }

// Without a name, and on its way through a socket.
static int take_deleted_flying(void) {
    int file = open("bomb-flying", O_WRONLY | O_CREAT | O_EXCL, 0600);
    int done = file >= 0 && unlink("bomb-flying") == 0 && write(file, block, MIB) == MIB;
    return done && fdatasync(file) == 0 && let_fly(file);
}

// In a thread that has descriptors of its own.
static void *hold_deleted(void *told) {
    int done = close_range(10000, 10000, CLOSE_RANGE_UNSHARE) == 0 && take_deleted();
    for (int number = 1; done && number < 40; number++) {
        done = take_deleted();
    }
    if (write(*(int *)told, done ? "t" : "f", 1) == 1) {
        pause_ms(60000);
    }
    return NULL;
}

static int take_deleted_apart(void) {
    int ends[2];
    char told = 'f';
    return !pipe(ends) && start_thread(hold_deleted, &ends[1]) &&
           read(ends[0], &told, 1) == 1 && told == 't';
}

// Hands a file on from process to process, each of which adds a little to it and has ended
// before anybody can look at it, or lives on a while without it, beside others that take
// long to look at.
static int hand_on(int file, long blocks, int linger) {
    for (int number = 0; number < 6; number++) {
        if (fork() == 0) {
            close(file);
            for (int opened = 0; opened < 900; opened++) {
                dup(1);
            }
            pause_ms(60000);
            _exit(0);
        }
    }
    if (fork() == 0) {
        for (long number = 0;; number++) {
            if (number < blocks) {
                write(file, block, 64 << 10);
            }
            if (fork() > 0) {
                close(file);
                pause_ms(linger);
                _exit(0);
            }
        }
    }
    return file >= 0 && close(file) == 0;
}

static int take_deleted_handed(int linger) {
    int file = open("bomb-handed", O_WRONLY | O_CREAT | O_EXCL, 0600);
    return file >= 0 && unlink("bomb-handed") == 0 && hand_on(file, 64 * 16, linger);
}

static int take_deleted_ending(void) { return take_deleted_handed(0); }
static int take_deleted_lingering(void) { return take_deleted_handed(5); }
static int take_ending(void) { return hand_on(open_memory(0), 200 * 16, 0); }
static int take_lingering(void) { return hand_on(open_memory(0), 200 * 16, 5); }

// In a directory that its owner may not look into either.
static int take_hidden(void) {
    static int file = -1;
    if (file < 0 && mkdir("bomb-hidden", 0700)) {
        return 0;
    }
    int done = append("bomb-hidden/file", &file);
    return done && chmod("bomb-hidden", 0) == 0;
}

static int take_file(void) {
    static int number;
    char name[32];
    sprintf(name, "bomb-%d", number++);
    int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    return file >= 0 && close(file) == 0;
}

static int take_name(void) {
    static int number;
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    sprintf(name, "%06d", number++);
    name[6] = 'n';
    int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    return file >= 0 && close(file) == 0;
}

// Each directory in the last, so that no path leads to most of them, and a file in each.
static int take_depth(void) {
    if (mkdir("a-directory-of-a-long-name-that-fills-a-path-soon", 0700) ||
        chdir("a-directory-of-a-long-name-that-fills-a-path-soon")) {
        return 0;
    }
    int file = open("file", O_WRONLY | O_CREAT, 0600);
    return file >= 0 && write(file, block, 64 << 10) == 64 << 10 && close(file) == 0;
}

static int take_descriptor(void) {
    return open("/dev/null", O_RDONLY) >= 0;
}

static int take_terminal(void) {
    int one = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY);
    return one >= 0 || (errno != ENOSPC && open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0);
}

// A pipe made as large as it may be, and filled: up to 1 MiB of the kernel's memory.
static int take_pipe(void) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK)) {
        return 0;
    }
    fcntl(ends[1], F_SETPIPE_SZ, MIB);
    while (write(ends[1], block, MIB) > 0) {
    }
    return 1;
}

// Fills what a socket sends from; one that takes nothing has been refused it.
static int fill(int one) {
    int large = 4 * MIB;
    setsockopt(one, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    if (send(one, block, 64 << 10, MSG_DONTWAIT | MSG_NOSIGNAL) < 64 << 10) {
        return 0;
    }
    while (send(one, block, MIB, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    return 1;
}

static int take_pair(void) {
    int ends[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && fill(ends[0]) && fill(ends[1]);
}

// A connection over the loopback, filled in both directions and never read.
static int take_connection(void) {
    static int listener = -1;
    static struct sockaddr_in place = {.sin_family = AF_INET};
    if (listener < 0) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof place;
        if (listener < 0 || bind(listener, (struct sockaddr *)&place, sizeof place) ||
            listen(listener, 128) || getsockname(listener, (struct sockaddr *)&place, &length)) {
            return 0;
        }
    }
    int near = socket(AF_INET, SOCK_STREAM, 0);
    if (near < 0 || connect(near, (struct sockaddr *)&place, sizeof place)) {
        return 0;
    }
    int far = accept(listener, NULL, NULL);
    return far >= 0 && fill(near) && fill(far);
}

// Datagrams that nobody reads.
static int take_datagrams(void) {
    int one = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in place = {.sin_family = AF_INET};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof place;
    int large = 4 * MIB;
    if (one < 0 || bind(one, (struct sockaddr *)&place, sizeof place) ||
        getsockname(one, (struct sockaddr *)&place, &length)) {
        return 0;
    }
    setsockopt(one, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    for (int sent = 0; sent < 64; sent++) {
        sendto(one, block, 60000, MSG_DONTWAIT, (struct sockaddr *)&place, sizeof place);
    }
    // A datagram that there is no room for is thrown away, and nobody is told.
    int waits = 0;
    errno = ENOBUFS;
    return ioctl(one, FIONREAD, &waits) == 0 && waits > 0;
}

static int write_all(int to) {
    for (size_t done = 0; done < MIB;) {
        ssize_t wrote = write(to, block + done, MIB - done);
        if (wrote <= 0) {
            return 0;
        }
        done += wrote;
    }
    return 1;
}

static int take_output(void) { return write_all(1); }
static int take_errors(void) { return write_all(2); }

// Another process that does nothing but turn for 1.5 seconds, in a session of its own.
static int take_processor(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 1500);
        _exit(0);
    }
    return child > 0;
}

// A process that nobody waits for: forked twice, in a session of its own, deaf.
static int take_daemon(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        pid_t daemon = fork();
        if (daemon == 0) {
            setsid();
            ignore_all();
            pause_ms(60000);
        }
        _exit(daemon < 0 ? errno : 0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return 0;
    }
    errno = WEXITSTATUS(status);
    return errno == 0;
}

// Children that are stopped, in a group of their own.
static int take_stopped(void) {
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        raise(SIGSTOP);
        pause_ms(60000);
        _exit(0);
    }
    return child > 0 && waitpid(child, NULL, WUNTRACED) == child;
}

// One process after another, each of which lives for a moment.
static int take_short(void) {
    pid_t child = fork();
    if (child == 0) {
        pause_ms(1);
        _exit(0);
    }
    return child > 0 && waitpid(child, NULL, 0) == child;
}

static int take_time(void) {
    pause_ms(1);
    return 1;
}

// An end that would leave an image of the memory.
static int take_image(void) {
    pid_t child = fork();
    if (child == 0) {
        abort();
    }
    int status = 0;
    waitpid(child, &status, 0);
    return child > 0 && WIFSIGNALED(status) && !WCOREDUMP(status) && access("core", F_OK);
}

static const struct {
    const char *name;
    int (*take)(void);
} KINDS[] = {
    {"processes", take_process},     {"threads", take_thread},
    {"memory", take_memory},         {"regions", take_region},
    {"reserved", take_reserved},
    {"shares", take_share},          {"opaque", take_opaque},
    {"flying", take_flying},         {"unseen", take_unseen},
    {"named", take_named},           {"leaderless", take_leaderless},
    {"apart", take_apart},           {"deleted-opaque", take_deleted_opaque},
    {"deleted-flying", take_deleted_flying},
    {"deleted-apart", take_deleted_apart},
    {"deleted-ending", take_deleted_ending},
    {"deleted-lingering", take_deleted_lingering},
    {"ending", take_ending},         {"lingering", take_lingering},
    {"tmp", take_tmp},               {"disk", take_disk},
    {"deleted", take_deleted},       {"hidden", take_hidden},
    {"files", take_file},
    {"names", take_name},            {"depth", take_depth},
    {"descriptors", take_descriptor}, {"terminals", take_terminal},
    {"pipes", take_pipe},            {"pairs", take_pair},
    {"connections", take_connection}, {"datagrams", take_datagrams},
    {"output", take_output},         {"errors", take_errors},
    {"processors", take_processor},  {"daemons", take_daemon},
    {"stopped", take_stopped},       {"time", take_time},
    {"short", take_short},
    {"images", take_image},
};

// What stands in the way of an end: ignores what can be ignored, stops itself.
static void prepare(const char *how) {
    if (strcmp(how, "deaf") == 0) {
        ignore_all();
    } else if (strcmp(how, "stop") == 0) {
        kill(-1, SIGSTOP);
        raise(SIGSTOP);
    }
}

static int lost_a_child(void) {
    static int lost;
    int status = 0;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        lost |= WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    return lost;
}

int main(int count, char **words) {
    if (count < 4) {
        return 2;
    }
    memset(block, 'b', MIB);
    raise_descriptors();
    if (count > 4) {
        prepare(words[4]);
    }
    long amount = atol(words[2]);
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
        if (strcmp(KINDS[kind].name, words[1])) {
            continue;
        }
        long got = 0;
        errno = 0;
        while (got < amount && KINDS[kind].take()) {
            got++;
        }
        const char *end = got == amount ? "all" : strerrorname_np(errno);
        // One call: whoever has no descriptor left can still say it.
        dprintf(1, "\nreached %ld %s\n", got, end ? end : "0");
        if (got == amount && !lost_a_child()) {
            pause_ms(atol(words[3]));
        }
        return lost_a_child();
    }
    return 2;
}
