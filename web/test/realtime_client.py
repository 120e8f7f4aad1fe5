"""OpenAI's SDK for Python against the gateway's door for the Realtime API: python realtime_client.py URL. It prints what it got as JSON.

Every event is validated strictly by the SDK's own types, as OpenAI's agents for Python do."""
import asyncio
import base64
import json
import math
import struct
import sys

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

URL = sys.argv[1]
RATE = 24_000
EVENTS = TypeAdapter(RealtimeServerEvent)
WEATHER = {"type": "function", "name": "weather", "description": "the weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
client = AsyncOpenAI(api_key="anything", base_url=URL + "/v1", websocket_base_url=URL.replace("http", "ws", 1) + "/v1")


async def until(connection, kind):
    """All events up to one of a kind."""
    events = []
    while not events or events[-1].type != kind:
        raw = await connection.recv_bytes()
        events.append(EVENTS.validate_json(raw, strict=True))
        if events[-1].type == "error" and kind != "error":
            raise RuntimeError(events[-1].error.message)
    return events


async def respond(connection, **response):
    """The answer to what waits, and how it was told."""
    await connection.response.create(response=response)
    events = await until(connection, "response.done")
    return events[-1].response, [e.type for e in events], events


async def type_text(connection, text, **response):
    await connection.conversation.item.create(item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    return await respond(connection, **response)


async def say(connection, seconds, quiet=1.0):
    samples = [int(9_000 * math.sin(2 * math.pi * 440 * i / RATE)) for i in range(int(RATE * seconds))] + [0] * int(RATE * quiet)
    for i in range(0, len(samples), 2_400):
        piece = samples[i:i + 2_400]
        await connection.input_audio_buffer.append(audio=base64.b64encode(struct.pack(f"<{len(piece)}h", *piece)).decode())


def voice(events):
    return sum(len(base64.b64decode(e.delta)) for e in events if e.type == "response.output_audio.delta") / 2 / RATE


def said(response):
    return "".join(c.transcript or c.text or "" for item in response.output if item.type == "message" for c in item.content)


async def by_voice(got):
    async with client.realtime.connect(model="gpt-realtime-2") as c:
        got["created"] = (await until(c, "session.created"))[0].session.model
        await c.session.update(session={
            "type": "realtime", "instructions": "Be brief.", "tools": [WEATHER], "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        })
        got["updated"] = (await until(c, "session.updated"))[-1].session.instructions
        await say(c, 1)
        events = await until(c, "response.done")
        got["spoken"] = [e.type for e in events]
        got["seconds"] = voice(events)
        got["heard"] = next(e.transcript for e in events if e.type == "conversation.item.input_audio_transcription.completed")
        got["usage"] = events[-1].response.usage.total_tokens
        response, got["typed"], _ = await type_text(c, "Hello", metadata={"a": "b"})
        got["metadata"], got["said"] = response.metadata, said(response)
        response, got["called"], _ = await type_text(c, '/tool weather {"city":"Rome"}')
        call = response.output[0]
        await c.conversation.item.create(item={"type": "function_call_output", "call_id": call.call_id, "output": "sunny in " + json.loads(call.arguments)["city"]})
        response, _, _ = await respond(c)
        got["result"] = said(response)
        await c.conversation.item.create(item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "many words " * 40}]})
        await c.response.create()
        await until(c, "response.output_audio.delta")
        await c.response.cancel()
        done = (await until(c, "response.done"))[-1].response
        got["cancelled"] = [done.status, done.status_details.reason]
        got["after"] = said((await type_text(c, "And now?"))[0])
        await c.response.cancel(event_id="mine")
        error = (await until(c, "error"))[-1].error
        got["refused"] = [error.code, error.event_id]
        got["greeting"] = said((await respond(c, instructions="Greet me."))[0])


async def by_hand(got):
    """Push to talk, with G.711."""
    async with client.realtime.connect(model="gemini-3.8-live") as c:
        await c.session.update(session={"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}, "turn_detection": None}, "output": {"format": {"type": "audio/pcmu"}}}})
        await until(c, "session.updated")
        for _ in range(50):
            await c.input_audio_buffer.append(audio=base64.b64encode(bytes([0x80, 0x80, 0, 0] * 40)).decode())
        await c.input_audio_buffer.commit()
        await until(c, "conversation.item.done")
        response, _, events = await respond(c)
        got["push to talk"] = [said(response), voice(events) * 2 * RATE / 8_000]
        await c.input_audio_buffer.commit()
        got["empty"] = (await until(c, "error"))[-1].error.code


async def by_own_ear(got):
    """Speech is told, and answered when asked for."""
    async with client.realtime.connect(model="gemini-3.8-live") as c:
        await c.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": False}}}})
        await until(c, "session.updated")
        await say(c, 1)
        got["own ear"] = [e.type for e in await until(c, "conversation.item.done")]
        got["asked"] = said((await respond(c))[0])


async def main():
    got = {}
    await asyncio.gather(by_voice(got), by_hand(got), by_own_ear(got))
    print(json.dumps(got))


asyncio.run(main())
