// The table of pods. However many there are, only the visible rows exist.

import { clock, containerText, count, eventText, inert, podName, seconds, set } from './text.js';

export const rowHeight = 26;

export class Pods {
	selected = ''; // UID
	scrollTop = 0;
	visible = [];
	#grid = document.getElementById('grid');
	#body = document.getElementById('rows');
	#head = document.getElementById('head');
	#slots = []; // row elements
	#store;
	#onOpen;
	#hover;
	#height = 0;

	// onOpen is called with the UID of a pod whose details are wanted.
	constructor(store, onOpen) {
		this.#store = store;
		this.#onOpen = onOpen;
		this.#grid.addEventListener('scroll', () => {
			this.scrollTop = Math.max(0, this.#grid.scrollTop);
			this.draw();
		}, { passive: true });
		new ResizeObserver(() => {
			this.#measure();
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
		const height = this.visible.length * rowHeight + 'px';
		if (this.#body.style.height !== height) {
			this.#body.style.height = height;
			this.#grid.setAttribute('aria-rowcount', this.visible.length + 1);
		}
		const total = this.#store.pods.size;
		const empty = document.getElementById('empty');
		empty.hidden = this.visible.length > 0;
		set(empty, total > 0 ? 'no pod matches the filter' : 'no pods yet');
		set(document.getElementById('count'), this.visible.length === total ? count(total) : `${count(this.visible.length)} of ${count(total)}`);
		this.draw();
	}

	// measure notes the geometry of the table, which is expensive to ask for.
	#measure() {
		this.#height = this.#grid.clientHeight - this.#head.offsetHeight;
	}

	// range returns the index of the first visible row and the number of visible rows.
	range() {
		const first = Math.min(Math.floor(this.scrollTop / rowHeight), this.visible.length);
		return [first, Math.min(this.visible.length - first, Math.ceil(this.#height / rowHeight) + 1)];
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
				this.#fill(slot, first + i);
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
		this.#body.append(row);
		return { row, cells, index: -1, selected: null };
	}

	// fill shows a pod in a row. It writes only what differs: each write costs a layout.
	#fill(slot, index) {
		const { row, cells } = slot;
		const pod = this.visible[index];
		const selected = pod.uid === this.selected;
		if (slot.index !== index) {
			slot.index = index;
			row.style.transform = `translateY(${index * rowHeight}px)`;
			row.setAttribute('aria-rowindex', index + 2);
		}
		if (slot.selected !== selected) {
			slot.selected = selected;
			row.setAttribute('aria-selected', selected);
		}
		if (row.dataset.uid !== pod.uid) {
			row.dataset.uid = pod.uid;
		}
		row.classList.toggle('gone', pod.state === 'gone');
		set(cells[0], inert(pod.namespace || '-'));
		set(cells[1], inert(pod.name || pod.uid));
		set(cells[2], pod.state);
		if (cells[2].dataset.state !== pod.state) {
			cells[2].dataset.state = pod.state;
		}
		set(cells[3], pod.total ? `${pod.running}/${pod.total}` : '-');
		set(cells[4], String(pod.restarts));
		cells[4].classList.toggle('zero', pod.restarts === 0);
		set(cells[5], pod.last ? `${containerText(pod.last)} ${eventText(pod.last)}` : '-');
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
			this.#store.sort = { key: 'trouble', reverse: false }; // the third click
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
		const top = index * rowHeight;
		const height = this.#height;
		if (top < this.#grid.scrollTop) {
			this.#grid.scrollTop = top;
		} else if (top + rowHeight > this.#grid.scrollTop + height) {
			this.#grid.scrollTop = top + rowHeight - height;
		}
		this.select(this.visible[index].uid);
	}

	// explain shows the marks near the pointer as a tooltip; markAt finds them.
	explain(markAt) {
		this.#body.addEventListener('pointermove', event => {
			const lane = event.target.closest('.lane');
			const pod = lane && this.#store.pods.get(lane.parentElement.dataset.uid);
			const mark = pod && markAt(pod, event.clientX - lane.getBoundingClientRect().left);
			const title = mark ? `${clock(mark.at)} ${podName(pod)} ${mark.container} ${mark.text}` : '';
			if (lane && this.#hover !== title) {
				this.#hover = title;
				lane.title = title;
			}
		});
	}
}

// age returns the time since t as text.
export function age(t, now) {
	return t > 0 ? seconds(Math.max(0, (now - t) / 1000)) : '–';
}
