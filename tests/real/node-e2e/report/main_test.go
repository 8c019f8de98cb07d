package main

import (
	"strings"
	"testing"
)

func TestTableNamesWhatDiffers(t *testing.T) {
	const stock = `<testsuites><testsuite>
		<testcase name="[SynchronizedBeforeSuite]"/>
		<testcase name="[It] [sig-node] same"/>
		<testcase name="[It] [sig-node] differs"><failure>x</failure></testcase>
		<testcase name="[It] [sig-node] elsewhere"><skipped message="skipped"/></testcase>
		<testcase name="[It] [sig-node] unable"><skipped message="skipped - no swap"/></testcase>
	</testsuite></testsuites>`
	const pipeline = `<testsuites><testsuite>
		<testcase name="[It] [sig-node] same"/>
		<testcase name="[It] [sig-node] differs"/>
		<testcase name="[It] [sig-node] unable"><skipped message="skipped - no swap"/></testcase>
		<testcase name="[It] [sig-node] more"><error/></testcase>
	</testsuite></testsuites>`
	r := results{"stock": {}, "pipeline": {}}
	for kind, text := range map[string]string{"stock": stock, "pipeline": pipeline} {
		if err := r.add(kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `| specs | stock | pipeline |
| --- | ---: | ---: |
| passed | 1 | 2 |
| failed | 1 | 1 |
| skipped | 1 | 1 |
| differs | failed | passed |
| more | did not run | failed |
`
	if got := out.String(); got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
}
