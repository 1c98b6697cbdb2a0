#!/bin/sh
# First process of a compute host: sets up what a machine would have at boot
# (its own /run, cgroup tree, libvirt configuration), then starts libvirtd and
# waits.  Arguments: NAME STATE-DIRECTORY SHARED-DIRECTORY HOST-FILE, and the
# cgroups to which libvirtd's CPU time is charged.
set -eu
name=$1 state=$2 shared=$3 hosts=$4
# They are outside of what this host will see.
exec 8> "$5/cgroup.procs" 9> "$6/cgroup.procs"
mount --make-rprivate /
# The pid by which the machine outside knows this host.
read -r outer _ < /proc/self/stat
mount -t proc proc /proc
hostname "$name"
umount -lR /sys 2>/dev/null || true
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for c in cpu cpuacct cpuset memory devices freezer blkio pids; do
    mkdir "/sys/fs/cgroup/$c"
    mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c"
    # This script and what it starts are the host's system services.
    mkdir -p "/sys/fs/cgroup/$c/system.slice"
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/libvirt /run/lock /run/postgresql /run/sshd
for d in etc/libvirt var/lib/libvirt var/log/libvirt var/cache/libvirt; do
    mkdir -p "$state/$d" "/$d"
    mount --bind "$state/$d" "/$d"
done
mount --bind "$hosts" /etc/hosts
# Nova goes from host to host by ssh when it migrates cold or resizes.
mount --bind "$state/../ssh/config" /etc/ssh/ssh_config
/usr/sbin/sshd -f "$state/../ssh/sshd_config" 8>&- 9>&-
echo "$outer" > "$state/pid"
start_libvirtd() {
    for c in /sys/fs/cgroup/*; do
        echo $$ > "$c/system.slice/cgroup.procs"
    done
    (
        echo 0 >&8
        echo 0 >&9
        SHARED_PREFIX=$shared LD_PRELOAD=$state/../shared-storage.so \
            exec setsid /usr/sbin/libvirtd --listen \
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
