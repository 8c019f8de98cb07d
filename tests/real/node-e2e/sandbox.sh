#!/bin/sh
# Runs a command in namespaces of its own, because the suite uses fixed paths, ports and names of the
# machine: sandbox.sh FOLDER COMMAND [ARGUMENT...]. FOLDER has what the machine's folders get.
set -eu
state=$1/state
controllers="cpu cpuacct cpuset memory devices freezer blkio pids"

if [ -z "${NODE_E2E_INSIDE:-}" ]; then
	for c in $controllers systemd unified; do
		group=/sys/fs/cgroup/$c/node-e2e
		[ -d "/sys/fs/cgroup/$c" ] || continue
		mkdir -p "$group"
		if [ $c = cpuset ]; then
			cat /sys/fs/cgroup/cpuset/cpuset.cpus > "$group/cpuset.cpus"
			cat /sys/fs/cgroup/cpuset/cpuset.mems > "$group/cpuset.mems"
		fi
		echo $$ > "$group/cgroup.procs"
	done
	NODE_E2E_INSIDE=1 exec unshare --mount --net --pid --cgroup --ipc --uts --fork --kill-child --propagation private "$0" "$@"
fi
shift

mount -t proc proc /proc
umount -R /sys/fs/cgroup
mount -t tmpfs cgroup /sys/fs/cgroup
for c in $controllers; do
	mkdir "/sys/fs/cgroup/$c"
	mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c"
done
mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified

mount --make-rshared /
rm -rf "$state"
for dir in /run /tmp /var/lib/kubelet /var/log/pods /var/log/containers; do
	case $state/ in "$dir"/*) continue ;; esac
	mkdir -p "$dir" "$state$dir"
	mount --bind "$state$dir" "$dir"
	mount --make-rshared "$dir"
done
# The kubelet changes these for the whole machine.
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	file=$state/sysctl/${pair%=*}
	mkdir -p "${file%/*}"
	echo "${pair#*=}" > "$file"
	mount --bind "$file" "/proc/sys/${pair%=*}"
done

hostname node-e2e
ip link set lo up
ip link add node0 type veth peer name node1
ip addr add 10.212.0.1/24 dev node0
ip link set node0 up
ip link set node1 up
ip route add default via 10.212.0.254 # the kubelet asks which address it would use
echo 1 > /proc/sys/net/ipv4/ip_forward
"$@" # not exec: the shell is the first process, which collects those that end
