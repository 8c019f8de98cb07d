package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestEveryEventTypeIsDocumented(t *testing.T) {
	for path, page := range files(t, "subscriptions.md") {
		for _, typ := range pleg.EventTypes() {
			if row := fmt.Sprintf("| `%s` | `%s` |", typ, typ.Info().Name); !strings.Contains(page, row) {
				t.Errorf("%s has no row %s", path, row)
			}
		}
	}
}
