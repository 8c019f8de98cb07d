package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestSelectorsAreLimited(t *testing.T) {
	for _, test := range []struct{ name, text, err string }{
		{"empty", " ", ""},
		{"usual", "app=web,tier in (a, b),!test", ""},
		{"as many requirements as allowed", strings.Repeat("!a,", 63) + "!a", ""},
		{"one more", strings.Repeat("!a,", 64) + "!a", "the label selector has 65 requirements, the limit is 64"},
		{"as long as allowed", "a in (" + strings.Repeat("b,", 2044) + "b)", ""},
		{"one byte more", "a in (" + strings.Repeat("b,", 2044) + "bb)", "the label selector has 4097 bytes, the limit is 4096"},
		{"bad", "a in", `"a in" is not a label selector: "a in" does not begin with KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUES) or KEY notin (VALUES)`},
		{"a bad rest", "a=b,c in", `"a=b,c in" is not a label selector: "c in" does not begin with KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUES) or KEY notin (VALUES)`},
		{"a bad number", "a<7,n>x", `"a<7,n>x" is not a label selector: "x" is not a whole number`},
		{"a bad key", "a,b/c/d in (e)", `"a,b/c/d in (e)" is not a label selector: "b/c/d" is not a label key`},
		{"a bad value", "a in (b,-)", `"a in (b,-)" is not a label selector: "-" is not a label value`},
		{"a bad text that is long", strings.Repeat("-", 200), fmt.Sprintf("%q is not a label selector: %[1]q is not a label key", strings.Repeat("-", 100))},
	} {
		_, err := filter.New(pleg.Filter{Selector: test.text})
		if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %v, want %s", test.name, err, test.err)
		}
	}
}

// Selectors are those of kubectl; TestSelectors of the module kubelet compares them with it.
func TestSelectors(t *testing.T) {
	longest, value := strings.Repeat("d", 253)+"/"+strings.Repeat("k", 63), strings.Repeat("v", 63)
	pod := map[string]string{"app": "web", "example.com/tier": "a", "n": "7", "large": "5000000000", "below": "-3", "empty": ""}
	for text, want := range map[string]bool{
		"app": true, "!app": false, "! no": true, "no": false, "empty": true,
		"app=web": true, "app == web": true, "app=db": false, "app==db": false, "no=": false, "empty=": true, "empty=web": false, "empty=,app": true,
		"app!=web": false, "app!=db": true, "no!=a": true, "no!=": true,
		"app in (db, web)": true, "app in (\tweb\r\n)": true, "app in(db)": false, "empty in ()": true, "empty in (a,,b)": true, "no in (a)": false,
		"example.com/tier notin (b)": true, "example.com/tier notin (a,b)": false, "no notin (a)": true,
		"n>6": true, "n > 7": false, "n<8": true, "n<6": false, "app>1": false, "no<1": false, "n>7": false, "n<7": false, "large>4999999999": true, "below<0": true, "below>0": false,
		"app=web,n>6,!no": true, "app=web,no": false, "in": false, "in in (in)": false, "!" + longest: true, "app!=" + value: true,
	} {
		f, err := filter.New(pleg.Filter{Selector: text})
		if err != nil || f.WantsLabels(pod) != want {
			t.Errorf("%q: wanted is %v, error %v; want %v", text, f.WantsLabels(pod), err, want)
		}
	}
	for _, text := range []string{
		"app,", ",app", "app=web db", "app===web", "app=!web", "!app=web", "!app=", "!app in ()", "!!app", "app in web", "app in (web", "appin(web)",
		"app in (web db)", "n>a", "n>-1", "-app", "a/b/c", "/app", "Example.com/app", "app=-", "app=a/b", "d" + longest, longest + "k", strings.Repeat("a", 64),
		"app=v" + value, "a\x00b", "ä",
	} {
		if _, err := filter.New(pleg.Filter{Selector: text}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// A type on request comes to each subscriber that names it.
func TestTypes(t *testing.T) {
	all := eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)
	normal := eventtype.Types(eventtype.ClassNormal)
	created, network := []pleg.EventType{pleg.ContainerCreated}, []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}
	for name, test := range map[string]struct {
		filter pleg.Filter
		want   []pleg.EventType
	}{
		"nothing named":                {pleg.Filter{}, normal},
		"an empty list":                {pleg.Filter{Types: []pleg.EventType{}}, normal},
		"network events":               {pleg.Filter{NetworkEvents: true}, slices.Concat(normal, network)},
		"all named":                    {pleg.Filter{Types: all}, all},
		"one on request":               {pleg.Filter{Types: created}, created},
		"one named and network events": {pleg.Filter{Types: created, NetworkEvents: true}, created},
		"a network event":              {pleg.Filter{Types: network[:1]}, network[:1]},
	} {
		f, err := filter.New(test.filter)
		kit.Must(t, err)
		got := slices.DeleteFunc(slices.Clone(all), func(t pleg.EventType) bool { return !f.WantsEvent(&pleg.Event{Type: t}) })
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	for _, unknown := range []pleg.EventType{"Nothing", pleg.Synced} {
		want := fmt.Sprintf("Types has the unknown event type %q: known are %v", unknown, all)
		if _, err := filter.New(pleg.Filter{Types: append(created, unknown)}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", unknown, err, want)
		}
	}
}

// An event must pass each part of a filter, and one value of a list is enough.
func TestParts(t *testing.T) {
	all, err := filter.New(pleg.Filter{Types: []pleg.EventType{}, Namespaces: []string{}, PodUIDs: []pleg.PodUID{}})
	kit.Must(t, err)
	empty, err := filter.New(pleg.Filter{Namespaces: []string{}, PodUIDs: []pleg.PodUID{}})
	kit.Must(t, err)
	some, err := filter.New(pleg.Filter{Namespaces: []string{"shop", "bank"}, PodUIDs: []pleg.PodUID{"u", "v"}, OmitSandboxes: true})
	kit.Must(t, err)
	for _, test := range []struct {
		namespace string
		uid       pleg.PodUID
		sandbox   bool
		pod, want bool // the pod, and its event
	}{
		{"shop", "u", false, true, true},
		{"bank", "v", false, true, true},
		{"bank", "v", true, true, false},
		{"shop", "w", false, false, false},
		{"u", "v", false, false, false},
		{"", "u", false, false, false},
	} {
		ev := &pleg.Event{Type: pleg.ContainerStarted, PodNamespace: test.namespace, PodUID: test.uid, Sandbox: test.sandbox}
		if !all.WantsEvent(ev) || !all.WantsPod(test.namespace, test.uid) || !empty.WantsEvent(ev) || !empty.WantsPod(test.namespace, test.uid) {
			t.Errorf("a filter of nothing leaves out %+v", test)
		}
		if some.WantsEvent(ev) != test.want || some.WantsPod(test.namespace, test.uid) != test.pod {
			t.Errorf("the event is wanted: %t, and its pod: %t; want %+v", some.WantsEvent(ev), some.WantsPod(test.namespace, test.uid), test)
		}
	}
}

func FuzzSelector(f *testing.F) {
	for _, s := range []string{"", "app=web", "app!=web,tier in (a, b)", "!app", "app==", "=", "a in ("} {
		f.Add(s, "app", "web")
	}
	f.Fuzz(func(t *testing.T, selector, key, value string) {
		plain, err := filter.New(pleg.Filter{Selector: selector})
		spaced, again := filter.New(pleg.Filter{Selector: " " + selector + " "})
		if long := len(selector) > 4094; !long && (err != nil) != (again != nil) {
			t.Fatalf("%q: %v, with spaces around it %v", selector, err, again)
		}
		labels := map[string]string{key: value}
		if err == nil && again == nil && plain.WantsLabels(labels) != spaced.WantsLabels(labels) {
			t.Errorf("%q wants %v=%v, or not with spaces around it", selector, key, value)
		}
	})
}
