// Calls that hardly any program makes but to get out, in the ways that matter to who
// hears of them. It is compiled by the tests and knows nothing of Atoll.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned long made;
static double until;

// Every one has to be refused as ever.
static void mount_once(void) {
  if (mount("none", "/tmp", "tmpfs", 0, NULL) == 0 || errno != EPERM) {
    perror("mount");
    _exit(9);
  }
  __sync_fetch_and_add(&made, 1);
}

static void *mount_for_ever(void *unused) {
  (void)unused;
  while (until == 0 || now() < until) mount_once();
  return NULL;
}

// flood THREADS SECONDS; 0 seconds are for ever.
static int flood(int threads, double seconds) {
  pthread_t all[256];
  until = seconds == 0 ? 0 : now() + seconds;
  for (int i = 0; i < threads && i < 256; i++) pthread_create(&all[i], NULL, mount_for_ever, NULL);
  // Only then is there anything to be seen of it, however busy the machine is.
  while (__sync_fetch_and_add(&made, 0) == 0) usleep(100);
  puts("begun");
  fflush(stdout);
  for (int i = 0; i < threads && i < 256; i++) pthread_join(all[i], NULL);
  printf("made %lu\n", made);
  return 0;
}

// killed CHILDREN: each makes the call without end until it is killed.
static int killed(int children) {
  for (int i = 0; i < children; i++) {
    pid_t child = fork();
    if (child == 0) mount_for_ever(NULL);
    usleep(1000 + i % 7 * 300);
    kill(child, SIGKILL);
    if (waitpid(child, NULL, 0) != child) return 1;
  }
  puts("all killed");
  return 0;
}

static void on_alarm(int signal) { (void)signal; }

// interrupted CALLS: with a signal every 50 microseconds meanwhile.
static int interrupted(int calls) {
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  timer_t timer;
  struct itimerspec often = {{0, 50000}, {0, 50000}};
  timer_create(CLOCK_MONOTONIC, NULL, &timer);
  timer_settime(timer, 0, &often, NULL);
  for (int i = 0; i < calls; i++) mount_once();
  printf("made %lu\n", made);
  return 0;
}

// A listener of the program's own: there can be one in a process's filters.
static int listener(void) {
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {1, &allow};
  long made = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  printf("listener: %s\n", made < 0 ? strerror(errno) : "made");
  made = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
  printf("filter: %s\n", made < 0 ? strerror(errno) : "made");
  return 0;
}

// unix PATH: a connection.
static int to_unix(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(s, (struct sockaddr *)&address, sizeof address)) perror("connect");
  return 0;
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  const char *first = count > 2 ? words[2] : "1";
  if (!strcmp(what, "mount")) return mount_once(), 0;
  if (!strcmp(what, "flood")) return flood(atoi(first), count > 3 ? atof(words[3]) : 0);
  if (!strcmp(what, "killed")) return killed(atoi(first));
  if (!strcmp(what, "interrupted")) return interrupted(atoi(first));
  if (!strcmp(what, "listener")) return listener();
  if (!strcmp(what, "unix")) return to_unix(first);
  if (!strcmp(what, "user-namespace")) return unshare(CLONE_NEWUSER) == 0;
  if (!strcmp(what, "keys")) return syscall(SYS_keyctl, 0, -3, 0) >= 0;
  if (!strcmp(what, "vsock")) return socket(40, SOCK_STREAM, 0) >= 0;
  if (!strcmp(what, "type")) return ioctl(0, TIOCSTI, "x") == 0;
  if (!strcmp(what, "kill")) return kill(atoi(first), atoi(words[3])) == 0;
  return 2;
}
