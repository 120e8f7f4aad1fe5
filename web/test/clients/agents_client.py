"""OpenAI's agents for Python against the gateway: python agents_client.py URL. It prints what it got as JSON."""
import asyncio
import json
import struct
import sys

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

import speech

RATE = 24_000
called = []


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    called.append(city)
    return f"sunny in {city}"


async def main():
    agent = RealtimeAgent(name="Ada", instructions="Be brief.", tools=[weather])
    runner = RealtimeRunner(agent, config={"model_settings": {"model_name": "gpt-realtime"}})
    session = await runner.run(model_config={"url": sys.argv[1].replace("http", "ws", 1) + "/v1/realtime?model=gpt-realtime", "api_key": "anything"})
    got = {"errors": [], "seconds": 0, "interrupted": 0}
    async with session:
        async def until(is_it):
            async with asyncio.timeout(15):
                async for event in session:
                    if event.type == "error":
                        got["errors"].append(repr(event.error))
                    elif event.type == "audio":
                        got["seconds"] += len(event.audio.data) / 2 / RATE
                    elif event.type == "audio_interrupted":
                        got["interrupted"] += 1
                    got["history"] = [i.model_dump(mode="json") for i in session._history]
                    if is_it(event):
                        return

        def said(text):
            return lambda _: text in json.dumps(got.get("history", []))

        await session.send_message('/tool weather {"city":"Rome"}')
        await until(said("The tool weather says"))
        sound = speech.samples(RATE) + [0] * int(1.5 * RATE)
        for i in range(0, len(sound), RATE // 10):
            piece = sound[i:i + RATE // 10]
            await session.send_audio(struct.pack(f"<{len(piece)}h", *piece))
        await until(said("seconds of speech."))
    got["called"] = called
    print(json.dumps(got))


asyncio.run(main())
