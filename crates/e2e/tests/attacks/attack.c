// The attacking program: one attack for each first argument. What it could get it
// prints or sends; whether that counts is judged outside. It is compiled by the test
// and knows nothing of Atoll.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_fsopen
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#define SYS_move_mount 429
#endif
#define IPPROTO_MPTCP_ 262

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  return 1;
}

static int number(const char *text) { return (int)strtol(text, NULL, 0); }

// Sends a text to a Unix socket; a name that begins with @ is abstract.
static int to_unix(int type, const char *path, const char *text) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  socklen_t length = sizeof to;
  strncpy(to.sun_path, path, sizeof to.sun_path - 1);
  if (path[0] == '@') {
    to.sun_path[0] = 0;
    length = offsetof(struct sockaddr_un, sun_path) + strlen(path);
  }
  int s = socket(AF_UNIX, type, 0);
  if (s < 0) return fail("socket");
  if (connect(s, (void *)&to, length)) return fail("connect");
  if (send(s, text, strlen(text), 0) < 0) return fail("send");
  return 0;
}

// Sends a text over the internet's protocols.
static int to_internet(const char *how, const char *host, const char *port, const char *text) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(number(port))};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(number(port))};
  struct sockaddr *to = (void *)&four;
  socklen_t length = sizeof four;
  int family = AF_INET;
  if (strchr(host, ':')) {
    family = AF_INET6, to = (void *)&six, length = sizeof six;
    inet_pton(AF_INET6, host, &six.sin6_addr);
  } else {
    inet_pton(AF_INET, host, &four.sin_addr);
  }
  int datagram = !strcmp(how, "udp");
  int protocol = !strcmp(how, "mptcp") ? IPPROTO_MPTCP_ : 0;
  int s = socket(family, datagram ? SOCK_DGRAM : SOCK_STREAM, protocol);
  if (s < 0) return fail("socket");
  struct timeval patience = {.tv_sec = 3};
  setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (!strcmp(how, "fastopen")) {
    if (sendto(s, text, strlen(text), MSG_FASTOPEN, to, length) < 0) return fail("sendto");
    return 0;
  }
  if (connect(s, to, length)) return fail("connect");
  if (send(s, text, strlen(text), 0) < 0) return fail("send");
  return 0;
}

// Listens on an abstract Unix socket, or on a port of the loopback, says so, and
// prints what comes.
static int listen_for(const char *where) {
  char got[64] = {0};
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  struct sockaddr_in port = {.sin_family = AF_INET};
  int s;
  if (where[0] == '@') {
    strncpy(name.sun_path + 1, where + 1, sizeof name.sun_path - 2);
    s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(s, (void *)&name, offsetof(struct sockaddr_un, sun_path) + strlen(where)))
      return fail("bind");
  } else {
    int yes = 1;
    port.sin_port = htons(number(where));
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(s, (void *)&port, sizeof port)) return fail("bind");
  }
  if (listen(s, 8)) return fail("listen");
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    int from = accept(s, NULL, NULL);
    memset(got, 0, sizeof got);
    if (read(from, got, sizeof got - 1) > 0) printf("heard %s\n", got), fflush(stdout);
    close(from);
  }
}

static int first_mapping(const char *pid, unsigned long *at) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/maps", pid);
  FILE *maps = fopen(path, "r");
  if (!maps) return fail(path);
  int got = fscanf(maps, "%lx-", at);
  fclose(maps);
  return got != 1;
}

static int show(const unsigned char *bytes, long count) {
  if (count <= 0) return fail("read");
  printf("taken");
  for (long i = 0; i < count; i++) printf(" %02x", bytes[i]);
  printf("\n");
  return 0;
}

static int read_memory(const char *pid) {
  unsigned char bytes[4];
  char path[64];
  unsigned long at;
  if (first_mapping(pid, &at)) return 1;
  snprintf(path, sizeof path, "/proc/%s/mem", pid);
  int memory = open(path, O_RDONLY);
  if (memory < 0) return fail(path);
  return show(bytes, pread(memory, bytes, sizeof bytes, (off_t)at));
}

static int read_across(const char *pid) {
  unsigned char bytes[4];
  unsigned long at;
  if (first_mapping(pid, &at)) return 1;
  struct iovec here = {bytes, sizeof bytes}, there = {(void *)at, sizeof bytes};
  return show(bytes, process_vm_readv(number(pid), &here, 1, &there, 1, 0));
}

static int seize(const char *pid) {
  if (ptrace(PTRACE_SEIZE, number(pid), 0, 0)) return fail("ptrace");
  printf("taken by ptrace\n");
  return 0;
}

// Takes every descriptor of a process that it can.
static int steal(const char *pid) {
  int process = (int)syscall(SYS_pidfd_open, number(pid), 0);
  if (process < 0) return fail("pidfd_open");
  for (int fd = 0; fd < 64; fd++) {
    int got = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    if (got >= 0) {
      char path[64], name[256] = {0};
      snprintf(path, sizeof path, "/proc/self/fd/%d", got);
      if (readlink(path, name, sizeof name - 1) > 0) printf("taken %s\n", name);
    }
  }
  return 0;
}

static int compare(const char *pid) {
  long same = syscall(SYS_kcmp, number(pid), getpid(), 0, 0, 0);
  if (same < 0) return fail("kcmp");
  printf("taken by kcmp\n");
  return 0;
}

// Looks through every descriptor that was left open.
static int scan(const char *name) {
  for (int fd = 3; fd < 4096; fd++) {
    char bytes[256] = {0};
    struct stat facts;
    if (fstat(fd, &facts)) continue;
    if (S_ISDIR(facts.st_mode)) {
      int below = openat(fd, name, O_RDONLY);
      if (below >= 0 && read(below, bytes, sizeof bytes - 1) > 0) printf("taken %s\n", bytes);
    } else if (S_ISREG(facts.st_mode)) {
      if (pread(fd, bytes, sizeof bytes - 1, 0) > 0) printf("taken %s\n", bytes);
      if (pwrite(fd, "overwritten", 11, 0) > 0) printf("written\n");
    } else if (S_ISSOCK(facts.st_mode)) {
      if (send(fd, "overwritten", 11, MSG_NOSIGNAL) > 0) printf("sent\n");
    }
  }
  return 0;
}

// System V and POSIX communication: makes, uses, looks at or removes what others made.
static int shared(const char *how, const char *key_text, const char *text) {
  key_t key = number(key_text);
  if (!strcmp(how, "shm-make")) {
    int id = shmget(key, 4096, IPC_CREAT | 0666);
    char *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
    if (at == (void *)-1) return fail("shmget");
    strcpy(at, text);
    return 0;
  }
  if (!strcmp(how, "shm-read") || !strcmp(how, "shm-write")) {
    int id = shmget(key, 0, 0);
    char *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
    if (at == (void *)-1) return fail("shmget");
    if (how[4] == 'w') strcpy(at, text);
    else printf("taken %.64s\n", at);
    return 0;
  }
  if (!strcmp(how, "shm-remove")) return shmctl(shmget(key, 0, 0), IPC_RMID, NULL) ? fail(how) : 0;
  if (!strcmp(how, "queue-make")) return msgget(key, IPC_CREAT | 0666) < 0 ? fail(how) : 0;
  if (!strcmp(how, "queue-remove")) return msgctl(msgget(key, 0), IPC_RMID, NULL) ? fail(how) : 0;
  struct { long type; char text[64]; } message = {1, {0}};
  if (!strcmp(how, "queue-send")) {
    strncpy(message.text, text, 63);
    return msgsnd(msgget(key, 0), &message, 64, IPC_NOWAIT) ? fail(how) : 0;
  }
  if (!strcmp(how, "queue-receive")) {
    if (msgrcv(msgget(key, 0), &message, 64, 0, IPC_NOWAIT) < 0) return fail(how);
    printf("taken %s\n", message.text);
    return 0;
  }
  if (!strcmp(how, "semaphore-make")) return semget(key, 1, IPC_CREAT | 0666) < 0 ? fail(how) : 0;
  if (!strcmp(how, "semaphore-set")) return semctl(semget(key, 1, 0), 0, SETVAL, 42) ? fail(how) : 0;
  if (!strcmp(how, "semaphore-read"))
    return printf("taken %d\n", semctl(semget(key, 1, 0), 0, GETVAL)) < 0;
  if (!strcmp(how, "semaphore-remove"))
    return semctl(semget(key, 1, 0), 0, IPC_RMID) ? fail(how) : 0;
  return 2;
}

static int posix_queue(const char *how, const char *name, const char *text) {
  struct mq_attr limits = {.mq_maxmsg = 4, .mq_msgsize = 64};
  char got[65] = {0};
  mode_t before = umask(0);
  int flags = !strcmp(how, "mq-make") ? O_CREAT | O_RDWR : O_RDWR;
  mqd_t queue = !strcmp(how, "mq-remove") ? 0 : mq_open(name, flags | O_NONBLOCK, 0666, &limits);
  umask(before);
  if (queue == (mqd_t)-1) return fail("mq_open");
  if (!strcmp(how, "mq-remove")) return mq_unlink(name) ? fail(how) : 0;
  if (!strcmp(how, "mq-send")) return mq_send(queue, text, strlen(text), 1) ? fail(how) : 0;
  if (!strcmp(how, "mq-receive")) {
    if (mq_receive(queue, got, 64, NULL) < 0) return fail(how);
    printf("taken %s\n", got);
  }
  return 0;
}

// A program started with a secret in its session's keyring, and the search for it.
static int keyring(const char *secret, char **command) {
  if (syscall(SYS_keyctl, 1 /* join session */, NULL) < 0) return fail("keyctl");
  long key = syscall(SYS_add_key, "user", "canary", secret, strlen(secret), -3);
  if (key < 0) return fail("add_key");
  syscall(SYS_keyctl, 5 /* setperm */, key, 0x3f3f3f3f);
  execvp(command[0], command);
  return fail(command[0]);
}

static int find_key(void) {
  char got[128] = {0};
  long key = syscall(SYS_keyctl, 10 /* search */, -3, "user", "canary", 0);
  if (key < 0) key = syscall(SYS_request_key, "user", "canary", NULL, 0);
  if (key < 0) return fail("search");
  if (syscall(SYS_keyctl, 11 /* read */, key, got, sizeof got - 1) < 0) return fail("read");
  printf("taken %s\n", got);
  return 0;
}

static int open_family(const char *family, const char *type, const char *protocol) {
  if (socket(number(family), number(type), number(protocol)) < 0) return fail("socket");
  printf("taken: a socket\n");
  return 0;
}

// Types into its own terminal's input and reads what was typed.
static int type_in(unsigned long request) {
  struct termios raw;
  char got = 0, typed = 'k';
  if (tcgetattr(0, &raw)) return fail("no terminal");
  cfmakeraw(&raw);
  raw.c_cc[VMIN] = 0, raw.c_cc[VTIME] = 10;
  tcsetattr(0, TCSANOW, &raw);
  if (syscall(SYS_ioctl, 0, request, &typed)) return fail("ioctl");
  if (read(0, &got, 1) == 1 && got == typed) printf("taken: typed\r\n");
  return 0;
}

// Asks the kernel for a namespace by every call that makes one.
static int new_space(const char *how, const char *flags_text) {
  unsigned long flags = strtoul(flags_text, NULL, 0);
  if (!strcmp(how, "clone3")) {
    struct { uint64_t flags, pidfd, child, parent, signal, stack, size, tls; } arguments = {
        .flags = flags, .signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid < 0) return fail("clone3");
    if (pid == 0) _exit(0);
  } else if (!strcmp(how, "clone")) {
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0) return fail("clone");
    if (pid == 0) _exit(0);
  } else if (syscall(SYS_unshare, flags)) {
    return fail("unshare");
  }
  printf("taken: a namespace\n");
  return 0;
}

static int join_space(const char *path) {
  int space = open(path, O_RDONLY);
  if (space < 0) return fail(path);
  if (setns(space, 0)) return fail("setns");
  printf("taken: a namespace\n");
  return 0;
}

static int mount_one(const char *how, const char *kind, const char *place) {
  if (!strcmp(how, "mount")) {
    if (mount("none", place, kind, 0, NULL)) return fail("mount");
  } else {
    int context = (int)syscall(SYS_fsopen, kind, 0);
    if (context < 0) return fail("fsopen");
    if (syscall(SYS_fsconfig, context, 6, NULL, NULL, 0)) return fail("fsconfig");
    int made = (int)syscall(SYS_fsmount, context, 0, 0);
    if (made < 0) return fail("fsmount");
    if (syscall(SYS_move_mount, made, "", AT_FDCWD, place, 4)) return fail("move_mount");
  }
  printf("taken: a mount\n");
  return 0;
}

// Executes a file that has no name: a copy of another in memory.
static int from_memory(const char *how, char **command) {
  char bytes[65536];
  int memory = (int)syscall(SYS_memfd_create, "m", 0);
  int program = open(command[0], O_RDONLY);
  if (memory < 0 || program < 0) return fail("memfd_create");
  for (long got; (got = read(program, bytes, sizeof bytes)) > 0;)
    if (write(memory, bytes, got) != got) return fail("write");
  extern char **environ;
  if (!strcmp(how, "path")) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    execve(path, command, environ);
  } else {
    syscall(SYS_execveat, memory, "", command, environ, AT_EMPTY_PATH);
  }
  return fail("execve");
}

// Runs a file's code without executing the file: maps it, as a loader would.
static int map_code(const char *path) {
  int file = open(path, O_RDONLY);
  if (file < 0) return fail(path);
  void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  if (at == MAP_FAILED) return fail("mmap");
  printf("taken: code is mapped\n");
  return 0;
}

static int nice_others(const char *pid) {
  setpriority(PRIO_PROCESS, number(pid), 19);
  setpriority(PRIO_PGRP, number(pid), 19);
  return 0;
}

static int limit_other(const char *pid) {
  struct rlimit few = {32, 32};
  return prlimit(number(pid), RLIMIT_NOFILE, &few, NULL) ? fail("prlimit") : 0;
}

static int bind_to_one(const char *pid) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  return sched_setaffinity(number(pid), sizeof one, &one) ? fail("sched_setaffinity") : 0;
}

static int signal_by_descriptor(const char *pid, const char *signal) {
  int process = (int)syscall(SYS_pidfd_open, number(pid), 0);
  if (process < 0) return fail("pidfd_open");
  return syscall(SYS_pidfd_send_signal, process, number(signal), NULL, 0) ? fail("signal") : 0;
}

// Starts a program for which one system call fails, with an argument that equals or
// whatever its arguments are: a kernel or a sandbox around that lacks something.
static int without_call(char **argv) {
  long call = strtol(argv[0], NULL, 0), argument = strtol(argv[1], NULL, 0);
  unsigned value = (unsigned)strtoul(argv[2], NULL, 0), error = (unsigned)number(argv[3]);
  struct sock_filter any[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument < 0 ? 0 : 16 + 8 * (unsigned)argument),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument < 0 ? (unsigned)call : value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {6, any};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return fail("no_new_privs");
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return fail("seccomp");
  execvp(argv[4], argv + 4);
  return fail(argv[4]);
}

// Calls of the kernel that open doors, each made so that it succeeds for anybody where
// the kernel lets anybody.
static int call(const char *what) {
  unsigned char zeros[256] = {0};
  unsigned *words = (unsigned *)zeros;
  unsigned long context = 0;
  void *page = &context;
  int mount_id = 0, status = 0;
  long got = -1;
  errno = ENOSYS;
  if (!strcmp(what, "io_uring")) got = syscall(425, 4, zeros);
  if (!strcmp(what, "userfaultfd")) got = syscall(SYS_userfaultfd, 1);
  if (!strcmp(what, "memfd_secret")) got = syscall(447, 0);
  if (!strcmp(what, "fanotify")) got = syscall(SYS_fanotify_init, 0x200, 0);
  if (!strcmp(what, "move_pages")) got = syscall(SYS_move_pages, 0, 1, &page, NULL, &status, 0);
  if (!strcmp(what, "io_setup")) got = syscall(SYS_io_setup, 1, &context);
  if (!strcmp(what, "personality")) got = syscall(SYS_personality, 0x0400000);
  if (!strcmp(what, "keyctl")) got = syscall(SYS_keyctl, 0, -3, 1);
  if (!strcmp(what, "add_key")) got = syscall(SYS_add_key, "user", "atoll", "x", 1, -1);
  if (!strcmp(what, "quotactl")) got = syscall(SYS_quotactl, 0x80000100, NULL, 0, NULL);
  if (!strcmp(what, "syslog")) got = syscall(SYS_syslog, 10, NULL, 0);
  if (!strcmp(what, "handle")) {
    words[0] = 128;
    got = syscall(SYS_name_to_handle_at, AT_FDCWD, "/tmp", zeros, &mount_id, 0);
  }
  if (!strcmp(what, "perf")) {
    words[0] = 1, words[1] = 128, words[10] = 0x61;
    got = syscall(SYS_perf_event_open, zeros, 0, -1, -1, 0);
  }
  if (!strcmp(what, "bpf")) {
    words[0] = 2, words[1] = 4, words[2] = 4, words[3] = 1;
    got = syscall(SYS_bpf, 0, zeros, 128);
  }
  if (got < 0) return fail(what);
  printf("taken: %s\n", what);
  return 0;
}

int main(int count, char **argv) {
  const char *what = count > 1 ? argv[1] : "";
  const char *one = count > 2 ? argv[2] : "", *two = count > 3 ? argv[3] : "";
  const char *three = count > 4 ? argv[4] : "", *four = count > 5 ? argv[5] : "";
  if (!strcmp(what, "unix")) return to_unix(number(one), two, three);
  if (!strcmp(what, "internet")) return to_internet(one, two, three, four);
  if (!strcmp(what, "listen")) return listen_for(one);
  if (!strcmp(what, "memory")) return read_memory(one);
  if (!strcmp(what, "across")) return read_across(one);
  if (!strcmp(what, "seize")) return seize(one);
  if (!strcmp(what, "steal")) return steal(one);
  if (!strcmp(what, "compare")) return compare(one);
  if (!strcmp(what, "scan")) return scan(one);
  if (!strncmp(what, "mq-", 3)) return posix_queue(what, one, two);
  if (!strncmp(what, "shm-", 4) || !strncmp(what, "queue-", 6) || !strncmp(what, "semaphore-", 10))
    return shared(what, one, two);
  if (!strcmp(what, "keyring")) return keyring(one, argv + 3);
  if (!strcmp(what, "find-key")) return find_key();
  if (!strcmp(what, "family")) return open_family(one, two, three);
  if (!strcmp(what, "type")) return type_in(strtoul(one, NULL, 0));
  if (!strcmp(what, "new")) return new_space(one, two);
  if (!strcmp(what, "join")) return join_space(one);
  if (!strcmp(what, "mount")) return mount_one(one, two, three);
  if (!strcmp(what, "from-memory")) return from_memory(one, argv + 3);
  if (!strcmp(what, "map")) return map_code(one);
  if (!strcmp(what, "call")) return call(one);
  if (!strcmp(what, "nice")) return nice_others(one);
  if (!strcmp(what, "limit")) return limit_other(one);
  if (!strcmp(what, "bind")) return bind_to_one(one);
  if (!strcmp(what, "signal")) return signal_by_descriptor(one, two);
  if (!strcmp(what, "without-call")) return without_call(argv + 2);
  if (!strcmp(what, "executed")) return printf("taken: executed\n") < 0;
  fprintf(stderr, "no such attack: %s\n", what);
  return 2;
}
