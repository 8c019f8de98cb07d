#!/bin/sh
# Builds the kubelet four times, into .bin: as released; with the first and with both changes of
# kubelet/upstream; and with the pipeline instead of GenericPLEG. Overlays make the changes; the
# last one is an import and an expression. All have the same versions of all modules.
set -eu

version=v1.37.2
staging=v0.37.2

cd "$(dirname "$0")"
here=$(pwd)
root=$(cd ../../.. && pwd)
bin=$here/.bin
src=$bin/kubernetes-$version
mkdir -p "$bin"
go=${GO:-go}
export GOWORK=off GOFLAGS=-mod=mod

build() { # name, further flags
	name=$1
	shift
	echo "building $name (minutes, the first time)"
	(cd "$src" && nice -n 10 "$go" build -trimpath ${BUILD_JOBS:+-p "$BUILD_JOBS"} "$@" -o "$bin/$name" ./cmd/kubelet)
}

folder() { # module
	(cd "$bin" && "$go" mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# The released module has no staging folder, so that go.mod must name the released
# staging modules. The sources are copied, because an overlay cannot replace files
# in the module cache; so are those of the CRI client.
if [ ! -d "$src" ]; then
	rm -rf "$src.part"
	cp -r "$(folder "k8s.io/kubernetes@$version")" "$src.part"
	chmod -R u+w "$src.part"
	mkdir -p "$src.part/staging/src/k8s.io"
	cp -r "$(folder "k8s.io/cri-client@$staging")" "$src.part/staging/src/k8s.io/cri-client"
	chmod -R u+w "$src.part"
	rm -f "$src.part"/go.work*
	sed -i -E "s#^(\tk8s.io/[a-z0-9.-]+ => )\./staging/src/(k8s.io/[a-z0-9.-]+)#\1\2 $staging#" "$src.part/go.mod"
	sed -i "s#k8s.io/cri-client => k8s.io/cri-client $staging#k8s.io/cri-client => ./staging/src/k8s.io/cri-client#" "$src.part/go.mod"
	mv "$src.part" "$src"
fi
[ -x "$bin/kubelet-stock" ] || build kubelet-stock

for kind in small-step:1 both-steps:12; do
	name=${kind%:*}
	rm -rf "${bin:?}/$name"
	(cd "$root/kubelet" && GOFLAGS= "$go" run ./upstream -steps "${kind#*:}" -write "$bin/$name")
	(cd "$bin/$name" && find . -type f ! -name '*_test.go') | sed "s#^\./\(.*\)#\"$src/\1\": \"$bin/$name/\1\"#" | paste -sd, | sed 's/.*/{"Replace": {&}}/' > "$bin/$name.json"
	build "kubelet-$name" -overlay "$bin/$name.json"
done

awk '
	/"k8s.io\/kubernetes\/pkg\/kubelet\/pleg"$/ {
		print
		print "\tpipelinepleg \"github.com/pleg-pipeline/pleg-pipeline/kubelet\""
		next
	}
	/klet\.pleg = pleg\.NewGenericPLEG\(/ {
		calls++
		sub(/pleg\.NewGenericPLEG\(/, "pipelinepleg.NewWithOptions(pipelinepleg.Options{RuntimeRequestTimeout: kubeCfg.RuntimeRequestTimeout.Duration}, ")
	}
	{ print }
	END { if (calls != 1) { print "build.sh: kubelet.go has " calls + 0 " calls of NewGenericPLEG, want 1" > "/dev/stderr"; exit 1 } }
' "$src/pkg/kubelet/kubelet.go" > "$bin/kubelet.go"
printf '{"Replace": {"%s": "%s"}}\n' "$src/pkg/kubelet/kubelet.go" "$bin/kubelet.go" > "$bin/overlay.json"

cp "$src/go.mod" "$bin/pipeline.mod"
cp "$src/go.sum" "$bin/pipeline.sum"
"$go" mod edit \
	-require=github.com/pleg-pipeline/pleg-pipeline@v0.0.0 -replace="github.com/pleg-pipeline/pleg-pipeline=$root" \
	-require=github.com/pleg-pipeline/pleg-pipeline/kubelet@v0.0.0 -replace="github.com/pleg-pipeline/pleg-pipeline/kubelet=$root/kubelet" \
	"$bin/pipeline.mod"
build kubelet-pipeline -overlay "$bin/overlay.json" -modfile "$bin/pipeline.mod"
