#!/bin/busybox sh
# The guest's first program: modules, the host's root below an overlay, and the start script that the host left.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
if grep -q lockcache.probe /proc/cmdline; then
    echo "guest: probed"
    poweroff -f
fi
for module in $(cat /modules/order); do insmod "/modules/$module" 2>&1 | grep -v 'File exists'; done
echo "guest: kernel $(uname -r) is up after $(cut -d' ' -f1 /proc/uptime) s"
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /root || echo "guest: no root by 9p"
mount -t tmpfs -o size=600m t /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/root,upperdir=/upper/files,workdir=/upper/work o /merged || echo "guest: no overlay"
mount -t proc p /merged/proc
mount -t sysfs s /merged/sys
mount -t devtmpfs d /merged/dev
mkdir -p /merged/dev/shm
mount -t tmpfs t /merged/dev/shm
mount -t tmpfs -o size=1600m t /merged/run
mkdir /merged/run/share
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /merged/run/share || echo "guest: no share by 9p"
chroot /merged /bin/sh /run/share/start.sh
echo "guest: done"
sync
poweroff -f
