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
	if o[len(o)-1] != '{' && o[len(o)-1] != '[' {
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

func (o object) time(name string, value time.Time) object {
	if value.IsZero() {
		return o
	}
	return append(value.AppendFormat(append(o.name(name), '"'), time.RFC3339Nano), '"')
}

func (o object) number(name string, value uint64) object {
	return strconv.AppendUint(o.name(name), value, 10)
}

// some adds a number unless it is 0.
func (o object) some(name string, value int64) object {
	if value == 0 {
		return o
	}
	return strconv.AppendInt(o.name(name), value, 10)
}

func (o object) bool(name string, value bool) object {
	return strconv.AppendBool(o.name(name), value)
}

// event adds the fields of an event, and the pod's fields only if whole is true.
func (o object) event(ev *pleg.Event, whole bool) object {
	o = o.number("seq", ev.Seq).text("type", string(ev.Type))
	if whole {
		o = o.text("podUID", string(ev.PodUID)).text("podName", ev.PodName).text("podNamespace", ev.PodNamespace)
	}
	o = o.text("containerID", string(ev.ContainerID)).text("containerName", ev.ContainerName)
	o = o.number("attempt", uint64(ev.Attempt)).bool("sandbox", ev.Sandbox)
	if ev.ExitCode != nil {
		o = strconv.AppendInt(o.name("exitCode"), int64(*ev.ExitCode), 10)
	}
	o = o.text("reason", ev.Reason).text("image", ev.Image).time("startedAt", ev.StartedAt).time("finishedAt", ev.FinishedAt)
	o = o.some("missed", int64(ev.Missed))
	if whole && ev.Replayed {
		o = o.bool("replayed", true)
	}
	return o.text("epoch", ev.Epoch).time("observedAt", ev.ObservedAt)
}

// status adds what is published of a status.
func (o object) status(s *pleg.PodStatus) object {
	o = o.texts("ips", s.IPs)
	if len(s.Containers) > 0 {
		o = append(o.name("containers"), '[')
		for _, c := range s.Containers {
			o = append(o.name(""), '{').text("id", string(c.ID)).text("name", c.Name).some("attempt", int64(c.Attempt)).number("state", uint64(c.State))
			o = o.time("createdAt", c.CreatedAt).time("startedAt", c.StartedAt).time("finishedAt", c.FinishedAt)
			o = o.some("exitCode", int64(c.ExitCode)).text("reason", c.Reason).text("message", c.Message)
			o = o.text("image", c.Image).text("imageRef", c.ImageRef).text("logPath", c.LogPath)
			o = append(o, '}')
		}
		o = append(o, ']')
	}
	if len(s.Sandboxes) > 0 {
		o = append(o.name("sandboxes"), '[')
		for _, sandbox := range s.Sandboxes {
			o = append(o.name(""), '{').text("id", string(sandbox.ID)).some("attempt", int64(sandbox.Attempt)).bool("ready", sandbox.Ready)
			o = o.time("createdAt", sandbox.CreatedAt).texts("ips", sandbox.IPs)
			if sandbox.HostNetwork {
				o = o.bool("hostNetwork", true)
			}
			o = append(o, '}')
		}
		o = append(o, ']')
	}
	return o.time("observedAt", s.ObservedAt)
}

func (o object) texts(name string, values []string) object {
	if len(values) == 0 {
		return o
	}
	text, _ := json.Marshal(values)
	return append(o.name(name), text...)
}
