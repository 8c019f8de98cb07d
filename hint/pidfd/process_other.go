//go:build !linux

package pidfd

import (
	"context"
	"errors"

	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
)

type process struct{}

func openFirst(containerindex.Host, string) (*process, error) { return nil, errors.ErrUnsupported }

func (*process) close()                          {}
func (*process) wait(context.Context) bool       { return false }
func (*process) exitCode(context.Context) *int32 { return nil }
