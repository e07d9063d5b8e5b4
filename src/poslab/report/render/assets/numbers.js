"use strict";
// Numbers, formatted as in formatting.py.
const DASH = "–";
const UNITS = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

const minus = (text) => text.replace(/^-(0(\.0+)?)$/, "$1").replace("-", "−");

function decimals(value) { // how many show four significant digits
  return value === 0 ? 3 : Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(Math.abs(value)))));
}

function interval(mean, half) { // with the same number of decimals: 1.523 ± 0.012
  if (!(half > 0)) return minus(mean.toFixed(decimals(mean)));
  const places = Math.max(decimals(Math.max(Math.abs(mean), half)), Math.min(4, -Math.floor(Math.log10(half))));
  return `${minus(mean.toFixed(places))} ± ${Math.max(half, 10 ** -places).toFixed(places)}`; // a smaller interval must not read as none
}

function quantity(x, digits = 3) {
  for (const [unit, scale] of UNITS)
    if (Math.abs(x) >= scale * 0.9995) return `${+(x / scale).toPrecision(digits)} ${unit}`;
  return minus(String(+x.toPrecision(digits)));
}

function distinct(values, text) { // with the fewest digits that tell all values apart
  for (let digits = 3; digits < 7; digits++) {
    const texts = values.map((value) => text(value, digits));
    if (new Set(texts).size === texts.length) return texts;
  }
  return values.map((value) => text(value, 7));
}

function nice(low, high, most) { // round, evenly spaced numbers
  const ten = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].find((part) => part * ten * most >= high - low) * ten, ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(+(i * step).toPrecision(12));
  return ticks;
}

function decades(low, high) { // 1, 2, 5, 10, ...; over a wide range only the powers of ten
  if (high / low < 12) return nice(low, high, 5).filter((value) => value > 0);
  const parts = high / low < 1200 ? [1, 2, 5] : [1], ticks = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    for (const part of parts) ticks.push(+(part * 10 ** power).toPrecision(12));
  return ticks.filter((value) => value >= low && value <= high);
}
