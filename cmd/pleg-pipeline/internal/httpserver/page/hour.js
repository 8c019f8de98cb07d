// The last hour: how long lists took, how many pods hung, how many events there were.

import { colors, fit } from './lanes.js';
import { count, seconds, set } from './text.js';

const badList = 10; // seconds after which a list, or the wait for one, is drawn as bad

const charts = {
	listSeconds: { text: v => seconds(Math.max(...v)), color: (v, c) => (v > badList ? c.bad : c.info) },
	hung: { text: v => count(Math.max(...v)), color: (v, c) => c.bad },
	events: { text: v => count(v.reduce((a, b) => a + b, 0)), color: (v, c) => c.info },
};

// drawHour draws an answer of /hour.
export function drawHour(answer) {
	for (const figure of document.querySelectorAll('#hour figure')) {
		const chart = charts[figure.dataset.series];
		const values = answer[figure.dataset.series] ?? [];
		set(figure.querySelector('b'), values.length > 0 ? chart.text(values) : '–');
		draw(figure, values, 3600 / answer.periodSeconds, chart.color);
	}
}

// draw draws the values as bars, the newest on the right, of an hour of points.
function draw(figure, values, points, color) {
	const { clientWidth: width } = figure;
	const height = 26;
	const context = fit(figure.querySelector('canvas'), width, height);
	const palette = colors();
	const most = Math.max(Number.MIN_VALUE, ...values);
	const step = width / points;
	context.fillStyle = palette.line;
	context.fillRect(0, height - 1, width, 1);
	values.forEach((value, i) => {
		const bar = value > 0 ? Math.max(1, (height - 1) * value / most) : 0;
		context.fillStyle = color(value, palette);
		context.fillRect(width - (values.length - i) * step, height - 1 - bar, Math.max(1, step - 0.4), bar);
	});
}
