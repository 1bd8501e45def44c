/* The heat map: what is chosen, what of it is in view, and where things are. */

const ROW_HEIGHT = 22;
const LEAST_COLUMN = 2;
const MOST_HEIGHT = 620;

class HeatMap extends Painting {
  static async open(plain) {
    const map = new HeatMap(await Cells.open(plain));
    document.getElementById("map-tools").hidden = false;
    map.wire();
    map.choose();
    return map;
  }

  constructor(cells) {
    super();
    this.cells = cells;
    this.canvas = document.getElementById("canvas");
    this.context = this.canvas.getContext("2d");
    this.tip = document.getElementById("tip");
    this.cursor = null;
    this.box = null;
    this.takeColors();
  }

  takeColors() {
    this.colors = colorTable(isDark() ? "dark" : "light");
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    this.ink = color("--ink");
    this.muted = color("--muted");
    this.paper = color("--paper");
    this.unknown = packColor(channels(color("--unknown")));
    this.empty = packColor(channels(this.paper));
    drawLegend(document.getElementById("legend"), this.colors);
    const limit = Number(this.cells.plain.limit.toPrecision(2)) / 10 ** PAGE.power;
    const text = Number(limit.toPrecision(2)).toLocaleString("en-US");
    document.getElementById("legend-low").textContent = `−${text}`;
    document.getElementById("legend-high").textContent = `+${text} ${PAGE.unit}`;
  }

  recolor() {
    this.takeColors();
    this.draw();
  }

  /* What is shown: read from the form, then drawn as a whole. */
  choose() {
    const value = (id) => document.getElementById(id)?.value ?? "";
    const owner = value("only-owner");
    const ticked = document.querySelectorAll("input.column:checked");
    const choice = {
      rowOrder: value("row-order"),
      columnOrder: value("column-order"),
      label: value("only-class") === "" ? null : Number(value("only-class")),
      owner: owner === "" ? null : owner === "none" ? owner : Number(owner),
      text: value("only-rows"),
      columns: new Set([...ticked].map((tick) => Number(tick.value))),
    };
    this.pixel = value("pixel") || "far";
    const before = this.cursor && [this.rows[this.cursor.y], this.columns[this.cursor.x]];
    ({ rows: this.rows, columns: this.columns } = this.cells.chosen(choice));
    this.cursor = null;
    if (before) {
      const y = this.rows.indexOf(before[0]);
      const x = this.columns.indexOf(before[1]);
      if (x >= 0 && y >= 0 && this.cells.holds(...before)) this.cursor = { x, y };
    }
    this.wholeTable();
    this.tellChosen(false);
  }

  /* How much is chosen, and how much of that is in view. */
  tellView() {
    const { view } = this;
    const part = (n, all, thing) => `${n === all ? "all" : n.toLocaleString("en-US")} of ${counted(all, thing)}`;
    const inView = (from, to, n, thing) => {
      const first = Math.floor(from), last = Math.min(Math.ceil(to), n);
      return last - first < n ? `; ${counted(last - first, thing)} in view` : "";
    };
    document.getElementById("shown").textContent =
      `Showing ${part(this.rows.length, this.cells.ids.length, "row")}` +
      inView(view.top, view.bottom, this.rows.length, "row") +
      `, ${part(this.columns.length, this.cells.nColumns, "column")}` +
      inView(view.left, view.right, this.columns.length, "column");
  }

  mostColumns() {
    return Math.min(Math.max(Math.floor(this.width / LEAST_COLUMN), 1), this.columns.length);
  }

  wholeTable() {
    this.layOut();
    this.view = { top: 0, bottom: this.rows.length, left: 0, right: this.mostColumns() };
    this.draw();
  }

  /* Positions in CSS pixels; the canvas itself has as many as the screen. */
  layOut() {
    const names = this.columns.map((j) => shortened(this.cells.plain.columns[j], 24));
    this.context.font = FONT;
    const longest = Math.max(0, ...names.map((name) => this.context.measureText(name).width));
    const across = this.canvas.parentElement.clientWidth;
    this.gutter = Math.min(110, Math.max(46, across / 8));
    this.width = Math.max(across - this.gutter - 2, 40);
    this.upright = longest + 12 > this.width / Math.max(this.columns.length, 1);
    this.header = this.upright ? longest + 12 : 24;
    this.height = Math.min(MOST_HEIGHT, Math.max(2 * ROW_HEIGHT, this.rows.length * ROW_HEIGHT));
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(across * this.ratio);
    this.canvas.height = Math.round((this.header + this.height + 2) * this.ratio);
    this.canvas.style.height = `${this.header + this.height + 2}px`;
  }

  /* The cell whose color a position on the canvas has: {x, y, sharing}, or null. */
  cellAt(left, top) {
    if (!this.winners || left < this.gutter || top < this.header) return null;
    if (left >= this.gutter + this.width || top >= this.header + this.height) return null;
    const { view } = this;
    const x = Math.floor(view.left + ((left - this.gutter) / this.width) * (view.right - view.left));
    const line = Math.floor((top - this.header) * this.ratio);
    if (x < this.firstColumn || x >= this.firstColumn + this.shownColumns) return null;
    const y = this.winners[line * this.shownColumns + (x - this.firstColumn)];
    const sharing = Math.round((view.bottom - view.top) / Math.round(this.height * this.ratio));
    return y === undefined || y < 0 ? null : { x, y, sharing };
  }

  describe({ x, y }) {
    return this.cells.describe(this.rows[y], this.columns[x]);
  }

  zoom(factor, middle) {
    const { view } = this;
    const span = Math.min(Math.max((view.bottom - view.top) * factor, 3), this.rows.length);
    const share = (middle.y - view.top) / (view.bottom - view.top);
    /* Out again from a part that was dragged over; in goes by rows alone. */
    const across = view.right - view.left;
    const wide = factor > 1 ? Math.min(across * factor, this.mostColumns()) : across;
    this.look(middle.y - share * span, span, view.left - (wide - across) / 2, wide);
  }

  look(top, height, left, width) {
    this.tip.hidden = true;
    const span = Math.min(height, this.rows.length), across = Math.min(width, this.columns.length);
    top = Math.max(0, Math.min(top, this.rows.length - span));
    left = Math.max(0, Math.min(left, this.columns.length - across));
    this.view = { top, bottom: top + span, left, right: left + across };
    this.draw();
  }

  middle() {
    const { view } = this;
    if (this.cursor) return { x: this.cursor.x + 0.5, y: this.cursor.y + 0.5 };
    return { x: (view.left + view.right) / 2, y: (view.top + view.bottom) / 2 };
  }

  /* Bring a cell into view, large enough to be read. */
  bringIn() {
    const { view, cursor } = this;
    const span = view.bottom - view.top, across = view.right - view.left;
    const top = cursor.y < view.top ? cursor.y : cursor.y >= view.bottom ? cursor.y - span + 1 : view.top;
    const left = cursor.x < view.left ? cursor.x : cursor.x >= view.right ? cursor.x - across + 1 : view.left;
    if (top !== view.top || left !== view.left) this.look(top, span, left, across);
    else this.draw();
  }

  /* From a list: the row's position in the table and the column's name. */
  showCell(position, column) {
    const row = this.cells.positions.indexOf(position);
    if (row < 0) return;
    if (!this.rows.includes(row) || !this.columns.some((j) => this.cells.plain.columns[j] === column)) {
      this.showEverything();
    }
    const x = Math.max(this.columns.findIndex((j) => this.cells.plain.columns[j] === column), 0);
    this.cursor = { x, y: this.rows.indexOf(row) };
    const span = Math.min(Math.floor(this.height / ROW_HEIGHT), this.rows.length);
    this.look(this.cursor.y - span / 2, span, this.view.left, this.view.right - this.view.left);
    this.bringIn();
    this.tellChosen();
    this.canvas.focus({ preventScroll: true });
    document.getElementById("map").scrollIntoView();
  }

  showEverything() {
    for (const id of ["only-class", "only-owner", "only-rows"]) {
      const found = document.getElementById(id);
      if (found) found.value = "";
    }
    document.querySelectorAll("input.column").forEach((tick) => { tick.checked = true; });
    this.choose();
  }
}
