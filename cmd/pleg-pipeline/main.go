// Command pleg-pipeline prints and serves the pod lifecycle events of a container
// runtime. Run "pleg-pipeline help" for the manual.
package main

import (
	"os"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

func main() {
	os.Exit(cli.Main())
}
