"""Receives events from Rehome and makes a request. It needs only the standard library of Python 3.9 or later.

It prints the verdicts that `rehome forward` posts to it. With --pod it also requests the move of that pod, prints the receipt,
and exits when the move ends: with 0 if the replacement runs on another node, otherwise with 1. Each line is JSON. To try it:

    REHOME_API_ADDRESS=127.0.0.1:8643 rehome run --policy deploy/policy.yaml
    rehome forward --to http://127.0.0.1:8092/ --type verdict
    kubectl create token default > token
    python3 docs/examples/listener/listener.py --pod shop/cart-0 --reason 'it hangs' --token-file token

docs/events.md describes the events. docs/asking.md describes the request, and the right that the token needs.
"""

import argparse
import json
import queue
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

verdicts: queue.Queue = queue.Queue()  # with their correlation IDs


class Sink(BaseHTTPRequestHandler):
    """Receives events in binary mode: the attributes are headers, and the body is the data."""

    protocol_version = "HTTP/1.1"  # one connection for many events
    seen: set = set()  # an event can be repeated with the same source and id

    def do_POST(self) -> None:
        status = 204  # received; no retry needed
        try:
            data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            event = self.headers["ce-source"], self.headers["ce-id"]
            if self.headers["ce-specversion"] != "1.0" or None in event:
                raise ValueError("no CloudEvent")
            if self.headers["ce-type"] == "dev.rehome.verdict.v1" and event not in self.seen:
                self.seen.add(event)
                verdicts.put((self.headers["ce-correlationid"], data))
        except (TypeError, ValueError) as problem:
            self.log_error("refused: %s", problem)
            self.close_connection, status = True, 400
        self.send_response(status)
        self.send_header("Content-Length", "0") if status != 204 else None
        self.end_headers()

    def log_request(self, *_) -> None:
        pass


def show(what: str, **more: object) -> None:
    print(json.dumps({"what": what, **more}), flush=True)


def show_verdict(verdict: dict) -> None:
    pod = verdict["intent"]["pod"]
    show("verdict", outcome=verdict["outcome"], reason=verdict["reason"], pod=f"{pod['namespace']}/{pod['name']}",
         strategy=verdict["strategy"], why=verdict["intent"]["reason"])


def ask(url: str, token: str, data: dict) -> tuple:
    """Posts a request, retries if the server asks for it, and returns the correlationid and the data of the receipt."""
    headers = {
        "Authorization": f"Bearer {token}", "Content-Type": "application/json", "ce-specversion": "1.0",
        "ce-type": "dev.rehome.request.v1", "ce-id": secrets.token_hex(16), "ce-source": "/examples/listener",
        "ce-time": datetime.now(timezone.utc).isoformat(),
    }
    for _ in range(10):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(data).encode(), headers), timeout=30) as answer:
                body = answer.read()
                if not body:
                    raise SystemExit("the request is stored, and nobody works on requests at the moment")
                return answer.headers["ce-correlationid"], json.loads(body)
        except urllib.error.HTTPError as refused:
            text, again = refused.read().decode(), refused.headers.get("Retry-After", "")
            if refused.headers.get("ce-type") == "dev.rehome.receipt.v1":
                return refused.headers["ce-correlationid"], json.loads(text)  # with the reason
            if refused.code not in (429, 503) or not again.isdecimal():
                raise SystemExit(f"{refused.code}: {text.strip()}") from refused
            time.sleep(int(again))
    raise SystemExit("asked ten times in vain")


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--listen", default="127.0.0.1:8092", help="where verdicts are posted")
    flags.add_argument("--ask", default="http://127.0.0.1:8643/v1/requests", help="where requests are taken")
    flags.add_argument("--token-file", help="file with a token of the cluster")
    flags.add_argument("--pod", help="NAMESPACE/NAME of the pod to move")
    flags.add_argument("--reason", default="an example wants it", help="why the pod should move")
    args = flags.parse_args()
    host, _, port = args.listen.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    show("listening", at=args.listen)
    chain = None  # the correlationid of the request
    if args.pod:
        namespace, _, name = args.pod.partition("/")
        target = {"pods": [{"namespace": namespace, "name": name}]}
        with open(args.token_file, encoding="utf-8") as file:
            token = file.read().strip()
        chain, receipt = ask(args.ask, token, {"action": "deschedule", "reason": args.reason, "target": target})
        show("receipt", state=receipt["state"], reason=receipt["reason"], message=receipt["message"])
        if receipt["state"] == "rejected":
            return 1
    while True:
        correlation, verdict = verdicts.get()
        show_verdict(verdict)
        if chain and correlation == chain and verdict["outcome"] == "settled":
            return 0 if verdict["reason"] == "Replaced" else 1


if __name__ == "__main__":
    sys.exit(main())
