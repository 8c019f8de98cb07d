// Package deploy_test tests the files in deploy/: the manifests, the alerts and the
// dashboard. It needs promtool and prometheus (Debian: prometheus).
package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of a folder of deploy.
type manifests struct {
	daemonSet appsv1.DaemonSet
	namespace corev1.Namespace
	network   networkingv1.NetworkPolicy
	config    corev1.ConfigMap
	monitor   monitoringv1.PodMonitor
	kinds     map[string]int
}

// build builds a folder with kustomize. A field that Kubernetes does not know is an
// error.
func build(t *testing.T, folder string) (m manifests) {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("..", folder))
	must(t, err)
	m.kinds = make(map[string]int)
	for _, object := range objects.Resources() {
		m.kinds[object.GetKind()]++
		var into any
		switch object.GetKind() {
		case "DaemonSet":
			into = &m.daemonSet
		case "ConfigMap":
			into = &m.config
		case "Namespace":
			into = &m.namespace
		case "NetworkPolicy":
			into = &m.network
		case "PodMonitor":
			into = &m.monitor
		case "PrometheusRule":
			into = &monitoringv1.PrometheusRule{}
		default:
			t.Errorf("%s has a %s: RBAC and Secrets are not needed", folder, object.GetKind())
			continue
		}
		text, err := object.AsYAML()
		if err == nil {
			err = yaml.UnmarshalStrict(text, into)
		}
		if err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	if n := len(m.daemonSet.Spec.Template.Spec.Containers); n != m.kinds["DaemonSet"] {
		t.Errorf("%s has %d containers, want one", folder, n)
	}
	return m
}

func TestManifests(t *testing.T) {
	for folder, socket := range map[string]string{
		"base":           "/run/containerd/containerd.sock",
		"overlays/crio":  "/run/crio/crio.sock",
		"overlays/k3s":   "/run/k3s/containerd/containerd.sock",
		"overlays/fleet": "/run/containerd/containerd.sock",
	} {
		t.Run(folder, func(t *testing.T) {
			m := build(t, folder)
			if name := m.namespace.Name; name != "pleg-pipeline" || m.namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" || m.daemonSet.Namespace != name || m.config.Namespace != name || m.network.Namespace != name {
				t.Errorf("%+v, and the objects are in %s, %s and %s", m.namespace.ObjectMeta, m.daemonSet.Namespace, m.config.Namespace, m.network.Namespace)
			}
			if labels := map[string]string{"app.kubernetes.io/name": "pleg-pipeline"}; !maps.Equal(m.daemonSet.Spec.Selector.MatchLabels, labels) || !maps.Equal(m.daemonSet.Spec.Template.Labels, labels) || len(m.network.Spec.PodSelector.MatchLabels) > 0 {
				t.Errorf("the labels are %v, of pods %v, and the network policy is of %v and not of all pods", m.daemonSet.Spec.Selector, m.daemonSet.Spec.Template.Labels, m.network.Spec.PodSelector)
			}
			if m.kinds["DaemonSet"] != 1 || m.kinds["NetworkPolicy"] != 1 || m.kinds["ConfigMap"] != 1 {
				t.Errorf("kinds %v", m.kinds)
			}
			pod := m.daemonSet.Spec.Template.Spec
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "" {
				t.Error("the pod gets a token of the API server")
			}
			requireNoCapability(t, pod.Containers[0].SecurityContext)
			requireFolder(t, pod, filepath.Dir(socket))
			requireFolder(t, pod, "/run/pleg-pipeline") // of its own socket
			requireWiring(t, m)
			if !strings.Contains(m.config.Data["pleg-pipeline.yaml"], "runtime-endpoint: unix://"+socket+"\n") {
				t.Errorf("the settings do not name %s:\n%s", socket, m.config.Data["pleg-pipeline.yaml"])
			}
			if of := "\nnats: nats://nats.nats.svc:4222\ncluster: example\n"; strings.Contains(m.config.Data["pleg-pipeline.yaml"], of) != (folder == "overlays/fleet") {
				t.Errorf("only the fleet's daemons publish, by %q: %s", of, m.config.Data["pleg-pipeline.yaml"])
			}
			requireSettings(t, m.config.Data["pleg-pipeline.yaml"])
			if !strings.Contains(m.config.Data["pleg-pipeline.yaml"], "\nevents: \"off\"\n") {
				t.Error("events are on: a daemon that is stopped would block the node")
			}
		})
	}
}

// requireWiring requires that the parts of the manifests which name each other fit, and what keeps a daemon alive on
// every node.
func requireWiring(t *testing.T, m manifests) {
	t.Helper()
	pod, settings := m.daemonSet.Spec.Template.Spec, m.config.Data["pleg-pipeline.yaml"]
	c := pod.Containers[0]
	for _, p := range c.Ports {
		if name := map[string]string{"http": "listen", "health": "health-listen"}[p.Name]; !strings.Contains(settings, fmt.Sprintf("\n%s: 0.0.0.0:%d\n", name, p.ContainerPort)) {
			t.Errorf("the port %s is %d, with the settings\n%s", p.Name, p.ContainerPort, settings)
		}
	}
	if in := m.network.Spec.Ingress; len(in) != 1 || len(in[0].Ports) != 1 || in[0].Ports[0].Port.StrVal != "http" || len(c.Ports) != 2 {
		t.Errorf("%+v allows others than Prometheus, or not the port http of %+v", in, c.Ports)
	}
	if !slices.Equal(c.Args, []string{"run", "--config-file=/etc/pleg-pipeline/pleg-pipeline.yaml"}) || !strings.Contains(settings, "\nsocket: /run/pleg-pipeline/pleg.sock\n") {
		t.Errorf("the arguments are %q, and the settings\n%s", c.Args, settings)
	}
	if len(pod.Containers) != 1 || len(c.VolumeMounts) != 3 || len(pod.Volumes) != 3 {
		t.Errorf("it has %d containers with %+v, want one with the settings, the runtime and the socket", len(pod.Containers), c.VolumeMounts)
	}
	of := make(map[string]string)
	for _, mount := range c.VolumeMounts {
		of[mount.MountPath] = mount.Name
		if own := mount.MountPath == "/run/pleg-pipeline"; mount.ReadOnly == own {
			t.Errorf("%s is mounted read-only: %v", mount.MountPath, mount.ReadOnly)
		}
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == of["/etc/pleg-pipeline"] && v.ConfigMap != nil && v.ConfigMap.Name == m.config.Name
	}) {
		t.Errorf("%s is not mounted: %+v, %+v", m.config.Name, pod.Volumes, c.VolumeMounts)
	}
	env := make(map[string]corev1.EnvVar)
	for _, v := range c.Env {
		env[v.Name] = v
	}
	if v := env["NODE_NAME"].ValueFrom; v == nil || v.FieldRef == nil || v.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("the name of the node is %+v", v)
	}
	if r := c.Resources; fmt.Sprint(r.Requests.Cpu(), " ", r.Requests.Memory(), " ", len(r.Limits), " ", r.Limits.Memory()) != "20m 48Mi 1 256Mi" {
		t.Errorf("it requests and may take %+v", r)
	}
	var soft int64 // MiB
	if _, err := fmt.Sscanf(env["GOMEMLIMIT"].Value, "%dMiB", &soft); err != nil || soft<<20 >= c.Resources.Limits.Memory().Value() || soft<<20 <= c.Resources.Requests.Memory().Value() {
		t.Errorf("it collects garbage more often at %d MiB, %v, with the resources %+v", soft, err, c.Resources)
	}
	anywhere := func(x corev1.Toleration) bool {
		return x.Operator == corev1.TolerationOpExists && x.Key == "" && x.Effect == ""
	}
	if !slices.ContainsFunc(pod.Tolerations, anywhere) || pod.PriorityClassName != "system-node-critical" || !maps.Equal(pod.NodeSelector, map[string]string{"kubernetes.io/os": "linux"}) {
		t.Errorf("it runs with the tolerations %+v and the priority %q on %v", pod.Tolerations, pod.PriorityClassName, pod.NodeSelector)
	}
	if start, live := c.StartupProbe, c.LivenessProbe; start.PeriodSeconds != 1 || start.FailureThreshold != 60 || live.PeriodSeconds != 10 || live.TimeoutSeconds != 5 || *pod.TerminationGracePeriodSeconds != 10 {
		t.Errorf("it is probed as %+v and %+v, and may take %d s to end", start, live, *pod.TerminationGracePeriodSeconds)
	}
	if shell := m.daemonSet.Spec.Template.Annotations["kubectl.kubernetes.io/default-container"]; shell != c.Name || !strings.HasPrefix(c.Image, "localhost/pleg-pipeline:v") || *pod.EnableServiceLinks || *c.SecurityContext.RunAsUser != 0 {
		t.Errorf("%s of %s, for kubectl %s, with the variables of services: %v, as user %d", c.Name, c.Image, shell, *pod.EnableServiceLinks, *c.SecurityContext.RunAsUser)
	}
	for _, v := range pod.Volumes { // a folder of the runtime is not made before it
		if want := map[bool]corev1.HostPathType{true: corev1.HostPathDirectoryOrCreate, false: corev1.HostPathDirectory}[v.Name == "socket"]; v.HostPath != nil && *v.HostPath.Type != want {
			t.Errorf("the folder %s is mounted as %s, want %s", v.HostPath.Path, *v.HostPath.Type, want)
		}
	}
	u := m.daemonSet.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate == nil || u.RollingUpdate.MaxUnavailable.StrVal != "10%" || m.daemonSet.Spec.MinReadySeconds != 10 {
		t.Errorf("a new version replaces all daemons, although they crash: %+v, after %d s", u, m.daemonSet.Spec.MinReadySeconds)
	}
	if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context %+v", s)
	}
}

// TestHost requires that the daemon of this overlay sees the node, and gets nothing else.
func TestHost(t *testing.T) {
	base, m := build(t, "base").daemonSet.Spec.Template.Spec, build(t, "overlays/host")
	pod := m.daemonSet.Spec.Template.Spec
	context := pod.Containers[0].SecurityContext
	if !pod.HostPID || !pod.HostNetwork || !slices.Equal(context.Capabilities.Add, []corev1.Capability{"SYS_PTRACE"}) {
		t.Errorf("hostPID %v, hostNetwork %v, capabilities %v", pod.HostPID, pod.HostNetwork, context.Capabilities)
	}
	context.Capabilities.Add = nil
	requireNoCapability(t, context)
	if base.HostPID || base.HostNetwork || len(pod.Volumes) != len(base.Volumes) || len(pod.Containers) != 1 {
		t.Errorf("hostPID %v and hostNetwork %v without the overlay; volumes %v", base.HostPID, base.HostNetwork, pod.Volumes)
	}
}

// TestMonitoring requires that the Prometheus operator knows each field of its objects, that
// Grafana's sidecar finds the dashboard, and that Grafana's schema knows each of its fields.
func TestMonitoring(t *testing.T) {
	m := build(t, "monitoring")
	if want := map[string]int{"PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1}; !maps.Equal(m.kinds, want) {
		t.Errorf("kinds %v, want %v", m.kinds, want)
	}
	const name = "pleg-pipeline"
	if own := m.monitor.ObjectMeta; own.Name != name || own.Namespace != name || own.Labels["app.kubernetes.io/name"] != name || m.config.Namespace != name || !strings.HasPrefix(m.config.Name, name+"-dashboard-") {
		t.Errorf("the monitor is %+v, and the dashboard %s in %s", own, m.config.Name, m.config.Namespace)
	}
	selected, endpoints := m.monitor.Spec.Selector.MatchLabels, m.monitor.Spec.PodMetricsEndpoints
	if pods := build(t, "base").daemonSet.Spec.Template.Labels; len(selected) == 0 || !maps.Equal(selected, pods) {
		t.Errorf("the monitor is of pods with %v, and the daemon's have %v", selected, pods)
	}
	if len(endpoints) != 1 || endpoints[0].Port == nil || *endpoints[0].Port != "http" || len(endpoints[0].RelabelConfigs) != 1 ||
		endpoints[0].RelabelConfigs[0].TargetLabel != "instance" || !slices.Equal(endpoints[0].RelabelConfigs[0].SourceLabels, []monitoringv1.LabelName{"__meta_kubernetes_pod_node_name"}) {
		t.Errorf("the node is not the instance of the metrics: %+v", endpoints)
	}
	plugins.RegisterDefaultPlugins() // the types of panels and queries
	//nolint:staticcheck // every Grafana imports this version of the schema
	var board dashboard.Dashboard
	if err := board.UnmarshalJSONStrict([]byte(m.config.Data["dashboard.json"])); err != nil && err.Error() != "" { // an empty list is no error
		t.Errorf("dashboard.json: %v", err)
	}
	if m.config.Labels["grafana_dashboard"] != "1" || len(board.Panels) == 0 {
		t.Errorf("no dashboard: %+v", m.config.ObjectMeta)
	}
	requirePanels(t)
}

// requirePanels requires the panels of the dashboard: their types, titles, descriptions, units and series, the columns and colors
// of the table, and what can be chosen.
func requirePanels(t *testing.T) {
	t.Helper()
	var board struct {
		Refresh    string
		Time       struct{ From, To string }
		Templating struct {
			List []struct {
				Name, Label       string
				Query             any
				IncludeAll, Multi bool
				AllValue          string
				Refresh           int
				Current           any
			}
		}
		Panels []struct {
			Type, Title, Description string
			FieldConfig              struct {
				Defaults  struct{ Unit string }
				Overrides []struct {
					Matcher    any
					Properties []struct {
						ID    string
						Value any
					}
				}
			}
			Targets         []struct{ LegendFormat string }
			Transformations []struct {
				ID      string
				Options any
			}
		}
	}
	readYAML(t, "../monitoring/dashboard.json", &board)
	const choices = "{30s {now-1h now} {[{datasource Data source prometheus false false  0 <nil>} " +
		"{instance Node map[query:label_values(pleg_healthy, instance) refId:instance] true true .* 2 map[text:All value:$__all]}]}}"
	if got := fmt.Sprintf("{%s %v %v}", board.Refresh, board.Time, board.Templating); got != choices {
		t.Errorf("the dashboard has the choices\n%s\nwant\n%s", got, choices)
	}
	var got []string
	for _, p := range board.Panels {
		const colors = "[{map[id:byName options:Verdict] [{mappings [map[options:map[ok:map[color:green] problem:map[color:red] warning:map[color:orange]] type:value]]} " +
			"{custom.cellOptions map[type:color-text]}]} {map[id:byRegexp options:For|Last list] [{unit s}]}]"
		const columns = "[{filterFieldsByName map[include:map[pattern:^(instance|level|cause|Value.*)$]]} {merge map[]} " +
			"{organize map[indexByName:map[Value #A:3 Value #B:4 Value #D:5 cause:2 instance:0 level:1] " +
			"renameByName:map[Value #A:For Value #B:Pods that hang Value #D:Last list cause:Cause instance:Node level:Verdict]]} {sortBy map[sort:[map[desc:true field:For]]]}]"
		if of, table := fmt.Sprint(p.FieldConfig.Overrides, p.Transformations), p.Type == "table"; of != map[bool]string{true: colors + " " + columns, false: "[] []"}[table] {
			t.Errorf("the panel %s has the colors and columns\n%s", p.Title, of)
		}
		text := p.Type + " " + p.Title + " in " + p.FieldConfig.Defaults.Unit
		if p.Description != "" {
			text += " (" + p.Description + ")"
		}
		text += ":"
		for _, target := range p.Targets {
			text += " " + target.LegendFormat + ","
		}
		got = append(got, strings.TrimRight(text, " ,"))
	}
	const of = "{{instance}}"
	if want := []string{
		"stat Healthy in short (1 while /readyz says ok): " + of, "stat Pods that hang in short (The log and /readyz?verbose name them): " + of, "stat Running containers in short: " + of, "stat Version in short: " + of + " {{version}}",
		"table Nodes, the worst first in short (pleg-pipeline doctor --fleet names the pods and the calls):", "timeseries Events in ops (Published, whatever the number of subscribers): {{type}}", "timeseries Age of the last successful list in s (Unhealthy from 3 minutes on; with trusted events up to 10 s is normal): " + of,
		"timeseries Duration of a list, p99 in s: " + of, "timeseries Duration of an inspection in s: p50, p99",
		"timeseries Inspections in short (What waits, and how many pods are inspected at once): " + of + " in flight, " + of + " hung, " + of + " waiting", "timeseries Oldest inspection in s (Grows while an inspection hangs): " + of,
		"timeseries Errors in ops: " + of + " list, " + of + " inspection, " + of + " list of one pod", "timeseries Calls of the runtime in ops: {{operation_type}}",
		"timeseries Event stream in short (Missed: a list found a change that no CRI event announced): " + of + " up, " + of + " changes that a list of all pods found, a second",
		"timeseries Subscribers in short (A subscriber that does not read misses events and gets one PodSync for each pod): " + of + " {{subscriber}} missed, " + of + " {{subscriber}} oldest event",
		"timeseries Memory in bytes: " + of, "timeseries CPU in percentunit: " + of,
	}; !slices.Equal(got, want) {
		t.Errorf("the dashboard has\n%q\nwant\n%q", got, want)
	}
}

// TestWebConfig requires that the component mounts its file, and that the probes go to a port
// without TLS and passwords.
func TestWebConfig(t *testing.T) {
	m := build(t, "test/testdata/web-config")
	pod := m.daemonSet.Spec.Template.Spec
	c := pod.Containers[0]
	requireFolder(t, pod, "/run/crio")
	if !slices.Contains(c.Env, corev1.EnvVar{Name: "PLEG_PIPELINE_WEB_CONFIG", Value: "/etc/pleg-pipeline-web/web-config.yaml"}) {
		t.Errorf("the environment has no web-config: %v", c.Env)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool {
		return v.Name == "web" && v.MountPath == "/etc/pleg-pipeline-web" && v.ReadOnly
	}) || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == "web" && v.Secret != nil && v.Secret.SecretName == "pleg-pipeline-web"
	}) {
		t.Errorf("the secret is not mounted: %+v of %+v", c.VolumeMounts, pod.Volumes)
	}
	port := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "health" })
	if port < 0 || !strings.Contains(m.config.Data["pleg-pipeline.yaml"], fmt.Sprintf("health-listen: 0.0.0.0:%d\n", c.Ports[port].ContainerPort)) {
		t.Errorf("ports %v, settings\n%s", c.Ports, m.config.Data["pleg-pipeline.yaml"])
	}
	for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe} {
		if p.HTTPGet.Port.StrVal != "health" || p.HTTPGet.Scheme != "" || p.HTTPGet.Path != "/livez" {
			t.Errorf("%s probe: %+v", name, p.HTTPGet)
		}
	}
	if c.ReadinessProbe != nil {
		t.Errorf("a runtime that is down makes the pod unready, which stops a rollout: %+v", c.ReadinessProbe)
	}
}

// TestEgress requires that the daemon may connect to the addresses in the settings, and to nothing
// else.
func TestEgress(t *testing.T) {
	for folder, want := range map[string]string{
		"base":               "",
		"overlays/fleet":     "4222/TCP 53/UDP 53/TCP",
		"test/testdata/otlp": "4222/TCP 53/UDP 53/TCP 4317/TCP 53/UDP 53/TCP",
	} {
		m := build(t, folder)
		policy := m.network.Spec
		var got []string
		for _, rule := range policy.Egress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s: a rule allows every port", folder)
			}
			for _, port := range rule.Ports {
				got = append(got, fmt.Sprintf("%v/%s", port.Port, *port.Protocol))
			}
		}
		if !slices.Contains(policy.PolicyTypes, networkingv1.PolicyTypeEgress) || strings.Join(got, " ") != want {
			t.Errorf("%s: %v allows %q, want %q", folder, policy.PolicyTypes, got, want)
		}
		addresses := m.config.Data["pleg-pipeline.yaml"]
		for _, v := range m.daemonSet.Spec.Template.Spec.Containers[0].Env {
			addresses += "\n" + v.Value
		}
		ports := regexp.MustCompile(`://[^/\s]+:(\d+)`).FindAllStringSubmatch(addresses, -1)
		for _, port := range ports {
			if !slices.Contains(got, port[1]+"/TCP") {
				t.Errorf("%s: the daemon may not connect to %s", folder, port[0])
			}
		}
		if len(ports) != strings.Count(want, "53/UDP") {
			t.Errorf("%s: the settings name %q, want one address for each rule", folder, ports)
		}
	}
}

// TestOTLP requires that the program takes the variables of the component.
func TestOTLP(t *testing.T) {
	m := build(t, "test/testdata/otlp")
	for _, v := range m.daemonSet.Spec.Template.Spec.Containers[0].Env {
		if v.Value != "" {
			t.Setenv(v.Name, v.Value)
		}
	}
	requireSettings(t, m.config.Data["pleg-pipeline.yaml"], "otlp: http://otel-collector.observability.svc:4317 # PLEG_PIPELINE_OTLP", "cluster: example # PLEG_PIPELINE_CLUSTER")
}

// requireNoCapability requires that the daemon runs without a capability and cannot gain any.
func requireNoCapability(t *testing.T, c *corev1.SecurityContext) {
	t.Helper()
	if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Capabilities == nil ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
		t.Errorf("security context %+v, want no capability", c)
	}
}

// The same for the systemd unit.
func TestUnitHasNoCapability(t *testing.T) {
	unit, err := os.ReadFile("../../docs/pleg-pipeline.service")
	must(t, err)
	for _, line := range []string{"CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit has no line %q", line)
		}
	}
}

// requireFolder requires that the folder of the runtime's socket is mounted at the path in the
// settings: a mounted socket would not survive a restart of the runtime.
func requireFolder(t *testing.T, pod corev1.PodSpec, folder string) {
	t.Helper()
	host := make(map[string]string)
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			host[v.Name] = v.HostPath.Path
		}
	}
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.MountPath == folder && host[mount.Name] == folder {
			return
		}
	}
	t.Errorf("%s is not mounted: volumes %v, mounts %v", folder, host, pod.Containers[0].VolumeMounts)
}

// requireSettings requires that the program takes a file of settings, and contains the lines.
func requireSettings(t *testing.T, settings string, lines ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	must(t, os.WriteFile(file, []byte(settings), 0o600))
	out, err := exec.CommandContext(t.Context(), program(t), "run", "--config-file", file, "--print-config").CombinedOutput()
	// Without wait-for-runtime the daemon exits if there is no runtime yet.
	for _, line := range append(lines, "quiet: true # "+file, "log-format: json # "+file, "wait-for-runtime: true # "+file) {
		if err != nil || !strings.Contains(string(out), line+"\n") {
			t.Errorf("the program does not print %q: %v\n%s", line, err, out)
		}
	}
}
