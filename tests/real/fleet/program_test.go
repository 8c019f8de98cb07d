package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// command returns a command of the program.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := process.Program()
	kit.Must(t, err)
	return exec.Command(path, args...)
}

// start starts the program. It is interrupted at the end of the test.
func start(t *testing.T, out *kit.Log, environment []string, args ...string) {
	t.Helper()
	c := command(t, args...)
	c.Env, c.Stdout = append(c.Environ(), environment...), out
	p := process.Run(t, c)
	t.Cleanup(func() { kit.Must(t, p.Interrupt()) })
}

// awaitNodes waits until nodes of the cluster prod have published: before that, a command ends with an error.
func awaitNodes(t *testing.T, url string, nodes ...string) {
	t.Helper()
	js := jetStream(t, connect(t, url))
	until(t, func() error {
		states, err := fleet.OpenStates(t.Context(), js, "prod", "")
		if err == nil {
			err = states.Check(t.Context(), nodes)
		}
		return err
	})
}

func await(t *testing.T, out *kit.Log, part string) {
	t.Helper()
	until(t, func() error {
		if !strings.Contains(out.String(), part) {
			return fmt.Errorf("no %q in the output:\n%s", part, out)
		}
		return nil
	})
}

// The flags of the program: two nodes publish, and the views of one node show both.
func TestProgram(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	place := []string{"--fleet", s.URL, "--cluster", "prod"}
	run := []string{"run", "--simulate=3", "--churn-rate", "0", "--quiet", "--nats", s.URL, "--cluster", "prod"}
	start(t, &kit.Log{}, nil, append(run, "--node", "n1.example.com")...)
	start(t, &kit.Log{}, []string{"NODE_NAME=n2"}, append(run, "--seed", "2")...)
	awaitNodes(t, s.URL, "n1.example.com", "n2")

	events := &kit.Log{}
	start(t, events, nil, append([]string{"events", "--replay", "-o", "json"}, place...)...)
	until(t, func() error {
		nodes := make(map[string]int)
		for line := range strings.Lines(events.String()) {
			var ev struct{ Node, PodUID string }
			if err := json.Unmarshal([]byte(line), &ev); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			if ev.PodUID != "" {
				nodes[ev.Node]++
			}
		}
		if nodes["n1.example.com"] == 0 || nodes["n2"] == 0 {
			return fmt.Errorf("events of the nodes %v, want two nodes", nodes)
		}
		return nil
	})

	text := &kit.Log{}
	start(t, text, nil, append([]string{"pods"}, place...)...)
	await(t, text, "n1.example.com  ")
	await(t, text, "n2  ")
	if header, _, _ := strings.Cut(text.String(), "\n"); !strings.HasPrefix(header, "NODE ") {
		t.Errorf("the header is %q, want NODE first", header)
	}

	out, err := command(t, append([]string{"pods", "--node", "n2", "--no-headers"}, place...)...).Output()
	if err != nil || strings.Count(string(out), "n2 ") != 3 || strings.Count(string(out), " ready ") != 3 || strings.Count(string(out), "\n") != 3 {
		t.Errorf("pods --node n2: %v\n%s", err, out)
	}
	out, err = command(t, append([]string{"doctor"}, place...)...).Output()
	if err != nil || string(out) != "OK: 2 of 2 nodes\n" {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	out, err = command(t, append([]string{"doctor", "--node", "n2"}, place...)...).Output()
	if err != nil || string(out) != "OK: 1 of 1 nodes\n" {
		t.Errorf("doctor --node n2: %v\n%s", err, out)
	}
	out, err = command(t, append([]string{"pods", "--sort-by", "age", "-o", "json"}, place...)...).Output()
	var one struct{ UID string }
	if err != nil || json.NewDecoder(bytes.NewReader(out)).Decode(&one) != nil {
		t.Fatalf("pods -o json: %v\n%s", err, out)
	}
	out, err = command(t, append([]string{"pods", one.UID, "-o", "json"}, place...)...).Output()
	if err != nil || bytes.Count(out, []byte("\n")) != 1 || !bytes.Contains(out, []byte(one.UID)) {
		t.Errorf("pods %s: %v\n%s", one.UID, err, out)
	}

	out, err = command(t, append([]string{"events", "--replay", "--follow=false", "-o", "json"}, place...)...).Output()
	for _, node := range []string{"n1.example.com", "n2"} {
		if err != nil || strings.Count(string(out), `"node":"`+node+`"`) < 9 {
			t.Errorf("events of %s: %v\n%s", node, err, out)
		}
	}

	followed, said := &kit.Log{}, &kit.Log{}
	c := command(t, append([]string{"events", "--replay"}, place...)...)
	c.Stdout, c.Stderr = followed, said
	follower := process.Run(t, c)
	await(t, followed, "Synced")
	start(t, &kit.Log{}, nil, append(run, "--node", "n3")...)
	await(t, followed, "the node is new")
	kit.Must(t, follower.Interrupt())
	if strings.Contains(said.String(), "the node is new") {
		t.Errorf("the Gap of one node is a notice about all:\n%s", said)
	}
}

// An agent says how much it publishes in part.
func TestProgramSaysWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	s, said := startServer(t, "max_payload: 1200"), &kit.Log{}
	c := command(t, "run", "--simulate=3", "--churn-rate", "0", "--quiet", "--nats", s.URL, "--cluster", "prod", "--listen", "127.0.0.1:0")
	c.Stderr = said
	p := process.Run(t, c)
	t.Cleanup(func() { kit.Must(t, p.Interrupt()) })
	await(t, said, "publishing as node ")
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(said.String())
	get := func(path string) string {
		answer, err := http.Get(url + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return string(body)
	}
	until(t, func() error {
		cut := regexp.MustCompile(`pleg_fleet_cut_total ([0-9]+)`).FindStringSubmatch(get("/metrics"))
		text := get("/readyz?verbose")
		if len(cut) < 2 || cut[1] == "0" || !regexp.MustCompile(`(?m)^\[\+\]nats: nothing acknowledged for \d+s; `+cut[1]+` events and states were too large and are published in part$`).MatchString(text) {
			return fmt.Errorf("cut %q: %s", cut, text)
		}
		return nil
	})
}

// top shows the pods of all nodes on a terminal, which script(1) makes.
func TestTop(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	start(t, &kit.Log{}, nil, "run", "--simulate=3", "--churn-rate", "0", "--quiet", "--nats", s.URL, "--cluster", "prod", "--node", "n1")
	awaitNodes(t, s.URL, "n1")
	screen := &kit.Log{}
	c := exec.CommandContext(t.Context(), "script", "-qec", "stty rows 24 cols 80; exec "+command(t).Path+" top --fleet "+s.URL+" --cluster prod", "/dev/null")
	c.Env, c.Stdout = append(c.Environ(), "TERM=xterm"), screen
	keys, err := c.StdinPipe()
	kit.Must(t, err)
	kit.Must(t, c.Start())
	await(t, screen, "silent") // one of the figures: only changed cells are written
	await(t, screen, "n1")
	if _, err := keys.Write([]byte("q")); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("top: %v\n%s", err, screen)
	}
}
