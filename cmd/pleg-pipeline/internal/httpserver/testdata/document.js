// A document in memory, for tests of the page without a browser: the elements of index.html, the selectors that
// the page uses, events that bubble, canvases that note what is drawn, and a clock.

import { readFileSync } from 'node:fs';

class Classes extends Set {
	toggle(name, on = !this.has(name)) {
		on ? this.add(name) : this.delete(name);
	}
}

class Element {
	id = '';
	title = '';
	value = '';
	hidden = false;
	dataset = {};
	style = {};
	attributes = {};
	classList = new Classes();
	childNodes = []; // elements and texts
	parentElement = null;
	rect = { left: 0, top: 0, bottom: 0, width: 0, height: 0 };
	scrollTop = 0;
	clientWidth = 0;
	clientHeight = 0;
	offsetHeight = 0;
	#listeners = [];
	#context;

	constructor(tag) {
		this.tag = tag;
	}

	get className() { return [...this.classList].join(' '); }
	set className(text) { this.classList = new Classes(text.split(' ')); }
	get textContent() { return this.childNodes.map(node => node.textContent ?? node).join(''); }
	set textContent(text) { this.replaceChildren(...(text === '' ? [] : [String(text)])); }
	get children() { return this.childNodes.filter(node => node instanceof Element); }
	get firstChild() { return this.childNodes[0]; }
	get lastChild() { return this.childNodes.at(-1); }
	get lastElementChild() { return this.children.at(-1); }
	get cells() { return this.children; }
	get ariaSort() { return this.attributes['aria-sort']; }

	remove() {
		const { childNodes } = this.parentElement ?? { childNodes: [] };
		childNodes.splice(childNodes.indexOf(this), childNodes.includes(this) ? 1 : 0);
	}

	#add(at, nodes) {
		for (const node of nodes) {
			if (node instanceof Element) {
				node.remove();
				node.parentElement = this;
			}
		}
		this.childNodes.splice(at, 0, ...nodes);
	}

	append(...nodes) { this.#add(this.childNodes.length, nodes); }
	prepend(...nodes) { this.#add(0, nodes); }
	replaceChildren(...nodes) {
		this.childNodes = [];
		this.#add(0, nodes);
	}

	#new(tag) {
		const element = new Element(tag);
		this.append(element);
		return element;
	}

	createTHead() { return this.#new('thead'); }
	createTBody() { return this.#new('tbody'); }
	insertRow() { return this.#new('tr'); }
	insertCell() { return this.#new('td'); }

	setAttribute(name, value) { this.attributes[name] = String(value); }
	removeAttribute(name) { delete this.attributes[name]; }
	getBoundingClientRect() { return this.rect; }
	focus() { document.activeElement = this; }
	contains(element) { return element === this || this.querySelectorAll('*').includes(element); }

	#matches(selector) {
		return selector.match(/^[a-z0-9*]+|#\w+|\.\w+|\[[^\]]*\]/g).every(part => {
			switch (part[0]) {
			case '*': return true;
			case '#': return this.id === part.slice(1);
			case '.': return this.classList.has(part.slice(1));
			case '[': {
				const [name, value] = part.slice(1, -1).split('=');
				const has = name.startsWith('data-') ? this.dataset[name.slice(5)] : this.attributes[name];
				return value === undefined ? has !== undefined : has === value.replaceAll('"', '');
			}
			}
			return this.tag === part;
		});
	}

	closest(selector) { return this.#matches(selector) ? this : this.parentElement?.closest(selector) ?? null; }
	querySelector(selector) { return this.querySelectorAll(selector)[0] ?? null; }
	querySelectorAll(selector) {
		const [first, ...rest] = selector.split(' ');
		const found = this.children.flatMap(child => [...(child.#matches(first) ? [child] : []), ...child.querySelectorAll(first)]);
		return rest.length > 0 ? found.flatMap(element => element.querySelectorAll(rest.join(' '))) : found;
	}

	addEventListener(type, listener) { this.#listeners.push([type, listener]); }
	dispatchEvent(event) {
		event.target ??= this;
		this.#listeners.forEach(([type, listener]) => type === event.type && listener(event));
		if (!event.stopped) {
			this.parentElement?.dispatchEvent(event);
		}
	}

	// getContext returns a context whose drawn is what was drawn since the last clearRect, with its color.
	// drawings is the number of times, scale the last transformation.
	getContext(kind = '2d') {
		if (kind !== '2d') {
			return null;
		}
		const state = { drawn: [], drawings: 0, font: '', scale: '' };
		const round = value => (typeof value === 'number' ? Math.round(value * 10) / 10 : value);
		return this.#context ??= new Proxy(state, {
			get: (_, name) => state[name] ?? ((...values) => {
				if (name === 'setTransform') {
					state.scale = values.join(' ');
				}
				if (name === 'clearRect') {
					state.drawn = [];
					state.drawings++;
				}
				const color = name === 'fillText' ? [state.fillStyle, state.textAlign] : name.startsWith('fill') ? [state.fillStyle] : name === 'stroke' ? [state.strokeStyle, state.lineWidth] : [];
				state.drawn.push([name, ...values.map(round), ...color].join(' '));
			}),
		});
	}

	get drawn() { return this.getContext().drawn; }
	get drawings() { return this.getContext().drawings; }
}

// parse returns the element that the text of a document describes.
function parse(text) {
	const root = new Element('#document');
	let at = root;
	for (const [, close, tag, attributes, words] of text.matchAll(/<(\/?)([a-z]\w*)([^>]*)>|([^<]+)/g)) {
		if (words !== undefined) {
			at.append(words);
		} else if (close) {
			at = at.parentElement;
		} else {
			const element = new Element(tag);
			at.append(element);
			for (const [, name, value = ''] of attributes.matchAll(/([\w-]+)(?:="([^"]*)")?/g)) {
				if (name.startsWith('data-')) {
					element.dataset[name.slice(5)] = value;
				} else if (name === 'class') {
					element.className = value;
				} else {
					element.setAttribute(name, value);
					Object.assign(element, { id: { id: value }, value: { value }, hidden: { hidden: true } }[name]);
				}
			}
			at = ['meta', 'link', 'input'].includes(tag) ? at : element;
		}
	}
	return root;
}

const html = readFileSync(new URL('index.html', import.meta.url), 'utf8');

// open opens a page that nothing has drawn yet, and returns the element with an id.
export function open() {
	const root = parse(html);
	const byId = id => root.querySelector('#' + id);
	globalThis.document = Object.assign(root, {
		body: root.querySelector('body'), documentElement: root.querySelector('html'), activeElement: root.querySelector('body'),
		getElementById: byId, createElement: tag => new Element(tag), getSelection: () => ({ type: 'None' }),
	});
	observers.length = 0;
	schemes.length = 0;
	media.clear();
	return byId;
}

// fire lets a user do something to an element.
export function fire(element, type, more) {
	const event = new Event(type, more);
	element.dispatchEvent(event);
	return event;
}

const observers = [];
const schemes = [];

// resized reports the present sizes of all elements.
export function resized() {
	observers.forEach(observer => observer());
}

// darken changes the scheme of the colors.
export function darken() {
	media.add('(prefers-color-scheme: dark)');
	schemes.forEach(changed => changed());
}

export const media = new Set(); // the media queries that match

// clock is the time in ms. It passes in pass, which calls what is due.
export const clock = {
	now: Date.parse('2026-03-04T12:00:00Z'),
	due: [],
	add(work, ms, every) {
		this.due.push({ at: this.now + ms, work, every });
	},
	async pass(ms) {
		const end = this.now + ms;
		for (;;) {
			await new Promise(setImmediate);
			const next = this.due.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
			if (!next) {
				break;
			}
			this.due.splice(this.due.indexOf(next), 1);
			this.now = Math.max(this.now, next.at);
			if (next.every) {
				this.add(next.work, next.every, next.every);
			}
			next.work(this.now);
		}
		this.now = end;
	},
};

Date.now = () => clock.now;
Map.groupBy ??= (all, key) => {
	const groups = new Map();
	all.forEach(value => groups.set(key(value), [...groups.get(key(value)) ?? [], value]));
	return groups;
};
Object.assign(globalThis, {
	window: globalThis,
	devicePixelRatio: 2,
	Event: class {
		constructor(type, more) { Object.assign(this, { type, prevented: false, stopped: false }, more); }
		preventDefault() { this.prevented = true; }
		stopPropagation() { this.stopped = true; }
	},
	ResizeObserver: class {
		#report;
		constructor(report) { this.#report = report; }
		observe() { observers.push(this.#report); }
	},
	// A color is its name.
	getComputedStyle: element => ({
		fontFamily: 'font',
		getPropertyValue: name => (name === '--row' ? ` ${element.rowHeight ?? 26}px` : ` ${media.has('(prefers-color-scheme: dark)') ? 'dark-' : ''}${name.startsWith('--') ? name.slice(2) : ''} `),
	}),
	matchMedia: query => ({ matches: media.has(query), addEventListener: (_, changed) => schemes.push(changed) }),
});
