package top

import (
	"cmp"
	"slices"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v3"
)

// key is a key as the model understands it: a name such as "Down", or a character.
type key string

var keyNames = map[tcell.Key]key{
	tcell.KeyUp: "Up", tcell.KeyDown: "Down", tcell.KeyPgUp: "PgUp", tcell.KeyPgDn: "PgDn",
	tcell.KeyHome: "Home", tcell.KeyEnd: "End", tcell.KeyEnter: "Enter", tcell.KeyEscape: "Esc",
	tcell.KeyBackspace: "Backspace", tcell.KeyDelete: "Backspace", tcell.KeyCtrlC: "Ctrl-C",
}

func keyOf(ev *tcell.EventKey) key { return cmp.Or(keyNames[ev.Key()], key(ev.Str())) }

// press reacts to a key. It returns errQuit if the user quits.
func (m *model) press(k key, now time.Time) error {
	switch {
	case k == "Ctrl-C":
		return errQuit
	case m.editing:
		m.edit(k)
	case m.help:
		m.help = false
	case k == "q":
		return errQuit
	case k == "Esc":
		m.filter = ""
	case k == "/":
		m.editing = true
	case k == "s":
		all := Orders()
		m.sort = all[(slices.Index(all, m.sort)+1)%len(all)]
	case k == "p":
		m.paused, m.frozen, m.missed = !m.paused, m.feed, 0
	case k == "?":
		m.help = true
	default:
		m.move(k)
	}
	m.arrange(now)
	return nil
}

// edit changes the filter.
func (m *model) edit(k key) {
	switch k {
	case "Enter":
		m.editing = false
	case "Esc":
		m.editing, m.filter = false, ""
	case "Backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		if r := []rune(k); len(r) == 1 && unicode.IsPrint(r[0]) {
			m.filter += string(k)
		}
	}
}

// move scrolls the rows.
func (m *model) move(k key) {
	switch k {
	case "Down":
		m.top++
	case "Up":
		m.top--
	case "PgDn":
		m.top += max(1, m.page-1)
	case "PgUp":
		m.top -= max(1, m.page-1)
	case "Home":
		m.top = 0
	case "End":
		m.top = len(m.rows)
	}
}

// scroll keeps rows on the screen, with room for n.
func (m *model) scroll(n int) {
	m.page = n
	m.top = max(0, min(m.top, len(m.rows)-n))
}

const helpText = `
↑ ↓ PgUp PgDn Home End   scroll the pods
Esc     clear the filter
/       filter: each word must be in the name, the state or a container
s       sort by severity, events, name, restarts, age, known
p       pause the events
q       quit

The first line says what is wrong. Pods whose inspection hangs come first, the
longest first, then those whose inspection is slow or failed, those that do not
run, then the busiest. EV/M are the events of the last minute, RST restarts.
Inspections that hang or are slow hold up no others: those get extra slots
(8 of 8 + 6 beside 6 hung).`
