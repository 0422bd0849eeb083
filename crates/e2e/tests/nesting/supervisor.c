// A program that supervises calls of its own child (seccomp_unotify(2)), as sandboxes do
// that programs make. It is compiled by the tests and knows nothing of Atoll.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The first is answered by the supervisor; the second is let go on; a sandbox around
// refuses the others, and no supervisor inside may let them go on.
enum { ANSWERED, LET_GO, REFUSED, REFUSED_TOO, COUNT };
static const long numbers[COUNT] = {SYS_mkdirat, SYS_getppid, SYS_add_key, SYS_bpf};
static const char *names[COUNT] = {"mkdirat", "getppid", "add_key", "bpf"};

#define ASK(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)

static int listen_to_this_process(void) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ASK(SYS_mkdirat), ASK(SYS_getppid), ASK(SYS_add_key), ASK(SYS_bpf),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void pass(int line, int descriptor) {
  char word = 'l', space[CMSG_SPACE(sizeof descriptor)] = {0};
  struct iovec part = {&word, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *carried = CMSG_FIRSTHDR(&message);
  carried->cmsg_level = SOL_SOCKET;
  carried->cmsg_type = SCM_RIGHTS;
  carried->cmsg_len = CMSG_LEN(sizeof descriptor);
  memcpy(CMSG_DATA(carried), &descriptor, sizeof descriptor);
  sendmsg(line, &message, 0);
}

static int taken(int line) {
  char word, space[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {&word, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  int descriptor = -1;
  if (recvmsg(line, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

static void tell(const char *name, long returned) {
  printf("%s: %s\n", name, returned < 0 ? strerror(errno) : "done");
}

static int supervised(int line) {
  int listener = listen_to_this_process();
  tell("listener", listener);
  fflush(stdout);
  if (listener < 0) return 1;
  pass(line, listener);
  close(listener);
  close(line);
  tell(names[ANSWERED], syscall(SYS_mkdirat, AT_FDCWD, "never-made", 0700));
  tell(names[LET_GO], syscall(SYS_getppid));
  tell(names[REFUSED], syscall(SYS_add_key, "user", "a", "b", 1, -2));
  char nothing[128] = {0};
  tell(names[REFUSED_TOO], syscall(SYS_bpf, 0, nothing, sizeof nothing));
  fflush(stdout);
  return 0;
}

int main(void) {
  int line[2], asked[COUNT] = {0};
  socketpair(AF_UNIX, SOCK_STREAM, 0, line);
  pid_t child = fork();
  if (child == 0) _exit(supervised(line[1]));
  close(line[1]);
  int listener = taken(line[0]);
  for (;;) {
    struct seccomp_notif call = {0};
    struct pollfd waits = {listener, POLLIN, 0};
    if (listener < 0 || poll(&waits, 1, -1) != 1 || !(waits.revents & POLLIN)) break;
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) continue;
    for (int one = 0; one < COUNT; one++) asked[one] += call.data.nr == numbers[one];
    struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (call.data.nr == SYS_mkdirat) answer.flags = 0, mkdir("made-by-the-supervisor", 0700);
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status) return 1;
  for (int one = 0; one < COUNT; one++) printf("asked for %s: %d\n", names[one], asked[one]);
  return 0;
}
