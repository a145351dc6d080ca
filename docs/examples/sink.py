"""Prints the verdicts that `rehome forward --type verdict` posts. It needs only Python.

    python3 sink.py 8080
    rehome forward --to http://127.0.0.1:8080/ --type verdict
"""

import http.server
import json
import sys

seen = set()  # an event can be repeated with the same source and id


class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for many events

    def do_POST(self):
        data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        event = self.headers["ce-source"], self.headers["ce-id"]
        if self.headers["ce-type"] == "dev.rehome.verdict.v1" and event not in seen:
            seen.add(event)
            pod = data["intent"]["pod"]
            line = f"{data['outcome']} {pod['namespace']}/{pod['name']} {data['message']}\n"
            sys.stdout.write(line)  # in one write, because each connection has its own thread
            sys.stdout.flush()
        self.send_response(204)  # received; no retry needed
        self.end_headers()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
