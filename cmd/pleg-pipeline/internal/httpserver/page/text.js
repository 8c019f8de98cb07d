// Texts and times. The words about pods and events come from the server, the page only says how
// long ago something was.

const maxLength = 200;

// A character that is invisible, breaks a line or changes the direction of text.
const unsafe = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

// inert returns a text whose unsafe characters are visible, such as U+202E, and whose
// length is bounded. set and make apply it: a text that reaches the document in another way
// needs it too. As the page writes texts only with textContent, HTML is inert.
export function inert(text, most = maxLength) {
	text = String(text ?? '');
	if (text.length > most) {
		text = text.slice(0, most / 2) + '…' + text.slice(-most / 2);
	}
	return text.replace(unsafe, c => '‹U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '›');
}

// set writes a text only if it differs, because a write costs a layout.
export function set(element, text, most = maxLength) {
	text = inert(text, most);
	if (element.textContent !== text) {
		element.textContent = text;
	}
}

// make returns a new element with a text.
export function make(tag, text = '', className = '') {
	const element = document.createElement(tag);
	element.textContent = inert(text);
	if (className) {
		element.className = className;
	}
	return element;
}

// join joins the parts of a text that are not empty.
export function join(separator, ...parts) {
	return parts.filter(Boolean).join(separator);
}

export function count(n) {
	return Number.isFinite(n) ? n.toLocaleString('en') : '–';
}

// seconds returns a duration in one unit, as the program prints it.
export function seconds(s) {
	if (!Number.isFinite(s)) {
		return '–';
	}
	s = Math.max(0, s);
	if (s < 0.1) {
		return (s * 1000).toFixed(s < 0.00995 ? 1 : 0) + 'ms';
	}
	if (s < 10) {
		return s.toFixed(1) + 's';
	}
	if (s < 120) {
		return Math.floor(s) + 's';
	}
	if (s < 7200) {
		return Math.floor(s / 60) + 'm';
	}
	return s < 172800 ? Math.floor(s / 3600) + 'h' : Math.floor(s / 86400) + 'd';
}

// age returns the time between a time of the server and now.
export function age(time, now) {
	return seconds((now - Date.parse(time)) / 1000);
}

const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export function clock(time) {
	return Number.isFinite(time) ? clockFormat.format(time) : '–';
}

const momentFormat = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' });

// moment returns the day and the time of a time of the server.
export function moment(text) {
	const time = Date.parse(text);
	return Number.isFinite(time) ? momentFormat.format(time) : '–';
}

const withDay = 20 * 3600e3; // ms after which a time needs its day

// since says since when, such as "since 17:36 (6m, 9 attempts)", in the time zone of the
// browser. All surfaces of the program say it so.
export function since(finding, now) {
	if (!finding.since) {
		return '';
	}
	const at = new Date(finding.since).getTime();
	const day = now - at < withDay ? '' : new Date(at).toLocaleDateString('en-US', { month: 'short', day: 'numeric' }) + ' ';
	const tries = finding.attempts > 1 ? `, ${finding.attempts} attempts` : '';
	return `since ${day}${clock(at).slice(0, 5)} (${seconds((now - at) / 1000)}${tries})`;
}
