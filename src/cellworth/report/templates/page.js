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

function wireCopy() {
  const button = document.getElementById("copy");
  const record = document.getElementById("record");
  const message = document.getElementById("copied");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(record.textContent);
      message.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(record);
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
wireCopy();
wireSections();
marks.remember();
const show = (position, column) => map && map.showCell(position, column);
document.querySelectorAll("table.sortable").forEach(makeSortable);
for (const [id, listed] of Object.entries(PAGE.listed)) wireList(document.getElementById(id), listed, show);
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
    document.documentElement.dataset.map = map ? "ready" : "missing";
  }));
}
