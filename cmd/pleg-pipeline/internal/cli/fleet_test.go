package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// storedMessage is a message of a stream.
type storedMessage struct {
	subject, data string
	at            time.Time
}

// serveCluster serves the streams of a cluster to readers, and returns the address of the server. It refuses the first
// readers, all who want every message of the stream "broken", and the third question for "breaks". It knows no options of a consumer but its filters;
// tests/real/fleet has real servers.
func serveCluster(t *testing.T, streams map[string][]storedMessage, limit int, refused int32) string {
	t.Helper()
	return listen(t, nil, func(conn net.Conn, _ io.Writer) {
		c := &clusterReader{conn, streams, limit, refused, make(map[string]string), make(map[string]string)}
		c.serve()
	})
}

// clusterReader answers one connection.
type clusterReader struct {
	net.Conn

	streams map[string][]storedMessage
	limit   int   // of the bytes of each stream, which has 900
	refused int32 // questions for JetStream

	inboxes map[string]string // the ids of subscriptions, by subject
	filters map[string]string // of consumers that have not got their messages yet
}

func (c *clusterReader) serve() {
	defer c.Close()
	fmt.Fprint(c, `INFO {"max_payload":1048576,"headers":true}`+"\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "PING":
			fmt.Fprint(c, "PONG\r\n")
		case "SUB":
			c.inboxes[words[1]] = words[len(words)-1]
		case "PUB":
			lines.Scan()
			c.answer(strings.Split(strings.TrimPrefix(words[1], "$JS.API."), "."), words[2], lines.Text())
		}
	}
}

func (c *clusterReader) answer(call []string, inbox, request string) {
	var r struct {
		Seq    int
		Last   string `json:"last_by_subj"`
		Config struct {
			Filter  string   `json:"filter_subject"`
			Filters []string `json:"filter_subjects"`
		}
	}
	_ = json.Unmarshal([]byte(request), &r)
	answer := `{"error":{"code":404,"err_code":10059}}`
	switch verb := strings.Join(call[:min(2, len(call))], "."); verb {
	case "INFO":
		answer = `{"api":{"level":9}}`
		if c.refused--; c.refused >= 0 {
			answer = `{"error":{"code":503,"description":"it starts"}}`
		}
	case "STREAM.INFO":
		if all, ok := c.streams[call[2]]; ok {
			answer = fmt.Sprintf(`{"config":{"name":%q,"subjects":["pleg.v2.c.>"],"allow_atomic":true,"max_bytes":%d},"created":"2026-01-02T03:04:05Z","state":{"bytes":900,"last_seq":%d},"ts":%q}`,
				call[2], c.limit, len(all), time.Now().Format(time.RFC3339Nano))
		}
	case "STREAM.MSG":
		answer = `{"error":{"code":404,"err_code":10037}}`
		for n, m := range c.streams[call[3]] {
			if covers(r.Last, m.subject) || n+1 == r.Seq {
				text, _ := json.Marshal(map[string]any{"subject": m.subject, "seq": n + 1, "data": []byte(m.data), "time": m.at})
				answer = `{"message":` + string(text) + "}"
			}
		}
	case "CONSUMER.CREATE":
		c.filters[call[3]] = strings.Join(append(r.Config.Filters, r.Config.Filter), " ")
		filters, _ := json.Marshal(r.Config.Filters)
		answer = fmt.Sprintf(`{"name":%q,"config":{"filter_subjects":%s},"num_pending":%d}`, call[3], filters, len(c.wanted(call[2], call[3])))
		if call[2] == "broken" && r.Config.Filter == ">" || call[2] == "breaks" && len(c.filters) > 2 {
			answer = `{"error":{"code":500,"description":"it is broken"}}`
		}
	case "CONSUMER.MSG":
		stream, consumer := call[3], call[4]
		wanted := c.wanted(stream, consumer)
		c.filters[consumer] = ""
		for i, n := range wanted {
			m := c.streams[stream][n]
			c.send(inbox, m.subject, fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.%d", stream, consumer, n+1, i+1, m.at.UnixNano(), len(wanted)-1-i), m.data)
		}
		return
	}
	c.send(inbox, inbox, "", answer)
}

// wanted returns the indexes of the messages that a consumer has not got yet.
func (c *clusterReader) wanted(stream, consumer string) (of []int) {
	for n, m := range c.streams[stream] {
		if slices.ContainsFunc(strings.Fields(c.filters[consumer]), func(f string) bool { return covers(f, m.subject) }) {
			of = append(of, n)
		}
	}
	return of
}

func (c *clusterReader) send(inbox, subject, reply, text string) {
	for of, id := range c.inboxes {
		if covers(of, inbox) {
			fmt.Fprintf(c, "MSG %s %s %s %d\r\n%s\r\n", subject, id, reply, len(text), text)
		}
	}
}

// covers reports whether a filter covers a subject.
func covers(filter, subject string) bool {
	wants, has := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, want := range wants {
		if want == ">" {
			return i < len(has)
		}
		if i >= len(has) || want != "*" && want != has[i] {
			return false
		}
	}
	return len(wants) == len(has)
}

// agentOf is the value of an agent in the bucket.
func agentOf(node, health string, ago time.Duration) storedMessage {
	return storedMessage{"$KV.pleg-agents.c." + node, `{"layout":2,"agent":"` + node + `-1","verdict":` + health + "}", time.Now().Add(-ago)}
}

// messageOf is a message about a node, or about one of its pods.
func messageOf(subject, kind, data string) storedMessage {
	return storedMessage{"pleg.v2.c." + subject, `{"type":"io.github.pleg-pipeline.` + kind + `.v1","data":{"epoch":"e",` + data + "}}", time.Now().Add(-time.Hour)}
}

// podOf is the message about the start of the container of a pod.
func podOf(node, uid, namespace, name string) storedMessage {
	started := fmt.Sprintf(`"seq":2,"type":"ContainerStarted","podUID":%q,"podNamespace":%q,"podName":%q,"containerID":"c-%[1]s","containerName":"app","observedAt":%[4]q`, uid, namespace, name, time.Now().Add(-2*time.Hour).Format(time.RFC3339Nano))
	return messageOf(node+"."+uid, "container.started", started+`,"pod":{"labels":{"app":"`+name+`"},"events":[{`+started+`}],"status":{"containers":[{"id":"c-`+uid+`","name":"app","state":2}],"sandboxes":[{"id":"s-`+uid+`","ready":true}]}}`)
}

// What the commands show of a cluster with a healthy node, one with a hung pod that has no status yet, and two without an agent.
func TestViewsOfACluster(t *testing.T) {
	t.Parallel()
	hangs := fmt.Sprintf(`{"cause":"hung container","severity":"problem","advice":"free it","subject":"shop/web-0","what":"hangs","since":%q,"pod":"shop/web-0","podUID":"u1"}`,
		time.Now().Add(-30*time.Minute).Format(time.RFC3339Nano))
	const fine = `{"severity":"ok","text":"OK: fine","findings":[]}`
	streams := map[string][]storedMessage{
		"pleg-v2-c": {
			messageOf("n1.=", "node.synced", `"seq":1`), messageOf("n2.=", "node.synced", `"seq":1`), messageOf("n3.=", "node.synced", `"seq":1`), messageOf("n4.=", "node.synced", `"seq":1`),
			podOf("n1", "u2", "shop", "api-0"), podOf("n1", "u3", "bank", "db-0"), podOf("n3", "u4", "shop", "old-0"),
		},
		"KV_pleg-agents": {
			agentOf("n1", fine, 0), agentOf("n2", `{"severity":"problem","text":"PROBLEM: it hangs","findings":[`+hangs+`]},"pods":[`+hangs+"]", 0),
			agentOf("n3", fine, time.Hour), agentOf("n4", fine, 2*time.Hour),
		},
	}
	streams["copy"], streams["broken"], streams["breaks"] = streams["pleg-v2-c"][:5], streams["pleg-v2-c"], streams["pleg-v2-c"]
	of := map[string]string{
		"ALL": serveCluster(t, streams, 0, 0), "FULL": serveCluster(t, streams, 1000, 0),
		"EMPTY": serveCluster(t, map[string][]storedMessage{"pleg-v2-c": nil, "KV_pleg-agents": nil}, 0, 0), "NONE": serveCluster(t, nil, 0, 0),
		"LOST": serveCluster(t, map[string][]storedMessage{"pleg-v2-c": streams["pleg-v2-c"]}, 0, 0), // without the bucket
	}
	var all strings.Builder
	for _, args := range []string{
		"ALL pods", "ALL pods --node n1 --node n2 -o name", "ALL pods -n shop -o name", "ALL pods -n bank -o json", "ALL pods --nats-stream copy -o name", "ALL pods --nats-stream broken", "ALL pods --node n1 -o name", "ALL pods --node n9",
		"ALL doctor", "ALL doctor -o json", "ALL doctor --node n1", "ALL doctor --node n1 --node n4", "FULL doctor --node n1", "FULL doctor --node n2", "ALL doctor --timeout 1ns", "ALL doctor --nats-stream breaks", "ALL pods --nats-stream breaks",
		"ALL events --replay --follow=false", "ALL events --replay --follow=false --node n3 -o json", "ALL events --replay --follow=false -n none",
		"ALL events --replay --follow=false --node n9", "ALL events --node n9", "ALL events --since 1h --follow=false --node n3",
		"EMPTY pods", "EMPTY doctor", "EMPTY events --replay --follow=false", "NONE pods",
		"ALL fleet forget --silent-for 90m", "LOST fleet forget --silent-for 90m",
	} {
		place, line, _ := strings.Cut(args, " ")
		code, stdout, stderr := run(t, append(strings.Fields(line), "--fleet", "nats://"+of[place], "--cluster", "c")...)
		fmt.Fprintf(&all, "$ %s\nexit code %d\n%s%s\n", args, code, stdout, stderr)
	}
	text := regexp.MustCompile(`"20\d\d-[^"]*"`).ReplaceAllString(all.String(), `"DATE"`)
	text = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}`).ReplaceAllString(text, "HH:MM:SS.mmm")
	kit.Golden(t, "testdata/cluster.golden", regexp.MustCompile(`since \d\d:\d\d`).ReplaceAllString(text, "since HH:MM"))

	term, end := onTerminal(t, cli.Process{}, "top", "--fleet", "nats://"+of["ALL"], "--cluster", "c")
	matching(t, term, regexp.MustCompile(`PROBLEM: 3 of 4 nodes; n2: shop/web-0 hangs since \d\d:\d\d \(30m\)`))
	showing(t, term, "nodes 4  silent 2 (n3, n4)  pods 4")
	end()

	out := newTranscript()
	s := start(t, out, "events", "--replay", "-o", "json", "--fleet", "nats://"+serveCluster(t, streams, 0, 1), "--cluster", "c")
	out.await(t, `"Synced"`)
	s.stopAndWait(t)
	events := strings.Split(out.String(), "\n")
	var synced struct{ At string }
	kit.Must(t, json.Unmarshal([]byte(events[len(events)-2]), &synced))
	if want := "pleg-pipeline: waiting for the server: ask for JetStream: nats: API error: code=503 err_code=0 description=it starts\npleg-pipeline: connected to the server: no events are missing\n" +
		"pleg-pipeline: context canceled: to continue, use --since " + synced.At + "\n"; s.stderr.String() != want {
		t.Errorf("stderr %q, want %q", s.stderr, want)
	}
	code, stdout, stderr := run(t, "events", "--since", synced.At, "--follow=false", "-o", "json", "--fleet", "nats://"+of["ALL"], "--cluster", "c")
	if code != cli.ExitOK || stdout != "" || stderr != "" {
		t.Errorf("after the last event: exit code %d, %q, %q", code, stdout, stderr)
	}
}

// A server that cannot be reached is named once.
func TestClusterWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, io.Discard, "events", "--fleet", "nats://127.0.0.1:1", "--cluster", "c")
		time.Sleep(time.Minute)
		s.stopAndWait(t)
		if want := "pleg-pipeline: waiting for the server: not connected to nats://127.0.0.1:1: no server answers\n"; s.stderr.String() != want {
			t.Errorf("stderr %q, want %q", s.stderr, want)
		}
	})
}
