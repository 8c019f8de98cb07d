// The stages with their figures: one line while all is well.

import { count, seconds, set } from './text.js';

const phone = '(max-width: 700px)';
const slowList = 3; // seconds after which a list that runs is worth a word

export class Stages {
	#figures = Map.groupBy(document.querySelectorAll('[data-figure]'), element => element.dataset.figure);
	#pipeline = document.getElementById('pipeline');
	#last = null; // the figures before
	#rates = {};
	#inspectionDuration = NaN;
	#well = true;

	// update shows new figures. pods is the number of pods that the page knows.
	update(figures, pods) {
		this.#measure(figures);
		const { lister, hinter, differ, inspector, dispatcher } = figures;
		const at = Date.parse(figures.at);
		const listAge = lister.lastList ? (at - Date.parse(lister.lastList)) / 1000 : NaN;
		this.#set({
			listAge: lister.lastList ? seconds(listAge) + ' ago' : 'never',
			listDuration: lister.runningSeconds > slowList ? seconds(lister.runningSeconds) + ' so far' : lister.lastList ? seconds(lister.lastSeconds) : '–',
			listErrors: count(lister.errors),
			listRate: perSecond(this.#rates.lists),
			stream: hinter.stream === 'up' ? perSecond(this.#rates.criEvents) : hinter.stream,
			pods: count(pods),
			queue: count(differ.queue),
			quarantined: count(differ.quarantined),
			inspectionRate: perSecond(this.#rates.inspections),
			inFlight: inspector.slots,
			inspectionDuration: seconds(this.#inspectionDuration),
			inspectionErrors: count(inspector.errors),
			eventRate: perSecond(this.#rates.events),
			subscribers: count(dispatcher.subscribers),
			missed: count(dispatcher.missed),
		});
		this.#emphasize({
			listAge: lister.late, listErrors: lister.failures > 0, listDuration: lister.runningSeconds > slowList,
			quarantined: differ.quarantined > 0, inFlight: inspector.hung > 0, inspectionErrors: this.#rates.inspectionErrors > 0,
		});
		const well = figures.verdict.severity === 'ok';
		if (well !== this.#well) { // in between, whoever looks opens and closes them
			this.#well = well;
			this.#pipeline.open = !well && !matchMedia(phone).matches;
		}
	}

	// measure computes rates from the difference to the figures before. A list that failed
	// passes nothing on.
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
			lists: rate(f => f.lister.lists - f.lister.errors),
			criEvents: rate(f => f.hinter.criEvents),
			inspections: rate(f => f.inspector.inspections), inspectionErrors: rate(f => f.inspector.errors),
			events: rate(f => f.dispatcher.events),
		};
		const mean = (sum, number) => (number(figures) > number(last) ? (sum(figures) - sum(last)) / (number(figures) - number(last)) : NaN);
		const inspection = mean(f => f.inspector.inspectionSeconds, f => f.inspector.inspections);
		this.#inspectionDuration = Number.isNaN(inspection) ? this.#inspectionDuration : inspection;
	}

	#set(texts) {
		for (const [name, text] of Object.entries(texts)) {
			this.#figures.get(name).forEach(element => set(element, text));
		}
	}

	#emphasize(bad) {
		for (const [name, on] of Object.entries(bad)) {
			this.#figures.get(name).forEach(element => element.classList.toggle('bad', Boolean(on)));
		}
	}
}

// perSecond returns a rate.
function perSecond(n) {
	return (n === 0 || n >= 9.95 ? count(Math.round(n)) : Number.isFinite(n) ? n.toFixed(1) : '–') + '/s';
}
