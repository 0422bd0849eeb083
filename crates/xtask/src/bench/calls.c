// A syscall-heavy loop: what does almost nothing in the kernel, and what looks up paths.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    struct stat facts;
    for (int i = 0; i < 2000000; i++) {
        syscall(SYS_getppid);
        if (i % 16 == 0) {
            if (stat("/usr/bin/env", &facts)) {
                return 1;
            }
            int file = open("calls.c", O_RDONLY);
            if (file < 0 || close(file)) {
                return 2;
            }
        }
    }
    return 0;
}
