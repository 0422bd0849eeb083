// Asks for a name as C libraries and runtimes do, each in its way. Arguments: a way, a name.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned char question[512];
static int length;

static void ask_for(const char *name) {
    static const unsigned char head[] = {7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    memcpy(question, head, length = sizeof head);
    while (*name) {
        int label = strcspn(name, ".");
        question[length++] = label;
        memcpy(question + length, name, label);
        length += label, name += label + (name[label] == '.');
    }
    memcpy(question + length, "\0\0\1\0\1", 5);
    length += 5;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int is_musl = !strncmp(arguments[1], "musl", 4), is_new = !strcmp(arguments[1], "musl-new");
    int is_go = !strncmp(arguments[1], "go", 2), is_few = !strcmp(arguments[1], "go-few"), on = 1;
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(53)}, from = {0};
    inet_pton(AF_INET, "9.9.9.9", &server.sin_addr);
    ask_for(arguments[2]);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return perror("socket"), 1;
    if (is_musl) {
        struct sockaddr_in any = {.sin_family = AF_INET};
        if (bind(s, (void *)&any, sizeof any) < 0) return perror("bind"), 1;
        if (sendto(s, question, length, MSG_NOSIGNAL, (void *)&server, sizeof server) != length)
            return perror("sendto"), 1;
    } else {
        int level = is_go ? SOL_SOCKET : SOL_IP, option = is_go ? SO_BROADCAST : 11;
        if (setsockopt(s, level, option, &on, sizeof on) < 0) return perror("setsockopt"), 1;
        if (connect(s, (void *)&server, sizeof server) < 0) return perror("connect"), 1;
        socklen_t bytes = sizeof from;
        int has_own = getsockname(s, (void *)&from, &bytes) == 0 && from.sin_family == AF_INET;
        int has_server = getpeername(s, (void *)&from, &bytes) == 0 && from.sin_port == htons(53);
        // Where so few descriptors may be open these cannot be told.
        if (!is_few && (!has_own || !has_server)) return fprintf(stderr, "no addresses\n"), 3;
        if (write(s, question, length) != length) return perror("write"), 1;
    }
    struct pollfd wait = {s, POLLIN, 0};
    unsigned char answer[512];
    int got = -1, readable = 0;
    if (poll(&wait, 1, 5000) != 1) return perror("poll"), 1;
    ioctl(s, FIONREAD, &readable);
    struct iovec parts[2] = {{answer, 4}, {answer + 4, sizeof answer - 4}};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = parts, .msg_iovlen = 2};
    socklen_t bytes = sizeof from;
    if (is_go) got = read(s, answer, sizeof answer);
    else if (is_new) got = recvmsg(s, &message, 0);
    else got = recvfrom(s, answer, sizeof answer, 0, (void *)&from, &bytes);
    if (got < length || readable != got) return perror("answer"), 1;
    if (!is_go && memcmp(&from, &server, sizeof server)) return fprintf(stderr, "from elsewhere\n"), 5;
    if ((answer[3] & 15) != 0) return printf("refused %d\n", answer[3] & 15), 0;
    printf("%d.%d\n", answer[got - 4], answer[got - 3]);
    return 0;
}
