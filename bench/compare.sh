#!/usr/bin/env bash
# compare.sh REF [PACKAGE...] compares the Go benchmarks with those of another revision. They
# run in turns, so that other load on the machine affects both. Ten runs tell a change from
# noise. Packages that only one of the revisions has are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
ref=${1:?name a revision, such as REF=HEAD~1}
shift
temp=$(mktemp -d)
trap 'git worktree remove --force "$temp/tree" || true; rm -rf "$temp"' EXIT
git worktree add --quiet --detach "$temp/tree" "$ref"

# benchmarks prints the packages of the module in a folder that have benchmarks.
benchmarks() {
	for dir in $(git -C "$1" grep -l '^func Benchmark' -- '*_test.go' | xargs -n1 dirname | sort -u); do
		if go -C "$1" list "./$dir" >/dev/null 2>&1; then echo "./$dir"; fi
	done
}

mapfile -t packages < <(comm -12 <(benchmarks "$temp/tree") <(benchmarks .))
if [ $# -gt 0 ]; then packages=("$@"); fi
echo "comparing ${packages[*]}" >&2
for _ in $(seq "${RUNS:-10}"); do
	for side in old new; do
		dir=.
		if [ $side = old ]; then dir=$temp/tree; fi
		go -C "$dir" test -run '^$' -bench . -benchtime 200ms "${packages[@]}" >>"$temp/$side" ||
			grep -h 'FAIL' "$temp/$side" >&2
	done
done
GOWORK=off go tool -modfile=tools.mod benchstat "old=$temp/old" "new=$temp/new"
