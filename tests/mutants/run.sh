#!/bin/sh
# Breaks a copy of the tree with each patch of this folder and wants the test
# that the patch names to fail. Usage: run.sh [PATCH...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
copy=$(mktemp -d)
out=$(mktemp)
trap 'rm -rf "$copy" "$out"' EXIT
(cd "$root" && git ls-files -co --exclude-standard -z | tar --null --ignore-failed-read -T - -cf - 2>/dev/null) | tar -xf - -C "$copy"
cd "$copy"
[ $# -gt 0 ] || set -- "$here"/*.patch
bad=0
for patch; do
	patch=$here/$(basename "$patch")
	name=$(basename "$patch" .patch)
	read -r _ _ test package <"$patch"
	if ! patch -s -p1 --dry-run <"$patch" >"$out" 2>&1; then
		echo "STALE    $name: the patch does not apply"
		bad=$((bad + 1))
		continue
	fi
	patch -s -p1 <"$patch"
	if go test -v -vet=off -count=1 -timeout 60s -run "^$test\$" "$package" >"$out" 2>&1; then
		echo "SURVIVED $name: $test in $package passes"
		bad=$((bad + 1))
	elif grep -q 'build failed' "$out"; then
		echo "STALE    $name: the broken code does not build"
		cat "$out"
		bad=$((bad + 1))
	else
		line=$(grep -m1 -E '_test\.go:[0-9]+: |^panic: |deadlock' "$out" || true)
		echo "killed   $name: $test: ${line#"${line%%[![:space:]]*}"}"
	fi
	patch -s -R -p1 <"$patch"
done
[ "$bad" -eq 0 ]
