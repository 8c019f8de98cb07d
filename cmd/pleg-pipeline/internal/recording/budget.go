package recording

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// limits are those of a whole recording. A small compressed file can stand for very much.
// Only tests change them.
var limits = [amounts]int{
	inBytes:  256 << 20, // without compression
	inValues: 4 << 20,   // of JSON; each takes some 100 bytes
	inListed: 16 << 20,  // the items of all lists, mostly those of the list before; each takes 8 bytes
	inWork:   1 << 30,   // to follow the changes; each takes some 10 ns
}

// budget is what a recording may still use.
type budget struct {
	ctx      context.Context //nolint:containedctx // it lives as long as one call of Read
	left     [amounts]int
	exceeded error
}

type amount int

const (
	inBytes amount = iota
	inValues
	inListed
	inWork
	amounts
)

var amountNames = [amounts]string{"bytes", "JSON values", "listed items", "steps of work"}

func newBudget(ctx context.Context) *budget {
	return &budget{ctx: ctx, left: limits}
}

// use reports whether n more are allowed and the context has not ended.
func (b *budget) use(a amount, n int) bool {
	if b.left[a] -= n; b.left[a] < 0 && b.exceeded == nil {
		b.exceeded = fmt.Errorf("%w: the limit is %d %s", ErrTooLarge, limits[a], amountNames[a])
	}
	return b.err() == nil
}

func (b *budget) err() error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	return b.exceeded
}

// useText counts the values of a JSON text, or a few more.
func (b *budget) useText(text []byte) bool {
	return b.use(inValues, 1+bytes.Count(text, []byte(","))+bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")))
}

// limitedReader reads until the budget is used up.
type limitedReader struct {
	io.Reader

	budget *budget
}

// Read implements [io.Reader].
func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.budget.use(inBytes, n) {
		return 0, r.budget.err()
	}
	return n, err
}
