#!/bin/sh
# Installs and builds, into .bin, what the test of a cluster runs: Kubernetes with its
# etcd, two kubelets, containerd, nats-server, and our image in two versions. It builds
# each program once and keeps it; our own code it builds each time.
set -eu
cd "$(dirname "$0")"
bin=$PWD/.bin
go=${GO:-go}
export GOWORK=off
mkdir -p "$bin"

../e2e/setup.sh

# The kubelet as released, and with the pipeline in place of GenericPLEG.
../kubelet/build.sh
kubelets=$PWD/../kubelet/.bin

# The other programs of Kubernetes come from the folder that the kubelets were built in.
source=$(ls -d "$kubelets"/kubernetes-v*)
version=${source##*/kubernetes-}
minor=${version#v1.}
if [ ! -x "$bin/$version/kubectl" ]; then
	echo "building Kubernetes $version (minutes, the first time)"
	stamp=k8s.io/component-base/version
	(cd "$source" && GOFLAGS=-mod=mod nice -n 10 "$go" build ${BUILD_JOBS:+-p "$BUILD_JOBS"} \
		-ldflags "-X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}" -o "$bin/$version.part/" \
		./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubectl)
	rm -rf "${bin:?}/$version"
	mv "$bin/$version.part" "$bin/$version"
fi
for program in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
	ln -sf "$version/$program" "$bin/$program"
done
ln -sf "$kubelets/kubelet-stock" "$kubelets/kubelet-pipeline" "$bin/"

# Programs whose versions are in the go.mod of a folder: the folder, then the packages.
build() {
	module=$1
	shift
	CGO_ENABLED=0 "$go" build -C "$module" -trimpath -ldflags '-s -w' -o "$bin/" "$@"
}
containerd=github.com/containerd/containerd/v2/cmd
build "$PWD/../e2e/containerd" $containerd/containerd $containerd/containerd-shim-runc-v2 $containerd/ctr
CGO_ENABLED=0 "$go" build -trimpath -ldflags '-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
CGO_ENABLED=0 "$go" build -trimpath -ldflags '-s -w' -o "$bin/nats-server" github.com/nats-io/nats-server/v2
build "$PWD/../e2e" ./podimage
build "$PWD/../../../cmd/pleg-pipeline" .

# The version of deploy/base, and the one that it is upgraded to. dist.sh needs go.work.
for version in v0.1.0 v0.1.1; do
	GOWORK='' VERSION=$version ARCHS=$("$go" env GOARCH) OUT=$bin/image-$version GO=$go ../../../deploy/release/dist.sh image
done
"$go" test -c -o "$bin/cluster.test" .
