// Tables sort by any column: ascending, descending, or as reported. Undefined values stay last.
const collator = new Intl.Collator("en", { numeric: true });

function sortKey(cell) { // numbers sort before words, and words before dashes
  const text = cell.textContent.trim(), value = Number(cell.dataset.value ?? (text || NaN));
  if (!Number.isNaN(value)) return { rank: 0, value };
  return text === DASH || !text ? { rank: 2, value: 0 } : { rank: 1, value: text };
}

function compare(a, b, direction) {
  if (a.rank !== b.rank) return a.rank - b.rank;
  if (a.value === b.value) return 0;
  return direction * (a.rank === 1 ? collator.compare(a.value, b.value) : a.value < b.value ? -1 : 1);
}

function sortable(table) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const bodies = [...table.tBodies].map((body) => ({ body, rows: [...body.rows].filter((row) => !row.querySelector("[scope=rowgroup]")) }));
  if (bodies.every(({ rows }) => rows.length < 2)) return;
  heads.forEach((head, column) => {
    if (head.scope !== "col" || head.getAttribute("aria-hidden") === "true" || !head.textContent.trim()) return;
    head.setAttribute("aria-sort", "none");
    head.append(button([...head.childNodes], {}, () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
      for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", next);
      const direction = { ascending: 1, descending: -1, none: 0 }[next];
      for (const { body, rows } of bodies) { // rows of a group stay under its heading
        const keyed = rows.map((row) => ({ row, key: sortKey(row.cells[column]) }));
        if (direction) keyed.sort((a, b) => compare(a.key, b.key, direction));
        body.append(...keyed.map(({ row }) => row));
      }
    }));
  });
}
