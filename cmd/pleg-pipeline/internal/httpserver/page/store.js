// What the page knows. It never touches the document.

import { join } from './text.js';

const maxFeed = 200; // events in the feed
const maxMarks = 120; // marks of one pod
const keepMarks = 600e3; // ms: the longest timeline
const keepGone = 30e3; // ms for which a pod that is gone stays visible

const orders = {
	severity: (a, b) => a.rank - b.rank || since(a) - since(b),
	namespace: (a, b) => compare(a.namespace, b.namespace),
	name: (a, b) => compare(a.name, b.name),
	state: (a, b) => a.rank - b.rank,
	running: (a, b) => a.running / a.total - b.running / b.total || a.total - b.total,
	restarts: (a, b) => b.restarts - a.restarts,
	last: (a, b) => b.lastAt - a.lastAt,
};

// since returns when the trouble of a pod began, in ms.
function since(pod) {
	return pod.hangs.at(-1)?.until === Infinity ? pod.hangs.at(-1).since : 0;
}

const maxTexts = 5000;
const texts = new Map();

// intern returns the same string for the same text, so that marks share it.
function intern(text) {
	if (!texts.has(text)) {
		if (texts.size >= maxTexts) {
			texts.clear();
		}
		texts.set(text, text);
	}
	return texts.get(text);
}

function compare(a, b) {
	return a < b ? -1 : a > b ? 1 : 0;
}

export class Store {
	pods = new Map(); // by UID
	feed = []; // events, oldest first
	gaps = []; // times of a Gap
	outages = []; // [start, end] of lost connections; end is Infinity while it lasts
	dirty = new Set(); // UIDs of pods to fetch
	waiting = new Set(); // UIDs of pods that wait for their inspection
	stale = true; // all pods must be fetched
	synced = false; // whether the pods are known
	events = 0; // live events so far
	sort = { key: 'severity', reverse: false };
	words = [];
	shown = new Set(); // the states to show; all if empty
	#states = []; // all states, the worst first

	// addEvent adds an event of the stream.
	addEvent(event) {
		const at = Date.parse(event.observedAt);
		switch (event.type) {
		case 'Synced':
			this.stale = this.synced = true;
			return;
		case 'Gap':
			this.gaps.push(at > 0 ? at : Date.now());
			this.gaps.splice(0, this.gaps.length - 20);
			this.pods.clear();
			this.synced = false;
			this.addToFeed(event);
			return;
		}
		const pod = this.pod(event.podUID);
		setName(pod, event.podName, event.podNamespace);
		if (!event.sandbox || !pod.last || pod.last.sandbox) { // a container says more
			pod.last = event;
			pod.lastAt = at;
		}
		// A mark keeps no event, so that thousands of them need little memory.
		pod.marks.push({ at, severity: event.severity, sandbox: event.sandbox, container: intern(event.container), text: intern(eventText(event)) });
		if (pod.marks.length > maxMarks) {
			pod.marks.shift();
		}
		this.dirty.add(event.podUID);
		if (!event.replayed) {
			this.events++;
			this.addToFeed(event);
		}
	}

	addToFeed(event) {
		this.feed.push(event);
		if (this.feed.length > maxFeed) {
			this.feed.shift();
		}
	}

	// pod returns a known pod or adds one.
	pod(uid) {
		let pod = this.pods.get(uid);
		if (!pod) {
			pod = { uid, name: '', namespace: '', title: uid, state: '', severity: '', rank: 0, running: 0, total: 0, restarts: 0, last: null, lastAt: 0, marks: [], hangs: [], view: null, goneAt: 0 };
			this.pods.set(uid, pod);
		}
		return pod;
	}

	// applyPods takes the answer for some pods, or for all if uids is null. Pods that the answer
	// lacks are gone.
	applyPods({ states, pods }, uids, now) {
		const answered = new Set();
		this.#states = [...states, 'gone'];
		for (const view of pods) {
			answered.add(view.uid);
			const pod = this.pod(view.uid);
			setName(pod, view.name, view.namespace);
			Object.assign(pod, { running: view.running, total: view.total, restarts: view.restarts, goneAt: 0, view });
			this.#setState(pod, view.state, view.severity, now);
		}
		for (const uid of uids ?? this.pods.keys()) {
			const pod = this.pods.get(uid);
			if (pod && !answered.has(uid)) {
				pod.goneAt ||= now;
				this.#setState(pod, 'gone', '', now);
			}
		}
	}

	#setState(pod, state, severity, now) {
		Object.assign(pod, { state, severity, rank: this.#states.indexOf(state) });
		noteHang(pod, now);
	}

	// applyFigures has the pods fetched that change without an event: they wait for their
	// inspection, or no longer do.
	applyFigures(figures) {
		const waiting = new Set(figures.waiting);
		for (const uid of [...waiting, ...this.waiting]) {
			this.dirty.add(uid);
		}
		this.waiting = waiting;
	}

	// expire drops what is too old.
	expire(now) {
		for (const [uid, pod] of this.pods) {
			while (pod.marks.length > 0 && now - pod.marks[0].at > keepMarks) {
				pod.marks.shift();
			}
			pod.hangs = pod.hangs.filter(hang => now - hang.until < keepMarks);
			if (pod.goneAt && now - pod.goneAt > keepGone) {
				this.pods.delete(uid);
			}
		}
		this.outages = this.outages.filter(([, end]) => now - end < keepMarks);
	}

	setLive(live, now) {
		const last = this.outages.at(-1);
		if (live && last?.[1] === Infinity) {
			last[1] = now;
		} else if (!live && last?.[1] !== Infinity) {
			this.outages.push([now, Infinity]);
		}
	}

	// size is the number of pods that are not gone.
	get size() {
		return [...this.pods.values()].reduce((n, pod) => n + !pod.goneAt, 0);
	}

	// visible returns the pods that match the filter, in the chosen order.
	visible() {
		const order = orders[this.sort.key];
		const sign = this.sort.reverse ? -1 : 1;
		const wanted = pod => this.wants(pod) && (this.shown.size === 0 || this.shown.has(pod.state));
		return [...this.pods.values()].filter(wanted).sort((a, b) =>
			sign * order(a, b) || compare(a.namespace, b.namespace) || compare(a.name, b.name) || compare(a.uid, b.uid));
	}

	// counts returns each state, the worst first, with its severity and the number of pods that
	// match the words.
	counts() {
		const counts = new Map(this.#states.map(state => [state, { n: 0, severity: '' }]));
		for (const pod of this.pods.values()) {
			if (this.wants(pod)) {
				const count = counts.get(pod.state);
				count.n++;
				count.severity = pod.severity;
			}
		}
		return counts;
	}

	setFilter(text) {
		this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
	}

	// wants reports whether a pod has all words of the filter. A pod is not known until it was
	// fetched, or is gone: it may be in the history alone.
	wants(pod) {
		if (!pod.view && !pod.goneAt) {
			return false;
		}
		if (this.words.length === 0) {
			return true;
		}
		const text = [pod.title, pod.uid, pod.state, ...(pod.view?.containers ?? []).flatMap(c => [c.name, c.image ?? ''])].join(' ').toLowerCase();
		return this.words.every(word => text.includes(word));
	}

	// wantsEvent reports whether an event has all words, or is of a pod that has them.
	wantsEvent(event) {
		const pod = this.pods.get(event.podUID);
		if (this.words.length === 0 || !event.podUID || (pod && this.wants(pod))) {
			return true;
		}
		const text = `${event.pod} ${event.podUID} ${event.container} ${eventText(event)}`.toLowerCase();
		return this.words.every(word => text.includes(word));
	}
}

// eventText returns what happened and why.
export function eventText(event) {
	return join(', ', event.what, event.why);
}

function setName(pod, name, namespace) {
	if (name) {
		Object.assign(pod, { name, namespace, title: `${namespace}/${name}` });
	}
}

// noteHang keeps since when a pod cannot be inspected, and the starts of the tries that were seen.
function noteHang({ goneAt, severity, view, hangs }, now) {
	let hang = hangs.at(-1);
	if (goneAt || !view.finding?.since) {
		if (hang?.until === Infinity) {
			hang.until = now;
		}
		if (hang && !hang.bad) { // it was only slow
			hangs.pop();
		}
		return;
	}
	if (hang?.until !== Infinity) {
		hang = { since: 0, until: Infinity, attempts: 0, what: '', bad: false, tries: [] };
		hangs.push(hang);
	}
	hang.bad ||= severity === 'problem';
	hang.since = Date.parse(view.finding.since);
	hang.attempts = view.finding.attempts;
	hang.what = view.finding.what;
	const started = Date.parse(view.inspection?.since);
	if (started && hang.tries.at(-1) !== started) {
		hang.tries.push(started);
		hang.tries.splice(0, hang.tries.length - maxMarks);
	}
}
