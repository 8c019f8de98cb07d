#!/bin/sh
# Applies each patch of this folder to a copy of the tree. The test that the
# first line of the patch names, with its flags if any, must then fail.
#
#   run.sh [NAME...]          run all patches, or those with NAME in their name
#   run.sh --check [NAME...]  only check that they apply and that the tests exist
#
# JOBS is the number of patches to run at the same time, each in its own copy.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

# check prints why a patch cannot be run in the current folder.
check() {
	read -r _ _ test package flags <"$1"
	grep -qs "^func $test(" "$package"/*_test.go || { echo "$package has no $test"; return 1; }
	patch -f -s -p1 --dry-run <"$1" || { echo "the patch does not apply"; return 1; }
}

# run tests the current folder with a patch and prints the result in one write.
# The copies have different names: without -trimpath each run would compile all. A
# nested module depends on so much that it uses what other tests have compiled.
run() {
	read -r _ _ test package flags <"$1"
	status=0
	patch -f -s -p1 <"$1"
	module=. trimpath=-trimpath
	[ ! -f "$package/go.mod" ] || { module=$package package=. trimpath=; }
	output=$(go test -C "$module" -v -vet=off -count=1 $trimpath -ldflags='-s -w' -timeout 60s -run "^$test\$" "$package" -args $flags 2>&1) || status=$?
	patch -f -s -R -p1 <"$1"
	case $output in *'build failed'*) printf 'STALE    %s: the patched code does not build\n%s\n' "$name" "$output"; return 1 ;; esac
	[ $status -ne 0 ] || { echo "SURVIVED $name: $test in $package passes"; return 1; }
	line=$(printf '%s\n' "$output" | grep -m1 -E '_test\.go:[0-9]+: |^panic: |deadlock' || true)
	printf 'killed   %s: %s: %s\n' "$name" "$test" "${line#"${line%%[![:space:]]*}"}"
}

if [ "${1:-}" = --one ]; then # called by xargs below
	cd "$COPIES/$SLOT"
	name=$(basename "$2" .patch)
	reason=$(check "$2" 2>&1) || { printf 'STALE    %s: %s\n' "$name" "$reason"; exit 1; }
	[ "$MODE" = --check ] || run "$2"
	exit
fi

MODE=run
[ "${1:-}" != --check ] || { MODE=--check; shift; }
[ $# -gt 0 ] || set -- ''
patches=$(for name; do
	ls "$here"/*"$(basename "$name" .patch)"*.patch
done)
COPIES=$(mktemp -d)
trap 'rm -rf "$COPIES"' EXIT
export MODE COPIES
jobs=${JOBS:-2}
for slot in $(seq 0 $((jobs - 1))); do
	mkdir "$COPIES/$slot"
	(cd "$root" && git ls-files -co --exclude-standard -z | tar --null --ignore-failed-read -T - -cf - 2>/dev/null) | tar -xf - -C "$COPIES/$slot"
done
printf '%s\n' "$patches" | xargs -P "$jobs" --process-slot-var=SLOT -I{} sh "$here/run.sh" --one {}
echo "all $(printf '%s\n' "$patches" | wc -l) patches pass"
