// The table of pods. However many there are, only the visible rows exist.

import { eventText } from './store.js';
import { age, clock, count, inert, make, seconds, set, since } from './text.js';

const tail = 11; // characters of a name that are always shown: they tell pods of a deployment apart

export class Pods {
	rowHeight = 26;
	selected = ''; // UID
	scrollTop = 0;
	visible = [];
	#grid = document.getElementById('grid');
	#body = document.getElementById('rows');
	#head = document.getElementById('head');
	#slots = []; // row elements
	#store;
	#onOpen;
	#now;
	#drawn = ''; // the chips, as text
	#height = 0;

	// onOpen is called with the UID of a pod whose details are wanted. now returns the time.
	constructor(store, onOpen, now) {
		this.#store = store;
		this.#now = now;
		this.#onOpen = onOpen;
		this.#grid.addEventListener('scroll', () => {
			this.scrollTop = Math.max(0, this.#grid.scrollTop);
			this.draw();
		}, { passive: true });
		new ResizeObserver(() => {
			this.#measure();
			this.#resize();
			this.draw();
		}).observe(this.#grid);
		this.#grid.addEventListener('keydown', event => this.#key(event));
		this.#body.addEventListener('click', event => {
			const row = event.target.closest('[role=row]');
			if (row) {
				this.select(row.dataset.uid);
				this.#onOpen(row.dataset.uid);
			}
		});
		for (const button of this.#head.querySelectorAll('button')) {
			button.addEventListener('click', () => this.#sortBy(button.dataset.sort));
		}
	}

	// update takes the pods from the store again.
	update() {
		this.visible = this.#store.visible();
		this.#resize();
		const total = this.#store.size;
		const shown = this.visible.reduce((n, pod) => n + !pod.goneAt, 0);
		const empty = document.getElementById('empty');
		empty.hidden = this.visible.length > 0;
		set(empty, total > 0 ? 'no pod matches the filter' : this.#store.synced ? 'no pods on this node' : 'loading');
		set(document.getElementById('count'), !this.#store.synced ? '' : shown === total ? count(total) : `${count(shown)} of ${count(total)}`);
		this.#drawStates();
		this.draw();
	}

	// resize gives the table the height of all rows.
	#resize() {
		const height = this.visible.length * this.rowHeight + 'px';
		if (this.#body.style.height !== height) {
			this.#body.style.height = height;
			this.#grid.setAttribute('aria-rowcount', this.visible.length + 1);
		}
	}

	// drawStates shows a chip for each state that pods are in. Each is a filter.
	#drawStates() {
		const { shown } = this.#store;
		const counts = [...this.#store.counts()].filter(([state, { n }]) => n > 0 || shown.has(state));
		const drawn = JSON.stringify([counts, [...shown]]);
		if (drawn === this.#drawn) {
			return;
		}
		this.#drawn = drawn;
		const list = document.getElementById('states');
		const focused = document.activeElement.parentElement === list ? document.activeElement.dataset.state : '';
		list.replaceChildren(...counts.map(([state, { n, severity }]) => {
			const chip = make('button', `${state} ${count(n)}`);
			chip.type = 'button';
			chip.dataset.state = state;
			chip.dataset.severity = severity;
			chip.setAttribute('aria-pressed', shown.has(state));
			chip.addEventListener('click', () => {
				if (!shown.delete(state)) {
					shown.add(state);
				}
				this.update();
			});
			return chip;
		}));
		list.querySelector(`[data-state="${focused}"]`)?.focus();
	}

	// measure notes the geometry of the table, which is expensive to ask for.
	#measure() {
		this.#height = this.#grid.clientHeight - this.#head.offsetHeight;
		this.rowHeight = parseInt(getComputedStyle(this.#grid).getPropertyValue('--row'), 10);
		this.#slots.forEach(slot => { slot.index = -1; });
	}

	// range returns the index of the first visible row and the number of visible rows.
	range() {
		const first = Math.min(Math.floor(this.scrollTop / this.rowHeight), this.visible.length);
		return [first, Math.min(this.visible.length - first, Math.ceil(this.#height / this.rowHeight) + 1)];
	}

	// draw fills the visible rows.
	draw() {
		const [first, rows] = this.range();
		while (this.#slots.length < rows) {
			this.#slots.push(this.#newRow(this.#slots.length));
		}
		this.#slots.forEach((slot, i) => {
			if (slot.row.hidden !== i >= rows) {
				slot.row.hidden = i >= rows;
			}
			if (i < rows) {
				this.#fill(slot, first + i, this.#now());
			}
		});
		const at = this.visible.findIndex(pod => pod.uid === this.selected);
		if (at >= first && at < first + rows) {
			this.#grid.setAttribute('aria-activedescendant', this.#slots[at - first].row.id);
		} else {
			this.#grid.removeAttribute('aria-activedescendant');
		}
	}

	#newRow(number) {
		const row = document.createElement('div');
		row.id = 'row' + number;
		row.setAttribute('role', 'row');
		const cells = ['namespace', 'name', 'state', 'running', 'restarts', 'last', 'lane'].map(name => {
			const cell = document.createElement('span');
			cell.setAttribute('role', 'gridcell');
			cell.className = name;
			row.append(cell);
			return cell;
		});
		cells[1].append(make('b'), make('b'));
		this.#body.append(row);
		return { row, cells, index: -1, selected: null };
	}

	// fill shows a pod in a row. It writes only what differs: each write costs a layout.
	#fill(slot, index, now) {
		const { row, cells } = slot;
		const pod = this.visible[index];
		const selected = pod.uid === this.selected;
		if (slot.index !== index) {
			slot.index = index;
			row.style.transform = `translateY(${index * this.rowHeight}px)`;
			row.setAttribute('aria-rowindex', index + 2);
		}
		if (slot.selected !== selected) {
			slot.selected = selected;
			row.setAttribute('aria-selected', selected);
		}
		if (row.dataset.uid !== pod.uid) {
			row.dataset.uid = pod.uid;
		}
		row.classList.toggle('gone', pod.goneAt > 0);
		row.classList.toggle('old', Boolean(pod.view?.stale));
		set(cells[0], pod.namespace || '-');
		const name = inert(pod.name || pod.uid);
		set(cells[1].firstChild, name.slice(0, -tail));
		set(cells[1].lastChild, name.slice(-tail));
		if (cells[1].title !== name) {
			cells[1].title = name;
		}
		set(cells[2], stateText(pod, now));
		if (cells[2].dataset.severity !== pod.severity) {
			cells[2].dataset.severity = pod.severity;
		}
		set(cells[3], pod.total ? `${pod.running}/${pod.total}` : '-');
		set(cells[4], String(pod.restarts));
		cells[4].classList.toggle('zero', pod.restarts === 0);
		set(cells[5], lastText(pod, now));
	}

	// select moves the selection to a pod.
	select(uid) {
		this.selected = uid;
		this.draw();
	}

	#sortBy(key) {
		const { sort } = this.#store;
		if (sort.key !== key) {
			this.#store.sort = { key, reverse: false };
		} else if (!sort.reverse) {
			this.#store.sort = { key, reverse: true };
		} else {
			this.#store.sort = { key: 'severity', reverse: false }; // the third click
		}
		for (const button of this.#head.querySelectorAll('button')) {
			const { key, reverse } = this.#store.sort;
			button.parentElement.setAttribute('aria-sort', button.dataset.sort !== key ? 'none' : reverse ? 'descending' : 'ascending');
		}
		this.update();
	}

	#key(event) {
		const page = Math.max(1, this.range()[1] - 2);
		const at = this.visible.findIndex(pod => pod.uid === this.selected);
		const last = this.visible.length - 1;
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last }[event.key];
		if (event.target !== this.#grid || event.ctrlKey || event.metaKey || event.altKey) {
			return;
		}
		if (to !== undefined && last >= 0) {
			event.preventDefault();
			this.#show(Math.min(Math.max(to, 0), last));
		} else if (event.key === 'Enter' && at >= 0) {
			event.preventDefault();
			this.#onOpen(this.selected);
		}
	}

	// show selects the pod with an index and scrolls it into view.
	#show(index) {
		const top = index * this.rowHeight;
		const height = this.#height;
		if (top < this.#grid.scrollTop) {
			this.#grid.scrollTop = top;
		} else if (top + this.rowHeight > this.#grid.scrollTop + height) {
			this.#grid.scrollTop = top + this.rowHeight - height;
		}
		this.select(this.visible[index].uid);
	}

	// explain shows the marks and the hang near the pointer as a tooltip; lanes finds them.
	explain(lanes) {
		this.#body.addEventListener('pointermove', event => {
			const lane = event.target.closest('.lane');
			const pod = lane && this.#store.pods.get(lane.parentElement.dataset.uid);
			const x = lane ? event.clientX - lane.getBoundingClientRect().left : 0;
			const mark = pod && lanes.markAt(pod, x);
			const hang = pod && lanes.hangAt(pod, x);
			let title = '';
			if (mark) {
				title = inert(`${clock(mark.at)} ${pod.title} ${mark.container} ${mark.text}`);
			} else if (hang) {
				title = inert(`${pod.title} ${hang.what} ${since(hang, this.#now())}`);
			}
			if (lane && lane.title !== title) {
				lane.title = title;
			}
		});
	}
}

// stateText returns the state of a pod, and for how long it hangs.
function stateText({ state, hangs }, now) {
	const hang = hangs.at(-1);
	return hang?.until === Infinity ? `${state} ${seconds((now - hang.since) / 1000)}` : state;
}

// lastText returns the last event of a pod. If the pod may have changed since, it returns how old its
// known state is and what the inspection waits for.
function lastText({ last, view }, now) {
	if (!view?.stale && !view?.uninspected) {
		return last ? `${last.container} ${eventText(last)}` : '-';
	}
	const known = view.currentAsOf ? `${age(view.currentAsOf, now)} old` : 'not known yet';
	return known + (view.finding?.detail ?? '');
}
