// One chart on a canvas: its lines, marks and scales. figure.js handles interaction.
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const off = { arms: new Set(), lines: new Set() }; // hidden by the reader, in every figure that has them
const root = document.documentElement;
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const font = (size) => `${size}px ${css("--sans")}`;

// The same marks as in the paper figures: circle, square, triangles, diamond, plus, cross.
const CORNERS = {
  s: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
  "^": [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]],
  v: [[0, 1.2], [1.15, -0.9], [-1.15, -0.9]],
  "<": [[-1.2, 0], [0.9, 1.15], [0.9, -1.15]],
  ">": [[1.2, 0], [-0.9, 1.15], [-0.9, -1.15]],
  D: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
  P: [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]],
  X: [[0, -0.55], [0.6, -1.15], [1.15, -0.6], [0.55, 0], [1.15, 0.6], [0.6, 1.15], [0, 0.55], [-0.6, 1.15], [-1.15, 0.6], [-0.55, 0], [-1.15, -0.6], [-0.6, -1.15]],
};

function mark(ctx, shape, x, y, r) {
  ctx.beginPath();
  if (CORNERS[shape]) CORNERS[shape].forEach(([dx, dy], i) => ctx[i ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
  else ctx.arc(x, y, r * 1.1, 0, 2 * Math.PI);
  ctx.closePath();
  ctx.fill();
}

function stroke(ctx, ...lines) { // each is x, y, x, y: from the first point to the second
  ctx.beginPath();
  for (const [x, y, toX, toY] of lines) { ctx.moveTo(x, y); ctx.lineTo(toX, toY); }
  ctx.stroke();
}

const measuring = document.createElement("canvas").getContext("2d");
function textWidth(text, size) {
  measuring.font = font(size);
  return measuring.measureText(text).width;
}

class Chart {
  constructor(figure, chart, plot) {
    this.figure = figure;
    this.chart = chart;
    this.plot = plot;
    this.looks = data[chart.of];
    this.off = off[chart.of];
    this.beside = chart.panels > 1; // one of several narrow panels with the same scale
    this.few = chart.x.length <= 8 || chart.series.every((s) => s.mean.filter((y) => y != null).length < 2);
    this.labels = new Map(chart.ticks);
    this.unit = chart.ticks.some(([, text]) => text.includes("L")) ? " L" : ""; // unit of x between the ticks
  }

  color(s, text) { // names are small, so on white they must be darker than lines
    const look = this.looks[s.arm];
    if (dark.matches && !root.style.colorScheme) return look.dark;
    return text ? `color-mix(in srgb, ${look.light} 74%, black)` : look.light;
  }

  edges(s, side) { // the ends of the interval
    const least = this.figure.view.y === "log" ? s.lowest / 1e3 : -Infinity;
    return s.mean.map((y, i) => (y == null || s.half[i] == null ? null : Math.max(least, y + side * s.half[i])));
  }

  build() {
    if (this.u) this.u.destroy();
    const { chart, few, figure } = this, { view } = figure;
    const width = this.width = this.plot.clientWidth;
    const height = this.beside ? (width < 420 ? 220 : 260) : width < 460 ? 290 : 340;
    const { color, borderTopColor } = getComputedStyle(this.plot), line = { stroke: borderTopColor, width: 1 };
    const longest = Math.max(...chart.series.map((s) => textWidth(this.looks[s.arm].label, 12)));
    this.ink = color;
    this.named = width >= 460 && longest <= 130; // long names stay in the legend
    const series = [{}], bands = [], rows = [];
    const paths = chart.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {};
    chart.series.forEach((s, i) => {
      const stroke = this.color(s), show = !this.off.has(s.arm);
      const edge = { ...paths, show, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      const dash = this.looks[s.arm].dash.map((part) => 1.5 * part);
      series.push({ ...edge, stroke, width: 1.75, dash }, edge, { ...edge });
      rows.push(s.mean, this.edges(s, 1), this.edges(s, -1));
      if (!few) bands.push({ series: [3 * i + 2, 3 * i + 3], fill: stroke + "26" });
    });
    // A label is centred on its axis, and smaller if the edge of the canvas would cut it off.
    const fitting = (label, room) => font(13 * Math.min(1, room / textWidth(label ?? "", 13)));
    const axis = { stroke: color, font: font(12), labelSize: 24, gap: 6, grid: line, ticks: { show: false } };
    this.u = new uPlot({
      width, height,
      padding: [12, this.named ? 14 + longest : 14, 0, 4],
      legend: { show: false },
      cursor: {
        y: false, points: { size: 7, show: true },
        drag: { x: true, y: false, setScale: false, dist: 8 },
        bind: { dblclick: () => () => figure.zoom(null) },
      },
      scales: {
        x: { time: false, distr: view.x === "log" ? 3 : 1, log: chart.base, range: () => this.span() },
        y: { distr: view.y === "log" ? 3 : 1, log: 10, range: () => this.range() },
      },
      axes: [
        { ...axis, label: chart.x_label, labelFont: fitting(chart.x_label, width - (this.beside ? 50 : 74)), size: 34, filter: (u, splits) => splits,
          splits: (u, i, low, high) => this.ticks(low, high), values: (u, splits) => this.tickLabels(splits) },
        { ...axis, label: this.beside ? null : chart.y_label, labelFont: fitting(chart.y_label, height - 50), filter: (u, splits) => splits,
          size: (u, values) => Math.max(46, 14 + 7 * Math.max(...(values ?? [""]).map((text) => text.length))),
          splits: (u, i, low, high) => (view.y === "log" ? decades(low, high) : nice(low, high, 6)),
          values: (u, splits) => this.heights(splits) },
      ],
      series, bands,
      hooks: { draw: [(u) => this.draw(u)], setCursor: [(u) => figure.read(this, u)], setSelect: [(u) => this.selected(u)] },
    }, [chart.x, ...rows], this.plot);
  }

  selected(u) {
    const { left, width } = u.select;
    if (width <= 0) return;
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.figure.zoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
  }

  whole() { // all x, including a tick just past the last point
    const { x, ticks } = this.chart, low = x[0], last = x.at(-1), tick = ticks.at(-1)?.[0] ?? last;
    const high = tick < last * 1.2 ? Math.max(last, tick) : last, pad = (high / low) ** 0.025, more = 0.025 * (high - low);
    return this.figure.view.x === "log" ? [low / pad, high * pad] : [low - more, high + more];
  }

  span() {
    return this.figure.view.zoom ?? this.whole();
  }

  visible() { // indices of the measured x inside the span
    const [low, high] = this.span();
    return this.chart.x.flatMap((x, i) => (x >= low && x <= high ? [i] : []));
  }

  ticks(low, high) {
    const most = Math.max(2, Math.floor((this.width - 90) / 52));
    if (this.figure.view.x === "linear") return nice(low, high, Math.min(most, 6)).filter((x) => x >= 0);
    let all = this.chart.ticks.map(([x]) => x).filter((x) => x >= low * 0.999 && x <= high * 1.001);
    if (all.length < 2) all = this.visible().map((i) => this.chart.x[i]);
    const every = Math.ceil(all.length / most);
    return all.filter((_, i) => (all.length - 1 - i) % every === 0);
  }

  between(x, digits = 3) { // text of an x between the ticks
    return this.unit ? `${+x.toPrecision(digits)}${this.unit}` : quantity(x, digits);
  }

  tickLabels(splits) {
    const between = distinct(splits, (x, digits) => this.between(x, digits));
    return splits.map((x, i) => this.labels.get(x) ?? between[i]);
  }

  where(i) {
    return this.labels.get(this.chart.x[i]) ?? this.between(this.chart.x[i]);
  }

  heights(splits) {
    if (splits.some((y) => Math.abs(y) >= 1e4)) return distinct(splits, quantity);
    const even = splits.length < 2 || splits.at(-1) / splits[0] < 12 || splits[0] <= 0;
    const places = Math.max(0, ...splits.map((y) => (String(y).split(".")[1] ?? "").length));
    return splits.map((y) => minus(even ? y.toFixed(Math.min(places, 8)) : String(y)));
  }

  range() { // contains every run; wide intervals of few seeds may be cut off
    const { view } = this.figure, { ceiling, frame } = this.chart;
    if (frame && view.y !== "log") return [frame[0] - 0.04 * (frame[1] - frame[0]), frame[1] + 0.04 * (frame[1] - frame[0])];
    let low = Infinity, high = -Infinity;
    const hold = (bottom, top) => { low = Math.min(low, bottom); high = Math.max(high, top); };
    for (const { x, series } of this.figure.data) for (const s of series) {
      if (this.off.has(s.arm)) continue;
      if (!view.zoom) hold(s.lowest, s.highest);
      else s.mean.forEach((y, i) => {
        if (y == null || x[i] < view.zoom[0] || x[i] > view.zoom[1]) return;
        const half = s.half[i] ?? 0;
        hold(Math.min(y, Math.max(y - half, s.lowest)), Math.max(y, Math.min(y + half, s.highest)));
      });
    }
    if (low > high) return view.y === "log" ? [1, 10] : [0, 1];
    if (ceiling != null && ceiling > low) high = Math.min(high, ceiling);
    if (view.y === "log") {
      const pad = high > low ? (high / low) ** 0.05 : 1.1;
      return [low / pad, high * pad];
    }
    const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
    return [low - margin, high + margin];
  }

  draw(u) {
    const { ctx, bbox } = u, px = devicePixelRatio, names = [];
    const left = bbox.left, right = bbox.left + bbox.width, top = bbox.top, bottom = bbox.top + bbox.height;
    const place = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    this.drawLength(u, px, place);
    ctx.save();
    for (const s of this.chart.series) {
      if (this.off.has(s.arm)) continue;
      const at = s.mean.map((y, i) => (y == null ? null : place(this.chart.x[i], y)));
      const end = this.exit(at, right);
      if (end && end[0] >= left) names.push({ series: s, x: end[0], y: Math.max(top, Math.min(bottom, end[1])) });
      if (!this.few) continue;
      ctx.fillStyle = ctx.strokeStyle = this.color(s);
      ctx.lineWidth = 1.25 * px;
      at.forEach((point, i) => {
        if (!point || point[0] < left - px || point[0] > right + px) return;
        const [x, y] = point;
        if (s.half[i] != null) {
          const clip = (v) => Math.max(top, Math.min(bottom, v)), cap = 3.5 * px;
          const low = s.mean[i] - s.half[i], logarithmic = this.figure.view.y === "log";
          const high = clip(place(1, s.mean[i] + s.half[i])[1]), base = logarithmic && low <= 0 ? bottom : clip(place(1, low)[1]);
          stroke(ctx, [x, high, x, base], [x - cap, high, x + cap, high], [x - cap, base, x + cap, base]);
        }
        if (y >= top - px && y <= bottom + px) mark(ctx, this.looks[s.arm].marker, x, y, 3.4 * px);
      });
    }
    if (this.named) this.names(u, ctx, names, px);
    this.spans(ctx, px, place);
    ctx.restore();
  }

  spans(ctx, px, place) { // bars along x, each with its label above it
    ctx.strokeStyle = ctx.fillStyle = this.ink;
    ctx.lineWidth = 1.25 * px;
    ctx.font = font(11 * px);
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    const [low, high] = this.span(), cap = 3.5 * px;
    for (const span of this.chart.spans) {
      if (span.high <= low || span.low >= high) continue;
      const [x, y] = place(Math.max(low, span.low), span.y), [end] = place(Math.min(high, span.high), span.y);
      ctx.setLineDash(span.dashed ? [4 * px, 3 * px] : []);
      stroke(ctx, [x, y, end, y]);
      ctx.setLineDash([]);
      stroke(ctx, [x, y - cap, x, y + cap], [end, y - cap, end, y + cap]);
      ctx.fillText(span.label, (x + end) / 2, y - 2 * px);
    }
  }

  drawLength(u, px, place) { // the training length L, and past it the level above which a line has failed
    const { ctx, bbox } = u, { mark: length, level } = this.chart, [low, high] = this.span();
    if (length == null || length > high) return;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = this.ink;
    ctx.lineWidth = px;
    ctx.setLineDash([4 * px, 4 * px]);
    const x = Math.max(bbox.left, place(length, 1)[0]), bottom = bbox.top + bbox.height, y = level == null ? -1 : place(1, level)[1];
    if (length >= low) stroke(ctx, [x, bbox.top, x, bottom]);
    if (y >= bbox.top && y <= bottom) stroke(ctx, [x, y, bbox.left + bbox.width, y]);
    ctx.font = `italic ${13 * px}px ${css("--serif")}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    const label = this.chart.mark_label, gap = 5 * px, wide = ctx.measureText(label).width;
    const fits = x + gap + wide <= ctx.canvas.width; // otherwise left of the mark, below lines along the top
    if (length >= low) ctx.fillText(label, fits ? x + gap : x - gap - wide, bbox.top + (fits ? 0 : 18 * px));
    ctx.restore();
  }

  exit(at, right) { // the point where a line ends or leaves the frame
    let last = null;
    for (const point of at) {
      if (!point) continue;
      if (point[0] > right) {
        if (!last) return null;
        const part = this.chart.stepped ? 0 : (right - last[0]) / (point[0] - last[0]);
        return [right, last[1] + part * (point[1] - last[1])];
      }
      last = point;
    }
    return last;
  }

  names(u, ctx, names, px) { // beside the ends of their lines, moved apart if they would overlap
    const gap = 15 * px, { top } = u.bbox, bottom = top + u.bbox.height;
    for (const n of names) n.end = n.x + textWidth(this.looks[n.series.arm].label, 12) * px;
    const groups = []; // groups of neighbouring names, the rightmost first
    for (const n of names.sort((a, b) => b.x - a.x)) {
      if (groups.length && n.end >= groups.at(-1).at(-1).x) groups.at(-1).push(n);
      else groups.push([n]);
    }
    for (const ends of groups) {
      ends.sort((a, b) => a.y - b.y);
      ends.forEach((n, i) => { n.y = Math.max(n.y, i ? ends[i - 1].y + gap : top); });
      for (let i = ends.length - 1, floor = bottom; i >= 0; floor = ends[i].y - gap, i--) ends[i].y = Math.min(ends[i].y, floor);
      if (ends[0].y < top - gap / 2) return; // no room for all names: the legend has them
    }
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.font = font(12 * px);
    for (const n of names) {
      ctx.fillStyle = this.color(n.series, true);
      ctx.fillText(this.looks[n.series.arm].label, n.x + 9 * px, n.y);
    }
  }
}
