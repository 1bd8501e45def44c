/* The heat map: a canvas that shows all rows, or some of them large enough to be read. */

const ROW_HEIGHT = 22;
const LEAST_NAMED = 12;
const LEAST_WRITTEN = 44;
const LEAST_COLUMN = 2;
const MOST_HEIGHT = 620;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

class HeatMap {
  static async open(plain) {
    const map = new HeatMap(await Cells.open(plain));
    document.getElementById("map-tools").hidden = false;
    map.wire();
    map.choose();
    return map;
  }

  constructor(cells) {
    this.cells = cells;
    this.canvas = document.getElementById("canvas");
    this.context = this.canvas.getContext("2d");
    this.tip = document.getElementById("tip");
    this.cursor = null;
    this.box = null;
    this.takeColours();
  }

  takeColours() {
    this.colours = colourTable(isDark() ? "dark" : "light");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.ink = colour("--ink");
    this.muted = colour("--muted");
    this.paper = colour("--paper");
    this.unknown = packColour(channels(colour("--unknown")));
    this.empty = packColour(channels(this.paper));
    drawLegend(document.getElementById("legend"), this.colours);
    const limit = Number(this.cells.plain.limit.toPrecision(2)) / 10 ** PAGE.power;
    const text = Number(limit.toPrecision(2)).toLocaleString("en-US");
    document.getElementById("legend-low").textContent = `−${text}`;
    document.getElementById("legend-high").textContent = `+${text} ${PAGE.unit}`;
  }

  recolour() {
    this.takeColours();
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
      owner: owner === "" ? null : owner === "nobody" ? owner : Number(owner),
      text: value("only-rows"),
      columns: new Set([...ticked].map((tick) => Number(tick.value))),
    };
    this.owner = choice.owner;
    this.pixel = value("pixel") || "far";
    const before = this.cursor && [this.rows[this.cursor.y], this.columns[this.cursor.x]];
    ({ rows: this.rows, columns: this.columns } = this.cells.chosen(choice));
    this.cursor = null;
    if (before) {
      const y = this.rows.indexOf(before[0]);
      const x = this.columns.indexOf(before[1]);
      if (x >= 0 && y >= 0) this.cursor = { x, y };
    }
    this.wholeTable();
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

  /* Places in CSS pixels; the canvas itself has as many as the screen. */
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

  draw() {
    const { context, ratio } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.tellView();
    if (!this.rows.length || !this.columns.length) {
      this.winners = null;
      this.write("Nothing is left to show: choose other filters.");
      return;
    }
    this.paint();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = FONT;
    this.drawNames();
    this.drawContents();
    this.drawMarks();
    this.drawCursor();
    this.drawBox();
  }

  write(text) {
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.font = FONT;
    this.context.fillStyle = this.muted;
    this.context.fillText(text, 12, 24);
  }

  x(column) {
    return this.gutter + ((column - this.view.left) / (this.view.right - this.view.left)) * this.width;
  }

  y(row) {
    return this.header + ((row - this.view.top) / (this.view.bottom - this.view.top)) * this.height;
  }

  /* One colour per cell, or per pixel where rows share it; remembers whose colour a pixel has. */
  paint() {
    const { view, ratio } = this;
    const high = Math.round(this.height * ratio);
    const wide = Math.round(this.width * ratio);
    const first = Math.floor(view.left);
    const last = Math.min(Math.ceil(view.right), this.columns.length);
    const edges = [];
    for (let x = first; x <= last; x++) edges.push(Math.round((this.x(x) - this.gutter) * ratio));
    const image = this.context.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer).fill(this.empty);
    this.winners = new Int32Array(high * (last - first)).fill(-1);
    this.firstColumn = first;
    this.shownColumns = last - first;
    const perPixel = (view.bottom - view.top) / high;
    for (let x = first; x < last; x++) {
      const from = Math.max(edges[x - first], 0);
      const to = Math.min(edges[x - first + 1], wide);
      let before = -1, colour = 0, winner = -1;
      for (let y = 0; y < high; y++) {
        const start = Math.floor(view.top + y * perPixel);
        const stop = Math.min(Math.max(Math.floor(view.top + (y + 1) * perPixel), start + 1), this.rows.length);
        if (start !== before || stop > start + 1) {
          [winner, colour] = this.strongest(start, stop, this.columns[x]);
          before = start;
        }
        this.winners[y * this.shownColumns + (x - first)] = winner;
        pixels.fill(colour, y * wide + from, y * wide + to);
      }
    }
    this.context.putImageData(image, Math.round(this.gutter * ratio), Math.round(this.header * ratio));
  }

  /* Which of some rows gives a pixel its colour, and the colour. */
  strongest(start, stop, column) {
    const { cells, rows } = this;
    const numbers = cells.worth.numbers;
    let winner = -1, best = NaN, sum = 0, n = 0;
    for (let place = start; place < stop; place++) {
      const row = rows[place];
      if (this.owner !== null && !cells.holds(this.owner, row, column)) continue;
      const worth = numbers[row * cells.nColumns + column];
      if (worth !== worth) {
        if (winner < 0) winner = place;
        continue;
      }
      sum += worth;
      n += 1;
      const better = best !== best || (this.pixel === "low" ? worth < best : Math.abs(worth) > Math.abs(best));
      if (better) {
        best = worth;
        winner = place;
      }
    }
    if (winner < 0) return [-1, this.empty];
    if (n === 0) return [winner, this.unknown];
    return [winner, this.colour(this.pixel === "mean" ? sum / n : best)];
  }

  colour(worth) {
    const limit = this.cells.plain.limit || 1;
    const share = Math.max(-1, Math.min(1, worth / limit));
    return this.colours[Math.round(((share + 1) / 2) * (N_COLOURS - 1))];
  }

  drawNames() {
    const { context, view } = this;
    context.fillStyle = this.ink;
    context.textBaseline = "middle";
    const columnWidth = this.width / (view.right - view.left);
    const every = this.upright ? Math.ceil(14 / columnWidth) : 1;
    for (let x = Math.floor(view.left); x < Math.min(view.right, this.columns.length); x++) {
      const middle = this.x(x + 0.5);
      if (x % every || middle < this.gutter) continue;
      const name = shortened(this.cells.plain.columns[this.columns[x]], 24);
      context.save();
      context.translate(middle, this.header - 7);
      if (this.upright) context.rotate(-Math.PI / 2);
      context.textAlign = this.upright ? "left" : "center";
      context.fillText(name, 0, this.upright ? 0 : -4);
      context.restore();
    }
    context.fillStyle = this.muted;
    context.textAlign = "right";
    const rowHeight = this.height / (view.bottom - view.top);
    const step = Math.max(1, Math.ceil(LEAST_NAMED / rowHeight));
    if (step === 1) {
      for (let y = Math.floor(view.top); y < Math.min(view.bottom, this.rows.length); y++) {
        this.nameRow(y, this.y(y + 0.5));
      }
    } else {
      /* A few names say where one is; the tip says the rest. */
      for (let i = 0; i <= 8; i++) {
        const y = Math.min(Math.floor(view.top + (i / 8) * (view.bottom - view.top)), this.rows.length - 1);
        this.nameRow(y, this.header + (i / 8) * this.height);
      }
    }
  }

  /* Near enough, the heat map is the table itself: what stands in the cells. */
  drawContents() {
    const { context, view, cells } = this;
    const wide = this.width / (view.right - view.left), high = this.height / (view.bottom - view.top);
    if (!cells.texts || wide < LEAST_WRITTEN || high < LEAST_NAMED + 4) return;
    context.textAlign = "left";
    const room = Math.floor((wide - 8) / 7.2);
    for (let y = Math.floor(view.top); y < Math.min(view.bottom, this.rows.length); y++) {
      const middle = this.y(y + 0.5);
      if (middle < this.header + 6 || middle > this.header + this.height - 6) continue;
      for (let x = Math.ceil(view.left); x < Math.min(Math.floor(view.right), this.columns.length); x++) {
        const [row, column] = [this.rows[y], this.columns[x]];
        if (this.owner !== null && !cells.holds(this.owner, row, column)) continue;
        const worth = cells.worth.numbers[row * cells.nColumns + column];
        context.fillStyle = worth !== worth ? this.ink : inkOn(this.colour(worth));
        context.fillText(shortened(cells.content(row, column), room), this.x(x) + 5, middle);
      }
    }
  }

  nameRow(y, middle) {
    const lowest = this.header + 7, highest = this.header + this.height - 6;
    const room = Math.floor((this.gutter - 8) / 6.6);
    const at = Math.max(lowest, Math.min(middle, highest));
    this.context.fillText(shortened(this.cells.ids[this.rows[y]], room), this.gutter - 8, at);
  }

  outline(x, y, colour, width) {
    const left = this.x(x), top = this.y(y);
    const w = Math.max(this.x(x + 1) - left, 5), h = Math.max(this.y(y + 1) - top, 5);
    if (top + h < this.header || top > this.header + this.height || left < this.gutter - 1) return;
    this.context.strokeStyle = this.paper;
    this.context.lineWidth = width + 2;
    this.context.strokeRect(left, top, w, h);
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.strokeRect(left, top, w, h);
  }

  drawMarks() {
    if (!marks.held.size) return;
    const rowOf = new Map();
    this.rows.forEach((row, y) => rowOf.set(this.cells.ids[row], y));
    for (const line of marks.held.values()) {
      const y = rowOf.get(line.row);
      const x = this.columns.findIndex((j) => this.cells.plain.columns[j] === line.column);
      if (y !== undefined && x >= 0) this.outline(x, y, this.ink, 1.5);
    }
  }

  drawCursor() {
    if (this.cursor) this.outline(this.cursor.x, this.cursor.y, this.ink, 3);
  }

  drawBox() {
    if (!this.box) return;
    const { x0, y0, x1, y1 } = this.box;
    this.context.strokeStyle = this.ink;
    this.context.lineWidth = 1;
    this.context.setLineDash([4, 3]);
    this.context.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
    this.context.setLineDash([]);
  }

  /* The cell whose colour a place on the canvas has: {x, y, sharing}, or null. */
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

  told({ x, y }) {
    return this.cells.told(this.rows[y], this.columns[x]);
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

  /* From a list: the row's place in the table and the column's name. */
  showCell(place, column) {
    const row = this.cells.places.indexOf(place);
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
