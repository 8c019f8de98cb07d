#!/bin/sh
# Builds a release from two clones and requires identical files.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for n in 1 2; do
	git clone -q "$root" "$work/clone-$n"
	VERSION=v0.0.1-test "$work/clone-$n/deploy/release/dist.sh" >/dev/null
done
diff "$work/clone-1/dist/SHA256SUMS" "$work/clone-2/dist/SHA256SUMS"
cat "$work/clone-1/dist/SHA256SUMS"
echo "two builds are identical"
