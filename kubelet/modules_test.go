package kubelet_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// added are the modules that the drop-in brings into a kubelet, beside itself.
var added = []string{"github.com/sourcegraph/conc"}

// A kubelet with the drop-in uses each module in the version that a kubelet without it uses,
// whether the module is linked or not. The modules of k8s.io/kubernetes itself are released with
// it.
func TestModules(t *testing.T) {
	own := requirements(t)
	if len(own) < 200 {
		t.Errorf("the kubelet requires %d modules: the test does not read them", len(own))
	}
	for line := range strings.Lines(goList(t, "-m", "-f", "{{.Path}} {{.Version}}", "all")) {
		module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if want, known := own[module]; known && version != want && !strings.HasPrefix(module, "k8s.io/") {
			t.Errorf("the drop-in raises %s to %s, the kubelet has %s", module, version, want)
		}
	}
	for module := range strings.FieldsSeq(goList(t, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")) {
		_, known := own[module]
		if !known && module != "k8s.io/kubernetes" && !strings.HasPrefix(module, "github.com/pleg-pipeline/") && !slices.Contains(added, module) {
			t.Errorf("the drop-in needs %s, which the kubelet does not have: docs/embedding.md names these modules", module)
		}
	}
}

// requirements returns the versions in the go.mod of k8s.io/kubernetes.
func requirements(t *testing.T) map[string]string {
	text, err := os.ReadFile(strings.TrimSpace(goList(t, "-m", "-f", "{{.GoMod}}", "k8s.io/kubernetes")))
	if err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "\t") && len(fields) >= 2 && strings.HasPrefix(fields[1], "v") {
			versions[fields[0]] = fields[1]
		}
	}
	return versions
}

func goList(t *testing.T, args ...string) string {
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return string(out)
}
