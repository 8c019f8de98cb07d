package fleet

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// object is the beginning of a JSON object. Package json would need most of what a message costs.
type object []byte

func (o object) name(name string) object {
	if n := len(o); n > 0 && o[n-1] != '{' && o[n-1] != '[' {
		o = append(o, ',')
	}
	if name == "" {
		return o
	}
	return append(append(append(o, '"'), name...), '"', ':')
}

// text adds a text unless it is empty.
func (o object) text(name, value string) object {
	if value == "" {
		return o
	}
	o = append(o.name(name), '"')
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			escaped, _ := json.Marshal(value) // a text never fails
			return append(o, escaped[1:]...)
		}
	}
	return append(append(o, value...), '"')
}

// time adds a time unless it is zero.
func (o object) time(name string, value time.Time) object {
	if value.IsZero() {
		return o
	}
	return append(value.AppendFormat(append(o.name(name), '"'), time.RFC3339Nano), '"')
}

func (o object) number(name string, value int64) object {
	return strconv.AppendInt(o.name(name), value, 10)
}

// some adds a number unless it is 0.
func (o object) some(name string, value int64) object {
	if value == 0 {
		return o
	}
	return o.number(name, value)
}

func (o object) bool(name string, value bool) object {
	return strconv.AppendBool(o.name(name), value)
}

func (o object) texts(name string, values []string) object {
	if len(values) == 0 {
		return o
	}
	text, _ := json.Marshal(values)
	return append(o.name(name), text...)
}

// inner returns the fields of an event, without those that all events of its pod have in common.
func inner(ev *pleg.Event) object {
	o := make(object, 0, 512).number("seq", int64(ev.Seq)).text("type", string(ev.Type))
	o = o.text("containerID", string(ev.ContainerID)).text("containerName", ev.ContainerName)
	o = o.number("attempt", int64(ev.Attempt)).bool("sandbox", ev.Sandbox)
	if ev.ExitCode != nil {
		o = o.number("exitCode", int64(*ev.ExitCode))
	}
	o = o.text("reason", ev.Reason).text("image", ev.Image).time("startedAt", ev.StartedAt).time("finishedAt", ev.FinishedAt)
	o = o.some("missed", int64(ev.Missed))
	if ev.Replayed {
		o = o.bool("replayed", true)
	}
	return o.text("epoch", ev.Epoch).time("observedAt", ev.ObservedAt)
}

// status adds what is published of a status.
func (o object) status(s *pleg.PodStatus) object {
	o = append(o.name("status"), '{').texts("ips", s.IPs)
	o = append(o.name("containers"), '[')
	for _, c := range s.Containers {
		o = append(o.name(""), '{').text("id", string(c.ID)).text("name", c.Name).some("attempt", int64(c.Attempt)).number("state", int64(c.State))
		o = o.time("createdAt", c.CreatedAt).time("startedAt", c.StartedAt).time("finishedAt", c.FinishedAt)
		o = o.some("exitCode", int64(c.ExitCode)).text("reason", c.Reason).text("message", c.Message)
		o = append(o.text("image", c.Image).text("imageRef", c.ImageRef).text("logPath", c.LogPath), '}')
	}
	o = append(append(o, ']').name("sandboxes"), '[')
	for _, sandbox := range s.Sandboxes {
		o = append(o.name(""), '{').text("id", string(sandbox.ID)).some("attempt", int64(sandbox.Attempt)).bool("ready", sandbox.Ready)
		o = append(o.time("createdAt", sandbox.CreatedAt).texts("ips", sandbox.IPs).bool("hostNetwork", sandbox.HostNetwork), '}')
	}
	return append(append(o, ']').time("observedAt", s.ObservedAt), '}')
}
