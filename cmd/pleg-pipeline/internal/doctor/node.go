package doctor

import (
	"fmt"
	"io/fs"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
)

// Node contains the kernel's figures. Unknown figures are left out.
type Node struct {
	// IOPressure, CPUPressure and MemoryPressure are the percentages of the last ten
	// seconds in which a process waited for the resource.
	IOPressure     *float64 `json:"ioPressure,omitempty"`
	CPUPressure    *float64 `json:"cpuPressure,omitempty"`
	MemoryPressure *float64 `json:"memoryPressure,omitempty"`
	host.Facts
}

// readPressure reads the kernel's pressure figures, if there are any.
func (n *Node) readPressure(files fs.FS) {
	n.IOPressure, n.CPUPressure, n.MemoryPressure = pressure(files, "io"), pressure(files, "cpu"), pressure(files, "memory")
}

// pressure returns avg10 of the first line of a file such as
// "some avg10=1.23 avg60=0.50 avg300=0.10 total=123".
func pressure(files fs.FS, name string) *float64 {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil
	}
	var value float64
	if _, err := fmt.Sscanf(string(text), "some avg10=%f ", &value); err != nil {
		return nil
	}
	return &value
}
