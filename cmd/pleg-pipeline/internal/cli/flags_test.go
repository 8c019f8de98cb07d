package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// flagRow gives flags values that are not the default. The output of the command, or its messages to a NATS
// server, then contain want. Otherwise the tests in the file seenBy check the effect of the flags. Flags
// without a command in front of them are the same in all commands.
type flagRow struct{ flags, args, want, seenBy string }

const (
	replayed = "events --connect DAEMON --replay --follow=false "
	tests    = "../../../../tests/"
)

var flagRows = []flagRow{
	{"--nats-context", "pods NATS --nats-context /none/context", "pleg-pipeline: --nats-context: open /none/context: no such file or directory\nexit code 1", ""},
	{"--nats-context", `pods NATS --nats-context {"token":"s3cret"}`, `"auth_token":"s3cret"`, ""},
	{"--nats-context", `pods NATS --nats-context {"user":"bob","password":"s3cret"}`, `"user":"bob","pass":"s3cret"`, ""},
	{"--nats-context", `pods NATS --nats-context {"creds":"/none/creds"}`, "/none/creds", ""},
	{"--nats-context", `pods NATS --nats-context {"nkey":"/none/seed"}`, "/none/seed", ""},
	{"--nats-context", `pods TLS --nats-context {"cert":"/none/cert","key":"/none/key"}`, "/none/cert", ""},
	{"--nats-context", `pods TLS --nats-context {"ca":"/none/ca"}`, "/none/ca", ""},
	{"--nats-context", `pods NATS --nats-context {"jetstream_domain":"hub"}`, "$JS.hub.API", ""},
	{"--nats-context", "pods NATS --nats-context []", "/context is no context of the nats command: json: ", ""},
	{"--creds", "pods NATS --creds /none/creds", "nats: open /none/creds: no such file or directory\nexit code 1", ""},
	{"--nkey", "pods NATS --nkey /none/seed", "pleg-pipeline: --nkey: nats: open /none/seed", ""},
	{"--nkey", "pods NATS --nkey SEED", `"nkey":"UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"`, ""},
	{"--tlscert", "pods TLS --tlscert /none/cert --tlskey KEY", "client certificate: open /none/cert", ""},
	{"--tlskey", "pods TLS --tlscert CERT --tlskey /none/key", "client certificate: open /none/key", ""},
	{"--tlsca", "pods TLS --tlsca /none/ca", "rootCA file: open /none/ca", ""},
	{"--nats-domain", "pods NATS --nats-domain hub", "$JS.hub.API", ""},
	{"--nats-stream", "pods NATS --nats-stream mirror", "STREAM.INFO.mirror", ""},
	{"--cluster --fleet", "pods NATS", "pleg-v2-c", ""},
	{"--cluster --fleet", "pods NATS", `"name":"pleg-pipeline"`, ""},
	{"--cluster --fleet", "pods NATS", "pleg-pipeline: open states: nothing has been published for this cluster yet", ""},
	{"--cluster --fleet", "fleet forget NATS n1", "pleg-pipeline: open states: nothing has been published for this cluster yet", ""},
	{"--cluster --fleet", "pods --fleet nats://127.0.0.1:1 --cluster c", "pleg-pipeline: --fleet nats://127.0.0.1:1: no server answers\nexit code 1\n", ""},
	{"--node", "", "", tests + "real/fleet/program_test.go"},
	{"fleet create --replicas", "fleet create NATS --replicas 3", `"num_replicas":3`, ""},
	{"fleet create --replicas", "fleet create NATS --replicas 5", "replicas 5, ", ""},
	{"fleet create --max-age", "fleet create NATS --max-age 9s", `"max_age":9000000000`, ""},
	{"fleet create --max-bytes", "fleet create NATS --max-bytes 5M", `"max_bytes":5242880`, ""},
	{"fleet create --max-bytes", "fleet create NATS --max-bytes 5M --replicas 3", "the stream pleg-v2-c exists: replicas 3, events of 24h0m0s, at most 5242880 bytes\nthe bucket pleg-agents of the agents exists\n", ""},
	{"fleet create --max-bytes", "fleet create NATS", "the stream pleg-v2-c exists: replicas 1, events of 24h0m0s, no size limit\n", ""},
	{"fleet create --max-agent-bytes", "fleet create NATS --max-agent-bytes 6M", `"max_bytes":6291456`, ""},
	{"fleet forget --silent-for", "", "", tests + "real/fleet/gone_test.go"},
	{"run --nats --nats-max-bytes", "run --simulate=1 --nats nats://ADDRESS --cluster c --nats-max-bytes 5M", `"max_bytes":5242880`, ""},
	{"run --nats", "run --simulate=1 --nats nats://ADDRESS --cluster c --nats-domain hub", "$JS.hub.API.STREAM.CREATE", ""},
	{"run --node", "run --simulate=1 --nats nats://ADDRESS --cluster c --node n7", "publishing as node n7 of cluster c; to see the events: pleg-pipeline events --fleet nats://ADDRESS --cluster c\n", ""},
	{"run --nats", "run --simulate=1 --nats nats://ADDRESS --cluster c", "publishing as node of-environment of cluster c", ""},
	{"run --otlp", "", "", "run_test.go"},
	{"run --nats", "run --simulate=1 --quiet --nats nats://ADDRESS --cluster c", `level=WARN msg="cannot publish events" stage=fleet node=of-environment err=`, ""},
	{"run --nats", "run --simulate=1 --quiet --nats nats://ADDRESS --cluster c9", `,"verdict":{"severity":"`, ""},
	{"run --otlp", "run --simulate=1 --otlp http://WEB/v1/logs --cluster c9", "k8s.cluster.name\x12\x04\n\x02c9", ""},
	{"run --otlp", "run --simulate=1 --otlp http://WEB/v1/logs --node n7", `level=WARN msg="cannot export events" stage=otlp err=`, ""},
	{"run --otlp", "run --simulate=1 --otlp http://WEB", "PRI * HTTP/2.0\n", ""},
	{"run --otlp", "run --simulate=1 --otlp http://WEB/v1/logs", "POST /v1/logs HTTP/1.1\n", ""},

	{"--runtime-endpoint", "pods -r /none/socket", "/none/socket", ""},
	{"--config", "pods --config /none/config", "/none/config", ""},
	{"--connect", "pods --connect /none/daemon", "/none/daemon", ""},
	{"--log-level --log-format", "events -r FAILING -v warn --log-format json", `"level":"WARN","msg":"inspection failed`, ""},
	{"--no-headers", "", "", "kubectl_test.go"},
	{"doctor --output", "doctor -r /none/socket -o json", `"cause": "runtime stopped"`, ""},
	{"events --output", replayed + "-o json", `"podName":`, ""},
	{"lookup --output", "lookup CONTAINER --connect DAEMON -o json", `"podName":`, ""},
	{"pods --output", "pods --connect DAEMON -o json", `"containers":[`, ""},
	{"run --output", "run --simulate=1 -o json", `"podName":`, ""},
	{"version --output", "version -o json", `"goVersion":`, ""},
	{"pleg-pipeline --version", "--version", "pleg-pipeline ", ""},

	{"doctor --timeout", "doctor -r RUNTIME --timeout 1100ms", "watched for 1.", ""},
	{"doctor --calls", "doctor -r RUNTIME --calls 12ms", "pleg-pipeline: measuring the calls of RUNTIME for 12ms\n", ""},
	{"doctor --call-timeout", "doctor -r RUNTIME --calls 1s --call-timeout 1ns", "DeadlineExceeded", ""},
	{"doctor --npd", "doctor -r /none/socket --npd", "exit code 1", ""},
	{"events --follow --replay", replayed, "ContainerStarted", ""},
	{"events --namespace", replayed + "-n none", "no pod is in the namespace none", ""},
	{"events --selector", replayed + "-l none=1", "no pod matches the selector none=1", ""},
	{"events --pod", replayed + "--pod none", "none", ""},
	{"events --all-namespaces", replayed + "-n none -A", "ContainerStarted", ""},
	{"events --since", "", "", "events_test.go"},
	{"events --type --no-sandboxes", "", "", "events_test.go"},
	{"pods --namespace", "pods --connect DAEMON -n none -n no", "no pod is in the namespace none, no", ""},
	{"pods --namespace", "pods --connect DAEMON -n none", "no pod is in the namespace none", ""},
	{"pods --selector", "pods --connect DAEMON -l none=1", "no pod matches the selector none=1", ""},
	{"pods --all-namespaces", "pods --connect DAEMON -n none -A", "2/2", ""},
	{"pods --sort-by", "", "", "kubectl_test.go"},
	{"lookup --pid", "", "", "lookup_test.go"},
	{"lookup --wait", "", "", "wait_test.go"},
	{"lookup --cgroup", "lookup --connect DAEMON --cgroup 12345", "12345", ""},
	{"top --filter", "", "", "top_test.go"},

	{"run --simulate --seed --churn-rate", "run --simulate=3 --seed 7 --churn-rate 0.5", "3 pods, 0.5 changes/s, seed 7", ""},
	{"simulate --socket --pods --seed --churn-rate", "simulate --socket SOCKET --pods 3 --seed 7 --churn-rate 0.5", "pleg-pipeline: serving a simulated runtime (3 pods, 0.5 changes/s, seed 7) on unix://SOCKET until interrupted\n", ""},
	{"simulate --fault --fault-pod", "", "", "doctor_test.go"},
	{"record --duration --redact", "", "", "record_test.go"},
	{"run --relist-period --relist-threshold --relist-period-with-events --history --list-timeout --events --inspectors --inspect-timeout", "", "", "usage_test.go"},
	{"record --relist-period --list-timeout --events --inspectors --inspect-timeout", "", "", "usage_test.go"},
	{"run --wait-for-runtime --quiet --socket --listen --web-config --health-listen --max-connections --max-watchers --max-event-streams", "", "", "run_test.go"},
	{"run --incident-dir", "", "", "wiring_test.go"},
	{"run --config-file --print-config", "", "", "settings_test.go"},
}

// inContext are the flags that name something which a file of --nats-context may name, too: the flag takes
// precedence, also over another way to log in.
var inContext = map[string]string{
	"--creds": `{"creds": "other", "nkey": "other"}`, "--nkey": `{"creds": "other", "nkey": "other"}`, "--tlscert": `{"cert": "other"}`,
	"--tlskey": `{"key": "other"}`, "--tlsca": `{"ca": "other"}`, "--nats-domain": `{"jetstream_domain": "other"}`,
}

// A flag without a row fails the test.
func TestFlagsAct(t *testing.T) {
	t.Parallel()
	rows := make(map[string]int)
	for _, row := range flagRows {
		command, flags, _ := strings.Cut(row.flags, "--")
		for flag := range strings.FieldsSeq("--" + flags) {
			rows[command+flag] = 0
			if text, err := os.ReadFile(row.seenBy); row.seenBy != "" && !strings.Contains(string(text), flag) {
				t.Errorf("%s does not use %s: %v", row.seenBy, flag, err)
			}
		}
	}
	for _, flag := range cli.AllFlags() {
		common := flag[strings.Index(flag, "--"):]
		if _, ok := rows[flag]; ok {
			common = flag
		}
		if _, ok := rows[common]; !ok {
			t.Errorf("no row sees that %s acts", flag)
		}
		rows[common]++
	}
	for flag, commands := range rows {
		if commands == 0 {
			t.Errorf("there is no flag %q", flag)
		}
	}
	daemon := filepath.Join(t.TempDir(), "pleg.sock")
	startDaemon(t, daemon)
	cert, key := kit.SelfSigned(t)
	seed := filepath.Join(t.TempDir(), "seed") // of the documentation of NATS
	kit.Must(t, os.WriteFile(seed, []byte("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"), 0o600))
	container := string(waitForPods(t, daemon, 2)[0].Status.Containers[0].ID)
	texts := []string{"CONTAINER", container, "DAEMON", daemon, "RUNTIME", simulated(t, 2), "FAILING", simulated(t, 2, "--fault", "ContainerStatus/error"), "SOCKET", socketPath(t), "CERT", cert, "KEY", key, "SEED", seed}
	for _, row := range flagRows {
		if row.seenBy != "" {
			continue
		}
		t.Run(row.args, func(t *testing.T) {
			t.Parallel()
			out, ended := newTranscript(), make(chan struct{})
			address := listen(t, out, answerNATS)
			texts := strings.NewReplacer(slices.Concat(texts, []string{
				"ADDRESS", address, "WEB", listen(t, out, refuseHTTP), "NATS", "--fleet nats://" + address + " --cluster c", "TLS", "--fleet tls://" + address + " --cluster c",
			})...)
			args := strings.Fields(texts.Replace(row.args))
			text := inContext[row.flags]
			if last := len(args) - 1; strings.ContainsAny(args[last], "{[") { // the content of the file
				text, args = args[last], args[:last-1]
			}
			if text != "" {
				context := filepath.Join(t.TempDir(), "context")
				kit.Must(t, os.WriteFile(context, []byte(text), 0o600))
				args = append(args, "--nats-context", context)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			go func() {
				defer close(ended)
				p := with(map[string]string{"NODE_NAME": "of-environment"})
				p.Args, p.Out, p.Err = args, out, out
				code := cli.Execute(ctx, p)
				fmt.Fprintln(out, "exit code", code)
				out.end("it has ended")
			}()
			out.await(t, texts.Replace(row.want))
			cancel()
			<-ended
		})
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17b": 17, "2K": 2 << 10, "2kb": 2 << 10, "3M": 3 << 20, "3MiB": 3 << 20, "4g": 4 << 30, "4GB": 4 << 30, "5T": 5 << 40, "8388607T": 8388607 << 40,
	} {
		if got, err := cli.SizeOf(text); err != nil || got != want {
			t.Errorf("%s has %d bytes, %v; want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "M", "-1", "1.5G", "5KM", "5BK", "5 M", "8388608T"} {
		if got, err := cli.SizeOf(bad); err == nil {
			t.Errorf("%q has %d bytes, want an error", bad, got)
		}
	}
}

// listen returns the address of a server.
func listen(t *testing.T, sent io.Writer, serve func(net.Conn, io.Writer)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	var clients sync.WaitGroup
	clients.Go(func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			clients.Go(func() { serve(conn, sent) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); clients.Wait() })
	return l.Addr().String()
}

// refuseHTTP records what clients send.
func refuseHTTP(conn net.Conn, sent io.Writer) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		fmt.Fprintln(sent, lines.Text())
		if strings.HasPrefix(lines.Text(), "POST ") {
			fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

// answerNATS records the messages of its clients. It offers JetStream, without a stream until one
// is created.
func answerNATS(conn net.Conn, sent io.Writer) {
	defer conn.Close()
	fmt.Fprint(conn, `INFO {"max_payload":1048576,"headers":true,"nonce":"n"}`+"\r\n")
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		fmt.Fprintln(sent, lines.Text())
		words := strings.Fields(lines.Text() + " - - -")
		answer := `{"error":{"code":404,"err_code":10059,"description":"no stream"}}`
		switch {
		case strings.HasSuffix(words[1], "API.INFO"):
			answer = `{"api":{"level":9}}`
		case strings.Contains(words[1], "API.STREAM.CREATE") && lines.Scan():
			fmt.Fprintln(sent, lines.Text())
			answer = `{"config":` + lines.Text() + "}"
		}
		switch {
		case words[0] == "PING":
			fmt.Fprint(conn, "PONG\r\n")
		case strings.Contains(words[1], "API.DIRECT.GET"): // of an agent
			const none = "NATS/1.0 404 Message Not Found\r\n\r\n"
			fmt.Fprintf(conn, "HMSG %s 1 %d %d\r\n%s\r\n", words[2], len(none), len(none), none)
		case strings.HasSuffix(words[0], "PUB"):
			fmt.Fprintf(conn, "MSG %s 1 %d\r\n%s\r\n", words[2], len(answer), answer)
		}
	}
}
