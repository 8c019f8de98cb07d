package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
)

func TestEveryEventTypeIsDocumented(t *testing.T) {
	for path, page := range files(t, "subscriptions.md") {
		for _, typ := range eventtype.Types() {
			if row := fmt.Sprintf("| `%s` | `%s` |", typ, eventtype.Of(typ).Name); !strings.Contains(page, row) {
				t.Errorf("%s has no row %s", path, row)
			}
		}
	}
}
