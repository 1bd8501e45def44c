/* Tables: sorted by a click on a column's name, long ones folded. */

function sortTable(table, position, direction) {
  const rows = [...table.tBodies[0].rows];
  const sign = direction === "ascending" ? 1 : -1;
  const texts = new Intl.Collator("en", { numeric: true });
  /* Numbers, then text, then what is not known, whatever the direction. */
  const key = (row) => {
    const { textContent, dataset } = row.cells[position];
    if (dataset.sort === undefined) return [1, textContent.trim()];
    return dataset.sort === "" ? [2, 0] : [0, Number(dataset.sort)];
  };
  const keyed = rows.map((row) => [key(row), row]);
  keyed.sort(([[kindA, a]], [[kindB, b]]) => {
    if (kindA !== kindB) return kindA - kindB;
    return sign * (kindA === 1 ? texts.compare(a, b) : (a > b) - (a < b));
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, position) => {
    const button = head.querySelector(".sort");
    if (!button) return;
    const other = { ascending: "descending", descending: "ascending" };
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const direction = now ? other[now] : button.dataset.start;
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction);
      sortTable(table, position, direction);
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

/* Findings of one kind, or that hold some text. */
function wireFilter(form) {
  if (!form) return;
  const [kind, text] = form.elements, message = form.querySelector("output");
  const rows = [...document.querySelector("#findings tbody").rows];
  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    for (const row of rows) {
      const has = row.textContent.toLowerCase().includes(wanted);
      row.hidden = !has || (kind.value !== "" && row.querySelector("th").textContent !== kind.value);
    }
    message.textContent = `${rows.filter((row) => !row.hidden).length} of ${counted(rows.length, "finding")}`;
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", filter);
  filter();
}

/* Lists of cells and rows to look at: a mark beside each cell, a way to the heat map, which knows them. */
function wireList(table, map) {
  for (const row of table.tBodies[0].rows) {
    const cell = { position: Number(row.dataset.position), column: map.cells.plain.columns[row.dataset.column] };
    const choice = row.querySelector(".mark");
    if (choice) {
      choice.addEventListener("change", () => marks.set(map.cells.listed(cell), choice.value));
      const refresh = () => { choice.value = marks.of(cell); };
      marks.listeners.push(refresh);
      refresh();
    }
    const find = row.querySelector(".find");
    if (find) find.addEventListener("click", () => map.showCell(cell.position, cell.column));
  }
}
