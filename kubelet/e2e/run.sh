#!/bin/sh
# Installs what the test needs, builds the kubelets, and runs the test, as root. The
# first run also takes the time of three builds of the kubelet. Each of the
# KUBELET_E2E_RUNS (2) takes 15 minutes. KUBELET_E2E_SPAN (20s) is how long the idle
# node and the churn are measured, KUBELET_E2E_KINDS chooses kubelets ("stock
# pipeline"), PLEG_E2E_RUNTIME=cri-o runs it on CRI-O.
set -eu
cd "$(dirname "$0")"
../../tests/e2e/setup.sh "${PLEG_E2E_RUNTIME:-}"
./build.sh
exec "${GO:-go}" test -count=1 -v -timeout 6h .
