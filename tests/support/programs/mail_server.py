"""A mail server (RFC 5321): ``python mail_server.py ADDRESS PORT [CERTIFICATE KEY]``.

With a certificate it offers STARTTLS (RFC 3207), and takes no message without it. It prints each
message that it has taken as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from contextlib import suppress

_EXTENSIONS = ("AUTH PLAIN LOGIN", "8BITMIME")


class Session:
    """A connection of a client."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: ssl.SSLContext | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tls = tls
        self._is_secure = False
        self._recipients: list[str] = []

    async def serve(self) -> None:
        """Answer commands until the client leaves."""
        self._say("220 mail")
        while line := await self._reader.readline():
            word = line.split()[0].upper().decode() if line.split() else ""
            if word == "QUIT":
                self._say("221 bye")
                return
            await self._obey(word, line.decode().strip())

    async def _obey(self, word: str, line: str) -> None:
        needs_tls = self._tls is not None and not self._is_secure
        if word == "EHLO":
            offered = ["STARTTLS"] if needs_tls else []
            lines = ["mail", *offered, *_EXTENSIONS]
            for each in lines[:-1]:
                self._say(f"250-{each}")
            self._say(f"250 {lines[-1]}")
        elif word == "STARTTLS" and needs_tls:
            assert self._tls is not None
            self._say("220 go on")
            await self._writer.start_tls(self._tls)
            self._is_secure = True
        elif needs_tls:
            self._say("530 STARTTLS first")
        elif word == "AUTH":
            self._say("235 welcome")
        elif word == "RCPT":
            self._recipients.append(line.partition(":")[2])
            self._say("250 ok")
        elif word == "DATA":
            self._say("354 go on")
            self._print((await self._reader.readuntil(b"\r\n.\r\n")).decode())
            self._say("250 taken")
        else:
            self._say("250 ok")

    def _print(self, text: str) -> None:
        found = {
            "source": self._writer.get_extra_info("peername")[0],
            "is_secure": self._is_secure,
            "recipients": self._recipients,
            "text": text,
        }
        print(json.dumps(found), flush=True)

    def _say(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())


async def main(address: str, port: str, *certificate: str) -> None:
    """Serve until the process is ended."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if certificate else None
    if tls is not None:
        tls.load_cert_chain(*certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await Session(reader, writer, tls).serve()
        writer.close()

    server = await asyncio.start_server(serve, address, int(port))
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
