# The checks of a guest with systemd, which starts this as a service. Root's come
# first, then those of an ordinary user with a user manager, as every login has.

exec >/dev/ttyS1 2>&1
chmod 1777 /tmp
prepare

# systemd-run takes the place of entering a group.
entered() { "${@:2}"; }
begin() {
    (exec "${@:2}" >/dev/null 2>&1) &
    started=$!
}

## Root, in a service that is not delegated, and in a scope that is.
who=$as_root
seen root-doctor "$(doctor)" "control-groups +version 2, beneath $GROUPS_TOP/system.slice"
run 'echo works'
seen root-works "$said $json" works 'cgroup-v2","limit":"memory"' 'cgroup-v2","limit":"processes"'
agrees root-doctor-agrees
who="$as_root systemd-run --scope --quiet --property=Delegate=yes"
seen root-scope-doctor "$(doctor)" 'ok +control-groups +version 2, beneath .*/system.slice/run-.*\.scope$'
run --limit cpu=0.5 --limit memory=48MiB 'perl -e "\$x = q(x) x (96 << 20)"'
seen root-scope-memory "$json" '"limit":"memory"' 'cgroup-v2","limit":"cpu"'
holds root-nothing-left there_is_none
tell_time root

## A login of an ordinary user: no group of his own, and told how to get one.
login() { su --login person --command "cd work && $*"; }
login : >/dev/null
holds login-has-a-manager soon systemctl is-active --quiet user@$PERSON.service
loginctl enable-linger person
advised=$(login "$ATOLL doctor" | tee /tmp/doctor | grep -o 'systemd-run --user .*atoll run --')
seen login-doctor "$(cat /tmp/doctor)" 'weaker +control-groups +none: no control group is delegated' \
    'systemd-run --user --scope -p Delegate=yes atoll run -- COMMAND'
said=$(login "${advised/atoll run/$ATOLL run --json - --limit cpu=1} echo done" 2>&1)
seen login-advice-works "$(tr -d ' \n' <<<"$said")" done 'cgroup-v2","limit":"memory"' 'cgroup-v2","limit":"cpu"'
said=$(login "$ATOLL run --profile strict -- echo started" 2>&1)
seen login-strict-refuses "$said" 'cannot enforce the limit cpu: no control group is delegated' 'systemd-run --user --scope'
said=$(login "${advised/atoll run/$ATOLL run --profile strict} echo started" 2>&1)
seen login-strict-works-as-advised "$said" '^started'
tell_time login

## All limits in a delegated scope of the user's manager.
manager="env XDG_RUNTIME_DIR=/run/user/$PERSON systemd-run --user --quiet"
who="$as_person $manager --scope --property=Delegate=yes"
seen scope-doctor "$(doctor)" "ok +control-groups +version 2, beneath .*/user@$PERSON.service/app.slice"
holds scope-doctor-is-whole eval '! grep -E "^(weaker|missing)" <<<"$(doctor)"'
limits scope
run true
agrees scope-doctor-agrees
start -- sleep 100
kill -9 "$started"
wait "$started" 2>/dev/null
holds scope-killed-leaves-nothing soon there_is_none
no_scope() { [ -z "$(find $GROUPS_TOP/user.slice -name '*.scope' -path '*user@*' ! -name 'init.scope')" ]; }
holds scope-is-gone soon no_scope
tell_time scope

# A service of the manager's that is not delegated: controllers above it are on for it.
who="$as_person $manager --pipe --wait --same-dir"
seen service-doctor "$(doctor)" "control-groups +version 2, beneath .*/user@$PERSON.service/app.slice"
run --limit memory=48MiB 'perl -e "\$x = q(x) x (96 << 20)"'
seen service-memory "$said $json" '"limit":"memory"'
run true
agrees service-doctor-agrees
holds service-leaves-nothing there_is_none
finish
