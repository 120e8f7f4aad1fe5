/** Puts files into a ZIP archive, as they are: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3. */

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let i = 0; i < 8; i++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

/** @param {Uint8Array} bytes */
function crc(bytes) {
  let sum = 0xffffffff;
  for (const b of bytes) sum = /** @type {number} */ (TABLE[(sum ^ b) & 255]) ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

/** Little-endian numbers. @param {...[value: number, bytes: 2|4]} fields */
function pack(...fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [, bytes]) => sum + bytes, 0)));
  let at = 0;
  for (const [value, bytes] of fields) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return new Uint8Array(view.buffer);
}

const UTF8 = 0x800; // names are
const LONG_AGO = 0x21; // 1980-01-01, the first day there is

/** @param {{name: string, text: string}[]} files */
export function zip(files) {
  /** @type {BlobPart[]} */
  const parts = [];
  /** @type {BlobPart[]} */
  const index = [];
  let at = 0;
  let length = 0;
  for (const file of files) {
    const name = new TextEncoder().encode(file.name);
    const data = new TextEncoder().encode(file.text);
    /** @type {[number, 2|4][]} */
    const about = [[20, 2], [UTF8, 2], [0, 2], [0, 2], [LONG_AGO, 2], [crc(data), 4], [data.length, 4], [data.length, 4], [name.length, 2], [0, 2]];
    parts.push(pack([0x04034b50, 4], ...about), name, data);
    index.push(pack([0x02014b50, 4], [20, 2], ...about, [0, 2], [0, 2], [0, 2], [0, 4], [at, 4]), name);
    at += 30 + name.length + data.length;
    length += 46 + name.length;
  }
  const end = pack([0x06054b50, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [length, 4], [at, 4], [0, 2]);
  return new Blob([...parts, ...index, end], { type: 'application/zip' });
}
