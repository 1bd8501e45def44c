/* Interaction with the heat map: mouse, keyboard, form and the panel of the chosen cell. */

const LINES_PER_PAGE = 20;

Object.assign(HeatMap.prototype, {
  wire() {
    for (const id of ["row-order", "column-order", "only-class", "only-owner", "pixel"]) {
      document.getElementById(id)?.addEventListener("change", () => this.choose());
    }
    document.getElementById("only-rows").addEventListener("input", () => this.choose());
    document.getElementById("which-cells").addEventListener("submit", (event) => event.preventDefault());
    const ticks = [...document.querySelectorAll("input.column")];
    const tickAll = (checked) => { ticks.forEach((tick) => { tick.checked = checked; }); this.choose(); };
    ticks.forEach((tick) => tick.addEventListener("change", () => this.choose()));
    document.getElementById("all-columns").addEventListener("click", () => tickAll(true));
    document.getElementById("no-columns").addEventListener("click", () => tickAll(false));
    document.getElementById("zoom-in").addEventListener("click", () => this.zoom(0.5, this.middle()));
    document.getElementById("zoom-out").addEventListener("click", () => this.zoom(2, this.middle()));
    document.getElementById("zoom-all").addEventListener("click", () => this.wholeTable());
    this.wireMouse();
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("focus", () => this.startCursor());
    marks.listeners.push(() => { this.draw(); this.tellChosen(false); });
    let width = this.canvas.parentElement.clientWidth;
    new ResizeObserver(() => {
      if (this.canvas.parentElement.clientWidth === width) return;
      width = this.canvas.parentElement.clientWidth;
      this.layOut();
      this.draw();
    }).observe(this.canvas.parentElement);
  },

  wireMouse() {
    const { canvas } = this;
    let start = null;
    const at = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      if (start) this.drag(start, x, y);
      else this.hover(x, y);
    });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const [x, y] = at(event);
      start = { x, y, move: event.shiftKey, view: { ...this.view } };
      if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (!start) return;
      const [x, y] = at(event);
      const from = start;
      start = null;
      this.box = null;
      if (Math.abs(x - from.x) < 4 && Math.abs(y - from.y) < 4) this.take(this.cellAt(x, y));
      else if (!from.move) this.zoomInto(from, { x, y });
    });
    canvas.addEventListener("pointercancel", () => { start = null; this.box = null; this.draw(); });
    canvas.addEventListener("dblclick", (event) => {
      this.zoom(0.25, this.inTable(...at(event)));
    });
    canvas.addEventListener("wheel", (event) => {
      /* The page scrolls as ever. */
      if (!event.ctrlKey) return;
      event.preventDefault();
      if (!this.rows.length || !this.columns.length) return;
      this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), this.inTable(...at(event)));
    }, { passive: false });
  },

  inTable(left, top) {
    const { view } = this;
    return {
      x: view.left + ((left - this.gutter) / this.width) * (view.right - view.left),
      y: view.top + ((top - this.header) / this.height) * (view.bottom - view.top),
    };
  },

  drag(start, x, y) {
    this.tip.hidden = true;
    if (start.move) {
      const { view } = start;
      const down = ((start.y - y) / this.height) * (view.bottom - view.top);
      const right = ((start.x - x) / this.width) * (view.right - view.left);
      this.look(view.top + down, view.bottom - view.top, view.left + right, view.right - view.left);
      return;
    }
    this.box = { x0: start.x, y0: start.y, x1: x, y1: y };
    this.draw();
  },

  zoomInto(from, to) {
    const a = this.inTable(from.x, from.y), b = this.inTable(to.x, to.y);
    const top = Math.floor(Math.min(a.y, b.y)), left = Math.floor(Math.min(a.x, b.x));
    const height = Math.max(Math.ceil(Math.max(a.y, b.y)) - top, 3);
    const width = Math.max(Math.ceil(Math.max(a.x, b.x)) - left, 1);
    this.look(top, height, left, width);
  },

  hover(x, y) {
    const found = this.cellAt(x, y);
    if (!found) {
      this.tip.hidden = true;
      return;
    }
    const described = this.describe(found);
    const lines = [
      element("strong", null, "Row ", quoted(described.row), ", ", quoted(described.column)),
      described.cell === null ? null : element("span", null, described.cell === "" ? "missing" : quoted(described.cell)),
      `value ${described.value}`,
      described.label === null ? null : element("span", null, "label ", quoted(described.label)),
      described.owner === null ? null : element("span", null, "owner ", quoted(described.owner)),
      marks.of(described) ? `marked as ${marks.of(described)}` : null,
      found.sharing > 1 ? `${this.pixelText()} of about ${found.sharing} rows here` : null,
    ];
    this.tip.replaceChildren(...lines.filter((line) => line !== null).map((line) => element("p", null, line)));
    this.tip.hidden = false;
    const room = this.canvas.parentElement.clientWidth;
    const left = x + 18 + this.tip.offsetWidth > room ? Math.max(x - 18 - this.tip.offsetWidth, 0) : x + 18;
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(y + 14)}px)`;
  },

  pixelText() {
    if (this.pixel === "mean") return "color is the mean, text the furthest from zero,";
    return this.pixel === "low" ? "the lowest" : "the furthest from zero";
  },

  take(found) {
    if (!found) return;
    this.cursor = { x: found.x, y: found.y };
    this.draw();
    this.tellChosen();
  },

  startCursor() {
    if (this.cursor || !this.rows.length || !this.columns.length) return;
    this.cursor = { x: Math.floor(this.view.left), y: Math.floor(this.view.top) };
    this.draw();
  },

  press(event) {
    if (event.altKey || event.metaKey || event.ctrlKey || !this.cursor) return;
    const { cursor } = this;
    const moves = {
      ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
      PageUp: [0, -LINES_PER_PAGE], PageDown: [0, LINES_PER_PAGE],
      Home: [-cursor.x, 0], End: [this.columns.length, 0],
    };
    const keys = {
      "+": () => this.zoom(0.5, this.middle()), "=": () => this.zoom(0.5, this.middle()),
      "-": () => this.zoom(2, this.middle()), "0": () => this.wholeTable(),
      "1": () => this.mark(MARKS[0]), "2": () => this.mark(MARKS[1]), "3": () => this.mark(MARKS[2]),
      Delete: () => this.mark(""), Backspace: () => this.mark(""),
      u: () => marks.undo(), U: () => marks.undo(),
      Enter: () => this.tellChosen(),
    };
    if (event.key in moves) this.move(...moves[event.key]);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  },

  move(right, down) {
    const inside = (position, n) => Math.max(0, Math.min(position, n - 1));
    this.cursor = {
      x: inside(this.cursor.x + right, this.columns.length),
      y: inside(this.cursor.y + down, this.rows.length),
    };
    this.bringIn();
    this.tellChosen();
  },

  mark(mark) {
    if (!this.cursor || !PAGE.of_cells) return;
    marks.set(this.cells.marked(this.rows[this.cursor.y], this.columns[this.cursor.x]), mark);
  },

  /* The chosen cell in words: for screen readers as a status, for all as a panel with buttons. */
  tellChosen(aloud = true) {
    const panel = document.getElementById("chosen");
    if (!this.cursor) {
      panel.hidden = true;
      document.getElementById("status").textContent = "";
      return;
    }
    const described = this.describe(this.cursor);
    const mark = marks.of(described);
    const facts = [
      ["row", described.row], ["column", described.column], ["content", described.cell === "" ? "missing" : described.cell],
      ["value", described.value], ["label", described.label], ["owner", described.owner], ["mark", mark || null],
    ].filter(([, fact]) => fact !== null);
    if (aloud) {
      document.getElementById("status").textContent =
        facts.map(([name, fact]) => `${name} ${visible(fact)}`).join(", ");
    }
    const list = element("dl", null, ...facts.map(([name, fact]) =>
      element("div", null, element("dt", null, name), element("dd", null, quoted(fact)))));
    panel.replaceChildren(list);
    if (PAGE.of_cells) panel.append(this.markButtons(mark));
    panel.hidden = false;
  },

  markButtons(mark) {
    const buttons = MARKS.map((name, i) => {
      const pressed = String(mark === name);
      const button = element("button", { type: "button", "aria-pressed": pressed, title: `Key ${i + 1}` }, name);
      button.addEventListener("click", () => {
        this.mark(mark === name ? "" : name);
        document.querySelectorAll("#chosen button")[i].focus();
      });
      return button;
    });
    return element("p", { class: "tools", role: "group", "aria-label": "Mark this cell as" }, ...buttons);
  },
});
