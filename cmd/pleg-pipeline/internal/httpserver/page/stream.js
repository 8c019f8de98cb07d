// The event stream: it resumes after the last event, however the connection ends.

const minRetry = 1000;
const maxRetry = 10000;

// follow calls onEvent for each event, and onState with "live" or with "lost" and why.
export function follow({ onEvent, onState }) {
	let last = ''; // the position of the last event after which the stream can resume
	let retry = minRetry;

	function open() {
		const query = new URLSearchParams({ name: 'page', words: true });
		if (last) {
			query.set('since', last);
		} else {
			query.set('replay', 'true'); // the pods, and what happened to them before
			query.set('since', '1h');
		}
		const source = new EventSource('/events?' + query);
		source.onopen = () => {
			retry = minRetry;
			onState('live');
		};
		source.onerror = () => {
			onState('lost');
			// The browser reconnects after a broken connection, but not after an
			// answer such as 503.
			if (source.readyState === EventSource.CLOSED) {
				setTimeout(open, retry);
				retry = Math.min(2 * retry, maxRetry);
			}
		};
		source.onmessage = message => {
			last = message.lastEventId || last;
			onEvent(JSON.parse(message.data));
		};
	}
	open();
}
