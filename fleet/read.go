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

const (
	// searchTimeout is how long the server may search a bucket before it answers: seconds
	// for 500,000 keys. nats.go gives it 5 s unless the context has a deadline.
	searchTimeout = 2 * time.Minute
	// readTimeout is that deadline. It is far, because a consumer that reads slowly must
	// not begin again.
	readTimeout = 24 * time.Hour
	// idleTimeout is how long a bucket that is being read may send nothing.
	idleTimeout = 30 * time.Second
)

var (
	errReadTimeout = errors.New("the server stopped sending")
	errBehind      = errors.New("the server that answers does not have everything yet")
)

// newest returns the revision of the newest entry of keys in a bucket; 0 if it has none. Any
// replica may answer who reads entries, also one that does not have yet what the leader has
// acknowledged. It must have this revision.
func (s *server) newest(ctx context.Context, bucket jetstream.KeyValue, keys []string) (uint64, error) {
	return s.lastSequence(ctx, "KV_"+bucket.Bucket(), subjectsOf(bucket, keys)...)
}

// subjectsOf returns the subjects of keys in a bucket.
func subjectsOf(bucket jetstream.KeyValue, keys []string) []string {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = "$KV." + bucket.Bucket() + "." + key
	}
	return subjects
}

// readBucket calls each for the last entry of every key that matches, through a consumer. If
// each returns an error, readBucket ends with it. It ends with errBehind if a replica read
// that was behind: only the last of its entries shows that.
func (s *server) readBucket(ctx context.Context, bucket jetstream.KeyValue, keys []string, each func(entry) error) error {
	newest, err := s.newest(ctx, bucket, keys)
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errReadTimeout)
	defer cancel()
	searching := time.AfterFunc(searchTimeout, cancel)
	watcher, err := bucket.WatchFiltered(ctx, slices.Clone(keys)) // it changes them
	searching.Stop()
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), err)
	}
	defer func() { _ = watcher.Stop() }()
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	var revision uint64
	for {
		select {
		case update, ok := <-watcher.Updates():
			if !ok {
				return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errReadTimeout)
			}
			if update == nil { // all values are read
				if revision < newest {
					return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errBehind)
				}
				return nil
			}
			revision = max(revision, update.Revision())
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

// readNode does what readBucket does for the keys of one node in [StateBucket], with direct
// gets. The consumer of readBucket makes the server search the whole bucket: too much if
// a fleet starts and everybody asks. It is used if an answer cannot have all keys of the node.
func (s *server) readNode(ctx context.Context, keys []string, each func(entry) error) error {
	entries, err := s.currentEntries(ctx, keys)
	if errors.Is(err, errNotAtOnce) {
		return s.readBucket(ctx, s.state, keys, each)
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

// replicaDelay is the time after which a replica is asked again that did not have the
// newest entry.
const replicaDelay = 20 * time.Millisecond

// currentEntries returns the last entries of keys, of a replica that has the newest.
func (s *server) currentEntries(ctx context.Context, keys []string) ([]entry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errBehind)
	defer cancel()
	newest, err := s.newest(ctx, s.state, keys)
	if err != nil {
		return nil, err
	}
	for {
		entries, upTo, err := s.lastEntries(ctx, keys)
		if err != nil || upTo >= newest {
			return entries, err
		}
		select {
		case <-time.After(replicaDelay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// lastEntries asks for the last entries of keys by a batched direct get, and returns the
// revision up to which a replica looked for them. nats.go has no call for it; the protocol
// is in ADR-31 of NATS.
func (s *server) lastEntries(ctx context.Context, keys []string) (entries []entry, upTo uint64, err error) {
	body, err := json.Marshal(map[string][]string{"multi_last": subjectsOf(s.state, keys)})
	if err != nil {
		return nil, 0, err
	}
	conn := s.js.Conn()
	inbox := conn.NewInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := conn.PublishRequest(apiPrefix(s.js)+"DIRECT.GET.KV_"+StateBucket, inbox, body); err != nil {
		return nil, 0, err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, 0, err
		}
		if m.Header.Get("Status") != "" {
			upTo, err := endOfAnswer(m.Header)
			return entries, upTo, err
		}
		e := entry{key: strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), "$KV."+StateBucket+".")}
		if e.revision, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
			return nil, 0, fmt.Errorf("revision of %s: %w", e.key, err)
		}
		if isValue(m.Header) {
			e.value = m.Data
		}
		entries = append(entries, e)
	}
}

// endOfAnswer returns the revision up to which a replica looked, or an error if its answer,
// which ends with this status, is not complete.
func endOfAnswer(h nats.Header) (upTo uint64, err error) {
	const nothing = "No Results"
	switch status, description := h.Get("Status"), h.Get("Description"); {
	case status == "204" && h.Get("Nats-Num-Pending") == "0":
		return strconv.ParseUint(h.Get("Nats-UpTo-Sequence"), 10, 64)
	case status == "404" && description == nothing:
		return 0, nil
	case status == "204", status == "413", status == "503":
		return 0, errNotAtOnce // cut off, too many keys, or a bucket without direct gets
	default:
		return 0, fmt.Errorf("%s %s", status, description)
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
