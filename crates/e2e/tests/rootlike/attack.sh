# What root inside tries against the host; prints what came through.
try() {
    name=$1
    shift
    if "$@" > /tmp/said 2>&1; then echo "THROUGH $name: $(cat /tmp/said)"; fi
}
try mount mount -t tmpfs none /mnt
try bind mount --bind /etc /srv
try remount mount -o remount,rw /
try unshare unshare --user true
try unshare-mounts unshare --mount true
try enter nsenter --target 1 --mount true
try chroot chroot / true
try block-device mknod /tmp/disk b 8 0
try memory-device mknod /tmp/mem c 1 1
try core-pattern sh -c 'echo "|/bin/sh" > /proc/sys/kernel/core_pattern'
try namespaces sh -c 'echo 100 > /proc/sys/user/max_user_namespaces'
try sysrq sh -c 'echo h > /proc/sysrq-trigger'
try clock date -s 2001-01-01
try name hostname another
try capability setcap cap_net_admin+ep /usr/bin/env
try first-process sh -c 'kill -9 1; sleep 0.2; exit 1'
try first-memory sh -c 'head -c 1 /proc/1/mem'
try first-files ls /proc/1/root/
try attribute setfattr -n trusted.overlay.opaque -v y /etc
try raise setpriv --inh-caps +sys_admin --securebits -noroot true
try ambient setpriv --inh-caps +sys_admin --ambient-caps +sys_admin true
try score sh -c 'echo -1000 > /proc/self/oom_score_adj'
try nice renice -n -5 -p $$
