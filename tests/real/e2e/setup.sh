#!/bin/sh
# Installs the Debian packages that the end-to-end tests need: runc, the CNI
# plugins and iproute2; for "setup.sh cri-o" also what builds and runs CRI-O. It
# keeps what is already installed, and needs root only to install something. The
# tests build the runtimes themselves.
set -eu

missing=
command -v runc >/dev/null 2>&1 || missing="$missing runc"
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
case ${1:-} in cri-o*)
	command -v conmon >/dev/null 2>&1 || missing="$missing conmon"
	command -v skopeo >/dev/null 2>&1 || missing="$missing skopeo"
	command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
	command -v pkg-config >/dev/null 2>&1 || missing="$missing pkg-config"
	[ -e /usr/include/seccomp.h ] || missing="$missing libseccomp-dev"
esac
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "setup.sh: must run as root to install:$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of package names
apt-get install -y -qq --no-install-recommends $missing
