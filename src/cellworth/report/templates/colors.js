/* Colors of values: orange below zero, blue above, as dark (or as light) on either side. */

const ANCHORS = {
  light: ["#662b00", "#d55e00", "#f2b98f", "#f7f7f7", "#90c3e3", "#0072b2", "#00385e"],
  dark: ["#ffd9b8", "#f08a3c", "#7a3f14", "#20252b", "#14507a", "#3d9fdd", "#cfeaff"],
};
/* So many colors have one in the middle, which is that of zero. */
const N_COLORS = 257;

function channels(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/* As numbers that can be written into image data: alpha, blue, green, red. */
function packColor([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/* Black or white, whichever can be read on a color (WCAG's relative luminance). */
function inkOn(packed) {
  const linear = [packed & 255, (packed >> 8) & 255, (packed >> 16) & 255].map((c) =>
    c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return light > 0.18 ? "#000000" : "#ffffff";
}

function colorTable(theme) {
  const anchors = ANCHORS[theme].map(channels);
  const colors = new Uint32Array(N_COLORS);
  for (let i = 0; i < N_COLORS; i++) {
    const position = (i / (N_COLORS - 1)) * (anchors.length - 1);
    const low = Math.min(Math.floor(position), anchors.length - 2);
    const mix = anchors[low].map((c, j) => Math.round(c + (position - low) * (anchors[low + 1][j] - c)));
    colors[i] = packColor(mix);
  }
  return colors;
}

function drawLegend(canvas, colors) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(N_COLORS, 1);
  new Uint32Array(image.data.buffer).set(colors);
  context.putImageData(image, 0, 0);
}
