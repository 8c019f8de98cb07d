// What each part of the page shows, in a document in memory.

import assert from 'node:assert/strict';
import test from 'node:test';

import { Banner } from './banner.js';
import { Details } from './details.js';
import { clock, darken, fire, media, open, resized } from './document.js';
import { Feed } from './feed.js';
import { drawHour } from './hour.js';
import { Lanes, colors, drawMark, fit } from './lanes.js';
import { Pods } from './pods.js';
import { Stages } from './stages.js';
import { Store } from './store.js';

const { now } = clock;
const ago = seconds => new Date(now - seconds * 1000).toISOString();

// outline returns the elements that contain only text, as tag.class!severity text.
function outline(element) {
	return element.children.flatMap(child => (child.children.length > 0 ? outline(child) : [
		child.tag + (child.className && '.' + child.className) + (child.dataset.severity ? '!' + child.dataset.severity : '') + ' ' + child.textContent,
	]));
}

const texts = (byId, ...ids) => ids.map(id => byId(id).textContent);

test('the banner names the first trouble, and what to do', () => {
	const byId = open();
	const banner = new Banner();
	const finding = (subject, more) => ({ subject, what: 'hangs', since: ago(90), ...more });
	const show = (findings, synced, severity = 'problem') => {
		banner.update({ verdict: { severity, text: 'OK: all is well', findings }, node: 'n7\u202e', runtime: 'crio 1' }, now, synced);
		return [byId('banner').dataset.severity, ...texts(byId, 'verdict', 'age', 'detail'), byId('advice').hidden, byId('advice').textContent, document.title];
	};
	assert.deepEqual(show([], false, 'ok'), ['loading', 'loading', '', '', true, 'Do: ', 'n7‹U+202E› · pleg-pipeline']);
	assert.deepEqual(show([], true, 'ok'), ['ok', 'all is well', '', '', true, 'Do: ', 'n7‹U+202E› · pleg-pipeline']);
	assert.deepEqual(texts(byId, 'node', 'runtime'), ['n7‹U+202E›', 'crio 1']);
	const others = ['b', 'c', 'd', 'e\u202e', 'f'].map((name, i) => finding(name, { detail: `: ${i}` }));
	assert.deepEqual(show([finding('a', { attempts: 2, detail: ': reason', rest: '; more', advice: 'restart it' }), ...others], true), [
		'problem', 'a hangs', ' since 11:58 (90s, 2 attempts)', ': reason; more', false, 'Do: restart it', '● n7‹U+202E› · pleg-pipeline',
	]);
	assert.deepEqual(outline(byId('findings')), ['li b hangs since 11:58 (90s): 0', 'li c hangs since 11:58 (90s): 1', 'li d hangs since 11:58 (90s): 2', 'li e‹U+202E› hangs since 11:58 (90s): 3']);
	assert.deepEqual(show([{ summary: 'lists fail', detail: 'x'.repeat(401), advice: 'y'.repeat(597) }, { summary: 'and this' }], false, 'warning'), [
		'warning', 'lists fail', '', 'x'.repeat(200) + '…' + 'x'.repeat(200), false, 'Do: ' + 'y'.repeat(296) + '…' + 'y'.repeat(300), '● n7‹U+202E› · pleg-pipeline',
	]);
	assert.deepEqual(outline(byId('findings')), ['li and this ']);
});

test('the banner says how the connection is, and for how long there is no answer', () => {
	const byId = open();
	const banner = new Banner();
	banner.update({ verdict: { severity: 'problem', findings: [{ summary: 'a', advice: 'b' }, { summary: 'c' }] }, node: '', runtime: '' }, now, true);
	const shown = (age, why = '') => {
		banner.setAge(age, why);
		return [banner.old, document.body.classList.has('old'), byId('connection').dataset.state, byId('connection').textContent];
	};
	assert.deepEqual(shown(2.9), [false, false, 'connecting', 'connecting']);
	banner.setStream('live');
	assert.deepEqual(shown(0), [false, false, 'live', 'live']);
	banner.setStream('lost');
	assert.deepEqual(shown(0), [false, false, 'lost', 'no events: trying to connect']);
	assert.deepEqual([byId('verdict').textContent, byId('findings').children.length, document.title], ['a', 1, '● pleg-pipeline']);
	assert.deepEqual(shown(3, 'not allowed'), [true, true, 'old', '3.0s old']);
	assert.deepEqual([byId('banner').dataset.severity, ...texts(byId, 'verdict', 'age', 'detail'), byId('advice').hidden, byId('findings').children.length, document.title], [
		'problem', 'no answer from the daemon for 3.0s', '', ': not allowed', true, 0, '● no answer · pleg-pipeline',
	]);
	shown(75);
	assert.deepEqual(texts(byId, 'connection', 'verdict', 'detail'), ['75s old', 'no answer from the daemon for 75s', '']);
	assert.deepEqual(shown(0), [false, false, 'lost', 'no events: trying to connect']);
});

test('the words that never change', () => {
	const byId = open();
	const sorts = byId('head').querySelectorAll('button').map(button => [button.dataset.sort, button.textContent].join(' '));
	assert.deepEqual(sorts, ['namespace namespace', 'name pod', 'state state', 'running running', 'restarts restarts', 'last last event']);
	const marks = byId('legend').children.map(mark => [mark.dataset.mark ?? mark.className, mark.textContent].join(' '));
	assert.deepEqual(marks, [
		'good started', 'bad failed', 'notice exited 0, other', 'routine removed', ' hollow: sandbox', 'hang hangs, with its tries', 'keys / filter Enter details P pause Esc close',
	]);
	const spans = byId('span').querySelectorAll('label').map(label => [label.children[0].value, label.textContent, 'checked' in label.children[0].attributes].join(' '));
	assert.deepEqual(spans, ['60 1 min false', '120 2 min true', '600 10 min false']);
	assert.deepEqual([byId('filter').attributes.placeholder, byId('pause').textContent, byId('feed').querySelector('strong').textContent, byId('pods').querySelector('h2').textContent], ['filter: shop web ( / )', 'pause', 'events', 'pods ']);
	assert.deepEqual(texts(byId, 'connection', 'verdict', 'empty'), ['connecting', 'loading', 'loading']);
	const labels = document.querySelectorAll('*').flatMap(element => element.attributes['aria-label'] ?? []);
	assert.deepEqual(labels, [
		'What else is wrong', 'Stages of the pipeline', 'The last hour', 'Pods', 'Show only pods in these states', 'Filter pods and events', 'Length of the timeline', 'Pods', 'Details of a pod', 'Events', 'Events, newest first',
	]);
	assert.equal(document.querySelector('noscript').textContent, 'This page needs JavaScript. The same data is at /stages, /pods and /events.');
});

const states = ['hung', 'notready', 'ready'];
const view = (name, more) => ({ uid: `uid-${name}`, name, namespace: 'shop', state: 'ready', severity: 'ok', running: 1, total: 1, restarts: 0, ...more });
const event = (name, more) => ({ type: 'ContainerDied', podUID: `uid-${name}`, podName: name, podNamespace: 'shop', pod: `shop/${name}`, observedAt: ago(5), severity: 'bad', container: 'app', what: 'died', why: '137', ...more });
const hung = more => view('web', {
	state: 'hung', severity: 'problem', finding: { since: ago(90), attempts: 3, what: 'hangs', advice: 'look at it', detail: ': no answer', nextTry: ago(-20) }, ...more,
});

function stored(...pods) {
	const store = new Store();
	store.applyPods({ states, pods }, null, now);
	store.synced = true;
	return store;
}

test('the details of a pod', () => {
	const byId = open();
	const details = new Details();
	const store = stored(hung({
		stale: true, currentAsOf: ago(30), error: 'x'.repeat(601), ips: ['10.0.0.1', 'fd00::1'], inspection: { since: ago(4) },
		sandboxes: [{ id: 'sb-1', attempt: 2, state: 'ready', createdAt: ago(7200) }, { id: 'sb;2', attempt: 1, state: 'exited', createdAt: ago(9000) }],
		containers: [
			{ name: 'b', id: 'b1', attempt: 1, state: 'running', image: 'img-b', createdAt: ago(50), startedAt: ago(40) },
			{ name: 'b', id: 'b0', attempt: 0, state: 'exited', image: 'img-b', createdAt: ago(70) },
			{ name: 'a', id: 'a1', attempt: 1, state: 'exited', image: 'img-a', createdAt: ago(50), startedAt: ago(40), finishedAt: ago(30), exitCode: 0 },
			{ name: 'a', id: 'a 2', attempt: 2, state: 'exited', image: 'img-c', createdAt: ago(20), finishedAt: ago(10), exitCode: 137, reason: 'OOMKilled', message: 'killed' },
		],
	}), view('cart'));
	for (let n = 0; n < 31; n++) {
		store.addEvent(event('web', { observedAt: ago(40 - n), why: String(n), severity: n % 2 ? 'bad' : 'good', container: `c${n}` }));
	}
	store.pods.get('uid-web').hangs.unshift({ since: now - 300e3, until: now - 200e3, attempts: 9, what: 'hung before' });
	byId('filter').focus();
	details.open('uid-web', store, now);
	const section = byId('details');
	const [bar, summary, table, events] = section.children;
	assert.deepEqual([details.isOpen, section.hidden, document.activeElement], [true, false, section]);
	assert.deepEqual([bar.className, ...outline(bar)], ['bar', 'strong shop/web', 'button close']);
	assert.equal(bar.children[1].type, 'button');
	assert.deepEqual(outline(summary), [
		'dt state', 'dd!problem hung', 'dt trouble', 'dd!problem hangs since 11:58 (90s, 3 attempts)', 'dt this try', 'dd!problem for 4.0s: no answer',
		'dt do', 'dd look at it', 'dt known', 'dd!warning as it was 30s ago', 'dt error', 'dd ' + 'x'.repeat(300) + '…' + 'x'.repeat(300), 'dt UID', 'dd uid-web', 'dt addresses', 'dd 10.0.0.1, fd00::1',
		'dt sandbox', 'dd sb-1, attempt 2, ready, age 2h', 'dd.command crictl inspectp sb-1', 'dd.command pgrep -fa sb-1', 'dt sandbox', 'dd sb;2, attempt 1, exited, age 2h',
	]);
	assert.deepEqual(outline(table), [
		'th container', 'th attempt', 'th state', 'th age', 'th exit',
		'td a', 'td 2', 'td exited', 'td 10s', 'td 137, OOMKilled, killed', 'p img-c', 'p finished 2026-03-04 11:59:50', 'p a 2',
		'td a', 'td 1', 'td exited', 'td 30s', 'td 0', 'p img-a', 'p started 2026-03-04 11:59:20, finished 2026-03-04 11:59:30', 'p a1', 'p.command crictl inspect a1', 'p.command crictl logs a1',
		'td b', 'td 1', 'td running', 'td 40s', 'td ', 'p img-b', 'p started 2026-03-04 11:59:20', 'p b1', 'p.command crictl inspect b1', 'p.command crictl logs b1',
		'td b', 'td 0', 'td exited', 'td 70s', 'td ', 'p img-b', 'p ', 'p b0', 'p.command crictl inspect b0', 'p.command crictl logs b0',
	]);
	const more = table.querySelector('.more');
	assert.equal(more.colSpan, 5);
	assert.deepEqual([events.className, events.children.length, events.children[0].dataset.severity, events.children[1].dataset.severity], ['events', 30, 'good', 'bad']);
	assert.deepEqual(outline(events).slice(0, 3).concat(outline(events).slice(-2)), ['time 11:59:50', 'b died, 30', 'span.container c30', 'b died, 1', 'span.container c1']);

	const drawn = () => section.children[0];
	details.draw(store, now + 500); // nothing has changed
	assert.equal(drawn(), bar);
	document.getSelection = () => ({ type: 'Range', anchorNode: summary });
	details.draw(store, now + 3000); // a reader copies a text
	assert.equal(drawn(), bar);
	document.getSelection = () => ({ type: 'Range', anchorNode: byId('grid') });
	details.draw(store, now + 2000); // the state is stale: each second counts
	const second = drawn();
	assert.notEqual(second, bar);
	details.draw(store, now + 3000);
	assert.notEqual(drawn(), second);
	document.getSelection = () => ({ type: 'Caret', anchorNode: summary });
	store.applyPods({ states, pods: [hung({ severity: 'warning', currentAsOf: ago(1) })] }, ['uid-web'], now);
	details.draw(store, now);
	assert.deepEqual(outline(section.children[1]), [
		'dt state', 'dd!warning hung', 'dt trouble', 'dd!warning hangs since 11:58 (90s, 3 attempts)', 'dt next try', 'dd in 20s', 'dt do', 'dd look at it', 'dt UID', 'dd uid-web',
	]);
	const fresh = drawn();
	details.draw(store, now + 9000);
	assert.equal(drawn(), fresh);
	details.draw(store, now + 10000);
	assert.notEqual(drawn(), fresh);

	store.addEvent(event('web', { seq: 9, why: 'now' }));
	details.draw(store, now + 10000);
	assert.equal(outline(section.children[3])[1], 'b died, now');
	store.applyPods({ states, pods: [] }, ['uid-web'], now);
	details.draw(store, now + 10000);
	assert.deepEqual(outline(section.children[1]).slice(0, 2), ['dt state', 'dd gone']);
	assert.ok(!outline(section.children[1]).includes('dt trouble'));

	details.open('uid-cart', store, now); // the focus was in the filter before
	assert.deepEqual(outline(section.children[1]), ['dt state', 'dd!ok ready', 'dt UID', 'dd uid-cart']);
	const typed = fire(section, 'keydown', { key: 'Enter' });
	assert.deepEqual([details.isOpen, typed.stopped], [true, false]);
	const escape = fire(section, 'keydown', { key: 'Escape' });
	assert.deepEqual([details.isOpen, details.uid, section.children.length, escape.stopped, document.activeElement.id], [false, '', 0, true, 'filter']);
	byId('grid').focus();
	details.open('uid-web', store, now);
	fire(section.querySelector('button'), 'click');
	assert.deepEqual([details.isOpen, document.activeElement.id], [false, 'grid']);
	details.draw(store, now + 60e3);
	details.open('uid-nobody', store, now);
	assert.equal(section.children.length, 0);
	store.addEvent(event('past', { replayed: true })); // only the history has this pod
	store.applyPods({ states, pods: [] }, ['uid-past'], now);
	details.open('uid-past', store, now);
	assert.deepEqual([...outline(section.children[1]), outline(section.children[3])[1]], ['dt state', 'dd gone', 'dt UID', 'dd uid-past', 'b died, 137']);
	details.open('uid-web', store, now);
	details.close();
	details.open('uid-web', store, now); // again, although nothing has changed
	assert.equal(section.children.length, 4);
});

test('the feed shows the newest events first', () => {
	const byId = open();
	const opened = [];
	const store = stored(view('web'));
	const feed = new Feed(store, uid => opened.push(uid));
	const rows = () => byId('events').children.map(row => [row.dataset.type, row.dataset.severity, row.dataset.uid, row.title, ...outline(row)].join('|'));
	store.addEvent(event('web', { image: 'nginx' }));
	store.addEvent(event('u', { podName: '', container: '', severity: 'good', what: 'started', why: '', type: 'PodSync', observedAt: ago(4) }));
	feed.draw();
	const [web, nameless] = ['ContainerDied|bad|uid-web|shop/web, nginx|time 11:59:55|b died|span web|span.container app, 137', 'PodSync|good|uid-u|shop/u|time 11:59:56|b started|span uid-u|span.container '];
	assert.deepEqual(rows(), [nameless, web]);
	const before = byId('events').children;
	feed.draw();
	assert.deepEqual(byId('events').children, before);
	store.addEvent({ type: 'Gap', severity: 'bad', what: 'gap', why: 'restarted', observedAt: ago(60) });
	feed.draw();
	const gap = 'Gap|bad|||time 12:00:00|b gap|span restarted|span.container ';
	assert.deepEqual(rows(), [gap, nameless, web]);
	for (const row of byId('events').children.slice(0, 2)) {
		fire(row.children[1], 'click');
	}
	assert.deepEqual(opened, ['uid-u']);

	const pause = byId('pause');
	const says = () => [pause.textContent, pause.attributes['aria-pressed'], byId('unseen').textContent, feed.paused];
	fire(pause, 'click');
	assert.deepEqual(says(), ['go on', 'true', 'paused', true]);
	feed.draw();
	assert.equal(byId('unseen').textContent, 'paused');
	store.addEvent(event('cart'));
	feed.add();
	feed.add();
	feed.draw();
	assert.deepEqual([byId('unseen').textContent, rows().length], ['paused, 2 new', 3]);
	feed.toggle();
	assert.deepEqual([...says(), rows().length], ['pause', 'false', '', false, 4]);
	feed.toggle();
	feed.draw();
	assert.equal(byId('unseen').textContent, 'paused'); // counted again
	feed.toggle();

	store.setFilter('nginx');
	feed.rebuild();
	assert.deepEqual(rows(), [gap]); // the event has no words of the image
	store.setFilter('');
	for (let n = 0; n < 130; n++) {
		store.addEvent(event(n === 129 ? 'cart' : 'web', { why: String(n) }));
		feed.draw();
	}
	assert.equal(rows()[0], 'ContainerDied|bad|uid-cart|shop/cart|time 11:59:55|b died|span cart|span.container app, 129'); // in the row of another
	const shown = () => byId('events').children.map(row => row.children[3].textContent);
	assert.deepEqual([rows().length, shown()[0], shown().at(-1)], [120, 'app, 129', 'app, 10']);
	feed.rebuild();
	assert.deepEqual([rows().length, shown()[0], shown().at(-1)], [120, 'app, 129', 'app, 10']);
	store.addEvent({ type: 'Gap', what: 'gap', why: 'again' });
	feed.draw();
	assert.deepEqual([rows()[0], rows().length], ['Gap||||time 12:00:00|b gap|span again|span.container ', 120]); // in the row of a pod
});

test('the last hour', () => {
	const byId = open();
	const figures = byId('hour').querySelectorAll('figure');
	figures.forEach(figure => { figure.clientWidth = 360; });
	drawHour({ periodSeconds: 600, listSeconds: [0.5, 10, 25], hung: [0, 3, 2], events: [1200, 30, 0] });
	const shown = () => figures.map(figure => figure.querySelector('b').textContent);
	const bars = () => figures.map(figure => figure.querySelector('canvas').drawn.slice(1));
	assert.deepEqual(shown(), ['25s', '3', '1,230']);
	assert.deepEqual(figures.map(figure => figure.querySelector('figcaption').textContent), ['longest list, or wait for one, in the last hour 25s', 'most hung pods 3', 'events 1,230']);
	const base = 'fillRect 0 25 360 1 line';
	assert.deepEqual(bars(), [
		[base, 'fillRect 180 24 59.6 1 info', 'fillRect 240 15 59.6 10 info', 'fillRect 300 0 59.6 25 bad'],
		[base, 'fillRect 180 25 59.6 0 bad', 'fillRect 240 0 59.6 25 bad', 'fillRect 300 8.3 59.6 16.7 bad'],
		[base, 'fillRect 180 0 59.6 25 info', 'fillRect 240 24 59.6 1 info', 'fillRect 300 25 59.6 0 info'],
	]);
	const canvas = figures[0].querySelector('canvas');
	assert.deepEqual([canvas.width, canvas.height, canvas.style, canvas.getContext().scale], [720, 52, { width: '360px', height: '26px' }, '2 0 0 2 0 0']);
	drawHour({ periodSeconds: 600, listSeconds: [10.1], hung: [], events: [] });
	assert.deepEqual(bars()[0], [base, 'fillRect 300 0 59.6 25 bad']);
	drawHour({ periodSeconds: 600, listSeconds: [0.5, 0.25], hung: [], events: [] });
	assert.deepEqual(bars()[0], [base, 'fillRect 240 0 59.6 25 info', 'fillRect 300 12.5 59.6 12.5 info']);
	drawHour({ periodSeconds: 5, listSeconds: [], hung: [0], events: null });
	assert.deepEqual(shown(), ['–', '0', '–']);
	assert.deepEqual([canvas.width, canvas.height], [720, 52]);
	figures[0].clientWidth = 300;
	drawHour({ periodSeconds: 5 });
	assert.deepEqual([canvas.width, canvas.height, shown()[0]], [600, 52, '–']);
	figures[0].clientWidth = 360;
	drawHour({ periodSeconds: 5, listSeconds: [], hung: [0], events: null });
	assert.deepEqual(bars(), [[base], [base, 'fillRect 359.5 25 1 0 bad'], [base]]);
});

// figures is an answer of /stages.
const figures = (at, more) => ({
	at, epoch: 'e', verdict: { severity: 'ok' },
	lister: { lastList: ago(3), lastSeconds: 0.25, runningSeconds: 0, errors: 1, lists: 10, failures: 0, late: false },
	hinter: { stream: 'up', criEvents: 100 },
	differ: { queue: 1200, quarantined: 0 },
	inspector: { slots: '2/8', hung: 0, inspections: 50, inspectionSeconds: 5, errors: 4 },
	dispatcher: { events: 1000, subscribers: 3, missed: 6 },
	...more,
});

test('the stages show figures, and rates since the answer before', () => {
	const byId = open();
	const stages = new Stages();
	const shown = () => Object.fromEntries([...Map.groupBy(document.querySelectorAll('[data-figure]'), e => e.dataset.figure)].map(([name, all]) => {
		assert.equal(new Set(all.map(e => e.textContent + e.className)).size, 1, name);
		return [name, all[0].textContent + (all[0].className === 'bad' ? '!' : all[0].className)];
	}));
	stages.update(figures(ago(0)), NaN);
	assert.deepEqual(shown(), {
		listAge: '3.0s ago', listDuration: '0.3s', listErrors: '1', listRate: '–/s', stream: '–/s', pods: '–', queue: '1,200', quarantined: '0', inspectionRate: '–/s',
		inFlight: '2/8', inspectionDuration: '–', inspectionErrors: '4', eventRate: '–/s', subscribers: '3', missed: '6',
	});
	assert.deepEqual(byId('pipeline').querySelectorAll('dl').map(list => outline(list).join(', ')), [
		'dt last list, dd 3.0s ago, dt took, dd 0.3s, dt failed, dd 1, dt hinter: CRI events, dd –/s', 'dt pods, dd –, dt wait for an inspector, dd 1,200, dt quarantined, dd 0',
		'dt in flight, dd 2/8, dt took, dd –, dt failed, dd 4', 'dt events, dd –/s, dt subscribers, dd 3, dt missed, dd 6',
	]);
	const later = figures(ago(-2), {
		lister: { lastList: ago(3), lastSeconds: 2, runningSeconds: 3.1, errors: 2, lists: 16, failures: 1, late: true }, hinter: { stream: 'up', criEvents: 101 },
		differ: { queue: 7, quarantined: 2 }, inspector: { slots: '8/8', hung: 1, inspections: 70, inspectionSeconds: 9, errors: 5 },
		dispatcher: { events: 2999, subscribers: 4, missed: 8 },
	});
	stages.update(later, 1234);
	assert.deepEqual(byId('pipeline').querySelectorAll('summary span').map(span => span.textContent), ['lister 2.5/s 3.1s so far', 'differ 1,234 pods', 'inspector 8/8', 'dispatcher 1,000/s']);
	assert.deepEqual(byId('stages').querySelectorAll('.arrow').map(arrow => arrow.textContent), ['2.5/s', '10/s', '']);
	assert.deepEqual(shown(), {
		listAge: '5.0s ago!', listDuration: '3.1s so far!', listErrors: '2!', listRate: '2.5/s', stream: '0.5/s', pods: '1,234', queue: '7', quarantined: '2!', inspectionRate: '10/s',
		inFlight: '8/8!', inspectionDuration: '0.2s', inspectionErrors: '5!', eventRate: '1,000/s', subscribers: '4', missed: '8',
	});
	// Without an inspection meanwhile, the last duration stays. A counter that is smaller is a rate of 0.
	stages.update({ ...later, at: ago(-3), lister: { ...later.lister, lastList: undefined, runningSeconds: 3 }, hinter: { stream: 'down', criEvents: 0 }, dispatcher: { ...later.dispatcher, events: 0 } }, 2);
	const { listAge, listDuration, stream, inspectionDuration, inspectionErrors, inspectionRate, eventRate, listRate } = shown();
	assert.deepEqual([listAge, listDuration, stream, inspectionDuration, inspectionErrors, inspectionRate, eventRate, listRate], ['never!', '–', 'down', '0.2s', '5', '0/s', '0/s', '0/s']);
	stages.update({ ...later, at: ago(-4), epoch: 'f', dispatcher: { ...later.dispatcher, events: 9999 } }, 2); // another daemon
	assert.deepEqual([shown().eventRate, shown().listRate], ['–/s', '–/s']);

	const pipeline = byId('pipeline');
	const opens = severity => {
		stages.update(figures(ago(-5), { verdict: { severity } }), 1);
		return pipeline.open;
	};
	assert.deepEqual([opens('ok'), opens('warning')], [undefined, true]);
	pipeline.open = false; // by a user
	assert.deepEqual([opens('problem'), opens('ok')], [false, false]);
	pipeline.open = true;
	assert.equal(opens('ok'), true);
	media.add('(max-width: 700px)');
	assert.equal(opens('problem'), false);
});

test('a mark has a shape for each severity', () => {
	open();
	const canvas = document.createElement('canvas');
	const shape = mark => {
		const context = fit(canvas, 10, 10);
		drawMark(context, mark, 10, 20, colors());
		return context.drawn.slice(2).join(', ');
	};
	const [triangle, square] = ['moveTo 10 16, lineTo 14 24, lineTo 6 24, closePath', 'rect 7 17 6 6'];
	assert.deepEqual(['good', 'bad', 'notice', 'routine'].map(severity => shape({ severity })), [
		triangle + ', fill good', 'moveTo 6 16, lineTo 14 24, moveTo 14 16, lineTo 6 24, stroke bad 2', 'arc 10 20 3 0 7, fill warn', square + ', stroke faint 1.5',
	]);
	assert.deepEqual(['good', 'notice'].map(severity => shape({ severity, sandbox: true })), [triangle + ', stroke good 1.5', 'arc 10 20 3 0 7, stroke warn 1.5']);
});

test('the timeline', () => {
	const byId = open();
	const [canvas, axis] = [byId('lanes'), byId('axis')];
	const lanes = new Lanes();
	const store = new Store();
	const web = { hangs: [{ since: now - 90e3, until: Infinity, tries: [now - 60e3, now - 200e3] }, { since: now - 300e3, until: now - 200e3, tries: [] }], marks: [] };
	const cart = { hangs: [{ since: now - 300e3, until: now - 100e3, tries: [] }], marks: [{ at: now - 121e3, severity: 'bad' }, { at: now - 60e3, severity: 'routine' }] };
	const pods = { range: () => [1, 2], rowHeight: 20, scrollTop: 5, visible: [null, web, cart] };
	store.outages = [[now - 300e3, now - 110e3], [now - 10e3, Infinity], [now - 300e3, now - 200e3]];
	store.gaps = [now - 30e3];
	lanes.draw(store, pods, now);
	assert.equal(canvas.width, undefined); // it has no size yet
	byId('table').rect = { left: 100, top: 50 };
	axis.rect = { left: 400, top: 50, bottom: 70, width: 248, height: 20 };
	byId('grid').clientHeight = 120;
	resized();
	lanes.draw(store, pods, now);
	assert.deepEqual([canvas.style, canvas.width, canvas.height], [{ left: '300px', top: '20px', width: '248px', height: '100px' }, 496, 200]);
	const line = (x, style) => ['beginPath', `moveTo ${x} 0`, `lineTo ${x} 100`, `stroke ${style} 1`];
	assert.deepEqual(canvas.drawn, [
		'clearRect 0 0 248 100', 'fillRect 0 0 20 100 outage', 'fillRect 220 0 20 100 outage', 'fillRect 0 0 0 100 outage',
		...line(60.5, 'line'), ...line(120.5, 'line'), ...line(180.5, 'line'), 'setLineDash 4,3', ...line(180, 'bad'), 'setLineDash ',
		'fillRect 60 21 180 8 hang', 'fillRect 60 19 2 12 bad', 'fillRect 120 19 2 12 bad', // a bar and two tries
		'fillRect 0 41 40 8 hang', 'beginPath', 'rect 117 42 6 6', 'stroke faint 1.5',
	]);
	const ticks = () => [axis.querySelector('canvas').drawn.slice(1).join(', '), axis.querySelector('canvas').getContext().font, axis.querySelector('canvas').getContext().textBaseline];
	assert.deepEqual(ticks(), ['fillText −2m 3 10 muted left, fillText −90s 63 10 muted left, fillText −60s 123 10 muted left, fillText −30s 183 10 muted left, fillText now 240 10 muted right', '11px font', 'middle']);

	const at = seconds => 240 * (1 - seconds / 120);
	assert.deepEqual([at(61), at(57), at(56.9)].map(x => lanes.markAt(cart, x)), [cart.marks[1], cart.marks[1], null]);
	web.marks = [{ at: now - 10e3 }, { at: now - 11e3 }, { at: now - 11e3, last: true }];
	assert.deepEqual([lanes.markAt(web, at(11.2)), lanes.markAt(web, at(10.4))], [web.marks[2], web.marks[0]]);
	assert.deepEqual([at(91), at(90), at(0), at(-1)].map(x => lanes.hangAt(web, x)), [undefined, web.hangs[0], web.hangs[0], undefined]);
	assert.deepEqual([at(100), at(99)].map(x => lanes.hangAt(cart, x)), [cart.hangs[0], undefined]);

	assert.deepEqual(axis.querySelector('canvas').style, { width: '248px', height: '20px' });
	lanes.span = 60;
	assert.equal(ticks()[0], 'fillText −60s 3 10 muted left, fillText −45s 63 10 muted left, fillText −30s 123 10 muted left, fillText −15s 183 10 muted left, fillText now 240 10 muted right');
	for (const [width, want] of [[5 * 46 + 7, '−60s −30s'], [3 * 46 + 8, '−60s −30s'], [3 * 46 + 7, '−60s']]) {
		axis.rect.width = width;
		resized();
		assert.equal(axis.querySelector('canvas').drawn.filter(text => text.startsWith('fillText −')).map(text => text.split(' ')[1]).join(' '), want);
	}
	byId('grid').clientHeight = 20;
	resized();
	lanes.draw(store, pods, now);
	assert.equal(canvas.height, 200); // no room: not drawn
	byId('grid').clientHeight = 140;
	darken();
	lanes.draw(store, pods, now);
	assert.equal(canvas.height, 240);
	assert.equal(canvas.drawn.at(-1), 'stroke dark-faint 1.5');
});

// table returns a table with room for so many rows.
function table(store, rows) {
	const byId = open();
	const opened = [];
	const pods = new Pods(store, uid => opened.push(uid), () => now);
	byId('grid').clientHeight = 30 + rows * 26;
	byId('head').offsetHeight = 30;
	resized();
	pods.update();
	const shown = () => byId('rows').children.filter(row => !row.hidden).map(row => `${row.attributes['aria-rowindex']} ${row.children.map(cell => cell.textContent).join('|')}`);
	return { byId, opened, pods, shown };
}

test('a row of each kind of pod', () => {
	const store = stored(
		hung({ name: 'web-5d4c9-abcde', total: 2, restarts: 3, stale: true, currentAsOf: ago(30) }), view('new', { uninspected: true, state: 'notready', severity: 'warning', total: 0, running: 0 }),
		view('cart', { namespace: '' }), view('nameless', { name: '', namespace: '' }), view('last', { running: 0, restarts: 1 }),
	);
	store.addEvent(event('last'));
	store.applyPods({ states, pods: [] }, ['uid-cart'], now);
	const { byId, pods, shown } = table(store, 9);
	assert.deepEqual(shown(), [
		'2 shop|web-5d4c9-abcde|hung 90s|1/2|3|30s old: no answer|', '3 shop|new|notready|-|0|not known yet|', '4 -|uid-nameless|ready|1/1|0|-|',
		'5 shop|last|ready|0/1|1|app died, 137|', '6 -|cart|gone|1/1|0|-|',
	]);
	const rows = byId('rows').children;
	const [first, , , , gone] = rows;
	assert.deepEqual(rows.map(row => [row.className, row.children[2].dataset.severity, row.children[4].className].join(' ')), [
		'old problem restarts', ' warning restarts zero', ' ok restarts zero', ' ok restarts', 'gone  restarts zero',
	]);
	assert.deepEqual([first.children[1].title, first.children[1].children.map(b => b.textContent), gone.style.transform], ['web-5d4c9-abcde', ['web-', '5d4c9-abcde'], 'translateY(104px)']);
	assert.deepEqual([first.id, first.attributes.role, first.children[0].attributes.role, first.children.map(cell => cell.className).join(' ')], ['row0', 'row', 'gridcell', 'namespace name state running restarts last lane']);
	assert.deepEqual([byId('count').textContent, byId('empty').hidden, byId('rows').style.height, byId('grid').attributes['aria-rowcount']], ['4', true, '130px', '6']);
	const looks = () => rows.map(row => [row.dataset.uid, row.className, row.children[1].title, row.children[2].dataset.severity, row.children[4].className].join(' '));
	const before = looks();
	store.sort.reverse = true; // a row shows another pod
	pods.update();
	assert.deepEqual(looks().sort(), before.sort());
	assert.deepEqual([looks()[0], looks()[4]], ['uid-cart gone cart  restarts zero', 'uid-web old web-5d4c9-abcde problem restarts']);
});

test('the table says why it is empty', () => {
	for (const [pods, synced, words, want] of [[[], false, '', ['loading', '']], [[], true, '', ['no pods on this node', '0']], [[view('a')], true, 'b', ['no pod matches the filter', '0 of 1']]]) {
		const store = stored(...pods);
		store.synced = synced;
		store.setFilter(words);
		const { byId } = table(store, 3);
		assert.deepEqual([byId('empty').textContent, byId('count').textContent, byId('empty').hidden], [...want, false]);
	}
});

test('a chip for each state is a filter', () => {
	const store = stored(hung(), view('a'), view('b'));
	const { byId, pods, shown } = table(store, 9);
	const chips = () => byId('states').children.map(chip => [chip.textContent, chip.dataset.state, chip.dataset.severity, chip.attributes['aria-pressed'], chip.type].join(' '));
	assert.deepEqual(chips(), ['hung 1 hung problem false button', 'ready 2 ready ok false button']);
	const [hungChip] = byId('states').children;
	assert.equal(hungChip.tag, 'button');
	hungChip.focus();
	fire(hungChip, 'click');
	assert.deepEqual([chips(), shown().length, byId('count').textContent, byId('empty').hidden], [['hung 1 hung problem true button', 'ready 2 ready ok false button'], 1, '1 of 3', true]);
	assert.deepEqual([document.activeElement, document.activeElement === hungChip], [byId('states').children[0], false]);
	store.applyPods({ states, pods: [view('web')] }, ['uid-web'], now);
	pods.update(); // a chosen state stays, also if no pod is in it
	assert.deepEqual(chips(), ['hung 0 hung  true button', 'ready 3 ready ok false button']);
	const same = byId('states').children[0];
	pods.update();
	assert.equal(byId('states').children[0], same);
	fire(same, 'click');
	assert.deepEqual([chips(), shown().map(row => row.split('|')[2])], [['ready 3 ready ok false button'], ['ready', 'ready', 'ready']]);
});

test('only the visible rows exist, and keys move the selection', () => {
	const store = stored(...Array.from({ length: 40 }, (_, i) => view('p' + String(i).padStart(2, '0'))));
	const { byId, opened, pods, shown } = table(store, 5.5);
	const grid = byId('grid');
	assert.deepEqual([shown().length, shown()[0].slice(0, 10), byId('rows').style.height, byId('count').textContent], [7, '2 shop|p00', '1040px', '40']);
	pods.select('uid-p07'); // just below the last row
	assert.equal(grid.attributes['aria-activedescendant'], undefined);
	pods.select('');
	const press = (key, more) => {
		const event = fire(grid, 'keydown', { key, ...more });
		fire(grid, 'scroll');
		const row = byId(grid.attributes['aria-activedescendant'] ?? 'nothing');
		return `${pods.selected} ${grid.scrollTop} ${event.prevented} ${row?.attributes['aria-selected']} ${row?.dataset.uid === pods.selected}`;
	};
	for (const [key, want] of [
		['Enter', ' 0 false undefined false'], ['ArrowDown', 'uid-p00 0 true true true'], ['ArrowDown', 'uid-p01 0 true true true'], ['ArrowUp', 'uid-p00 0 true true true'], ['ArrowUp', 'uid-p00 0 true true true'],
		['PageDown', 'uid-p05 13 true true true'], ['PageDown', 'uid-p10 143 true true true'], ['PageUp', 'uid-p05 130 true true true'], ['End', 'uid-p39 897 true true true'], ['ArrowDown', 'uid-p39 897 true true true'],
		['Home', 'uid-p00 0 true true true'], ['x', 'uid-p00 0 false true true'], ['Enter', 'uid-p00 0 true true true'],
	]) {
		assert.equal(press(key), want, key);
	}
	assert.deepEqual(opened, ['uid-p00']);
	for (const modifier of ['ctrlKey', 'metaKey', 'altKey']) {
		assert.equal(press('ArrowDown', { [modifier]: true }), 'uid-p00 0 false true true', modifier);
	}
	fire(byId('head').querySelector('button'), 'keydown', { key: 'ArrowDown' });
	assert.equal(pods.selected, 'uid-p00');
	grid.scrollTop = 40 * 26 - 143;
	fire(grid, 'scroll');
	assert.deepEqual([shown().length, shown().at(-1).slice(0, 11), grid.attributes['aria-activedescendant']], [6, '41 shop|p39', undefined]);
	grid.scrollTop = -50; // as some browsers do
	fire(grid, 'scroll');
	assert.equal(pods.scrollTop, 0);
	const row = byId('rows').children[2];
	fire(row.children[1], 'click');
	assert.deepEqual([pods.selected, opened.at(-1), row.attributes['aria-selected'], byId('rows').children[0].attributes['aria-selected']], ['uid-p02', 'uid-p02', 'true', 'false']);
	fire(byId('rows'), 'click');
	assert.equal(opened.length, 2);
	grid.rowHeight = 46; // in a narrow window
	resized();
	assert.deepEqual([byId('rows').style.height, byId('rows').children[1].style.transform, shown().length], ['1840px', 'translateY(46px)', 5]);
	grid.clientHeight = 30; // no row is whole
	resized();
	assert.deepEqual([press('PageDown'), press('PageUp')].map(text => text.split(' ')[0]), ['uid-p03', 'uid-p02']);
});

test('a click on a head sorts, backwards, and then as before', () => {
	const store = stored(view('a', { restarts: 1 }), view('b', { restarts: 2 }));
	const { byId, shown } = table(store, 5);
	const button = byId('head').querySelector('[data-sort=restarts]');
	const sorts = () => [shown().map(row => row.split('|')[1]).join(''), ...byId('head').querySelectorAll('button').map(b => b.parentElement.ariaSort ?? '-')].join(' ');
	fire(button, 'click');
	assert.equal(sorts(), 'ba none none none none ascending none');
	fire(button, 'click');
	assert.equal(sorts(), 'ab none none none none descending none');
	fire(button, 'click');
	assert.deepEqual([sorts(), store.sort], ['ab none none none none none none', { key: 'severity', reverse: false }]);
	fire(button, 'click');
	fire(button, 'click');
	fire(byId('head').querySelector('[data-sort=name]'), 'click'); // the other was backwards
	assert.equal(sorts(), 'ab none ascending none none none none');
});

test('the tooltip of a lane', () => {
	const store = stored(hung(), view('cart'));
	const { byId, pods } = table(store, 3);
	const mark = { at: now - 5000, container: 'app', text: 'died, 137\u202e' };
	const [hang] = store.pods.get('uid-web').hangs;
	pods.explain({ markAt: (pod, x) => (pod.name === 'web' && x === 7 ? mark : null), hangAt: (pod, x) => (x < 9 ? hang : undefined) });
	const [lane, other] = byId('rows').querySelectorAll('.lane');
	lane.rect = other.rect = { left: 100 };
	const at = (x, element = lane) => {
		fire(element, 'pointermove', { clientX: 100 + x });
		return lane.title;
	};
	assert.deepEqual([at(7), at(8), at(9)], ['11:59:55 shop/web app died, 137‹U+202E›', 'shop/web hangs since 11:58 (90s, 3 attempts)', '']);
	at(7);
	assert.equal(at(8, byId('rows').querySelector('.name')), '11:59:55 shop/web app died, 137‹U+202E›');
	assert.equal(at(10, other), '11:59:55 shop/web app died, 137‹U+202E›'); // of the first lane, which the pointer has left
	assert.deepEqual([other.title, at(10)], ['', '']);
});

test('the whole page', async t => {
	const byId = open();
	const [asked, sources, limits] = [[], [], []];
	let ahead = 3600e3; // the daemon's clock
	const daemon = seconds => new Date(clock.now + ahead - seconds * 1000).toISOString();
	const late = { lister: { ...figures().lister, late: true, lastList: daemon(20) } };
	const answers = {
		stages: () => figures(daemon(0), { node: 'n7', runtime: 'crio', verdict: { severity: 'ok', text: 'OK: fine', findings: [] }, waiting: [], ...answers.more }),
		hour: () => ({ periodSeconds: 10, listSeconds: [2], hung: [3], events: [4] }),
		pods: () => ({ states, pods: [view('web'), view('cart')] }),
	};
	globalThis.fetch = async (path, { cache, signal }) => {
		asked.push(path);
		limits.push(`${cache} ${signal}`);
		const answer = answers[path.match(/\w+/)[0]]();
		return { ok: typeof answer === 'object', json: async () => answer, text: async () => answer };
	};
	t.mock.method(AbortSignal, 'timeout', ms => ms);
	globalThis.EventSource = class {
		constructor() { sources.push(this); }
	};
	t.mock.method(globalThis, 'setTimeout', (work, ms) => clock.add(work, ms));
	t.mock.method(globalThis, 'setInterval', (work, ms) => clock.add(work, ms, ms));
	globalThis.requestAnimationFrame = work => clock.add(work, 0);
	byId('grid').clientHeight = 300;
	byId('axis').rect = { ...byId('axis').rect, width: 248 };
	await import('./main.js');
	resized();
	const send = message => sources[0].onmessage({ lastEventId: '', data: JSON.stringify(message) });
	const questions = async ms => {
		await clock.pass(ms);
		return asked.splice(0).join(' ');
	};
	const aboutPods = async ms => (await questions(ms)).split(' ').filter(path => path.startsWith('/pods')).join(' ');

	sources[0].onopen();
	assert.equal(await questions(1), '/stages /hour /pods');
	assert.deepEqual([...new Set(limits), ...texts(byId, 'verdict'), byId('differ').querySelector('[data-figure=pods]').textContent], ['no-store 5000', 'loading', '–']);
	send({ type: 'Synced', observedAt: daemon(0), replayed: true });
	send(event('web', { replayed: true, observedAt: daemon(30) }));
	assert.equal(await questions(998), '/pods'); // once for both
	assert.deepEqual(texts(byId, 'connection', 'node', 'runtime', 'count', 'verdict'), ['live', 'n7', 'crio', '2', 'fine']);
	assert.equal(await questions(1), '/stages');
	assert.deepEqual([...texts(byId, 'verdict'), byId('banner').dataset.severity, byId('old').hidden, byId('pods').className], ['fine', 'ok', true, '']);
	assert.deepEqual(byId('hour').querySelectorAll('b').map(b => b.textContent), ['2.0s', '3', '4']);
	assert.equal(await questions(4001), '/stages /stages /stages /hour /stages');
	assert.equal(byId('differ').querySelector('[data-figure=pods]').textContent, '2');

	// An event: its pod is fetched, its mark is where the clock of the daemon says.
	send(event('web', { observedAt: daemon(30), container: 'c1' }));
	send(event('a/b,c', { observedAt: daemon(3) }));
	assert.equal(await aboutPods(300), '/pods?pod=uid-web,uid-a%2Fb%2Cc');
	await clock.pass(600);
	assert.match(byId('lanes').drawn.join(), /moveTo 17[3-5](\.\d)? 35,/);
	const drawings = async ms => {
		const before = byId('lanes').drawings;
		await clock.pass(ms);
		return byId('lanes').drawings - before;
	};
	assert.equal(await drawings(1000), 4);
	await clock.pass(100);
	byId('grid').scrollTop = 5;
	fire(byId('grid'), 'scroll');
	assert.equal(await drawings(100), 1, 'the lanes do not follow the table');
	byId('grid').scrollTop = 0;
	fire(byId('grid'), 'scroll');
	const [, lane] = byId('rows').querySelectorAll('.lane');
	lane.rect = { left: 0 };
	const tooltips = Array.from({ length: 240 }, (_, x) => fire(lane, 'pointermove', { clientX: x }) && lane.title);
	assert.match(tooltips.filter(Boolean).join(), /^\d\d:\d\d:\d\d shop\/web app died, 137,.*\d shop\/web c1 died, 137$/);
	for (let n = 0; n < 101; n++) {
		send(event(`p${n}`, { replayed: true }));
	}
	assert.equal(await aboutPods(300), '/pods');
	for (let n = 0; n < 100; n++) {
		send(event(`p${n}`, { replayed: true }));
	}
	assert.match(await aboutPods(300), /^\/pods\?pod=uid-p0,(.*),uid-p99$/);
	answers.pods = () => 'refused';
	send(event('web', { replayed: true }));
	assert.equal(await aboutPods(300), '/pods?pod=uid-web');
	answers.pods = () => ({ states, pods: [view('web'), view('cart'), view('new')] });
	assert.equal(await aboutPods(300), '/pods'); // all, as one is unknown
	const all = answers.pods;
	answers.pods = () => {
		send(event('web', { replayed: true })); // after the daemon looked
		return all();
	};
	send(event('cart', { replayed: true }));
	assert.equal(await aboutPods(300), '/pods?pod=uid-cart');
	answers.pods = () => {
		send({ type: 'Synced', observedAt: daemon(0), replayed: true });
		return all();
	};
	assert.equal(await aboutPods(300), '/pods?pod=uid-web');
	answers.pods = all;
	assert.equal(await aboutPods(300), '/pods');
	await clock.pass(500);
	assert.equal(byId('count').textContent, '3');

	// What a user does.
	const press = (key, target = byId('grid'), more = {}) => {
		const pressed = fire(target, 'keydown', { key, ...more });
		return [document.activeElement.id, pressed.prevented].join(' ');
	};
	const filter = byId('filter');
	const type = text => {
		filter.value = text;
		fire(filter, 'input');
		return byId('count').textContent;
	};
	byId('grid').focus();
	for (const modifier of ['ctrlKey', 'metaKey', 'altKey']) {
		assert.equal(press('/', byId('grid'), { [modifier]: true }), 'grid false', modifier);
	}
	assert.equal(press('/'), 'filter true');
	assert.equal(type('web'), '1 of 3');
	assert.deepEqual(byId('events').children.map(row => row.children[3].textContent), ['c1, 137']);
	assert.deepEqual([press('/', filter), press('p', filter), byId('pause').textContent], ['filter false', 'filter false', 'pause']);
	assert.equal(press('ArrowDown', filter), 'grid false');
	assert.deepEqual([press('Escape'), filter.value], ['grid false', 'web']);
	filter.focus();
	assert.equal(press('Enter', filter), 'grid false');
	press('ArrowDown');
	press('Enter');
	assert.deepEqual([document.activeElement.id, byId('details').querySelector('strong').textContent], ['details', 'shop/web']);
	send(event('web', { seq: 7, why: 'again' }));
	await clock.pass(600);
	assert.equal(byId('details').querySelector('.events').children[0].children[1].textContent, 'died, again');
	byId('grid').focus();
	assert.deepEqual([press('Escape', filter), filter.value, byId('count').textContent, byId('details').hidden], ['grid false', '', '3', false]);
	assert.deepEqual([press('Escape'), byId('details').hidden], ['grid false', true]);
	filter.focus();
	fire(byId('rows').children[0], 'click');
	fire(document.body, 'keydown', { key: 'Escape' });
	assert.deepEqual([byId('details').hidden, document.activeElement.id], [true, 'grid']);
	fire(byId('events').children.at(-1).children[0], 'click');
	assert.deepEqual([byId('details').hidden, byId('details').querySelector('strong').textContent, byId('rows').querySelector('[aria-selected=true]').dataset.uid], [false, 'shop/web', 'uid-web']);
	press('Escape');
	press('x');
	assert.equal(byId('pause').textContent, 'pause');
	press('p');
	send(event('web', { replayed: true }));
	send(event('web', { container: 'c3' }));
	send(event('web', { container: 'c2' }));
	type('cart');
	await clock.pass(100);
	assert.deepEqual([...texts(byId, 'pause', 'unseen'), byId('events').children.length], ['go on', 'paused, 2 new', 3]);
	press('P');
	assert.deepEqual([...texts(byId, 'pause', 'unseen'), byId('events').children.length], ['pause', '', 0]);
	assert.equal(type(''), '3');
	assert.equal(byId('events').children[0].children[3].textContent, 'c2, 137');
	assert.equal(fire(byId('controls'), 'submit').prevented, true);
	const axis = byId('axis').querySelector('canvas');
	fire(byId('span').querySelector('[value=600]'), 'change');
	assert.match(axis.drawn.join(), /−10m 3 0 muted left,fillText −7m/);

	// Lists fail, then the stream is lost, then there is no answer.
	answers.more = late;
	await clock.pass(1000);
	assert.deepEqual([byId('old').hidden, byId('pods').className, byId('old').textContent.replace(/\d+s ago/, '2_s ago')], [false, 'old', `as it was at ${late.lister.lastList.slice(11, 19)}, 2_s ago`]);
	answers.more = {};
	await clock.pass(1000);
	assert.deepEqual([byId('old').hidden, byId('pods').className], [true, '']);
	const outages = () => byId('lanes').drawn.filter(text => text.endsWith('outage')).map(text => text.split(' ')[3]);
	assert.deepEqual(outages(), []);
	sources[0].onerror();
	answers.hour = () => 'refused';
	await clock.pass(5000);
	answers.hour = () => ({ periodSeconds: 10, listSeconds: [2], hung: [30], events: [4] });
	assert.deepEqual([texts(byId, 'connection')[0], outages().length, outages()[0] > 1 && outages()[0] < 3], ['no events: trying to connect', 1, true]);
	sources[0].onopen();
	answers.stages = () => { throw new TypeError('Failed to fetch'); };
	await clock.pass(3000);
	assert.deepEqual([document.body.className, ...texts(byId, 'verdict', 'connection')], ['', 'fine', 'live']);
	await clock.pass(1500);
	assert.match(texts(byId, 'verdict', 'detail').join(), /^no answer from the daemon for [34]\.\ds,$/);
	answers.stages = () => 'forbidden\n';
	await clock.pass(1500);
	assert.match(texts(byId, 'verdict', 'detail').join(), /^no answer from the daemon for \d\.\ds,: forbidden$/);
	await clock.pass(1000); // the rows are drawn meanwhile
	assert.equal(document.body.className, 'old');
	answers.stages = () => figures(daemon(0), { verdict: { severity: 'warning', findings: [{ summary: 'slow', since: daemon(60) }] }, waiting: ['uid-cart'] });
	answers.pods = () => ({ states, pods: [view('web'), hung({ uid: 'uid-cart', name: 'cart', finding: { since: daemon(60), what: 'hangs' } }), view('new')] });
	assert.match(await aboutPods(1500), /\/pods\?pod=uid-cart$/);
	assert.deepEqual([document.body.className, ...texts(byId, 'verdict', 'connection')], ['', 'slow', 'live']);
	assert.match(byId('age').textContent, /^ since 1\d:\d\d \(6\ds\)$/);
	const trouble = () => byId('details').textContent.match(/hangs since 1\d:\d\d \((\d+)s\)/)[1];
	fire(byId('rows').querySelector('[data-uid=uid-cart]'), 'click');
	assert.match(trouble(), /^6\d$/);
	answers.stages = () => 'forbidden\n';
	send(event('a-past', { replayed: true }));
	await clock.pass(2000);
	assert.equal(byId('rows').querySelector('[data-uid=uid-a-past]').hidden, false);
	await clock.pass(31e3); // a pod that is gone is forgotten, also while there are no figures
	assert.match(trouble(), /^[89]\d$/); // every ten seconds
	assert.equal(byId('rows').children.filter(row => !row.hidden).length, 3);
	assert.deepEqual(byId('hour').querySelectorAll('b').map(b => b.textContent), ['2.0s', '30', '4']);
	answers.stages = () => figures(daemon(0), { verdict: { severity: 'ok', text: 'OK: fine', findings: [] }, waiting: [] });
	await clock.pass(2000);
	const age = () => parseInt(byId('rows').querySelector('[data-uid=uid-cart]').children[2].textContent.split(' ')[1]);
	const began = age();
	await clock.pass(3000);
	assert.ok(age() >= began + 2, 'the age of a hang stands still');
	globalThis.requestAnimationFrame = () => {}; // a tab in the background
	ahead += 3600e3; // the clock of the daemon was set
	answers.stages = () => figures(daemon(0), { verdict: { severity: 'problem', findings: [{ summary: 'bad', since: daemon(60) }] } });
	await clock.pass(1500);
	assert.equal(document.title, '● pleg-pipeline');
	assert.match(byId('age').textContent, / \(60s\)$/);
	globalThis.fetch = () => new Promise(() => {}); // there is no answer at all, and no word about why
	await clock.pass(5000);
	assert.match(texts(byId, 'verdict', 'detail').join(), /^no answer from the daemon for [34]\.\ds,$/);
});
