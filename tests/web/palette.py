"""PNG files with a palette, which have a third of the bytes that Chromium's screenshots have."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Final

from playwright.sync_api import Browser

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_DEPTH, _INDEXED = 8, 3
"""The bits of a pixel, and the colour type of pixels that are indices of a palette."""

_REDUCE: Final = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes]));
  const { width, height } = image;
  const drawing = new OffscreenCanvas(width, height).getContext("2d");
  drawing.drawImage(image, 0, 0);
  const { data } = drawing.getImageData(0, 0, width, height);
  const pixels = new Uint32Array(data.buffer);

  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const colours = [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one));
  const distance = (one, other) => Math.max(
    ...[0, 8, 16].map((bits) => Math.abs(((one >> bits) & 255) - ((other >> bits) & 255)))
  );

  // A colour that is not in the palette differs from one in it by `apart` at most.
  let palette;
  for (let apart = 0; ; apart += 1) {
    palette = [];
    for (const colour of colours) {
      if (palette.every((chosen) => distance(chosen, colour) > apart)) palette.push(colour);
      if (palette.length > 256) break;
    }
    if (palette.length <= 256) break;
  }
  const indices = new Map();
  for (const colour of colours) {
    let nearest = 0;
    palette.forEach((chosen, at) => {
      if (distance(chosen, colour) < distance(palette[nearest], colour)) nearest = at;
    });
    indices.set(colour, nearest);
  }
  const rows = [];
  for (let row = 0; row < height; row += 1) {
    const line = pixels.subarray(row * width, (row + 1) * width);
    rows.push(String.fromCharCode(...Array.from(line, (pixel) => indices.get(pixel))));
  }
  return {
    width,
    rows,
    palette: palette.flatMap((colour) => [0, 8, 16].map((bits) => (colour >> bits) & 255)),
  };
}"""


def reduced(browser: Browser, png: bytes) -> bytes:
    """Return an opaque picture as PNG with its 256 most important colours.

    These are its most frequent ones that differ enough. The format: RFC 2083, sections 3 to 6.
    """
    page = browser.new_page()
    try:
        found = page.evaluate(_REDUCE, base64.b64encode(png).decode())
    finally:
        page.close()
    rows = [row.encode("latin-1") for row in found["rows"]]
    head = struct.pack(">2I5B", found["width"], len(rows), _DEPTH, _INDEXED, 0, 0, 0)
    # Each row begins with its filter: none, which suits indices best.
    packed = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = (b"IHDR", head), (b"PLTE", bytes(found["palette"])), (b"IDAT", packed), (b"IEND", b"")
    return _SIGNATURE + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
