package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// entry is the last message of a key in a bucket.
type entry struct {
	key      string
	revision uint64
	// value is nil if the message is the mark of a removal.
	value []byte
}

// idleTimeout is how long a bucket that is being read may send nothing.
const idleTimeout = 10 * time.Second

var errReadTimeout = errors.New("the server stopped sending")

// readBucket calls each for the last entry of every key that matches, through a consumer.
// If each returns an error, readBucket ends with it.
func readBucket(ctx context.Context, bucket jetstream.KeyValue, keys []string, each func(entry) error) error {
	watcher, err := bucket.WatchFiltered(ctx, slices.Clone(keys)) // it changes them
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), err)
	}
	defer func() { _ = watcher.Stop() }()
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	for {
		select {
		case update, ok := <-watcher.Updates():
			if !ok {
				return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errReadTimeout)
			}
			if update == nil { // all values are read
				return nil
			}
			e := entry{key: update.Key(), revision: update.Revision()}
			if update.Operation() == jetstream.KeyValuePut {
				e.value = update.Value()
			}
			if err := each(e); err != nil {
				return err
			}
			idle.Reset(idleTimeout)
		case <-idle.C:
			return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errReadTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errNotAtOnce means that the server does not answer with all entries at once.
var errNotAtOnce = errors.New("the server does not send that much at once")

// readNode does what readBucket does for the keys of one node in [StateBucket], with one
// request. The consumer of readBucket makes the server search the whole bucket: too much if
// a fleet starts and everybody asks. It is used if an answer cannot have all keys of the node.
func (s *server) readNode(ctx context.Context, keys []string, each func(entry) error) error {
	entries, err := s.lastEntries(ctx, keys)
	if errors.Is(err, errNotAtOnce) {
		return readBucket(ctx, s.state, keys, each)
	}
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", StateBucket, explain(s.js.Conn(), err))
	}
	for _, e := range entries {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// lastEntries asks for the last entries of keys by a batched direct get. nats.go has no call
// for it; the protocol is in ADR-31 of NATS.
func (s *server) lastEntries(ctx context.Context, keys []string) ([]entry, error) {
	const prefix = "$KV." + StateBucket + "."
	var request struct {
		Subjects []string `json:"multi_last"`
	}
	for _, key := range keys {
		request.Subjects = append(request.Subjects, prefix+key)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	conn := s.js.Conn()
	inbox := conn.NewInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := conn.PublishRequest(apiPrefix(s.js)+"DIRECT.GET.KV_"+StateBucket, inbox, body); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errReadTimeout)
	defer cancel()
	var entries []entry
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		if m.Header.Get("Status") != "" {
			return entries, endOfAnswer(m.Header)
		}
		e := entry{key: strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), prefix)}
		if e.revision, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
			return nil, fmt.Errorf("revision of %s: %w", e.key, err)
		}
		if isValue(m.Header) {
			e.value = m.Data
		}
		entries = append(entries, e)
	}
}

// endOfAnswer returns nil if a message with a status says that the answer is complete.
func endOfAnswer(h nats.Header) error {
	const nothing = "No Results"
	switch status, description := h.Get("Status"), h.Get("Description"); {
	case status == "204" && h.Get("Nats-Num-Pending") == "0", status == "404" && description == nothing:
		return nil
	case status == "204", status == "413", status == "503":
		return errNotAtOnce // cut off, too many keys, or a bucket without direct gets
	default:
		return fmt.Errorf("%s %s", status, description)
	}
}

// apiPrefix is that of the subjects of JetStream's API.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	default:
		return jetstream.DefaultAPIPrefix
	}
}

// isValue reports whether a message of a bucket is a value, not the mark of a removal.
func isValue(h nats.Header) bool {
	return h.Get("KV-Operation") == "" && h.Get(jetstream.MarkerReasonHeader) == ""
}
