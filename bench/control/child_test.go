package control_test

import (
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func TestAskReportsErrorOutputOfChild(t *testing.T) {
	c, err := control.Start(t.Context(), "/bin/sh", "-c", `read a; echo '{"done":true}'; read b; echo no such socket >&2; exit 3`)
	if err != nil {
		t.Fatal(err)
	}
	var answer control.Report
	if err := c.Ask(control.Command{}, &answer); err != nil || !answer.Done {
		t.Errorf("good answer: %+v, %v", answer, err)
	}
	if err := c.Ask(control.Command{}, &answer); err == nil || !strings.Contains(err.Error(), "no such socket") {
		t.Errorf("answer of a process that has ended: %v", err)
	}
}
