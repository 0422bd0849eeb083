# What root of namespaces beneath the sandbox tries against it and the host; prints what
# came through. Its own mounts, host name and network are its own.
try() {
    name=$1
    shift
    if "$@" > /tmp/said 2>&1; then echo "THROUGH $name: $(cat /tmp/said)"; fi
}
mkdir -p /tmp/place /tmp/groups
try block-device sh -c 'mknod /tmp/disk b 8 0 || mknod /tmp/disk b 254 0'
try memory-device mknod /tmp/memory c 1 1
try disk sh -c 'for disk in /dev/vda /dev/sda /dev/nvme0n1; do mount $disk /tmp/place && exit; done; exit 1'
try devices mount -t devtmpfs none /tmp/place
try devices-of-the-kernel mount -t sysfs none /tmp/place
try debug sh -c 'mount -t debugfs none /tmp/place || mount -t tracefs none /tmp/place'
try security mount -t securityfs none /tmp/place
try programs-in-the-kernel mount -t bpf none /tmp/place
try huge-pages mount -t hugetlbfs none /tmp/place
try device-in-memory sh -c 'mount -t tmpfs none /tmp/place && mknod /tmp/place/disk b 8 0'
try system-by-overlay sh -c 'mount -t overlay -o lowerdir=/usr,upperdir=/usr,workdir=/usr none /tmp/place'
try system-remounted sh -c 'mount --bind /usr /tmp/place && mount -o remount,bind,rw /tmp/place && touch /tmp/place/owned'
try system-written touch /usr/owned
try system-file-system mount -o remount,rw /usr
try root-file-system mount -o remount,size=1g /
try part-of-the-root mount --bind / /tmp/place
try core-pattern sh -c 'echo "|/bin/sh" > /proc/sys/kernel/core_pattern'
try panic sh -c 'echo 1 > /proc/sys/kernel/panic'
try modules-program sh -c 'echo /tmp/x > /proc/sys/kernel/modprobe'
try sysrq sh -c 'echo h > /proc/sysrq-trigger'
try memory-of-the-machine head -c 1 /proc/kcore
try log-of-the-machine head -c 1 /proc/kmsg
try log dmesg
try interrupts sh -c 'echo 1 > /proc/irq/default_smp_affinity'
try score sh -c 'echo -1000 > /proc/self/oom_score_adj'
try clock date -s 2001-01-01
try swap swapon /tmp/place
try keys sh -c 'keyctl show'
# Unless it has a /proc of its own, process 1 is the sandbox's.
if ! grep -q '^1 (sh)' /proc/1/stat; then
    try namespaces-of-the-first nsenter --target 1 --mount true
    try users-of-the-first nsenter --target 1 --user true
    try processes-of-the-first nsenter --target 1 --pid true
    try network-of-the-first nsenter --target 1 --net true
    try memory-of-the-first head -c 1 /proc/1/mem
    try files-of-the-first ls /proc/1/root/
    try first-process sh -c 'kill -9 1; sleep 0.2; exit 1'
fi
try time unshare --time true
try tables iptables-legacy -L
try tables-by-netlink nft list tables
for controller in memory pids devices cpu freezer; do
    try "group-$controller" sh -c "mount -t cgroup -o $controller none /tmp/groups &&
        { mkdir /tmp/groups/own || echo /tmp/x > /tmp/groups/release_agent || echo 1 > /tmp/groups/notify_on_release; }"
    umount /tmp/groups 2> /tmp/said
done
try groups sh -c 'mount -t cgroup2 none /tmp/groups &&
    { mkdir /tmp/groups/own || echo 1 > /tmp/groups/cgroup.kill || echo max > /tmp/groups/memory.max; }'
