#!/bin/bash
# Runs a part of the suite inside sandbox.sh: suite.sh KUBELET PART FOLDER [FLAG OF GINKGO...]. The folder
# gets the report and the logs.
set -eu
here=$PWD
bin=$here/.bin
kubelet=$1 part=$2 out=$3
shift 3
export PATH=$here/shim:$bin:$PATH

rm -rf "$out"
mkdir -p "$out/bin" "$out/cwd" "$out/report"
cp "$kubelet" "$out/bin/kubelet" # the suite looks for it beside itself
ln -s "$bin/e2e_node.test" "$out/bin/"

# No registry can be reached: a pull fails at once.
echo nameserver 127.0.0.1 > /run/resolv.conf
mount --bind /run/resolv.conf /etc/resolv.conf

mkdir -p /run/cni
cat > /run/cni/10-node-e2e.conflist <<-CONF
	{"cniVersion": "1.0.0", "name": "node-e2e", "plugins": [{"type": "bridge", "bridge": "e2e0", "isGateway": true,
	"ipam": {"type": "host-local", "dataDir": "/run/cni/ipam", "ranges": [[{"subnet": "10.213.0.0/16"}]]}}]}
CONF
cat > /run/containerd.toml <<-CONF
	version = 3
	root = "/run/containerd-root"
	state = "/run/containerd"
	[grpc]
	address = "/run/containerd.sock"
	[ttrpc]
	address = "/run/containerd.sock.ttrpc"
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	sandbox = "registry.k8s.io/pause:3.10.2"
	[plugins.'io.containerd.cri.v1.runtime']
	restrict_oom_score_adj = true
	[plugins.'io.containerd.cri.v1.runtime'.cni]
	bin_dirs = ["/usr/lib/cni"]
	conf_dir = "/run/cni"
CONF
containerd -c /run/containerd.toml > "$out/containerd.log" 2>&1 &
echo $! > /run/containerd.pid
ctr="ctr -a /run/containerd.sock -n k8s.io"
for _ in $(seq 300); do
	$ctr plugins ls 2>/dev/null | grep -Eq '^io.containerd.grpc.v1 +cri .* ok' && break
	sleep 0.2
done
for image in "$bin"/image/*.tar; do
	$ctr images import --label io.cri-containerd.pinned=pinned "$image" > /dev/null
done

cat > /run/system.yaml <<-CONF
	os: Linux
	kernelSpec: {versions: [".*"]}
CONF
cat > /run/kubelet.yaml <<-CONF
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	cgroupRoot: /
	cgroupDriver: cgroupfs
	failCgroupV1: false
	failSwapOn: false
	maxPods: 120
	nodeStatusUpdateFrequency: 2s
	nodeStatusReportFrequency: 5s
	volumeStatsAggPeriod: 10s
	serializeImagePulls: false
	fileCheckFrequency: 10s
	podCIDR: 10.100.0.0/24
	makeIPTablesUtilChains: false
	localStorageCapacityIsolation: false
	resolvConf: ""
	evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}
	imageGCHighThresholdPercent: 100
CONF

ours='PLEG when a container status takes 100 ms'
files=(container_lifecycle container_restart restart restart_all_containers pods_lifecycle_termination mirror_pod static_pod
	deleted_pods unknown_pods pods_api criproxy garbage_collector log_path)
chosen=(--skip 'should successfully restart when the image is updated') # three specs that always pull need a registry
for file in "${files[@]}"; do chosen+=(--focus-file="e2e_node/${file}_test.go"); done
procs=1
case $part in
parallel) procs=${NODE_E2E_PROCS:-8} chosen+=(--skip '\[Serial\]') ;;
serial) chosen+=(--label-filter Serial) ;;
slow) chosen=(--focus "$ours") ;;
esac

cd "$out/cwd"
began=$(date +%s)
rc=0
ginkgo --procs="$procs" --timeout 6h --no-color -v "${chosen[@]}" "$@" "$out/bin/e2e_node.test" -- \
	--node-name=node-e2e --kubelet-config-file=/run/kubelet.yaml --container-runtime-endpoint=unix:///run/containerd.sock \
	--container-runtime-pid-file=/run/containerd.pid --prepull-images=false --report-dir="$out/report" \
	--system-spec-file=/run/system.yaml --cri-proxy-enabled="$([ $procs = 1 ] && echo true || echo false)" --v=4 > "$out/log" 2>&1 || rc=$?
echo "ginkgo: $rc after $(($(date +%s) - began)) s"
exit $rc
