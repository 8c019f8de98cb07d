// The feed: the newest events, newest first.

import { clock, inert, join, make, set } from './text.js';

const maxRows = 120;

export class Feed {
	paused = false;
	#list = document.getElementById('events');
	#button = document.getElementById('pause');
	#unseen = document.getElementById('unseen');
	#store;
	#shown; // the newest event that was looked at
	#missed = 0; // events since the pause

	constructor(store, onOpen) {
		this.#store = store;
		this.#button.addEventListener('click', () => this.toggle());
		this.#list.addEventListener('click', event => {
			const uid = event.target.closest('li')?.dataset.uid;
			if (uid) {
				onOpen(uid);
			}
		});
	}

	// toggle pauses the feed, or shows what happened meanwhile.
	toggle() {
		this.paused = !this.paused;
		this.#missed = 0;
		this.#button.setAttribute('aria-pressed', this.paused);
		set(this.#button, this.paused ? 'go on' : 'pause');
		set(this.#unseen, this.paused ? 'paused' : '');
		if (!this.paused) {
			this.rebuild();
		}
	}

	// add notes that an event has come.
	add() {
		if (this.paused) {
			this.#missed++;
		}
	}

	// rebuild shows the feed of the store from scratch, as after a new filter.
	rebuild() {
		this.#shown = undefined;
		this.#list.replaceChildren();
		this.draw(true);
	}

	// draw adds the events since the last time, unless the feed is paused.
	draw(force = false) {
		if (this.paused && !force) {
			set(this.#unseen, this.#missed ? `paused, ${this.#missed} new` : 'paused');
			return;
		}
		if (this.#store.feed.at(-1) === this.#shown) {
			return;
		}
		const from = this.#store.feed.lastIndexOf(this.#shown) + 1;
		const fresh = this.#store.feed.slice(from).filter(event => this.#store.wantsEvent(event)).slice(-maxRows);
		this.#shown = this.#store.feed.at(-1) ?? null;
		for (const event of fresh) {
			// The oldest row becomes the newest: the page makes no garbage.
			const row = this.#list.children.length < maxRows ? newRow() : this.#list.lastElementChild;
			fill(row, event);
			this.#list.prepend(row);
		}
	}
}

function newRow() {
	const row = document.createElement('li');
	row.append(make('time'), make('b'), make('span'), make('span', '', 'container'));
	return row;
}

function fill(row, event) {
	const [time, what, pod, container] = row.children;
	row.dataset.severity = event.severity;
	row.dataset.type = event.type;
	set(what, event.what);
	if (!event.podUID) { // a Gap, which may have no time
		delete row.dataset.uid;
		row.title = '';
		set(time, clock(Date.now()));
		set(pod, event.why);
		set(container, '');
		return;
	}
	row.dataset.uid = event.podUID;
	set(time, clock(Date.parse(event.observedAt)));
	set(pod, event.podName || event.podUID);
	row.title = join(', ', inert(event.pod), inert(event.image));
	set(container, join(', ', event.container, event.why));
}
