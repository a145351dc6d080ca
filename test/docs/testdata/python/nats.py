"""As much of nats-py as the pages of the documentation use, over a real connection, so that their programs run where it is not
installed. What is named as there works as there."""

import asyncio
import json
import uuid


class Msg:
    def __init__(self, nc, subject, reply, headers, data):
        self.nc, self.subject, self.reply, self.headers, self.data = nc, subject, reply, headers, data

    async def respond(self, data):
        await self.nc.publish(self.reply, data)


class Subscription:
    def __init__(self):
        self.waiting = asyncio.Queue()

    async def next_msg(self, timeout=1.0):
        return await asyncio.wait_for(self.waiting.get(), timeout)

    @property
    def messages(self):
        async def every():
            while True:
                yield await self.waiting.get()

        return every()


class JetStream:
    def __init__(self, nc):
        self.nc = nc

    async def publish(self, subject, payload=b"", timeout=5, headers=None):
        inbox = "_INBOX." + uuid.uuid4().hex
        answers = await self.nc.subscribe(inbox)
        await self.nc.publish(subject, payload, reply=inbox, headers=headers)
        ack = json.loads((await answers.next_msg(timeout)).data)
        if "error" in ack:
            raise RuntimeError(ack["error"])
        return ack


class Client:
    async def open(self, url):
        host, _, port = url.removeprefix("nats://").rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        self.subscriptions = {}
        await self.reader.readline()  # INFO
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "test", "version": "0"}
        self.writer.write(f"CONNECT {json.dumps(options)}\r\n".encode())
        self.task = asyncio.create_task(self.read())

    async def read(self):
        while line := await self.reader.readline():
            words = line.decode().split()
            if words[0] == "PING":
                self.writer.write(b"PONG\r\n")
            elif words[0] == "-ERR":
                raise RuntimeError(line.decode())
            elif words[0] in ("MSG", "HMSG"):
                await self.message(words)

    async def message(self, words):
        counts = 2 if words[0] == "HMSG" else 1
        sizes = [int(n) for n in words[-counts:]]
        body = (await self.reader.readexactly(sizes[-1] + 2))[:-2]
        head = body[: sizes[0]] if counts == 2 else b""
        lines = head.decode().strip().split("\r\n")[1:]
        headers = {name: value.strip() for name, _, value in (h.partition(":") for h in lines)}
        reply = words[3] if len(words) == 4 + counts else ""
        msg = Msg(self, words[1], reply, headers or None, body[len(head):])
        await self.subscriptions[words[2]].waiting.put(msg)

    async def subscribe(self, subject, queue=""):
        number = str(len(self.subscriptions) + 1)
        s = self.subscriptions[number] = Subscription()
        self.writer.write(f"SUB {subject} {queue} {number}\r\n".encode())
        return s

    async def publish(self, subject, payload=b"", reply="", headers=None):
        head = b""
        if headers:
            head = ("NATS/1.0\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items()) + "\r\n").encode()
        sizes = f"{len(head)} {len(head) + len(payload)}" if headers else f"{len(payload)}"
        verb = "HPUB" if headers else "PUB"
        self.writer.write(f"{verb} {subject} {reply} {sizes}\r\n".encode() + head + payload + b"\r\n")
        await self.writer.drain()

    def jetstream(self):
        return JetStream(self)

    async def close(self):
        self.task.cancel()
        self.writer.close()


async def connect(url):
    nc = Client()
    await nc.open(url)
    return nc
