#!/bin/sh
# Runs the test of a cluster, as root: run.sh [flags of the test]. The cluster lives in
# its own mount, network and process namespaces, with its files in memory, so that
# nothing but its cgroups outlives this process, even if it is killed.
set -eu
cd "$(dirname "$0")"
./setup.sh

# The cgroups of this run and of killed ones. They are empty once the namespace is gone.
remove_cgroups() {
	for try in 1 2 3 4 5 6 7 8 9 10; do
		left=
		for cgroup in /sys/fs/cgroup/*/pleg-cluster-* /sys/fs/cgroup/pleg-cluster-*; do
			[ -d "$cgroup" ] || continue
			pid=${cgroup##*-}
			[ "$pid" = $$ ] || ! kill -0 "$pid" 2>/dev/null || continue
			find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || left="$left $cgroup"
		done
		[ -n "$left" ] || return 0
		sleep 1
	done
	echo "run.sh: cgroups remain after $try tries:$left" >&2
	return 1
}
trap remove_cgroups EXIT
remove_cgroups

# The shell is the first process of the namespace: it reaps the shims, and with it
# everything ends.
PLEG_CLUSTER_CGROUP=/pleg-cluster-$$ setpriv --pdeathsig KILL \
	unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private sh -c '
		ip link set lo up
		for dir in /run /var/lib /var/log; do mount -t tmpfs -o mode=0755 tmpfs $dir; done
		mkdir /run/tmp
		export TMPDIR=/run/tmp
		.bin/cluster.test "$@"
		exit $?
	' sh -test.v -test.timeout 20m "$@"
