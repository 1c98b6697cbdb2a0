#!/bin/sh
# First process of a compute host: sets up what a machine would have at boot
# (its own /run, cgroup tree, libvirt configuration), then starts libvirtd and
# waits.  Arguments: NAME STATE-DIRECTORY SHARED-DIRECTORY HOST-FILE.  Open at
# start: 7, the cgroup namespace outside; 8 and 9, the processes of the cgroups
# to which libvirtd's CPU time is charged.
set -eu
name=$1 state=$2 shared=$3 hosts=$4
mount --make-rprivate /
# The pid by which the machine outside knows this host.
read -r outer _ < /proc/self/stat
mount -t proc proc /proc
hostname "$name"
umount -lR /sys 2>/dev/null || true
mount -t sysfs sysfs /sys
# This script and what it starts are in system.slice already.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
controllers=$(cat /sys/fs/cgroup/cgroup.controllers)
# With the CPU elsewhere libvirt must not see it: it would count CPU time here.
case " $controllers " in *" cpu "*) ;; *) controllers= ;; esac
for c in $controllers; do
    echo "+$c" > /sys/fs/cgroup/cgroup.subtree_control
done
if grep -q '^[1-9][0-9]*:[a-z_,]*:' /proc/self/cgroup; then
    # Version 1 has the other controllers, or all of them.
    umount /sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    if [ "$controllers" ]; then
        mkdir /sys/fs/cgroup/unified
        mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    fi
    while IFS=: read -r _ c _; do
        case $c in
        "" | name=*) ;;
        *)
            mkdir "/sys/fs/cgroup/$c"
            mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c"
            ;;
        esac
    done < /proc/self/cgroup
fi
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/libvirt /run/lock /run/postgresql /run/sshd
for d in etc/libvirt var/lib/libvirt var/log/libvirt var/cache/libvirt; do
    mkdir -p "$state/$d" "/$d"
    mount --bind "$state/$d" "/$d"
done
mount --bind "$hosts" /etc/hosts
# Nova goes from host to host by ssh when it migrates cold or resizes.
mount --bind "$state/../ssh/config" /etc/ssh/ssh_config
/usr/sbin/sshd -f "$state/../ssh/sshd_config" 7<&- 8>&- 9>&-
echo "$outer" > "$state/pid"
start_libvirtd() {
    (
        echo 0 >&8
        echo 0 >&9
        SHARED_PREFIX=$shared LD_PRELOAD=$state/../shims.so \
            exec setsid nsenter --cgroup=/proc/self/fd/7 \
            /usr/sbin/libvirtd --listen \
            --pid-file /run/libvirtd.pid 8>&- 9>&- \
            >> "$state/var/log/libvirt/libvirtd.out" 2>&1
    ) &
}
start_libvirtd
while [ ! -S /run/libvirt/libvirt-sock ]; do sleep 0.05; done
touch "$state/ready"
# Restart libvirtd when it ends, as systemd would; reap orphans.
while :; do
    if [ ! -e "$state/hold-libvirtd" ] &&
       ! kill -0 "$(cat /run/libvirtd.pid 2>/dev/null || echo 0)" 2>/dev/null
    then
        start_libvirtd
        sleep 2
    fi
    sleep 1 & wait $!
done
