// Texts. Everything that comes from the runtime goes through inert.

const maxLength = 200;

// A character that is invisible, breaks a line or changes the direction of text.
const unsafe = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

// inert returns a text whose unsafe characters are visible, such as U+202E, and whose
// length is bounded. The page writes texts only with textContent, so HTML is inert.
export function inert(text, most = maxLength) {
	text = String(text ?? '');
	if (text.length > most) {
		text = text.slice(0, most / 2) + '…' + text.slice(-most / 2);
	}
	return text.replace(unsafe, c => '‹U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '›');
}

// set writes a text only if it differs, because a write costs a layout.
export function set(element, text) {
	if (element.textContent !== text) {
		element.textContent = text;
	}
}

// make returns a new element with a text.
export function make(tag, text = '', className = '') {
	const element = document.createElement(tag);
	element.textContent = text;
	if (className) {
		element.className = className;
	}
	return element;
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

// perSecond returns a rate.
export function perSecond(n) {
	if (!Number.isFinite(n)) {
		return '–';
	}
	return (n === 0 || n >= 9.95 ? Math.round(n).toLocaleString('en') : n.toFixed(1)) + '/s';
}

export function count(n) {
	return Number.isFinite(n) ? n.toLocaleString('en') : '–';
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

// podName returns namespace/name, or the UID of a pod whose name is not known.
export function podName(pod) {
	return inert(pod.name ? `${pod.namespace}/${pod.name}` : pod.uid);
}

// Reasons that say no more than the exit code.
const expected = new Set(['Completed', 'Error']);

// whatText returns what happened, in a word or two.
export function whatText(event) {
	const words = { ContainerStarted: 'started', ContainerDied: 'died', ContainerRemoved: 'removed', PodSync: 'sync' };
	const what = words[event.type] ?? event.type;
	return inert(event.exitCode === undefined ? what : `${what} ${event.exitCode}`);
}

// whyText returns what else an event says.
export function whyText(event) {
	const parts = [];
	if (event.reason && !expected.has(event.reason)) {
		parts.push(event.reason);
	}
	if (event.missed) {
		parts.push(`${event.missed} events missed`);
	}
	return inert(parts.join(', '));
}

// ranText says how long a container ran that died.
export function ranText(event) {
	const ran = Date.parse(event.finishedAt) - Date.parse(event.startedAt);
	return ran >= 0 ? `ran ${seconds(ran / 1000)}` : '';
}

// eventText returns what happened and why.
export function eventText(event) {
	return [whatText(event), whyText(event)].filter(Boolean).join(', ');
}

// containerText returns the container of an event; a sandbox in brackets, which a
// container name cannot have.
export function containerText(event) {
	if (event.sandbox) {
		return '(sandbox)';
	}
	return inert(event.containerName ?? '');
}

// kind returns the mark of an event: its type, or exit0 for an end without an error.
export function kind(event) {
	if (event.type === 'ContainerDied' && (event.exitCode === 0 || event.sandbox)) {
		return 'exit0';
	}
	return event.type;
}
