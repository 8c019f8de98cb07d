// The verdict, and how old everything on the page is.

import { inert, join, make, seconds, set, since } from './text.js';

const oldAfter = 3; // seconds without an answer after which the page is old
const maxFindings = 4;
const maxDetail = 400; // characters
const maxAdvice = 600;

export class Banner {
	old = false; // whether the daemon does not answer
	#banner = document.getElementById('banner');
	#verdict = document.getElementById('verdict');
	#connection = document.getElementById('connection');
	#stream = 'connecting'; // or live, or lost

	// update shows the verdict of the daemon. A good verdict waits until the pods are known.
	update({ verdict, node, runtime }, now, synced) {
		set(document.getElementById('node'), node);
		set(document.getElementById('runtime'), runtime);
		const [first, ...others] = verdict.findings;
		if (first) {
			this.#show(verdict.severity, subjectText(first), since(first, now), (first.detail ?? '') + (first.rest ?? ''), first.advice);
		} else if (synced) {
			this.#show('ok', verdict.text.replace(/^OK: /, ''));
		} else {
			this.#show('loading', 'loading');
		}
		const list = document.getElementById('findings');
		list.replaceChildren(...others.slice(0, maxFindings).map(f => make('li', `${subjectText(f)} ${since(f, now)}${f.detail ?? ''}`)));
		document.title = (first ? '● ' : '') + join(' · ', inert(node), 'pleg-pipeline');
	}

	#show(severity, verdict, age = '', detail = '', advice = '') {
		this.#banner.dataset.severity = severity;
		set(this.#verdict, verdict);
		set(document.getElementById('age'), age && ' ' + age);
		set(document.getElementById('detail'), detail, maxDetail);
		const element = document.getElementById('advice');
		element.hidden = !advice;
		set(element, 'Do: ' + advice, maxAdvice);
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
			this.#show('problem', `no answer from the daemon for ${seconds(age)}`, '', why && ': ' + why);
			document.getElementById('findings').replaceChildren();
			document.title = '● no answer · pleg-pipeline';
		}
	}
}

// subjectText returns who has which trouble.
function subjectText(finding) {
	return join(' ', finding.subject, finding.what) || finding.summary;
}
