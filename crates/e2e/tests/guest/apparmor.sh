# The checks of a guest whose kernel has AppArmor: a login that may make no user
# namespaces, in place of Ubuntu's setting, and the profile that doctor prints.

begin_plain
mount -t securityfs securityfs /sys/kernel/security
mkdir -p /etc/apparmor.d
echo "+memory +pids +cpu" >$GROUPS_TOP/cgroup.subtree_control
delegate $GROUPS_TOP/person
group=$GROUPS_TOP/person

# load_login RULE...: the profile of an ordinary user's login, with further rules.
load_login() {
    cat >/tmp/login <<END
abi <abi/4.0>,
include <tunables/global>

profile login flags=(attach_disconnected,mediate_deleted) {
  capability,
  network,
  mount,
  remount,
  umount,
  pivot_root,
  signal,
  ptrace,
  unix,
  / r,
  /** rwlkm,
  /** pix,
  deny userns,
  $*
}
END
    apparmor_parser -r /tmp/login
}
cat >/tmp/in_login <<'END'
echo "exec login" >/proc/self/attr/exec
exec "$@"
END
who="bash /tmp/in_login $as_person"

## Where not even the launcher may be executed, nothing runs, and doctor says so.
holds apparmor-login-is-loaded load_login
seen apparmor-login-holds "$($who cat /proc/self/attr/current)" '^login \(enforce\)$'
seen apparmor-forbids "$($who unshare --user true 2>&1)" 'unshare failed: (Permission|Operation)'
seen apparmor-doctor-without-launcher "$(doctor; echo "ended with $?")" 'missing +launcher' 'ended with 3'
run 'echo started'
seen apparmor-without-launcher "=$said= $json $status" '^==' 'launchercouldnotbestarted' ' 125$'

## Where it may, and namespaces are forbidden, Atoll falls back to a fence and says why.
# A program in memory has no name of its own.
load_login '/ rmix,'
seen apparmor-doctor-says-why "$(doctor; echo "ended with $?")" 'mode fence' 'weaker +user-namespaces' \
    'security module' 'ended with 1'
run 'echo started'
seen apparmor-fenced "$said $json" '^started' '"mode":"fence"'

## With the profile that doctor prints, installed as the documents say, it has namespaces.
sudo() { "$@"; }
atoll() { "$ATOLL" "$@"; }
. /atoll/documented.sh >/dev/null
seen apparmor-profile-is-loaded "$(cat /sys/kernel/security/apparmor/profiles)" '^atoll \(unconfined\)$'
seen apparmor-doctor-is-full "$(doctor; echo "ended with $?")" 'mode full' 'ok +user-namespaces' 'ended with 0'
run 'echo started'
seen apparmor-full "$said $json" '^started' '"mode":"full"'
# What is executed from memory keeps it: the launcher, and who goes on from it.
start --timeout 60s -- sleep 50
for name in atoll-jail atoll-init; do
    label=$(cat "/proc/$(processes $name | head -1)/attr/current")
    seen apparmor-$name-keeps-it "$label" '^atoll \(unconfined\)$'
done
kill "$started"
wait "$started"

## Without it again.
apparmor_parser -R /etc/apparmor.d/atoll
run 'echo started'
seen apparmor-without-it-fenced "$said $json" '^started' '"mode":"fence"'
finish
