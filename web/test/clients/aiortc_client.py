"""aiortc as a WHIP client: python aiortc_client.py URL. It speaks a tone for a second and prints what it hears as JSON."""
import asyncio
import fractions
import json
import sys
import time
from urllib.parse import urljoin

import aiohttp
import numpy
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame

RATE, FRAME = 48_000, 960
TONE_HZ = 440


class Microphone(MediaStreamTrack):
    """A second of a tone, behind half a second of silence, and then silence."""

    kind = "audio"

    def __init__(self):
        super().__init__()
        self.sent, self.begin = 0, time.monotonic()

    async def recv(self):
        await asyncio.sleep(max(0, self.begin + self.sent / RATE - time.monotonic()))
        at = numpy.arange(self.sent, self.sent + FRAME)
        loud = (at >= RATE // 2) & (at < RATE * 3 // 2)
        samples = (numpy.sin(2 * numpy.pi * TONE_HZ * at / RATE) * 9_000 * loud).astype(numpy.int16)
        frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, self.sent, fractions.Fraction(1, RATE)
        self.sent += FRAME
        return frame


async def hear(track):
    """The seconds of sound in an answer: until a second has passed without any, or, as the gateway sends none in silence, without packets."""
    loud, quiet = 0.0, 0.0
    while loud == 0 or quiet < 1:
        try:
            frame = await asyncio.wait_for(track.recv(), 1 if loud else 30)
        except TimeoutError:
            break
        level = numpy.abs(frame.to_ndarray().astype(numpy.int32)).mean()
        seconds = frame.samples / frame.sample_rate
        if level > 200:
            loud, quiet = loud + seconds, 0.0
        else:
            quiet += seconds
    return loud


async def main(url):
    peer = RTCPeerConnection()
    track = asyncio.get_running_loop().create_future()
    peer.on("track", lambda t: track.set_result(t))
    peer.addTransceiver(Microphone(), direction="sendrecv")
    await peer.setLocalDescription(await peer.createOffer())
    async with aiohttp.ClientSession() as http:
        headers = {"Content-Type": "application/sdp"}
        async with http.post(url, data=peer.localDescription.sdp, headers=headers) as answer:
            answer.raise_for_status()
            status, where, sdp = answer.status, answer.headers.get("Location"), await answer.text()
        await peer.setRemoteDescription(RTCSessionDescription(sdp, "answer"))
        seconds = await hear(await track)
        async with http.delete(urljoin(url, where)) as end:
            ended = end.status
    await peer.close()
    print(json.dumps({"status": status, "seconds": seconds, "ended": ended}))


asyncio.run(main(sys.argv[1]))
