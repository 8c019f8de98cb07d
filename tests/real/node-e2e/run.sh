#!/bin/sh
# Runs the kubelet's own node e2e (test/e2e_node of Kubernetes) on containerd, as root: with the released
# kubelet, with the steps of docs/dev/upstream.md, and with the drop-in. It prints how many specs passed with
# each, and names those that differ. The first time the builds take half an hour.
#
# NODE_E2E_KINDS chooses kubelets ("stock pipeline"), NODE_E2E_PARTS parts of the suite ("parallel serial
# slow"), NODE_E2E_PROCS (8) is how many specs of the parallel part run at once. Arguments are flags of
# ginkgo, such as --focus "PostStart". Logs and reports stay in .bin/out.
set -eu
cd "$(dirname "$0")"
here=$PWD
bin=$here/.bin
export GOWORK=off
go=${GO:-go}
mkdir -p "$bin"

../e2e/setup.sh
missing=
command -v busybox >/dev/null 2>&1 || missing="$missing busybox-static"
command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
if [ -n "$missing" ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	# shellcheck disable=SC2086 # a list of package names
	apt-get install -y -qq --no-install-recommends $missing
fi

../kubelet/build.sh
kubelets=$here/../kubelet/.bin
source=$(ls -d "$kubelets"/kubernetes-v*[0-9])
./build.sh "$source"

trap 'find /sys/fs/cgroup/*/node-e2e -depth -type d -exec rmdir {} + 2>/dev/null || true' EXIT
for kind in ${NODE_E2E_KINDS:-stock small-step both-steps pipeline}; do
	for part in ${NODE_E2E_PARTS:-parallel serial slow}; do
		echo "$kind, $part: $(date +%T)"
		./sandbox.sh "$bin" ./suite.sh "$kubelets/kubelet-$kind" "$part" "$bin/out/$kind/$part" "$@" || true # the table says what failed
	done
done
"$go" run ./report "$bin/out"
