"""A custom strategy, as a function over HTTP. It needs only the standard library of Python 3.9 or later.

It moves pods out of the zone that an annotation of the pod names:

    kubectl annotate pod cart-0 example.com/avoid-zone=eu-west-1b

The file policy.yaml in this folder enables it. To try it:

    python3 docs/examples/avoidzone/avoid_zone.py    # listens at 127.0.0.1:8091, or at ADDRESS
    rehome run --policy docs/examples/avoidzone/policy.yaml

docs/functions.md describes the requests and the responses. The function needs no rights in the cluster or on the bus. A changed
annotation causes no evaluation. The strategy sees it when the pod starts, when its labels or its node change, or at the next resync.
"""

import json
import os
import secrets
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

STRATEGY = "AvoidZone"
ZONE = "topology.kubernetes.io/zone"
MOST_BYTES = 8 << 20  # larger than the scope of a node with all its pods


class Refused(Exception):
    """An error response: a status and a line of text."""


def decide(scope: dict) -> list:
    """Returns the pods of the scope that should move. It uses only the scope."""
    node, args = scope["node"]["metadata"], scope.get("args") or {}
    zone = (node.get("labels") or {}).get(ZONE)
    annotation = args.get("annotation", "example.com/avoid-zone")
    intents = []
    for entry in scope["pods"]:
        pod = entry["pod"]["metadata"]
        avoided = (pod.get("annotations") or {}).get(annotation)
        if avoided and avoided == zone and not entry.get("protected"):
            moved = {key: pod[key] for key in ("namespace", "name", "uid")}
            intents.append({"pod": moved, "node": node["name"], "reason": f"avoids the zone {zone}"})
    return intents


def answer(event: dict, scope: dict) -> dict:
    """The data of the answer to a scope. The schema requires its dates and IDs."""
    if scope.get("strategy") != STRATEGY or scope.get("kind") != "node":
        raise Refused(400, f"want a scope of the kind node for {STRATEGY}")
    intents = decide(scope)
    expires = (datetime.now(timezone.utc) + timedelta(minutes=10)).isoformat()
    for intent in intents:
        intent.update(id=f"{event['id']}.{intent['pod']['uid']}", expires=expires)
    of = {copied: scope[copied] for copied in ("kind", "key", "since", "now")} | {"event": event["id"], "sequence": 0}
    return {"profile": scope["profile"], "strategy": STRATEGY, "scope": of, "intents": intents}


class Function(BaseHTTPRequestHandler):
    """Answers scopes in binary mode: the attributes are headers, and the body is the data."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without data

    def do_POST(self) -> None:
        try:
            event, scope = self.read()
            data = answer(event, scope)
        except Refused as refused:
            return self.send_text(*refused.args)
        except (AttributeError, KeyError, TypeError) as problem:
            return self.send_text(400, f"not a scope: {problem!r}")
        trace = event.get("traceparent", "").split("-")
        attributes = {
            "specversion": "1.0", "type": "dev.rehome.intents.v1", "source": "/examples/avoidzone",
            "id": secrets.token_hex(16), "time": datetime.now(timezone.utc).isoformat(),
            "subject": event.get("subject"), "causationid": event["id"], "correlationid": event.get("correlationid"),
        }
        if len(trace) == 4:
            attributes["traceparent"] = "-".join([trace[0], trace[1], secrets.token_hex(8), trace[3]])
        headers = {f"ce-{name}": quote(value, safe="/:=,+-._~@") for name, value in attributes.items() if value}
        self.send(200, json.dumps(data).encode(), {"Content-Type": "application/json", **headers})

    def read(self) -> tuple:
        """Returns the attributes and the data of the scope."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(411, "want a Content-Length")
        if int(length) > MOST_BYTES:
            for left in range(int(length), 0, -65536):  # a client that is still writing would not read the response
                self.rfile.read(min(left, 65536))
            raise Refused(413, f"want at most {MOST_BYTES} bytes")
        body = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json" or "Content-Encoding" in self.headers:
            raise Refused(415, "want a CloudEvent in binary mode, with JSON that is not compressed")
        event = {name[3:].lower(): unquote(value) for name, value in self.headers.items() if name.lower().startswith("ce-")}
        if event.get("specversion") != "1.0" or event.get("type") != "dev.rehome.scope.v1" or not event.get("id"):
            raise Refused(400, "want a CloudEvent 1.0 of the type dev.rehome.scope.v1")
        try:
            return event, json.loads(body)
        except (ValueError, RecursionError) as problem:
            raise Refused(400, f"the data is not JSON: {problem}") from problem

    def do_GET(self) -> None:
        self.send(405, b"want POST with a scope\n", {"Allow": "POST", "Connection": "close"})

    do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_PUT = do_GET

    def send_text(self, status: int, text: str) -> None:
        # The body may be unread, so the connection cannot be reused.
        self.send(status, (text + "\n").encode(), {"Content-Type": "text/plain; charset=utf-8", "Connection": "close"})

    def send(self, status: int, body: bytes, headers: dict) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    host, _, port = os.environ.get("ADDRESS", "127.0.0.1:8091").rpartition(":")
    with ThreadingHTTPServer((host, int(port)), Function) as server:
        print(f"serving at {host}:{port}", flush=True)
        server.serve_forever()
