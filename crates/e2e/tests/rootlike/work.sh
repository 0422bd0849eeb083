# What root does on a system of its own; prints what came of it.
set -e
export DEBIAN_FRONTEND=noninteractive
mkdir -p pkg/DEBIAN pkg/usr/bin pkg/etc/hello-atoll
cat > pkg/DEBIAN/control <<'END'
Package: hello-atoll
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.org>
Description: a package of the tests
END
cat > pkg/DEBIAN/postinst <<'END'
#!/bin/sh
set -e
groupadd -r hello-atoll || true
useradd -r -g hello-atoll -d /var/lib/hello-atoll hello-atoll || true
chown hello-atoll:hello-atoll /etc/hello-atoll
END
printf '#!/bin/sh\necho hello of a package\n' > pkg/usr/bin/hello-atoll
echo conf > pkg/etc/hello-atoll/conf
chmod 755 pkg/DEBIAN pkg/DEBIAN/postinst pkg/usr/bin/hello-atoll
dpkg-deb --root-owner-group -b pkg hello.deb > log 2>&1

dpkg -i ./hello.deb >> log 2>&1
hello-atoll
dpkg -P hello-atoll >> log 2>&1
test ! -e /usr/bin/hello-atoll && echo purged

apt-get -qq install -y ./hello.deb >> log 2>&1
stat -c '%U:%G %n' /etc/hello-atoll /usr/bin/hello-atoll
dpkg -P hello-atoll >> log 2>&1

mkdir repo
cp hello.deb repo
{
    dpkg-deb -f hello.deb
    echo "Filename: ./hello.deb"
    echo "Size: $(stat -c %s hello.deb)"
    echo "SHA256: $(sha256sum hello.deb | cut -d' ' -f1)"
} > repo/Packages
echo "deb [trusted=yes] file:$PWD/repo ./" > /etc/apt/sources.list.d/own.list
apt-get -qq update -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/own.list -o Dir::Etc::sourceparts=- >> log 2>&1
apt-get -qq install -y hello-atoll >> log 2>&1
dpkg -s hello-atoll | grep ^Status

useradd -m somebody
su somebody -c 'id -un; cd; touch own; stat -c %U own'
chown 33:1234 log
stat -c %u:%g log
tar cf t.tar --owner=7 --group=8 hello.deb
mkdir out
tar -C out -xpf t.tar
stat -c %u:%g out/hello.deb
setpriv --reuid 33 --regid 33 --clear-groups sh -c 'id -u; grep ^CapEff /proc/self/status'
runuser -u nobody -- id -un
