package conform_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/conform"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// root is the folder of the module.
const root = "../../../.."

// reports are the files in docs/conform, which "make conform" writes, and the heads
// of their columns.
var reports = []struct{ file, head string }{
	{"containerd-1.6", "containerd 1.6"},
	{"containerd-1.7", "containerd 1.7"},
	{"containerd", "containerd 2.4"},
	{"cri-o", "CRI-O, events on"},
	{"cri-o-without-events", "CRI-O, events off"},
}

// answers are the tests of what pleg-pipeline does if a promise is broken.
var answers = map[string][]string{
	"events-off":        {"TestStreamThatEndsEarlyIsNeverUp"},
	"container-events":  {"TestUnannouncedChangeEndsTrustUntilQuiet"},
	"sandbox-events":    {"TestUnannouncedChangeEndsTrustUntilQuiet"},
	"order":             {"TestOlderObservationsAreIgnored"},
	"once":              {"TestClientFollowsNode"},
	"every-client":      {"TestUnannouncedChangeEndsTrustUntilQuiet"},
	"complete":          {"TestIncompleteCRIEventRelistsThePod"},
	"agree":             {"TestHintMovesNoStateBackward"},
	"read-after":        {"TestRemovedContainerIsIgnoredForTenSeconds"},
	"created-at":        {"TestOlderObservationsAreIgnored"},
	"unread-client":     {"TestSlowReaderDoesNotBlockRuntime", "TestEventStreamFaultsCostNoTruth"},
	"reconnect":         {"TestStreamThatComesUpDuringAListGetsAnotherList"},
	"backlog":           {"TestOlderObservationsAreIgnored"},
	"status-in-sandbox": {"TestPodStatusEqualsAllCalls"},
	"final-exit":        {"TestPodStatusCalls"},
	"streaming-lists":   {"TestListStreamsAreTriedAgainAfterReconnect"},
	"not-found":         {"TestPodStatusErrors"},
	"large-list":        {"TestTooLargeListIsListedInPortions"},
	"exit-while-down":   {"TestFaultsInShort"},
}

// TestMatrixIsGenerated compares docs/runtimes.md with the reports of real runs.
func TestMatrixIsGenerated(t *testing.T) {
	page := filepath.Join(root, "docs/runtimes.md")
	text, err := os.ReadFile(page)
	kit.Must(t, err)
	const begin, end = "<!-- generated: make conform -->\n", "<!-- end -->\n"
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("docs/runtimes.md has no %q or %q", begin, end)
	}
	want := head + begin + matrix(t) + end + tail
	if os.Getenv("UPDATE_GOLDEN") != "" {
		kit.Must(t, os.WriteFile(page, []byte(want), 0o644))
	} else if string(text) != want {
		t.Error("docs/runtimes.md is not what docs/conform says: UPDATE_GOLDEN=1 make test PKG=./cmd/pleg-pipeline/internal/conform")
	}
}

func matrix(t *testing.T) string {
	t.Helper()
	var table, evidence strings.Builder
	all := make([]map[string]conform.Row, len(reports))
	var order []conform.Row
	table.WriteString("| promise |")
	for i, r := range reports {
		all[i] = make(map[string]conform.Row)
		report := readReport(t, r.file)
		for _, row := range report.Rows {
			all[i][row.ID] = row
		}
		order = report.Rows
		fmt.Fprintf(&table, " %s |", r.head)
	}
	table.WriteString(" if not kept, pleg-pipeline |\n|" + strings.Repeat(" --- |", len(reports)+2) + "\n")
	for _, row := range order {
		answer := row.Pipeline
		if names, ok := answers[row.ID]; ok {
			answer += " (`" + strings.Join(names, "`, `") + "`)"
		}
		fmt.Fprintf(&table, "| %s |", row.Promise)
		var broken strings.Builder
		for i, r := range reports {
			cell := all[i][row.ID]
			fmt.Fprintf(&table, " %s |", mark(cell))
			if cell.Verdict == conform.Broken {
				fmt.Fprintf(&broken, "- %s: %s\n", r.head, cell.Evidence)
			}
		}
		if broken.Len() > 0 {
			fmt.Fprintf(&evidence, "\n%s (%s):\n\n%s", row.Promise, row.Source, broken.String())
		}
		fmt.Fprintf(&table, " %s |\n", answer)
	}
	return table.String() + "\n## What was broken\n" + evidence.String()
}

func mark(row conform.Row) string {
	switch row.Verdict {
	case conform.Broken:
		return "**broken**"
	case conform.NotTested:
		return ""
	case conform.Kept:
		if row.ID == "exit-delay" {
			return row.Evidence
		}
		return "kept"
	default:
		return string(row.Verdict)
	}
}

func readReport(t *testing.T, name string) (r conform.Report) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/conform", name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	kit.Must(t, err)
	return r
}
