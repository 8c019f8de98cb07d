// The timeline: a lane for each visible pod, a mark for each event.

import { seconds } from './text.js';

const markSize = 4;
const labelWidth = 46; // pixels of a label of the axis
const near = 6; // pixels from a mark at which it is explained

// fit gives a canvas the resolution of the screen and returns its context. Without a
// size on the screen there is nothing to draw.
export function fit(canvas, width, height) {
	const ratio = window.devicePixelRatio || 1;
	const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
	if (canvas.width !== w || canvas.height !== h) {
		canvas.width = w;
		canvas.height = h;
		canvas.style.width = width + 'px';
		canvas.style.height = height + 'px';
	}
	const context = canvas.getContext('2d');
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.clearRect(0, 0, width, height);
	return context;
}

// colors returns the colors of the page in its present scheme.
export function colors() {
	const style = getComputedStyle(document.documentElement);
	const color = name => style.getPropertyValue('--' + name).trim();
	return {
		good: color('good'), bad: color('bad'), notice: color('warn'), routine: color('faint'), hang: color('hang'),
		line: color('line'), text: color('muted'), outage: color('outage'), info: color('info'),
	};
}

export class Lanes {
	#span = 120; // seconds
	#canvas = document.getElementById('lanes');
	#axis = document.getElementById('axis');
	#axisCanvas = this.#axis.querySelector('canvas');
	#now = 0;
	#width = 0;
	#size = [0, 0];
	#palette = colors();

	constructor() {
		const measure = () => this.#measure();
		new ResizeObserver(measure).observe(document.getElementById('grid'));
		matchMedia('(prefers-color-scheme: dark)').addEventListener('change', measure);
	}

	set span(seconds) {
		this.#span = seconds;
		this.#measure();
	}

	// measure notes where the lanes are and draws the axis, which never changes in between.
	#measure() {
		const grid = document.getElementById('grid');
		const table = document.getElementById('table').getBoundingClientRect();
		const axis = this.#axis.getBoundingClientRect();
		this.#palette = colors();
		this.#size = [axis.width, Math.max(0, grid.clientHeight - axis.height)];
		this.#width = axis.width - markSize * 2;
		this.#canvas.style.left = axis.left - table.left + 'px';
		this.#canvas.style.top = axis.bottom - table.top + 'px';
		this.#drawAxis(axis);
	}

	// draw draws the lanes of the visible rows.
	draw(store, pods, now) {
		const [width, height] = this.#size;
		if (this.#width <= 0 || height <= 0) {
			return;
		}
		this.#now = now;
		const context = fit(this.#canvas, width, height);
		this.#grid(context, height, store, this.#palette);
		const [first, rows] = pods.range();
		for (let i = 0; i < rows; i++) {
			const y = (first + i + 0.5) * pods.rowHeight - pods.scrollTop;
			const pod = pods.visible[first + i];
			pod.hangs.forEach(hang => this.#drawHang(context, hang, y));
			for (const mark of pod.marks) {
				const x = this.#x(mark.at);
				if (x >= 0) {
					drawMark(context, mark, x, y, this.#palette);
				}
			}
		}
	}

	// drawHang draws a bar from the first try to the end of a hang, and a line for each try
	// that was seen.
	#drawHang(context, hang, y) {
		const [left, right] = [Math.max(0, this.#x(hang.since)), this.#x(Math.min(hang.until, this.#now))];
		if (right <= 0) {
			return;
		}
		context.fillStyle = this.#palette.hang;
		context.fillRect(left, y - markSize, right - left, 2 * markSize);
		context.fillStyle = this.#palette.bad;
		for (const at of [hang.since, ...hang.tries].map(at => this.#x(at)).filter(x => x >= 0)) {
			context.fillRect(at, y - 1.5 * markSize, 2, 3 * markSize);
		}
	}

	#x(at) {
		return this.#width * (1 - (this.#now - at) / 1000 / this.#span);
	}

	// grid draws the lines of the axis, lost connections and gaps.
	#grid(context, height, store, palette) {
		context.fillStyle = palette.outage;
		for (const [start, end] of store.outages) {
			const left = Math.max(0, this.#x(start));
			context.fillRect(left, 0, Math.max(0, this.#x(Math.min(end, this.#now)) - left), height);
		}
		context.lineWidth = 1;
		context.strokeStyle = palette.line;
		for (const part of [0.25, 0.5, 0.75]) {
			line(context, Math.round(this.#width * part) + 0.5, height);
		}
		context.strokeStyle = palette.bad;
		context.setLineDash([4, 3]);
		for (const at of store.gaps) {
			line(context, this.#x(at), height);
		}
		context.setLineDash([]);
	}

	#drawAxis(rect) {
		const context = fit(this.#axisCanvas, rect.width, rect.height);
		context.font = '11px ' + getComputedStyle(document.body).fontFamily;
		context.textBaseline = 'middle';
		context.textAlign = 'left';
		context.fillStyle = this.#palette.text;
		const parts = this.#width < 3 * labelWidth ? [0] : this.#width < 5 * labelWidth ? [0, 0.5] : [0, 0.25, 0.5, 0.75];
		for (const part of parts) {
			const left = this.#width * part;
			context.fillText('−' + seconds(this.#span * (1 - part)), left + 3, rect.height / 2);
		}
		context.textAlign = 'right';
		context.fillText('now', this.#width, rect.height / 2);
	}

	// hangAt returns the hang of a pod at x.
	hangAt(pod, x) {
		return pod.hangs.find(hang => this.#x(hang.since) <= x && x <= this.#x(Math.min(hang.until, this.#now)));
	}

	// markAt returns the mark of a pod nearest to x, if it is near.
	markAt(pod, x) {
		let best = null;
		let distance = near;
		for (const mark of pod.marks) {
			const d = Math.abs(this.#x(mark.at) - x);
			if (d <= distance) {
				best = mark;
				distance = d;
			}
		}
		return best;
	}
}

function line(context, x, height) {
	context.beginPath();
	context.moveTo(x, 0);
	context.lineTo(x, height);
	context.stroke();
}

// drawMark draws a different shape for each severity, so that color alone says nothing. The
// mark of a sandbox is hollow.
export function drawMark(context, mark, x, y, palette) {
	const s = markSize;
	context.fillStyle = context.strokeStyle = palette[mark.severity];
	context.lineWidth = 1.5;
	context.beginPath();
	switch (mark.severity) {
	case 'good':
		context.moveTo(x, y - s);
		context.lineTo(x + s, y + s);
		context.lineTo(x - s, y + s);
		context.closePath();
		break;
	case 'bad':
		context.moveTo(x - s, y - s);
		context.lineTo(x + s, y + s);
		context.moveTo(x + s, y - s);
		context.lineTo(x - s, y + s);
		context.lineWidth = 2;
		context.stroke();
		return;
	case 'routine':
		context.rect(x - s + 1, y - s + 1, 2 * s - 2, 2 * s - 2);
		context.stroke();
		return;
	default:
		context.arc(x, y, s - 1, 0, 7);
	}
	if (mark.sandbox) {
		context.stroke();
	} else {
		context.fill();
	}
}
