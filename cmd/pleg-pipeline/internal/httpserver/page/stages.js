// The stages with their figures, the verdict, and the pods that cannot be inspected.

import { colors, fit } from './lanes.js';
import { count, inert, make, perSecond, podName, seconds, set } from './text.js';

const slowList = 5; // seconds after which a list that runs is worth a word
const sparkLength = 60;
const maxTrouble = 5;

export class Stages {
	#figure = {};
	#last = null; // the figures before
	#rates = {};
	#spark = []; // events per second, one for each reading
	#inspectionDuration = NaN;

	constructor() {
		for (const element of document.querySelectorAll('[data-figure]')) {
			this.#figure[element.dataset.figure] = element;
		}
	}

	// update shows new figures. pods is the number of pods that the page knows.
	update(figures, pods) {
		this.#measure(figures);
		const { lister, hinter, differ, inspector, dispatcher } = figures;
		const at = Date.parse(figures.at);
		this.#set({
			listAge: lister.lastList ? seconds((at - Date.parse(lister.lastList)) / 1000) + ' ago' : 'never',
			listDuration: lister.runningSeconds > 1 ? seconds(lister.runningSeconds) + ' so far' : lister.lastList ? seconds(lister.lastSeconds) : '–',
			listErrors: count(lister.errors),
			listRate: perSecond(this.#rates.lists),
			stream: hinter.streamUp ? (hinter.streamDoubted ? 'doubted' : perSecond(this.#rates.criEvents)) : hinter.opened ? 'down' : 'off',
			hintRate: perSecond(this.#rates.hints),
			pods: count(pods),
			queue: count(differ.queue),
			quarantined: count(differ.quarantined),
			inspectionRate: perSecond(this.#rates.inspections),
			inFlight: placesText(inspector),
			hung: hungText(figures, at),
			inspectionDuration: seconds(this.#inspectionDuration),
			inspectionErrors: count(inspector.errors),
			eventRate: perSecond(this.#rates.events),
			subscribers: count(dispatcher.subscribers),
			discarded: count(dispatcher.discarded),
		});
		this.#emphasize({
			listAge: lister.lastList && at - Date.parse(lister.lastList) > 10e3 && !hinter.streamUp, listErrors: this.#rates.listErrors > 0, listDuration: lister.runningSeconds > slowList,
			quarantined: differ.quarantined > 0, hung: inspector.hung > 0, stream: hinter.streamDoubted, inspectionErrors: this.#rates.inspectionErrors > 0,
		});
		slots(inspector);
		this.#verdict(figures);
		showTroubles(figures);
	}

	// measure computes rates from the difference to the figures before.
	#measure(figures) {
		const last = this.#last?.epoch === figures.epoch ? this.#last : null;
		this.#last = figures;
		if (!last) {
			this.#rates = {};
			return;
		}
		const elapsed = Math.max(0.001, (Date.parse(figures.at) - Date.parse(last.at)) / 1000);
		const rate = of => Math.max(0, of(figures) - of(last)) / elapsed;
		this.#rates = {
			lists: rate(f => f.lister.lists), listErrors: rate(f => f.lister.errors),
			criEvents: rate(f => f.hinter.criEvents), hints: rate(f => f.hinter.criEvents + f.hinter.podRelists),
			inspections: rate(f => f.inspector.inspections), inspectionErrors: rate(f => f.inspector.errors),
			events: rate(f => f.dispatcher.events),
		};
		const mean = (sum, number) => (number(figures) > number(last) ? (sum(figures) - sum(last)) / (number(figures) - number(last)) : NaN);
		const inspection = mean(f => f.inspector.inspectionSeconds, f => f.inspector.inspections);
		this.#inspectionDuration = Number.isNaN(inspection) ? this.#inspectionDuration : inspection;
		this.#spark.push(this.#rates.events);
		this.#spark.splice(0, this.#spark.length - sparkLength);
	}

	#set(texts) {
		for (const [name, text] of Object.entries(texts)) {
			set(this.#figure[name], text);
		}
	}

	#emphasize(bad) {
		for (const [name, on] of Object.entries(bad)) {
			this.#figure[name].classList.toggle('bad', Boolean(on));
		}
	}

	// verdict says in one line how the pipeline is.
	#verdict(figures) {
		const { lister } = figures;
		const lines = troubles(figures);
		let [state, text] = ['good', 'healthy'];
		if (!figures.healthy) {
			[state, text] = ['bad', inert(figures.reason)];
		} else if (lister.runningSeconds > slowList) {
			[state, text] = ['bad', `the list of pods has been running for ${seconds(lister.runningSeconds)}${call(lister)}`];
		} else if (lister.failures > 0) {
			[state, text] = ['bad', `${lister.failures === 1 ? 'a list' : `${lister.failures} lists in a row`} of pods failed: ${inert(lister.error)}`];
		} else if (lines.length === 1) {
			[state, text] = ['warn', `${lines[0]}; ${others(figures, 1)}`];
		} else if (lines.length > 1) {
			[state, text] = ['warn', `${lines.length} pods cannot be inspected; ${others(figures, lines.length)}`];
		} else if (figures.reason) {
			[state, text] = ['warn', inert(figures.reason)];
		}
		verdict(state, text);
	}

	// drawSpark draws the events per second of the last minute.
	drawSpark() {
		const canvas = document.getElementById('spark');
		const { clientWidth: width, clientHeight: height } = canvas.parentElement.querySelector('dl');
		const h = Math.min(34, height);
		const context = fit(canvas, width, h);
		const most = Math.max(1, ...this.#spark);
		const step = width / sparkLength;
		context.fillStyle = colors().info;
		this.#spark.forEach((rate, i) => {
			const bar = Math.max(rate > 0 ? 1 : 0, (h - 1) * rate / most);
			context.fillRect((sparkLength - this.#spark.length + i) * step, h - bar, Math.max(1, step - 1), bar);
		});
	}
}

// verdict shows the state of the pipeline, or of the connection to it.
export function verdict(state, text) {
	document.getElementById('health').dataset.state = state;
	set(document.getElementById('verdict'), text);
	document.title = (state === 'good' ? '' : '● ') + `pleg-pipeline ${location.host}`;
}

// others says what the pods do that are not among n in trouble.
function others({ differ }, n) {
	const waiting = differ.queue - n;
	if (waiting > 0) {
		return `${count(waiting)} more ${waiting === 1 ? 'waits' : 'wait'} for an inspection`;
	}
	return 'all other pods are up to date';
}

// hungText returns the number of hung inspections and the age of the oldest.
function hungText({ inspector, overdue }, at) {
	const oldest = overdue.find(i => i.hung);
	return oldest ? `${inspector.hung}, ${seconds((at - Date.parse(oldest.since)) / 1000)}` : count(inspector.hung);
}

// placesText returns how many inspections are in flight, of the places. Those that hang or
// are slow have lent their places, so there may be more.
function placesText({ inFlight, width }) {
	const extra = Math.max(0, inFlight - width);
	return `${inFlight - extra} of ${width}${extra ? ` + ${extra}` : ''}`;
}

// call returns the call to the runtime that something waits for, in brackets.
function call(of) {
	return of.call ? ` (${inert(of.call)})` : '';
}

// slots draws a square for each place of the inspector.
function slots({ inFlight, width, hung }) {
	const row = document.getElementById('slots');
	const number = Math.min(64, Math.max(width, inFlight));
	while (row.children.length > number) {
		row.lastElementChild.remove();
	}
	while (row.children.length < number) {
		row.append(make('i'));
	}
	[...row.children].forEach((slot, i) => {
		slot.className = i < hung ? 'hung' : i < inFlight ? 'busy' : '';
	});
}

// troubles returns a line for each pod that cannot be inspected.
function troubles(figures) {
	const at = Date.parse(figures.at);
	const age = time => seconds(Math.max(0, at - Date.parse(time)) / 1000);
	const lines = figures.overdue.map(i => `${podName(i)}: inspection ${i.hung ? 'hangs' : 'takes long'}, ${age(i.since)} so far${call(i)}`);
	const known = new Set(figures.overdue.map(i => i.uid));
	for (const q of figures.quarantined) {
		if (!known.has(q.uid)) {
			const next = Math.max(0, (Date.parse(q.nextTry) - at) / 1000);
			lines.push(`${podName(q)}: ${q.hung === 1 ? 'the last inspection' : `the last ${q.hung} inspections`} hung; next in ${seconds(next)}`);
		}
	}
	return lines;
}

// showTroubles lists them. A single one is in the verdict.
function showTroubles(figures) {
	const list = document.getElementById('trouble');
	const lines = troubles(figures);
	const more = lines.length - maxTrouble;
	const shown = lines.length < 2 ? [] : lines.slice(0, maxTrouble).concat(more > 0 ? [`and ${count(more)} more: they are first in the table`] : []);
	list.hidden = shown.length === 0;
	while (list.children.length > shown.length) {
		list.lastElementChild.remove();
	}
	shown.forEach((text, i) => set(list.children[i] ?? list.appendChild(make('li')), text));
}
