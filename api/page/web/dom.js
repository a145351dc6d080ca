// Small helpers for elements, times, and numbers. Text from the cluster only ever becomes a text node.

/** el makes an element. Children are elements or text; null and false are left out. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === 'style') for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else if (name === 'class') element.className = value;
    else if (name in element && typeof value !== 'string') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** svg makes an icon from path data of ours. */
export function icon(path, label) {
  const space = 'http://www.w3.org/2000/svg';
  const s = document.createElementNS(space, 'svg');
  s.setAttribute('viewBox', '0 0 16 16');
  s.setAttribute('class', 'icon');
  if (label) {
    s.setAttribute('role', 'img');
    s.setAttribute('aria-label', label);
  } else s.setAttribute('aria-hidden', 'true');
  const p = document.createElementNS(space, 'path');
  p.setAttribute('d', path);
  s.append(p);
  return s;
}

export const icons = {
  close: 'M4 4l8 8M12 4l-8 8',
  play: 'M5 3l8 5-8 5z',
  pause: 'M5 3v10M11 3v10',
  right: 'M3 8h10M9 4l4 4-4 4',
  back: 'M13 8H3M7 4L3 8l4 4',
  check: 'M3 8.5l3.5 3.5L13 5',
};

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
const day = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric' });
const number = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: 'compact', maximumSignificantDigits: 3 });

/** time formats a time in the zone of the browser, with the day if it is not today. */
export function time(t) {
  const date = new Date(t);
  if (Number.isNaN(date.getTime())) return '';
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`;
}

/** timeElement has the exact time in the title. */
export function timeElement(t, text = time(t)) {
  const date = new Date(t);
  const exact = Number.isNaN(date.getTime()) ? '' : date.toISOString();
  return el('time', { datetime: exact, title: date.toString() }, text);
}

export const count = (n, noun, plural = `${noun}s`) => `${number.format(n)} ${n === 1 ? noun : plural}`;
export const digits = (n) => number.format(n);

/** short formats large numbers with few digits. */
export const short = (n) => (n < 100_000 ? digits(n) : compact.format(n));

/** duration formats seconds in at most two units. */
export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const since = (t, now = Date.now()) => duration((now - new Date(t).getTime()) / 1000);

/** memory formats bytes. */
export function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024 || unit === 'GiB') return `${n < 10 && n % 1 ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
}

/** words turns a reason code such as WorkloadUnavailable into words. */
export const words = (code) => (code || '').replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase().replace(/^./, (c) => c.toUpperCase());

/** empty is the text of an empty list. */
export const empty = (title, text) => el('div', { class: 'empty' }, el('strong', {}, title), el('p', {}, text));

/** meter shows a share as a bar with text. */
export function meter(label, used, of, text) {
  const share = of > 0 ? Math.min(1, used / of) : 0;
  const bar = el('span', { class: 'meter-bar', 'aria-hidden': 'true' }, el('span', { style: { width: `${share * 100}%` } }));
  return el('div', { class: 'meter' }, el('span', {}, label), bar, el('span', { class: 'meter-text' }, text));
}

/**
 * replace changes the content of an element only if its key has changed. The focus goes to the link, button, or summary with the same
 * text in the element with the same ID, and details that have an ID stay open or closed.
 */
export function replace(element, key, make) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const idAround = (e) => e.closest('[id]')?.id;
  const id = active && idAround(active);
  const open = new Map([...element.querySelectorAll('details[id]')].map((d) => [d.id, d.open]));
  element.replaceChildren(...[make()].flat().filter(Boolean));
  for (const d of element.querySelectorAll('details[id]')) d.open = open.get(d.id) ?? d.open;
  if (!active) return;
  const same = [...element.querySelectorAll(active.tagName)].find((e) => e.textContent === active.textContent && idAround(e) === id);
  same?.focus({ preventScroll: true });
}
