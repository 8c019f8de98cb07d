#!/bin/sh
# Builds a release into the folder OUT: static programs and archives of them,
# Debian and RPM packages, an SBOM, the container image, the provenance (SLSA) of these files
# and checksums. Two builds of one commit are identical: nothing in it depends on the time or
# the folder, except the signature of the checksums, which covers everything.
#
#   dist.sh        everything
#   dist.sh image  only the image
#
# VERSION is a semantic version with a v; ARCHS are Go's names of the architectures.
# SIGNING_KEY is a file with a private key for openssl; without it, nothing is signed.
# BUILDER is the URI of who builds, for the provenance.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
GO=${GO:-go}
OUT=${OUT:-dist}
[ -z "${SIGNING_KEY:-}" ] || SIGNING_KEY=$(realpath "$SIGNING_KEY")
ARCHS=${ARCHS:-amd64 arm64}
revision=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || revision=$revision-dirty
VERSION=${VERSION:-$(git describe --tags --exact-match --match 'v*' 2>/dev/null || echo "v0.0.0-$(git rev-parse --short=12 HEAD)")}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH VERSION
rm -rf "$OUT"
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cli=github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli
programs=
for arch in $ARCHS; do
	mkdir -p "$work/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch $GO build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X $cli.version=$VERSION -X $cli.revision=$revision" \
		-o "$work/$arch/pleg-pipeline" ./cmd/pleg-pipeline
	programs="$programs $arch=$work/$arch/pleg-pipeline"
done

# The tools are built once: "go tool" would build them for each call. An image needs none.
tools=tool
[ "${1:-}" != image ] || tools=
# shellcheck disable=SC2086 # nothing, or one word
GOWORK=off $GO build -C deploy -trimpath -buildvcs=false -o "$work/" ./release $tools

# shellcheck disable=SC2086 # one word for each program
"$work/release" -version "$VERSION" -revision "$revision" -created "$SOURCE_DATE_EPOCH" -out "$work/image" $programs
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w --mtime="@$SOURCE_DATE_EPOCH" \
	-cf "$OUT/pleg-pipeline-$VERSION-image.tar" -C "$work/image" blobs index.json oci-layout
if [ "${1:-}" = image ]; then
	ls -l "$OUT"
	exit 0
fi

# The settings of the packages are in a file that an upgrade keeps.
sed 's|^ExecStart=.*|ExecStart=/usr/bin/pleg-pipeline run --config-file /etc/pleg-pipeline/pleg-pipeline.yaml|' \
	docs/pleg-pipeline.service >"$work/pleg-pipeline.service"
for arch in $ARCHS; do
	cp README.md CHANGELOG.md docs/pleg-pipeline.service "$work/$arch/"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w --mtime="@$SOURCE_DATE_EPOCH" \
		-C "$work/$arch" -cf - . | gzip -n9 >"$OUT/pleg-pipeline-$VERSION-linux-$arch.tar.gz"
	"$work/cyclonedx-gomod" bin -json -noserial -std -version "$VERSION" -output "$work/sbom.json" "$work/$arch/pleg-pipeline"
	# The tool writes the time of the build.
	sed "s|\"timestamp\": \"[^\"]*\"|\"timestamp\": \"$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)\"|" \
		"$work/sbom.json" >"$OUT/pleg-pipeline-$VERSION-linux-$arch.cdx.json"
	for kind in deb rpm; do
		(cd "$work" && ARCH=$arch ROOT=$root WORK=$work "$work/nfpm" package --config "$root/deploy/release/nfpm.yaml" --packager "$kind" --target "$OUT/" >/dev/null)
	done
done
cd "$OUT"
source=https://github.com/pleg-pipeline/pleg-pipeline
cat >"$work/provenance.json" <<EOF
{"_type": "https://in-toto.io/Statement/v1",
"subject": [$(sha256sum -- * | sed 's|\(.*\)  \(.*\)|{"name": "\2", "digest": {"sha256": "\1"}}|' | paste -sd,)],
"predicateType": "https://slsa.dev/provenance/v1",
"predicate": {"buildDefinition": {"buildType": "$source/blob/main/deploy/release/dist.sh",
"externalParameters": {"VERSION": "$VERSION", "ARCHS": "$ARCHS"},
"internalParameters": {"go": "$($GO env GOVERSION)"},
"resolvedDependencies": [{"uri": "git+$source", "digest": {"gitCommit": "$revision"}}]},
"runDetails": {"builder": {"id": "${BUILDER:-$source}"}}}}
EOF
mv "$work/provenance.json" "pleg-pipeline-$VERSION.intoto.json"
sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
[ -z "${SIGNING_KEY:-}" ] || openssl dgst -sha256 -sign "$SIGNING_KEY" -out SHA256SUMS.sig SHA256SUMS
ls -l
