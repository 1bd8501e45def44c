/* Cells: what the heat map knows of each, unpacked, and which of them are shown in what order. */

class Cells {
  static async open(plain) {
    const cells = new Cells();
    cells.plain = plain;
    cells.nColumns = plain.n_columns;
    cells.ids = await unpackJson(plain.row_ids);
    cells.positions = await unpackIntegers(plain.positions, 4);
    cells.rowOrder = await unpackIntegers(plain.row_order, 4);
    cells.values = await Decimals.from(plain.values);
    cells.error = await Decimals.from(plain.error);
    cells.mine = null;
    cells.labels = plain.labels ? await unpackIntegers(plain.labels, 2) : null;
    if (plain.owners) cells.rowLines = await unpackIntegers(plain.owners.row_lines, 4);
    if (plain.contents) {
      cells.texts = await unpackJson(plain.contents.texts);
      cells.textCodes = await unpackIntegers(plain.contents.codes, 4);
    }
    return cells;
  }

  content(row, column) {
    return this.texts ? this.texts[column][this.textCodes[column * this.ids.length + row]] : null;
  }

  owners(row, column) {
    const { lines, claims, names } = this.plain.owners;
    return claims[lines[this.rowLines[row]][column]].map((position) => names[position]);
  }

  /* The column in which a row is lowest. */
  lowestOf(row) {
    const value = (j) => Number(this.values.plain(row * this.nColumns + j) || "Infinity");
    const columns = this.plain.columns.map((_, j) => j);
    return this.plain.columns[columns.reduce((best, j) => (value(j) < value(best) ? j : best), 0)];
  }

  /* All that is shown of a cell. */
  describe(row, column) {
    const i = row * this.nColumns + column;
    const unit = PAGE.unit ? ` ${PAGE.unit}` : "";
    const error = this.error && this.error.codes[i] !== UNKNOWN && this.error.codes[i] !== 0
      ? ` ± ${this.error.text(i, false, 1.96)}` : "";
    return {
      row: this.ids[row],
      position: this.positions[row],
      column: this.plain.columns[column],
      cell: this.content(row, column),
      value: `${this.values.text(i, true)}${error}${unit}`,
      label: this.labels ? this.plain.classes[this.labels[row]] : null,
      owner: this.plain.owners ? this.owners(row, column).join(" and ") || "no owner" : null,
    };
  }

  /* What a mark keeps of a cell. */
  marked(row, column) {
    const i = row * this.nColumns + column;
    return {
      row: this.ids[row],
      column: this.plain.columns[column],
      cell: this.content(row, column) ?? "",
      value: this.values.plain(i),
      error: this.error ? this.error.plain(i) : "",
      position: this.positions[row],
    };
  }

  /* The same for a cell by the position of its row in the table, and the name of its column. */
  listed({ position, column }) {
    return this.marked(this.positions.indexOf(position), this.plain.columns.indexOf(column));
  }

  /* Whether a cell is of the chosen owner; all are, while none is chosen. */
  holds(row, column) {
    return this.mine === null || this.holdsIn(this.rowLines[row], column);
  }

  holdsIn(line, column) {
    return this.mine[this.plain.owners.lines[line][column]];
  }

  /* Rows and columns for what was chosen: {rowOrder, columnOrder, label, owner, text, columns}. */
  chosen(choice) {
    let columns = choice.columnOrder === "highest" ? this.plain.column_order : this.plain.columns.map((_, j) => j);
    columns = columns.filter((j) => choice.columns.has(j));
    let keep = () => true;
    this.mine = null;
    if (choice.owner !== null) {
      this.mine = this.plain.owners.claims.map((claim) =>
        choice.owner === "none" ? claim.length === 0 : claim.includes(choice.owner));
      const seen = [...new Set(this.rowLines)];
      columns = columns.filter((j) => seen.some((line) => this.holdsIn(line, j)));
      keep = (row) => columns.some((j) => this.holds(row, j));
    }
    const text = choice.text.toLowerCase();
    const rows = this.ordered(choice.rowOrder).filter(
      (row) =>
        (choice.label === null || this.labels[row] === choice.label) &&
        (!text || this.ids[row].toLowerCase().includes(text)) &&
        keep(row)
    );
    return { rows, columns };
  }

  ordered(order) {
    const rows = Uint32Array.from(this.rowOrder);
    if (order === "lowest") return rows;
    if (order === "highest") return rows.reverse();
    rows.sort();
    if (order === "label") {
      const byLabel = Array.from(rows).sort((a, b) => this.labels[a] - this.labels[b] || a - b);
      return Uint32Array.from(byLabel);
    }
    return rows;
  }
}
