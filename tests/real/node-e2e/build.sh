#!/bin/sh
# Builds into .bin what the suite needs, unless it is there: e2e_node.test with our spec, ginkgo, containerd
# and the images, from the sources of Kubernetes in the folder $1.
set -eu
cd "$(dirname "$0")"
here=$PWD
bin=$here/.bin
source=$1
export GOWORK=off
go=${GO:-go}
mkdir -p "$bin"

containerd=github.com/containerd/containerd/v2/cmd
[ -x "$bin/containerd" ] || CGO_ENABLED=0 nice -n 10 "$go" build -C ../e2e/containerd -trimpath -ldflags '-s -w' -o "$bin/" \
	$containerd/containerd $containerd/containerd-shim-runc-v2 $containerd/ctr

# One layer with the files of a folder, in the format of docker save: the folder, what runs, the names.
image() {
	layer=$bin/image/$1.layer
	mkdir -p "$layer"
	tar -C "$bin/image/$1" --sort=name --owner=0 --group=0 --mtime=@0 -cf "$layer/layer.tar" .
	sum=$(sha256sum "$layer/layer.tar" | cut -d ' ' -f 1)
	printf '{"architecture":"%s","os":"linux","config":{"Cmd":["%s"],"Env":["PATH=/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
		"$("$go" env GOARCH)" "$2" "$sum" > "$layer/config.json"
	printf '[{"Config":"config.json","Layers":["layer.tar"],"RepoTags":[%s]}]' "$3" > "$layer/manifest.json"
	tar -C "$layer" -cf "$bin/image/$1.tar" manifest.json config.json layer.tar
}

# Images under the names that the suite asks for. What the specs run in agnhost and nginx is a shell, or
# nothing at all. Each has a file of its own: containerd calls equal images by one name, and specs compare names.
if [ ! -e "$bin/image/busybox.tar" ] || [ "$here/build.sh" -nt "$bin/image/busybox.tar" ]; then
	registry=registry.k8s.io/e2e-test-images
	root=$bin/image/busybox
	rm -rf "$bin/image"
	mkdir -p "$bin/image/pause" "$root/bin" "$root/tmp" "$root/etc"
	chmod 1777 "$root/tmp" # most specs are not root
	gcc -Os -static -o "$bin/image/pause/pause" "$source/build/pause/linux/pause.c"
	image pause /pause "\"registry.k8s.io/pause:3.10.2\""
	for applet in $(busybox --list); do ln -sf busybox "$root/bin/$applet"; done
	cp --remove-destination "$(command -v busybox)" "$root/bin/busybox" # the list has busybox, too
	gcc -Os -static -o "$root/bin/nmeter" nmeter.c # Debian's busybox lacks it
	cp "$bin/image/pause/pause" "$root/bin/pause"
	for name in agnhost:2.66.1 agnhost:2.55 nginx:1.27.0-2 nginx:1.28.0-2; do
		cp -rp "$root" "$bin/image/$name"
		touch "$bin/image/$name/$name"
		image "$name" pause "\"$registry/$name\""
	done
	image busybox pause "\"$registry/busybox:1.37.0-2\""
fi

# An overlay adds our spec to those of Kubernetes.
spec=testdata/pleg_slow_status_test.go
if [ ! -x "$bin/e2e_node.test" ] || [ $spec -nt "$bin/e2e_node.test" ]; then
	echo "building e2e_node.test (minutes, the first time)"
	printf '{"Replace": {"%s": "%s"}}\n' "$source/test/e2e_node/pleg_slow_status_test.go" "$here/$spec" > "$bin/overlay.json"
	cd "$source"
	export GOFLAGS=-mod=mod
	nice -n 10 "$go" build -trimpath ${BUILD_JOBS:+-p "$BUILD_JOBS"} -o "$bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
	nice -n 10 "$go" test -c -trimpath ${BUILD_JOBS:+-p "$BUILD_JOBS"} -overlay "$bin/overlay.json" -o "$bin/e2e_node.test" ./test/e2e_node
fi
