// Command pleg-pipeline prints the pod lifecycle events of a container runtime.
// See pleg-pipeline help.
package main

import (
	"os"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

func main() {
	os.Exit(cli.Main())
}
