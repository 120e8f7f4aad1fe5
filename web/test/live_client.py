"""Google's SDK for Python against the gateway's door for the Live API: python live_client.py URL CA. It prints what it got as JSON."""
import asyncio
import json
import math
import os
import struct
import sys

os.environ["SSL_CERT_FILE"] = sys.argv[2]

from google import genai
from google.genai import types

client = genai.Client(api_key="anything", http_options={"base_url": sys.argv[1]})
WEATHER = {"function_declarations": [{"name": "weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}]}
RATE = 16_000


def connect(handle=None):
    config = {
        "response_modalities": ["AUDIO"], "input_audio_transcription": {}, "output_audio_transcription": {},
        "tools": [WEATHER], "session_resumption": {"handle": handle} if handle else {},
    }
    return client.aio.live.connect(model="gemini-3.8-live", config=config)


class Turn:
    """What has come until the turn was complete."""

    def __init__(self):
        self.said = self.heard = ""
        self.handle = self.call = None
        self.seconds = 0

    async def of(self, session):
        async for m in session.receive():
            if m.tool_call:
                self.call = m.tool_call.function_calls[0]
            if m.session_resumption_update:
                self.handle = m.session_resumption_update.new_handle
            if m.data:
                self.seconds += len(m.data) / 2 / 24_000
            content = m.server_content
            if content and content.output_transcription:
                self.said += content.output_transcription.text or ""
            if content and content.input_transcription:
                self.heard += content.input_transcription.text or ""
        return self


async def main():
    got = {}
    async with connect() as session:
        tone = [int(9_000 * math.sin(2 * math.pi * 440 * i / RATE)) for i in range(RATE)] + [0] * RATE
        for i in range(0, len(tone), 1600):
            pcm = struct.pack("<1600h", *tone[i:i + 1600])
            await session.send_realtime_input(audio=types.Blob(data=pcm, mime_type=f"audio/pcm;rate={RATE}"))
        spoken = await Turn().of(session)
        got["heard"], got["seconds"] = spoken.heard, spoken.seconds
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "Hello"}]})
        got["typed"] = (await Turn().of(session)).said
        await session.send_client_content(turns={"role": "user", "parts": [{"text": '/tool weather {"city":"Rome"}'}]})
        call = (await Turn().of(session)).call
        answer = types.FunctionResponse(id=call.id, name=call.name, response={"output": "sunny in " + call.args["city"]})
        await session.send_tool_response(function_responses=[answer])
        got["called"] = (await Turn().of(session)).said
    async with connect(spoken.handle) as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "/history"}]})
        got["resumed"] = (await Turn().of(session)).said
    mint = genai.Client(api_key="anything", http_options={"base_url": sys.argv[1], "api_version": "v1alpha"})
    token = mint.auth_tokens.create(config={
        "uses": 1, "live_connect_constraints": {"model": "gemini-3.8-live", "config": {"response_modalities": ["AUDIO"], "output_audio_transcription": {}}},
    })
    page = genai.Client(api_key=token.name, http_options={"base_url": sys.argv[1], "api_version": "v1alpha"})
    async with page.aio.live.connect(model="gemini-3.8-live") as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "by token"}]})
        got["token"] = (await Turn().of(session)).said
    print(json.dumps(got))


asyncio.run(main())
