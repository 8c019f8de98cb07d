#!/bin/sh
# Installs what the tests need, builds the kubelets, and runs the tests, as root. The
# first time the builds take minutes. TestSideBySide runs one kubelet after the other,
# KUBELET_E2E_RUNS times (2), 3 minutes each. KUBELET_E2E_SPAN (20s) is how long
# TestKubeletRestart measures the idle node, KUBELET_E2E_KINDS chooses kubelets
# ("stock pipeline"), PLEG_E2E_RUNTIME=cri-o runs them on CRI-O. Arguments are those of go test.
set -eu
cd "$(dirname "$0")"
../e2e/setup.sh "${PLEG_E2E_RUNTIME:-}"
./build.sh
exec env GOWORK=off "${GO:-go}" test -count=1 -v -timeout 6h "$@" .
