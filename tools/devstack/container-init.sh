#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# First process of a container: makes its mounts and becomes its systemd.
# Arguments: outside|inside NAME STATE-DIRECTORY LOWER-DIRECTORY VERSION, where
# VERSION is that of the control groups.  The file "mounts" in the state
# directory has a line "ro|rw SOURCE TARGET" for each directory of the machine
# that the container sees.
set -eu
stage=$1 name=$2 state=$3 lower=$4 version=$5
if [ "$stage" = outside ]; then
    # In a mount namespace of its own; else the machine's own namespaces.
    mount --make-rprivate /
    if [ "$version" = 1 ]; then
        # systemd's own tree has no controller, so a group of the machine's.
        mount -t cgroup -o none,name=systemd cgroup "$state/tree"
        mkdir -p "$state/tree/$name"
        echo $$ > "$state/tree/$name/cgroup.procs"
        umount "$state/tree"
    fi
    exec unshare --uts --ipc --pid --cgroup --fork --kill-child \
        "$0" inside "$name" "$state" "$lower" "$version"
fi
# The pid by which the machine knows this container.
read -r outer _ < /proc/self/stat
root=$state/root
mount -t overlay overlay \
    -o "lowerdir=$lower,upperdir=$state/upper,workdir=$state/work" "$root"
mount -t proc proc "$root/proc"
# Kernel settings are the machine's, but for those of the network namespace.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
if [ -e "$root/proc/sysrq-trigger" ]; then
    mount --bind /dev/null "$root/proc/sysrq-trigger"
fi
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
for device in null zero full random urandom tty kvm fuse net/tun; do
    if [ -e "/dev/$device" ]; then
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    fi
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts \
    "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
if [ "$version" = 1 ]; then
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    while IFS=: read -r _ controllers _; do
        case $controllers in
        "") continue ;;
        name=systemd) directory=systemd options=none,name=systemd ;;
        name=*) continue ;;
        *) directory=$controllers options=$controllers ;;
        esac
        mkdir "$root/sys/fs/cgroup/$directory"
        mount -t cgroup -o "$options" cgroup "$root/sys/fs/cgroup/$directory"
    done < /proc/self/cgroup
    set -- systemd.unified_cgroup_hierarchy=0 \
        systemd.legacy_systemd_cgroup_controller=1
else
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    set -- systemd.unified_cgroup_hierarchy=1
fi
while read -r mode source target; do
    mkdir -p "$root$target"
    mount --bind "$source" "$root$target"
    if [ "$mode" = ro ]; then
        mount -o remount,bind,ro "$root$target"
    fi
done < "$state/mounts"
hostname "$name"
echo "$outer" > "$state/pid"
cd "$root"
mkdir -p .outside
pivot_root . .outside
umount -l /.outside
rmdir /.outside
exec env -i container=secondary \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --log-target=console --log-level=warning "$@" \
    < /dev/null
