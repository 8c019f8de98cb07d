// The page: joins the event stream, the figures and the pods with what shows them.

import { Banner } from './banner.js';
import { Details } from './details.js';
import { Feed } from './feed.js';
import { drawHour } from './hour.js';
import { Lanes } from './lanes.js';
import { Pods } from './pods.js';
import { Stages } from './stages.js';
import { Store } from './store.js';
import { follow } from './stream.js';
import { age, clock, set } from './text.js';

const framePeriod = 100; // ms between two updates of the screen
const orderPeriod = 500; // ms between two sorts of the pods
const lanesPeriod = 250; // ms between two drawings of the timeline, which moves slowly
const figuresPeriod = 1000;
const hourPeriod = 5000;
const podsPeriod = 300;
const maxBatch = 100; // pods in one request; beyond that, all pods are fetched
const timeout = 5000;

const store = new Store();
const banner = new Banner();
const stages = new Stages();
const details = new Details();
const lanes = new Lanes();
const pods = new Pods(store, show, now);
const feed = new Feed(store, show);
pods.explain(lanes);

let changed = true; // whether the table may differ from the store
let offset = 0; // ms by which the clock of the daemon is ahead of this one

function now() {
	return Date.now() + offset;
}

function show(uid) {
	pods.select(uid);
	details.open(uid, store, now());
}

// get returns the answer to a request, or throws an error for people.
async function get(path) {
	const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(timeout) });
	if (!response.ok) {
		throw new Error((await response.text()).trim());
	}
	return response.json();
}

// repeat calls work until the page is closed, with a pause after each call.
async function repeat(period, work) {
	for (;;) {
		await work();
		await new Promise(resolve => setTimeout(resolve, period));
	}
}

let askedAt = 0; // when the first question was asked that has no answer; 0 if there is none
let silence = ''; // why the daemon refused to answer
let figures = null; // the last answer

async function fetchFigures() {
	askedAt ||= Date.now();
	try {
		figures = await get('/stages');
		silence = '';
		askedAt = 0;
		offset = Date.parse(figures.at) - Date.now();
		store.applyFigures(figures);
		stages.update(figures, store.synced ? store.size : NaN);
		showVerdict();
	} catch (error) {
		silence = error.name === 'Error' ? error.message : ''; // a refusal; the browser's own words say nothing
	}
	store.expire(now());
	changed = true;
}

// showAge says for how long the daemon has not answered. A page that did not ask, because its tab
// was hidden or the machine slept, is no reason to blame the daemon.
function showAge() {
	banner.setAge(askedAt ? (Date.now() - askedAt) / 1000 : 0, silence);
}

// showVerdict shows the verdict, and how old the pods are while lists fail.
function showVerdict() {
	banner.update(figures, now(), store.synced);
	const { late, lastList } = figures.lister;
	document.getElementById('pods').classList.toggle('old', late);
	document.getElementById('old').hidden = !late;
	set(document.getElementById('old'), `as it was at ${clock(Date.parse(lastList))}, ${age(lastList, now())} ago`);
}

async function fetchHour() {
	try {
		drawHour(await get('/hour'));
	} catch {
		// The banner says why: the figures fail too.
	}
}

async function fetchPods() {
	const all = store.stale || store.dirty.size > maxBatch;
	const uids = all ? null : [...store.dirty];
	if (!all && uids.length === 0) {
		return;
	}
	store.stale = false;
	store.dirty.clear();
	try {
		const answer = await get(all ? '/pods' : '/pods?pod=' + uids.map(encodeURIComponent).join(','));
		store.applyPods(answer, uids, now());
	} catch {
		// The banner says why: the figures fail too, or the first list is not committed.
		store.stale = true;
	}
	changed = true;
}

follow({
	onEvent(event) {
		store.addEvent(event);
		if (!event.replayed) {
			feed.add();
		}
		changed = true;
	},
	onState(state) {
		banner.setStream(state);
		store.setLive(state === 'live', now());
	},
});

let lastOrder = 0;
let lastLanes = 0;
let scrolled = 0;

// frame updates what is due on the screen. The browser calls it only while the page is
// visible; asking for every frame would cost it more than the page does.
function frame(time) {
	setTimeout(() => requestAnimationFrame(frame), framePeriod);
	if (changed && time - lastOrder >= orderPeriod) {
		changed = false;
		lastOrder = time;
		lastLanes = -Infinity; // the lanes follow the rows
		pods.update();
		details.draw(store, now());
		if (figures && !banner.old) {
			showVerdict(); // with the same age as the row of the pod
		}
	}
	feed.draw();
	if (time - lastLanes >= lanesPeriod || scrolled !== pods.scrollTop) {
		lastLanes = time;
		scrolled = pods.scrollTop;
		lanes.draw(store, pods, now());
	}
}

const filter = document.getElementById('filter');
filter.addEventListener('input', () => {
	store.setFilter(filter.value);
	pods.update();
	if (!feed.paused) {
		feed.rebuild();
	}
});
document.getElementById('controls').addEventListener('submit', event => event.preventDefault());
document.getElementById('span').addEventListener('change', event => {
	lanes.span = Number(event.target.value);
});

document.addEventListener('keydown', event => {
	const typing = event.target === filter;
	if (event.key === 'Escape') {
		if (typing && filter.value) {
			filter.value = '';
			filter.dispatchEvent(new Event('input'));
		} else if (details.isOpen) {
			details.close();
		}
		document.getElementById('grid').focus();
	} else if (typing && (event.key === 'ArrowDown' || event.key === 'Enter')) {
		document.getElementById('grid').focus();
	} else if (typing || event.ctrlKey || event.metaKey || event.altKey) {
		return;
	} else if (event.key === '/') {
		event.preventDefault();
		filter.focus();
	} else if (event.key === 'p' || event.key === 'P') {
		feed.toggle();
	}
});

requestAnimationFrame(frame);
setInterval(showAge, 500);
repeat(figuresPeriod, fetchFigures);
repeat(hourPeriod, fetchHour);
repeat(podsPeriod, fetchPods);
