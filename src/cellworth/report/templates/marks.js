/* Marks: what a person decided about cells; kept in this browser, saved as CSV. */

const MARKS = ["reviewed", "wrong", "right"];
const STORE = `cellworth marks ${PAGE.values_hash}`;

const marks = {
  held: new Map(),
  /* Notes outlive marks that are taken back, as long as the page is open. */
  notes: new Map(),
  past: [],
  listeners: [],

  /* Several rows may share an id; the position in the table is of one alone. */
  key({ position, column }) {
    return JSON.stringify([position, column]);
  },

  of(cell) {
    const found = marks.held.get(marks.key(cell));
    return found ? found.mark : "";
  },

  /* A cell is {row, column, cell, value, error, position}; an empty mark takes it away. */
  set(cell, mark) {
    const key = marks.key(cell);
    const before = marks.held.get(key);
    if ((before ? before.mark : "") === mark) return;
    marks.past.push([key, before]);
    if (mark) marks.held.set(key, { ...cell, mark, note: marks.notes.get(key) ?? "" });
    else marks.held.delete(key);
    marks.changed();
  },

  note(key, text) {
    const found = marks.held.get(key);
    marks.notes.set(key, text);
    if (found) found.note = text;
    marks.keep();
  },

  undo() {
    const last = marks.past.pop();
    if (!last) return;
    const [key, before] = last;
    if (before) marks.held.set(key, { ...before, note: marks.notes.get(key) ?? "" });
    else marks.held.delete(key);
    marks.changed();
  },

  changed() {
    marks.keep();
    for (const listener of marks.listeners) listener();
  },

  /* A file that was opened from disk may have no storage: marks then last as long as the page. */
  keep() {
    try {
      localStorage.setItem(STORE, JSON.stringify([...marks.held.values()]));
    } catch {
      return;
    }
  },

  remember() {
    try {
      const kept = JSON.parse(localStorage.getItem(STORE) || "[]");
      for (const line of kept) {
        if (!MARKS.includes(line.mark)) continue;
        marks.held.set(marks.key(line), line);
        marks.notes.set(marks.key(line), line.note);
      }
    } catch {
      marks.held.clear();
    }
  },
};

/* A spreadsheet runs text that begins like this; plain numbers are left alone. Text with an apostrophe of
   its own gets another, so that who takes one away has what was there. */
function harmless(text) {
  const formula = /^('|\s*[=+\-@\t\r\n])/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
  return formula ? `'${text}` : text;
}

function field(text) {
  const safe = harmless(String(text));
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function marksAsCsv() {
  const names = ["row", "column", "cell", "value", "error", "mark", "note"];
  const lines = [...marks.held.values()].map((line) => names.map((name) => field(line[name] ?? "")));
  return [names, ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}

function saveCsv() {
  /* The mark of UTF-8 lets spreadsheets read other letters than English ones. */
  const blob = new Blob(["\ufeff", marksAsCsv()], { type: "text/csv;charset=utf-8" });
  const link = element("a", { href: URL.createObjectURL(blob), download: "marks.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function listMarks() {
  const table = document.getElementById("marked");
  if (!table) return;
  const all = [...marks.held.entries()];
  table.hidden = all.length === 0;
  table.tBodies[0].replaceChildren(...all.map(([key, line]) => markLine(key, line)));
  const counts = MARKS.map((mark) => [mark, all.filter(([, line]) => line.mark === mark).length]);
  const each = counts.filter(([, n]) => n).map(([mark, n]) => `${n} ${mark}`).join(", ");
  const count = document.getElementById("marks-count");
  count.textContent = all.length ? `${counted(all.length, "cell")} marked: ${each}.` : "No cell is marked yet.";
  document.getElementById("export").disabled = all.length === 0;
  document.getElementById("undo").disabled = marks.past.length === 0;
}

function markLine(key, line) {
  const what = `row ${shortened(line.row, 60)}, column ${shortened(line.column, 60)}`;
  const note = element("input", { type: "text", "aria-label": `Note on ${what}` });
  note.value = line.note;
  note.addEventListener("input", () => marks.note(key, note.value));
  const remove = element("button", { type: "button", "aria-label": `Remove the mark of ${what}` }, "Remove");
  remove.addEventListener("click", () => marks.set(line, ""));
  const cells = [quoted(line.row), quoted(line.column), quoted(line.cell), line.mark, note, remove];
  return element("tr", null, ...cells.map((cell) => element("td", null, cell)));
}
