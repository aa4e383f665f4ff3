#!/bin/bash
# Runs a real user manager of systemd, in namespaces of its own, and a script beside it.
#
#   unshare -m -p -f --mount-proc user_manager.sh STAGE BASE_PREFIX SITE_PACKAGES REPOSITORY UID
#
# Needs root here; the manager and everything it starts run as UID. STAGE holds `home`, copied to
# be the user's home, `paths`, a planted tree, and `script`, which is run as the user once the
# manager is up. Everything is put below /srv, since the units under test hide /tmp.
set -eu
stage=$1 base=$2 site=$3 repository=$4 user=$5

mount -t tmpfs -o mode=755 tmpfs /srv
mkdir /srv/base /srv/site /srv/repository /srv/stage
mount --bind "$base" /srv/base
mount --bind "$site" /srv/site
mount --bind "$repository" /srv/repository
mount --bind "$stage" /srv/stage

# Without these the manager says that the system was not booted with systemd.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/{system,unit-root,incoming,propagate} "/run/user/$user"
chmod 700 "/run/user/$user"
chown "$user:$user" "/run/user/$user"

mount -t tmpfs -o mode=755 tmpfs /home
cp -a /srv/stage/home /home/tester
chown -R "$user:$user" /home/tester

umount -l /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
group="/sys/fs/cgroup/indexd-test-$$-$(date +%s%N)"
mkdir "$group"
echo $$ > "$group/cgroup.procs"
chown -R "$user:$user" "$group"

finish() {
    echo 0 > /sys/fs/cgroup/cgroup.procs || true
    echo 1 > "$group/cgroup.kill" || true
    for _ in $(seq 50); do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ -d "$group" ] || break
        sleep 0.1
    done
}
trap finish EXIT

unshare -C -m bash -euc '
    umount -l /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec setpriv --reuid "$1" --regid "$1" --clear-groups --inh-caps=-all env -i \
        HOME=/home/tester USER=tester PATH=/usr/bin:/bin XDG_RUNTIME_DIR="/run/user/$1" \
        PYTHONPATH=/srv/repository:/srv/site LD_LIBRARY_PATH=/srv/base/lib bash -eu -c "
            cd /home/tester
            /lib/systemd/systemd --user --unit=basic.target 2>manager.log &
            manager=\$!
            until systemctl --user is-active --quiet basic.target 2>/dev/null; do
                kill -0 \$manager || { cat manager.log >&2; exit 1; }
                sleep 0.05
            done
            status=0
            /srv/stage/script || status=\$?
            [ \$status = 0 ] || cat manager.log \"\$XDG_RUNTIME_DIR\"/*.log >&2
            kill -s RTMIN+24 \$manager
            wait \$manager || true
            exit \$status
        "
' bash "$user"
