// Draws tiles and cells on a canvas. Each state of a node has a shape, so that color is not needed:
//   cordoned: hatched, dashed border   tainted: folded corner   maintained: thick bar at the top
//   blocked: "!" in a diamond          not ready: crossed out

import { cellX, cellY } from './layout.js';
import { stateOf, states } from './colors.js';

/** readTheme returns the colors of the style sheet. */
export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const theme = {};
  for (const name of ['bg', 'tile', 'tile-line', 'text', 'muted', 'accent', 'warn', 'danger', 'hatch', 'info']) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  return theme;
}

const font = (size, weight = 500) => `${weight} ${size}px Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;

/** fitText shortens text in the middle, because names differ at both ends. */
function fitText(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  const characters = [...text];
  let keep = characters.length - 1;
  let short = '';
  while (keep > 1) {
    const head = Math.ceil(keep / 2);
    short = `${characters.slice(0, head).join('')}…${characters.slice(characters.length - (keep - head)).join('')}`;
    if (ctx.measureText(short).width <= width) return short;
    keep--;
  }
  return '…';
}

export function paintHead(ctx, theme, head, l, top) {
  const y = head.y - top;
  ctx.fillStyle = theme.bg;
  ctx.fillRect(head.x - 2, y, head.w + 4, l.headerHeight);
  ctx.textBaseline = 'alphabetic';
  ctx.font = font(13, 600);
  ctx.fillStyle = theme.text;
  let pods = 0;
  for (const n of head.nodes) pods += n.pods;
  const detail = `${head.nodes.length} ${head.nodes.length === 1 ? 'node' : 'nodes'} · ${pods} ${pods === 1 ? 'pod' : 'pods'}`;
  ctx.font = font(12, 400);
  const detailWidth = ctx.measureText(detail).width;
  ctx.font = font(13, 600);
  const title = fitText(ctx, head.name || 'no label', head.w - detailWidth - 12);
  ctx.fillText(title, head.x, y + 18);
  const titleWidth = ctx.measureText(title).width;
  ctx.font = font(12, 400);
  ctx.fillStyle = theme.muted;
  ctx.fillText(detail, head.x + titleWidth + 8, y + 18);
}

/** paintTile draws a node with its pods. picture.match is null, or a function that returns whether a pod is highlighted. */
export function paintTile(ctx, picture, tile, top) {
  const { layout: l, theme, model } = picture;
  const { node } = tile;
  const x = tile.x;
  const y = tile.y - top;
  const radius = l.large ? 8 : l.w >= 40 ? 5 : l.w >= 20 ? 3 : 0;
  const margin = l.gap / 2;
  ctx.fillStyle = theme.bg;
  ctx.fillRect(x - margin, y - margin, l.w + l.gap, l.h + l.gap);
  ctx.save();
  shape(ctx, x, y, l.w, l.h, radius);
  ctx.fillStyle = theme.tile;
  ctx.fill();
  if (node.cordoned || !node.ready) {
    if (radius) ctx.clip();
    hatch(ctx, x, y, l.w, l.h, l.large ? 7 : l.w >= 40 ? 5 : 4, theme.hatch);
  }
  ctx.restore();
  if (l.w >= 20) border(ctx, x, y, l, radius, node, theme);
  if (l.large) paintText(ctx, x, y, l, tile, theme);
  paintPods(ctx, picture, node, x, y);
  paintMarks(ctx, x, y, l, node, theme, model);
}

function shape(ctx, x, y, w, h, radius) {
  ctx.beginPath();
  if (radius) ctx.roundRect(x, y, w, h, radius);
  else ctx.rect(x, y, w, h);
}

function border(ctx, x, y, l, radius, node, theme) {
  ctx.strokeStyle = node.ready ? (node.cordoned ? theme.muted : theme['tile-line']) : theme.danger;
  ctx.lineWidth = 1;
  if (node.cordoned) ctx.setLineDash([4, 3]);
  shape(ctx, x + 0.5, y + 0.5, l.w - 1, l.h - 1, Math.max(0, radius - 0.5));
  ctx.stroke();
  if (node.cordoned) ctx.setLineDash([]);
}

function hatch(ctx, x, y, w, h, step, color) {
  ctx.strokeStyle = color;
  ctx.lineWidth = step > 4 ? 1.5 : 1;
  ctx.beginPath();
  for (let i = -h; i < w; i += step) {
    const x0 = Math.max(i, 0);
    const x1 = Math.min(i + h, w);
    ctx.moveTo(x + x0, y + h - (x0 - i));
    ctx.lineTo(x + x1, y + h - (x1 - i));
  }
  ctx.stroke();
}

function paintText(ctx, x, y, l, tile, theme) {
  const { node } = tile;
  ctx.font = font(11.5, 550);
  ctx.textBaseline = 'alphabetic';
  ctx.fillStyle = theme.text;
  const badges = (node.taints.length > 0 ? 14 : 0) + 26;
  const room = l.w - 2 * l.pad - badges;
  const name = ctx.measureText(node.name).width <= room ? node.name : tile.short;
  ctx.fillText(fitText(ctx, name, room), x + l.pad, y + 15.5);
  ctx.font = font(10.5, 400);
  ctx.fillStyle = theme.muted;
  ctx.textAlign = 'right';
  ctx.fillText(String(node.pods), x + l.w - l.pad - (node.taints.length > 0 ? 12 : 0), y + 15.5);
  ctx.textAlign = 'left';
  const cpu = node.capacity?.cpu > 0 ? Math.min(1, (node.requested?.cpu || 0) / node.capacity.cpu) : 0;
  const width = l.w - 2 * l.pad;
  ctx.fillStyle = theme['tile-line'];
  ctx.fillRect(x + l.pad, y + l.h - 7, width, 2.5);
  ctx.fillStyle = cpu > 0.9 ? theme.warn : theme.muted;
  ctx.fillRect(x + l.pad, y + l.h - 7, width * cpu, 2.5);
}

function paintPods(ctx, picture, node, x, y) {
  const { layout: l, colors, model, match, arriving } = picture;
  const size = l.cell - l.cellGap;
  const rounded = size >= 7;
  const byState = l.cell >= 6;
  let style = '';
  const places = l.columns * l.rows;
  const cells = node.cells;
  for (let i = 0; i < cells.length; i++) {
    const pod = cells[i];
    if (!pod) continue;
    const place = Math.min(i, places - 1);
    const cx = x + l.pad + (place % l.columns) * l.cell;
    const cy = y + (l.large ? l.head : l.pad) + Math.floor(place / l.columns) * l.cell;
    const color = colors.of(pod, model);
    const faint = (match && !match(pod, node)) || arriving.has(pod.uid);
    if (faint) ctx.globalAlpha = 0.16;
    if (color !== style) {
      ctx.fillStyle = color;
      style = color;
    }
    if (byState) {
      paintCell(ctx, cx, cy, size, rounded, color, states[stateOf(pod, model)].mark, picture.theme);
      style = '';
    } else ctx.fillRect(cx, cy, size, size);
    if (faint) ctx.globalAlpha = 1;
  }
}

/** paintCell draws a pod with the mark of its state. */
export function paintCell(ctx, x, y, size, rounded, color, mark, theme) {
  const radius = rounded ? Math.min(3, size / 4) : 0;
  ctx.fillStyle = color;
  if (mark === 'hollow') {
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.5;
    shape(ctx, x + 0.75, y + 0.75, size - 1.5, size - 1.5, radius);
    ctx.stroke();
    return;
  }
  const inset = mark === 'small' ? size / 4 : 0;
  if (!rounded && !inset) ctx.fillRect(x, y, size, size);
  else {
    shape(ctx, x + inset, y + inset, size - 2 * inset, size - 2 * inset, radius);
    ctx.fill();
  }
  if (mark === 'dot') {
    ctx.fillStyle = theme.tile;
    ctx.beginPath();
    ctx.arc(x + size / 2, y + size / 2, Math.max(1.2, size / 5), 0, 7);
    ctx.fill();
  } else if (mark === 'slash' || mark === 'ring') {
    ctx.strokeStyle = theme.tile;
    ctx.lineWidth = Math.max(1, size / 8);
    ctx.beginPath();
    if (mark === 'slash') {
      ctx.moveTo(x + 1, y + size - 1);
      ctx.lineTo(x + size - 1, y + 1);
    } else ctx.arc(x + size / 2, y + size / 2, size / 4, 0, 7);
    ctx.stroke();
  }
}

function paintMarks(ctx, x, y, l, node, theme, model) {
  if (node.taints.length > 0) {
    const size = l.large ? 14 : Math.max(4, l.w / 3.5);
    ctx.fillStyle = theme.warn;
    ctx.beginPath();
    ctx.moveTo(x + l.w - size, y);
    ctx.lineTo(x + l.w, y);
    ctx.lineTo(x + l.w, y + size);
    ctx.fill();
  }
  if (node.maintenance) {
    ctx.fillStyle = theme.info;
    ctx.fillRect(x, y - (l.w >= 20 ? 2 : 1), l.w, l.w >= 40 ? 4 : l.w >= 20 ? 3 : 2);
  }
  if (!node.ready) {
    ctx.strokeStyle = theme.danger;
    ctx.lineWidth = l.w >= 40 ? 2 : 1;
    ctx.beginPath();
    ctx.moveTo(x + 1, y + 1);
    ctx.lineTo(x + l.w - 1, y + l.h - 1);
    ctx.moveTo(x + l.w - 1, y + 1);
    ctx.lineTo(x + 1, y + l.h - 1);
    ctx.stroke();
  }
  if (model.deferred.size > 0 && model.blocked(node)) diamond(ctx, x + l.w - (l.large ? 4 : l.w / 6), y + l.h - (l.large ? 4 : l.w / 6), l, theme);
}

function diamond(ctx, x, y, l, theme) {
  const r = l.large ? 9 : l.w >= 40 ? 7 : Math.max(3, l.w / 4);
  ctx.fillStyle = theme.danger;
  ctx.strokeStyle = theme.bg;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x, y - r);
  ctx.lineTo(x + r, y);
  ctx.lineTo(x, y + r);
  ctx.lineTo(x - r, y);
  ctx.closePath();
  ctx.stroke();
  ctx.fill();
  if (r < 6) return;
  ctx.fillStyle = theme.tile;
  ctx.fillRect(x - 0.9, y - r / 2, 1.8, r * 0.62);
  ctx.fillRect(x - 0.9, y + r * 0.28, 1.8, 1.8);
}

/** centerX and centerY are the middle of a cell in the picture. They are numbers, because each frame needs hundreds of them. */
export const centerX = (l, tile, cell) => tile.x + cellX(l, cell) + l.cell / 2;
export const centerY = (l, tile, cell) => tile.y + cellY(l, cell) + l.cell / 2;
