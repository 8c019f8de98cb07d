// What the page does without a document.

import assert from 'node:assert/strict';
import test from 'node:test';

import { Store } from './store.js';
import { follow } from './stream.js';
import * as text from './text.js';

const now = Date.parse('2026-03-04T12:00:00Z');
const ago = seconds => new Date(now - seconds * 1000).toISOString();

test('a duration has one unit', () => {
	for (const [s, want] of [
		[NaN, '–'], [-1, '0.0ms'], [0.0099, '9.9ms'], [0.00995, '10ms'], [0.0999, '100ms'], [0.1, '0.1s'], [9.9, '9.9s'], [10, '10s'], [119.9, '119s'],
		[120, '2m'], [7199, '119m'], [7200, '2h'], [172799, '47h'], [172800, '2d'],
	]) {
		assert.equal(text.seconds(s), want, `${s} s`);
	}
	assert.equal(text.age(ago(90), now), '90s');
	assert.equal(text.age(undefined, now), '–');
});

test('times and numbers that are missing are a dash', () => {
	assert.deepEqual([text.count(1234567), text.count(0), text.count(NaN)], ['1,234,567', '0', '–']);
	assert.deepEqual([text.clock(now), text.clock(NaN)], ['12:00:00', '–']);
	assert.deepEqual([text.moment(ago(1)), text.moment(undefined)], ['2026-03-04 11:59:59', '–']);
	assert.equal(text.join(', ', 'a', '', undefined, 'b'), 'a, b');
});

test('since says the day if it is another', () => {
	for (const [finding, want] of [
		[{}, ''], [{ since: ago(90), attempts: 1 }, 'since 11:58 (90s)'], [{ since: ago(90), attempts: 9 }, 'since 11:58 (90s, 9 attempts)'],
		[{ since: ago(20 * 3600 - 1) }, 'since 16:00 (19h)'], [{ since: ago(20 * 3600) }, 'since Mar 3 16:00 (20h)'], [{ since: now - 5000 }, 'since 11:59 (5.0s)'],
	]) {
		assert.equal(text.since(finding, now), want);
	}
});

test('a text is inert and short', () => {
	assert.equal(text.inert('a\u202e\nb\u{e0001}'), 'a‹U+202E›‹U+000A›b‹U+E0001›');
	assert.equal(text.inert(null) + text.inert(7), '7');
	assert.equal(text.inert('x'.repeat(200)), 'x'.repeat(200));
	assert.equal(text.inert('x'.repeat(201)), 'x'.repeat(100) + '…' + 'x'.repeat(100));
	assert.equal(text.inert('a'.repeat(150) + 'b'.repeat(150)), 'a'.repeat(100) + '…' + 'b'.repeat(100));
	assert.equal(text.inert('abcdef', 4), 'ab…ef');
});

const event = (podUID, more) => ({ type: 'ContainerDied', podUID, podName: podUID, podNamespace: 'shop', pod: `shop/${podUID}`, observedAt: ago(1), severity: 'bad', container: 'app', what: 'died', why: '137', ...more });
const states = ['hung', 'notready', 'ready'];
const view = (uid, more) => ({ uid, name: uid, namespace: 'shop', state: 'ready', severity: 'ok', running: 1, total: 1, restarts: 0, ...more });

// stored returns a store with pods.
function stored(...pods) {
	const store = new Store();
	store.applyPods({ states, pods }, null, now);
	return store;
}

const names = store => store.visible().map(pod => pod.uid).join(' ');

test('an event is a mark, a row of the feed, and a reason to fetch its pod', () => {
	const store = new Store();
	store.addEvent(event('a', { replayed: true, what: 'started', why: '', observedAt: ago(2) }));
	assert.equal(store.pods.get('a').last.what, 'started');
	store.addEvent(event('a'));
	store.addEvent(event('a', { sandbox: true, what: 'removed', observedAt: ago(0) }));
	const pod = store.pods.get('a');
	assert.deepEqual([pod.title, pod.last.what, pod.lastAt, [...store.dirty], store.events, store.feed.length], ['shop/a', 'died', now - 1000, ['a'], 2, 2]);
	assert.deepEqual(pod.marks.map(mark => `${mark.text} ${mark.severity} ${mark.container} ${mark.sandbox ?? false}`), ['started bad app false', 'died, 137 bad app false', 'removed, 137 bad app true']);
	assert.equal(names(store), ''); // not before it is fetched
	store.addEvent(event('a', { podName: '', podNamespace: '' }));
	assert.equal(pod.title, 'shop/a');
	store.addEvent(event('b', { sandbox: true, what: 'started' }));
	store.addEvent(event('b', { sandbox: true, what: 'ready' }));
	assert.equal(store.pods.get('b').last.what, 'ready');
	for (let n = 0; n < 250; n++) {
		store.addEvent(event('a', { what: n }));
	}
	assert.deepEqual([store.feed.length, store.feed.at(-1).what, pod.marks.length, pod.marks.at(-1).text], [200, 249, 120, '249, 137']);
	for (let n = 0; n < 5100; n++) { // more texts than are remembered
		store.addEvent(event('a', { what: String(n) }));
		assert.equal(pod.marks.at(-1).text, `${n}, 137`);
	}
});

test('a pod of the history that no answer has is gone', () => {
	const store = new Store();
	store.addEvent(event('a', { replayed: true }));
	store.applyPods({ states, pods: [] }, null, now);
	assert.deepEqual(store.visible().map(pod => `${pod.uid} ${pod.state}`), ['a gone']);
});

test('a Gap forgets the pods until all are known again', () => {
	const store = stored(view('a'));
	store.stale = false;
	store.addEvent({ type: 'Synced' });
	assert.deepEqual([store.stale, store.synced], [true, true]);
	store.addEvent({ type: 'Gap', observedAt: ago(3) });
	assert.deepEqual([store.synced, store.size, store.gaps, store.feed.length], [false, 0, [now - 3000], 1]);
	store.addEvent({ type: 'Gap', observedAt: '0001-01-01T00:00:00Z' });
	assert.ok(Date.now() - store.gaps[1] < 60e3);
	for (let n = 0; n < 22; n++) {
		store.addEvent({ type: 'Gap', observedAt: ago(n) });
	}
	assert.deepEqual([store.gaps.length, store.gaps[0], store.gaps.at(-1)], [20, now - 2000, now - 21000]);
});

test('a pod that an answer lacks is gone, and disappears after a while', () => {
	const store = stored(view('a'), view('b'), view('c'));
	store.applyPods({ states, pods: [view('a', { state: 'notready', restarts: 2 })] }, ['a', 'b'], now);
	assert.deepEqual([...store.pods.values()].map(pod => `${pod.state} ${pod.restarts} ${pod.goneAt > 0}`), ['notready 2 false', 'gone 0 true', 'ready 0 false']);
	assert.equal(store.size, 2);
	store.applyPods({ states, pods: [] }, null, now + 10e3);
	store.expire(now + 31e3);
	assert.equal(names(store), 'a c');
	store.applyPods({ states, pods: [view('a')] }, null, now + 31e3);
	store.expire(now + 45e3);
	assert.deepEqual([names(store), store.pods.get('a').restarts], ['a', 0]);
	assert.deepEqual(store.counts(), new Map([['hung', { n: 0, severity: '' }], ['notready', { n: 0, severity: '' }], ['ready', { n: 1, severity: 'ok' }], ['gone', { n: 0, severity: '' }]]));
});

test('a hang lasts until its pod works or is gone; one that was only slow is forgotten', () => {
	const hangs = (severity, more) => view('a', { state: 'hung', severity, finding: { since: ago(60), attempts: 3, what: 'hangs' }, ...more });
	for (const [pods, severity, want] of [[[view('a')], 'problem', [now]], [[], 'problem', [now]], [[view('a')], 'warning', []], [[], 'warning', []]]) {
		const store = stored(hangs(severity, { inspection: { since: ago(9) } }));
		store.applyPods({ states, pods: [hangs(severity, { inspection: { since: ago(9) } })] }, ['a'], now);
		store.applyPods({ states, pods: [hangs(severity, { inspection: { since: ago(4) } })] }, ['a'], now);
		const later = { since: ago(50), attempts: 4, what: 'fails' };
		store.applyPods({ states, pods: [hangs('warning', { inspection: { since: ago(4) }, finding: later })] }, ['a'], now); // it was a problem
		const [hang] = store.pods.get('a').hangs;
		assert.deepEqual(hang, { since: now - 50e3, until: Infinity, attempts: 4, what: 'fails', bad: severity === 'problem', tries: [now - 9e3, now - 4e3] });
		store.applyPods({ states, pods }, ['a'], now);
		assert.deepEqual(store.pods.get('a').hangs.map(h => h.until), want);
		store.expire(now + 20e3);
		assert.deepEqual(store.pods.get('a').hangs.map(h => h.until), want);
		store.expire(now + 31e3);
		assert.equal(store.pods.has('a'), pods.length > 0);
		if (pods.length > 0) {
			store.expire(now + 599e3);
			assert.deepEqual(store.pods.get('a').hangs.map(h => h.until), want);
		}
		store.expire(now + 600e3);
		assert.deepEqual(store.pods.get('a')?.hangs, pods.length > 0 ? [] : undefined);
	}
});

test('a hang that was only slow leaves the one before', () => {
	const hangs = (severity, what) => [view('a', { severity, finding: { since: ago(60), attempts: 3, what } })];
	const store = new Store();
	for (const pods of [hangs('problem', 'hangs'), [view('a')], hangs('warning', 'is slow'), [view('a')]]) {
		store.applyPods({ states, pods }, ['a'], now);
	}
	assert.deepEqual(store.pods.get('a').hangs.map(hang => hang.what), ['hangs']);
});

test('old marks and outages expire', () => {
	const store = stored(view('a'));
	store.addEvent(event('a', { observedAt: ago(602) }));
	store.addEvent(event('a', { observedAt: ago(601) }));
	store.addEvent(event('a', { observedAt: ago(599) }));
	store.setLive(true, now); // it was never lost
	store.setLive(false, now - 620e3);
	store.setLive(false, now - 610e3);
	store.setLive(true, now - 600e3);
	store.setLive(false, now - 599e3);
	store.setLive(true, now - 598e3);
	store.setLive(false, now);
	assert.deepEqual(store.outages, [[now - 620e3, now - 600e3], [now - 599e3, now - 598e3], [now, Infinity]]);
	store.outages.unshift([now - 900e3, now - 599e3]);
	store.expire(now);
	assert.deepEqual([store.pods.get('a').marks.length, store.outages], [1, [[now - 900e3, now - 599e3], [now - 599e3, now - 598e3], [now, Infinity]]]);
	store.expire(now + 2e3);
	assert.equal(store.pods.get('a').marks.length, 0);
});

test('pods that wait for their inspection are fetched, and once more when they no longer do', () => {
	const store = stored(view('a'), view('b'));
	for (const [waiting, want] of [[['a'], ['a']], [['b'], ['a', 'b']], [[], ['b']], [[], []]]) {
		store.dirty.clear();
		store.applyFigures({ waiting });
		assert.deepEqual([...store.dirty].sort(), want);
	}
});

test('each order has its key, and pods that are equal have the order of their names', () => {
	const finding = seconds => ({ since: ago(seconds), attempts: 1, what: 'hangs' });
	const store = stored(
		view('d', { namespace: 'bank', running: 0, total: 2, state: 'notready' }), view('b', { restarts: 3 }), view('a', { restarts: 3, running: 1, total: 2 }),
		view('y', { state: 'hung', severity: 'problem', finding: finding(5) }), view('x', { state: 'hung', severity: 'problem', finding: finding(9) }),
	);
	store.pods.get('y').hangs.unshift({ since: now - 100e3, until: now - 50e3, bad: true }); // an older hang is over
	store.pods.get('a').hangs.push({ since: now - 70e3, until: now - 50e3, bad: true });
	store.addEvent(event('b'));
	store.addEvent(event('d', { podNamespace: 'bank', observedAt: ago(9) }));
	for (const [key, want, reverse] of [
		['severity', 'x y d a b', 'a b d y x'], ['namespace', 'd a b x y', 'a b x y d'], ['name', 'a b d x y', 'y x d b a'], ['state', 'x y d a b', 'a b d x y'],
		['running', 'd a b x y', 'b x y a d'], ['restarts', 'a b d x y', 'd x y a b'], ['last', 'b d a x y', 'a x y d b'],
	]) {
		store.sort = { key, reverse: false };
		assert.equal(names(store), want, key);
		store.sort = { key, reverse: true };
		assert.equal(names(store), reverse, `${key}, reversed`);
	}
	const whole = stored(view('a', { running: 2, total: 2 }), view('b'), view('c', { running: 0, total: 0 }));
	whole.sort.key = 'running';
	assert.equal(names(whole), 'c b a');
});

test('the filter looks at names, states and containers, and the feed at events too', () => {
	const store = stored(view('web', { containers: [{ name: 'app', image: 'Nginx:1' }] }), view('cart', { state: 'notready', name: 'basket' }));
	for (const [words, pods, events] of [
		['', 'cart web', 3], ['SHOP', 'cart web', 3], ['nginx app', 'web', 1], ['notready', 'cart', 1], ['cart web', '', 0], ['137', '', 3], ['other 137', '', 1], ['basket cart', 'cart', 1],
	]) {
		store.setFilter(words);
		assert.equal(names(store), pods, words);
		const all = ['web', 'cart', 'other'].map(uid => event(uid));
		assert.equal(all.filter(e => store.wantsEvent(e)).length, events, words);
		assert.ok(store.wantsEvent({ type: 'Gap' }));
	}
	store.setFilter('u9');
	assert.deepEqual(['u8', 'u9'].map(uid => store.wantsEvent(event(uid, { pod: 'shop/gone' }))), [false, true]);
	store.setFilter('u7');
	assert.ok(store.wantsEvent(event('U7')));
	store.setFilter('basket');
	assert.deepEqual([...store.counts()].map(([state, { n }]) => `${state} ${n}`), ['hung 0', 'notready 1', 'ready 0', 'gone 0']);
	store.setFilter('');
	store.shown.add('notready');
	assert.equal(names(store), 'cart');
});

test('the stream resumes after its last position, also after a refusal', t => {
	const [sources, waits, seen] = [[], [], []];
	t.mock.method(globalThis, 'setTimeout', (work, ms) => { waits.push(ms); work(); });
	globalThis.EventSource = class {
		static CLOSED = 2;
		readyState = 0;
		constructor(url) { this.url = url; sources.push(this); }
	};
	follow({ onEvent: e => seen.push(e.seq), onState: state => seen.push(state) });
	assert.equal(sources[0].url, '/events?name=page&words=true&replay=true&since=1h');
	sources[0].onopen();
	sources[0].onmessage({ lastEventId: 'e:6', data: '{"seq":6}' });
	sources[0].onmessage({ lastEventId: 'e:7', data: '{"seq":7}' });
	sources[0].onmessage({ lastEventId: '', data: '{"seq":8}' });
	sources[0].onerror(); // the browser connects again
	assert.deepEqual([seen, sources.length], [['live', 6, 7, 8, 'lost'], 1]);
	for (let n = 0; n < 6; n++) {
		sources.at(-1).readyState = 2;
		sources.at(-1).onerror();
	}
	assert.deepEqual([sources.at(-1).url, waits], ['/events?name=page&words=true&since=e%3A7', [1000, 2000, 4000, 8000, 10000, 10000]]);
	sources.at(-1).onopen();
	sources.at(-1).readyState = 2;
	sources.at(-1).onerror();
	assert.equal(waits.at(-1), 1000);
});
