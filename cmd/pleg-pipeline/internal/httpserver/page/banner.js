// The verdict, and how old everything on the page is.

import { clock, inert, make, seconds, set } from './text.js';

const oldAfter = 3; // seconds without an answer after which the page is old
const withDay = 20 * 3600e3; // ms after which a time needs its day
const maxFindings = 4;
const maxAdvice = 600; // characters

export class Banner {
	old = false; // whether the daemon does not answer
	#banner = document.getElementById('banner');
	#verdict = document.getElementById('verdict');
	#connection = document.getElementById('connection');
	#stream = 'connecting'; // or live, or lost

	// update shows the verdict of the daemon. Until the pods are known, good news wait.
	update({ verdict, node, runtime }, now, synced) {
		set(document.getElementById('node'), inert(node));
		set(document.getElementById('runtime'), inert(runtime));
		const [first, ...others] = verdict.findings;
		if (first) {
			this.#show(verdict.severity, subjectText(first), ageText(first, now), inert(first.detail) + inert(first.rest), first.advice);
		} else if (synced) {
			this.#show('ok', inert(verdict.text).replace(/^OK: /, ''));
		} else {
			this.#show('loading', 'loading');
		}
		const list = document.getElementById('findings');
		list.replaceChildren(...others.slice(0, maxFindings).map(f => make('li', `${subjectText(f)} ${ageText(f, now)}${inert(f.detail)}`)));
		document.title = (first ? '● ' : '') + [inert(node), 'pleg-pipeline'].filter(Boolean).join(' · ');
	}

	#show(severity, verdict, age = '', detail = '', advice = '') {
		this.#banner.dataset.severity = severity;
		set(this.#verdict, verdict);
		set(document.getElementById('age'), age && ' ' + age);
		set(document.getElementById('detail'), detail);
		const element = document.getElementById('advice');
		element.hidden = !advice;
		set(element, 'Do: ' + inert(advice, maxAdvice));
	}

	setStream(state) {
		this.#stream = state;
	}

	// setAge says for how many seconds the daemon has not answered, and why: the page is live
	// only while answers and events come.
	setAge(age, why) {
		this.old = age >= oldAfter;
		document.body.classList.toggle('old', this.old);
		this.#connection.dataset.state = this.old ? 'old' : this.#stream;
		set(this.#connection, this.old ? `${seconds(age)} old` : this.#stream === 'lost' ? 'no events: trying to connect' : this.#stream);
		if (this.old) {
			this.#show('problem', `no answer from the daemon for ${seconds(age)}`, '', why && ': ' + inert(why));
			document.getElementById('findings').replaceChildren();
			document.title = '● no answer · pleg-pipeline';
		}
	}
}

// subjectText returns who has which trouble.
function subjectText(finding) {
	return inert([finding.subject, finding.what].filter(Boolean).join(' ') || finding.summary);
}

// ageText says since when, such as "since 17:36 (6m, 9 attempts)". All surfaces of the
// program say it so.
export function ageText({ since, attempts }, now) {
	if (!since) {
		return '';
	}
	const at = new Date(since).getTime();
	const day = now - at < withDay ? '' : new Date(at).toLocaleDateString('en-US', { month: 'short', day: 'numeric' }) + ' ';
	const tries = attempts > 1 ? `, ${attempts} attempts` : '';
	return `since ${day}${clock(at).slice(0, 5)} (${seconds((now - at) / 1000)}${tries})`;
}

