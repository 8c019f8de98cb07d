package top

import (
	"time"
	"unicode"

	"github.com/gdamore/tcell/v3"
)

// key is a key as the model understands it: a name such as "Down", or a character.
type key string

// keyOf returns the name of a key.
func keyOf(ev *tcell.EventKey) key {
	names := map[tcell.Key]key{
		tcell.KeyUp: "Up", tcell.KeyDown: "Down", tcell.KeyPgUp: "PgUp", tcell.KeyPgDn: "PgDn",
		tcell.KeyHome: "Home", tcell.KeyEnd: "End", tcell.KeyEnter: "Enter", tcell.KeyEscape: "Esc",
		tcell.KeyBackspace: "Backspace", tcell.KeyDelete: "Backspace",
		tcell.KeyCtrlC: "Ctrl-C", tcell.KeyCtrlU: "Ctrl-U",
	}
	if name, ok := names[ev.Key()]; ok {
		return name
	}
	return key(ev.Str())
}

// press reacts to a key. It returns errQuit if the user quits.
func (m *model) press(k key, now time.Time) error {
	switch {
	case k == "Ctrl-C":
		return errQuit
	case m.editing:
		m.edit(k, now)
		return nil
	case m.help:
		m.help = false
		return nil
	}
	switch k {
	case "q":
		return errQuit
	case "Esc":
		m.back(now)
	case "Enter":
		if m.details = m.selected; m.index() < 0 {
			m.details = ""
		}
	case "/":
		m.editing = true
	case "s":
		m.sort = (m.sort + 1) % orders
		m.arrange(now)
	case "r":
		m.reverse = !m.reverse
		m.arrange(now)
	case "p", " ":
		m.paused, m.frozen, m.missed = !m.paused, m.feed, 0
	case "?", "h":
		m.help = true
	default:
		m.move(k)
	}
	return nil
}

// back leaves the details, or else clears the filter.
func (m *model) back(now time.Time) {
	if m.details != "" {
		m.details = ""
		return
	}
	m.filter = ""
	m.arrange(now)
}

// edit changes the filter.
func (m *model) edit(k key, now time.Time) {
	switch k {
	case "Enter":
		m.editing = false
	case "Esc":
		m.editing, m.filter = false, ""
	case "Ctrl-U":
		m.filter = ""
	case "Backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		if r := []rune(k); len(r) == 1 && unicode.IsPrint(r[0]) {
			m.filter += string(k)
		}
	}
	m.arrange(now)
}

// move moves the selection.
func (m *model) move(k key) {
	at := m.index()
	switch k {
	case "Down", "j":
		at++
	case "Up", "k":
		at--
	case "PgDn":
		at += max(1, m.page-1)
	case "PgUp":
		at -= max(1, m.page-1)
	case "Home", "g":
		at = 0
	case "End", "G":
		at = len(m.rows) - 1
	default:
		return
	}
	if len(m.rows) == 0 {
		return
	}
	at = min(max(at, 0), len(m.rows)-1)
	m.selected = m.rows[at].UID
	if m.details != "" {
		m.details = m.selected // the arrows also turn the pages of the details
	}
}

// scroll moves the rows so that the selected one is among the first n.
func (m *model) scroll(n int) {
	m.page = n
	if at := m.index(); at >= 0 {
		m.top = min(max(m.top, at-n+1), at)
	} else if m.selected != "" {
		m.selected = "" // it is gone or filtered out
	}
	m.top = max(0, min(m.top, len(m.rows)-n))
}
