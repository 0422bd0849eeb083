# Sets up the packages that the other program has unpacked: Debian's own order, as debootstrap has it.
set -e
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C HOME=/root
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /var/cache/apt/archives
echo "setting up $(ls | wc -l) packages"
log=/var/log/bootstrap.log
exec 3>&2 >"$log" 2>&1
trap '[ $? = 0 ] || tail -n 20 "$log" >&3' EXIT
touch /var/lib/dpkg/status /var/lib/dpkg/available
ln -sf mawk /usr/bin/awk
[ -e /etc/localtime ] || ln -s /usr/share/zoneinfo/UTC /etc/localtime
# No service starts in it.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
ldconfig
version=$(dpkg-deb -f dpkg.deb Version)
printf 'Package: dpkg\nVersion: %s\nMaintainer: unknown\nStatus: install ok installed\n' "$version" \
  >> /var/lib/dpkg/status
touch /var/lib/dpkg/info/dpkg.list
for first in base-passwd base-files dpkg libc6 perl-base mawk; do
  dpkg --force-depends --install "$first.deb"
done
dpkg --force-depends --force-overwrite --skip-same-version --unpack ./*.deb
dpkg --force-depends --force-configure-any --configure --pending
dpkg --configure --pending
rm -f ./*.deb
