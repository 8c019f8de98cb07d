#!/bin/sh
# Installs what the tests need, builds the kubelets, and runs the tests, as root. The
# first time the builds take minutes. KUBELET_E2E_KINDS chooses kubelets ("stock pipeline"),
# KUBELET_E2E_SIZES (70, RelistCost: 110) is how many pods they have, KUBELET_E2E_RUNS how often each is
# measured, KUBELET_E2E_SPAN (20s) how long the node is idle; PLEG_E2E_RUNTIME=cri-o runs them
# on CRI-O. Arguments are those of go test.
set -eu
cd "$(dirname "$0")"
../e2e/setup.sh "${PLEG_E2E_RUNTIME:-}"
./build.sh
exec env GOWORK=off "${GO:-go}" test -count=1 -v -timeout 6h "$@" .
