// The places of nodes and cells in the picture, in CSS pixels.

const padding = 16;
const columnGap = 20;
const headerHeight = 28;
const groupGap = 14;
const widest = 280;
const narrowest = 11;

/** sizes returns the measures of a tile of that width. */
function sizes(w) {
  const large = w >= 88;
  const gap = w >= 88 ? 10 : w >= 40 ? 5 : w >= 20 ? 3 : 2;
  const pad = large ? 9 : w >= 40 ? 4 : w >= 20 ? 2 : 1;
  return { w, h: large ? Math.round(w * 0.76) : w, gap, pad, head: large ? 21 : 0, foot: large ? 7 : 0, large };
}

/** groups sorts the nodes into groups by a label. */
function groupsOf(model, key) {
  const groups = new Map();
  for (const node of model.nodes.values()) {
    const name = key ? node.labels[key] || '' : 'All nodes';
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  const order = new Intl.Collator(undefined, { numeric: true }).compare;
  const list = [...groups].map(([name, nodes]) => ({ name, nodes: nodes.sort((a, b) => order(a.name, b.name)) }));
  return list.sort((a, b) => (a.name === '') - (b.name === '') || order(a.name, b.name));
}

/** shortNames returns a function that removes from a name what all names begin and end with, up to a separator. */
function shortNames(model) {
  let first = null;
  let head = 0;
  let tail = 0;
  for (const name of model.nodes.keys()) {
    if (first === null) {
      first = name;
      head = name.lastIndexOf('-') + 1;
      tail = name.includes('.') ? name.length - name.indexOf('.') : 0;
    }
    while (head > 0 && !name.startsWith(first.slice(0, head))) head = first.lastIndexOf('-', head - 2) + 1;
    while (tail > 0 && !name.endsWith(first.slice(-tail))) {
      const next = first.indexOf('.', first.length - tail + 1);
      tail = next < 0 ? 0 : first.length - next;
    }
  }
  return (name) => (model.nodes.size > 1 ? name.slice(head, name.length - tail) || name : name);
}

/** arrange places the groups in columns. It returns the height. place is false to measure only. */
function arrange(groups, s, columns, width, place) {
  const columnWidth = (width - 2 * padding - (columns - 1) * columnGap) / columns;
  const perRow = Math.floor((columnWidth + s.gap) / (s.w + s.gap));
  if (perRow < 1) return Infinity;
  const heights = new Array(columns).fill(padding / 2);
  for (const g of groups) {
    const column = heights.indexOf(Math.min(...heights));
    const x = padding + column * (columnWidth + columnGap);
    const y = heights[column];
    heights[column] += headerHeight + Math.ceil(g.nodes.length / perRow) * (s.h + s.gap) + groupGap;
    if (place) place(g, x, y, columnWidth, perRow);
  }
  return Math.max(...heights);
}

/** layout fits the tiles into the area, or makes them zoom times as large. */
export function layout(model, key, width, height, zoom) {
  const groups = groupsOf(model, key);
  const mostColumns = Math.max(1, Math.min(groups.length, Math.floor(width / 200), 12));
  let best = { w: narrowest, columns: mostColumns };
  search:
  for (let w = widest; w >= narrowest; w = w > 40 ? Math.floor(w * 0.95) : w - 1) {
    for (let columns = mostColumns; columns >= 1; columns--) {
      if (arrange(groups, sizes(w), columns, width) <= height) {
        best = { w, columns };
        break search;
      }
    }
  }
  const w = Math.max(narrowest, Math.min(Math.round(best.w * zoom), width - 2 * padding, 2 * widest));
  const s = sizes(w);
  let columns = best.columns;
  while (columns > 1 && arrange(groups, s, columns, width) === Infinity) columns--;
  const short = shortNames(model);
  const tiles = [];
  const byName = new Map();
  const heads = [];
  const room = roomOf(model);
  const total = arrange(groups, s, columns, width, (g, x, y, columnWidth, perRow) => {
    heads.push({ name: g.name, nodes: g.nodes, x, y, w: columnWidth });
    g.nodes.forEach((node, i) => {
      const tile = {
        index: tiles.length, node, name: node.name, short: short(node.name), dirty: false,
        x: x + (i % perRow) * (s.w + s.gap), y: y + headerHeight + Math.floor(i / perRow) * (s.h + s.gap),
      };
      tiles.push(tile);
      byName.set(node.name, tile);
    });
  });
  return { ...s, tiles, byName, heads, height: Math.ceil(total), headerHeight, ...cells(s, room), room };
}

/** roomOf returns the number of cells for which a tile has room. One node of 200 may have more, so that it does not make all small. */
function roomOf(model) {
  const counts = [...model.nodes.values()].map((n) => n.cells.length).sort((a, b) => b - a);
  return counts[Math.floor(counts.length / 200)] || 0;
}

/** cells returns the size of a cell, such that the fullest nodes have room, and the number of columns. */
function cells(s, most) {
  const width = s.w - 2 * s.pad;
  const height = s.h - (s.large ? s.head + s.foot + 4 : 2 * s.pad);
  const room = Math.max(most, 4);
  let cell = Math.min(26, width / 3, height);
  const fits = (c) => Math.floor(width / c) * Math.floor(height / c) >= room;
  while (cell > 1 && !fits(cell)) cell -= cell > 8 ? 0.5 : 0.25;
  cell = Math.max(1, cell);
  const columns = Math.max(1, Math.floor(width / cell));
  return { cell, columns, rows: Math.max(1, Math.floor(height / cell)), cellGap: cell >= 10 ? 2 : cell >= 5 ? 1 : cell >= 3 ? 0.5 : 0 };
}

/** cellX and cellY are the place of a cell in its tile. Cells that do not fit share the last place. */
export const cellX = (l, cell) => l.pad + (shown(l, cell) % l.columns) * l.cell;
export const cellY = (l, cell) => (l.large ? l.head : l.pad) + Math.floor(shown(l, cell) / l.columns) * l.cell;
const shown = (l, cell) => Math.min(Math.max(cell, 0), l.columns * l.rows - 1);
