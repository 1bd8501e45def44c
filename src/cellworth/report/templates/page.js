/* The page: themes, buttons, and the heat map once everything else can be read. */

const THEMES = "cellworth theme";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  if (matchMedia("print").matches) return false;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function wireTheme(redraw) {
  const button = document.getElementById("theme");
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  try {
    const kept = localStorage.getItem(THEMES);
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch { /* No storage, no memory of it. */ }
  button.hidden = false;
  name();
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem(THEMES, document.documentElement.dataset.theme);
    } catch { /* As above. */ }
    name();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });
  /* Paper is white. */
  matchMedia("print").addEventListener("change", redraw);
}

/* Each button copies what stands below it. */
function wireCopy(button) {
  const text = button.parentElement.nextElementSibling;
  const message = button.nextElementSibling;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      message.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(text);
      message.textContent = "Selected: press Ctrl+C to copy.";
    }
  });
}

function wireSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}

/* A row by its id: the heat map shows it, with the cursor on its lowest cell. */
function wireSearch(form) {
  const message = form.querySelector("output");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const id = form.querySelector("input").value.trim();
    const row = map.cells.ids.indexOf(id);
    message.textContent = row < 0 ? `No row of the heat map has the id ${shortened(id, 60)}.` : "";
    if (row >= 0) map.showCell(map.cells.positions[row], map.cells.lowestOf(row));
  });
}

async function openMap() {
  const message = document.getElementById("no-map");
  if (typeof DecompressionStream === "undefined") {
    message.textContent = "This browser cannot unpack the heat map; browsers since 2023 can.";
    message.hidden = false;
    return null;
  }
  try {
    return await HeatMap.open(PAGE.heatmap);
  } catch (error) {
    message.textContent = `The heat map could not be unpacked (${error.message}).`;
    message.hidden = false;
    throw error;
  }
}

document.documentElement.classList.add("scripted");
let map = null;
wireTheme(() => map && map.recolor());
document.querySelectorAll(".copy").forEach(wireCopy);
wireFilter(document.getElementById("which-findings"));
wireSections();
marks.remember();
document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("table.foldable").forEach(makeFoldable);
if (document.getElementById("marked")) {
  marks.listeners.push(listMarks);
  document.getElementById("export").addEventListener("click", saveCsv);
  document.getElementById("undo").addEventListener("click", () => marks.undo());
  listMarks();
}
if (PAGE.heatmap) {
  /* After the first paint: what can be read at once must not wait for it. */
  requestAnimationFrame(() => setTimeout(async () => {
    map = await openMap();
    if (map) {
      wireSearch(document.getElementById("find-row"));
      for (const id of ["lowest-cells", "lowest-rows"]) wireList(document.getElementById(id), map);
    }
    document.documentElement.dataset.map = map ? "ready" : "missing";
  }));
}
