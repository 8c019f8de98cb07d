package conform

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s %s\n\n", r.Runtime, r.Version)
	fmt.Fprint(table, "VERDICT\tPROMISE\tEVIDENCE\tPROMISED BY\n")
	counts := make(map[Verdict]int)
	for _, row := range r.Rows {
		counts[row.Verdict]++
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", row.Verdict, row.Promise, row.Evidence, row.Source)
	}
	fmt.Fprintf(table, "\n%d kept, %d broken, %d not offered, %d not tested\n", counts[Kept], counts[Broken], counts[NotOffered], counts[NotTested])
	return table.Flush()
}
