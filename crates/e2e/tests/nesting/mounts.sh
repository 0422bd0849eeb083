# Takes every mount away, or makes it writable, that it can; prints which. Those that are
# given as words are left to it; without words, all that it finds.
said=${SAID:-/tmp/said}
each() {
    if test $# -gt 0; then printf '%s\n' "$@"; else cut -d' ' -f5 /proc/self/mountinfo | grep -vx /; fi
}
each "$@" | sort -r | while read -r mount; do
    if grep " $mount ro" /proc/self/mountinfo > "$said"; then
        mount -o remount,bind,rw "$mount" 2> "$said" && echo "WRITABLE $mount"
    fi
    if grep " $mount [a-z,]*nosuid" /proc/self/mountinfo > "$said"; then
        mount -o remount,bind,suid "$mount" 2> "$said"
        grep " $mount [a-z,]*nosuid" /proc/self/mountinfo > "$said" || echo "SET-ID $mount"
    fi
    mount --move "$mount" /mnt 2> "$said" && echo "MOVED $mount"
    umount "$mount" 2> "$said" && echo "GONE $mount"
    umount -l "$mount" 2> "$said" && echo "GONE SLOWLY $mount"
done
echo end
