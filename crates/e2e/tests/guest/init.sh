#!/bin/sh
# The first process of a guest, in a file system in memory: brings the disk, what the
# test hands in, and the module for overlays, and gives way to the disk's own.
BUSYBOX=/bin/busybox
$BUSYBOX mount -t devtmpfs devtmpfs /dev
$BUSYBOX insmod /overlay.ko
$BUSYBOX mount -t ext4 /dev/nvme0n1 /root
$BUSYBOX cp -a /files/. /root/
$BUSYBOX mount --move /dev /root/dev
exec $BUSYBOX switch_root /root $($BUSYBOX cat /next)
