"""LiveKit's plugins against the gateway: python livekit_client.py PLUGIN URL TLS_URL CA. It prints what it got as JSON."""
import asyncio
import json
import os
import struct
import sys

plugin, url, secure, os.environ["SSL_CERT_FILE"] = sys.argv[1:]

import aiohttp
from google.genai import types
from livekit import rtc
from livekit.agents import llm, utils
from livekit.plugins import google, openai

import speech


@llm.function_tool
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def say(rate):
    samples = speech.samples(rate) + [0] * rate
    size = rate // 10
    for i in range(0, len(samples), size):
        piece = samples[i:i + size]
        yield rtc.AudioFrame(struct.pack(f"<{len(piece)}h", *piece), rate, 1, len(piece))


async def heard(generation):
    """The text, the seconds of voice and the calls of an answer."""
    text, seconds, calls = "", 0.0, []
    async for message in generation.message_stream:
        async def read_text():
            nonlocal text
            async for piece in message.text_stream:
                text += str(piece)

        async def read_audio():
            nonlocal seconds
            async for frame in message.audio_stream:
                seconds += frame.duration

        await asyncio.gather(read_text(), read_audio())
    async for call in generation.function_stream:
        calls.append(call)
    return text, seconds, calls


async def talk(model, rate, tool):
    got, errors = {}, []
    session = model.session()
    session.on("error", lambda e: errors.append(repr(e.error)))
    spontaneous = asyncio.Queue()
    session.on("generation_created", lambda e: None if e.user_initiated else spontaneous.put_nowait(e))
    await session.update_instructions("Be brief.")
    if tool:
        await session.update_tools([weather])
    context = llm.ChatContext.empty()
    context.add_message(role="user", content="My name is Ada.")
    context.add_message(role="assistant", content="Hello Ada.")
    await session.update_chat_ctx(context)

    async def reply(instructions):
        return await asyncio.wait_for(session.generate_reply(instructions=instructions), 10)

    got["greeting"] = (await heard(await reply("Greet me.")))[0]
    for frame in say(rate):
        session.push_audio(frame)
    got["voice"] = (await heard(await asyncio.wait_for(spontaneous.get(), 10)))[:2]
    if tool:
        context = session.chat_ctx.copy()
        context.add_message(role="user", content='/tool weather {"city":"Rome"}')
        await session.update_chat_ctx(context)
        _, _, calls = await heard(await asyncio.wait_for(session.generate_reply(), 10))
        context = session.chat_ctx.copy()
        context.items.append(llm.FunctionCallOutput(call_id=calls[0].call_id, name="weather", output="sunny in Rome", is_error=False))
        await session.update_chat_ctx(context)
        got["tool"] = (await heard(await asyncio.wait_for(session.generate_reply(), 10)))[0]
    if tool:
        context = session.chat_ctx.copy()
        context.add_message(role="user", content="/history")
        await session.update_chat_ctx(context)
        got["history"] = (await heard(await asyncio.wait_for(session.generate_reply(), 10)))[0]
    long = await reply("many words " * 40)
    await asyncio.sleep(0.5)
    if tool:
        session.interrupt()
    else:  # Gemini has no word for it: by voice
        for frame in say(rate):
            session.push_audio(frame)
    got["interrupted"] = (await asyncio.wait_for(heard(long), 10))[0]
    if not tool:
        await heard(await asyncio.wait_for(spontaneous.get(), 10))
    got["after"] = (await heard(await reply("And now?")))[0]
    got["errors"] = errors
    await session.aclose()
    await model.aclose()
    return got


async def main():
    async with aiohttp.ClientSession() as http:
        if plugin == "openai":
            model = openai.realtime.RealtimeModel(base_url=url + "/v1", api_key="anything", model="gpt-realtime", http_session=http)
        else:
            model = google.realtime.RealtimeModel(api_key="anything", model="gemini-3.8-live", http_options=types.HttpOptions(base_url=secure))
        print(json.dumps(await talk(model, 24_000 if plugin == "openai" else 16_000, plugin == "openai")))


asyncio.run(main())
