# What every guest's checks are made with. A check is one line on standard output:
# `CHECK name ok`, or `CHECK name FAIL` and what was seen.

exec </dev/null
ATOLL=/atoll/atoll
GROUPS_TOP=/sys/fs/cgroup
PERSON=1000

# What a first process has to do where there is no systemd.
begin_plain() {
    set +m
    exec >/dev/ttyS1 2>&1
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    # As systemd does: a control group namespace is a border of delegation.
    mount -t cgroup2 -o nsdelegate cgroup2 $GROUPS_TOP
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    prepare
}

# Room for everyone, and swap that limits have to keep programs from.
prepare() {
    mkdir -p /root/work /home/person/work
    cp /atoll/bomb /root/work
    cp /atoll/bomb /home/person/work
    chown -R $PERSON:$PERSON /home/person
    dd if=/dev/zero of=/swap bs=1M count=128 2>/dev/null
    chmod 600 /swap
    mkswap -q /swap && swapon /swap
    tell_time ready
}

tell_time() { echo "TIME $1 $(cut -d' ' -f1 /proc/uptime)"; }

# Gives a new group to the ordinary user, as systemd does with Delegate=yes.
delegate() {
    mkdir "$1"
    chown $PERSON:$PERSON "$1" "$1"/cgroup.{procs,threads,subtree_control}
}

finish() {
    tell_time end
    echo "CHECKS done"
    echo o >/proc/sysrq-trigger
    sleep 60
}

# seen NAME TEXT PATTERN...: every pattern is in the text.
seen() {
    local name=$1 text=$2 pattern
    shift 2
    for pattern; do
        if ! grep -qE -- "$pattern" <<<"$text"; then
            failed "$name" "no $pattern in: $text"
            return
        fi
    done
    echo "CHECK $name ok"
}

# holds NAME COMMAND...: the command succeeds.
holds() {
    local name=$1
    shift
    if "$@"; then echo "CHECK $name ok"; else failed "$name" "not so: $*"; fi
}

failed() {
    echo "CHECK $1 FAIL $(tr '\n' '~' <<<"$2")"
}

# Waits, for long on a machine this slow, until a command succeeds.
soon() {
    local turn
    for turn in $(seq 200); do
        "$@" && return
        sleep 0.1
    done
    return 1
}

# entered GROUP COMMAND...: runs a command alone in a group. One that passes
# controllers on takes no processes any more; its own group for Atoll does.
enter='{ echo $$ >"$0/cgroup.procs" || echo $$ >"$0/atoll/cgroup.procs"; } 2>/dev/null
    exec "$@"'
entered() { bash -c "$enter" "$@"; }

# The same in the background; $started is its number.
begin() {
    (exec bash -c "$enter" "$@" >/dev/null 2>&1) &
    started=$!
}

# The processes of this name.
processes() { grep -lx "$1" /proc/[0-9]*/comm | cut -d/ -f3; }

# The words in front of a command that is an ordinary user's.
as_person="setpriv --reuid $PERSON --regid $PERSON --clear-groups
    env -i -C /home/person/work HOME=/home/person PATH=$PATH"
as_root="env -i -C /root/work HOME=/root PATH=$PATH"

# run OPTION... SCRIPT: `atoll run` of a shell script, in group $group and as $who.
# Leaves what was written in $said, the summary in $json, the status in $status.
run() {
    local script=${!#}
    rm -f /tmp/json
    said=$(entered "$group" $who "$ATOLL" run --json - "${@:1:$#-1}" -- sh -c "$script" 2>/tmp/json)
    status=$?
    json=$(tr -d ' \n' </tmp/json)
}

# Starts a command inside, in the background; returns once it is there.
start() {
    begin "$group" $who "$ATOLL" run "$@"
    soon there_is_one
    sandbox=$(sandboxes)
    soon grep -q . "$sandbox/cgroup.procs"
}

doctor() {
    entered "$group" $who "$ATOLL" doctor 2>&1
}

# agrees NAME: what doctor says is what the run before has written of itself.
agrees() {
    local told=$(entered "$group" $who "$ATOLL" doctor --json 2>&1 | tr -d ' \n')
    local ours=$(sed -E 's/.*"limits-held-by":\{([^}]*)\}.*/\1/; s/","/"\n"/g' <<<"$told" | sort)
    local runs=$(grep -oE '"by":"[^"]*","limit":"[^"]*"' <<<"$json" |
        sed -E 's/"by":("[^"]*"),"limit":("[^"]*")/\2:\1/' | sort)
    local mode=$(grep -o '"mode":"[a-z]*"' <<<"$told")
    if [ -n "$ours" ] && [ "$ours $mode" = "$runs $(grep -o '"mode":"[a-z]*"' <<<"$json")" ]; then
        echo "CHECK $1 ok"
    else
        failed "$1" "$told differs from $json"
    fi
}

# The groups of sandboxes, wherever they are.
sandboxes() { find "$GROUPS_TOP" -name 'atoll-[0-9]*'; }
there_is_one() { [ -n "$(sandboxes)" ]; }
there_is_none() { [ -z "$(sandboxes)" ]; }

# The bombs of `limits.rs` for which a group of version 2 is another thing than one of
# version 1, and some that end by other means; with a control that gets more.
bombs() {
    local p=$1 kind
    for kind in pipes pairs connections regions; do
        run --limit memory=48MiB "./bomb $kind 20000 0"
        seen "$p-$kind" "$json $said" '"limit":"memory"|reached [0-9]{1,3} E'
        local peak=$(sed -E 's/.*"memory-peak-bytes":([0-9]+).*/\1/' <<<"$json")
        # 48 MiB, and what a group lets pass for packets that are on their way already.
        holds "$p-$kind-within" test "${peak:-999999999}" -le $(((48 << 20) + (1 << 20)))
    done
    run --limit memory=320MiB './bomb pipes 60 0; ./bomb pairs 20 0; ./bomb regions 20000 0'
    seen "$p-more-memory" "$said" 'reached 60 all' 'reached 20 all' 'reached 20000 all'
    run --limit disk=8MiB './bomb deleted 16 60000'
    seen "$p-deleted" "$json" '"limit":"disk"'
    run --timeout 1s './bomb stopped 5 60000'
    seen "$p-stopped" "$json" '"limit":"wall-clock"'
    run './bomb terminals 100 0'
    seen "$p-terminals" "$said" 'reached 64 ENOSPC'
}

# Every limit that control groups hold, with names that begin with $1.
limits() {
    local p=$1 bomb='perl -e "\$x = q(x) x ((shift) << 20); print q(survived)"'
    run --limit memory=96MiB "$bomb 24; cat /proc/self/cgroup"
    seen "$p-works" "$said $json" 'survived0::/ ' 'cgroup-v2","limit":"memory"' \
        'cgroup-v2","limit":"swap"' 'cgroup-v2","limit":"processes"' 'cgroup-v2","limit":"cpu"'
    run --limit memory=48MiB "$bomb 96; sleep 5; echo outlived"
    seen "$p-memory" "$json $status" '"limit":"memory"' '137$'
    holds "$p-memory-ends-all" test "$said" = ""
    run --limit memory=48MiB --limit swap=96MiB "$bomb 64"
    seen "$p-swap" "$said $json" survived
    run --limit memory=48MiB --limit tmp=128MiB 'dd if=/dev/zero of=/tmp/x bs=1M count=96; echo outlived'
    seen "$p-memory-of-tmp" "$json" '"limit":"memory"'
    run --limit memory=48MiB 'dd if=/dev/zero of=x bs=1M count=64 2>/dev/null; stat -c %s x; rm x'
    seen "$p-memory-of-files" "$said $json" 67108864 '"memory-peak-bytes":(4[5-9]|50)[0-9]{6},'
    run --limit processes=24 'for i in $(seq 60); do sleep 3 & done 2>/dev/null; wait; echo after'
    seen "$p-processes" "$json" 'processes'
    run --limit processes=32 --timeout 15s 'b() { b | b & }; b 2>/dev/null; sleep 1; echo alive'
    seen "$p-fork-bomb" "$json" '"what":"[^"]*processes'
    run --limit cpu=0.2 --timeout 4s 'while :; do :; done'
    local used=$(sed -E 's/.*"cpu-ms":([0-9]+).*/\1/' <<<"$json")
    holds "$p-cpu" test "${used:-9999}" -lt 1600
    bombs "$p"
    start --timeout 30s -- sleep 20
    seen "$p-weight" "$(cat "$sandbox"/{cpu.weight,memory.oom.group,memory.swap.max})" '^50$' '^1$' '^0$'
    kill "$started"
    wait "$started"
    holds "$p-nothing-left" there_is_none
}
