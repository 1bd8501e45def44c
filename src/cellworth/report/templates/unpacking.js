"use strict";
/* What the page was given: plain JSON in which long lists are compressed. */

const PAGE = JSON.parse(document.getElementById("data").textContent);

const PICTURES = 0x2400;

/* The same as in the static part of the page: nothing invisible, nothing that turns directions. */
function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, (c) =>
    c === "\n" || c === "\t" ? c : c < " " ? String.fromCharCode(PICTURES + c.charCodeAt(0)) : "\ufffd"
  );
}

async function unpack(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpackJson(text) {
  return JSON.parse(new TextDecoder().decode(await unpack(text)));
}

/* Integers of some bytes each, lowest bytes first. */
async function unpackIntegers(text, width) {
  const bytes = await unpack(text);
  const n = bytes.length / width;
  const integers = new Uint32Array(n);
  for (let plane = 0; plane < width; plane++) {
    const start = plane * n;
    for (let i = 0; i < n; i++) integers[i] |= bytes[start + i] << (8 * plane);
  }
  return integers;
}

const UNKNOWN = 65535;
const LONGEST_TEXT = 100;

/* Numbers of two or three digits, as codes; see heatmap_data.py. */
class Decimals {
  static async from(plain) {
    if (plain === null) return null;
    return new Decimals(await unpackIntegers(plain.codes, 2), plain.digits, plain.lowest);
  }

  constructor(codes, digits, lowest) {
    this.codes = codes;
    this.first = 10 ** (digits - 1);
    this.mantissas = 9 * this.first;
    /* Exponent of the last digit of the smallest numbers. */
    this.lowest = lowest - digits + 1;
    this.numbers = this.decoded();
  }

  decoded() {
    const table = new Float64Array(UNKNOWN + 1).fill(NaN);
    const seen = new Set(this.codes);
    for (const code of seen) {
      const [mantissa, exponent] = this.parts(code);
      if (mantissa !== null) table[code] = Number(`${mantissa}e${exponent}`);
    }
    const numbers = new Float32Array(this.codes.length);
    for (let i = 0; i < numbers.length; i++) numbers[i] = table[this.codes[i]];
    return numbers;
  }

  parts(code) {
    if (code === UNKNOWN) return [null, 0];
    if (code === 0) return [0, 0];
    const rest = (code - 1) >> 1;
    const mantissa = this.first + (rest % this.mantissas);
    const exponent = this.lowest + Math.floor(rest / this.mantissas);
    return [(code - 1) & 1 ? -mantissa : mantissa, exponent];
  }

  /* In the page's unit, with its sign if asked for, or a multiple of it. */
  text(i, sign, times = 1) {
    const [mantissa, exponent] = this.parts(this.codes[i]);
    if (mantissa === null) return "unknown";
    if (mantissa === 0) return "0";
    const last = exponent - PAGE.power;
    const value = times * Number(`${Math.abs(mantissa)}e${last}`);
    if (value < 0.0005) return "≈ 0";
    const decimals = Math.max(-last, 0);
    const digits = value.toLocaleString("en-US", {
      minimumFractionDigits: decimals, maximumFractionDigits: decimals,
    });
    return (mantissa < 0 ? "−" : sign ? "+" : "") + digits;
  }

  /* In units of the score, as programs read it. */
  plain(i) {
    const [mantissa, exponent] = this.parts(this.codes[i]);
    return mantissa === null ? "" : String(Number(`${mantissa}e${exponent}`));
  }
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/* Text of the table, kept from turning the direction of what stands around it. */
function quoted(text) {
  return element("bdi", null, shortened(text, LONGEST_TEXT));
}

function shortened(text, longest) {
  const shown = visible(text);
  return shown.length <= longest ? shown : `${shown.slice(0, Math.max(longest - 1, 1))}…`;
}

function counted(n, thing) {
  return `${n.toLocaleString("en-US")} ${thing}${n === 1 ? "" : "s"}`;
}
