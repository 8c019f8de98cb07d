#!/bin/sh
# Runs a daemon of this version with readers of an older one, and the other way round: both show all
# pods and their events. run.sh [REVISION], by default the one of 300 commits ago.
set -eu
cd "$(dirname "$0")/../../.."
old=${1:-HEAD~300}
dir=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || :; wait; git worktree remove --force "$dir/tree" 2>/dev/null || :; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export GOWORK=off
git worktree add --quiet --detach "$dir/tree" "$old"
"${GO:-go}" build -C "$dir/tree/cmd/pleg-pipeline" -o "$dir/old" .
"${GO:-go}" build -C cmd/pleg-pipeline -o "$dir/new" .

"$dir/new" simulate --socket "$dir/cri" --pods 12 --churn-rate 0 -v error &
pids=$!
for daemon in old new; do
	reader=new
	[ $daemon = old ] || reader=old
	"$dir/$daemon" run -r "unix://$dir/cri" --wait-for-runtime --quiet --socket "$dir/$daemon.sock" -v error &
	pids="$pids $!"
	for _ in $(seq 100); do
		[ "$("$dir/$reader" pods --connect "$dir/$daemon.sock" -o json 2>/dev/null | grep -c '"running":2')" -eq 12 ] && break
		sleep 0.1
	done
	pods=$("$dir/$reader" pods --connect "$dir/$daemon.sock" -o json | grep -c '"running":2' || :)
	timeout 5 "$dir/$reader" events --replay --connect "$dir/$daemon.sock" -o json >"$dir/events" || :
	events=$(grep -c '"type":"ContainerStarted"' "$dir/events" || :)
	echo "daemon $daemon, reader $reader: $pods pods, $events starts"
	# A pod has two containers and a sandbox.
	[ "$pods" -eq 12 ] && [ "$events" -eq 36 ]
	"$dir/$reader" doctor --connect "$dir/$daemon.sock" --timeout 2s >/dev/null 2>&1 || [ $? -ne 2 ]
done
echo "both ways work with $(git rev-parse --short "$old")"
