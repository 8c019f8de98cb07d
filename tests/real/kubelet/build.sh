#!/bin/sh
# Builds the kubelet three times, into .bin: as released, with the change of
# kubelet/upstream, and with the pipeline instead of GenericPLEG. Overlays make the
# changes; the last one is an import and an expression.
set -eu

version=v1.37.1
staging=v0.37.1

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
	(cd "$src" && nice -n 10 "$go" build ${BUILD_JOBS:+-p "$BUILD_JOBS"} "$@" -o "$bin/$name" ./cmd/kubelet)
}

# The released module has no staging folder, so that go.mod must name the released
# staging modules. The sources are copied, because an overlay cannot replace files
# in the module cache.
if [ ! -d "$src" ]; then
	dir=$(cd "$bin" && "$go" mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	rm -rf "$src.part"
	cp -r "$dir" "$src.part"
	chmod -R u+w "$src.part"
	rm -f "$src.part"/go.work*
	sed -i -E "s#^(\tk8s.io/[a-z0-9.-]+ => )\./staging/src/(k8s.io/[a-z0-9.-]+)#\1\2 $staging#" "$src.part/go.mod"
	mv "$src.part" "$src"
fi
[ -x "$bin/kubelet-stock" ] || build kubelet-stock

(cd "$root/kubelet" && GOFLAGS= "$go" run ./upstream -write "$bin/small-step")
(cd "$bin/small-step" && find . -type f) | sed "s#^\./\(.*\)#\"$src/\1\": \"$bin/small-step/\1\"#" | paste -sd, | sed 's/.*/{"Replace": {&}}/' > "$bin/small-step.json"
build kubelet-small-step -overlay "$bin/small-step.json"

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
