# The checks of a guest with version 2 of control groups and no systemd: this is its
# first process. Root's come first, then an ordinary user's.

begin_plain

## Root, with all processes in the top group and no controllers on.
group=$GROUPS_TOP who=$as_root
seen root-nothing-on-yet "=$(cat $GROUPS_TOP/cgroup.subtree_control)=" '^==$'
seen root-doctor "$(doctor)" "ok +control-groups +version 2, beneath $GROUPS_TOP\$"
seen root-doctor-makes-nothing "=$(cat $GROUPS_TOP/cgroup.subtree_control)=" '^==$'
limits root
run true
agrees root-doctor-agrees
tell_time root

# Whoever is killed leaves nothing: the launcher, if Atoll is gone, the next run, if both are.
start -- sleep 100
kill -9 "$started"
wait "$started" 2>/dev/null
holds root-killed-leaves-nothing soon there_is_none
start -- sleep 100
launcher=$(processes atoll-jail)
kill -9 "$launcher" "$started"
wait "$started" 2>/dev/null
gone() { [ -z "$(processes atoll-init)" ]; }
soon gone
run 'echo next'
seen root-next-run-works "$said" next
holds root-next-run-clears there_is_none

# Limits that somebody takes away are not said to have been held.
start --json /root/work/lost -- sleep 3
echo -memory >$GROUPS_TOP/cgroup.subtree_control
wait "$started"
seen root-lost-limits-are-told "$(tr -d ' \n' </root/work/lost)" '"cgroup-v2,inpart","limit":"memory"'
run true
seen root-switches-on-again "$json" '"cgroup-v2","limit":"memory"'

## An ordinary user with a group of his own.
delegate $GROUPS_TOP/person
group=$GROUPS_TOP/person who=$as_person
seen delegated-doctor "$(doctor)" "ok +control-groups +version 2, beneath $group\$"
seen delegated-doctor-makes-nothing "=$(cat $group/cgroup.subtree_control)=" '^==$'
limits delegated
run true
agrees delegated-doctor-agrees
seen delegated-leaf "$(ls $group)" '^atoll$'
holds delegated-leaf-has-no-leaf test ! -e $group/atoll/atoll
start -- sleep 100
kill -9 "$started"
wait "$started" 2>/dev/null
holds delegated-killed-leaves-nothing soon there_is_none
tell_time delegated

# Others in the group stand against it, and are left alone.
delegate $GROUPS_TOP/shared
begin $GROUPS_TOP/shared $as_person sleep 1000
other=$started
soon grep -q "$other" $GROUPS_TOP/shared/cgroup.procs
group=$GROUPS_TOP/shared
seen shared-doctor "$(doctor)" 'weaker +control-groups +none: other processes are in .*/shared'
run 'echo done'
seen shared-falls-back "$said $json" '^done' '"supervisor,inpart","limit":"memory"' '"rlimit","limit":"processes"'
agrees shared-doctor-agrees
seen shared-other-stays "$(cat $group/cgroup.procs)" "^$other\$"
kill $other
wait $other 2>/dev/null

## An ordinary user without any.
group=$GROUPS_TOP
seen without-doctor "$(doctor)" 'weaker +control-groups +none: no control group is delegated' \
    'chown 1000'
run 'echo done'
seen without-falls-back "$said $json" '^done' '"supervisor,inpart","limit":"memory"' '"none","limit":"swap"' '"none","limit":"cpu"'
agrees without-doctor-agrees
run --profile strict 'echo started'
seen without-strict-refuses "$json $status" 'cannotenforcethelimitcpu' 'nocontrolgroupisdelegated' \
    'asroot:cd' ' 125$'
holds without-strict-starts-nothing test "$said" = ""
holds without-makes-no-group there_is_none
# What doctor advises is done to the letter.
cat >/tmp/advised <<<"$(doctor | sed -n 's/.*as root: \(.*\)    # then start atoll.*/\1/p')"
(. /tmp/advised)
group=$GROUPS_TOP/atoll-user-1000
run --profile strict 'echo started'
seen without-advice-works "$said $json" '^started' 'cgroup-v2","limit":"memory"' 'cgroup-v2","limit":"cpu"'
tell_time without

## Root of a container: alone at the top of a control group namespace.
cat >/tmp/container <<'END'
#!/bin/sh
exec unshare --cgroup --mount sh -c 'umount /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"' sh "$@"
END
chmod 755 /tmp/container
mkdir $GROUPS_TOP/container
group=$GROUPS_TOP/container who="/tmp/container $as_root"
seen container-doctor "$(doctor)" "ok +control-groups +version 2, beneath $GROUPS_TOP\$"
run --limit memory=48MiB --limit cpu=1 'perl -e "\$x = q(x) x (96 << 20)"'
seen container-memory "$json" '"limit":"memory"' 'cgroup-v2","limit":"cpu"'
run true
agrees container-doctor-agrees
seen container-leaf "$(cd $group && echo */)" '^atoll/$'

# With others beside it, it is told how they go out of the way, which is done to the letter.
mkdir $GROUPS_TOP/crowded
begin $GROUPS_TOP/crowded sleep 1000
other=$started
soon grep -q "$other" $GROUPS_TOP/crowded/cgroup.procs
cat >/tmp/crowded <<'END'
advice=$("$0" doctor | sed -n 's/^ *\(cd .* mkdir -p others .*\)$/\1/p')
(eval "$advice")
"$0" run --json - --limit cpu=1 -- echo works
END
said=$(entered $GROUPS_TOP/crowded /tmp/container $as_root bash -c '. /tmp/crowded' "$ATOLL" 2>&1)
seen container-advice-works "$(tr -d ' \n' <<<"$said")" works 'cgroup-v2","limit":"memory"' 'cgroup-v2","limit":"cpu"'
kill $other
wait $other 2>/dev/null
group=$GROUPS_TOP

## No user namespaces.
echo 0 >/proc/sys/user/max_user_namespaces
who=$as_person
seen namespaces-person-doctor "$(doctor)" 'weaker +user-namespaces' ' user.max_user_namespaces is 0' \
    'sysctl -w user.max_user_namespaces'
run 'echo started; cat /etc/shadow ~person/* 2>&1; bash -c ": >/dev/tcp/127.0.0.1/9" 2>&1; kill -0 1 2>&1'
seen namespaces-person-is-fenced "$said $json" '^started' 'Permission denied' 'Connection refused' \
    'not permitted' 'onlyfencedin'
agrees namespaces-doctor-agrees
run --profile strict 'echo started'
holds namespaces-person-strict-starts-nothing test "$said" = ""
who=$as_root
seen namespaces-root-doctor "$(doctor)" 'weaker +user-namespaces +none: ' ' user.max_user_namespaces is 0' \
    'sysctl -w user.max_user_namespaces' 'mode full'
run --limit memory=48MiB --limit cpu=1 'id -u; cat /etc/shadow /proc/1/environ; echo x >/proc/sys/kernel/core_pattern;
    echo x >/etc/new; kill -9 -1; unshare --user true; unshare --mount true; mount -t tmpfs x /mnt; echo after >file
    grep CapBnd /proc/self/status; perl -e "\$x = q(x) x (96 << 20)"'
seen namespaces-root-is-held "$said $json" '^(18[789]|19[0-9]|20[0-9]|21[0-9])[0-9]{7}$' 'CapBnd:[[:space:]]0{16}' \
    '"limit":"memory"' '"by":"none","limit":"user-namespace"' '"mode":"full"' 'nousernamespacecanbemade'
holds namespaces-root-reads-nothing eval '! grep -q root: <<<"$said"'
holds namespaces-root-writes-nothing test ! -e /etc/new -a ! -e /root/work/file -a "$(cat /proc/sys/kernel/core_pattern)" != x
(cd /root/work && HOME=/root $ATOLL apply last >/dev/null 2>&1)
seen namespaces-root-applies "$(cat /root/work/file; stat -c %u:%g /root/work/file)" '^after' '^0:0'
run --profile strict 'echo started'
seen namespaces-root-strict-starts "$said" '^started'
agrees namespaces-root-agrees
run --root 'echo started'
seen namespaces-root-inside-is-refused "$json $status" 'nousernamespacecanbemade' ' 125$'
holds namespaces-root-sets-nothing grep -qvx 64 /proc/sys/user/max_inotify_instances
holds namespaces-leave-no-group there_is_none
finish
