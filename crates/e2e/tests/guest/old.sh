# The checks of a guest with an older kernel: Linux 6.1, whose Landlock is of version 2.

begin_plain
group=$GROUPS_TOP who=$as_root
seen old-doctor "$(doctor)" 'ok +kernel +Linux 6\.1\.' 'weaker +landlock +version 2$' \
    'left out: truncation, TCP ports.*, control of devices, signals' "ok +control-groups +version 2"
limits old-root
run true
agrees old-doctor-agrees
delegate $GROUPS_TOP/person
group=$GROUPS_TOP/person who=$as_person
run --limit memory=48MiB 'echo written >file; perl -e "\$x = q(x) x (96 << 20)"'
seen old-person-memory "$json" '"limit":"memory"' '"added":1'
holds old-nothing-left there_is_none
finish
