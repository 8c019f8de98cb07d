#!/bin/sh
# Builds a release from two clones, requires identical files, and tests them. As root,
# because dpkg installs files of root; it installs rpm2cpio, cpio and systemd if they are missing.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
version=v0.0.1-test
if ! command -v rpm2cpio >/dev/null || ! command -v cpio >/dev/null || ! command -v systemd-analyze >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends rpm2cpio cpio systemd
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/key.pem" 2>/dev/null
openssl pkey -in "$work/key.pem" -pubout -out "$work/key.pub"
for n in 1 2; do
	git clone -q "$root" "$work/clone-$n"
	SIGNING_KEY=$work/key.pem VERSION=$version "$work/clone-$n/deploy/release/dist.sh" >/dev/null
done
diff "$work/clone-1/dist/SHA256SUMS" "$work/clone-2/dist/SHA256SUMS"
cat "$work/clone-1/dist/SHA256SUMS"
echo "two builds are identical"
GOWORK=off "${GO:-go}" test -C "$root/deploy/release" -count=1 . -args -dist "$work/clone-1/dist" -version "$version" -key "$work/key.pub"
