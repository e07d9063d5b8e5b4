// Starts the page: figures, the legends that control all of them, tables, colour schemes and printing.
const names = [...new Set(data.charts.map((chart) => chart.name))];
const figures = names.map((name) => new Figure(name, data.charts.filter((chart) => chart.name === name)));

function toggle(kind, id) {
  const gone = off[kind];
  gone.has(id) ? gone.delete(id) : gone.add(id);
  for (const button of document.querySelectorAll(`.legend button[data-${kind.slice(0, -1)}="${id}"]`))
    button.setAttribute("aria-pressed", String(!gone.has(id)));
  if (kind === "arms")
    for (const row of document.querySelectorAll(`.targets tr[data-arm="${id}"]`)) row.hidden = gone.has(id);
  for (const figure of figures) if (figure.data[0].of === kind) figure.build();
}

for (const button of document.querySelectorAll(".legend button"))
  button.addEventListener("click", () => toggle(button.dataset.arm == null ? "lines" : "arms", number(button)));

for (const table of document.querySelectorAll(".box table:not(.heat)")) sortable(table);

const everything = () => figures.forEach((figure) => figure.build());

dark.addEventListener("change", everything);
addEventListener("resize", () => figures.forEach((figure) => figure.resize()));
for (const [event, scheme] of [["beforeprint", "light"], ["afterprint", ""]]) // paper is white in the dark scheme too
  addEventListener(event, () => { root.style.colorScheme = scheme; everything(); });
