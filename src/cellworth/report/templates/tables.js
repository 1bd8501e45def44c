/* Tables: sorted by a click on a column's name, long ones folded. */

function sortTable(table, place, kind, direction) {
  const rows = [...table.tBodies[0].rows];
  const sign = direction === "ascending" ? 1 : -1;
  const texts = new Intl.Collator("en", { numeric: true });
  const value = (row) => {
    const cell = row.cells[place];
    if (kind !== "figure") return cell.textContent.trim();
    return cell.dataset.sort === "" ? NaN : Number(cell.dataset.sort);
  };
  const keyed = rows.map((row) => [value(row), row]);
  keyed.sort(([a], [b]) => {
    if (kind !== "figure") return sign * texts.compare(a, b);
    /* What is not known stands last, whatever the direction. */
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = head.querySelector(".sort");
    if (!button) return;
    const other = { ascending: "descending", descending: "ascending" };
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const direction = now ? other[now] : button.dataset.start;
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction);
      sortTable(table, place, button.dataset.kind, direction);
    });
  });
}

const ROWS_BEFORE_FOLD = 15;

function makeFoldable(table) {
  const n = table.tBodies[0].rows.length;
  if (n <= ROWS_BEFORE_FOLD) return;
  table.classList.add("folded");
  const button = element("button", { type: "button", class: "unfold", "aria-expanded": "false" }, `Show all ${n}`);
  button.addEventListener("click", () => {
    const folded = table.classList.toggle("folded");
    button.textContent = folded ? `Show all ${n}` : `Show the first ${ROWS_BEFORE_FOLD} only`;
    button.setAttribute("aria-expanded", String(!folded));
  });
  table.parentElement.after(button);
}

/* Lists of cells and rows to look at: a mark beside each cell, a way to the heat map. */
function wireList(table, listed, show) {
  for (const row of table.tBodies[0].rows) {
    const cell = listed[Number(row.dataset.index)];
    const choice = row.querySelector(".mark");
    if (choice) {
      choice.addEventListener("change", () => marks.set(cell, choice.value));
      const refresh = () => { choice.value = marks.of(cell); };
      marks.listeners.push(refresh);
      refresh();
    }
    const find = row.querySelector(".find");
    if (find) find.addEventListener("click", () => show(cell.place, cell.column));
  }
}
