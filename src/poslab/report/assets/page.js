"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const off = { arms: new Set(), lines: new Set() }; // switched off, in every figure that shows them
  const font = (size) => `${size}px ${getComputedStyle(document.body).getPropertyValue("--sans")}`;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (button) => Number(button.dataset.arm ?? button.dataset.line);
  const digits = (y) => (y == null ? "–" : y.toPrecision(4).replace("-", "−"));

  function quantity(x) {
    for (const [unit, scale] of [["G", 1e9], ["M", 1e6], ["k", 1e3]])
      if (x >= scale * 0.9995) return `${+(x / scale).toPrecision(3)} ${unit}`;
    return String(+x.toPrecision(3));
  }

  // The same marks as in the paper figures: circle, square, triangles, diamond, plus, cross.
  function mark(ctx, shape, x, y, r) {
    const corners = {
      s: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
      "^": [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]],
      v: [[0, 1.2], [1.15, -0.9], [-1.15, -0.9]],
      "<": [[-1.2, 0], [0.9, 1.15], [0.9, -1.15]],
      ">": [[1.2, 0], [-0.9, 1.15], [-0.9, -1.15]],
      D: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
      P: [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]],
      X: [[0, -0.55], [0.6, -1.15], [1.15, -0.6], [0.55, 0], [1.15, 0.6], [0.6, 1.15], [0, 0.55], [-0.6, 1.15], [-1.15, 0.6], [-0.55, 0], [-1.15, -0.6], [-0.6, -1.15]],
    }[shape];
    ctx.beginPath();
    if (corners) corners.forEach(([dx, dy], i) => ctx[i ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
    else ctx.arc(x, y, r * 1.1, 0, 2 * Math.PI);
    ctx.closePath();
    ctx.fill();
  }

  class Chart {
    constructor(figure, chart) {
      this.figure = figure;
      this.chart = chart;
      this.looks = data[chart.of];
      this.off = off[chart.of];
      this.beside = chart.panels > 1; // a narrow panel among others, which have the same scale
      this.scaled = data.charts.filter((other) => other.name === chart.name).flatMap((other) => other.series);
      this.few = chart.x.length <= 8;
      this.labels = new Map(chart.ticks.map(([x, text]) => [x, text]));
      this.at = figure.querySelector(".at");
      this.plot = figure.querySelectorAll(".plot")[chart.panel];
      this.outputs = new Map([...figure.querySelectorAll(".legend button")].map((b) => [number(b), b.querySelector("output")]));
      this.idle = this.at.textContent;
      this.plot.addEventListener("keydown", (event) => this.key(event));
      this.plot.addEventListener("blur", () => this.u.setCursor({ left: -10, top: -10 }));
      this.width = this.plot.clientWidth;
      addEventListener("resize", () => {
        if (this.plot.clientWidth !== this.width) { this.width = this.plot.clientWidth; this.build(); }
      });
      this.build();
    }

    color(s) {
      return this.looks[s.arm][dark.matches ? "dark" : "light"];
    }

    rows() { // mean, high and low of each arm, in this order
      return this.chart.series.flatMap((s) => [s.mean, s.high, s.low]);
    }

    build() {
      if (this.u) this.u.destroy();
      const { chart, few, width } = this;
      const ink = css("--soft"), grid = css("--faint"), longest = this.longestName();
      const named = width >= 460 && longest <= 130; // long names stay in the legend
      this.room = named ? 14 + longest : 14;
      const series = [{}], bands = [];
      chart.series.forEach((s, i) => {
        const stroke = this.color(s), show = !this.off.has(s.arm);
        const line = { show, stroke, width: 1.75, dash: this.looks[s.arm].dash.map((part) => 1.5 * part), spanGaps: true, points: { show: false } };
        const edge = { show, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
        series.push(line, edge, { ...edge });
        if (!few) bands.push({ series: [3 * i + 2, 3 * i + 3], fill: stroke + "26" });
      });
      const { low, high } = this.ends(), pad = (high / low) ** 0.025;
      this.u = new uPlot({
        width, height: this.beside ? (width < 420 ? 220 : 260) : width < 460 ? 290 : 340,
        padding: [12, this.room, 0, 4],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7, show: true } },
        scales: {
          x: { time: false, distr: 3, log: chart.base, range: () => [low / pad, high * pad] },
          y: { range: (u) => this.range(u) },
        },
        axes: [
          { stroke: ink, font: font(12), labelFont: font(13), label: chart.x_label, labelSize: 24, size: 34, gap: 6,
            grid: { stroke: grid, width: 1 }, ticks: { show: false }, filter: (u, splits) => splits,
            splits: () => this.ticks(), values: (u, splits) => splits.map((x) => this.labels.get(x)) },
          { stroke: ink, font: font(12), labelFont: font(13), label: this.beside ? null : chart.y_label, labelSize: 24, size: 46, gap: 6,
            grid: { stroke: grid, width: 1 }, ticks: { show: false } },
        ],
        series, bands,
        hooks: { draw: [(u) => this.draw(u, named)], setCursor: [(u) => this.read(u)] },
      }, [chart.x, ...this.rows()], this.plot);
    }

    ends() { // of x, with a tick that lies just past the last point
      const { x, ticks } = this.chart, last = x[x.length - 1];
      const tick = ticks.length ? ticks[ticks.length - 1][0] : last;
      return { low: x[0], high: tick < last * 1.2 ? Math.max(last, tick) : last };
    }

    ticks() {
      const { low, high } = this.ends();
      const all = this.chart.ticks.map(([x]) => x).filter((x) => x >= low * 0.999 && x <= high * 1.001);
      const every = Math.ceil(all.length / Math.max(2, Math.floor((this.width - 90) / 52)));
      return all.filter((_, i) => (all.length - 1 - i) % every === 0);
    }

    range() { // every run inside; an interval of few seeds may be cut
      let low = Infinity, high = -Infinity;
      for (const s of this.scaled) {
        if (this.off.has(s.arm)) continue;
        low = Math.min(low, s.lowest);
        high = Math.max(high, s.highest);
      }
      if (low > high) return [0, 1];
      if (this.chart.ceiling != null && this.chart.ceiling > low) high = Math.min(high, this.chart.ceiling);
      const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
      return [low - margin, high + margin];
    }

    longestName() {
      const ctx = document.createElement("canvas").getContext("2d");
      ctx.font = font(12);
      return Math.max(...this.chart.series.map((s) => ctx.measureText(this.looks[s.arm].label).width));
    }

    draw(u, named) {
      const { ctx, bbox } = u, px = devicePixelRatio, names = [];
      const place = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
      ctx.save();
      if (this.chart.mark != null) {
        const [x] = place(this.chart.mark, 1);
        ctx.strokeStyle = ctx.fillStyle = css("--soft");
        ctx.lineWidth = px;
        ctx.setLineDash([4 * px, 4 * px]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        if (this.chart.level != null) {
          const [, y] = place(1, this.chart.level);
          ctx.moveTo(x, y);
          ctx.lineTo(bbox.left + bbox.width, y);
        }
        ctx.stroke();
        ctx.setLineDash([]);
        ctx.font = `italic ${13 * px}px ${css("--serif")}`;
        ctx.textAlign = "left";
        ctx.textBaseline = "top";
        ctx.fillText("L", x + 5 * px, bbox.top);
      }
      ctx.restore();
      ctx.save();
      for (const s of this.chart.series) {
        if (this.off.has(s.arm)) continue;
        const last = s.mean.reduce((found, y, i) => (y == null ? found : i), 0);
        names.push({ series: s, x: place(this.chart.x[last], 1)[0], y: place(1, s.mean[last])[1] });
        if (!this.few) continue;
        ctx.fillStyle = ctx.strokeStyle = this.color(s);
        ctx.lineWidth = 1.25 * px;
        s.mean.forEach((y, i) => {
          if (y == null) return;
          const [x, at] = place(this.chart.x[i], y);
          if (s.low[i] != null) {
            const clip = (v) => Math.max(bbox.top, Math.min(bbox.top + bbox.height, place(1, v)[1]));
            const [top, bottom] = [clip(s.high[i]), clip(s.low[i])], cap = 3.5 * px;
            ctx.beginPath();
            ctx.moveTo(x, top); ctx.lineTo(x, bottom);
            ctx.moveTo(x - cap, top); ctx.lineTo(x + cap, top);
            ctx.moveTo(x - cap, bottom); ctx.lineTo(x + cap, bottom);
            ctx.stroke();
          }
          mark(ctx, this.looks[s.arm].marker, x, at, 3.4 * px);
        });
      }
      if (named) this.names(u, ctx, names, px);
      ctx.restore();
    }

    names(u, ctx, names, px) { // beside the ends of their lines, pushed apart; a line that ends early keeps its name inside
      const gap = 15 * px, right = u.bbox.left + u.bbox.width, bottom = u.bbox.top + u.bbox.height;
      const ends = names.filter((n) => right - n.x < 60 * px).sort((a, b) => a.y - b.y);
      ends.forEach((n, i) => { n.y = Math.max(n.y, i ? ends[i - 1].y + gap : u.bbox.top); });
      for (let i = ends.length - 1, floor = bottom; i >= 0; floor = ends[i].y - gap, i--) ends[i].y = Math.min(ends[i].y, floor);
      if (ends.length && ends[0].y < u.bbox.top - gap / 2) return; // more names than room: the legend has them
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      ctx.font = font(12 * px);
      for (const n of names) {
        ctx.fillStyle = this.color(n.series);
        ctx.fillText(this.looks[n.series.arm].label, n.x + 9 * px, n.y);
      }
    }

    read(u) {
      const i = u.cursor.idx, live = i != null && u.cursor.left >= 0;
      if (!live && !this.shown) return; // another panel may be saying something
      this.shown = live;
      const where = this.beside ? `${this.chart.title}, at` : "at";
      this.at.textContent = live ? `${where} ${this.labels.get(this.chart.x[i]) ?? quantity(this.chart.x[i])}` : this.idle;
      for (const output of this.outputs.values()) output.textContent = "";
      for (const s of live ? this.chart.series : []) this.outputs.get(s.arm).textContent = digits(s.mean[i]);
    }

    key(event) {
      const x = this.chart.x, step = { ArrowLeft: -1, ArrowRight: 1, Home: -x.length, End: x.length }[event.key];
      if (event.key === "Escape") this.u.setCursor({ left: -10, top: -10 });
      if (!step) return;
      event.preventDefault();
      const now = this.u.cursor.left >= 0 && this.u.cursor.idx != null ? this.u.cursor.idx : step > 0 ? -1 : x.length;
      const next = Math.max(0, Math.min(x.length - 1, now + step));
      this.u.setCursor({ left: this.u.valToPos(x[next], "x"), top: 10 });
    }
  }

  const charts = data.charts.map((chart) => new Chart(document.getElementById(chart.name), chart));

  function toggle(kind, id) {
    const gone = off[kind];
    gone.has(id) ? gone.delete(id) : gone.add(id);
    for (const button of document.querySelectorAll(`.legend button[data-${kind.slice(0, -1)}="${id}"]`))
      button.setAttribute("aria-pressed", String(!gone.has(id)));
    if (kind === "arms")
      for (const row of document.querySelectorAll(`.targets tr[data-arm="${id}"]`)) row.hidden = gone.has(id);
    for (const chart of charts) if (chart.chart.of === kind) chart.build();
  }
  for (const button of document.querySelectorAll(".legend button"))
    button.addEventListener("click", () => toggle(button.dataset.arm == null ? "lines" : "arms", number(button)));
  dark.addEventListener("change", () => charts.forEach((chart) => chart.build()));
})();
