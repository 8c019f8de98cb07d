#!/bin/sh
# Runs the test of a cluster, as root: run.sh [flags of the test]. The cluster lives in
# its own mount, network and process namespaces, with its files in memory, so that
# nothing but its cgroups outlives this process, even if it is killed.
set -eu
cd "$(dirname "$0")"
./setup.sh

# The processes of the pods have ended with the namespace, so their cgroups are empty. containerd
# creates them in k8s.io. rmdir does not remove a cgroup that has processes.
remove_cgroups() {
	for cgroups in /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io; do
		[ ! -d "$cgroups" ] || find "$cgroups" -depth -type d -exec rmdir {} + 2>/dev/null || :
	done
}
trap remove_cgroups EXIT
remove_cgroups

# The shell is the first process of the namespace: it reaps the shims, and with it
# everything ends.
setpriv --pdeathsig KILL \
	unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private sh -c '
		ip link set lo up
		for dir in /run /var/lib /var/log; do mount -t tmpfs -o mode=0755 tmpfs $dir; done
		mkdir /run/tmp
		export TMPDIR=/run/tmp
		.bin/cluster.test "$@"
		exit $?
	' sh -test.v -test.timeout 20m "$@"
