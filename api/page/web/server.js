// The API: requests with a token, and streams of server-sent events that reconnect.

const tokenKey = 'rehome.token';
const quietLimit = 40_000; // the server sends a comment each 15 seconds
const firstDelay = 500;
const longestDelay = 10_000;

let askForToken = () => {};

/** onUnauthorized sets what to do when the server wants a token. */
export function onUnauthorized(handler) { askForToken = handler; }
export const hasToken = () => sessionStorage.getItem(tokenKey) !== null;
export const setToken = (token) => sessionStorage.setItem(tokenKey, token);
export const forgetToken = () => sessionStorage.removeItem(tokenKey);

/** Refused is an answer with an error status. */
export class Refused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.set('Authorization', `Bearer ${token}`);
  const response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit' });
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    const problem = await response.json();
    const details = (problem.errors || []).map((e) => [e.location, e.message].filter(Boolean).join(': '));
    message = [problem.detail || problem.title, ...details].filter(Boolean).join(' — ') || message;
  } catch { /* the body is no problem document */ }
  if (response.status === 401) askForToken(message);
  throw new Refused(response.status, message, Number(response.headers.get('Retry-After')) || 0);
}

const segments = (...parts) => parts.map(encodeURIComponent).join('/');

export const explainPod = async (namespace, name, signal) => (await send(`v1/pods/${segments(namespace, name)}`, { signal })).json();
export const explainNode = async (name, signal) => (await send(`v1/nodes/${segments(name)}`, { signal })).json();

export async function simulate(policy, rounds, signal) {
  const body = JSON.stringify({ policy, untilSettled: true, rounds });
  return (await send('v1/simulate', { method: 'POST', body, signal, headers: { 'Content-Type': 'application/json' } })).json();
}

/** read passes each message of a response to handle until the stream ends. */
async function read(response, handle, alive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = []; // of a line that is not complete: joined once, since lines are long
  let message = { event: 'message', data: [], id: '' };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const lines = value.split('\n');
    if (lines.length === 1) {
      rest.push(value);
      continue;
    }
    lines[0] = rest.join('') + lines[0];
    rest = [lines.pop()];
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (message.data.length > 0) handle(message.event, message.data.join('\n'), message.id);
        message = { event: 'message', data: [], id: '' };
      } else if (line.startsWith('data:')) message.data.push(line.slice(line[5] === ' ' ? 6 : 5));
      else if (line.startsWith('event:')) message.event = line.slice(6).trim();
      else if (line.startsWith('id:')) message.id = line.slice(3).trim();
    }
  }
}

/** history reads past events once. handle gets the event and its ID. */
export async function history(query, handle, signal) {
  const response = await send(`v1/events?${new URLSearchParams(query)}`, { signal });
  await read(response, (event, data, id) => handle(event, JSON.parse(data), id), () => {});
}

/**
 * stream reads a stream and reconnects until stop is called. handle gets (event, data, id). state gets {up}, {up: false, error,
 * retryAt}, or {up: false, refused} when a new try is useless without a change by the user.
 */
export function stream(path, handle, state, { resume = false } = {}) {
  let stopped = false;
  let abort = null;
  let timer = 0;
  let delay = firstDelay;
  let last = '';
  let generation = 0;
  const connect = async () => {
    const mine = ++generation;
    abort = new AbortController();
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(new Error('the server is silent')), quietLimit);
    };
    try {
      alive();
      const headers = resume && last ? { 'Last-Event-ID': last } : {};
      const response = await send(path, { signal: abort.signal, headers: { Accept: 'text/event-stream', ...headers } });
      state({ up: true });
      await read(response, (event, data, id) => {
        delay = firstDelay;
        if (id) last = id;
        handle(event, JSON.parse(data), id);
      }, alive);
      throw new Error('the server ended the stream');
    } catch (error) {
      if (stopped || mine !== generation) return;
      abort.abort();
      if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
        state({ up: false, refused: error });
        return;
      }
      const wait = Math.max(delay * (0.75 + Math.random() / 2), (error.retryAfter || 0) * 1000);
      delay = Math.min(delay * 2, longestDelay);
      state({ up: false, error: error.message, retryAt: Date.now() + wait });
      timer = setTimeout(connect, wait);
    } finally { clearTimeout(watchdog); }
  };
  connect();
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
      abort?.abort();
    },
    retry() {
      clearTimeout(timer);
      abort?.abort();
      delay = firstDelay;
      if (!stopped) connect();
    },
  };
}
