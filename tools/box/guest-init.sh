#!/bin/busybox sh
# Init of the box's guest: does the work named on the kernel command line
# (work=cpu|idle|touch|noise|dirty:MB|disk|net:ADDRESS) and prints on the
# console how many units it has finished since its boot, so that work lost by a
# restart can be seen outside.
/bin/busybox mkdir -p /proc /sys /dev /bin /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
for module in evdev button; do
    insmod "/lib/$module.ko" 2>/dev/null
done
work=$(sed -n 's/.*work=\([^ ]*\).*/\1/p' /proc/cmdline)
boot=$(cat /proc/sys/kernel/random/boot_id)
mkdir -p /etc/acpi/PWRF
printf '#!/bin/sh\npoweroff -f\n' > /etc/acpi/PWRF/00000080
chmod +x /etc/acpi/PWRF/00000080
echo 'PWRF' > /etc/acpid.conf
acpid -d -l /dev/null 2>/dev/null &
echo "BOOT $boot work=$work"
mount -t tmpfs tmpfs /tmp
noise() {   # a MiB again and again, so many to a file
    dd if=/dev/urandom of=/tmp/noise bs=1M count=1 2>/dev/null
    i=0
    while [ $i -lt "$1" ]; do
        cat /tmp/noise
        i=$((i + 1))
    done > "$2"
}
case $work in
dirty:*) noise "${work#dirty:}" /tmp/dirty ;;   # shifted by a page, all is new
esac
case $work in
disk | net:*)
    for module in virtio_ring virtio virtio_pci_modern_dev \
        virtio_pci_legacy_dev virtio_pci virtio_blk failover net_failover \
        virtio_net; do
        insmod "/lib/$module.ko"
    done
    while [ ! -e /sys/block/vda ] && [ ! -e /sys/class/net/eth0 ]; do
        sleep 0.1
    done
    ;;
esac
case $work in
disk)   # writes over its first disk as fast as it may
    while :; do
        dd if=/dev/zero of=/dev/vda bs=256k count=16 oflag=direct 2>/dev/null
        units=$((units + 1))
        echo "UNITS $boot $units $boot $units"
    done
    ;;
net:*)  # sends to port 9 of an address in its /24 as fast as it may
    address=${work#net:}
    ip addr add "${address%.*}.200/24" dev eth0
    ip link set eth0 up
    echo "UNITS $boot 0 $boot 0"     # what it sends is counted by the host
    while :; do
        nc "$address" 9 < /dev/zero
        sleep 1
    done
    ;;
esac
units=0
case $work in
touch | noise)
    # All of its memory but what it needs to go on, and then nothing. Pages of
    # zeroes are not copied when it is saved.
    mount -o remount,size=100% /tmp
    free=$(sed -n 's/MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
    free=$((free - 12288))
    echo "TOUCHING $boot"
    case $work in
    touch) dd if=/dev/zero of=/tmp/all bs=64k count=$((free / 64)) 2>/dev/null ;;
    noise) noise $((free / 1024)) /tmp/all ;;
    esac
    echo "TOUCHED $boot"
    ;;
esac
case $work in
idle | touch | noise)
    while :; do echo "UNITS $boot 0 $boot 0"; sleep 1; done
    ;;
esac
# One unit: a fixed amount of arithmetic in the shell itself (no fork).
while :; do
    i=0
    while [ $i -lt 3000 ]; do i=$((i + 1)); done
    units=$((units + 1))
    case $work in
    dirty:*)
        dd if=/tmp/noise bs=4k skip=$((units % 255 + 1)) of=/tmp/shifted 2>/dev/null
        dd if=/tmp/noise bs=4k count=$((units % 255 + 1)) 2>/dev/null >> /tmp/shifted
        i=0
        while [ $i -lt "${work#dirty:}" ]; do
            cat /tmp/shifted
            i=$((i + 1))
        done | dd of=/tmp/dirty bs=64k conv=notrunc 2>/dev/null
        ;;
    esac
    # Twice: a serial port may lose a character when its guest moves.
    echo "UNITS $boot $units $boot $units"
done
