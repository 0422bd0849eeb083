// Answers small requests and tells how long each took, in nanoseconds: one line a request,
// which is a process started and awaited, and an echo through a socket to another one.

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static int answer(char *own, int line) {
    char *words[] = {own, NULL};
    char letter = 'x';
    int status = 1;
    pid_t child;
    return posix_spawn(&child, own, NULL, NULL, words, environ) == 0 &&
           waitpid(child, &status, 0) == child && status == 0 &&
           write(line, &letter, 1) == 1 && read(line, &letter, 1) == 1;
}

int main(int count, char **words) {
    if (count < 2) {
        return 0;
    }
    int requests = atoi(words[1]);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
        return 1;
    }
    pid_t echo = fork();
    if (echo == 0) {
        char letter;
        close(ends[0]);
        while (read(ends[1], &letter, 1) == 1 && write(ends[1], &letter, 1) == 1) {
        }
        _exit(0);
    }
    close(ends[1]);
    long *took = calloc(requests, sizeof *took);
    for (int number = 0; number < requests; number++) {
        // Requests come now and then: whoever asks has waited for its turn before.
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        long started = now();
        if (!answer(words[0], ends[0])) {
            return 1;
        }
        took[number] = now() - started;
    }
    for (int number = 0; number < requests; number++) {
        printf("elapsed-nanoseconds %ld\n", took[number]);
    }
    return 0;
}
