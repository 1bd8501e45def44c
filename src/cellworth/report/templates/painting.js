/* Painting the heat map: colors, names, contents, marks and the cursor. */

const LEAST_NAMED = 12;
const LEAST_WRITTEN = 44;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

class Painting {
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

  /* One color per cell, or per pixel where rows share it; remembers whose color a pixel has. */
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
      let before = -1, color = 0, winner = -1;
      for (let y = 0; y < high; y++) {
        const start = Math.floor(view.top + y * perPixel);
        const stop = Math.min(Math.max(Math.floor(view.top + (y + 1) * perPixel), start + 1), this.rows.length);
        if (start !== before || stop > start + 1) {
          [winner, color] = this.strongest(start, stop, this.columns[x]);
          before = start;
        }
        this.winners[y * this.shownColumns + (x - first)] = winner;
        pixels.fill(color, y * wide + from, y * wide + to);
      }
    }
    this.context.putImageData(image, Math.round(this.gutter * ratio), Math.round(this.header * ratio));
  }

  /* Which of some rows gives a pixel its color, and the color. */
  strongest(start, stop, column) {
    const { cells, rows } = this;
    const numbers = cells.values.numbers;
    let winner = -1, best = NaN, sum = 0, n = 0;
    for (let position = start; position < stop; position++) {
      const row = rows[position];
      if (!cells.holds(row, column)) continue;
      const value = numbers[row * cells.nColumns + column];
      if (value !== value) {
        if (winner < 0) winner = position;
        continue;
      }
      sum += value;
      n += 1;
      const better = best !== best || (this.pixel === "low" ? value < best : Math.abs(value) > Math.abs(best));
      if (better) {
        best = value;
        winner = position;
      }
    }
    if (winner < 0) return [-1, this.empty];
    if (n === 0) return [winner, this.unknown];
    return [winner, this.color(this.pixel === "mean" ? sum / n : best)];
  }

  color(value) {
    const limit = this.cells.plain.limit || 1;
    const share = Math.max(-1, Math.min(1, value / limit));
    return this.colors[Math.round(((share + 1) / 2) * (N_COLORS - 1))];
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
        if (!cells.holds(row, column)) continue;
        const value = cells.values.numbers[row * cells.nColumns + column];
        context.fillStyle = value !== value ? this.ink : inkOn(this.color(value));
        const content = cells.content(row, column);
        if (content === null) continue;
        context.font = content === "" ? `italic ${FONT}` : FONT;
        context.fillText(shortened(content || "missing", room), this.x(x) + 5, middle);
      }
    }
  }

  nameRow(y, middle) {
    const lowest = this.header + 7, highest = this.header + this.height - 6;
    const room = Math.floor((this.gutter - 8) / 6.6);
    const at = Math.max(lowest, Math.min(middle, highest));
    this.context.fillText(shortened(this.cells.ids[this.rows[y]], room), this.gutter - 8, at);
  }

  outline(x, y, color, width) {
    const left = this.x(x), top = this.y(y);
    const w = Math.max(this.x(x + 1) - left, 5), h = Math.max(this.y(y + 1) - top, 5);
    if (top + h < this.header || top > this.header + this.height || left < this.gutter - 1) return;
    this.context.strokeStyle = this.paper;
    this.context.lineWidth = width + 2;
    this.context.strokeRect(left, top, w, h);
    this.context.strokeStyle = color;
    this.context.lineWidth = width;
    this.context.strokeRect(left, top, w, h);
  }

  drawMarks() {
    if (!marks.held.size) return;
    const rowOf = new Map();
    this.rows.forEach((row, y) => rowOf.set(this.cells.positions[row], y));
    for (const line of marks.held.values()) {
      const y = rowOf.get(line.position);
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
}
