package cli

import (
	"io"
	"log/slog"
)

// NewLog returns a log of level debug, whose lines are limited.
func NewLog(w io.Writer) *slog.Logger { return logFlags{level: "debug"}.console(w).log }

// OnlyHung reports whether all pods that wait for their inspection hang.
var OnlyHung = onlyHung
