#!/bin/sh
# Prints the events of 20 simulated nodes, through a real nats-server, until it is interrupted.
# Everything that it has started ends with it. Arguments are those of "pleg-pipeline events".
set -eu
cd "$(dirname "$0")"
program=$PWD/../../../bin/pleg-pipeline
server=$(GOWORK=off go -C natsd tool -n github.com/nats-io/nats-server/v2)
dir=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || :; wait; rm -rf "$dir"' EXIT
trap 'exit 0' INT TERM

"$server" --addr 127.0.0.1 --port -1 --jetstream --store_dir "$dir" --ports_file_dir "$dir" --log "$dir/log" &
pids=$!
until url=$(sed -n 's/.*"nats": *\["\([^"]*\)".*/\1/p' "$dir"/*.ports 2>/dev/null) && [ -n "$url" ]; do
	kill -0 $pids
	sleep 0.1
done
for i in $(seq 20); do
	"$program" simulate --socket "$dir/cri-$i" --pods 8 --seed "$i" --churn-rate 0.05 -v error 2>"$dir/runtime-$i" &
	pids="$pids $!"
	"$program" run -r "unix://$dir/cri-$i" --wait-for-runtime --quiet -v error --nats "$url" --cluster demo --node "node-$i" 2>"$dir/agent-$i" &
	pids="$pids $!"
done
sleep 1
for pid in $pids; do # what the agents say is not shown: twenty of them say the same
	kill -0 "$pid" || { cat "$dir"/runtime-* "$dir"/agent-*; exit 1; } >&2
done
echo "20 nodes publish; the pods of all: $program pods --fleet $url --cluster demo" >&2
"$program" events --fleet "$url" --cluster demo --replay "$@"
