// The details of one pod: containers, exits, commands to copy, sandboxes and its events.

import { age, clock, join, make, moment, seconds, set, since } from './text.js';

const maxEvents = 30;
const maxText = 600; // characters

export class Details {
	uid = '';
	#section = document.getElementById('details');
	#shown = ''; // what the section shows, as text
	#back = null; // the element that gets the focus back

	constructor() {
		this.#section.addEventListener('keydown', event => {
			if (event.key === 'Escape') {
				event.stopPropagation();
				this.close();
			}
		});
	}

	get isOpen() {
		return !this.#section.hidden;
	}

	open(uid, store, now) {
		if (!this.isOpen) {
			this.#back = document.activeElement;
		}
		this.uid = uid;
		this.#shown = '';
		this.#section.hidden = false;
		this.draw(store, now);
		this.#section.focus();
	}

	close() {
		this.#section.hidden = true;
		this.#section.replaceChildren();
		this.uid = '';
		this.#back?.focus();
	}

	// draw shows the pod, if it has changed and no text is selected.
	draw(store, now) {
		const pod = this.isOpen && store.pods.get(this.uid);
		if (!pod) {
			return;
		}
		const shown = JSON.stringify([pod.state, pod.view, pod.last?.seq, Math.floor(now / (pod.view?.stale ? 1e3 : 10e3))]);
		const selection = document.getSelection();
		const selected = selection.type === 'Range' && this.#section.contains(selection.anchorNode);
		if (shown === this.#shown || selected) {
			return;
		}
		this.#shown = shown;
		const close = make('button', 'close');
		close.type = 'button';
		close.addEventListener('click', () => this.close());
		const bar = make('p', '', 'bar');
		bar.append(make('strong', pod.title), close);
		this.#section.replaceChildren(bar, summary(pod, now), containers(pod.view, now), events(pod));
	}
}

function summary(pod, now) {
	const list = document.createElement('dl');
	const add = (name, value, severity = '') => {
		if (value) {
			const dd = make('dd');
			set(dd, value, maxText);
			dd.dataset.severity = severity;
			list.append(make('dt', name), dd);
		}
	};
	add('state', pod.state, pod.severity);
	const { view } = pod;
	const hang = pod.hangs.at(-1);
	if (hang?.until === Infinity) {
		add('trouble', `${hang.what} ${since(hang, now)}`, pod.severity);
	}
	if (view?.inspection) {
		add('this try', `for ${age(view.inspection.since, now)}${view.finding?.detail ?? ''}`, pod.severity);
	} else if (view?.finding?.nextTry) {
		add('next try', `in ${seconds((Date.parse(view.finding.nextTry) - now) / 1000)}`);
	}
	add('do', view?.finding?.advice);
	if (view?.stale) {
		add('known', `as it was ${age(view.currentAsOf, now)} ago`, 'warning');
	}
	add('error', view?.error);
	add('UID', pod.uid);
	add('addresses', join(', ', ...(view?.ips ?? [])));
	for (const s of view?.sandboxes ?? []) {
		add('sandbox', `${s.id}, attempt ${s.attempt}, ${s.state}, age ${age(s.createdAt, now)}`);
		list.append(...commands([`crictl inspectp ${s.id}`, `pgrep -fa ${s.id}`], s.id, 'dd'));
	}
	return list;
}

function containers(view, now) {
	const table = document.createElement('table');
	const head = table.createTHead().insertRow();
	for (const name of ['container', 'attempt', 'state', 'age', 'exit']) {
		head.append(make('th', name));
	}
	const all = [...(view?.containers ?? [])].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : b.attempt - a.attempt));
	const body = table.createTBody();
	for (const c of all) {
		const row = body.insertRow();
		row.append(...[c.name, c.attempt, c.state, age(c.finishedAt ?? c.startedAt ?? c.createdAt, now), exit(c)].map(text => make('td', text)));
		const more = body.insertRow().insertCell();
		more.colSpan = row.cells.length;
		more.className = 'more';
		const times = [['started', c.startedAt], ['finished', c.finishedAt]].filter(([, time]) => time);
		for (const text of [c.image, times.map(([what, time]) => `${what} ${moment(time)}`).join(', '), c.id]) {
			more.append(make('p', text));
		}
		more.append(...commands([`crictl inspect ${c.id}`, `crictl logs ${c.id}`], c.id, 'p'));
	}
	return table;
}

// commands returns elements with commands that a click selects; none if the id could be more
// than an id to a shell.
function commands(all, id, tag) {
	return /^[\w.-]+$/.test(id) ? all.map(text => make(tag, text, 'command')) : [];
}

// exit returns how a container ended.
function exit(c) {
	if (c.exitCode === undefined) {
		return '';
	}
	return join(', ', String(c.exitCode), c.reason, c.message);
}

function events(pod) {
	const list = make('ol', '', 'events');
	for (const mark of pod.marks.slice(-maxEvents).reverse()) {
		const row = document.createElement('li');
		row.dataset.severity = mark.severity;
		row.append(make('time', clock(mark.at)), make('b', mark.text), make('span', mark.container, 'container'));
		list.append(row);
	}
	return list;
}
