// A figure and its interaction: reading values, zooming, choosing scales. Its panels share one view.
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function element(tag, attributes = {}, ...children) {
  const node = set(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

function button(children, attributes, act) {
  const node = element("button", { type: "button", ...attributes }, ...children);
  node.addEventListener("click", act);
  return node;
}

// A group of buttons with a common label for screen readers.
const group = (label, text, ...buttons) =>
  element("div", { role: "group", "aria-label": label }, element("span", { "aria-hidden": "true" }, text), ...buttons);

const number = (button) => Number(button.dataset.arm ?? button.dataset.line);

// Text for screen readers, delayed so that a held key does not chatter; not used for the mouse.
const said = document.getElementById("said");
let saying = 0;
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => { said.textContent = text; }, 150);
}

class Figure {
  constructor(name, data) {
    this.root = document.getElementById(name);
    this.data = data;
    this.view = { x: "log", y: "linear", zoom: null };
    this.reading = null; // the chart under the pointer
    this.near = null; // the last x under the pointer
    const plots = this.root.querySelectorAll(".plot"), legend = this.root.querySelector(".legend");
    this.charts = data.map((chart) => new Chart(this, chart, plots[chart.panel]));
    if (this.charts.every((chart) => chart.few)) this.marks(legend);
    this.outputs = new Map([...legend.querySelectorAll("button")].map((b) => [number(b), b.querySelector("output")]));
    this.uneven = new Set(data.flatMap((chart) => chart.series.flatMap((s) => s.n.filter((_, i) => s.mean[i] != null)))).size > 1;
    const texts = data.flatMap((chart) => chart.series.flatMap((s) => s.mean.map((_, i) => this.value(s, i))));
    const longest = texts.reduce((longer, text) => (text.length > longer.length ? text : longer), "");
    legend.style.setProperty("--value", `${Math.ceil(textWidth(longest, 13)) + 2}px`); // reserves room, so that nothing moves with the pointer
    this.at = element("span");
    const hint = this.root.querySelector(".at");
    hint.id = `${name}-hint`;
    hint.prepend(this.at, " ");
    this.tools();
    for (const chart of this.charts) this.listen(chart, hint.id);
    this.build();
  }

  marks(legend) { // markers in the legend, as on the lines of the chart
    for (const one of legend.querySelectorAll("button")) {
      const corners = CORNERS[this.charts[0].looks[number(one)].marker], mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const d = corners ? `M${corners.map(([x, y]) => [12 + 3 * x, 4 + 3 * y])}Z` : "M9 4a3 3 0 1 0 6 0a3 3 0 1 0 -6 0";
      one.querySelector("svg").append(set(mark, { d, fill: "currentColor" }));
    }
  }

  listen(chart, hint) {
    const { plot } = chart;
    // The role makes screen readers pass the arrow keys on to the chart.
    set(plot, { role: "application", "aria-roledescription": "chart", "aria-describedby": hint });
    plot.addEventListener("keydown", (event) => this.key(chart, event));
    plot.addEventListener("blur", () => this.leave(chart));
    plot.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") chart.u.setCursor({ left: event.clientX - chart.u.over.getBoundingClientRect().left, top: 10 });
    });
  }

  build() {
    for (const chart of this.charts) chart.build();
    this.show(null);
  }

  resize() {
    if (this.charts.some((chart) => chart.plot.clientWidth !== chart.width)) this.build();
  }

  leave(chart) {
    chart.u.setCursor({ left: -10, top: -10 });
  }

  value(s, i) {
    if (s.mean[i] == null) return DASH;
    return `${interval(s.mean[i], s.half[i])}${this.uneven ? ` (n = ${s.n[i]})` : ""}`;
  }

  read(chart, u) { // the values under the cursor
    const i = u.cursor.idx, live = i != null && u.cursor.left >= 0;
    if (!live && this.reading !== chart) return; // another panel may be showing values
    this.reading = live ? chart : null;
    if (live) this.near = chart.chart.x[i];
    this.show(this.reading, i);
  }

  show(chart, i) { // without a chart: the last values, if the figure has one panel
    for (const output of this.outputs.values()) output.textContent = "";
    this.at.textContent = "";
    if (!chart && this.charts.length > 1) return;
    const shown = chart ?? this.charts[0], at = chart ? i : shown.chart.x.length - 1;
    this.at.textContent = this.place(shown, at);
    for (const s of shown.chart.series) if (!shown.off.has(s.arm)) this.outputs.get(s.arm).textContent = this.value(s, at);
  }

  place(chart, i) {
    return `${chart.beside ? `${chart.chart.title}, at` : "At"} ${chart.where(i)}.`;
  }

  spoken(chart, i) {
    const values = chart.chart.series.filter((s) => !chart.off.has(s.arm)).map((s) => `${chart.looks[s.arm].label} ${this.value(s, i).replace(DASH, "not defined")}`);
    return `${this.place(chart, i)} ${values.join("; ")}`;
  }

  zoom(low, high) { // to a range with at least two measured x; null: the whole range
    const whole = this.charts[0].whole();
    const inside = this.charts[0].chart.x.filter((x) => x >= low && x <= high).length;
    if (low != null && inside < 2) return;
    const wide = low == null || (low <= whole[0] && high >= whole[1]);
    this.view.zoom = wide ? null : [Math.max(low, whole[0]), Math.min(high, whole[1])];
    if (wide) this.near = null;
    for (const chart of this.charts) {
      const [min, max] = chart.span();
      chart.u.setScale("x", { min, max });
    }
    this.reset.classList.toggle("idle", wide);
    this.reset.disabled = wide;
  }

  zoomBy(factor) { // around the last x under the pointer, or the middle
    const chart = this.reading ?? this.charts[0], logarithmic = this.view.x === "log";
    const to = logarithmic ? Math.log : Number, from = logarithmic ? Math.exp : Number;
    const [low, high] = chart.span().map(to), [least, most] = chart.whole().map(to);
    const width = (high - low) * factor, near = this.near == null ? (low + high) / 2 : to(this.near);
    const centre = near >= low && near <= high ? near : (low + high) / 2;
    const start = Math.max(least, Math.min(most - width, centre - (centre - low) * factor));
    if (width >= most - least) this.zoom(null);
    else this.zoom(from(start), from(start + width));
  }

  key(chart, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const seen = chart.visible(), first = seen[0], last = seen.at(-1);
    const now = this.reading === chart ? chart.u.cursor.idx : null;
    const moves = { ArrowLeft: (now ?? last + 1) - 1, ArrowRight: (now ?? first - 1) + 1, Home: first, End: last };
    const zooms = { "+": 0.5, "=": 0.5, "-": 2, "−": 2 };
    if (event.key in moves) {
      const next = Math.max(first, Math.min(last, moves[event.key]));
      chart.u.setCursor({ left: chart.u.valToPos(chart.chart.x[next], "x"), top: 10 });
      say(this.spoken(chart, next));
    } else if (event.key in zooms) {
      this.zoomBy(zooms[event.key]);
      this.sayZoom(chart);
    } else if (event.key === "0") {
      this.zoom(null);
      this.sayZoom(chart);
    } else if (event.key === "Escape") {
      this.zoom(null);
      this.leave(chart);
    } else return;
    event.preventDefault();
  }

  sayZoom(chart) {
    const seen = chart.visible();
    say(this.view.zoom ? `Shown from ${chart.where(seen[0])} to ${chart.where(seen.at(-1))}.` : "All of it shown.");
  }

  tools() { // below the charts; created here, since they work only with this script
    const bar = element("div", { class: "tools" }), links = this.root.querySelector(".links");
    const series = this.data.flatMap((chart) => chart.series);
    if (series.every((s) => s.lowest > 0 && s.mean.every((y) => y == null || y > 0))) bar.append(this.choice("y", ["linear", "log"]));
    if (this.charts.some((chart) => !chart.few)) bar.append(this.choice("x", ["log", "linear"]));
    const by = (factor) => () => { this.zoomBy(factor); this.sayZoom(this.charts[0]); };
    this.reset = button(["reset"], { class: "idle", disabled: "" }, () => { this.zoom(null); this.charts[0].plot.focus({ preventScroll: true }); });
    bar.append(group("Zoom", "zoom", button(["−"], { "aria-label": "Zoom out" }, by(2)), button(["+"], { "aria-label": "Zoom in" }, by(0.5)), this.reset));
    links.replaceWith(element("div", { class: "foot" }, links.cloneNode(true), bar));
  }

  choice(axis, scales) {
    const buttons = scales.map((scale) => button([scale], { "aria-pressed": scale === this.view[axis] }, () => {
      this.view[axis] = scale;
      buttons.forEach((other, i) => other.setAttribute("aria-pressed", scales[i] === scale));
      this.build();
    }));
    return group(`Scale of the ${axis} axis`, axis, ...buttons);
  }
}
