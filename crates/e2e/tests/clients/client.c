/* Connects to an address by nothing but the calls of the kernel: address, port. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
    for (int at = 1; at + 1 < count; at += 2) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[at + 1]))};
        char text[64] = "";
        inet_pton(AF_INET, words[at], &to.sin_addr);
        int one = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(one, (void *)&to, sizeof to) || write(one, "raw\n", 4) != 4 || read(one, text, sizeof text - 1) <= 0) {
            puts("failed");
        } else {
            fputs(text, stdout);
        }
        close(one);
    }
}
