// Package position formats and parses positions in the event stream, as people and
// HTTP headers write them: EPOCH:SEQ.
package position

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse returns the parts of EPOCH:SEQ. SEQ alone has no epoch: it counts as a
// position of the pipeline that is asked, which then cannot check that.
func Parse(s string) (epoch string, seq uint64, err error) {
	number := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		epoch, number = s[:i], s[i+1:]
	}
	seq, err = strconv.ParseUint(number, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a position: want EPOCH:SEQ or SEQ, such as 3c5e1f0a9b7d2468:120", s)
	}
	return epoch, seq, nil
}

// Format returns EPOCH:SEQ, or SEQ without an epoch.
func Format(epoch string, seq uint64) string {
	number := strconv.FormatUint(seq, 10)
	if epoch == "" {
		return number
	}
	return epoch + ":" + number
}
